"""Files of translations of a suite of ctxPro, of any system: accuracies side by side, paired tests."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

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

_PLAIN_LINES: Final = ("text", "line-documents", "eos-groups")  # a line may be read as it stands


@dataclass(frozen=True, slots=True)
class FormsEvaluation:
    """The forms that systems write, by their names, and their accuracies as scores, with paired tests."""

    suite: GenerativeSuite
    forms: dict[str, FormsFound]
    evaluation: Evaluation

    def as_dict(self) -> dict[str, Any]:
        """Everything, for a JSON file; what a system has under `suites` is as `contrastive --out` writes."""
        suites = {name: {self.suite.name: each.as_dict()} for name, each in self.forms.items()}
        return {**self.evaluation.as_dict(), "suites": suites}

    def render(self) -> str:
        """Plain text."""
        return f"{render_forms_found(self.forms)}\n\n{self.evaluation.render()}"


def evaluate_ctxpro(request: CtxproRequest) -> FormsEvaluation:
    """Measure translations of a suite, and compare them if that is asked for.

    A hypothesis is a text with a line an example, which may hold its translated context, or documents, whose
    last sentence is that of the example: one document an example, or all examples as one.

    Raises:
        CotextError: files that are not of this suite.
    """
    resampling, baseline, target = request.resampling(), request.baseline, request.target_language
    read = read_ctxpro(request.suite, with_context=False)
    named = name_systems(request.hypothesis)
    if resampling is not None:
        compared_pairs(list(named), baseline)
    language = target and language_code(target, "--target-language")
    last = LastSentence.by(request.splitter or AS_PUBLISHED, language or read.languages.target)
    forms = {
        name: forms_found(read, _translations(path, request.format, len(read.examples)), last)
        for name, path in named.items()
    }
    measured = {name: [each.measurement()] for name, each in forms.items()}
    evaluation = Evaluation(
        hypotheses=named,
        references=(),
        scores={name: [each.score for each in found] for name, found in measured.items()},
        paired={} if resampling is None else paired_tests(measured, resampling, baseline),
    )
    return FormsEvaluation(read, forms, evaluation)


def _translations(path: Path, format: str | None, examples: int) -> list[str]:
    """A translation an example.

    Raises:
        CotextError: the file has another number of them.
    """
    lines: list[str] = []
    if (format or detect_format(path)) in _PLAIN_LINES:
        # An empty line is an empty translation here, and ends no document.
        lines = [line for _, line in numbered_lines(path)]
        if len(lines) == examples:
            return lines
    documents = list(read_documents(path, format, side="target"))
    if len(documents) == examples:
        return [document.sentences[-1] if document.sentences else "" for document in documents]
    if len(documents) == 1 and len(documents[0]) == examples:
        return list(documents[0].sentences)
    found = f"{len(lines)} lines" if lines else f"{len(documents)} documents"
    raise CotextError(
        f"{path}: {found}, but the suite has {examples} examples; give one translation an example, "
        "in its order"
    )
