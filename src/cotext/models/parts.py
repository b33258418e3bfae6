"""The classes of parts named in a configuration, from the package or from a user's file."""

from importlib import import_module
from typing import Any, TypeVar

from cotext.config.parts import DOCUMENT_LAYERS, OWN
from cotext.models.interface import DocumentLayer
from cotext.runtime import CotextError, own_code

Kind = TypeVar("Kind")


def document_layer(name: str) -> type[DocumentLayer]:
    """Return the class named in `model.document_layer`; raise the same errors as `own_part`."""
    if name not in DOCUMENT_LAYERS:
        return own_part(name, DocumentLayer)  # type: ignore[type-abstract]
    module, _, kind = DOCUMENT_LAYERS[name].partition(":")
    layer: type[DocumentLayer] = getattr(import_module(module), kind)
    return layer


def own_part(name: str, base: type[Kind]) -> type[Kind]:
    """Return the class of a user's file, such as `idea.py:MyScore@0123456789abcdef`.

    Raises CotextError if its code is unavailable, not trusted or fails; or if the class is missing, of
    another kind or incomplete.
    """
    match = OWN.fullmatch(name)
    if match is None or match["digest"] is None:
        raise CotextError(f"{name}: not the name of a part; write it as in idea.py:MyScore")
    where = f"{match['name']}:{match['kind']}"
    part: Any = getattr(own_code.module(match["digest"], match["name"]), match["kind"], None)
    if not isinstance(part, type) or not issubclass(part, base):
        raise CotextError(
            f"{where}: no class with this name is a subclass of {base.__module__}.{base.__name__}"
        )
    if missing := sorted(getattr(part, "__abstractmethods__", ())):
        raise CotextError(
            f"{where}: does not define {', '.join(missing)}; see {base.__module__}.{base.__name__}"
        )
    return part
