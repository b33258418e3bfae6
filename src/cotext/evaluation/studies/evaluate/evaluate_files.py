"""Measure translations that lie in files, ours or anyone's: several systems, one table, paired tests."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from cotext.data.languages import language_code, language_of_name, primary_language
from cotext.data.splitting import Splitter
from cotext.evaluation.metrics.aligned_files import name_systems, read_aligned, split_paragraphs
from cotext.evaluation.metrics.comet import Progress, measure_comet
from cotext.evaluation.metrics.discourse import MarkedDocument, measure_discourse, read_marks
from cotext.evaluation.metrics.entities import EntityTypes, measure_entities, read_entities
from cotext.evaluation.metrics.interface import (
    Measurement,
    Score,
    Texts,
    find_protocol,
    render_scores,
)
from cotext.evaluation.metrics.realign import (
    AlignmentReport,
    AlignmentReports,
    realign_systems,
    signed,
)
from cotext.evaluation.metrics.terminology import measure_terms
from cotext.evaluation.metrics.tokenised import Words, measure_words, unlike_spacing
from cotext.evaluation.requests import EvaluationRequest
from cotext.evaluation.statistics.significance import (
    SIGNIFICANT,
    PairedTest,
    Resampling,
    compared_pairs,
    least_p,
    paired_test,
)
from cotext.runtime.errors import CotextError
from cotext.runtime.tables import render_p, render_rows
from cotext.runtime.version import __version__
from cotext.translation.terms.glossary import Glossary


class Beside(Protocol):
    """Figures beside the scores of systems, as text and for a JSON file."""

    def as_dict(self) -> dict[str, Any]: ...  # noqa: D102

    def render(self) -> str: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scores of systems by their names; paired tests by protocol, none if they were not asked for.

    `beside` has further figures under the names that they have in a JSON file.
    """

    hypotheses: dict[str, Path]
    references: tuple[Path, ...]
    scores: dict[str, list[Score]]
    paired: dict[str, PairedTest]
    beside: Mapping[str, Beside] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Everything, for a JSON file."""
        return {
            "format": "cotext-evaluation",
            "version": 1,
            "cotext": __version__,
            "references": [str(path) for path in self.references],
            "systems": {
                name: {
                    "hypothesis": str(self.hypotheses[name]),
                    "scores": {score.protocol: score.as_dict() for score in scores},
                }
                for name, scores in self.scores.items()
            },
            "paired": {protocol: test.as_dict() for protocol, test in self.paired.items()},
            **{name: figures.as_dict() for name, figures in self.beside.items()},
        }

    def render(self) -> str:
        """Plain text: one system with a line a score, several as a table; then the tests."""
        if len(self.scores) == 1:
            (only,) = self.scores.values()
            blocks = [render_scores(only)]
        else:
            blocks = [self._table()]
        if self.paired:
            blocks.append(self.render_tests())
        blocks += [figures.render() for figures in self.beside.values()]
        return "\n\n".join(blocks)

    def _table(self) -> str:
        first, *_ = self.scores.values()
        width = max(map(len, self.scores))
        columns = [max(len(score.title), 7) for score in first]
        titles = "  ".join(f"{score.title:>{w}}" for score, w in zip(first, columns, strict=True))
        lines = [f"{'':{width}}  {titles}"]
        for name, scores in self.scores.items():
            values = "  ".join(f"{s.value:{w}.2f}" for s, w in zip(scores, columns, strict=True))
            empty = f"  {scores[0].empty_hypotheses} empty" if scores[0].empty_hypotheses else ""
            lines.append(f"{name:{width}}  {values}{empty}")
        lines.append(f"{first[0].documents} documents, {first[0].sentences} sentences")
        return "\n".join([*lines, "", *self._signatures()])

    def _signatures(self) -> Iterator[str]:
        """One for each score; where it counts something of the system, one for each system."""
        first, *_ = self.scores.values()
        width = max(len(score.title) for score in first)
        for index, score in enumerate(first):
            signatures = {name: scores[index].signature for name, scores in self.scores.items()}
            if len(set(signatures.values())) == 1:
                yield f"{score.title:{width}}  {score.signature}"
            else:
                yield from (f"{score.title:{width}}  {name}  {own}" for name, own in signatures.items())

    def render_tests(self) -> str:
        """The differences of systems under every score, as a table."""
        titles = {score.protocol: score.title for scores in self.scores.values() for score in scores}
        rows = [("", "", "difference", "95 % interval", "p", "corrected")]
        for protocol, test in self.paired.items():
            for each in test.comparisons:
                low, high = each.interval_95
                rows.append(
                    (
                        titles[protocol],
                        f"{each.system} - {each.baseline}",
                        f"{each.difference:+.2f}",
                        f"[{low:+.2f}, {high:+.2f}]",
                        render_p(each.p),
                        render_p(each.p_corrected),
                    )
                )
        signatures = dict.fromkeys(test.signature for test in self.paired.values())
        return "\n".join([render_rows(rows, left=2), *self._too_few(), *signatures])

    def _too_few(self) -> Iterator[str]:
        """Messages for tests in which no outcome could be significant."""
        for protocol, test in self.paired.items():
            # Drawing with replacement knows no such bound.
            randomised = test.signature.startswith("test:randomisation|")
            if randomised and least_p(test.units) * len(test.comparisons) >= SIGNIFICANT:
                yield f"{protocol}: {test.units} {test.unit}s are too few for any significant difference"


def evaluate_files(request: EvaluationRequest, on_comet: Progress | None = None) -> Evaluation:
    """Score files of translations against reference files, and compare them if that is asked for.

    Documents correspond by their order; ids are compared where files carry them. Protocols on tokenised text
    read the words of `words`, other protocols the text that they join to. With `paragraphs`, lines of several
    sentences are split for what is measured by sentences, where all sides have equally many; other scores are
    of the lines as they are. `on_comet` is called with the number of sentences that COMET has scored, and
    with that of all.

    Raises:
        CotextError: files that do not correspond document by document and sentence by sentence.
    """
    chosen, language = request.protocols, request.target_language
    comet = request.comet_model(request.comet_context)
    resampling, baseline = request.resampling(), request.baseline
    named = name_systems(request.hypothesis)
    if resampling is not None:
        compared_pairs(list(named), baseline)  # before any work
    marks = None if request.discourse is None else read_marks(request.discourse)
    whole, alignment = _read(named, request)
    units, beside, by = whole, _spacing(request.words, whole), ""
    if request.paragraphs:
        splitters = _splitters(request)
        (units, beside["paragraphs"]), by = split_paragraphs(whole, *splitters), f"|split:{splitters[0].name}"
    measured = _measure_units(whole, units, by, Words.of(request.words), chosen, language)
    if request.discourse is not None and marks is not None:
        measured = _with(measured, _measure_marks(request.discourse, marks, whole))
    if request.entities is not None:
        more, beside["entities"] = _measure_listed(request.entities, whole, language)
        measured = _with(measured, more)
    if request.terms is not None:
        measured = _with(measured, _measure_terms(request.terms, request, whole))
    if comet is not None:
        more = measure_comet(comet, units.systems, units.source, units.references, on_comet)
        measured = _with(measured, {name: [m.signed(by) for m in each] for name, each in more.items()})
    if alignment:
        measured, beside["realign"] = _signed(measured, alignment)
    scores = {name: [each.score for each in found] for name, found in measured.items()}
    tests = {} if resampling is None else paired_tests(measured, resampling, baseline)
    return Evaluation(named, tuple(request.reference), scores, tests, beside)


def _spacing(words: Path | None, texts: Texts) -> dict[str, Beside]:
    """Warning for a tokenised hypothesis scored against an untokenised reference, or the other way round."""
    found = None if words is not None else unlike_spacing(texts.systems, texts.references)
    return {} if found is None else {"spacing": found}


def _read(named: Mapping[str, Path], request: EvaluationRequest) -> tuple[Texts, dict[str, AlignmentReport]]:
    """The texts, and by system how they were realigned, if that is asked for."""
    language, realign = request.target_language, request.realigned
    read = read_aligned(
        named, request.reference, request.source, request.format, language, same_sentences=realign is None
    )
    texts = Texts(*read)
    if realign is None:
        return texts, {}
    systems, reports = realign_systems(texts.systems, texts.references, language, realign)
    return replace(texts, systems=systems), reports


def _signed(
    measured: Mapping[str, list[Measurement]], alignment: dict[str, AlignmentReport]
) -> tuple[dict[str, list[Measurement]], AlignmentReports]:
    """The measurements of realigned systems, signed as such where it matters, and what is told of them."""
    found = {
        name: [signed(each, alignment[name].signature) for each in every] for name, every in measured.items()
    }
    signatures = [each.score.signature for every in found.values() for each in every]
    return found, AlignmentReports(alignment, all("|unit:document|" in each for each in signatures))


def _with(
    measured: dict[str, list[Measurement]], more: Mapping[str, list[Measurement]]
) -> dict[str, list[Measurement]]:
    """The measurements of systems, with more of each."""
    return {name: [*found, *more[name]] for name, found in measured.items()}


def _measure_marks(path: Path, marks: Sequence[MarkedDocument], texts: Texts) -> dict[str, list[Measurement]]:
    try:
        return measure_discourse(marks, texts.systems, texts.references[0])
    except CotextError as error:
        raise CotextError(f"{path}: {error}") from None


def _measure_listed(
    path: Path, whole: Texts, target_language: str | None
) -> tuple[dict[str, list[Measurement]], EntityTypes]:
    language = target_language and primary_language(language_code(target_language, "--target-language"))
    entities = read_entities(path, language)
    try:
        return measure_entities(entities, whole.systems, whole.references[0], language)
    except CotextError as error:
        raise CotextError(f"{path}: {error}") from None


def _measure_terms(path: Path, request: EvaluationRequest, texts: Texts) -> dict[str, list[Measurement]]:
    codes = language_of_name(request.source or path), request.target_language or ""
    terms = [(term.source, term.targets) for term in Glossary.read(path, *codes).terms if term.targets]
    try:
        return measure_terms(terms, texts.systems, texts.source, texts.references[0])
    except CotextError as error:
        raise CotextError(f"{path}: {error}") from None


def _splitters(request: EvaluationRequest) -> tuple[Splitter, Splitter]:
    """Those of target and source, whose languages are told, or stand in the names of the files."""
    splitting, target = request.splitting(), request.target_language
    given = target and primary_language(language_code(target, "--target-language"))
    return (
        splitting.splitter(given or language_of_name(request.reference[0])),
        splitting.splitter("" if request.source is None else language_of_name(request.source)),
    )


def _measure_units(
    whole: Texts,
    units: Texts,
    by: str,
    words: Words | None,
    protocols: Sequence[str],
    target_language: str | None,
) -> dict[str, list[Measurement]]:
    """As `measure`: protocols on sentences of `units`, signed by how they were split, others of `whole`."""
    measured: dict[str, list[Measurement]] = {name: [] for name in whole.systems}
    for protocol in protocols:
        sentences = find_protocol(protocol).unit == "sentence"
        texts = units if sentences else whole
        found = measure_words(words, texts, [protocol], target_language)
        for name, [each] in found.items():
            measured[name].append(each.signed(by) if sentences else each)
    return measured


def paired_tests(
    measured: Mapping[str, list[Measurement]], resampling: Resampling, baseline: str | None
) -> dict[str, PairedTest]:
    """Compare systems under each of their scores, by protocol."""
    first, *_ = measured.values()
    return {
        each.score.protocol: paired_test(
            {name: found[index].statistics for name, found in measured.items()}, baseline, resampling
        )
        for index, each in enumerate(first)
    }
