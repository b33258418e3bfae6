"""The generative reading of a contrastive suite: is the right form in what the system writes by itself?

The words in which the candidates differ are found by counting, case aside. Between the right candidate and a
wrong one, in a sentence in which they differ,

    right forms    the words that the right candidate has more often than the wrong one
    wrong forms    the words that the wrong candidate has more often than the right one

The translation of that sentence *has the right form* if it has one of the right forms more often than the
wrong candidate has it, and *has the wrong form* if it has one of the wrong forms more often than the right
candidate. Where the right candidate has no form of its own, having no wrong form is having the right one. A
translation is right with the right form and without the wrong one, in every such sentence and against every
wrong candidate:

    right     Er ist alt, sagt sie.        sie has 1 in the right candidate, so that `sie` once is not wrong
    wrong     Sie ist alt, sagt sie.
    output    Er sei alt, sagt sie.        er: 1 > 0, sie: 1 is not > 1          -> right

What a paraphrase says rightly without the form counts as `neither`: the reading is stricter than people are.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite
from cotext.data.documents import Document
from cotext.evaluation.metrics.contrastive import Accuracy, GroupedReport, grouped, signed, words_of
from cotext.runtime.errors import CotextError

OUTCOMES: Final = ("right", "wrong", "both", "neither")


@dataclass(frozen=True, slots=True)
class Forms:
    """The outcomes of a group of examples: how many of each."""

    right: int
    wrong: int
    both: int
    neither: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.right + self.wrong + self.both + self.neither

    @property
    def accuracy(self) -> Accuracy:
        """The right among all; there is no chance level to compare with."""
        return Accuracy(correct=self.right, total=self.total, ties=0, chance=0.0)

    def as_dict(self) -> dict[str, Any]:
        """Numbers for a JSON file."""
        low, high = self.accuracy.interval_percent
        return {
            "accuracy_percent": self.accuracy.percent,
            "interval_95_percent": [low, high],
            **asdict(self),
            "total": self.total,
        }


@dataclass(frozen=True, slots=True)
class GenerativeReport(GroupedReport[Forms]):
    """Outcomes over a suite and its groups.

    `undecidable` examples have a wrong candidate in whose words nothing differs from the right one's; they
    take no part. `outcomes` is in the order of the suite, None for these.
    """

    undecidable: int
    outcomes: tuple[str | None, ...]

    def as_dict(self) -> dict[str, Any]:
        """Everything but the single outcomes, for a JSON file."""
        return {**self.groups_as_dict(), "undecidable": self.undecidable}


def outcome(example: ContrastiveExample, translation: Sequence[str]) -> str | None:
    """One of OUTCOMES, or None where no word tells right from wrong.

    Raises:
        CotextError: the translation has not one sentence per source sentence.
    """
    if len(translation) != len(example.source):
        raise CotextError(
            f"contrastive example {example.id!r}: a translation of {len(translation)} sentences for "
            f"{len(example.source)}"
        )
    right_candidate = example.candidates[example.correct]
    has_right, has_wrong = True, False
    for number, candidate in enumerate(example.candidates):
        if number == example.correct:
            continue
        differs = False
        for good, bad, written in zip(right_candidate, candidate, translation, strict=True):
            if good == bad:
                continue
            right, wrong, found = words_of(good), words_of(bad), words_of(written)
            right_forms, wrong_forms = right - wrong, wrong - right
            if not right_forms and not wrong_forms:
                continue
            differs = True
            astray = any(found[word] > right[word] for word in wrong_forms)
            has_wrong |= astray
            has_right &= any(found[w] > wrong[w] for w in right_forms) if right_forms else not astray
        if not differs:
            return None
    if has_right:
        return "both" if has_wrong else "right"
    return "wrong" if has_wrong else "neither"


def generative_accuracy(
    suite: ContrastiveSuite, translations: Sequence[Document], recipe: Mapping[str, str] | None = None
) -> GenerativeReport:
    """Judge the translations of all examples of a suite, in its order.

    Raises:
        CotextError: translations are missing, none can be judged, or a recipe entry does not fit a signature.
    """
    if len(translations) != len(suite.examples):
        raise CotextError(
            f"contrastive suite {suite.name!r}: {len(suite.examples)} examples, but {len(translations)} "
            "translations"
        )
    found = [outcome(e, t.sentences) for e, t in zip(suite.examples, translations, strict=True)]
    judged = [(e, o) for e, o in zip(suite.examples, found, strict=True) if o is not None]
    if not judged:
        raise CotextError(
            f"contrastive suite {suite.name!r} has no example whose candidates differ in a word"
        )
    parts = {"suite": suite.name, "n": str(len(judged)), "reading": "generative", "case": "folded"}
    undecidable = len(found) - len(judged)
    return GenerativeReport(signed(parts, recipe), *grouped(judged, _forms), undecidable, tuple(found))


def render_forms(report: GenerativeReport) -> str:
    """Lay a report out as plain text."""
    groups = report.named_groups()
    width = max(len(name) for name, _ in groups)
    lines = [f"{'written by itself':{width}}     right   95 % interval    wrong   both  neither      n"]
    width = max(width, len("written by itself"))
    for name, each in groups:
        low, high = each.accuracy.interval_percent
        lines.append(
            f"{name:{width}}  {each.accuracy.percent:7.2f}  {low:7.2f}-{high:6.2f}   {each.wrong:6d} "
            f"{each.both:6d}   {each.neither:6d} {each.total:6d}"
        )
    if report.undecidable:
        lines.append(
            f"{report.undecidable} example(s) have a wrong candidate with the words of the right one"
        )
    return "\n".join([*lines, report.signature])


def _forms(outcomes: Sequence[str]) -> Forms:
    counts = Counter(outcomes)
    return Forms(*(counts[name] for name in OUTCOMES))
