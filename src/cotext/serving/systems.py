"""The systems of a server, and which of them answers a request."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cotext.data.languages import Languages
from cotext.decoding.open import OpenedRun, open_run
from cotext.runtime.errors import CotextError
from cotext.serving.errors import RequestError


@dataclass(frozen=True, slots=True)
class System:
    """A run, or an engine, under the name that clients know it by."""

    name: str
    opened: OpenedRun

    @property
    def languages(self) -> Languages:
        """Source and target language, both known."""
        return self.opened.languages


class Systems:
    """The systems of a server, in the order given: the first of a language pair answers by default.

    Raises:
        CotextError: none, two of one name, or one whose languages are not known.
    """

    def __init__(self, systems: Sequence[System]) -> None:
        if not systems:
            raise CotextError("a server needs a system: name a run folder")
        self._by_name: dict[str, System] = {}
        for system in systems:
            if system.name in self._by_name:
                raise CotextError(f"two systems are called {system.name!r}; give runs of different names")
            if not str(system.languages):
                raise CotextError(
                    f"{system.opened.folder}: its languages are not known; prepare its data with "
                    "--source-language and --target-language"
                )
            self._by_name[system.name] = system

    def __iter__(self) -> Iterator[System]:
        return iter(self._by_name.values())

    def named(self, name: str) -> System:
        """The system of a name.

        Raises:
            RequestError: 404, there is none.
        """
        if name not in self._by_name:
            raise RequestError(404, f"unknown system; known are {', '.join(self._by_name)}")
        return self._by_name[name]

    def choose(self, source: str | None, target: str | None) -> System:
        """The first system of a language pair, by codes such as `en`; None: any.

        Raises:
            RequestError: 400, none translates so.
        """
        for system in self:
            if source in (None, system.languages.source) and target in (None, system.languages.target):
                return system
        pairs = ", ".join(dict.fromkeys(str(system.languages) for system in self))
        raise RequestError(400, f"no system translates these languages; there are {pairs}")


def open_systems(runs: Sequence[Path], device: str | None = None, threads: int | None = None) -> Systems:
    """Load runs, each under the name of its folder.

    Raises:
        CotextError: as `open_run` and `Systems`.
    """
    return Systems([System(run.resolve().name, open_run(run, device, threads=threads)) for run in runs])
