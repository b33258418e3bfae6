"""Tag files of MuDA (Fernandes et al., 2023): precision, recall and F of words that need context, by tag.

MuDA's taggers mark the words of a translation that show a discourse phenomenon (formality, pronouns, verb
form, lexical cohesion); they need models and libraries of their own, and write JSON: documents of sentences
of `{"token": ..., "tags": [...]}`. Given the tags of the reference and those of translations, this is what
MuDA's `compute_metrics` counts, sentence by sentence:

    a word is a token in lower case, without marks at its ends
    the k-th occurrence of a word in the hypothesis belongs to the k-th of the same word in the reference
    a tag matches where both have it

Precision is matches among the tags of the hypothesis, recall among those of the reference, F is their
harmonic mean; a share of nothing is 0.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from cotext.data.formats.streams import read_whole
from cotext.data.suite_fields import kind_of
from cotext.metrics.aligned_files import name_systems
from cotext.metrics.bleu import Measurement, Score
from cotext.metrics.evaluate_files import Evaluation, paired_tests
from cotext.metrics.significance import Resampling, compared_pairs
from cotext.metrics.sufficient_statistics import Floats, Statistics
from cotext.runtime.errors import CotextError, shown
from cotext.runtime.reading import parse_json
from cotext.runtime.tables import render_rows
from cotext.runtime.version import __version__

_MARKS_AT_ENDS: Final = re.compile(r"^\W+|(?<!\W)\W+$")


@dataclass(frozen=True, slots=True)
class TaggedToken:
    """A token of a translation, and its tags."""

    token: str
    tags: tuple[str, ...]

    @property
    def word(self) -> str:
        """What tokens are compared by."""
        return _MARKS_AT_ENDS.sub("", self.token.lower())


TaggedDocument = list[list[TaggedToken]]


@dataclass(frozen=True, slots=True)
class TagEvaluation:
    """F by tag of several systems as scores, with precision, recall and counts as their components."""

    evaluation: Evaluation

    def as_dict(self) -> dict[str, Any]:
        """Everything, for a JSON file."""
        return self.evaluation.as_dict()

    def render(self) -> str:
        """A line for each system and tag; then the tests, and the signature."""
        rows: list[tuple[str, ...]] = [
            ("", "tag", "precision", "recall", "F", "tagged", "in reference", "matched")
        ]
        for name, scores in self.evaluation.scores.items():
            for score in scores:
                parts = score.components
                counts = (parts["hypothesis_tags"], parts["reference_tags"], parts["matches"])
                percents = (parts["precision"], parts["recall"], score.value)
                rows.append(
                    (
                        name,
                        score.title,
                        *(f"{value:.2f}" for value in percents),
                        *(f"{count:.0f}" for count in counts),
                    )
                )
        blocks = [render_rows(rows, left=2)]
        if self.evaluation.paired:
            blocks.append(self.evaluation.render_tests())
        first, *_ = self.evaluation.scores.values()
        blocks.append("\n".join(dict.fromkeys(score.signature for score in first)))
        return "\n\n".join(blocks)


def evaluate_tags(
    reference: Path,
    hypotheses: Sequence[Path],
    *,
    resampling: Resampling | None = None,
    baseline: str | None = None,
) -> TagEvaluation:
    """Measure tag files of translations against that of the reference, and compare them if asked to.

    Raises:
        CotextError: no tag files, or of other documents and sentences than the reference's.
    """
    right = read_tags(reference)
    named = name_systems(hypotheses)
    if resampling is not None:
        compared_pairs(list(named), baseline)
    read = {name: read_tags(path) for name, path in named.items()}
    for name, documents in read.items():
        _require_same(named[name], documents, reference, right)
    everything = [right, *read.values()]
    tags = sorted({tag for each in everything for d in each for s in d for token in s for tag in token.tags})
    if not tags:
        raise CotextError(f"{reference}: no word has a tag, here and in the hypotheses; tag them with MuDA")
    measured = {name: measure_tags(documents, right, tags) for name, documents in read.items()}
    return TagEvaluation(
        Evaluation(
            hypotheses=named,
            references=(reference,),
            scores={name: [each.score for each in found] for name, found in measured.items()},
            paired={} if resampling is None else paired_tests(measured, resampling, baseline),
        )
    )


def measure_tags(
    hypothesis: Sequence[TaggedDocument], reference: Sequence[TaggedDocument], tags: Sequence[str]
) -> list[Measurement]:
    """F of each of the tags, with the counts of every sentence."""
    counts: list[dict[str, tuple[float, float, float]]] = []
    indices: list[int] = []
    for index, (ours, theirs) in enumerate(zip(hypothesis, reference, strict=True)):
        for written, right in zip(ours, theirs, strict=True):
            counts.append(_count(written, right))
            indices.append(index)
    empty = sum(not sentence for document in hypothesis for sentence in document)
    measurements = []
    for tag in tags:
        of_tag = np.array([each.get(tag, (0.0, 0.0, 0.0)) for each in counts]).reshape(-1, 3)
        matched, tagged, expected = of_tag.sum(axis=0)
        statistics = Statistics(of_tag, np.array(indices), "sentence", _f_of_sums)
        score = Score(
            protocol=f"muda-{tag}",
            title=tag,
            value=statistics.score,
            signature=f"protocol:muda|score:F1|unit:sentence|words:lower-without-outer-marks|scale:100"
            f"|version:cotext-{__version__}",
            documents=len(hypothesis),
            sentences=len(counts),
            empty_hypotheses=empty,
            components={
                "precision": 100.0 * matched / max(tagged, 1.0),
                "recall": 100.0 * matched / max(expected, 1.0),
                "matches": float(matched),
                "hypothesis_tags": float(tagged),
                "reference_tags": float(expected),
            },
        )
        measurements.append(Measurement(score, statistics))
    return measurements


def _count(
    hypothesis: Sequence[TaggedToken], reference: Sequence[TaggedToken]
) -> dict[str, tuple[float, float, float]]:
    """By tag, of one sentence: matches, tags of the hypothesis, tags of the reference."""
    places: dict[str, list[TaggedToken]] = defaultdict(list)
    matched: Counter[str] = Counter()
    tagged: Counter[str] = Counter()
    expected: Counter[str] = Counter()
    for token in reference:
        places[token.word].append(token)
        expected.update(token.tags)
    seen: Counter[str] = Counter()
    for token in hypothesis:
        tagged.update(token.tags)
        of_word = places.get(token.word, [])
        if seen[token.word] < len(of_word):
            matched.update(set(token.tags) & set(of_word[seen[token.word]].tags))
        seen[token.word] += 1
    return {tag: (matched[tag], tagged[tag], expected[tag]) for tag in {*tagged, *expected}}


def _f_of_sums(sums: Floats) -> Floats:
    """The harmonic mean of matches / tagged and matches / expected is 2 matches / (tagged + expected)."""
    total = sums[:, 1] + sums[:, 2]
    scores: Floats = 200.0 * sums[:, 0] / np.maximum(total, 1.0)
    return scores


def read_tags(path: Path) -> list[TaggedDocument]:
    """Read a tag file as MuDA's `--dump-tags` writes it; CotextError with document, sentence and token."""
    content = parse_json(read_whole(path), str(path))
    if not isinstance(content, list) or not content:
        raise CotextError(f"{path}: not a tag file of MuDA; expected a JSON list of documents")
    documents = []
    for d, document in enumerate(content):
        where = f"{path}: document {d}"
        sentences = []
        for s, sentence in enumerate(_listed(document, where, "sentences")):
            tokens = _listed(sentence, f"{where}, sentence {s}", "tokens")
            sentences.append([_token(t, f"{where}, sentence {s}, token {n}") for n, t in enumerate(tokens)])
        documents.append(sentences)
    return documents


def _listed(value: Any, where: str, of: str) -> list[Any]:
    if not isinstance(value, list):
        raise CotextError(f"{where}: must be a list of {of}, found {kind_of(value)}")
    return value


def _token(value: Any, where: str) -> TaggedToken:
    if not isinstance(value, dict) or not isinstance(value.get("token"), str):
        raise CotextError(f"{where}: must be an object with 'token' and 'tags', found {shown(value)}")
    tags = value.get("tags")
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise CotextError(f"{where}: 'tags' must be a list of strings, found {shown(tags)}")
    if len(set(tags)) < len(tags):
        raise CotextError(f"{where}: a tag stands twice in {shown(tags)}; a word has each once")
    return TaggedToken(value["token"], tuple(tags))


def _require_same(
    path: Path, documents: Sequence[TaggedDocument], reference: Path, right: Sequence[TaggedDocument]
) -> None:
    if len(documents) != len(right):
        raise CotextError(f"{path}: {len(documents)} documents, but {reference} has {len(right)}")
    for number, (ours, theirs) in enumerate(zip(documents, right, strict=True)):
        if len(ours) != len(theirs):
            raise CotextError(
                f"{path}: document {number} has {len(ours)} sentences, but {len(theirs)} in {reference}; tag "
                "translations of the same sentences"
            )
