"""Cotext: train, run, score and explain document-level neural machine translation.

import cotext
translator = cotext.load("runs/a")
translator.translate(["The table was new.", "It was expensive."])     # one document: as many sentences back
translator.translate_document(cotext.Document("d1", ("...", "...")))
translator.translate_documents([...])                               # many, in order, in shared batches
translator.score(["The table was new."], ["Der Tisch war neu."])      # log-probability per sentence
"""

from typing import TYPE_CHECKING, Any

from cotext.data.documents import Document, ParallelDocument
from cotext.runtime.errors import CotextError
from cotext.runtime.version import __version__

if TYPE_CHECKING:
    from cotext.translation.api import Translator, load

__all__ = ["CotextError", "Document", "ParallelDocument", "Translator", "__version__", "load"]


def __getattr__(name: str) -> Any:
    """`Translator` and `load` on first use: torch takes seconds to import, and `import cotext` should not."""
    if name in ("Translator", "load"):
        from cotext.translation import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
