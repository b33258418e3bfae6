"""Tests of context use on a contrastive suite.

A system that prefers one form is often right if this form is frequent, and context from any document may
change its preference. On examples of one phenomenon at one distance, five conditions must therefore hold:

    chance      accuracy above chance
    balanced    the same condition, with every correct form weighted equally
    none        accuracy above the accuracy without context
    foreign     accuracy above the accuracy with context from other documents
    cxmi        higher log-probability of the correct candidate than with context from other documents

Each condition is tested over documents, two-sided, and p is multiplied by the number of groups (Bonferroni).
A conclusion that needs several tests is as certain as the least certain test (Berger, 1982). If there are so
few documents that no outcome could be significant, there is no conclusion.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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
from cotext.evaluation.statistics.significance import (
    SIGNIFICANT,
    are_too_few,
    flipped_counts,
    flipped_sums,
    gains_by_document,
)
from cotext.evaluation.studies.tables import Cell, Table
from cotext.runtime.rendering import listed, render_p

SAME_SENTENCE: Final = "0"  # the distance of a clue in the sentence itself
WHOLE_DOCUMENT: Final = 10**6  # sentences in the window of a system that reads whole documents
# Messages for conditions that do not hold.
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
class ContextWindow:
    """The context sentences that a system may use: before, after, and before in its own translation."""

    before: int
    after: int
    target_before: int

    @property
    def has_context(self) -> bool:
        return self.before + self.after + self.target_before > 0

    def contains(self, phenomenon: str, distance: str) -> bool:
        """Return whether a clue in this distance bucket is in the window.

        Earlier clues are on both sides (for cohesion, only on the target side), later ones in the source.
        """
        before = self.target_before if phenomenon == "cohesion" else max(self.before, self.target_before)
        if distance == "ahead":
            return self.after >= 1
        if distance == "unknown":
            return before + self.after >= 1
        return before > 3 if distance == ">3" else before >= int(distance)

    def has_clue_of(self, group: "Group") -> bool:
        """Return whether the clue of a group is in the context, and not in the sentence itself."""
        return group.distance != SAME_SENTENCE and self.contains(group.phenomenon, group.distance)


@dataclass(frozen=True, slots=True)
class Group:
    """Examples of a suite with one phenomenon and distance, their document numbers and balanced weights."""

    suite: str
    phenomenon: str
    distance: str
    examples: tuple[ContrastiveExample, ...]
    documents: tuple[int, ...]
    weights: tuple[float, ...]

    @property
    def title(self) -> str:
        """Return the phenomenon, with the name of the suite if it adds information."""
        name = self.suite.removeprefix(CONTROLLED)
        return name if self.phenomenon in name else f"{name} {self.phenomenon}"

    @property
    def exact_chance(self) -> bool:
        """Return whether guessing without the clue has exactly chance accuracy by construction."""
        return self.suite.startswith(CONTROLLED)

    @property
    def name(self) -> tuple[str, str]:
        """Return title and distance."""
        return self.title, self.distance

    @property
    def document_count(self) -> int:
        return len(set(self.documents))

    @property
    def chances(self) -> list[float]:
        return [1 / len(example.candidates) for example in self.examples]


@dataclass(frozen=True, slots=True)
class Condition:
    """One of CONDITIONS on one group: the value in true context, and the value to exceed.

    They are accuracies in per cent, or nats per token. `p_corrected` is corrected for all groups.
    """

    own: float
    other: float
    p: float
    p_corrected: float

    @property
    def holds(self) -> bool:
        """Return whether `own` exceeds `other` significantly."""
        return self.own > self.other and self.p_corrected < SIGNIFICANT


@dataclass(frozen=True, slots=True)
class Evidence:
    """Tests on one group, corrected for the number of `groups`; `by_seed`: those of each seed."""

    group: Group
    conditions: Mapping[str, Condition]
    groups: int = 1
    by_seed: tuple["Evidence", ...] = ()

    @property
    def documents(self) -> int:
        return self.group.document_count

    @property
    def too_few(self) -> bool:
        return are_too_few(self.documents, self.groups)

    @property
    def used(self) -> bool | None:
        """Return whether context use is significant; None if there are too few documents."""
        return None if self.too_few else not self.failing

    @property
    def failing(self) -> list[str]:
        return [name for name, condition in self.conditions.items() if not condition.holds]

    def as_dict(self) -> dict[str, Any]:
        return {
            "phenomenon": self.group.phenomenon,
            "distance": self.group.distance,
            "examples": len(self.group.examples),
            "documents": self.documents,
            "uses_context": self.used,
            **({"uses_context_by_seed": [item.used for item in self.by_seed]} if self.by_seed else {}),
            "conditions": {
                name: {**asdict(item), "holds": item.holds} for name, item in self.conditions.items()
            },
        }


def groups_of(suite: ContrastiveSuite) -> list[Group]:
    """Group examples by phenomenon and distance, nearest clues first."""
    members: dict[tuple[str, str], list[tuple[ContrastiveExample, int]]] = defaultdict(list)
    for example, document in zip(suite.examples, documents_of(suite.examples), strict=True):
        members[example.phenomenon, distance_bucket(example.distance)].append((example, document))
    order = {bucket: rank for rank, bucket in enumerate(DISTANCE_BUCKETS)}
    groups = []
    for (phenomenon, distance), pairs in sorted(members.items(), key=lambda item: order[item[0][1]]):
        examples, documents = zip(*pairs, strict=True)
        weights = tuple(balanced_weights([choice_of(example) for example in examples]))
        groups.append(Group(suite.name, phenomenon, distance, examples, documents, weights))
    return groups


def weigh(group: Group, readings: Readings) -> Evidence:
    """Test all conditions on a group, from the decisions in true context, no context and foreign context."""
    ids = [example.id for example in group.examples]
    right = {kind: [item.right[id] for id in ids] for kind, item in readings.by_context.items()}
    plain = [1 / len(ids)] * len(ids)
    p_plain, p_balanced = _guessed(group, right["true"], [plain, group.weights])
    conditions = {
        "chance": _accuracies(right["true"], group.chances, plain, p_plain),
        "balanced": _accuracies(right["true"], group.chances, group.weights, p_balanced),
    }
    for kind in ("none", "foreign"):
        p = flipped_counts(gains_by_document(right[kind], right["true"], group.documents))
        conditions[kind] = _accuracies(right["true"], right[kind], plain, p)
    conditions["cxmi"] = _probabilities(group, readings, ids)
    return Evidence(group, conditions)


def least_sure(seeds: Sequence[Evidence]) -> Evidence:
    """Return the evidence of a system with several seeds: a condition holds if it holds for every seed.

    Values are means over seeds; p is the largest p of any seed (Berger, 1982).
    """
    first, *others = seeds
    if not others:
        return first
    conditions = {}
    for name in first.conditions:
        of_seeds = [seed.conditions[name] for seed in seeds]
        own, other = (
            math.fsum(values) / len(seeds)
            for values in zip(*((c.own, c.other) for c in of_seeds), strict=True)
        )
        p = max(c.p if c.own > c.other else 1.0 for c in of_seeds)
        conditions[name] = Condition(own, other, p, p)
    return replace(first, conditions=conditions, by_seed=tuple(seeds))


def corrected(evidence: Sequence[Evidence], groups: int | None = None) -> list[Evidence]:
    """Correct the p-values of all conditions for the number of groups, by default all that are given."""
    count = len(evidence) if groups is None else groups
    return [
        replace(
            item,
            groups=count,
            conditions={
                name: replace(condition, p_corrected=min(1.0, condition.p * count))
                for name, condition in item.conditions.items()
            },
            by_seed=tuple(corrected(item.by_seed, count)),
        )
        for item in evidence
    ]


def _accuracies(
    true: Sequence[float], other: Sequence[float], weights: Sequence[float], p: float
) -> Condition:
    ours, theirs = (
        100 * math.fsum(w * v for w, v in zip(weights, side, strict=True)) for side in (true, other)
    )
    return Condition(ours, theirs, p, p)


def _guessed(group: Group, right: Sequence[bool], weightings: Sequence[Sequence[float]]) -> list[float]:
    """Return for each weighting the two-sided p-value: twice the chance of guessing at least as many right.

    A single random number u from 0 to 1 decides all examples of a document: those whose chance is above u are
    right. So agreement within a document is not evidence. For documents with the same chances and weights,
    one multinomial draw gives the number of documents with each outcome.
    """
    by_document: dict[int, list[tuple[float, tuple[float, ...]]]] = defaultdict(list)
    for document, chance, *of_example in zip(group.documents, group.chances, *weightings, strict=True):
        by_document[document].append((chance, tuple(of_example)))
    alike = Counter(map(_outcomes, by_document.values()))
    generator = np.random.default_rng(_SEED)
    sums_RK = np.zeros((SAMPLES, len(weightings)))
    for outcomes, documents in alike.items():
        probabilities, values = zip(*outcomes, strict=True)
        sums_RK += generator.multinomial(documents, probabilities, size=SAMPLES) @ np.asarray(values)
    p_values = []
    for column, weights in enumerate(weightings):
        observed = math.fsum(w for w, is_right in zip(weights, right, strict=True) if is_right)
        as_high = int(np.sum(sums_RK[:, column] >= observed - _ROUNDING))
        p_values.append(min(1.0, 2 * (as_high + 1) / (SAMPLES + 1)))
    return p_values


def _outcomes(
    examples: Sequence[tuple[float, tuple[float, ...]]],
) -> tuple[tuple[float, tuple[float, ...]], ...]:
    """Return probabilities, and sums of weights, for guessing examples with these chances and weights."""
    outcomes = []
    for low, high in pairwise([0.0, *sorted({chance for chance, _ in examples}), 1.0]):
        right = [weights for chance, weights in examples if chance > low]
        sums = [math.fsum(column) for column in zip(*right, strict=True)] or [0.0] * len(examples[0][1])
        outcomes.append((high - low, tuple(round(total, _DIGITS) for total in sums)))
    return tuple(outcomes)


def _probabilities(group: Group, readings: Readings, ids: Sequence[str]) -> Condition:
    """Compare the CXMI of true and foreign context, in nats per token of the right candidates.

    Candidates that a system considers impossible in some context are ignored: their logarithm is infinite.
    """
    nats = {kind: values.nats for kind, values in readings.by_context.items()}
    of_documents = zip(ids, group.documents, strict=True)
    finite = {
        id: document
        for id, document in of_documents
        if all(math.isfinite(each[id]) for each in nats.values())
    }
    tokens = max(1, sum(readings.tokens[id] for id in finite))
    added = {
        kind: sum(nats[kind][id] - nats["none"][id] for id in finite) / tokens for kind in ("true", "foreign")
    }
    by_document: dict[int, float] = defaultdict(float)
    for id, document in finite.items():
        by_document[document] += nats["true"][id] - nats["foreign"][id]
    p = flipped_sums(list(by_document.values()))
    return Condition(added["true"], added["foreign"], p, p)


LEGEND = (
    "*: accuracy and balanced accuracy above chance; other values below those in the true context;\n"
    f"p < {SIGNIFICANT:g} over documents, corrected for {{groups}}. Context is used where all five\n"
    "have a star. CXMI: log-probability that context adds to the correct candidates, nats per token;\n"
    "none: without context; foreign: with context from other documents"
)
EVIDENCE_HEADER = (
    "context use", "distance", "docs", "accuracy", "balanced", "chance", "none", "foreign", "CXMI", "foreign",
)  # fmt: skip


def evidence_row(evidence: Evidence) -> tuple[str | Cell, ...]:
    """Return the table row of a group: values with a star if their condition holds, and corrected p below."""

    def cell(condition: Condition, value: float, form: str = ".1f") -> Cell:
        p = f"p {render_p(condition.p_corrected)}"
        return Cell(format(value, form), (p,), condition.holds)

    chance, balanced, none, foreign, cxmi = (evidence.conditions[name] for name in CONDITIONS)
    return (
        evidence.group.title,
        evidence.group.distance,
        f"{evidence.documents:,}{' (too few)' if evidence.too_few else ''}",
        cell(chance, chance.own),
        cell(balanced, balanced.own),
        f"{chance.other:.1f}",
        cell(none, none.other),
        cell(foreign, foreign.other),
        f"{cxmi.own:+.3f}",
        cell(cxmi, cxmi.other, "+.3f"),
    )


def render_evidence(evidence: Sequence[Evidence]) -> str:
    """Format as text: a line for every group, with stars for conditions that hold; without the legend."""
    return Table(EVIDENCE_HEADER, [evidence_row(item) for item in evidence]).text()


def legend(evidence: Sequence[Evidence]) -> str:
    count = max(item.groups for item in evidence)
    return LEGEND.format(groups=f"{count} group{'' if count == 1 else 's'}")


def conclusion(evidence: Sequence[Evidence]) -> str:
    """Return in a sentence or two whether and where a system uses context, or what is missing."""
    used = [item for item in evidence if item.used]
    if used:
        rest = groups_in_words(item.group for item in evidence if not item.used)
        others = f" Not significant in {rest}." if rest else ""
        return f"Context is used in {groups_in_words(item.group for item in used)}.{others}"
    if not evidence:
        return "Whether context is used cannot be tested: no clue is within the context window of the system."
    if all(item.too_few for item in evidence):
        return f"Whether context is used cannot be tested: {too_few(evidence)}."
    return f"Context use is not significant: {shortfall(evidence)}."


def too_few(evidence: Sequence[Evidence]) -> str:
    """Return why nothing can be significant, with the largest number of documents."""
    most = max(item.documents for item in evidence)
    corrected = f", corrected for {evidence[0].groups} groups" if evidence[0].groups > 1 else ""
    return f"too few documents ({most}) for any significant difference{corrected}"


def shortfall(evidence: Sequence[Evidence]) -> str:
    """Return the failing conditions of the best group with enough documents."""
    able = [item for item in evidence if not item.too_few]
    best = min(able, key=lambda item: (len(item.failing), max(c.p for c in item.conditions.values())))
    missing = listed([CONDITIONS[name] for name in best.failing])
    return f"{'at best, ' if len(evidence) > 1 else ''}in {groups_in_words([best.group])}: {missing}"


def groups_in_words(groups: Iterable[Group]) -> str:
    """Return groups in words, for example "pronoun (1, 2 back) and ellipsis (1 back)"."""
    names = {"ahead": "in the next sentence", "unknown": "distance unknown"}
    parts = []
    for title, members in groupby(groups, key=lambda group: group.title):
        distances = [group.distance for group in members]
        back = [distance for distance in distances if distance not in names]
        words = [f"{', '.join(back)} back"] if back else []
        parts.append(f"{title} ({', '.join([*words, *(names[d] for d in distances if d in names)])})")
    return listed(parts)
