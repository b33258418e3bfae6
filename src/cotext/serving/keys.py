"""Keys of clients: made, listed and revoked by whoever runs the server, and known to it by their hashes.

A key is 256 random bits in a text. It is hashed by SHA-256, once and without salt: slow and salted hashes
protect secrets that people choose, of which some can be guessed. Nobody guesses one of 2^256, and a slow hash
would cost the server that time on every request, of strangers as well.
"""

import hashlib
import json
import math
import os
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from hmac import compare_digest
from pathlib import Path
from typing import Any, Final

from cotext.runtime.errors import CotextError
from cotext.runtime.files import replacing
from cotext.runtime.locks import writing
from cotext.runtime.reading import read_json
from cotext.serving.errors import RequestError
from cotext.serving.record import Client, RequestRecord
from cotext.serving.settings import ServerSettings

PREFIX: Final = "cotext-"
MAX_NAME: Final = 64
LOOK_SECONDS: Final = 1.0  # after which a revoked key is one no more
_NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{MAX_NAME - 1}}}")
_HASH: Final = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Key:
    """What is kept of a key: whose it is, its hash, and what it allows.

    `requests_per_minute`: of this client, 0 for what the server says. `metrics`: it may read the figures of
    the whole server.
    """

    name: str
    sha256: str
    made: str
    requests_per_minute: int = 0
    metrics: bool = False


def hashed(key: str) -> str:
    """SHA-256 of a key, in hexadecimal."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def own_name(key: str) -> str:
    """The client with a key where none are configured: the same for the same key, without telling it."""
    return f"key-{hashed(key)[:12]}" if key else "anybody"


def read_keys(path: Path) -> list[Key]:
    """The keys of a file.

    Raises:
        CotextError: missing, others may read or write it, or it is damaged.
    """
    content = read_json(path)
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise CotextError(f"{path}: others may read or write it; make it yours alone: chmod 600 {path}")
    listed = content.get("keys")
    try:
        if not isinstance(listed, list):
            raise TypeError
        return [_key(each) for each in listed]
    except (TypeError, KeyError):
        raise CotextError(f"{path}: no file of keys, or damaged; `cotext serve-key add` makes one") from None


def _key(content: dict[str, Any]) -> Key:
    key = Key(**content)
    numbers = isinstance(key.requests_per_minute, int) and isinstance(key.metrics, bool)
    if not (numbers and key.requests_per_minute >= 0 and isinstance(key.made, str)):
        raise TypeError
    if not _NAME.fullmatch(key.name) or not _HASH.fullmatch(key.sha256):
        raise TypeError
    return key


def add_key(path: Path, name: str, requests_per_minute: int = 0, metrics: bool = False) -> str:
    """Make a key for a client and note its hash in a file, which is made if absent.

    Returns:
        The key, which is nowhere else.

    Raises:
        CotextError: a name that is taken or no name, or as `read_keys`.
    """
    if not _NAME.fullmatch(name):
        raise CotextError(
            f"{name!r} cannot be the name of a client: up to {MAX_NAME} letters, digits, dots, hyphens and "
            "underscores, a letter or digit first"
        )
    if requests_per_minute < 0:
        raise CotextError("--requests-per-minute: give a number from 0, which is any number of requests")
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path):
        keys = read_keys(path) if path.exists() else []
        if any(key.name == name for key in keys):
            raise CotextError(f"{path}: has a key of {name} already; revoke it first, or choose another name")
        made = PREFIX + secrets.token_urlsafe(32)
        today = datetime.now(UTC).date().isoformat()
        _write(path, [*keys, Key(name, hashed(made), today, requests_per_minute, metrics)])
    return made


def revoke_key(path: Path, name: str) -> None:
    """Take the key of a client out of a file.

    Raises:
        CotextError: it has none, or as `read_keys`.
    """
    with writing(path):
        keys = read_keys(path)
        left = [key for key in keys if key.name != name]
        if len(left) == len(keys):
            known = ", ".join(key.name for key in keys) or "nobody"
            raise CotextError(f"{path}: has no key of {name}; it has keys of {known}")
        _write(path, left)


def _write(path: Path, keys: Sequence[Key]) -> None:
    with replacing(path) as temporary:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - of a descriptor
            json.dump({"keys": [asdict(key) for key in keys]}, file, indent=1)
            file.write("\n")


class KeyFile:
    """The keys of a file as it is now: what is added or revoked holds at once, without a restart.

    Raises:
        CotextError: as `read_keys`; later, while the file cannot be read, no key is known.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = path, clock
        self._keys = read_keys(path)
        self._seen, self._looked = self._version(), clock()

    def find(self, key: str) -> Key | None:
        """The key that a client gives, None if it is none; how long it takes tells nothing of the keys."""
        self._look()
        given = hashed(key)
        found = None
        for each in self._keys:
            if compare_digest(each.sha256, given):
                found = each
        return found

    def _look(self) -> None:
        if self._clock() - self._looked < LOOK_SECONDS:
            return
        self._looked = self._clock()
        version = self._version()
        if version != self._seen:
            self._seen = version
            try:
                self._keys = read_keys(self._path)
            except CotextError:
                self._keys = []

    def _version(self) -> tuple[int, int, int, int]:
        try:
            found = self._path.stat()
        except OSError:
            return 0, 0, 0, 0
        return found.st_mtime_ns, found.st_ino, found.st_size, found.st_mode


# --- Who may ask, how often and how much at once: keys, rates and places, checked before any work.


class Rates:
    """A token bucket per client: as many requests as a minute's worth at once, refilled evenly."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens left, and when

    def seconds_to_wait(self, name: str, per_minute: int) -> float:
        """Take one token; where there is none, nothing is taken: the time until there is one."""
        now = self._clock()
        left, then = self._buckets.get(name, (float(per_minute), now))
        left = min(float(per_minute), left + (now - then) * per_minute / 60)
        missing = max(0.0, 1.0 - left)
        self._buckets[name] = (left if missing else left - 1.0, now)
        return missing * 60 / per_minute


class Admission:
    """Which client a request is of, and whether it may be answered now.

    Without keys, whoever reaches the server may ask, and has what was stored under the same key: a key is a
    name then and no secret. All of them share one rate.
    """

    def __init__(self, settings: ServerSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._keys = None if settings.keys is None else KeyFile(settings.keys, clock)
        self._rates = Rates(clock)
        self._places: Counter[str] = Counter()
        self.stopping = False

    @property
    def key_required(self) -> bool:
        """Whether keys are configured."""
        return self._keys is not None

    @property
    def in_flight(self) -> int:
        """Requests of clients that are being answered."""
        return self._places.total()

    @property
    def full(self) -> bool:
        """Whether the next request would be refused."""
        return self.in_flight >= self._settings.max_waiting

    def admit(self, record: RequestRecord, key: str | None) -> Client:
        """The client with a key; its place is given back when the request is over.

        Raises:
            RequestError: 403, a key is needed, or this is none; 429, too many; 503, full.
        """
        name, per_minute = self._identified(key)
        if record.client:
            return Client(record.client)
        record.client = name
        rate_of = name if self._keys is not None else ""
        if per_minute and (seconds := self._rates.seconds_to_wait(rate_of, per_minute)):
            raise RequestError(
                429, f"more than {per_minute} requests a minute; try again later", math.ceil(seconds)
            )
        if self.full:
            raise RequestError(503, "the server is full; try again later", 5)
        if self._places[name] >= self._settings.max_waiting_of_client:
            raise RequestError(
                429,
                f"more than {self._settings.max_waiting_of_client} requests at once; wait for answers before "
                "asking more",
                1,
            )
        self._places[name] += 1
        record.leave.append(partial(self._leave, name))
        return Client(name)

    def may_see_metrics(self, key: str | None) -> bool:
        """Whether a key is for figures of the whole server; without keys, everybody's is."""
        if self._keys is None:
            return True
        found = self._keys.find(key or "")
        return found is not None and found.metrics

    def _identified(self, key: str | None) -> tuple[str, int]:
        per_minute = self._settings.requests_per_minute
        if self._keys is None:
            return own_name(key or ""), per_minute
        if not key:
            raise RequestError(403, "a key is needed: ask whoever runs this server for one")
        found = self._keys.find(key)
        if found is None:
            raise RequestError(403, "this key is not known here")
        return found.name, found.requests_per_minute or per_minute

    def _leave(self, name: str) -> None:
        self._places[name] -= 1
        if not self._places[name]:
            del self._places[name]
