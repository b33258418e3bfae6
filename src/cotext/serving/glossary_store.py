"""Glossaries of clients, kept on disk: each a name, a language pair, and terms with their translations."""

import secrets
import sqlite3
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cotext.data.languages import CODES, Languages
from cotext.runtime.errors import shown
from cotext.serving.database import Database
from cotext.serving.errors import RequestError
from cotext.serving.settings import SHARES
from cotext.translation.terms.glossary import Glossary
from cotext.translation.wishes import Wishes

MAX_NAME: Final = 1024
MAX_TERM: Final = 1024
MAX_ENTRIES: Final = 100_000  # of a glossary
MAX_GLOSSARIES: Final = 1000  # of a client
MAX_BYTES: Final = 512 << 20  # of all glossaries together; of a client an eighth
ENTRY_BYTES: Final = 64  # that an entry takes beside its terms

_SCHEMA: Final = """
CREATE TABLE glossaries (
    id TEXT PRIMARY KEY, client TEXT NOT NULL, name TEXT NOT NULL, created TEXT NOT NULL);
CREATE TABLE entries (
    glossary TEXT NOT NULL REFERENCES glossaries (id) ON DELETE CASCADE,
    source_language TEXT NOT NULL, target_language TEXT NOT NULL, source TEXT NOT NULL, target TEXT NOT NULL,
    PRIMARY KEY (glossary, source_language, target_language, source));
"""

Entries = Sequence[tuple[str, str]]  # source terms and their translations


@dataclass(frozen=True, slots=True)
class StoredGlossary:
    """A glossary of a client without its entries, which are counted; `created`: when, in UTC, by ISO 8601."""

    id: str
    name: str
    created: str
    languages: Languages
    entries: int


class GlossaryStore:
    """The glossaries of a server; clients are told apart by name, and see none but their own.

    Every method raises RequestError 404 where a client has no such glossary, and 400 for entries, names or
    languages that cannot be taken.
    """

    def __init__(self, state: Path) -> None:
        self._database = Database(state / "glossaries.sqlite3", _SCHEMA)

    def create(self, client: str, name: str, languages: Languages, entries: Entries) -> StoredGlossary:
        """A new glossary.

        Raises:
            RequestError: 456, the client has MAX_GLOSSARIES, or its share of MAX_BYTES; 503, all clients
                together have MAX_BYTES.
        """
        if not name.strip() or len(name) > MAX_NAME or not _is_printable(name):
            raise RequestError(400, f"give the glossary a name, of {MAX_NAME:,} characters at most")
        entries = _checked(languages, entries)
        identity = str(uuid.UUID(bytes=secrets.token_bytes(16), version=4))
        created = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        with self._database.transaction() as database:
            query = "SELECT count(*) FROM glossaries WHERE client = ?"
            [count] = database.execute(query, (client,)).fetchone()
            if count >= MAX_GLOSSARIES:
                raise RequestError(456, f"you have {count:,} glossaries, the most there may be; delete some")
            row = (identity, client, name, created)
            database.execute("INSERT INTO glossaries VALUES (?, ?, ?, ?)", row)
            rows = [(identity, languages.source, languages.target, *entry) for entry in entries]
            database.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", rows)
            _require_space(database, client)
            return _read(database, client, identity)

    def all_of(self, client: str) -> list[StoredGlossary]:
        """All glossaries of a client, in the order in which they were made."""
        with self._database.transaction() as database:
            query = "SELECT id FROM glossaries WHERE client = ? ORDER BY created, rowid"
            found = database.execute(query, (client,)).fetchall()
            return [_read(database, client, identity) for (identity,) in found]

    def get(self, client: str, identity: str) -> StoredGlossary:
        """One of them."""
        with self._database.transaction() as database:
            return _read(database, client, identity)

    def entries(self, client: str, identity: str) -> list[tuple[str, str]]:
        """The entries of one, by source term."""
        with self._database.transaction() as database:
            _read(database, client, identity)
            query = "SELECT source, target FROM entries WHERE glossary = ? ORDER BY source"
            return database.execute(query, (identity,)).fetchall()

    def delete(self, client: str, identity: str) -> None:
        """Delete a glossary."""
        with self._database.transaction() as database:
            _read(database, client, identity)
            database.execute("DELETE FROM glossaries WHERE id = ?", (identity,))


def entries_together(glossaries: Iterable[Entries]) -> Entries:
    """Several glossaries as one; of a term in more than one of them, the first says the translation."""
    together: dict[str, str] = {}
    for entries in glossaries:
        together = dict(entries) | together
    return tuple(together.items())


def wishes_of(entries: Entries) -> Wishes:
    """What is asked of a translation by such entries; nothing by none. Several of one term are alternatives.

    Raises:
        CotextError: an empty term, or an empty translation.
    """
    terms: dict[str, list[str]] = {}
    for source, target in entries:
        terms.setdefault(source, []).append(target)
    return Wishes(Glossary.of(terms) if terms else None)


def _read(database: sqlite3.Connection, client: str, identity: str) -> StoredGlossary:
    query = (
        "SELECT name, created, source_language, target_language, count(*) FROM glossaries"
        " JOIN entries ON glossary = id WHERE id = ? AND client = ? GROUP BY id"
    )
    if (row := database.execute(query, (identity, client)).fetchone()) is None:
        raise RequestError(404, "there is no such glossary")
    name, created, source, target, count = row
    return StoredGlossary(identity, name, created, Languages(source, target), count)


def _require_space(database: sqlite3.Connection, client: str) -> None:
    """Refuse what a client has written in this transaction if it is too much."""
    pages, free, size = (
        int(database.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    everything, share = (pages - free) * size, MAX_BYTES // SHARES
    if everything <= share:
        return  # without a look at the entries, of which there may be many
    query = (
        "SELECT total(length(CAST(source AS BLOB)) + length(CAST(target AS BLOB)) + ?) FROM entries"
        " JOIN glossaries ON glossaries.id = glossary WHERE client = ?"
    )
    [own] = database.execute(query, (ENTRY_BYTES, client)).fetchone()
    if own > share:
        raise RequestError(456, f"your glossaries have {share:,} bytes at most together; delete some")
    if everything > MAX_BYTES:
        raise RequestError(503, "the server has no room for more glossaries")


def _checked(languages: Languages, entries: Entries) -> Entries:
    """The entries without outer white space, all of which can be terms of these languages."""
    if languages.source == languages.target or not {languages.source, languages.target} <= CODES:
        raise RequestError(400, "a glossary needs two languages by their codes, as in en and de")
    if not 0 < len(entries) <= MAX_ENTRIES:
        raise RequestError(400, f"a glossary has an entry at least, and {MAX_ENTRIES:,} at most")
    return distinct(entries)


def distinct(entries: Entries) -> Entries:
    """The entries without outer white space.

    Raises:
        RequestError: 400, one that is no term, or a second one of a source term.
    """
    return tuple(_distinct(entries))


def _distinct(entries: Entries) -> Iterator[tuple[str, str]]:
    numbers: dict[str, int] = {}
    for number, (source, target) in enumerate(entries, 1):
        source, target = source.strip(), target.strip()
        for term in (source, target):
            if not term or len(term) > MAX_TERM or not _is_printable(term):
                raise RequestError(
                    400,
                    f"glossary entry {number}: {shown(term)} is no term; give a text in one line, of"
                    f" {MAX_TERM:,} characters at most",
                )
        if source in numbers:
            raise RequestError(
                400,
                f"glossary entry {number} has the source term of entry {numbers[source]}: {shown(source)}",
            )
        numbers[source] = number
        yield source, target


def _is_printable(text: str) -> bool:
    """Whether a text has no control characters, ends of lines or half characters."""
    return not any(
        ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u2028\u2029" or "\ud800" <= c <= "\udfff" for c in text
    )
