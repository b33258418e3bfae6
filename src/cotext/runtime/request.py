"""Requests: the arguments of a command and of its Python function, declared and checked in one class.

A request is a frozen dataclass whose fields are declared by `option`. The command line derives its options
from these fields, and Python code creates the same object. So both have the same defaults and checks.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from math import inf
from pathlib import Path
from typing import Any, Literal, cast, dataclass_transform, get_args, get_origin, get_type_hints

from cotext.runtime import CotextError, shown


@dataclass(frozen=True, slots=True)
class Option:
    """The command-line option of a field; see `option`."""

    help: str
    name: str
    argument: bool
    least: float | None
    needs: tuple[str, ...]
    is_run: bool = False
    type: Any = None


def option(
    help: str,
    *,
    default: Any = MISSING,
    default_factory: Any = MISSING,
    name: str = "",
    argument: bool = False,
    least: float | None = None,
    needs: str | Sequence[str] = (),
    is_run: bool = False,
) -> Any:
    """Declare a field of a request; a field without a default is required.

    `name`: name of the option, if it differs from the field. `argument`: whether the field is positional on
    the command line. `least`: minimum value. `needs`: options of which this option requires one; an item may
    include a value, such as "level=document". `is_run`: whether the name of a model is also accepted.
    """
    needed = (needs,) if isinstance(needs, str) else tuple(needs)
    about = {"option": Option(help, name, argument, least, needed, is_run)}
    if default_factory is not MISSING:
        return field(default_factory=default_factory, metadata=about)
    return field(default=default, metadata=about)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(option,))
class Request:
    """Base of requests. Every subclass becomes a frozen dataclass with keyword-only arguments.

    A path may be given as text, and a sequence of one value as this value. Error messages use the option
    names of the command line: `--comet-context` is the field `comet_context`.
    """

    def __init_subclass__(cls) -> None:
        # Generating the other methods would double the import time of the forty requests.
        dataclass(frozen=True, kw_only=True, eq=False, repr=False, match_args=False)(cls)

    def __post_init__(self) -> None:
        """Convert each value, check its range, choices and needed options, then call `check`."""
        declarations = options_of(type(self))
        for name, declared in declarations.items():
            flag = option_name(name, declared)
            value = _converted(getattr(self, name), declared.type, flag)
            object.__setattr__(self, name, value)
            numbers = value if isinstance(value, tuple) else () if value is None else (value,)
            # Comparisons with NaN are false.
            if declared.least is not None and not all(declared.least <= n < inf for n in numbers):
                raise CotextError(f"{flag} {shown(value)}: must be finite and at least {declared.least:g}")
        for name, declared in declarations.items():
            if declared.needs and self.is_given(name) and not any(map(self._has, declared.needs)):
                needed = " or ".join(
                    f"--{need.replace('_', '-').replace('=', ' ')}" for need in declared.needs
                )
                raise CotextError(f"{option_name(name, declared)} needs {needed}")
        self.check()

    def __eq__(self, other: object) -> bool:
        names = self.__dataclass_fields__
        return type(self) is type(other) and all(getattr(self, n) == getattr(other, n) for n in names)

    def __repr__(self) -> str:
        given = (f"{n}={getattr(self, n)!r}" for n in self.__dataclass_fields__ if self.is_given(n))
        return f"{type(self).__name__}({', '.join(given)})"

    __hash__ = None  # type: ignore[assignment]

    def check(self) -> None:
        """Check the combination of values. Subclasses override this method and raise CotextError."""

    def is_given(self, name: str) -> bool:
        """Return whether a field differs from its default."""
        declared = self.__dataclass_fields__[name]
        usual = declared.default if declared.default_factory is MISSING else declared.default_factory()
        return bool(getattr(self, name) != usual)

    def _has(self, needed: str) -> bool:
        name, _, value = needed.partition("=")
        return getattr(self, name) == value if value else self.is_given(name)

    __dataclass_fields__: Any


def options_of(request: type[Request]) -> Mapping[str, Option]:
    """Return the options by field, with their types, in the order of the command line.

    Fields without `default` come first (also with `default_factory`), in the order of class and bases.
    """
    hints = get_type_hints(request)
    declared = {f.name: f for f in fields(cast(Any, request)) if "option" in f.metadata}
    annotated = [name for kind in request.__mro__ for name in inspect.get_annotations(kind)]
    names = [name for name in dict.fromkeys(annotated) if name in declared]
    names.sort(key=lambda name: declared[name].default is not MISSING)
    return {name: replace(declared[name].metadata["option"], type=hints[name]) for name in names}


def option_name(name: str, declared: Option) -> str:
    return name.upper() if declared.argument else f"--{declared.name or name}".replace("_", "-")


def without_none(hint: Any) -> Any:
    """Return `X` for the type `X | None`."""
    kinds = [part for part in get_args(hint) if part is not type(None)]
    return kinds[0] if type(None) in get_args(hint) else hint


def _converted(value: Any, hint: Any, flag: str) -> Any:
    if value is None:
        return None
    kind = without_none(hint)
    if get_origin(kind) is Sequence:
        several = (value,) if isinstance(value, str | Path) else value
        return tuple(_converted(item, get_args(kind)[0], flag) for item in several)
    if get_origin(kind) is Literal and value not in get_args(kind):
        raise CotextError(f"{flag} {shown(value)}: choose one of {', '.join(get_args(kind))}")
    # The name of "." is needed for files beside an output.
    return (Path(value) if Path(value).name else Path(value).absolute()) if kind is Path else value
