"""Shell completion of arguments: recipes, keys of settings, models, and options with fixed choices.

A shell runs the command line at each press of the tab key. Therefore nothing here may import torch. If the
list is empty, the shell completes file names.
"""

from collections.abc import Callable, Iterable, Mapping
from glob import escape, iglob
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args, get_origin

from cotext.runtime.request import Option, without_none

if TYPE_CHECKING:
    from pydantic import BaseModel

Completion = Callable[[str], list[str]]


def completion(name: str, declared: Option) -> Completion | None:
    """Return the function that completes the field `name` of a request; None: complete file names."""
    kind = without_none(declared.type)
    choices = [each for each in (kind, *get_args(kind)) if get_origin(each) is Literal]
    if choices:
        return lambda incomplete: _beginning(incomplete, get_args(choices[0]))
    if get_origin(kind) is Mapping:
        return _decoding_settings
    if declared.is_run:
        return _runs
    return {"recipe": _recipes, "overrides": _settings}.get(name)


def _beginning(incomplete: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]


def _recipes(incomplete: str) -> list[str]:
    from cotext.config.recipe import recipe_names

    return _beginning(incomplete, recipe_names())


def _settings(incomplete: str) -> list[str]:
    from cotext.config.recipe import Config

    return _keys(incomplete, Config)


def _decoding_settings(incomplete: str) -> list[str]:
    from cotext.config.decoding import DecodeConfig

    return _keys(incomplete, DecodeConfig)


def _keys(incomplete: str, model: "type[BaseModel]") -> list[str]:
    """Return keys such as `train.seed=`.

    A single key is returned also with its default value. Otherwise the shell would add a space after it.
    """
    from cotext.config.recipe import keys

    defaults = {f"{key}=": value for key, value in keys(model)}
    found = _beginning(incomplete, defaults)
    return found if len(found) != 1 else [*found, f"{found[0]}{defaults[found[0]]}"]


def _runs(incomplete: str) -> list[str]:
    from cotext.interchange.model_names import known_models

    paths = iglob(f"{escape(incomplete)}*")  # noqa: PTH207 - may begin with / or ..
    shown = (f"{path}/" if Path(path).is_dir() else path for path in paths)
    return [*_beginning(incomplete, known_models()), *shown]
