"""Who may ask, how often and how much at once: keys, rates and places, checked before any work."""

import math
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

from cotext.serving.errors import RequestError
from cotext.serving.keys import KeyFile, own_name
from cotext.serving.record import RequestRecord
from cotext.serving.service import Client
from cotext.serving.settings import ServerSettings


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
