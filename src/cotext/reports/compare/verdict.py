"""What the figures of a comparison say, in words: who uses context, where, how much, and is it real.

Every sentence is computed from figures that stand in the tables below it. What it takes to say that a system
uses context is in `metrics.evidence`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from cotext.analysis.contrastive_rows import EVERYTHING
from cotext.analysis.runs.comparison import ChoiceTest, RunComparison, ScoreOf, UseOf
from cotext.metrics.evidence import Evidence
from cotext.metrics.evidence_words import place, places, shortfall, too_few
from cotext.metrics.flips import SIGNIFICANT, least_p
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
        Answer("Is the difference real?", tuple(_real(found))),
        Answer("Are the translations better?", tuple(_quality(found))),
    ]
    return tuple(answer for answer in answers if answer.lines)


def sight(before: int, after: int) -> str:
    """What a system may see of the context, in words."""
    if before == EVERYTHING:
        return "the whole document" if after == EVERYTHING else "all sentences before"
    parts = [f"{count} {side}" for count, side in ((before, "before"), (after, "after")) if count]
    return " and ".join(parts) or "one sentence"


def uses_context(found: RunComparison, run: int) -> bool | None:
    """Whether it is shown that a run uses context: on some group all that it takes holds, and the test set,

    where it was scored, does not speak against it. None where nothing was measured that could show it.
    """
    told = [each.used for each in found.evidence[run] if each.used is not None]
    if not told:
        return None
    return any(told) and _against(found, run) is None


def _against(found: RunComparison, run: int) -> UseOf | None:
    """True context of the test set, if it adds no more than sentences of other documents do.

    Where there are documents enough to tell.
    """
    for use in found.uses[run]:
        if use.p_foreign is not None and least_p(use.documents) < SIGNIFICANT:
            foreign = next(other for other in found.uses[run] if other.condition == "random")
            if use.nats <= foreign.nats or use.p_foreign >= SIGNIFICANT:
                return use
    return None


def _which(found: RunComparison) -> Iterable[str]:
    if not found.rows and not any(found.uses):
        return
    states = {run.title: uses_context(found, number) for number, run in enumerate(found.runs)}
    blind = [run.title for run in found.runs if not run.sight.context]
    if using := [title for title, state in states.items() if state]:
        yield f"{listed(using)} {_verb(using, 'uses', 'use')} context."
    for number, run in enumerate(found.runs):
        if states[run.title] is False and run.title not in blind:
            yield f"{run.title} sees context, and it is not shown that it uses it: {_missing(found, number)}."
    if blind:
        yield f"{listed(blind)} {_verb(blind, 'sees', 'see')} one sentence at a time, and cannot use any."
    for number, run in enumerate(found.runs):
        if states[run.title] is None and run.title not in blind:
            yield f"Of {run.title} it cannot be told: {_untold(found, number)}."


def _missing(found: RunComparison, run: int) -> str:
    against = _against(found, run)
    if against is None or not any(each.used for each in found.evidence[run]):
        return shortfall(found.evidence[run])
    return (
        f"its choices do in {listed(places(each for each in found.evidence[run] if each.used))}, but of the "
        "test set it finds the references no more probable than beside sentences of other documents "
        f"(p {render_p(against.p_foreign or 0.0)})"
    )


def _untold(found: RunComparison, run: int) -> str:
    """Why it cannot be told whether a run uses context."""
    if found.evidence[run]:
        return too_few(found.evidence[run])
    if not found.rows:
        return "no suite was decided, and probabilities alone do not show what is chosen"
    sees = any(row.cells[run].in_reach and row.distance != "0" for row in found.rows)
    if sees:
        return "its choices without context and in that of other documents were not measured"
    return "no clue of the suites lies in context that it sees"


def _where(found: RunComparison) -> Iterable[str]:
    for number, run in enumerate(found.runs):
        evidence = found.evidence[number]
        used = places(each for each in evidence if each.used)
        rest = places(each for each in evidence if each.used is False)
        few = places(each for each in evidence if each.used is None)
        parts = [f"in {listed(used)}"] if used else []
        if rest:
            parts.append(f"not shown in {listed(rest)}")
        if few:
            parts.append(f"too few documents to tell in {listed(few)}")
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
                f"{'more' if t.own > t.first else 'fewer'} in {place(t.phenomenon, [t.distance])}: "
                f"{t.own:.1f} % against {t.first:.1f} % ({_points(t)})"
                for t in shared
            ]
            yield f"{run.title} is right where {first} sees the clue as well: {listed(parts)}."
        yield from (_added(found, run.title, use) for use in found.uses[number])


def _amount(title: str, used: list[Evidence]) -> str:
    """How often a run is right over all distances where it uses context, and under its own controls."""
    sizes = [len(each.group.examples) for each in used]

    def mean(values: Iterable[float]) -> float:
        return sum(value * size for value, size in zip(values, sizes, strict=True)) / sum(sizes)

    own = mean(each.conditions["chance"].own for each in used)
    chance, none, foreign = (
        mean(each.conditions[name].other for each in used) for name in ("chance", "none", "foreign")
    )
    return (
        f"{own:.1f} % right in {title} ({none:.1f} % without context, {foreign:.1f} % in foreign context, "
        f"{chance:.1f} % by guessing)"
    )


def _added(found: RunComparison, title: str, use: UseOf) -> str:
    low, high = use.interval_95
    what = "its true context" if use.condition == "true" else "sentences of other documents"
    verb, to = ("add", "to") if use.nats >= 0 else ("take", "from")
    beside = ""
    if use.p_foreign is not None:
        beside = f"; p {render_p(use.p_foreign)} beside sentences of other documents"
        if least_p(use.documents) >= SIGNIFICANT:
            beside = f"; too few documents ({use.documents}) for a difference from others' sentences to show"
    return (
        f"{title}: {what} {verb}{'s' if use.condition == 'true' else ''} {abs(use.nats):.4f} nats a token "
        f"{to} the log-probability of the reference [{low:+.4f}, {high:+.4f}]{beside}."
    )


def _real(found: RunComparison) -> Iterable[str]:
    if not found.choices:
        if len(found.runs) == 1 and found.rows:
            yield "One run alone: compare it with one that sees less, to tell what its context gives."
        return
    real = [t for t in found.choices if t.significant]
    titles = [run.title for run in found.runs]
    if real:
        worst = max(t.p_corrected for t in real)
        yield (
            f"{len(real)} of {len(found.choices)} differences in choices from {titles[0]} are more than "
            f"luck: {_at_most(worst)} (McNemar by documents, corrected for all {len(found.choices)} by Holm)."
        )
    for number, title in enumerate(titles):
        tests = [t for t in found.choices if t.run == number]
        if gained := [t for t in tests if t.significant and t.own > t.first and not _by_context(found, t)]:
            yield (
                f"{title} is right more often than {titles[0]} in {listed(_places(gained))}, but it is not "
                "shown that its context makes it so."
            )
        rest = [t for t in tests if not t.significant]
        if able := [t for t in rest if not t.too_few]:
            least = min(t.p_corrected for t in able)
            yield (
                f"No difference found: {title} in {listed(_places(able))} (p "
                f"{'at least ' if least < 1 else ''}{render_p(least)})."
            )
        if few := [t for t in rest if t.too_few]:
            most = max(t.test.documents for t in few)
            yield (
                f"Too few documents (at most {most}) for any difference to show: {title} in "
                f"{listed(_places(few))}."
            )


def _by_context(found: RunComparison, test: ChoiceTest) -> bool:
    """Whether it is shown that the run uses context in the choices of a test."""
    return any(
        each.used and (each.group.title, each.group.distance) == (test.phenomenon, test.distance)
        for each in found.evidence[test.run]
    )


def _quality(found: RunComparison) -> Iterable[str]:
    for number, run in enumerate(found.runs):
        tested = [each for each in found.scores[number] if each.beside_first is not None]
        outcomes = dict.fromkeys(_outcome(found, each) for each in tested)
        for outcome in outcomes:
            parts = [_score_words(each) for each in tested if _outcome(found, each) == outcome]
            yield f"{run.title}: {outcome}: {', '.join(parts)}."


def _outcome(found: RunComparison, each: ScoreOf) -> str:
    assert each.beside_first is not None
    first = found.runs[0].title
    test = found.tests[each.score.protocol]
    if least_p(test.units) * len(test.comparisons) >= SIGNIFICANT:
        return f"too few documents ({test.units}) for a difference from {first} to show"
    if each.beside_first.p_corrected >= SIGNIFICANT:
        return f"no difference found from {first}"
    lower_is_better = each.score.protocol == "ter"
    better = (each.beside_first.difference > 0) != lower_is_better
    return f"{'better' if better else 'worse'}, by more than luck, than {first}"


def _score_words(each: ScoreOf) -> str:
    assert each.beside_first is not None
    low, high = each.beside_first.interval_95
    return (
        f"{each.score.title} {each.score.value:.1f} ({each.beside_first.difference:+.2f} [{low:+.2f}, "
        f"{high:+.2f}], p {render_p(each.beside_first.p_corrected)})"
    )


def _at_most(p: float) -> str:
    return "p below 0.0001" if p < 0.0001 else f"p at most {render_p(p)}"


def _tests(found: RunComparison, run: int, *, first_sees: bool) -> list[ChoiceTest]:
    return [t for t in found.choices if t.run == run and t.first_sees is first_sees]


def _points(test: ChoiceTest) -> str:
    low, high = test.test.interval_95
    return f"{test.test.difference:+.1f} points [{low:+.1f}, {high:+.1f}]"


def _places(tests: Iterable[ChoiceTest]) -> list[str]:
    by_phenomenon = groupby(tests, key=lambda test: test.phenomenon)
    return [place(name, [test.distance for test in group]) for name, group in by_phenomenon]


def _verb(subjects: list[str], one: str, several: str) -> str:
    return one if len(subjects) == 1 else several
