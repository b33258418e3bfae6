"""Cotext: train, run, score and explain document-level neural machine translation.

import cotext
translator = cotext.load("runs/a")
translator.translate(["The table was new.", "It was expensive."])     # one document: as many sentences back
translator.translate_document(cotext.Document("d1", ("...", "...")))
translator.translate_documents([...])                               # many, in order, in shared batches
translator.score(["The table was new."], ["Der Tisch war neu."])      # log-probability per sentence

Files, as the commands `prepare`, `translate` and `evaluate` take them:

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
        CotextError: standard input, shards and descriptions of language models, which the command line takes;
            as `cotext.files.translate_files.FilesTranslation`.
    """
    from cotext.files.translate_files import FilesTranslation
    from cotext.language_models.config import is_endpoint

    if request.is_standard_input or request.shard is not None or is_endpoint(request.run):
        raise CotextError(
            "translate_files translates whole files with a run; standard input, shards and language models "
            "are for the command line"
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
    """Open a run folder, an engine or a model by its name; `decode` overrides settings such as beam=1.

    Names are those of installed models, such as `en-de`, and of repositories of the Hugging Face hub, such as
    `owner/name` (docs/models.md). `trust_code`: run Python code that the run brings (docs/slots.md), and
    remember that it may be run.

    Raises:
        CotextError: no such run or model, a damaged or foreign model file, an unknown setting; as
            `cotext.interchange.model_names.resolve_run`.
    """
    from cotext.translation import engine_cache

    return engine_cache.load(run, device, trust_code=trust_code, **decode)


def __getattr__(name: str) -> Any:
    """`Translator` on first use: torch takes seconds to import, and `import cotext` should not."""
    if name == "Translator":
        from cotext.translation.translator import Translator

        return Translator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
