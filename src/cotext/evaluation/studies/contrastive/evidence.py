"""Tests of context use on a contrastive suite.

Accuracy alone does not show that context is used: a system that prefers one form is often right where that
form is frequent, and context from any document may change what it prefers. So five conditions are tested on
the examples of one phenomenon whose clue is equally far away, and all of them must hold:

    chance      accuracy above chance
    balanced    the same with every correct form weighted equally
    none        accuracy above that without context
    foreign     accuracy above that with context from other documents
    cxmi        higher log-probability of the correct candidate than with context from other documents

Each is tested over documents, two-sided, and p is multiplied by the number of groups that are asked
(Bonferroni). A statement that needs all of several tests is as sure as the least sure of them (Berger, 1982).
With so few documents that no outcome could pass, nothing can be said either way.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any, Final

import numpy as np

from cotext.data.contrastive_suites import CONTROLLED, ContrastiveExample, ContrastiveSuite, documents_of
from cotext.evaluation.metrics.contrastive import (
    DISTANCE_BUCKETS,
    Readings,
    balanced_weights,
    choice_of,
    distance_bucket,
)
from cotext.evaluation.statistics.significance import SIGNIFICANT, flipped_sums, least_p, mcnemar_by_document
from cotext.evaluation.studies.tables import Cell, Table
from cotext.runtime.tables import listed, render_p

# Message where one of them does not hold.
CONDITIONS: Final[Mapping[str, str]] = {
    "chance": "accuracy not above chance",
    "balanced": "balanced accuracy not above chance",
    "none": "accuracy not above that without context",
    "foreign": "accuracy not above that with context from other documents",
    "cxmi": "the correct candidate no more probable than with context from other documents",
}
SAMPLES: Final = 20_000
_SEED: Final = 12345
_ROUNDING: Final = 1e-9
_DIGITS: Final = 12


@dataclass(frozen=True, slots=True)
class Group:
    """The examples of a suite of one phenomenon whose clue is equally far away, and what they count.

    `documents`: the number of its document for every example. `weights`: what it counts in balanced accuracy.
    """

    suite: str
    phenomenon: str
    distance: str
    examples: tuple[ContrastiveExample, ...]
    documents: tuple[int, ...]
    weights: tuple[float, ...]

    @property
    def title(self) -> str:
        """The phenomenon, and the suite where its name tells more."""
        name = self.suite.removeprefix(CONTROLLED)
        return name if self.phenomenon in name else f"{name} {self.phenomenon}"

    @property
    def chances(self) -> list[float]:
        """Chance accuracy of each example."""
        return [1 / len(example.candidates) for example in self.examples]


@dataclass(frozen=True, slots=True)
class Condition:
    """One of CONDITIONS on one group: accuracies in per cent, or nats a token that context adds.

    `own` is the system's in its true context, `other` what it is to exceed; `p_corrected` for all groups.
    """

    name: str
    own: float
    other: float
    p: float
    p_corrected: float

    @property
    def holds(self) -> bool:
        """Whether `own` exceeds `other` significantly."""
        return self.own > self.other and self.p_corrected < SIGNIFICANT


@dataclass(frozen=True, slots=True)
class Evidence:
    """The tests of all conditions on one group; `groups`: how many p was corrected for.

    `by_seed`: that of every seed, where it is of a system of several, see `least_sure`.
    """

    group: Group
    documents: int
    conditions: Mapping[str, Condition]
    groups: int = 1
    by_seed: tuple["Evidence", ...] = ()

    @property
    def too_few(self) -> bool:
        """Whether so few documents could show nothing, even if all of them agreed."""
        return least_p(self.documents) * self.groups >= SIGNIFICANT

    @property
    def used(self) -> bool | None:
        """Whether it is shown that context is used; None where there are too few documents to tell."""
        return None if self.too_few else not self.failing

    @property
    def failing(self) -> list[str]:
        """The conditions that do not hold."""
        return [name for name, condition in self.conditions.items() if not condition.holds]

    def as_dict(self) -> dict[str, Any]:
        """Everything, for a JSON file."""
        return {
            "phenomenon": self.group.phenomenon,
            "distance": self.group.distance,
            "examples": len(self.group.examples),
            "documents": self.documents,
            "uses_context": self.used,
            **({"uses_context_by_seed": [each.used for each in self.by_seed]} if self.by_seed else {}),
            "conditions": {
                name: {
                    "own": each.own,
                    "other": each.other,
                    "p": each.p,
                    "p_corrected": each.p_corrected,
                    "holds": each.holds,
                }
                for name, each in self.conditions.items()
            },
        }


def groups_of(suite: ContrastiveSuite) -> list[Group]:
    """Examples by phenomenon and distance, nearest clues first."""
    members: dict[tuple[str, str], list[tuple[ContrastiveExample, int]]] = defaultdict(list)
    for example, document in zip(suite.examples, documents_of(suite.examples), strict=True):
        members[example.phenomenon, distance_bucket(example.distance)].append((example, document))
    order = {bucket: rank for rank, bucket in enumerate(DISTANCE_BUCKETS)}
    found = []
    for (phenomenon, distance), pairs in sorted(members.items(), key=lambda item: order[item[0][1]]):
        examples, documents = zip(*pairs, strict=True)
        weights = tuple(balanced_weights([choice_of(example) for example in examples]))
        found.append(Group(suite.name, phenomenon, distance, examples, documents, weights))
    return found


def weigh(group: Group, readings: Readings) -> Evidence:
    """Ask all conditions of what a system made of a group in its context, in none and in a foreign one."""
    ids = [example.id for example in group.examples]
    right = {kind: [each.right[id] for id in ids] for kind, each in readings.by_context.items()}
    plain = [1 / len(ids)] * len(ids)
    p_plain, p_balanced = _guessed(group, right["true"], [plain, group.weights])
    found = [
        _accuracies("chance", right["true"], group.chances, plain, p_plain),
        _accuracies("balanced", right["true"], group.chances, group.weights, p_balanced),
    ]
    for kind in ("none", "foreign"):
        p = mcnemar_by_document(right[kind], right["true"], group.documents).p_mid
        found.append(_accuracies(kind, right["true"], right[kind], plain, p))
    found.append(_probabilities(group, readings, ids))
    return Evidence(group, len(set(group.documents)), {each.name: each for each in found})


def least_sure(seeds: Sequence[Evidence]) -> Evidence:
    """The evidence of a system of several seeds: a condition holds where it holds for every seed.

    Figures are means over seeds, p is that of the seed for which the condition is least sure (Berger, 1982).
    """
    first, *others = seeds
    if not others:
        return first
    conditions = {}
    for name in first.conditions:
        each = [seed.conditions[name] for seed in seeds]
        own, other = (
            math.fsum(values) / len(seeds) for values in zip(*((c.own, c.other) for c in each), strict=True)
        )
        p = max(c.p if c.own > c.other else 1.0 for c in each)
        conditions[name] = Condition(name, own, other, p, p)
    return replace(first, conditions=conditions, by_seed=tuple(seeds))


def corrected(found: Sequence[Evidence]) -> list[Evidence]:
    """Correct the p-values of all conditions for the number of groups that are asked."""
    return [_corrected(each, len(found)) for each in found]


def _corrected(evidence: Evidence, groups: int) -> Evidence:
    return replace(
        evidence,
        groups=groups,
        conditions={
            name: replace(condition, p_corrected=min(1.0, condition.p * groups))
            for name, condition in evidence.conditions.items()
        },
        by_seed=tuple(_corrected(each, groups) for each in evidence.by_seed),
    )


def _accuracies(
    name: str, own: Sequence[float], other: Sequence[float], weights: Sequence[float], p: float
) -> Condition:
    ours, theirs = (
        100 * math.fsum(w * v for w, v in zip(weights, side, strict=True)) for side in (own, other)
    )
    return Condition(name, ours, theirs, p, p)


def _guessed(group: Group, right: Sequence[bool], weightings: Sequence[Sequence[float]]) -> list[float]:
    """How probably guessing is as often right or more, twice: p of each weighting, two-sided.

    The examples of a document are guessed alike, by one number u between 0 and 1: those whose chance is above
    it are right. That they agree with each other then tells nothing. How many of equal documents have their
    number in which range is drawn at once.
    """
    counts = list(zip(group.chances, zip(*weightings, strict=True), strict=True))
    indices: dict[int, list[int]] = defaultdict(list)
    for index, document in enumerate(group.documents):
        indices[document].append(index)
    alike = Counter(_outcomes([counts[index] for index in each]) for each in indices.values())
    generator = np.random.default_rng(_SEED)
    sums_RK = np.zeros((SAMPLES, len(weightings)))
    for outcomes, documents in alike.items():
        probabilities, values = zip(*outcomes, strict=True)
        sums_RK += generator.multinomial(documents, probabilities, size=SAMPLES) @ np.asarray(values)
    found = []
    for column, weights in enumerate(weightings):
        observed = math.fsum(w for w, is_right in zip(weights, right, strict=True) if is_right)
        as_high = int(np.sum(sums_RK[:, column] >= observed - _ROUNDING))
        found.append(min(1.0, 2 * (as_high + 1) / (SAMPLES + 1)))
    return found


def _outcomes(
    examples: Sequence[tuple[float, tuple[float, ...]]],
) -> tuple[tuple[float, tuple[float, ...]], ...]:
    """What guessing the examples of a document may come to: probabilities, and what is right then counts.

    Of every example its chance, and what it counts in each weighting.
    """
    found = []
    for low, high in pairwise([0.0, *sorted({chance for chance, _ in examples}), 1.0]):
        right = [weights for chance, weights in examples if chance > low]
        sums = [math.fsum(column) for column in zip(*right, strict=True)] or [0.0] * len(examples[0][1])
        found.append((high - low, tuple(round(each, _DIGITS) for each in sums)))
    return tuple(found)


def _probabilities(group: Group, readings: Readings, ids: Sequence[str]) -> Condition:
    """CXMI of true and foreign context, in nats a token of the right candidates.

    Candidates that a system holds impossible in some context tell nothing: their logarithm is infinite.
    """
    nats = {kind: each.nats for kind, each in readings.by_context.items()}
    finite = [index for index, id in enumerate(ids) if all(math.isfinite(each[id]) for each in nats.values())]
    tokens = max(1, sum(readings.tokens[ids[index]] for index in finite))
    added = {
        kind: sum(nats[kind][ids[index]] - nats["none"][ids[index]] for index in finite) / tokens
        for kind in ("true", "foreign")
    }
    by_document: dict[int, float] = defaultdict(float)
    for index in finite:
        by_document[group.documents[index]] += nats["true"][ids[index]] - nats["foreign"][ids[index]]
    p = flipped_sums(list(by_document.values()), SAMPLES, _SEED)
    return Condition("cxmi", added["true"], added["foreign"], p, p)


LEGEND = (
    "*: accuracy and balanced accuracy above chance, the others below that in the true context;\n"
    f"p < {SIGNIFICANT:g} over "
    "documents, corrected for {groups}. Context is used where all five\n"
    "have a star. CXMI: log-probability that context adds to the correct candidates, nats per token;\n"
    "none: without context; foreign: with context from other documents"
)
EVIDENCE_HEADER = (
    "context use", "distance", "docs", "accuracy", "balanced", "chance", "none", "foreign", "CXMI", "foreign",
)  # fmt: skip


def evidence_row(each: Evidence) -> tuple[str | Cell, ...]:
    """The figures of a group, marked where the condition on them holds; below them p after correction."""

    def cell(name: str, figure: str) -> Cell:
        condition = each.conditions[name]
        return Cell(figure, (f"p {render_p(condition.p_corrected)}",), condition.holds)

    chance, balanced, none, foreign, cxmi = (each.conditions[name] for name in CONDITIONS)
    return (
        each.group.title,
        each.group.distance,
        f"{each.documents:,}{' (too few)' if each.too_few else ''}",
        cell("chance", f"{chance.own:.1f}"),
        cell("balanced", f"{balanced.own:.1f}"),
        f"{chance.other:.1f}",
        cell("none", f"{none.other:.1f}"),
        cell("foreign", f"{foreign.other:.1f}"),
        f"{cxmi.own:+.3f}",
        cell("cxmi", f"{cxmi.other:+.3f}"),
    )


def render_evidence(found: Sequence[Evidence]) -> str:
    """A line for every group, stars for the conditions that hold; without the legend."""
    return Table(EVIDENCE_HEADER, [evidence_row(each) for each in found]).text()


def legend(found: Sequence[Evidence]) -> str:
    """The legend of the table."""
    count = max(each.groups for each in found)
    return LEGEND.format(groups=f"{count} group{'' if count == 1 else 's'}")


def conclusion(found: Sequence[Evidence]) -> str:
    """Whether a system is shown to use context, where, and if not, what is missing; a sentence or two."""
    used = [each for each in found if each.used]
    if used:
        rest = groups_in_words(each for each in found if not each.used)
        others = f" Not significant in {listed(rest)}." if rest else ""
        return f"Context is used in {listed(groups_in_words(used))}.{others}"
    if not found:
        return (
            "Whether context is used cannot be tested: no clue lies within the context window of the system."
        )
    if all(each.too_few for each in found):
        return f"Whether context is used cannot be tested: {too_few(found)}."
    return f"Context use is not significant: {shortfall(found)}."


def too_few(found: Sequence[Evidence]) -> str:
    """Why nothing can be significant, with the largest number of documents."""
    most = max(each.documents for each in found)
    corrected = f" in {found[0].groups} tests" if found[0].groups > 1 else ""
    return f"too few documents ({most}) for any significant difference{corrected}"


def shortfall(found: Sequence[Evidence]) -> str:
    """The failing conditions of the group that comes closest, of those with enough documents."""
    able = [each for each in found if not each.too_few]
    best = min(able, key=lambda each: (len(each.failing), max(c.p for c in each.conditions.values())))
    missing = listed([CONDITIONS[name] for name in best.failing])
    where = group_in_words(best.group.title, [best.group.distance])
    return f"{'at best, ' if len(found) > 1 else ''}in {where}: {missing}"


def groups_in_words(found: Iterable[Evidence]) -> list[str]:
    """Phenomena with their distances."""
    by_title = groupby(found, key=lambda each: each.group.title)
    return [group_in_words(title, [each.group.distance for each in members]) for title, members in by_title]


def group_in_words(title: str, distances: Sequence[str]) -> str:
    """As in "pronoun (1, 2, 3 back)"."""
    return f"{title} ({away(distances)})"


def away(distances: Sequence[str]) -> str:
    """Distances of clues, as in "1, 2, 3 back"."""
    names = {"ahead": "in the next sentence", "unknown": "distance unknown"}
    back = [distance for distance in distances if distance not in names]
    words = [f"{', '.join(back)} back"] if back else []
    return ", ".join([*words, *(names[d] for d in distances if d in names)])
