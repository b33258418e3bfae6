"""Cotext: train, run, score and explain document-level neural machine translation.

import cotext
translator = cotext.load("runs/a")
translator.translate(["The table was new.", "It was expensive."])      # the sentences of one document
translator.translate_document(cotext.Document("d1", ("...", "...")))
translator.translate_documents([...])                                # several documents, in shared batches
translator.score(["The table was new."], ["Der Tisch war neu."])       # log-probability of each sentence

To process files, as the commands `prepare`, `translate` and `evaluate` do:

cotext.prepare(cotext.PreparationRequest(source="train.en", target="train.de", dev_source="dev.en",
                                         dev_target="dev.de", out="data"))
cotext.translate_files(cotext.TranslationRequest(run="runs/a", files=["a.docx"], out="a.de.docx"))
cotext.evaluate(cotext.EvaluationRequest(hypothesis=["ours.de"], reference=["test.de"]))
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cotext.data.documents import Document, ParallelDocument
from cotext.data.requests import PreparationRequest
from cotext.evaluation.requests import EvaluationRequest
from cotext.files.requests import TranslationRequest
from cotext.runtime import CotextError, __version__

if TYPE_CHECKING:
    from cotext.data.prepared import Report
    from cotext.evaluation.studies.evaluate.evaluate_files import Evaluation
    from cotext.translation.corpus_files import FileReport
    from cotext.translation.translator import Translator

__all__ = [
    "CotextError",
    "Document",
    "EvaluationRequest",
    "ParallelDocument",
    "PreparationRequest",
    "TranslationRequest",
    "Translator",
    "__version__",
    "evaluate",
    "load",
    "prepare",
    "translate_files",
]


def prepare(request: PreparationRequest) -> "Report":
    """Make a data folder for training; returns its statistics. See `cotext.data.prepare.prepare`."""
    from cotext.data.prepare import prepare as prepare_corpora

    return prepare_corpora(request)


def translate_files(request: TranslationRequest) -> "list[FileReport]":
    """Translate files with a run and write them; returns a report for each file, in the order of the request.

    Raises:
        CotextError: the request has standard input, a shard or a language model, which only the command line
            supports; or an error of `cotext.files.translate_files.FilesTranslation`.
    """
    from cotext.files.translate_files import FilesTranslation
    from cotext.language_models.config import is_endpoint

    if request.is_standard_input or request.shard is not None or is_endpoint(request.run):
        raise CotextError(
            "translate_files needs complete files and a run; for standard input, shards and language models, "
            "use the command line"
        )
    return FilesTranslation(request).run()


def evaluate(request: EvaluationRequest) -> "Evaluation":
    """Score files of translations against references.

    See `cotext.evaluation.studies.evaluate.evaluate_files.evaluate_files`.
    """
    from cotext.evaluation.studies.evaluate.evaluate_files import evaluate_files

    return evaluate_files(request)


def load(
    run: str | Path, device: str | None = None, *, trust_code: bool = False, **decode: Any
) -> "Translator":
    """Open a run folder, an engine folder (written by `cotext export`) or a named model.

    A name is that of an installed model, such as `en-de`, or of a repository of the Hugging Face hub, such as
    `owner/name` (docs/models.md). `trust_code`: allow Python code in the run folder to be executed
    (docs/slots.md); the permission is remembered. `decode`: settings to override, such as beam=1.

    Raises:
        CotextError: the run or model does not exist, a model file is damaged or not written by Cotext, or a
            setting is unknown; or an error of `cotext.interchange.model_names.resolve_run`.
    """
    from cotext.translation import engine_cache

    return engine_cache.load(run, device, trust_code=trust_code, **decode)


def __getattr__(name: str) -> Any:
    """Import `Translator` on first use: torch takes seconds to import, and `import cotext` should be fast."""
    if name == "Translator":
        from cotext.translation.translator import Translator

        return Translator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
