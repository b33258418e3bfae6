"""Evaluation of translation files of several systems: a table of scores, and paired tests."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cotext.data.documents import language_of_name
from cotext.evaluation.metrics.aligned_files import name_systems, read_aligned
from cotext.evaluation.metrics.comet import Comet, Progress, measure_comet
from cotext.evaluation.metrics.discourse import measure_discourse, measure_terms, read_marks
from cotext.evaluation.metrics.interface import Measurement, Score, Texts, load_words, measure_words
from cotext.evaluation.metrics.realign import AlignmentReport, realign_systems, render_alignment
from cotext.evaluation.requests import EvaluationRequest, LeaderboardRequest
from cotext.evaluation.statistics.significance import PairedTest, compared_pairs, paired_test
from cotext.runtime import __version__, naming
from cotext.runtime.rendering import render_p, render_rows
from cotext.translation.terms.terms import Glossary


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scores by system, paired tests by protocol, and alignments by system, if requested."""

    hypotheses: dict[str, Path]
    references: tuple[Path, ...]
    scores: dict[str, list[Score]]
    paired: dict[str, PairedTest]
    realign: Mapping[str, AlignmentReport] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {
            "format": "cotext-evaluation",
            "version": 1,
            "cotext": __version__,
            "references": [str(path) for path in self.references],
            "systems": {
                name: {
                    "hypothesis": str(self.hypotheses[name]),
                    "scores": {score.protocol: asdict(score) for score in scores},
                }
                for name, scores in self.scores.items()
            },
            "paired": {protocol: test.as_dict() for protocol, test in self.paired.items()},
            **({"realign": {n: r.as_dict() for n, r in self.realign.items()}} if self.realign else {}),
        }

    def render(self) -> str:
        """Format as text: one system with a line per score, several as a table; then the tests."""
        first, *others = self.scores.values()
        counts = f"{first[0].documents} documents, {first[0].sentences} sentences"
        if others:
            rows = [("", *(score.title for score in first), "empty")]
            for name, scores in self.scores.items():
                values = (f"{score.value:.2f}" for score in scores)
                rows.append((name, *values, f"{scores[0].empty_hypotheses}"))
            blocks = ["\n".join([render_rows(rows, left=1), counts, "", *self._signatures()])]
        else:
            width = max(len(score.title) for score in first)
            lines = [f"{score.title:{width}}  {score.value:6.2f}  {score.signature}" for score in first]
            counts += f", {first[0].empty_hypotheses} empty hypothesis sentences"
            blocks = ["\n".join([*lines, counts])]
        if self.paired:
            blocks.append(self.render_tests())
        if self.realign:
            blocks.append(render_alignment(self.realign))
        return "\n\n".join(blocks)

    def _signatures(self) -> Iterator[str]:
        """Yield one signature per score, or one per system if they differ."""
        first, *_ = self.scores.values()
        width = max(len(score.title) for score in first)
        for index, score in enumerate(first):
            signatures = {name: scores[index].signature for name, scores in self.scores.items()}
            if len(set(signatures.values())) == 1:
                yield f"{score.title:{width}}  {score.signature}"
            else:
                yield from (
                    f"{score.title:{width}}  {name}  {signature}" for name, signature in signatures.items()
                )

    def render_tests(self) -> str:
        titles = {score.protocol: score.title for scores in self.scores.values() for score in scores}
        rows = [("", "", "difference", "95 % interval", "p", "corrected")]
        for protocol, test in self.paired.items():
            for (one, other), comparison in test.differences.items():
                interval = "[{:+.2f}, {:+.2f}]".format(*comparison.interval_95)
                values = f"{comparison.difference:+.2f}", interval
                p_values = render_p(comparison.p), render_p(comparison.p_corrected)
                rows.append((titles[protocol], f"{other} - {one}", *values, *p_values))
        signatures = dict.fromkeys(test.signature for test in self.paired.values())
        few = [
            f"{protocol}: {test.units} {test.unit}s are too few for any significant difference"
            for protocol, test in self.paired.items()
            if test.too_few
        ]
        return "\n".join([render_rows(rows, left=2), *few, *signatures])


def evaluate_files(request: EvaluationRequest, on_comet: Progress | None = None) -> Evaluation:
    """Score files of translations against reference files and, if requested, compare them.

    Documents correspond by their order; ids are compared if files have them. `on_comet` is called with the
    number of sentences that COMET has scored, and with their total. Raises CotextError if files do not
    correspond.
    """
    comet = request.comet_model(request.comet_context)
    resampling, baseline = request.resampling(), request.baseline
    named = name_systems(request.hypothesis)
    if resampling is not None:
        compared_pairs(list(named), baseline)  # before any work
    marks = None if request.discourse is None else read_marks(request.discourse)
    whole, alignment = read_texts(named, request)
    measured = measure_words(load_words(request.words), whole, request.protocols, request.target_language)
    if marks is not None:
        with naming(request.discourse):
            measured = _with(measured, measure_discourse(marks, whole))
    if request.terms is not None:
        codes = language_of_name(request.source or request.terms), request.target_language or ""
        glossary = Glossary.read(request.terms, *codes)
        terms = [(term.source, term.targets) for term in glossary.terms if term.targets]
        with naming(request.terms):
            measured = _with(measured, measure_terms(terms, whole))
    measured = with_comet(measured, whole, comet, on_comet, alignment)
    tests = {}
    for of_score in zip(*measured.values(), strict=True) if resampling is not None else ():
        counts = {name: [each.statistics] for name, each in zip(measured, of_score, strict=True)}
        tests[of_score[0].score.protocol] = paired_test(counts, baseline, resampling)
    scores = {name: [each.score for each in measurements] for name, measurements in measured.items()}
    return Evaluation(named, tuple(request.reference), scores, tests, alignment)


def read_texts(
    named: Mapping[str, Path], request: EvaluationRequest | LeaderboardRequest
) -> tuple[Texts, dict[str, AlignmentReport]]:
    """Read the texts; return them with the realignment of each system, if requested."""
    language, realign = request.target_language, request.realigned
    read = read_aligned(
        named, request.reference, request.source, request.format, language, same_sentences=realign is None
    )
    texts = Texts(*read)
    if realign is None:
        return texts, {}
    systems, reports = realign_systems(texts.systems, texts.references, language, realign)
    return replace(texts, systems=systems), reports


def with_comet(
    measured: dict[str, list[Measurement]],
    texts: Texts,
    comet: Comet | None,
    on_comet: Progress | None,
    reports: Mapping[str, AlignmentReport],
) -> dict[str, list[Measurement]]:
    """Add the scores of COMET, if requested; then add realignments to all signatures."""
    if comet is not None:
        measured = _with(measured, measure_comet(comet, texts, on_comet))
    for name, report in reports.items():
        measured[name] = [
            each if each.of_joined_text else each.signed(report.signature) for each in measured[name]
        ]
    return measured


def _with(
    measured: dict[str, list[Measurement]], more: Mapping[str, list[Measurement]]
) -> dict[str, list[Measurement]]:
    return {name: [*measurements, *more[name]] for name, measurements in measured.items()}
