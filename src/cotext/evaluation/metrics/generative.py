"""Generative evaluation of a contrastive suite: is the right form in the system's own translation?

In a sentence in which the right candidate and a wrong one differ, words are counted, ignoring case. Right
(wrong) forms are those that the right (wrong) candidate has more often. The translation *has the right form*
if one of the right forms is more frequent in it than in the wrong candidate. *Has the wrong form* is defined
in the same way. If there are no right forms, having no wrong form counts as having the right one. A
translation is right if it has the right form and not the wrong one, in all these sentences and against all
wrong candidates:

    right     Er ist alt, sagt sie.        sie: once in the right candidate, so one `sie` is not wrong
    wrong     Sie ist alt, sagt sie.
    output    Er sei alt, sagt sie.        er: 1 > 0, sie: 1 is not > 1          -> right

A correct paraphrase without the form counts as `neither`: this is stricter than human judgement.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite
from cotext.data.documents import Document
from cotext.evaluation.metrics.contrastive import Accuracy, GroupedReport, grouped, signed, words_of
from cotext.runtime import CotextError
from cotext.runtime.rendering import render_rows

OUTCOMES: Final = ("right", "wrong", "both", "neither")


@dataclass(frozen=True, slots=True)
class Forms:
    """The number of examples with each outcome."""

    right: int
    wrong: int
    both: int
    neither: int

    @property
    def total(self) -> int:
        return self.right + self.wrong + self.both + self.neither

    @property
    def accuracy(self) -> Accuracy:
        """Return the share of right outcomes; there is no chance level to compare with."""
        return Accuracy(correct=self.right, total=self.total, ties=0, chance=0.0)

    def as_dict(self) -> dict[str, Any]:
        low, high = self.accuracy.interval_percent
        return {
            "accuracy_percent": self.accuracy.percent,
            "interval_95_percent": [low, high],
            **asdict(self),
            "total": self.total,
        }


@dataclass(frozen=True, slots=True)
class GenerativeReport(GroupedReport[Forms]):
    """Outcomes over a suite and its groups, in the order of the suite; None for `undecidable` examples.

    In these, a wrong candidate has the same words as the right one; they are ignored.
    """

    undecidable: int
    outcomes: tuple[str | None, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return everything except the outcomes of the examples, for a JSON file."""
        return {**self.groups_as_dict(), "undecidable": self.undecidable}


def outcome(example: ContrastiveExample, translation: Sequence[str]) -> str | None:
    """Return one of OUTCOMES, or None if no word distinguishes right from wrong."""
    right_candidate = example.candidates[example.correct]
    has_right, has_wrong = True, False
    for number, candidate in enumerate(example.candidates):
        if number == example.correct:
            continue
        is_decidable = False
        for good, bad, written in zip(right_candidate, candidate, translation, strict=True):
            if good == bad:
                continue
            right, wrong, output_words = words_of(good), words_of(bad), words_of(written)
            right_forms, wrong_forms = right - wrong, wrong - right
            if not right_forms and not wrong_forms:
                continue
            is_decidable = True
            has_wrong_form = any(output_words[word] > right[word] for word in wrong_forms)
            has_wrong |= has_wrong_form
            has_right &= (
                any(output_words[w] > wrong[w] for w in right_forms) if right_forms else not has_wrong_form
            )
        if not is_decidable:
            return None
    if has_right:
        return "both" if has_wrong else "right"
    return "wrong" if has_wrong else "neither"


def generative_accuracy(
    suite: ContrastiveSuite, translations: Sequence[Document], recipe: Mapping[str, str] | None = None
) -> GenerativeReport:
    """Compute the outcomes of the translations of a suite; `recipe` is added to the signature.

    Raises CotextError if no example is decidable, or a signature cannot contain an entry of `recipe`.
    """
    outcomes = [outcome(e, t.sentences) for e, t in zip(suite.examples, translations, strict=True)]
    decided = [(e, o) for e, o in zip(suite.examples, outcomes, strict=True) if o is not None]
    if not decided:
        raise CotextError(
            f"contrastive suite {suite.name!r} has no example whose candidates differ in a word"
        )
    parts = {"suite": suite.name, "n": str(len(decided)), "reading": "generative", "case": "folded"}
    figures = grouped(decided, lambda group: Forms(*(Counter(group)[name] for name in OUTCOMES)))
    return GenerativeReport(signed(parts, recipe), *figures, outcomes.count(None), tuple(outcomes))


def render_forms(report: GenerativeReport) -> str:
    rows: list[Sequence[str]] = [("own translation", "right", "95 % interval", *OUTCOMES[1:], "n")]
    for name, forms in report.named_groups():
        low, high = forms.accuracy.interval_percent
        counts = (f"{count}" for count in (forms.wrong, forms.both, forms.neither, forms.total))
        rows.append((name, f"{forms.accuracy.percent:.2f}", f"{low:.2f}-{high:.2f}", *counts))
    lines = [render_rows(rows, left=1)]
    if report.undecidable:
        lines.append(
            f"undecidable: {report.undecidable} (a wrong candidate has the same words as the right one)"
        )
    return "\n".join([*lines, report.signature])
