"""API keys of clients, stored as hashes, and admission of requests.

A key is a text with 256 random bits, hashed once with SHA-256 and without salt. Slow and salted hashes
protect passwords, which can be guessed. A random key cannot be guessed, and a slow hash would cost time
on every request.
"""

import hashlib
import json
import math
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hmac import compare_digest
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, TypeAdapter, ValidationError

from cotext.runtime import CotextError, read_json
from cotext.runtime.files import replacing, writing
from cotext.serving.record import RequestError, RequestRecord
from cotext.serving.settings import NAME, ServerSettings, check_name

PREFIX: Final = "cotext-"


@dataclass(frozen=True, slots=True)
class Key:
    """The record of a key; `name`: of the client; `requests_per_minute`: 0: the limit of the server."""

    name: Annotated[str, Field(pattern=f"^{NAME}$")]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    made: str
    requests_per_minute: Annotated[int, Field(ge=0)] = 0


_KEYS: Final = TypeAdapter(list[Key])


def hashed(key: str) -> str:
    """Return the SHA-256 of a key, in hexadecimal."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def read_keys(path: Path) -> list[Key]:
    """Read a file of keys.

    Raises CotextError if the file is missing or damaged, or other users may read or write it.
    """
    listed = read_json(path).get("keys")
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise CotextError(f"{path}: other users may read or write it; make it private: chmod 600 {path}")
    try:
        return _KEYS.validate_python(listed)
    except ValidationError:
        raise CotextError(f"{path}: not a file of keys, or damaged; see cotext serve-key add") from None


def add_key(path: Path, name: str, requests_per_minute: int = 0) -> str:
    """Create a key for a client, add its hash to a file, and return the key, which is not stored.

    Raises CotextError: the name is invalid or taken; the errors of `read_keys`.
    """
    check_name(name, "client")
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path):
        keys = read_keys(path) if path.exists() else []
        if any(key.name == name for key in keys):
            raise CotextError(f"{path}: already has a key of {name}; revoke it first, or choose another name")
        made = PREFIX + secrets.token_urlsafe(32)
        today = datetime.now(UTC).date().isoformat()
        _write(path, [*keys, Key(name, hashed(made), today, requests_per_minute)])
    return made


def revoke_key(path: Path, name: str) -> None:
    """Remove the key of a client from a file.

    Raises CotextError: the client has no key; the errors of `read_keys`.
    """
    with writing(path):
        keys = read_keys(path)
        remaining = [key for key in keys if key.name != name]
        if len(remaining) == len(keys):
            known = ", ".join(key.name for key in keys) or "nobody"
            raise CotextError(f"{path}: has no key of {name}; it has keys of {known}")
        _write(path, remaining)


def _write(path: Path, keys: Sequence[Key]) -> None:
    with replacing(path) as temporary:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - of a descriptor
            json.dump({"keys": [asdict(key) for key in keys]}, file, indent=1)
            file.write("\n")


class KeyFile:
    """The current keys of a file, which is read again when it changes.

    Raises the errors of `read_keys`. If later reads fail, no key is valid.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = self._version()
        self._keys = read_keys(path)

    def find(self, key: str) -> Key | None:
        """Return the entry of a key, or None; the time does not depend on the keys."""
        if (version := self._version()) != self._seen:
            self._seen = version
            try:
                self._keys = read_keys(self._path)
            except CotextError:
                self._keys = []
        given = hashed(key)
        matches = [entry for entry in self._keys if compare_digest(entry.sha256, given)]
        return matches[-1] if matches else None

    def _version(self) -> tuple[int, int, int, int]:
        try:
            status = self._path.stat()
        except OSError:
            return 0, 0, 0, 0
        return status.st_mtime_ns, status.st_ino, status.st_size, status.st_mode


# --- Admission: keys, rate limits and request slots.


class Rates:
    """A token bucket per client; its size is the number of requests per minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens left, and the time of the last update

    def seconds_to_wait(self, name: str, per_minute: int) -> float:
        """Take a token and return 0, or return the seconds until there is one."""
        now = self._clock()
        tokens, then = self._buckets.get(name, (float(per_minute), now))
        tokens = min(float(per_minute), tokens + (now - then) * per_minute / 60)
        missing = max(0.0, 1.0 - tokens)
        self._buckets[name] = (tokens if missing else tokens - 1.0, now)
        return missing * 60 / per_minute


class Admission:
    """Identifies the clients of requests, and applies limits.

    Without configured keys, any key is accepted and serves only as a name for stored data. Then all clients
    share one rate limit.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._keys = None if settings.keys is None else KeyFile(settings.keys)
        self._rates = Rates()
        self._places: Counter[str] = Counter()
        self.stopping = False

    @property
    def key_required(self) -> bool:
        return self._keys is not None

    @property
    def in_flight(self) -> int:
        return self._places.total()

    @property
    def full(self) -> bool:
        """Whether the next request would be rejected."""
        return self.in_flight >= self._settings.max_waiting

    def admit(self, record: RequestRecord, key: str | None) -> str:
        """Return the name of the client of a key, and reserve a request slot until the request ends.

        Raises RequestError: 403, the key is missing or unknown; 429, too many requests; 503, the server is
        full.
        """
        name, per_minute = self._identify(key)
        if record.client:
            return record.client
        record.client = name
        rate_of = name if self._keys is not None else ""
        if per_minute and (seconds := self._rates.seconds_to_wait(rate_of, per_minute)):
            raise RequestError(429, f"more than {per_minute} requests per minute", math.ceil(seconds))
        if self.full:
            raise RequestError(503, "the server is full; try again later", 5)
        if self._places[name] >= (most := self._settings.max_waiting_of_client):
            raise RequestError(429, f"more than {most} requests at once; wait for answers", 1)
        self._places[name] += 1
        record.has_slot = True
        return name

    def _identify(self, key: str | None) -> tuple[str, int]:
        per_minute = self._settings.requests_per_minute
        if self._keys is None:
            return f"key-{hashed(key)[:12]}" if key else "anybody", per_minute
        if not key:
            raise RequestError(403, "a key is required: ask the operator of this server for a key")
        entry = self._keys.find(key)
        if entry is None:
            raise RequestError(403, "this key is unknown to this server")
        return entry.name, entry.requests_per_minute or per_minute

    def leave(self, record: RequestRecord) -> None:
        """Free the request slot of a request that has ended."""
        if record.has_slot:
            self._places[record.client] -= 1
            self._places += Counter()  # removes clients without requests
