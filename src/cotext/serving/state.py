"""What a server keeps on disk: glossaries, and jobs with their files, in private folders."""

import os
import re
import shutil
import threading
import time
import unicodedata
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final, Literal
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from cotext.data.documents import Languages
from cotext.runtime import CotextError, shown
from cotext.runtime.files import ON_WINDOWS, remove
from cotext.serving.record import RequestError
from cotext.serving.settings import SHARES
from cotext.translation.open import Terminology
from cotext.translation.terms.terms import Glossary

# Required free disk space, as a multiple of the size of the upload (for file, journal and result).
SPACE_FACTOR: Final = 4
KEPT_FREE_BYTES: Final = 64 << 20
RETRY_SECONDS: Final = 600.0


def private(folder: Path) -> Path:
    """Create a folder that only the owner can read, if absent; raise CotextError if this fails."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise CotextError(f"{folder}: not a usable state folder: {error.strerror or error}") from None
    return folder


def to_disk(path: Path) -> None:
    """Sync a file or a folder to disk; raise OSError if this fails."""
    if ON_WINDOWS:  # can sync neither folders nor files opened for reading
        return
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def write_durably(path: Path, content: bytes) -> None:
    """Replace a private file atomically and sync it to disk; raise OSError if this fails."""
    temporary = path.with_name(f".{path.name}")
    temporary.write_bytes(content)
    temporary.chmod(0o600)
    to_disk(temporary)
    temporary.replace(path)
    to_disk(path.parent)


def require_room(folder: Path, size: int) -> None:
    """Raise RequestError 503 if a folder has too little disk space for a file of this size and its result."""
    if shutil.disk_usage(folder).free < size * SPACE_FACTOR + KEPT_FREE_BYTES:
        raise disk_full()


def disk_full() -> RequestError:
    """Return the error for a file that does not fit on the disk."""
    message = "the server has too little disk space for this file; try again later"
    return RequestError(503, message, RETRY_SECONDS)


class Space:
    """Disk space of jobs and uploads in bytes, by file and by client; not thread-safe.

    `most`: limit for all clients together.
    """

    def __init__(self, most: int) -> None:
        self._most, self._share = most, most // SHARES
        self._entries: dict[str, tuple[str, int]] = {}

    def put(self, name: str, client: str, size: int) -> None:
        """Set the size of a file."""
        self._entries[name] = client, size

    def drop(self, name: str) -> None:
        self._entries.pop(name, None)

    def require(self, client: str, more: int) -> None:
        """Raise RequestError 429 or 503 if there is no space for `more` bytes of a client."""
        sizes: Counter[str] = Counter()
        for owner, size in self._entries.values():
            sizes[owner] += size
        if sizes[client] + more > self._share:
            reason = f"your files use all of the {self._share:,} bytes allowed per client"
            raise RequestError(429, f"{reason}; delete some, or wait until they are deleted", RETRY_SECONDS)
        if sizes.total() + more > self._most:
            raise RequestError(503, "the server has no room for more files; try again later", RETRY_SECONDS)


# --- Names of files from clients, which are shown but never used as paths.

MAX_CHARACTERS: Final = 150
MAX_NAME_BYTES: Final = 240  # common file systems allow 255, also of results
_UNSAFE: Final = re.compile(r'[<>:"|?*/\\]')  # not allowed in file names on some systems
_SUFFIX: Final = re.compile(r"\.[a-z0-9]{1,10}")
_UNNAMED: Final = "file"


def clean_name(name: str) -> str:
    """Return the last part of a path as a name that is valid on all systems; never empty, `.` or `..`."""
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", name.encode("utf-8", "replace").decode()))[-1]
    # Names contain no control characters, such as those of the writing direction.
    kinds = {c: unicodedata.category(c) for c in last}
    shown = "".join(" " if kinds[c] in ("Zl", "Zp") else c for c in last if kinds[c][0] != "C")
    stem, suffix = _divided(_UNSAFE.sub("_", shown).strip(" ."))
    stem = stem[: MAX_CHARACTERS - len(suffix)]
    while len((stem + suffix).encode()) > MAX_NAME_BYTES:
        stem = stem[:-1]
    return f"{stem.strip()}{suffix}" if stem.strip() else f"{_UNNAMED}{suffix}"


def suffix_of(name: str) -> str:
    """Return the suffix for the file on disk, such as `.docx`; "" if it is not plain ASCII."""
    suffix = PurePosixPath(name).suffix.lower()
    return suffix if _SUFFIX.fullmatch(suffix) else ""


def result_name(name: str, source: str, target: str) -> str:
    """Return `NAME.de.docx` for `NAME.docx` and `NAME.en.docx`, by language codes; `name` must be clean."""
    stem, suffix = _divided(name)
    return f"{stem.removesuffix(f'.{source}') or stem}.{target}{suffix}"


def _divided(name: str) -> tuple[str, str]:
    """Split a name before its suffix, unless the suffix is too long."""
    suffix = PurePosixPath(name).suffix if name else ""
    return (name.removesuffix(suffix), suffix) if len(suffix) <= 16 else (name, "")


def attachment(name: str) -> str:
    """Return the header `Content-Disposition` for a download with a clean name (RFC 6266, RFC 8187)."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    fallback = re.sub(r'[%"\\]', "_", plain).strip(" .") or _UNNAMED
    return f"attachment; filename=\"{fallback}\"; filename*=UTF-8''{quote(name, safe='')}"


# --- Terms of requests with their translations, and the glossaries of clients.

MAX_TERM: Final = 1024

Entries = Sequence[tuple[str, str]]  # source terms and their translations


def terminology_of(entries: Entries) -> Terminology:
    """Return constraints with these entries, whose source terms differ.

    Raises CotextError if a term or a translation is empty.
    """
    return Terminology(Glossary.of(dict(entries)) if entries else None)


def distinct(entries: Entries) -> Entries:
    """Return the entries without outer white space.

    Raises RequestError: 400, an entry is not a valid term, or a source term occurs twice.
    """
    stripped: list[tuple[str, str]] = []
    numbers: dict[str, int] = {}
    for number, (source, target) in enumerate(entries, 1):
        source, target = source.strip(), target.strip()
        for term in (source, target):
            if not is_line(term):
                text = f"{shown(term)} is not a valid term: one line, at most {MAX_TERM:,} characters"
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


MAX_GLOSSARIES: Final = 1000  # per client
MAX_BYTES: Final = 512 << 20  # of all clients together


@dataclass(frozen=True, slots=True)
class StoredGlossary:
    """A glossary without its entries.

    `created`: UTC, ISO 8601. `entries`: their number. `size`: bytes of the file; stored as 0.
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
    deleting fails. Raises CotextError if a file is damaged.
    """

    def __init__(self, state: Path) -> None:
        self._folder = state / "glossaries"
        self._lock = threading.Lock()
        for unfinished in self._folder.glob(".*.tsv"):  # left by a killed server
            remove(unfinished)
        stored = map(_read_glossary, self._folder.glob("*.tsv"))
        self._known = {glossary.id: glossary for glossary in sorted(stored, key=lambda each: each.created)}

    def create(self, client: str, name: str, languages: Languages, entries: Entries) -> StoredGlossary:
        """Store a new glossary.

        Raises RequestError: 400, the name or an entry is invalid. 456, the client has MAX_GLOSSARIES, or has
        used its share of MAX_BYTES. 503, all clients together have used MAX_BYTES.
        """
        if not is_line(name):
            raise RequestError(400, f"the name of a glossary is one line of at most {MAX_TERM:,} characters")
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
            raise RequestError(503, "the server has no space for more glossaries", RETRY_SECONDS)


def _read_glossary(path: Path) -> StoredGlossary:
    """Read a glossary on disk, without its entries."""
    try:
        with path.open("rb") as file:
            return replace(_RECORD.validate_json(file.readline()), size=path.stat().st_size)
    except (OSError, ValueError):
        raise CotextError(f"{path}: a damaged glossary; delete it, or choose another --state") from None


# --- The table of jobs, and the folders of their files.

VERSION: Final = 1  # version of the record of a job
RECORD: Final = "job.json"
LEAST_BYTES: Final = 4096  # counted for every job at least, for its folder and record
_ID: Final = re.compile("[0-9A-F]{32}")  # of a job
State = Literal["queued", "translating", "done", "error"]
FINISHED: Final[frozenset[State]] = frozenset({"done", "error"})


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Terms with their translations; the terms differ."""

    glossary_entries: tuple[tuple[str, str], ...] = ()

    @property
    def terminology(self) -> Terminology:
        """The terms as constraints; raise CotextError for an empty term or translation."""
        return terminology_of(self.glossary_entries)


@dataclass(frozen=True, slots=True)
class JobTicket:
    """Response to an upload: the id of the job, and a secret key for it."""

    id: str
    key: str


@dataclass(frozen=True, slots=True)
class JobStatus:
    """Status of a job.

    `sentences`: 0 until the file has been read. `seconds_remaining`: estimate, or None. `message`: the error.
    `messages`: notes about the file and its translation, such as text that is not translated. `file_name`:
    name of the translated file. `billed_characters`: number of characters of the source sentences.
    `submitted`: seconds since 1970.
    """

    id: str
    state: State
    system: str
    file_name: str
    sentences: int = 0
    sentences_done: int = 0
    seconds_remaining: float | None = None
    billed_characters: int = 0
    message: str = ""
    messages: tuple[str, ...] = ()
    submitted: float = 0.0

    @property
    def finished(self) -> bool:
        return self.state in FINISHED


@dataclass(frozen=True, slots=True)
class Row:
    """The record of a job.

    `number`: position in the order of submission. `key`: SHA-256 of the key of the job. `attempts`: how
    often it was started since the last regular stop of the server.
    """

    number: int
    key: str
    client: str
    source_name: str
    options: JobOptions
    status: JobStatus
    attempts: int = 0
    finished: float | None = None
    version: int = VERSION

    @property
    def id(self) -> str:
        return self.status.id

    @property
    def state(self) -> State:
        return self.status.state


_KEPT: Final = TypeAdapter(Row)


class JobTable:
    """The jobs of a server: for each a folder with a generated name, its record and its files.

    Changes of records are on disk when a method returns. Methods may be called from any thread, and raise
    OSError if a write fails. No path contains a name that a client has sent. Raises CotextError if a record
    on disk is damaged or was written by another version.
    """

    def __init__(self, root: Path) -> None:
        self.root = private(root)
        self._lock = threading.RLock()
        rows = [_read_job(path) for path in root.glob(f"*/{RECORD}")]
        self._rows = {row.id: row for row in sorted(rows, key=lambda row: row.number)}

    def source(self, row: Row) -> Path:
        return self.root / row.id / f"source{suffix_of(row.source_name)}"

    def result(self, row: Row) -> Path:
        return self.root / row.id / f"result{suffix_of(row.source_name)}"

    def store(self, row: Row, file: BinaryIO) -> Path:
        """Create the folder of a job, and copy its file there, synced to disk."""
        path = self.source(row)
        path.parent.mkdir(mode=0o700)
        with path.open("xb") as copy:
            path.chmod(0o600)
            shutil.copyfileobj(file, copy)
        for written in (path, path.parent, self.root):
            to_disk(written)
        return path

    def size(self, id: str) -> int:
        """Return the total size of the files of a job, in bytes; at least LEAST_BYTES."""
        size = 0
        with suppress(OSError):
            for path in (self.root / id).iterdir():
                with suppress(OSError):
                    size += path.stat().st_size
        return max(size, LEAST_BYTES)

    def delete_except(self, row: Row, *kept: Path) -> None:
        """Delete all files of a job except its record and the files `kept`."""
        with suppress(OSError):
            for path in (self.root / row.id).iterdir():
                if path.name != RECORD and path not in kept:
                    remove(path)

    def discard(self, row: Row) -> None:
        """Delete the folder of a job."""
        remove(self.root / row.id)

    def sweep(self) -> None:
        """Delete folders of jobs without a record, left by a killed server; other files may be the user's."""
        for path in self.root.iterdir():
            if _ID.fullmatch(path.name) and path.name not in self._rows:
                remove(path)

    def add(self, row: Row) -> None:
        """Add a waiting job, with the next number."""
        with self._lock:
            number = 1 + max((known.number for known in self._rows.values()), default=0)
            self._keep(replace(row, number=number))

    def find(self, id: str) -> Row | None:
        """Return a job by id, or None."""
        return self._rows.get(id)

    def everything(self) -> list[Row]:
        """Return all jobs, the oldest first."""
        with self._lock:
            return list(self._rows.values())

    def unfinished(self) -> list[Row]:
        """Return the waiting and running jobs, the oldest first."""
        return [row for row in self.everything() if row.state not in FINISHED]

    def finish(
        self, id: str, state: State, done: int = 0, message: str = "", messages: Sequence[str] = ()
    ) -> bool:
        """Mark a job as ended; return False if it had ended before or was deleted."""
        status = {"state": state, "sentences_done": done, "message": message, "messages": tuple(messages)}
        return self.change(id, status, finished=time.time())

    def forget(self, rows: Iterable[Row]) -> None:
        with self._lock:
            for row in rows:
                if self._rows.pop(row.id, None) is not None:
                    remove(self.root / row.id / RECORD)

    def change(self, id: str, status: Mapping[str, Any], **changes: Any) -> bool:
        """Change the record of a job that has not ended, and its status; return False if there is none."""
        with self._lock:
            row = self._rows.get(id)
            if row is None or row.state in FINISHED:
                return False
            self._keep(replace(row, status=replace(row.status, **status), **changes))
            return True

    def _keep(self, row: Row) -> None:
        write_durably(self.root / row.id / RECORD, _KEPT.dump_json(row, indent=1))
        self._rows[row.id] = row


def _read_job(path: Path) -> Row:
    try:
        row = _KEPT.validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        reason = str(error).partition("\n")[0]
        message = f"not a valid record of a job: {reason}"
        raise CotextError(f"{path}: {message}; delete its folder, or choose another --state") from None
    if row.version != VERSION:
        message = f"has version {row.version}, but this server reads version {VERSION}"
        raise CotextError(f"{path}: {message}; use the Cotext that wrote it, or another --state")
    return row
