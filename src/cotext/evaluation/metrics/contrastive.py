"""Contrastive suites: how often the right candidate scores best, or a translation has the right form.

Published scripts differ in two choices, which are therefore arguments and part of the signature. A tie with a
wrong candidate is an error in ContraPro (Müller et al., 2018). In the script of Voita et al. (2019), the
first candidate wins. A score is the sum of the log-probabilities of the scored target tokens, or their mean.
The aggregates `disc`, `disc_avg` and `disc_all_d` follow Lupo et al. (2022), appendix B.1.
"""

import hashlib
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Generic, Literal, TypeVar

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite, documents_of
from cotext.data.documents import Document
from cotext.runtime import CotextError, __version__
from cotext.runtime.rendering import render_rows

CONTEXTS: Final = ("true", "none", "foreign")
_DIGITS: Final = 5


@dataclass(frozen=True, slots=True)
class Reading:
    """Decisions in one kind of context, and log-probabilities of the right candidates (nats), by id."""

    right: Mapping[str, bool]
    nats: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Readings:
    """A `Reading` for each of CONTEXTS; `tokens`: scored tokens of the right candidates, by example id."""

    by_context: Mapping[str, Reading]
    tokens: Mapping[str, int]

    def as_dict(self) -> dict[str, Any]:
        """Return everything for a JSON file; null stands for a log-probability of minus infinity."""
        contexts = {
            kind: {
                "decisions": {id: "right" if right else "wrong" for id, right in reading.right.items()},
                "nats": {
                    id: None if value == -math.inf else round(value, _DIGITS)
                    for id, value in reading.nats.items()
                },
            }
            for kind, reading in self.by_context.items()
        }
        return {**contexts, "tokens": dict(self.tokens)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Readings":
        """Read the result of `as_dict`; raise KeyError, TypeError, ValueError or AttributeError."""
        by_context = {
            kind: Reading(
                {id: outcome == "right" for id, outcome in content[kind]["decisions"].items()},
                {id: -math.inf if v is None else float(v) for id, v in content[kind]["nats"].items()},
            )
            for kind in CONTEXTS
        }
        return cls(by_context, {id: int(count) for id, count in content["tokens"].items()})


_HAN_AND_KANA: Final = "\\u3040-\\u30ff\\u3400-\\u9fff"
# Combining marks, such as the vowel signs of Hindi, are parts of words, but not matched by \w.
_MARKS: Final = "".join(c for c in map(chr, range(0x300, 0x3000)) if unicodedata.category(c)[0] == "M")
_WORD: Final = re.compile(f"[{_HAN_AND_KANA}]|(?:[^\\W{_HAN_AND_KANA}]|[{_MARKS}])+|[^\\w\\s]")

Form = tuple[str, ...]
Choice = tuple[frozenset[Form], Form]  # the forms to choose from, and the right one


def words_of(sentence: str) -> Counter[str]:
    """Count words (case-folded), other visible characters, and single Chinese and Japanese characters."""
    return Counter(_WORD.findall(unicodedata.normalize("NFC", sentence.casefold())))


def forms_of(example: ContrastiveExample) -> list[Form]:
    """Return the words of each candidate that some other candidate lacks, in the sentences that differ.

    The words are sorted: (er,), (sie,), (es,).
    """
    differing = example.differing_sentences
    words = [sum((words_of(candidate[j]) for j in differing), Counter()) for candidate in example.candidates]
    common = words[0].copy()
    for counts in words[1:]:
        common &= counts
    return [tuple(sorted((counts - common).elements())) for counts in words]


def choice_of(example: ContrastiveExample) -> Choice:
    forms = forms_of(example)
    return frozenset(forms), forms[example.correct]


def balanced_weights(choices: Sequence[Choice]) -> list[float]:
    """Return the weights of examples in balanced accuracy; they add up to 1.

    Examples with the same forms to choose from (er, sie, es; or ihn, sie, es) are a group. Balanced accuracy
    is the mean recall of the right forms in a group (Brodersen et al. 2010), averaged over examples of all
    groups. A system that always prefers one form has chance accuracy.
    """
    of_choice, of_form = Counter(forms for forms, _ in choices), Counter(choices)
    kinds = Counter(forms for forms, _ in of_form)
    return [of_choice[c[0]] / len(choices) / kinds[c[0]] / of_form[c] for c in choices]


TieRule = Literal["wrong", "first"]
ScoreRule = Literal["sum", "mean"]
DISTANCE_BUCKETS = ("0", "1", "2", "3", ">3", "ahead", "unknown")
CONTEXT_BUCKETS = ("1", "2", "3", ">3")
_Z_95_PERCENT = 1.959963984540054


@dataclass(frozen=True, slots=True)
class CandidateScores:
    """Sums of log-probabilities (nats) and numbers of the scored tokens of each candidate of an example."""

    log_probabilities: tuple[float, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of one example: right or not, and whether a wrong candidate had the same score."""

    right: bool
    tied: bool


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The number of right decisions in a group of examples, and the expected accuracy of guessing.

    `chance`: mean of 1 / number of candidates. `balanced`: see `balanced_weights`; None if not requested.
    Fields are fractions, and properties are in per cent. `correct` may be a mean over seeds.
    """

    correct: float
    total: int
    ties: int
    chance: float
    balanced: float | None = None

    @property
    def percent(self) -> float:
        return 100.0 * self.correct / self.total

    @property
    def interval_percent(self) -> tuple[float, float]:
        """Return the ends of the 95 % score interval (Wilson, 1927)."""
        n, share, z = self.total, self.correct / self.total, _Z_95_PERCENT
        centre = (share + z * z / (2 * n)) / (1 + z * z / n)
        half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
        # At 0 and 100 per cent the formula reaches these values exactly; rounding would miss them.
        low = 0.0 if self.correct == 0 else centre - half
        high = 1.0 if self.correct == n else centre + half
        return 100.0 * low, 100.0 * high

    def as_dict(self) -> dict[str, Any]:
        low, high = self.interval_percent
        return {
            "accuracy_percent": self.percent,
            "interval_95_percent": [low, high],
            "correct": self.correct,
            "total": self.total,
            "ties": self.ties,
            "chance_percent": 100.0 * self.chance,
            **({} if self.balanced is None else {"balanced_percent": 100.0 * self.balanced}),
        }


Figures = TypeVar("Figures", bound="Accuracy | Forms")
Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True)
class GroupedReport(Generic[Figures]):
    """Values over a suite and over its groups; groups without examples are omitted."""

    signature: str
    overall: Figures
    by_phenomenon: dict[str, Figures]
    by_distance: dict[str, Figures]
    by_tag: dict[str, dict[str, Figures]]

    def groups_as_dict(self) -> dict[str, Any]:
        def written(groups: dict[str, Figures]) -> dict[str, Any]:
            return {name: figures.as_dict() for name, figures in groups.items()}

        return {
            "signature": self.signature,
            "overall": self.overall.as_dict(),
            "by_phenomenon": written(self.by_phenomenon),
            "by_distance": written(self.by_distance),
            "by_tag": {tag: written(groups) for tag, groups in self.by_tag.items()},
        }

    def named_groups(self) -> list[tuple[str, Figures]]:
        """Return all groups with their names, such as "distance 1"."""
        named = [("all", self.overall)]
        kinds = [("phenomenon", self.by_phenomenon), ("distance", self.by_distance), *self.by_tag.items()]
        for kind, groups in kinds:
            named += [(f"{kind} {name}", figures) for name, figures in groups.items()]
        return named


def grouped(
    judged: Sequence[tuple[ContrastiveExample, Outcome]], figures: Callable[[Sequence[Outcome]], Figures]
) -> tuple[Figures, dict[str, Figures], dict[str, Figures], dict[str, dict[str, Figures]]]:
    """Compute values of all examples, and by phenomenon, distance and tag, in order of first occurrence."""

    def by(label: Callable[[ContrastiveExample], str | None]) -> dict[str, Figures]:
        groups: dict[str, list[Outcome]] = {}
        for example, outcome in judged:
            if (name := label(example)) is not None:
                groups.setdefault(name, []).append(outcome)
        return {name: figures(members) for name, members in groups.items()}

    def value_of(tag: str) -> Callable[[ContrastiveExample], str | None]:
        return lambda example: example.tags.get(tag)

    by_distance = by(lambda example: distance_bucket(example.distance))
    tags = dict.fromkeys(tag for example, _ in judged for tag in example.tags)
    return (
        figures([outcome for _, outcome in judged]),
        by(lambda example: example.phenomenon),
        {bucket: by_distance[bucket] for bucket in DISTANCE_BUCKETS if bucket in by_distance},
        {tag: by(value_of(tag)) for tag in tags},
    )


def signed(parts: Mapping[str, str], recipe: Mapping[str, str] | None) -> str:
    """Return a signature of `key:value` parts; raise CotextError for an invalid recipe entry."""
    entries = dict(parts)
    for key, value in (recipe or {}).items():
        if key in entries or key == "version" or "|" in key + value:
            raise CotextError(f"recipe entry {key!r}: {value!r} cannot be part of a signature")
        entries[key] = value
    return "|".join([*(f"{key}:{value}" for key, value in entries.items()), f"version:cotext-{__version__}"])


@dataclass(frozen=True, slots=True)
class ContrastiveReport(GroupedReport[Accuracy]):
    """Accuracy over a suite and over its groups.

    `aggregates`: `disc`, `disc_avg` and `disc_all_d` in per cent, see `distance_aggregates`. `undecidable`:
    examples with a wrong candidate spelled like the right one, always ties. `examples` (ids), `documents`
    (numbers) and `decisions` are in the order of the suite. `digest`: see `digest_of`. `readings`: decisions
    in each of CONTEXTS.
    """

    aggregates: dict[str, float]
    undecidable: int
    examples: tuple[str, ...]
    documents: tuple[int, ...]
    decisions: tuple[Decision, ...]
    digest: str
    readings: Readings | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return everything for JSON, by example id; document numbers only if examples share a document."""
        share = len(set(self.documents)) < len(self.documents)
        decided = list(zip(self.examples, self.decisions, strict=True))
        return {
            **self.groups_as_dict(),
            "aggregates_percent": dict(self.aggregates),
            "undecidable": self.undecidable,
            "digest": self.digest,
            "decisions": {example: "right" if decision.right else "wrong" for example, decision in decided},
            "tied": [example for example, decision in decided if decision.tied],
            **({"documents": dict(zip(self.examples, self.documents, strict=True))} if share else {}),
            **({} if self.readings is None else {"contexts": self.readings.as_dict()}),
        }


def contrastive_accuracy(
    suite: ContrastiveSuite,
    scores: Sequence[CandidateScores],
    *,
    tie: TieRule = "wrong",
    score: ScoreRule = "sum",
    recipe: Mapping[str, str] | None = None,
    controls: Mapping[str, Sequence[CandidateScores]] | None = None,
) -> ContrastiveReport:
    """Decide every example of a suite by the scores of its candidates, in the order of the suite.

    `recipe`: more entries of the signature. `controls`: scores without context (`none`) and in context of
    other documents (`foreign`). Raises CotextError if the suite is empty, or scores are invalid.
    """
    parts = {"suite": suite.name, "n": str(len(suite.examples)), "tie": tie, "score": score}
    signature = signed(parts, recipe)
    if not suite.examples:
        raise CotextError(f"contrastive suite {suite.name!r} has no examples")

    def judge(scores: Sequence[CandidateScores]) -> list[Decision]:
        pairs = zip(suite.examples, scores, strict=True)
        return [decide(example, item, tie=tie, score=score) for example, item in pairs]

    def reading(scores: Sequence[CandidateScores]) -> Reading:
        nats = {e.id: s.log_probabilities[e.correct] for e, s in zip(suite.examples, scores, strict=True)}
        right = {e.id: d.right for e, d in zip(suite.examples, judge(scores), strict=True)}
        return Reading(right, nats)

    decisions = judge(scores)
    readings = None
    if controls is not None:
        tokens = {e.id: s.tokens[e.correct] for e, s in zip(suite.examples, scores, strict=True)}
        by_context = {"true": scores, **controls}
        readings = Readings({kind: reading(s) for kind, s in by_context.items()}, tokens)
    return summarise(signature, suite.examples, decisions, documents_of(suite.examples), readings)


def summarise(
    signature: str,
    examples: Sequence[ContrastiveExample],
    decisions: Sequence[Decision],
    documents: Sequence[int],
    readings: Readings | None = None,
) -> ContrastiveReport:
    """Return the report on decided examples, with the document number of each."""
    judged = [
        (example, (len(example.candidates), decision, choice_of(example)))
        for example, decision in zip(examples, decisions, strict=True)
    ]
    overall, by_phenomenon, by_distance, by_tag = grouped(judged, _accuracy)
    # Tags are not balanced, because a tag may be the form itself.
    by_tag = {
        tag: {value: replace(item, balanced=None) for value, item in values.items()}
        for tag, values in by_tag.items()
    }
    buckets = {bucket: (item.percent, item.total) for bucket, item in by_distance.items()}
    return ContrastiveReport(
        signature,
        overall,
        by_phenomenon,
        by_distance,
        by_tag,
        aggregates=distance_aggregates(buckets),
        undecidable=sum(bool(example.identical_to_correct) for example in examples),
        examples=tuple(example.id for example in examples),
        documents=tuple(documents),
        decisions=tuple(decisions),
        digest=digest_of(examples),
        readings=readings,
    )


def digest_of(examples: Iterable[ContrastiveExample]) -> str:
    """Return a digest of the letters and digits of examples, without regard to order, case and spaces."""
    content = repr(sorted((e.id, e.source, e.candidates, e.correct) for e in examples))
    letters = "".join(filter(str.isalnum, content.casefold()))
    return hashlib.sha256(letters.encode()).hexdigest()[:12]


def decide(
    example: ContrastiveExample, scores: CandidateScores, *, tie: TieRule, score: ScoreRule
) -> Decision:
    """Decide whether the right candidate wins; a wrong candidate with the same spelling is always tied."""
    values = _comparable(example, scores, score)
    right = values[example.correct]
    for index in example.identical_to_correct:
        values[index] = right
    wrong = [value for index, value in enumerate(values) if index != example.correct]
    if tie == "first":
        # max() returns the first of equal values, as the rule requires.
        wins = max(range(len(values)), key=values.__getitem__) == example.correct
    else:
        wins = right > max(wrong)
    return Decision(right=wins, tied=right in wrong)


def distance_bucket(distance: int | None) -> str:
    """Return the group of a distance: 0, 1, 2, 3, >3, ahead (the clue follows the choice) or unknown."""
    if distance is None:
        return "unknown"
    if distance < 0:
        return "ahead"
    return str(distance) if distance <= 3 else ">3"


def distance_aggregates(buckets: Mapping[str, tuple[float, int]]) -> dict[str, float]:
    """Aggregate accuracies by distance as in Lupo et al. (2022), appendix B.1.

    `buckets`: accuracy and number of examples. `disc` weights the buckets 1, 2, 3, >3 by their size.
    `disc_all_d` also includes 0. `disc_avg` is the unweighted mean of these four buckets, if all four exist.
    Clues ahead are ignored. If any distance is unknown, there are no aggregates.
    """
    if "unknown" in buckets:
        return {}
    present = [bucket for bucket in CONTEXT_BUCKETS if bucket in buckets]
    aggregates = {"disc": _weighted(buckets[bucket] for bucket in present)} if present else {}
    if len(present) == len(CONTEXT_BUCKETS):
        aggregates["disc_avg"] = sum(buckets[bucket][0] for bucket in present) / len(present)
    if present and "0" in buckets:
        aggregates["disc_all_d"] = _weighted(buckets[bucket] for bucket in ("0", *present))
    return aggregates


def render_table(report: ContrastiveReport) -> str:
    rows: list[Sequence[str]] = [("", "accuracy", "95 % interval", "balanced", "chance", "n", "ties")]
    for name, accuracy in report.named_groups():
        low, high = accuracy.interval_percent
        rows.append(
            (
                name,
                f"{accuracy.percent:.2f}",
                f"{low:.2f}-{high:.2f}",
                "" if accuracy.balanced is None else f"{100 * accuracy.balanced:.2f}",
                f"{100 * accuracy.chance:.2f}",
                f"{accuracy.total}",
                f"{accuracy.ties}",
            )
        )
    rows += [(name, f"{value:.2f}", *[""] * 5) for name, value in report.aggregates.items()]
    return _rendered(rows, report.undecidable, "is spelled like the right one", report.signature)


def _rendered(rows: Sequence[Sequence[str]], undecidable: int, why: str, signature: str) -> str:
    """Format a table, the number of undecidable examples (a wrong candidate `why`), and the signature."""
    note = [f"undecidable: {undecidable} (a wrong candidate {why})"] if undecidable else []
    return "\n".join([render_rows(rows, left=1), *note, signature])


def _comparable(example: ContrastiveExample, scores: CandidateScores, score: ScoreRule) -> list[float]:
    """Return one number per candidate; higher is better."""
    where = f"contrastive example {example.id!r}"
    for number, value in enumerate(scores.log_probabilities):
        # Minus infinity is valid: the model considers the candidate impossible.
        if math.isnan(value) or value == math.inf:
            raise CotextError(f"{where}: the score of candidate {number} is {value}; the model is damaged")
    if score == "sum":
        return list(scores.log_probabilities)
    if min(scores.tokens) < 1:
        raise CotextError(
            f"{where}: a candidate has no scored token, so its mean is undefined; use --score sum"
        )
    return [value / tokens for value, tokens in zip(scores.log_probabilities, scores.tokens, strict=True)]


def _accuracy(outcomes: Sequence[tuple[int, Decision, Choice]]) -> Accuracy:
    """Return the accuracy from the number of candidates, the decision and the choice of each example."""
    candidates, decisions, choices = zip(*outcomes, strict=True)
    weights = balanced_weights(choices)
    return Accuracy(
        correct=sum(decision.right for decision in decisions),
        total=len(outcomes),
        ties=sum(decision.tied for decision in decisions),
        chance=sum(1 / count for count in candidates) / len(outcomes),
        balanced=sum(weight for weight, d in zip(weights, decisions, strict=True) if d.right),
    )


def _weighted(parts: Iterable[tuple[float, int]]) -> float:
    pairs = list(parts)
    return sum(value * count for value, count in pairs) / sum(count for _, count in pairs)


# --- Generative evaluation: is the right form in the system's own translation?
#
# In a sentence in which the right candidate and a wrong one differ, words are counted, ignoring case. Right
# (wrong) forms are those that the right (wrong) candidate has more often. The translation *has the right
# form* if one of the right forms is more frequent in it than in the wrong candidate. *Has the wrong form* is
# defined in the same way. If there are no right forms, a translation without a wrong form has the right form.
# A translation is right if it has the right form and does not have the wrong form, in all these sentences and
# against all wrong candidates:
#
#     right     Er ist alt, sagt sie.        sie: once in the right candidate, so one `sie` is not wrong
#     wrong     Sie ist alt, sagt sie.
#     output    Er sei alt, sagt sie.        er: 1 > 0, sie: 1 is not > 1          -> right
#
# A correct paraphrase without the form counts as `neither`: this is stricter than human judgement.

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
    """Outcomes over a suite and its groups; `outcomes` has one for each example, in the order of the suite.

    None: an ignored example (`undecidable`), because a wrong candidate has the same words as the right one.
    """

    undecidable: int
    outcomes: tuple[str | None, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return everything except the outcomes of the examples, for a JSON file."""
        return {**self.groups_as_dict(), "undecidable": self.undecidable}


def outcome(example: ContrastiveExample, translation: Sequence[str]) -> str | None:
    """Return one of OUTCOMES, or None if a wrong candidate has the same words as the right one."""
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


def require_forms(suite: ContrastiveSuite) -> None:
    """Raise CotextError if `outcome` is None for all examples, whatever the translation."""
    if all(outcome(example, example.candidates[example.correct]) is None for example in suite.examples):
        raise CotextError(f"suite {suite.name!r} has no example whose candidates differ in a word")


def generative_accuracy(
    suite: ContrastiveSuite, translations: Sequence[Document], recipe: Mapping[str, str] | None = None
) -> GenerativeReport:
    """Compute the outcomes of the translations of a suite; `recipe` is added to the signature.

    Raises the error of `require_forms`, and CotextError if a signature cannot contain an entry of `recipe`.
    """
    require_forms(suite)
    outcomes = [outcome(e, t.sentences) for e, t in zip(suite.examples, translations, strict=True)]
    decided = [(e, o) for e, o in zip(suite.examples, outcomes, strict=True) if o is not None]
    parts = {"suite": suite.name, "n": str(len(decided)), "reading": "generative", "case": "folded"}
    figures = grouped(decided, lambda group: Forms(*(Counter(group)[name] for name in OUTCOMES)))
    return GenerativeReport(signed(parts, recipe), *figures, outcomes.count(None), tuple(outcomes))


def render_forms(report: GenerativeReport) -> str:
    rows: list[Sequence[str]] = [("own translation", "right", "95 % interval", *OUTCOMES[1:], "n")]
    for name, forms in report.named_groups():
        low, high = forms.accuracy.interval_percent
        counts = (f"{count}" for count in (forms.wrong, forms.both, forms.neither, forms.total))
        rows.append((name, f"{forms.accuracy.percent:.2f}", f"{low:.2f}-{high:.2f}", *counts))
    return _rendered(rows, report.undecidable, "has the same words as the right one", report.signature)
