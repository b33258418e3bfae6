"""The systems of a server, and which of them answers a request."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cotext.data.languages import Languages
from cotext.interchange.model_names import resolve_run
from cotext.runtime.errors import CotextError, shown
from cotext.serving.errors import RequestError
from cotext.translation.open import OpenedRun, open_run

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


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
                raise CotextError(
                    f"two systems are called {system.name!r}; give one another name: NAME=FOLDER"
                )
            if not str(system.languages):
                raise CotextError(
                    f"{system.opened.folder}: its languages are not known; give them with --languages, as in "
                    "--languages en-de"
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

    def translating(self, source: str | None, target: str | None, name: str | None = None) -> list[System]:
        """The systems of a language pair, by codes such as `en`; None: any. `name`: that one alone.

        Raises:
            RequestError: 400, none translates so; 404, there is none of the name.
        """
        candidates = list(self) if name is None else [self.named(name)]
        pairs = ", ".join(dict.fromkeys(str(each.languages) for each in candidates))
        for side, code in (("target", target), ("source", source)):
            candidates = [each for each in candidates if code in (None, getattr(each.languages, side))]
            if not candidates:
                raise RequestError(
                    400, f"the {side} language {shown(code)} is not supported; there are {pairs}"
                )
        return candidates


def open_systems(
    runs: Sequence[str | Path],
    device: str | None = None,
    threads: int | None = None,
    languages: Languages | None = None,
) -> Systems:
    """Load runs, each under its name: `NAME=FOLDER`, that of a model, or the last part of its path.

    `languages`: of runs that do not know theirs.

    Raises:
        CotextError: as `resolve_run`, `open_run` and `Systems`.
    """
    return Systems(
        [
            System(name, _with_languages(open_run(folder, device, {"nbest": 1}, threads=threads), languages))
            for name, folder in map(_named, runs)
        ]
    )


def _named(run: str | Path) -> tuple[str, Path]:
    """The name of a run and its folder; a model that has a name keeps it."""
    name, equals, folder = str(run).partition("=")
    if not equals or Path(run).exists():
        own = resolve_run(run)
        return own.resolve().name if own == Path(run) else str(run), own
    if not _NAME.fullmatch(name):
        raise CotextError(
            f"{run}: {shown(name)} cannot be the name of a system: up to 64 letters, digits, dots, hyphens "
            "and underscores, a letter or digit first"
        )
    return name, resolve_run(folder)


def _with_languages(opened: OpenedRun, languages: Languages | None) -> OpenedRun:
    if languages is None or str(opened.languages):
        return opened
    config = opened.loaded.config.model_copy(update={"languages": str(languages)})
    return replace(opened, loaded=replace(opened.loaded, config=config))
