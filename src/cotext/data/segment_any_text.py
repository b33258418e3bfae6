"""Sentences by a model of Segment any Text (SaT; Frohmann et al. 2024), through the package wtpsplit-lite."""

from importlib import import_module
from typing import Any

from cotext.runtime.errors import CotextError


class SegmentAnyText:
    """A model by its name, as "sat-3l-sm", or the folder it lies in; a name is fetched by the package, once.

    Raises:
        CotextError: the package is not installed, or cannot load the model.
    """

    def __init__(self, name: str) -> None:
        try:
            package = import_module("wtpsplit_lite")
        except ImportError:
            raise CotextError(
                f"--splitter sat:{name} needs the package wtpsplit-lite; install it (pip install "
                "wtpsplit-lite), or leave --splitter out"
            ) from None
        try:
            self._model: Any = package.SaT(name)
        except Exception as error:
            # Whatever a package of models and a hub raise.
            raise CotextError(
                f"--splitter sat:{name}: the model cannot be loaded ({error}); give the name of a model of "
                "Segment any Text, such as sat-3l-sm, or the folder of one"
            ) from None

    def ends(self, text: str) -> list[int]:
        """Offsets at which a sentence ends and another begins, as `EndRules.ends`.

        None if what the model gives is not the text.
        """
        # A line break is white space; a model may take it for the end of a paragraph.
        plain = "".join(" " if character.isspace() else character for character in text)
        ends, at = [], 0
        for piece in self._model.split(plain) if plain.strip() else ():
            for character in filter(str.strip, piece):
                while at < len(text) and text[at].isspace():
                    at += 1
                if text[at : at + 1] != character:
                    return []
                at += 1
            while at < len(text) and text[at].isspace():
                at += 1
            ends.append(at)
        return [end for end in ends if 0 < end < len(text)]
