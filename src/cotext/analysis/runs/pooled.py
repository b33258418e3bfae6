"""Contrastive accuracy of runs over all suites together, tested against the first run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cotext.analysis.runs.measured import MeasuredRun
from cotext.data.contrastive_suites import ContrastiveSuite
from cotext.metrics.flips import SIGNIFICANT, mcnemar_by_document
from cotext.metrics.pooled import documents_of_suites, of_other_sentences, pooled_aggregates, to_pool
from cotext.metrics.significance import McNemar, holm


@dataclass(frozen=True, slots=True)
class PooledAccuracy:
    """Accuracies of a run in per cent over several suites, as `pooled_aggregates` has them.

    `test` is of `disc` against the first run, None of that run itself; `p_corrected` is its mid-p after Holm,
    over all runs.
    """

    suites: tuple[str, ...]
    examples: int
    disc: float
    disc_avg: float
    test: McNemar | None = None
    p_corrected: float = 1.0

    @property
    def differs(self) -> bool:
        """Whether it differs significantly from the first run's."""
        return self.test is not None and self.p_corrected < SIGNIFICANT


def pooled_accuracies(
    runs: Sequence[MeasuredRun], suites: Mapping[str, ContrastiveSuite]
) -> tuple[PooledAccuracy, ...]:
    """By run; none where fewer than two suites have clues in other sentences."""
    together = to_pool(suites)
    if not together:
        return ()
    chosen = {name: of_other_sentences(suite.examples) for name, suite in together.items()}
    numbers = documents_of_suites(list(together.values()))
    documents = [of[i] for of, indices in zip(numbers, chosen.values(), strict=True) for i in indices]
    found: list[PooledAccuracy] = []
    first: list[bool] = []
    for number, run in enumerate(runs):
        right = {
            name: [run.decisions[name].right[together[name].examples[i].id] for i in indices]
            for name, indices in chosen.items()
        }
        flat = [each for of_suite in right.values() for each in of_suite]
        first = first or flat
        test = mcnemar_by_document(first, flat, documents) if number else None
        found.append(PooledAccuracy(tuple(together), len(flat), **pooled_aggregates(right), test=test))
    p_values = holm([each.test.p_mid for each in found if each.test is not None])
    return (found[0], *(replace(each, p_corrected=p) for each, p in zip(found[1:], p_values, strict=True)))
