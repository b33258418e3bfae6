"""Contrastive decisions of systems: accuracies, evidence of context use, tests against the first system."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from cotext.data.contrastive_suites import CONTROLLED
from cotext.evaluation.metrics.contrastive import Accuracy
from cotext.evaluation.statistics.flips import SIGNIFICANT, least_p
from cotext.evaluation.statistics.seeds import Difference, Spread, compare_accuracies
from cotext.evaluation.statistics.seeds import corrected as corrected_differences
from cotext.evaluation.studies.compare.system import MeasuredSystem
from cotext.evaluation.studies.contrastive.contrastive_rows import SAME_SENTENCE
from cotext.evaluation.studies.contrastive.evidence import Evidence, Group, corrected, least_sure, weigh
from cotext.runtime.version import __version__


@dataclass(frozen=True, slots=True)
class ContrastiveTest:
    """A test of contrastive accuracy against the first system, on a phenomenon and distance in the window.

    `first_sees`: whether the first system may see the clue, too. Accuracies in per cent, of `total` examples,
    by seed; the test is over `documents`, and over seeds where there are several, corrected over all such
    tests of all systems, which are `tests`.
    """

    run: int
    phenomenon: str
    distance: str
    first_sees: bool
    first_by_seed: Spread
    by_seed: Spread
    documents: int
    total: int
    test: Difference
    tests: int = 1

    @property
    def first(self) -> float:
        """The accuracy of the first system."""
        return self.first_by_seed.mean

    @property
    def own(self) -> float:
        """The accuracy of the system."""
        return self.by_seed.mean

    @property
    def p_corrected(self) -> float:
        """After Holm."""
        return self.test.p_corrected

    @property
    def significant(self) -> bool:
        """Whether the difference is significant."""
        return self.p_corrected < SIGNIFICANT

    @property
    def too_few(self) -> bool:
        """Whether so few documents could show no difference, however large."""
        return least_p(self.documents) * self.tests >= SIGNIFICANT


def accuracies(system: MeasuredSystem, groups: Sequence[Group]) -> dict[str, dict[str, Any]]:
    """Accuracies by distance, in the form of contrastive reports, by phenomenon; means over seeds."""
    found: dict[str, dict[str, Any]] = {}
    for group in groups:
        shares = system.right(group.suite)
        accuracy = Accuracy(
            correct=sum(shares[example.id] for example in group.examples),
            total=len(group.examples),
            ties=0,
            chance=sum(group.chances) / len(group.examples),
        )
        name = f"{CONTROLLED if group.suite.startswith(CONTROLLED) else ''}{group.title}"
        signature = system.runs[0].decisions[group.suite].signature
        entry = found.setdefault(name, {"signature": signature, "by_distance": {}})
        entry["by_distance"][group.distance] = accuracy.as_dict()
    return found


def evidence_of(
    systems: Sequence[MeasuredSystem], groups: Sequence[Group]
) -> tuple[tuple[Evidence, ...], ...]:
    """By system, of the groups whose clue lies in context that it may see; corrected for all of them."""
    flat = []
    for number, system in enumerate(systems):
        for group in groups:
            readings = [run.decisions[group.suite].readings for run in system.runs]
            known = [each for each in readings if each is not None]
            if len(known) == len(readings) and _asks_context(system, group):
                flat.append((number, least_sure([weigh(group, each) for each in known])))
    found = zip([number for number, _ in flat], corrected([each for _, each in flat]), strict=True)
    by_system: list[list[Evidence]] = [[] for _ in systems]
    for number, each in found:
        by_system[number].append(each)
    return tuple(map(tuple, by_system))


def contrastive_tests(systems: Sequence[MeasuredSystem], groups: Sequence[Group]) -> list[ContrastiveTest]:
    """Tests of all systems but the first against it, where the clue lies in context that they may see."""
    found = []
    for number, system in enumerate(systems[1:], start=1):
        for group in groups:
            if not _asks_context(system, group):
                continue
            theirs, ours = (_decided(each, group) for each in (systems[0], system))
            found.append(
                ContrastiveTest(
                    run=number,
                    phenomenon=group.title,
                    distance=group.distance,
                    first_sees=systems[0].window.contains(group.phenomenon, group.distance),
                    first_by_seed=_by_seed(theirs),
                    by_seed=_by_seed(ours),
                    documents=len(set(group.documents)),
                    total=len(group.examples),
                    test=compare_accuracies(theirs, ours, group.documents),
                )
            )
    differences = corrected_differences([each.test for each in found])
    return [replace(each, test=d, tests=len(found)) for each, d in zip(found, differences, strict=True)]


def contrastive_signature(systems: Sequence[MeasuredSystem], tests: int) -> str:
    """The signature of so many tests of contrastive accuracy."""
    several = any(len(system.runs) > 1 for system in systems)
    return (
        f"test:{'flips+welch' if several else 'mcnemar'}|unit:document|sides:2"
        f"|correction:holm-{tests}{'' if several else '-mid-p'}"
        f"|interval:{'student' if several else 'bonett-price'}"
        f"|version:cotext-{__version__}"
    )


def _asks_context(system: MeasuredSystem, group: Group) -> bool:
    return group.distance != SAME_SENTENCE and system.window.contains(group.phenomenon, group.distance)


def _decided(system: MeasuredSystem, group: Group) -> list[list[bool]]:
    """By seed, whether each example of a group is decided right."""
    return [[run.decisions[group.suite].right[e.id] for e in group.examples] for run in system.runs]


def _by_seed(decided: Sequence[Sequence[bool]]) -> Spread:
    return Spread(tuple(100.0 * sum(row) / len(row) for row in decided))
