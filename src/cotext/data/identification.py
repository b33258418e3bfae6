"""Identification of languages by py3langid, which is optional."""

from functools import cache
from importlib import import_module
from typing import Any


@cache
def language_identifier() -> Any:
    """That of py3langid with its own model: `classify` and `rank` give languages with probabilities.

    Raises:
        ImportError: it is not installed.
    """
    module = import_module("py3langid.langid")
    return module.LanguageIdentifier.from_model_file(module.MODEL_FILE, norm_probs=True)
