"""Accuracy on a contrastive suite: how often a model scores the right candidate above all the wrong ones.

Two choices differ between published scripts and are therefore arguments and part of the signature. A tie
with a wrong candidate counts as an error in ContraPro (Müller et al., 2018) and goes to the first candidate
in the script of Voita et al. (2019). A score is the sum of the log-probabilities of the scored target tokens
or their mean. The aggregates `disc`, `disc_avg` and `disc_all_d` follow Lupo et al. (2022), appendix B.1.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Literal, Protocol, TypeVar, get_args

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite, documents_of
from cotext.runtime.errors import CotextError
from cotext.runtime.version import __version__

CONTEXTS: Final = ("true", "none", "foreign")
_DIGITS: Final = 5


@dataclass(frozen=True, slots=True)
class Reading:
    """Decisions in one kind of context, right or not, and log-probabilities of the right candidates (nats).

    Both by the id of the example.
    """

    right: Mapping[str, bool]
    nats: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Readings:
    """One for each of CONTEXTS; `tokens`: how many the log-probabilities are of, by the id of the example."""

    by_context: Mapping[str, Reading]
    tokens: Mapping[str, int]

    def as_dict(self) -> dict[str, Any]:
        """For a JSON file; null: the right candidate is held impossible."""
        contexts = {
            kind: {
                "decisions": {id: "right" if right else "wrong" for id, right in each.right.items()},
                "nats": {
                    id: None if value == -float("inf") else round(value, _DIGITS)
                    for id, value in each.nats.items()
                },
            }
            for kind, each in self.by_context.items()
        }
        return {**contexts, "tokens": dict(self.tokens)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Readings":
        """Read what `as_dict` made.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: something else.
        """
        by_context = {
            kind: Reading(
                {id: outcome == "right" for id, outcome in content[kind]["decisions"].items()},
                {
                    id: -float("inf") if value is None else float(value)
                    for id, value in content[kind]["nats"].items()
                },
            )
            for kind in CONTEXTS
        }
        return cls(by_context, {id: int(count) for id, count in content["tokens"].items()})


_HAN_AND_KANA: Final = "\\u3040-\\u30ff\\u3400-\\u9fff"
_WORD: Final = re.compile(f"[{_HAN_AND_KANA}]|[^\\W{_HAN_AND_KANA}]+|[^\\w\\s]")

Form = tuple[str, ...]
CandidateSet = tuple[frozenset[Form], Form]


def words_of(sentence: str) -> Counter[str]:
    """Word counts of a sentence, case-folded.

    Words are runs of letters and digits, marks that are neither, and single characters of Chinese and
    Japanese.
    """
    return Counter(_WORD.findall(sentence.casefold()))


def forms_of(example: ContrastiveExample) -> list[Form]:
    """Of every candidate the words, sorted, that not all candidates have, in the sentences that differ.

    As in (er,), (sie,), (es,); two candidates that differ in case or order alone have the same.
    """
    differing = example.differing_sentences
    words = [sum((words_of(candidate[j]) for j in differing), Counter()) for candidate in example.candidates]
    common = words[0].copy()
    for each in words[1:]:
        common &= each
    return [tuple(sorted((each - common).elements())) for each in words]


def choice_of(example: ContrastiveExample) -> CandidateSet:
    """The forms that are to choose from, and the one that is right."""
    forms = forms_of(example)
    return frozenset(forms), forms[example.correct]


def balanced_weights(choices: Sequence[CandidateSet]) -> list[float]:
    """Weights of examples in balanced accuracy, which add up to 1.

    Balanced accuracy is the mean of the recalls of the forms that are right (Brodersen et al. 2010), among
    examples with the same forms to choose from (er, sie, es are one choice, ihn, sie, es another), and over
    these the mean, each counting by its examples. Whoever prefers one form whatever the context has the
    accuracy of guessing, however often that form happens to be right.
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
    """Log-probabilities of the candidates of one example, in the order of the suite.

    `log_probabilities` are sums over the scored target tokens (natural logarithm); `tokens` counts these.
    """

    log_probabilities: tuple[float, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of one example: chosen right or not, and whether a wrong candidate had the same score."""

    right: bool
    tied: bool


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Right decisions among the examples of a group, with what guessing would give.

    `chance` is the mean of 1 / number of candidates, `balanced` the accuracy in which every form that is
    right counts the same, see `balanced_weights` (fractions; None where it is not asked for); the other
    properties are in per cent. `correct` is a mean where the decisions are those of several seeds.
    """

    correct: float
    total: int
    ties: int
    chance: float
    balanced: float | None = None

    @property
    def percent(self) -> float:
        """Share of right decisions."""
        return 100.0 * self.correct / self.total

    @property
    def interval_percent(self) -> tuple[float, float]:
        """Wilson's 95 % score interval (Wilson, 1927): lower and upper end."""
        n, share, z = self.total, self.correct / self.total, _Z_95_PERCENT
        centre = (share + z * z / (2 * n)) / (1 + z * z / n)
        half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
        # Rounding would otherwise leave the ends a hair inside 0 and 100 where the formula reaches them.
        low = 0.0 if self.correct == 0 else centre - half
        high = 1.0 if self.correct == n else centre + half
        return 100.0 * low, 100.0 * high

    def as_dict(self) -> dict[str, Any]:
        """Numbers for a JSON file."""
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


class AsDict(Protocol):
    """Figures that go to a JSON file."""

    def as_dict(self) -> dict[str, Any]: ...  # noqa: D102


Figures = TypeVar("Figures", bound=AsDict)
Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True)
class GroupedReport(Generic[Figures]):
    """Figures over a suite and over its groups; groups without an example are left out."""

    signature: str
    overall: Figures
    by_phenomenon: dict[str, Figures]
    by_distance: dict[str, Figures]
    by_tag: dict[str, dict[str, Figures]]

    def groups_as_dict(self) -> dict[str, Any]:
        """The figures of all groups, for a JSON file."""
        by_tag = {
            tag: {value: each.as_dict() for value, each in of.items()} for tag, of in self.by_tag.items()
        }
        return {
            "signature": self.signature,
            "overall": self.overall.as_dict(),
            "by_phenomenon": {name: each.as_dict() for name, each in self.by_phenomenon.items()},
            "by_distance": {name: each.as_dict() for name, each in self.by_distance.items()},
            "by_tag": by_tag,
        }

    def named_groups(self) -> list[tuple[str, Figures]]:
        """All groups with their names, as in "distance 1"."""
        groups = [("all", self.overall)]
        groups += [(f"phenomenon {name}", each) for name, each in self.by_phenomenon.items()]
        groups += [(f"distance {name}", each) for name, each in self.by_distance.items()]
        for tag, values in self.by_tag.items():
            groups += [(f"{tag} {value}", each) for value, each in values.items()]
        return groups


def grouped(
    judged: Sequence[tuple[ContrastiveExample, Outcome]], figures: Callable[[Sequence[Outcome]], Figures]
) -> tuple[Figures, dict[str, Figures], dict[str, Figures], dict[str, dict[str, Figures]]]:
    """Figures of all judged examples, and by phenomenon, distance and tag; in order of first occurrence."""

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
    """A signature of `key:value` parts; CotextError for a recipe entry that cannot be part of it."""
    entries = dict(parts)
    for key, value in (recipe or {}).items():
        if key in entries or key == "version" or "|" in key + value:
            raise CotextError(f"recipe entry {key!r}: {value!r} cannot stand in a signature")
        entries[key] = value
    return "|".join(
        f"{key}:{value}" for key, value in {**entries, "version": f"cotext-{__version__}"}.items()
    )


@dataclass(frozen=True, slots=True)
class ContrastiveReport(GroupedReport[Accuracy]):
    """Accuracy over a suite and over its groups.

    `aggregates` holds `disc`, `disc_avg` and `disc_all_d` in per cent where the suite knows the distances
    they need (see distance_aggregates). `undecidable` counts examples with a wrong candidate spelled like the
    right one: always ties.
    `decisions` is in the order of the suite, as are the ids of its examples and the numbers of their
    documents: for paired tests. `readings`: what was decided in other contexts, where that was asked for.
    """

    aggregates: dict[str, float]
    undecidable: int
    examples: tuple[str, ...]
    documents: tuple[int, ...]
    decisions: tuple[Decision, ...]
    readings: Readings | None = None

    def as_dict(self) -> dict[str, Any]:
        """Everything, for a JSON file; decisions by the id of the example.

        Numbers of documents only where examples share one.
        """
        share = len(set(self.documents)) < len(self.documents)
        return {
            **self.groups_as_dict(),
            "aggregates_percent": dict(self.aggregates),
            "undecidable": self.undecidable,
            "decisions": {
                example: "right" if decision.right else "wrong"
                for example, decision in zip(self.examples, self.decisions, strict=True)
            },
            "tied": [
                example
                for example, decision in zip(self.examples, self.decisions, strict=True)
                if decision.tied
            ],
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
    """Judge every example of a suite by the scores of its candidates, one entry per example and in its order.

    `recipe` adds the choices of whoever made the scores (which sentences were scored, checkpoint, view) to
    the signature. `controls` has the scores without context and in foreign context, by `none` and `foreign`.
    Raises CotextError when scores are missing, do not fit, or are not numbers.
    """
    signature = contrastive_signature(suite, tie=tie, score=score, recipe=recipe)
    if not suite.examples:
        raise CotextError(f"contrastive suite {suite.name!r} has no example; nothing to judge")
    if len(scores) != len(suite.examples):
        raise CotextError(
            f"contrastive suite {suite.name!r}: {len(suite.examples)} examples, but scores for {len(scores)}"
        )

    def judge(scores: Sequence[CandidateScores]) -> tuple[Decision, ...]:
        pairs = zip(suite.examples, scores, strict=True)
        return tuple(decide(example, each, tie=tie, score=score) for example, each in pairs)

    decisions = judge(scores)
    readings = None
    if controls is not None:
        by_context = {"true": scores, **controls}
        readings = _readings(suite, by_context, {kind: judge(each) for kind, each in by_context.items()})
    judged = [
        (example, _Judged(len(example.candidates), decision, choice_of(example)))
        for example, decision in zip(suite.examples, decisions, strict=True)
    ]
    overall, by_phenomenon, by_distance, by_tag = grouped(judged, _accuracy)
    return ContrastiveReport(
        signature=signature,
        overall=overall,
        by_phenomenon=by_phenomenon,
        by_distance=by_distance,
        # A tag may tell the form: nothing is to be balanced then.
        by_tag={
            tag: {value: replace(each, balanced=None) for value, each in values.items()}
            for tag, values in by_tag.items()
        },
        aggregates=distance_aggregates(
            {bucket: (each.percent, each.total) for bucket, each in by_distance.items()}
        ),
        undecidable=sum(bool(example.identical_to_correct) for example in suite.examples),
        examples=tuple(example.id for example in suite.examples),
        documents=tuple(documents_of(suite.examples)),
        decisions=decisions,
        readings=readings,
    )


def _readings(
    suite: ContrastiveSuite,
    scores: Mapping[str, Sequence[CandidateScores]],
    decisions: Mapping[str, Sequence[Decision]],
) -> Readings:
    def right(each: Sequence[CandidateScores]) -> dict[str, tuple[float, int]]:
        return {
            example.id: (found.log_probabilities[example.correct], found.tokens[example.correct])
            for example, found in zip(suite.examples, each, strict=True)
        }

    of_right = {kind: right(each) for kind, each in scores.items()}
    return Readings(
        {
            kind: Reading(
                {e.id: d.right for e, d in zip(suite.examples, decisions[kind], strict=True)},
                {id: log_probability for id, (log_probability, _) in each.items()},
            )
            for kind, each in of_right.items()
        },
        {id: tokens for id, (_, tokens) in of_right["true"].items()},
    )


def contrastive_signature(
    suite: ContrastiveSuite, *, tie: TieRule, score: ScoreRule, recipe: Mapping[str, str] | None = None
) -> str:
    """Write the recipe of an accuracy as `key:value` parts joined by bars; CotextError on an unknown rule."""
    for name, rule, known in (("tie", tie, get_args(TieRule)), ("score", score, get_args(ScoreRule))):
        if rule not in known:
            raise CotextError(f"unknown {name} rule {rule!r}; choose one of {', '.join(known)}")
    parts = {"suite": suite.name, "n": str(len(suite.examples)), "tie": tie, "score": score}
    return signed(parts, recipe)


def decide(
    example: ContrastiveExample, scores: CandidateScores, *, tie: TieRule, score: ScoreRule
) -> Decision:
    """Say whether the right candidate of one example wins.

    A candidate spelled like the right one counts as tied with it whatever the rounding of its score.
    """
    values = _comparable(example, scores, score)
    right = values[example.correct]
    for index in example.identical_to_correct:
        values[index] = right
    wrong = [value for index, value in enumerate(values) if index != example.correct]
    if tie == "first":
        # max() keeps the first of equal values, which is the rule.
        wins = max(range(len(values)), key=values.__getitem__) == example.correct
    else:
        wins = right > max(wrong)
    return Decision(right=wins, tied=right in wrong)


def distance_bucket(distance: int | None) -> str:
    """Name the group of a distance: 0, 1, 2, 3, >3, ahead (the clue comes after the choice) or unknown."""
    if distance is None:
        return "unknown"
    if distance < 0:
        return "ahead"
    return str(distance) if distance <= 3 else ">3"


def distance_aggregates(buckets: Mapping[str, tuple[float, int]]) -> dict[str, float]:
    """Aggregate accuracies by distance bucket as Lupo et al. (2022), appendix B.1.

    `disc` weights the buckets 1, 2, 3, >3 by their size; `disc_all_d` also takes 0; `disc_avg` is the plain
    mean of the four and is given only when all four are there. Input: accuracy and number of examples of
    each bucket. A clue that comes after the choice takes no part; where any distance is unknown, the sizes of
    the buckets are too, and there are no aggregates.
    """
    if "unknown" in buckets:
        return {}
    present = [bucket for bucket in CONTEXT_BUCKETS if bucket in buckets]
    aggregates: dict[str, float] = {}
    if present:
        aggregates["disc"] = _weighted(buckets[bucket] for bucket in present)
    if len(present) == len(CONTEXT_BUCKETS):
        aggregates["disc_avg"] = sum(buckets[bucket][0] for bucket in present) / len(present)
    if present and "0" in buckets:
        aggregates["disc_all_d"] = _weighted(buckets[bucket] for bucket in ("0", *present))
    return aggregates


def render_table(report: ContrastiveReport) -> str:
    """Lay a report out as plain text."""
    groups = report.named_groups()
    width = max(len(name) for name, _ in groups)
    lines = [f"{'':{width}}  accuracy   95 % interval   balanced    chance      n   ties"]
    for name, each in groups:
        low, high = each.interval_percent
        balanced = "" if each.balanced is None else f"{100 * each.balanced:.2f}"
        lines.append(
            f"{name:{width}}  {each.percent:7.2f}  {low:7.2f}-{high:6.2f}   {balanced:>8}   "
            f"{100 * each.chance:7.2f}  {each.total:5d}  {each.ties:5d}"
        )
    lines += [f"{name:{width}}  {value:7.2f}" for name, value in report.aggregates.items()]
    if report.undecidable:
        lines.append(f"{report.undecidable} example(s) have a wrong candidate spelled like the right one")
    return "\n".join([*lines, report.signature])


def _comparable(example: ContrastiveExample, scores: CandidateScores, score: ScoreRule) -> list[float]:
    """One number per candidate, higher is better."""
    where = f"contrastive example {example.id!r}"
    counts = (len(scores.log_probabilities), len(scores.tokens))
    if counts != (len(example.candidates),) * 2:
        raise CotextError(
            f"{where}: {len(example.candidates)} candidates, but {counts[0]} scores, {counts[1]} token counts"
        )
    for number, value in enumerate(scores.log_probabilities):
        # Minus infinity is a legitimate log-probability: a candidate the model holds impossible.
        if math.isnan(value) or value == math.inf:
            raise CotextError(f"{where}: the score of candidate {number} is {value}; the model is not sound")
    if score == "sum":
        return list(scores.log_probabilities)
    if min(scores.tokens) < 1:
        raise CotextError(
            f"{where}: a candidate has no scored token, its mean does not exist; use score 'sum'"
        )
    return [value / tokens for value, tokens in zip(scores.log_probabilities, scores.tokens, strict=True)]


@dataclass(frozen=True, slots=True)
class _Judged:
    candidates: int
    decision: Decision
    choice: CandidateSet


def _accuracy(judged: Sequence[_Judged]) -> Accuracy:
    weights = balanced_weights([each.choice for each in judged])
    return Accuracy(
        correct=sum(each.decision.right for each in judged),
        total=len(judged),
        ties=sum(each.decision.tied for each in judged),
        chance=sum(1 / each.candidates for each in judged) / len(judged),
        balanced=sum(weight for weight, each in zip(weights, judged, strict=True) if each.decision.right),
    )


def _weighted(parts: Iterable[tuple[float, int]]) -> float:
    pairs = list(parts)
    return sum(value * count for value, count in pairs) / sum(count for _, count in pairs)
