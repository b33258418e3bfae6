"""Shell completion of arguments: recipes, models, and options with fixed choices.

A shell runs the command line at each press of the tab key. Therefore nothing here may import torch. If the
list is empty, the shell completes file names.
"""

from collections.abc import Callable, Iterable
from glob import escape, iglob
from pathlib import Path
from typing import Literal, get_args, get_origin

from cotext.runtime.request import Option, without_none

Completion = Callable[[str], list[str]]


def completion(name: str, declared: Option) -> Completion | None:
    """Return the function that completes the field `name` of a request; None: complete file names."""
    kind = without_none(declared.type)
    choices = [each for each in (kind, *get_args(kind)) if get_origin(each) is Literal]
    if choices:
        return lambda incomplete: _beginning(incomplete, get_args(choices[0]))
    if declared.is_run:
        return _runs
    return _recipes if name == "recipe" else None


def _beginning(incomplete: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]


def _recipes(incomplete: str) -> list[str]:
    from cotext.config.recipe import recipe_names

    return _beginning(incomplete, recipe_names())


def _runs(incomplete: str) -> list[str]:
    from cotext.interchange.model_names import known_models

    paths = iglob(f"{escape(incomplete)}*")  # noqa: PTH207 - may begin with / or ..
    shown = (f"{path}/" if Path(path).is_dir() else path for path in paths)
    return [*_beginning(incomplete, known_models()), *shown]
