"""The classes of parts that are named in a table, or in a configuration as those of a user's file."""

from importlib import import_module
from typing import Any, TypeVar

from cotext.config.model import ModelConfig
from cotext.config.parts import DOCUMENT_LAYERS, OWN
from cotext.layers.multi_head import Score
from cotext.models.interface import DocumentLayer, DocumentSettings
from cotext.runtime import own_code
from cotext.runtime.errors import CotextError

Kind = TypeVar("Kind")


def document_layer(name: str) -> type[DocumentLayer]:
    """The class that `model.document_layer` names.

    Raises:
        CotextError: as `own_part`.
    """
    if name not in DOCUMENT_LAYERS:
        return own_part(name, DocumentLayer)  # type: ignore[type-abstract]
    module, _, kind = DOCUMENT_LAYERS[name].partition(":")
    found: type[DocumentLayer] = getattr(import_module(module), kind)
    return found


def own_score(name: str) -> type[Score]:
    """The class of a user's file that is named as a score; CotextError as `own_part`."""
    return own_part(name, Score)


def own_part(name: str, base: type[Kind]) -> type[Kind]:
    """The class of a user's file, as in `idea.py:MyScore@0123456789abcdef`.

    Raises:
        CotextError: its code cannot be had, is not trusted or fails; it has no such class, or one of another
            kind, or one in which methods are missing.
    """
    match = OWN.fullmatch(name)
    if match is None or match["digest"] is None:
        raise CotextError(f"{name}: is no part; write it as in idea.py:MyScore")
    where = f"{match['name']}:{match['kind']}"
    found: Any = getattr(own_code.module(match["digest"], match["name"]), match["kind"], None)
    if not isinstance(found, type) or not issubclass(found, base):
        raise CotextError(f"{where}: no class of this name that is a {base.__module__}.{base.__name__}")
    if missing := sorted(getattr(found, "__abstractmethods__", ())):
        raise CotextError(
            f"{where}: does not say {', '.join(missing)}; see {base.__module__}.{base.__name__}"
        )
    return found


def document_settings(model: ModelConfig) -> DocumentSettings:
    """The settings of the layer on top."""
    given = model.document
    return DocumentSettings(given.before, given.relative, given.gate, given.feed_forward)
