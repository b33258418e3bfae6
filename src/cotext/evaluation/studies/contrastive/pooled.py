"""Contrastive accuracy over several suites together: Disc. of Lupo et al. (2022), appendix B.1.

Examples whose clue is in the sentence itself (distance 0) take no part, as in `disc` of a single suite.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite, documents_of
from cotext.evaluation.metrics.contrastive import Accuracy, ContrastiveReport, Decision

ALL_SUITES: Final = "all suites"  # how the figures of several suites together are called


def of_other_sentences(examples: Sequence[ContrastiveExample]) -> list[int]:
    """The indices of the examples whose clue is not known to be in the sentence itself."""
    return [index for index, example in enumerate(examples) if example.distance != 0]


def pooled_aggregates(right: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Accuracies in per cent over suites, given the decisions of each, or shares of seeds that are right.

    `disc`: every example counts the same. `disc_avg`: every suite does.
    """
    shares = [100.0 * sum(each) / len(each) for each in right.values()]
    total = sum(map(len, right.values()))
    return {
        "disc": 100.0 * sum(map(sum, right.values())) / total,
        "disc_avg": sum(shares) / len(shares),
    }


def documents_of_suites(suites: Sequence[ContrastiveSuite]) -> list[list[int]]:
    """The number of its document for every example of every suite; no two suites share a document."""
    numbers = [documents_of(suite.examples) for suite in suites]
    counts = [max(each, default=-1) + 1 for each in numbers]
    return [
        [first + number for number in each]
        for first, each in zip(accumulate(counts, initial=0), numbers, strict=False)
    ]


def to_pool(suites: Mapping[str, ContrastiveSuite]) -> dict[str, ContrastiveSuite]:
    """The suites with an example that takes part; none where that is fewer than two."""
    found = {name: suite for name, suite in suites.items() if of_other_sentences(suite.examples)}
    return found if len(found) > 1 else {}


def pool(
    suites: Mapping[str, ContrastiveSuite], reports: Mapping[str, ContrastiveReport]
) -> ContrastiveReport:
    """The reports of one system on the suites of `to_pool` as one; its groups are the suites."""
    parts: dict[str, Accuracy] = {}
    right: dict[str, list[bool]] = {}
    examples: list[str] = []
    documents: list[int] = []
    decisions: list[Decision] = []
    numbers = documents_of_suites(list(suites.values()))
    for (name, suite), of_documents in zip(suites.items(), numbers, strict=True):
        chosen = of_other_sentences(suite.examples)
        decided = [reports[name].decisions[index] for index in chosen]
        right[name] = [each.right for each in decided]
        parts[name] = Accuracy(
            correct=sum(right[name]),
            total=len(chosen),
            ties=sum(each.tied for each in decided),
            chance=sum(1 / len(suite.examples[index].candidates) for index in chosen) / len(chosen),
        )
        examples += [f"{name}: {suite.examples[index].id}" for index in chosen]
        documents += [of_documents[index] for index in chosen]
        decisions += decided
    total = len(examples)
    return ContrastiveReport(
        signature=_signature(reports[next(iter(parts))].signature, list(parts), total),
        overall=Accuracy(
            correct=sum(each.correct for each in parts.values()),
            total=total,
            ties=sum(each.ties for each in parts.values()),
            chance=sum(each.chance * each.total for each in parts.values()) / total,
        ),
        by_phenomenon=parts,
        by_distance={},
        by_tag={},
        aggregates=pooled_aggregates(right),
        undecidable=sum(reports[name].undecidable for name in parts),
        examples=tuple(examples),
        documents=tuple(documents),
        decisions=tuple(decisions),
    )


def _signature(of_one: str, names: Sequence[str], total: int) -> str:
    """That of a suite with the names and the examples of all."""
    rest = [part for part in of_one.split("|") if not part.startswith(("suite:", "n:"))]
    return "|".join([f"suite:{'+'.join(names)}", f"n:{total}", *rest])
