"""Accuracy on a ctxPro suite (Wicks and Post, 2023): does the translation have the expected form?

The rule is that of the authors' `ctxpro score` 0.0.5, so that numbers are comparable. A translation may
contain its context, so the last sentence is used. ASCII punctuation is deleted from it, both texts are
lower-cased, and the form must occur between spaces. A form with punctuation (French "t'") is therefore never
found, and other quotation marks hide the word next to them. Such forms are counted as `unreachable`.
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

AS_PUBLISHED: Final = "sentence-splitter"  # used by ctxPro itself
WHOLE: Final = "none"
_PUNCTUATION: Final = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True, slots=True)
class LastSentence:
    """Finds the last sentence of a translation; `name` describes the method in signatures.

    Raises:
        CotextError: the required package or language is not available.
    """

    name: str
    find: Callable[[str], str]

    @classmethod
    def by(cls, how: str, language: str) -> "LastSentence":
        """Use the package of AS_PUBLISHED, no splitting (WHOLE), or the rules of `Splitter`."""
        if how == WHOLE:
            return cls("whole-segment", lambda text: text)
        if how != AS_PUBLISHED:
            splitter = Splitter(language)
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
    """Return whether the translation of each example has the expected form.

    `documents` has the document number of each example. Examples with a form that the rule cannot find in any
    translation (`unreachable`) count as wrong, as published.
    """

    signature: str
    examples: tuple[GenerativeExample, ...]
    documents: tuple[int, ...]
    right: tuple[bool, ...]
    empty: int

    @property
    def overall(self) -> Accuracy:
        return _accuracy(self.right)

    @property
    def unreachable(self) -> int:
        """Return the number of forms with punctuation, which no translation can have."""
        return sum(not has_form(example.expected, example.expected) for example in self.examples)

    def grouped(self) -> dict[str, dict[str, Accuracy]]:
        """Return accuracies by rule and, if the suite has distances, by distance."""
        by_rule: dict[str, list[bool]] = {}
        by_distance: dict[str, list[bool]] = {}
        for example, right in zip(self.examples, self.right, strict=True):
            by_rule.setdefault(example.rule, []).append(right)
            by_distance.setdefault(distance_bucket(example.distance), []).append(right)
        groups = {"rule": {name: _accuracy(right) for name, right in by_rule.items()}}
        if by_distance.keys() != {"unknown"}:
            names = [name for name in DISTANCE_BUCKETS if name in by_distance]
            groups["distance"] = {name: _accuracy(by_distance[name]) for name in names}
        return groups

    def as_dict(self) -> dict[str, Any]:
        """Return everything for a JSON file; decisions by the number of the example, from 0."""
        share = len(set(self.documents)) < len(self.documents)
        return {
            "signature": self.signature,
            "overall": _as_dict(self.overall),
            **{
                f"by_{kind}": {name: _as_dict(accuracy) for name, accuracy in groups.items()}
                for kind, groups in self.grouped().items()
            },
            "unreachable": self.unreachable,
            "decisions": {str(n): "right" if right else "wrong" for n, right in enumerate(self.right)},
            **({"documents": {str(n): number for n, number in enumerate(self.documents)}} if share else {}),
        }

    def measurement(self) -> Measurement:
        """Return the accuracy as a score with its counts, for tables and paired tests."""
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


def has_form(sentence: str, expected: str) -> bool:
    """Return whether a form occurs between spaces, ignoring ASCII punctuation of the sentence and case."""
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
        CotextError: not one translation per example, or a recipe entry that does not fit a signature.
    """
    if len(translations) != len(suite.examples):
        raise CotextError(
            f"{suite.name}: {len(suite.examples)} examples, but {len(translations)} translations; give one "
            "per example, an empty line where there is none"
        )
    parts = {"suite": suite.name, "n": str(len(translations)), "reading": "ctxpro-0.0.5", "last": last.name}
    numbers: dict[str | int, int] = {}
    # An example without a document is a document by itself.
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


def render_forms_found(forms: Mapping[str, FormsFound]) -> str:
    """Format accuracies as text, a column for each system; without signatures."""
    first, *_ = forms.values()
    groups = [{"all": {"": of_system.overall}, **of_system.grouped()} for of_system in forms.values()]
    rows = [["", "examples", *forms]]
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
    values = accuracy.as_dict()
    return {key: values[key] for key in ("accuracy_percent", "interval_95_percent", "correct", "total")}
