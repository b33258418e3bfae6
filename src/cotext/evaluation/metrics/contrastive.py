"""Accuracy on a contrastive suite: how often a model scores the right candidate above all the wrong ones.

Two choices differ between published scripts and are therefore arguments and part of the signature. A tie
with a wrong candidate counts as an error in ContraPro (Müller et al., 2018) and goes to the first candidate
in the script of Voita et al. (2019). A score is the sum of the log-probabilities of the scored target tokens
or their mean. The aggregates `disc`, `disc_avg` and `disc_all_d` follow Lupo et al. (2022), appendix B.1.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite, documents_of
from cotext.evaluation.metrics.forms import CandidateSet, balanced_weights, choice_of
from cotext.evaluation.metrics.readings import Reading, Readings
from cotext.runtime.errors import CotextError
from cotext.runtime.version import __version__

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


@dataclass(frozen=True, slots=True)
class ContrastiveReport:
    """Accuracy over a suite and over its groups; groups without an example are left out.

    `aggregates` holds `disc`, `disc_avg` and `disc_all_d` in per cent where the suite knows the distances
    they need (see distance_aggregates). `undecidable` counts examples with a wrong candidate spelled like the
    right one: always ties.
    `decisions` is in the order of the suite, as are the ids of its examples and the numbers of their
    documents: for paired tests. `readings`: what was decided in other contexts, where that was asked for.
    """

    signature: str
    overall: Accuracy
    by_phenomenon: dict[str, Accuracy]
    by_distance: dict[str, Accuracy]
    by_tag: dict[str, dict[str, Accuracy]]
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
            "signature": self.signature,
            "overall": self.overall.as_dict(),
            "by_phenomenon": {name: each.as_dict() for name, each in self.by_phenomenon.items()},
            "by_distance": {name: each.as_dict() for name, each in self.by_distance.items()},
            "by_tag": {
                tag: {value: each.as_dict() for value, each in values.items()}
                for tag, values in self.by_tag.items()
            },
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
        _Judged(example, decision, choice_of(example))
        for example, decision in zip(suite.examples, decisions, strict=True)
    ]
    by_distance = _grouped(judged, lambda example: distance_bucket(example.distance))
    tags = dict.fromkeys(tag for example in suite.examples for tag in example.tags)
    return ContrastiveReport(
        signature=signature,
        overall=_accuracy(judged),
        by_phenomenon=_grouped(judged, lambda example: example.phenomenon),
        by_distance={bucket: by_distance[bucket] for bucket in DISTANCE_BUCKETS if bucket in by_distance},
        # A tag may tell the form: nothing is to be balanced then.
        by_tag={tag: _grouped(judged, _tag_of(tag), balanced=False) for tag in tags},
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
    parts: dict[str, str] = {"suite": suite.name, "n": str(len(suite.examples)), "tie": tie, "score": score}
    for key, value in (recipe or {}).items():
        if key in parts or key == "version" or "|" in key + value:
            raise CotextError(f"recipe entry {key!r}: {value!r} cannot stand in a signature")
        parts[key] = value
    return "|".join(f"{key}:{value}" for key, value in {**parts, "version": f"cotext-{__version__}"}.items())


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


def render_table(report: ContrastiveReport, tags: Sequence[str] | None = None) -> str:
    """Lay a report out as plain text; `tags` chooses the tags to list, all of them when None."""
    groups: list[tuple[str, Accuracy]] = [("all", report.overall)]
    groups += [(f"phenomenon {name}", each) for name, each in report.by_phenomenon.items()]
    groups += [(f"distance {name}", each) for name, each in report.by_distance.items()]
    for tag in report.by_tag if tags is None else tags:
        groups += [(f"{tag} {value}", each) for value, each in report.by_tag.get(tag, {}).items()]
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
    example: ContrastiveExample
    decision: Decision
    choice: CandidateSet


def _accuracy(judged: Sequence[_Judged]) -> Accuracy:
    weights = balanced_weights([each.choice for each in judged])
    return Accuracy(
        correct=sum(each.decision.right for each in judged),
        total=len(judged),
        ties=sum(each.decision.tied for each in judged),
        chance=sum(1 / len(each.example.candidates) for each in judged) / len(judged),
        balanced=sum(weight for weight, each in zip(weights, judged, strict=True) if each.decision.right),
    )


def _grouped(
    judged: Sequence[_Judged], label: Callable[[ContrastiveExample], str | None], balanced: bool = True
) -> dict[str, Accuracy]:
    """Accuracy of each label, in order of first occurrence; examples labelled None take no part."""
    groups: dict[str, list[_Judged]] = {}
    for each in judged:
        name = label(each.example)
        if name is not None:
            groups.setdefault(name, []).append(each)
    found = {name: _accuracy(members) for name, members in groups.items()}
    return found if balanced else {name: replace(each, balanced=None) for name, each in found.items()}


def _tag_of(tag: str) -> Callable[[ContrastiveExample], str | None]:
    return lambda example: example.tags.get(tag)


def _weighted(parts: Iterable[tuple[float, int]]) -> float:
    pairs = list(parts)
    return sum(value * count for value, count in pairs) / sum(count for _, count in pairs)
