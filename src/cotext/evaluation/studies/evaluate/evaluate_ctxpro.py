"""Evaluation of translation files of a ctxPro suite: accuracies of systems, and paired significance tests."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cotext.data.ctxpro import GenerativeSuite, read_ctxpro
from cotext.data.formats import detect_format, read_documents
from cotext.data.formats.streams import numbered_lines
from cotext.data.languages import language_code
from cotext.evaluation.metrics.aligned_files import name_systems
from cotext.evaluation.metrics.ctxpro import (
    AS_PUBLISHED,
    FormsFound,
    LastSentence,
    forms_found,
    render_forms_found,
)
from cotext.evaluation.requests import CtxproRequest
from cotext.evaluation.statistics.significance import compared_pairs
from cotext.evaluation.studies.evaluate.evaluate_files import Evaluation, paired_tests
from cotext.runtime.errors import CotextError


@dataclass(frozen=True, slots=True)
class FormsEvaluation:
    """The forms found in the translations of each system, and the accuracies with paired tests."""

    suite: GenerativeSuite
    forms: dict[str, FormsFound]
    evaluation: Evaluation

    def as_dict(self) -> dict[str, Any]:
        """Return all results for a JSON file; `suites` has the format of `contrastive --out`."""
        suites = {name: {self.suite.name: forms.as_dict()} for name, forms in self.forms.items()}
        return {**self.evaluation.as_dict(), "suites": suites}

    def render(self) -> str:
        return f"{render_forms_found(self.forms)}\n\n{self.evaluation.render()}"


def evaluate_ctxpro(request: CtxproRequest) -> FormsEvaluation:
    """Score translations of a suite and, if requested, compare them.

    Each hypothesis file has one of three forms: one line per example, which may include translated context;
    one document per example, whose last sentence is evaluated; or one document with one sentence per example.

    Raises:
        CotextError: a file does not contain translations of this suite.
    """
    resampling, baseline, target = request.resampling(), request.baseline, request.target_language
    suite = read_ctxpro(request.suite, with_context=False)
    named = name_systems(request.hypothesis)
    if resampling is not None:
        compared_pairs(list(named), baseline)
    language = target and language_code(target, "--target-language")
    last = LastSentence.by(request.splitter or AS_PUBLISHED, language or suite.languages.target)
    forms = {
        name: forms_found(suite, _translations(path, request.format, len(suite.examples)), last)
        for name, path in named.items()
    }
    measured = {name: [item.measurement()] for name, item in forms.items()}
    evaluation = Evaluation(
        hypotheses=named,
        references=(),
        scores={name: [item.score for item in measurements] for name, measurements in measured.items()},
        paired={} if resampling is None else paired_tests(measured, resampling, baseline),
    )
    return FormsEvaluation(suite, forms, evaluation)


def _translations(path: Path, format: str | None, examples: int) -> list[str]:
    """Return one translation per example.

    Raises:
        CotextError: the file has a different number of translations.
    """
    lines: list[str] = []
    if (format or detect_format(path)) == "text":
        # Here, an empty line is an empty translation and does not end a document.
        lines = [line for _, line in numbered_lines(path)]
        if len(lines) == examples:
            return lines
    documents = list(read_documents(path, format, side="target"))
    if len(documents) == examples:
        return [document.sentences[-1] if document.sentences else "" for document in documents]
    if len(documents) == 1 and len(documents[0]) == examples:
        return list(documents[0].sentences)
    count = f"{len(lines)} lines" if lines else f"{len(documents)} documents"
    raise CotextError(
        f"{path}: {count}, but the suite has {examples} examples; give one translation per example, "
        "in the same order"
    )
