"""The systems of a server, and the choice of a system for a request."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cotext.data.documents import Languages
from cotext.runtime import CotextError, shown
from cotext.serving.record import RequestError
from cotext.serving.settings import check_name
from cotext.translation.engine_cache import open_to_translate
from cotext.translation.open import OpenedRun


@dataclass(frozen=True, slots=True)
class System:
    """A run or engine, with its name for clients and its languages."""

    name: str
    opened: OpenedRun

    @property
    def languages(self) -> Languages:
        return self.opened.languages


class Systems:
    """The systems of a server, in order: the first of a language pair is the default.

    Raises CotextError if there is no system, two systems have the same name, or the languages of a system are
    unknown.
    """

    def __init__(self, systems: Sequence[System]) -> None:
        if not systems:
            raise CotextError("a server needs a system: give a run folder")
        self._by_name: dict[str, System] = {}
        for system in systems:
            if system.name in self._by_name:
                raise CotextError(f"two systems are called {system.name!r}; rename one: NAME=FOLDER")
            if not str(system.languages):
                message = "its languages are unknown; give them, such as --languages en-de"
                raise CotextError(f"{system.opened.folder}: {message}")
            self._by_name[system.name] = system

    def __iter__(self) -> Iterator[System]:
        return iter(self._by_name.values())

    def named(self, name: str) -> System:
        """Return a system by name; raise RequestError 404 if it is unknown."""
        if name not in self._by_name:
            raise RequestError(404, f"unknown system; known systems are {', '.join(self._by_name)}")
        return self._by_name[name]

    def translating(self, source: str | None, target: str | None, name: str | None = None) -> list[System]:
        """Return the systems for a language pair (codes such as `en`, None: any), or only the named one.

        Raises RequestError: 400, no system translates this pair; 404, the name is unknown.
        """
        candidates = list(self) if name is None else [self.named(name)]
        pairs = ", ".join(dict.fromkeys(str(system.languages) for system in candidates))
        for side, code in (("target", target), ("source", source)):
            candidates = [s for s in candidates if code in (None, getattr(s.languages, side))]
            if not candidates:
                message = f"{side} language {shown(code)} is not supported; supported pairs are {pairs}"
                raise RequestError(400, message)
        return candidates


def open_systems(
    runs: Sequence[str | Path],
    device: str | None = None,
    threads: int | None = None,
    languages: Languages | None = None,
) -> Systems:
    """Load runs; their names are from `NAME=FOLDER`, the name of a model, or the last part of a path.

    `languages`: for runs without recorded languages. Raises the errors of `open_to_translate` and `Systems`.
    """
    systems = []
    for given, run in map(_named, runs):
        opened = open_to_translate(run, device, {"nbest": 1}, threads=threads)
        name = given or (opened.folder.resolve().name if opened.folder == Path(run) else str(run))
        if languages is not None and not str(opened.languages):
            config = opened.loaded.config.model_copy(update={"languages": str(languages)})
            opened = replace(opened, loaded=replace(opened.loaded, config=config))
        systems.append(System(name, opened))
    return Systems(systems)


def _named(run: str | Path) -> tuple[str, str | Path]:
    """Return the name of `NAME=FOLDER`, or an empty name, and the folder."""
    name, equals, folder = str(run).partition("=")
    if not equals or Path(run).exists():
        return "", run
    check_name(name, "system")
    return name, folder
