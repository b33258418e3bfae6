"""Glossaries of clients, stored on disk: a name, a language pair, and terms with translations."""

import json
import secrets
import threading
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from cotext.data.languages import CODES, Languages
from cotext.runtime.errors import CotextError, shown
from cotext.serving.errors import RequestError
from cotext.serving.settings import SHARES
from cotext.serving.state import private, write_durably
from cotext.translation.terms.glossary import Glossary
from cotext.translation.wishes import Wishes

MAX_NAME: Final = 1024
MAX_TERM: Final = 1024
MAX_ENTRIES: Final = 100_000  # limit of entries of a glossary
MAX_GLOSSARIES: Final = 1000  # limit of glossaries of a client
MAX_BYTES: Final = 512 << 20  # limit of all glossaries together; a client may use an eighth

Entries = Sequence[tuple[str, str]]  # source terms and their translations


@dataclass(frozen=True, slots=True)
class StoredGlossary:
    """A glossary without its entries; `entries`: their number; `created`: UTC, ISO 8601."""

    id: str
    client: str
    name: str
    created: str
    source: str
    target: str
    entries: int

    @property
    def languages(self) -> Languages:
        return Languages(self.source, self.target)


_KNOWN: Final = TypeAdapter(StoredGlossary)


class GlossaryStore:
    """The glossaries of a server; a client can access only its own.

    A glossary is a file: a `StoredGlossary` as JSON in the first line, then one entry per line, with a tab
    between term and translation. Methods raise RequestError: 404 for unknown glossaries, 400 for invalid
    entries, names or languages, and 503 if writing fails.

    Raises:
        CotextError: a file is damaged.
    """

    def __init__(self, state: Path) -> None:
        self._folder = state / "glossaries"
        self._lock = threading.Lock()
        self._known: dict[str, tuple[StoredGlossary, int]] = {}  # with sizes in bytes
        stored = [(_first_line(path), path.stat().st_size) for path in self._folder.glob("*.tsv")]
        for glossary, size in sorted(stored, key=lambda entry: entry[0].created):
            self._known[glossary.id] = glossary, size

    def create(self, client: str, name: str, languages: Languages, entries: Entries) -> StoredGlossary:
        """Store a new glossary.

        Raises:
            RequestError: 456, the client has MAX_GLOSSARIES, or has used its share of MAX_BYTES; 503, all
                clients together have used MAX_BYTES.
        """
        if not name.strip() or len(name) > MAX_NAME or not _is_printable(name):
            raise RequestError(400, f"give the glossary a name of {MAX_NAME:,} characters at most")
        entries = sorted(_checked(languages, entries))
        identity = str(uuid.UUID(bytes=secrets.token_bytes(16), version=4))
        created = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        made = StoredGlossary(
            identity, client, name, created, languages.source, languages.target, len(entries)
        )
        lines = [json.dumps(asdict(made)), *("\t".join(entry) for entry in entries)]
        content = "".join(f"{line}\n" for line in lines).encode()
        with self._lock:
            self._require_space(client, len(content))
            try:
                write_durably(private(self._folder) / f"{identity}.tsv", content)
            except (OSError, CotextError):
                raise RequestError(503, "the server cannot store this glossary; try again later") from None
            self._known[identity] = made, len(content)
        return made

    def all_of(self, client: str) -> list[StoredGlossary]:
        """Return all glossaries of a client, in the order of creation."""
        return [glossary for glossary, _ in list(self._known.values()) if glossary.client == client]

    def get(self, client: str, identity: str) -> StoredGlossary:
        glossary, _ = self._known.get(identity, (None, 0))
        if glossary is None or glossary.client != client:
            raise RequestError(404, "there is no such glossary")
        return glossary

    def entries(self, client: str, identity: str) -> list[tuple[str, str]]:
        """Return the entries of a glossary, sorted by source term."""
        try:
            lines = self._path(self.get(client, identity)).read_text(encoding="utf-8").split("\n")[1:-1]
        except OSError:  # deleted by another request
            raise RequestError(404, "there is no such glossary") from None
        return [(source, target) for source, _, target in (line.partition("\t") for line in lines)]

    def delete(self, client: str, identity: str) -> None:
        with self._lock:
            try:
                self._path(self.get(client, identity)).unlink(missing_ok=True)
            except OSError:
                raise RequestError(503, "the server cannot delete this glossary; try again later") from None
            del self._known[identity]

    def _path(self, glossary: StoredGlossary) -> Path:
        return self._folder / f"{glossary.id}.tsv"

    def _require_space(self, client: str, more: int) -> None:
        """Raise RequestError if there is no space for a glossary of `more` bytes."""
        sizes = [size for glossary, size in self._known.values() if glossary.client == client]
        share = MAX_BYTES // SHARES
        if len(sizes) >= MAX_GLOSSARIES:
            raise RequestError(456, f"you have {len(sizes):,} glossaries, which is the maximum; delete some")
        if sum(sizes) + more > share:
            raise RequestError(456, f"your glossaries may use {share:,} bytes at most together; delete some")
        if sum(size for _, size in self._known.values()) + more > MAX_BYTES:
            raise RequestError(503, "the server has no space for more glossaries")


def _first_line(path: Path) -> StoredGlossary:
    """Read a glossary on disk, without its entries."""
    try:
        with path.open(encoding="utf-8") as file:
            return _KNOWN.validate_json(file.readline())
    except (OSError, ValueError):
        raise CotextError(
            f"{path}: not a glossary, or damaged; delete it, or choose another --state"
        ) from None


def entries_together(glossaries: Iterable[Entries]) -> Entries:
    """Merge glossaries; if several contain a term, the first takes precedence."""
    together: dict[str, str] = {}
    for entries in glossaries:
        together = dict(entries) | together
    return tuple(together.items())


def wishes_of(entries: Entries) -> Wishes:
    """Return constraints with these entries; several translations of one term are alternatives.

    Raises:
        CotextError: a term or a translation is empty.
    """
    terms: dict[str, list[str]] = {}
    for source, target in entries:
        terms.setdefault(source, []).append(target)
    return Wishes(Glossary.of(terms) if terms else None)


def _checked(languages: Languages, entries: Entries) -> Entries:
    """Return the entries without outer white space; raise RequestError if they are invalid."""
    if languages.source == languages.target or not {languages.source, languages.target} <= CODES:
        raise RequestError(400, "a glossary needs two language codes, such as en and de")
    if not 0 < len(entries) <= MAX_ENTRIES:
        raise RequestError(400, f"a glossary must have 1 to {MAX_ENTRIES:,} entries")
    return distinct(entries)


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
            if not term or len(term) > MAX_TERM or not _is_printable(term):
                raise RequestError(
                    400,
                    f"glossary entry {number}: {shown(term)} is not a valid term; give one line of text of"
                    f" {MAX_TERM:,} characters at most",
                )
        if source in numbers:
            raise RequestError(
                400,
                f"glossary entry {number} has the same source term as entry {numbers[source]}: "
                f"{shown(source)}",
            )
        numbers[source] = number
        stripped.append((source, target))
    return tuple(stripped)


def _is_printable(text: str) -> bool:
    """Return whether a text has no control characters, line breaks or lone surrogates."""
    return not any(
        ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u2028\u2029" or "\ud800" <= c <= "\udfff" for c in text
    )
