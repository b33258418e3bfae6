"""Accuracy on a suite of ctxPro (Wicks and Post, 2023): does the translation have the form that is expected?

The rule is that of the authors' `ctxpro score` 0.0.5, so that numbers are comparable: of a translation, which
may hold its context, the last sentence is taken; ASCII punctuation is deleted from it, both are lower-cased,
and the form must be in it between spaces. A form that has punctuation itself (French "t'") is therefore never
found, and other quotation marks hide the word beside them. Such forms are counted as `unreachable`.
"""

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

import numpy as np

from cotext.data.ctxpro import GenerativeExample, GenerativeSuite
from cotext.data.splitting import Splitter
from cotext.evaluation.metrics.contrastive import DISTANCE_BUCKETS, Accuracy, distance_bucket, signed
from cotext.evaluation.metrics.interface import Measurement, Score
from cotext.evaluation.statistics.sufficient_statistics import Statistics, share
from cotext.runtime.errors import CotextError
from cotext.runtime.tables import render_rows

AS_PUBLISHED: Final = "sentence-splitter"  # by which ctxPro finds the last sentence
WHOLE: Final = "none"
_PUNCTUATION: Final = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True, slots=True)
class LastSentence:
    """What takes the last sentence of a translation; `name` says by what, for signatures.

    Raises:
        CotextError: the package or the language that it needs is not there.
    """

    name: str
    find: Callable[[str], str]

    @classmethod
    def by(cls, how: str, language: str) -> "LastSentence":
        """By the package of AS_PUBLISHED, by nothing (WHOLE), or as `cotext.data.splitting.Splitter`."""
        if how == WHOLE:
            return cls("whole-segment", lambda text: text)
        if how != AS_PUBLISHED:
            splitter = Splitter(language, by=how)
            return cls(splitter.name, lambda text: (splitter.sentences(text) or [text])[-1])
        try:
            from sentence_splitter import SentenceSplitter, SentenceSplitterException
        except ImportError:
            raise CotextError(
                "ctxPro finds the last sentence of a translation by the package sentence-splitter: pip "
                "install 'cotext[ctxpro]', or choose --splitter rules, or --splitter none where a line "
                "holds the tested segment alone"
            ) from None
        try:
            published = SentenceSplitter(language=language)
        except SentenceSplitterException:
            raise CotextError(
                f"sentence-splitter has no rules for the language {language!r}; give --target-language, or "
                "another --splitter"
            ) from None
        return cls(
            f"{AS_PUBLISHED}-{version(AS_PUBLISHED)}:{language}",
            lambda text: (published.split(text=text) or [text])[-1],
        )


@dataclass(frozen=True, slots=True, eq=False)
class FormsFound:
    """Whether each example of a suite has its form; accuracies are of these.

    `documents` numbers the documents of the examples. `unreachable`: examples whose form the rule cannot
    find in any translation; they are among the wrong ones, as published.
    """

    signature: str
    examples: tuple[GenerativeExample, ...]
    documents: tuple[int, ...]
    right: tuple[bool, ...]
    empty: int

    @property
    def overall(self) -> Accuracy:
        """Of all examples."""
        return _accuracy(self.right)

    @property
    def unreachable(self) -> int:
        """How many forms hold punctuation."""
        return sum(not is_reachable(example.expected) for example in self.examples)

    def grouped(self) -> dict[str, dict[str, Accuracy]]:
        """Accuracies by rule and, where the suite tells them, by distance."""
        rules = [example.rule for example in self.examples]
        found = {"rule": {name: self._of(rules, name) for name in dict.fromkeys(rules)}}
        if any(example.distance is not None for example in self.examples):
            distances = [distance_bucket(example.distance) for example in self.examples]
            found["distance"] = {
                name: self._of(distances, name) for name in DISTANCE_BUCKETS if name in distances
            }
        return found

    def _of(self, labels: Sequence[str], label: str) -> Accuracy:
        return _accuracy([right for right, of in zip(self.right, labels, strict=True) if of == label])

    def as_dict(self) -> dict[str, Any]:
        """Everything, for a JSON file; decisions by the number of the example, from 0."""
        share = len(set(self.documents)) < len(self.documents)
        return {
            "signature": self.signature,
            "overall": _as_dict(self.overall),
            **{
                f"by_{kind}": {name: _as_dict(each) for name, each in groups.items()}
                for kind, groups in self.grouped().items()
            },
            "unreachable": self.unreachable,
            "decisions": {str(n): "right" if right else "wrong" for n, right in enumerate(self.right)},
            **({"documents": {str(n): number for n, number in enumerate(self.documents)}} if share else {}),
        }

    def measurement(self) -> Measurement:
        """The accuracy as a score with its counts, for tables and paired tests."""
        counts = np.array([(float(right), 1.0) for right in self.right])
        statistics = Statistics(counts, np.array(self.documents), "sentence", share(0, 1))
        score = Score(
            protocol="ctxpro",
            title="ctxPro",
            value=statistics.score,
            signature=self.signature,
            documents=len(set(self.documents)),
            sentences=len(self.right),
            empty_hypotheses=self.empty,
            components={"right": float(sum(self.right)), "unreachable": float(self.unreachable)},
        )
        return Measurement(score, statistics)


def is_reachable(expected: str) -> bool:
    """Whether the rule finds a form in a translation that is nothing else."""
    return has_form(expected, expected)


def has_form(sentence: str, expected: str) -> bool:
    """Whether a form stands in a sentence, between spaces once ASCII punctuation is deleted; case aside."""
    plain = sentence.lower().translate(_PUNCTUATION)
    return f" {expected.lower()} " in f" {plain} "


def forms_found(
    suite: GenerativeSuite,
    translations: Sequence[str],
    last: LastSentence,
    recipe: Mapping[str, str] | None = None,
) -> FormsFound:
    """Look for the expected form of every example in the last sentence of its translation.

    Raises:
        CotextError: not a translation an example, or a recipe entry that does not fit a signature.
    """
    if len(translations) != len(suite.examples):
        raise CotextError(
            f"{suite.name}: {len(suite.examples)} examples, but {len(translations)} translations; give one "
            "an example, an empty line where there is none"
        )
    parts = {"suite": suite.name, "n": str(len(translations)), "reading": "ctxpro-0.0.5", "last": last.name}
    numbers: dict[str | int, int] = {}
    # Where the suite names no document, every example is one of its own.
    documents = [numbers.setdefault(e.document or n, len(numbers)) for n, e in enumerate(suite.examples)]
    return FormsFound(
        signature=signed(parts, recipe),
        examples=suite.examples,
        documents=tuple(documents),
        right=tuple(
            has_form(last.find(translation.strip()), example.expected)
            for example, translation in zip(suite.examples, translations, strict=True)
        ),
        empty=sum(not translation.strip() for translation in translations),
    )


def render_forms_found(found: Mapping[str, FormsFound]) -> str:
    """A line for all examples, each rule and each distance, a column for each system; without signatures."""
    first, *_ = found.values()
    groups = [{"all": {"": each.overall}, **each.grouped()} for each in found.values()]
    rows = [["", "examples", *found]]
    for kind, members in groups[0].items():
        for label, accuracy in members.items():
            values = [f"{of_system[kind][label].percent:.2f}" for of_system in groups]
            rows.append([f"{kind} {label}".strip(), str(accuracy.total), *values])
    lines = [render_rows(rows, left=1)]
    if first.unreachable:
        lines.append(
            f"{first.unreachable:,} expected forms have punctuation, which the rule deletes from "
            "translations: wrong whatever is written"
        )
    return "\n".join(lines)


def _accuracy(right: Sequence[bool]) -> Accuracy:
    return Accuracy(correct=sum(right), total=len(right), ties=0, chance=0.0)


def _as_dict(accuracy: Accuracy) -> dict[str, Any]:
    low, high = accuracy.interval_percent
    return {
        "accuracy_percent": accuracy.percent,
        "interval_95_percent": [low, high],
        "correct": accuracy.correct,
        "total": accuracy.total,
    }
