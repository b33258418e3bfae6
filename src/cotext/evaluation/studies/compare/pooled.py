"""Contrastive accuracy of systems over all suites together, tested against the first system."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cotext.data.contrastive_suites import ContrastiveSuite
from cotext.evaluation.statistics.flips import SIGNIFICANT
from cotext.evaluation.statistics.seeds import Difference, compare_accuracies, corrected
from cotext.evaluation.studies.compare.measured import MeasuredRun
from cotext.evaluation.studies.compare.system import MeasuredSystem
from cotext.evaluation.studies.contrastive.pooled import (
    documents_of_suites,
    of_other_sentences,
    pooled_aggregates,
    to_pool,
)


@dataclass(frozen=True, slots=True)
class PooledAccuracy:
    """Accuracies of a system over several suites, in per cent, means over seeds; see `pooled_aggregates`.

    `test` is of `disc` against the first system, corrected over all systems; None of the first itself.
    """

    suites: tuple[str, ...]
    examples: int
    disc: float
    disc_avg: float
    test: Difference | None = None

    @property
    def differs(self) -> bool:
        """Whether it differs significantly from the first system's."""
        return self.test is not None and self.test.p_corrected < SIGNIFICANT


def pooled_accuracies(
    systems: Sequence[MeasuredSystem], suites: Mapping[str, ContrastiveSuite]
) -> tuple[PooledAccuracy, ...]:
    """By system; none where fewer than two suites have clues in other sentences."""
    together = to_pool(suites)
    if not together:
        return ()
    indices = {name: of_other_sentences(suite.examples) for name, suite in together.items()}
    chosen = {name: [together[name].examples[i].id for i in of_suite] for name, of_suite in indices.items()}
    numbers = zip(documents_of_suites(list(together.values())), indices.values(), strict=True)
    documents = [of_suite[i] for of_suite, those in numbers for i in those]
    found, decided = [], []
    for system in systems:
        shares = {name: system.right(name) for name in chosen}
        pooled = pooled_aggregates({name: [shares[name][i] for i in ids] for name, ids in chosen.items()})
        found.append(PooledAccuracy(tuple(together), len(documents), pooled["disc"], pooled["disc_avg"]))
        decided.append(
            [
                [run.decisions[name].right[i] for name, ids in chosen.items() for i in ids]
                for run in system.runs
            ]
        )
    tests = corrected([compare_accuracies(decided[0], own, documents) for own in decided[1:]])
    return (found[0], *(replace(each, test=test) for each, test in zip(found[1:], tests, strict=True)))


def _right(run: MeasuredRun, chosen: Mapping[str, Sequence[str]]) -> list[bool]:
    """Whether each of the chosen examples is decided right, suite after suite."""
    return [run.decisions[suite].right[example] for suite, examples in chosen.items() for example in examples]
