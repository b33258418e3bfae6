"""Terms of requests with their translations, and the glossaries of clients on disk."""

import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from cotext.data.documents import Languages
from cotext.runtime import CotextError, shown
from cotext.runtime.files import remove
from cotext.serving.errors import RequestError
from cotext.serving.jobs.storage import private, write_durably
from cotext.serving.settings import SHARES
from cotext.translation.open import Wishes
from cotext.translation.terms.glossary import Glossary

MAX_TERM: Final = 1024

Entries = Sequence[tuple[str, str]]  # source terms and their translations


def wishes_of(entries: Entries) -> Wishes:
    """Return constraints with these entries; several translations of one term are alternatives.

    Raises:
        CotextError: a term or a translation is empty.
    """
    terms: dict[str, list[str]] = {}
    for source, target in entries:
        terms.setdefault(source, []).append(target)
    return Wishes(Glossary.of(terms) if terms else None)


def distinct(entries: Entries) -> Entries:
    """Return the entries without outer white space.

    Raises:
        RequestError: 400, an entry is not a valid term, or a source term occurs twice.
    """
    stripped: list[tuple[str, str]] = []
    numbers: dict[str, int] = {}
    for number, (source, target) in enumerate(entries, 1):
        source, target = source.strip(), target.strip()
        for term in (source, target):
            if not is_line(term):
                text = f"{shown(term)} is not a valid term: one line, {MAX_TERM:,} characters at most"
                raise RequestError(400, f"glossary entry {number}: {text}")
        if source in numbers:
            message = f"entry {number} has the same source term as entry {numbers[source]}"
            raise RequestError(400, f"glossary {message}")
        numbers[source] = number
        stripped.append((source, target))
    return tuple(stripped)


def is_line(text: str) -> bool:
    """Return whether a text is one line of at most MAX_TERM characters, without controls and surrogates."""
    return 0 < len(text) <= MAX_TERM and not any(
        ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u2028\u2029" or "\ud800" <= c <= "\udfff" for c in text
    )


# --- Glossaries on disk: a name, a language pair, and terms with translations.

MAX_GLOSSARIES: Final = 1000  # of a client
MAX_BYTES: Final = 512 << 20  # of all clients together


@dataclass(frozen=True, slots=True)
class StoredGlossary:
    """A glossary without its entries.

    `created`: UTC, ISO 8601. `entries`: their number. `size`: of the file, in bytes; 0 in the file itself.
    """

    id: str
    client: str
    name: str
    languages: Languages
    created: str
    entries: int
    size: int = 0


_RECORD: Final = TypeAdapter(StoredGlossary)


class GlossaryStore:
    """The glossaries of a server; a client can access only its own.

    A glossary is a file: a `StoredGlossary` as JSON in the first line, then one entry per line, with a tab
    between term and translation. Methods raise RequestError: 404 for unknown glossaries, 503 if writing or
    deleting fails.

    Raises:
        CotextError: a file is damaged.
    """

    def __init__(self, state: Path) -> None:
        self._folder = state / "glossaries"
        self._lock = threading.Lock()
        for unfinished in self._folder.glob(".*"):  # left by a killed server
            remove(unfinished)
        stored = map(_read, self._folder.glob("*.tsv"))
        self._known = {glossary.id: glossary for glossary in sorted(stored, key=lambda each: each.created)}

    def create(self, client: str, name: str, languages: Languages, entries: Entries) -> StoredGlossary:
        """Store a new glossary.

        Raises:
            RequestError: 400, the name or an entry is invalid; 456, the client has MAX_GLOSSARIES, or has
                used its share of MAX_BYTES; 503, all clients together have used MAX_BYTES.
        """
        if not is_line(name):
            raise RequestError(400, f"the name of a glossary is one line of {MAX_TERM:,} characters at most")
        if not (entries := sorted(distinct(entries))):
            raise RequestError(400, "a glossary needs an entry; there is no entry")
        created = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        record = StoredGlossary(str(uuid.uuid4()), client, name, languages, created, len(entries))
        lines = [_RECORD.dump_json(record).decode(), *map("\t".join, entries)]
        content = "\n".join(lines).encode()
        made = replace(record, size=len(content))
        with self._lock:
            self._require_space(made)
            try:
                write_durably(private(self._folder) / f"{made.id}.tsv", content)
            except (OSError, CotextError):
                raise RequestError(503, "the server cannot store this glossary; try again later") from None
            self._known[made.id] = made
        return made

    def all_of(self, client: str) -> list[StoredGlossary]:
        """Return all glossaries of a client, in the order of creation."""
        return [glossary for glossary in list(self._known.values()) if glossary.client == client]

    def get(self, client: str, identity: str) -> StoredGlossary:
        glossary = self._known.get(identity)
        if glossary is None or glossary.client != client:
            raise RequestError(404, "there is no such glossary")
        return glossary

    def entries(self, client: str, identity: str) -> list[tuple[str, str]]:
        """Return the entries of a glossary, sorted by source term."""
        try:
            lines = self._path(client, identity).read_text(encoding="utf-8").split("\n")[1:]
        except OSError:  # deleted by another request
            raise RequestError(404, "there is no such glossary") from None
        return [(source, target) for source, _, target in (line.partition("\t") for line in lines)]

    def delete(self, client: str, identity: str) -> None:
        with self._lock:
            try:
                self._path(client, identity).unlink(missing_ok=True)
            except OSError:
                raise RequestError(503, "the server cannot delete this glossary; try again later") from None
            del self._known[identity]

    def _path(self, client: str, identity: str) -> Path:
        return self._folder / f"{self.get(client, identity).id}.tsv"

    def _require_space(self, new: StoredGlossary) -> None:
        """Raise RequestError if there is no space for a new glossary."""
        sizes, share = [glossary.size for glossary in self.all_of(new.client)], MAX_BYTES // SHARES
        if len(sizes) >= MAX_GLOSSARIES or sum(sizes) + new.size > share:
            limits = f"{MAX_GLOSSARIES:,} glossaries at most, and {share:,} bytes together"
            raise RequestError(456, f"you may have {limits}; delete some")
        if sum(glossary.size for glossary in self._known.values()) + new.size > MAX_BYTES:
            raise RequestError(503, "the server has no space for more glossaries")


def _read(path: Path) -> StoredGlossary:
    """Read a glossary on disk, without its entries."""
    try:
        with path.open("rb") as file:
            return replace(_RECORD.validate_json(file.readline()), size=path.stat().st_size)
    except (OSError, ValueError):
        raise CotextError(f"{path}: a damaged glossary; delete it, or choose another --state") from None
