"""Conclusions of a comparison in words: which system uses context, where, how much, and how surely.

Every sentence is computed from figures that stand in the tables below it. What it takes to say that a system
uses context is in `metrics.evidence`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from cotext.evaluation.metrics.interface import is_lower_better
from cotext.evaluation.statistics.seeds import Spread
from cotext.evaluation.statistics.significance import SIGNIFICANT, least_p
from cotext.evaluation.studies.compare.comparison import ContrastiveTest, RunComparison, SeedFigure
from cotext.evaluation.studies.compare.measured import ContextGain
from cotext.evaluation.studies.compare.quality import TestedScore
from cotext.evaluation.studies.compare.system import MeasuredSystem
from cotext.evaluation.studies.contrastive.contrastive_rows import WHOLE_DOCUMENT
from cotext.evaluation.studies.contrastive.evidence import (
    Evidence,
    group_in_words,
    groups_in_words,
    shortfall,
    too_few,
)
from cotext.runtime.tables import listed, render_p


@dataclass(frozen=True, slots=True)
class Answer:
    """A question about the runs, and its answers, one a line."""

    question: str
    lines: tuple[str, ...]


def verdict(found: RunComparison) -> tuple[Answer, ...]:
    """The answers, those that there are figures for."""
    answers = [
        Answer("Which system uses context?", tuple(_which(found))),
        Answer("Where?", tuple(_where(found))),
        Answer("How much?", tuple(_how_much(found))),
        Answer("Are the differences significant?", tuple(_real(found))),
        Answer("Are the translations better?", tuple(_quality(found))),
        Answer("How much do seeds differ?", tuple(_seeds(found))),
    ]
    return tuple(answer for answer in answers if answer.lines)


def context_words(run: MeasuredSystem) -> str:
    """The context window of a system in words; nothing where it is not known."""
    return "" if run.first.given else window_words(run.first.window.before, run.first.window.after)


def window_words(before: int, after: int) -> str:
    """A context window in words."""
    if before == WHOLE_DOCUMENT:
        return "the whole document" if after == WHOLE_DOCUMENT else "all sentences before"
    parts = [f"{count} {side}" for count, side in ((before, "before"), (after, "after")) if count]
    return " and ".join(parts) or "one sentence"


def uses_context(found: RunComparison, run: int) -> bool | None:
    """Whether it is shown that a run uses context: on some group all that it takes holds, and the test set,

    where it was scored, does not speak against it. None where nothing was measured that could show it.
    """
    tested = [each.used for each in found.evidence[run] if each.used is not None]
    if not tested:
        return None
    return any(tested) and _against(found, run) is None


def _against(found: RunComparison, run: int) -> ContextGain | None:
    """True context of the test set, if it adds no more than sentences of other documents do.

    Where there are documents enough to tell.
    """
    for use in found.gains[run]:
        if use.p_foreign is not None and least_p(use.documents) < SIGNIFICANT:
            foreign = next(other for other in found.gains[run] if other.condition == "random")
            if use.nats <= foreign.nats or use.p_foreign >= SIGNIFICANT:
                return use
    return None


def _which(found: RunComparison) -> Iterable[str]:
    if not found.rows and not any(found.gains):
        return
    states = {run.title: uses_context(found, number) for number, run in enumerate(found.runs)}
    given = [run.title for run in found.runs if run.first.given]
    blind = [run.title for run in found.runs if not (run.first.given or run.first.window.has_context)]
    if using := [title for title, state in states.items() if state]:
        yield f"{listed(using)} {_verb(using, 'uses', 'use')} context."
    for number, run in enumerate(found.runs):
        if states[run.title] and run.seeds:
            yield f"For {run.title} this is shown by each of its {len(run.seeds)} seeds."
        if states[run.title] is False and run.title not in blind:
            yield (
                f"{run.title} has context, but its use is not significant{_by_some(found, number)}: "
                f"{_missing(found, number)}."
            )
    if blind:
        yield f"{listed(blind)} {_verb(blind, 'reads', 'read')} single sentences and cannot use context."
    for number, run in enumerate(found.runs):
        if states[run.title] is None and run.title not in (*blind, *given):
            yield f"For {run.title} it cannot be tested: {_untold(found, number)}."
    if given:
        yield f"Of {listed(given)} nothing is known but {_verb(given, 'its', 'their')} translations."


def _by_some(found: RunComparison, number: int) -> str:
    """How many seeds of a system show by themselves what not all of them show."""
    run = found.runs[number]
    shown = sum(
        any(each.by_seed[index].used for each in found.evidence[number]) for index in range(len(run.seeds))
    )
    return f" in each of its {len(run.seeds)} seeds ({shown} of them show it)" if run.seeds else ""


def _missing(found: RunComparison, run: int) -> str:
    against = _against(found, run)
    if against is None or not any(each.used for each in found.evidence[run]):
        return shortfall(found.evidence[run])
    used = listed(groups_in_words(each for each in found.evidence[run] if each.used))
    return (
        f"its contrastive accuracy shows use in {used}, but the references of the test set are no more "
        "probable than with context from other documents "
        f"(p {render_p(against.p_foreign or 0.0)})"
    )


def _untold(found: RunComparison, run: int) -> str:
    """Why it cannot be tested whether a run uses context."""
    if found.evidence[run]:
        return too_few(found.evidence[run])
    if not found.rows:
        return "no contrastive suite was scored, and CXMI alone does not show which candidate is preferred"
    sees = any(row.cells[run].in_window and row.distance != "0" for row in found.rows)
    if sees:
        return "its accuracy without context and with context from other documents was not measured"
    return "no clue of the suites lies within its context window"


def _where(found: RunComparison) -> Iterable[str]:
    for number, run in enumerate(found.runs):
        evidence = found.evidence[number]
        used = groups_in_words(each for each in evidence if each.used)
        rest = groups_in_words(each for each in evidence if each.used is False)
        few = groups_in_words(each for each in evidence if each.used is None)
        parts = [f"in {listed(used)}"] if used else []
        if rest:
            parts.append(f"not significant in {listed(rest)}")
        if few:
            parts.append(f"too few documents in {listed(few)}")
        if parts:
            yield f"{run.title}: {'; '.join(parts)}."


def _how_much(found: RunComparison) -> Iterable[str]:
    first = found.runs[0].title
    for number, run in enumerate(found.runs):
        used = [each for each in found.evidence[number] if each.used]
        by_title = groupby(used, key=lambda each: each.group.title)
        if parts := [_amount(title, list(members)) for title, members in by_title]:
            yield f"{run.title}: {listed(parts)}."
        shared = [t for t in _tests(found, number, first_sees=True) if t.significant]
        if shared:
            parts = [
                f"{'higher' if t.own > t.first else 'lower'} in "
                f"{group_in_words(t.phenomenon, [t.distance])}: {t.own:.1f} % against "
                f"{t.first:.1f} % ({_points(t)})"
                for t in shared
            ]
            yield (
                f"Accuracy of {run.title} where the clue is within the context window of {first}, too: "
                f"{listed(parts)}."
            )
        yield from (_added(found, run.title, use) for use in found.gains[number])


def _amount(title: str, used: list[Evidence]) -> str:
    """The accuracy of a run over all distances where it uses context, and with its control contexts."""
    sizes = [len(each.group.examples) for each in used]

    def mean(values: Iterable[float]) -> float:
        return sum(value * size for value, size in zip(values, sizes, strict=True)) / sum(sizes)

    own = mean(each.conditions["chance"].own for each in used)
    chance, none, foreign = (
        mean(each.conditions[name].other for each in used) for name in ("chance", "none", "foreign")
    )
    return (
        f"{own:.1f} % accuracy in {title} ({none:.1f} % without context, {foreign:.1f} % with context "
        f"from other documents, {chance:.1f} % by chance)"
    )


def _added(found: RunComparison, title: str, use: ContextGain) -> str:
    low, high = use.interval_95
    what = "the true context" if use.condition == "true" else "sentences of other documents"
    verb, to = ("add", "to") if use.nats >= 0 else ("take", "from")
    beside = ""
    if use.p_foreign is not None:
        beside = f"; p {render_p(use.p_foreign)} against context from other documents"
        if least_p(use.documents) >= SIGNIFICANT:
            beside = f"; too few documents ({use.documents}) for a significant difference from random context"
    return (
        f"{title}: {what} {verb}{'s' if use.condition == 'true' else ''} {abs(use.nats):.4f} nats per token "
        f"{to} the log-probability of the reference [{low:+.4f}, {high:+.4f}]{beside}."
    )


def _real(found: RunComparison) -> Iterable[str]:
    if not found.contrastive_tests:
        if len(found.runs) == 1 and found.rows:
            yield "A single run: compare it with one that has less context, to measure the gain."
        return
    real = [t for t in found.contrastive_tests if t.significant]
    titles = [run.title for run in found.runs]
    count = len(found.contrastive_tests)
    if real:
        worst = max(t.p_corrected for t in real)
        several = any(run.seeds for run in found.runs)
        test = "by documents and seeds" if several else "McNemar by documents"
        yield (
            f"{len(real)} of {count} differences in contrastive accuracy from {titles[0]} are significant: "
            f"{_at_most(worst)} ({test}, Holm correction for all {count})."
        )
    for number, title in enumerate(titles):
        tests = [t for t in found.contrastive_tests if t.run == number]
        if gained := [t for t in tests if t.significant and t.own > t.first and not _by_context(found, t)]:
            yield (
                f"{title} has a higher accuracy than {titles[0]} in {listed(_groups(gained))}, but not "
                "significantly because of its context."
            )
        rest = [t for t in tests if not t.significant]
        if able := [t for t in rest if not t.too_few]:
            least = min(t.p_corrected for t in able)
            yield (
                f"No significant difference: {title} in {listed(_groups(able))} (p "
                f"{'at least ' if least < 1 else ''}{render_p(least)})."
            )
        if few := [t for t in rest if t.too_few]:
            most = max(t.documents for t in few)
            yield (
                f"Too few documents (at most {most}) for any significant difference: {title} in "
                f"{listed(_groups(few))}."
            )


def _by_context(found: RunComparison, test: ContrastiveTest) -> bool:
    """Whether context use is significant on the examples of a test."""
    return any(
        each.used and (each.group.title, each.group.distance) == (test.phenomenon, test.distance)
        for each in found.evidence[test.run]
    )


def _quality(found: RunComparison) -> Iterable[str]:
    for number, run in enumerate(found.runs):
        tested = [each for each in found.scores[number] if each.against_first is not None]
        outcomes = dict.fromkeys(_outcome(found, each) for each in tested)
        for outcome in outcomes:
            parts = [_score_words(each) for each in tested if _outcome(found, each) == outcome]
            yield f"{run.title}: {outcome}: {', '.join(parts)}."


def _outcome(found: RunComparison, each: TestedScore) -> str:
    assert each.against_first is not None
    first = found.runs[0].title
    test = found.tests[each.score.protocol]
    if least_p(test.units) * len(test.differences) >= SIGNIFICANT:
        return f"too few documents ({test.units}) for a significant difference from {first}"
    if each.against_first.p_corrected >= SIGNIFICANT:
        return f"no significant difference from {first}"
    better = (each.against_first.difference > 0) != is_lower_better(each.score.protocol)
    return f"significantly {'better' if better else 'worse'} than {first}"


def _score_words(each: TestedScore) -> str:
    assert each.against_first is not None
    low, high = each.against_first.interval_95
    test = each.against_first
    alone = f"; p {render_p(test.p_documents)} over documents alone" if test.over_seeds else ""
    return (
        f"{each.score.title} {each.score.value:.1f} ({test.difference:+.2f} [{low:+.2f}, "
        f"{high:+.2f}], p {render_p(test.p_corrected)}{alone})"
    )


def _seeds(found: RunComparison) -> Iterable[str]:
    first = found.runs[0].title
    for number, run in enumerate(found.runs):
        figures = found.over_seeds(number)
        if run.seeds and (scores := [each for each in figures if not each.group]):
            parts = [_spread_words(each.name, each.by_seed) for each in scores]
            yield f"{run.title} (seeds {listed([str(seed) for seed in run.seeds])}): {'; '.join(parts)}."
        if lost := [each for each in figures if each.lost_in_seeds and not each.group]:
            parts = [_lost_words(each) for each in lost]
            yield (f"Seeds of one system differ as much as {run.title} and {first} do: {'; '.join(parts)}.")
        if choices := [each for each in figures if each.lost_in_seeds and each.group]:
            by_name = groupby(choices, key=lambda each: each.name)
            parts = [group_in_words(name, [each.group for each in group]) for name, group in by_name]
            yield (
                f"Seeds of one system differ as much in contrastive accuracy as {run.title} and {first} do: "
                f"{listed(parts)}."
            )


def _spread_words(name: str, spread: Spread) -> str:
    low, high = min(spread.values), max(spread.values)
    deviation = "" if spread.deviation is None else f", standard deviation {spread.deviation:.2f}"
    return f"{name} {low:.1f} to {high:.1f}{deviation}"


def _lost_words(each: SeedFigure) -> str:
    assert each.against_first is not None
    known = [s.deviation for s in (each.first_by_seed, each.by_seed) if s.deviation is not None]
    return (
        f"{each.name}, difference {each.against_first.difference:+.2f}, standard deviation of seeds "
        f"{' and '.join(f'{deviation:.2f}' for deviation in known)}"
    )


def _at_most(p: float) -> str:
    return "p below 0.0001" if p < 0.0001 else f"p at most {render_p(p)}"


def _tests(found: RunComparison, run: int, *, first_sees: bool) -> list[ContrastiveTest]:
    return [t for t in found.contrastive_tests if t.run == run and t.first_sees is first_sees]


def _points(test: ContrastiveTest) -> str:
    low, high = test.test.interval_95
    return f"{test.test.difference:+.1f} points [{low:+.1f}, {high:+.1f}]"


def _groups(tests: Iterable[ContrastiveTest]) -> list[str]:
    by_phenomenon = groupby(tests, key=lambda test: test.phenomenon)
    return [group_in_words(name, [test.distance for test in group]) for name, group in by_phenomenon]


def _verb(subjects: list[str], one: str, several: str) -> str:
    return one if len(subjects) == 1 else several
