"""What the figures of a comparison say, in words: who uses context, where, how much, and is it real.

Every sentence is computed from figures that stand in the tables below it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cotext.compare.figures import SIGNIFICANT, ChoiceTest, RunComparison, ScoreOf, UseOf
from cotext.evaluation import render_p


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
    if before > 1000:
        return "the whole document" if after > 1000 else "all sentences before"
    parts = [f"{count} {side}" for count, side in ((before, "before"), (after, "after")) if count]
    return " and ".join(parts) or "one sentence"


def gains(found: RunComparison, run: int) -> list[ChoiceTest]:
    """Groups in which a run chooses right more often than the first, which does not see the clue."""
    return [t for t in _tests(found, run, first_sees=False) if t.significant and t.own > t.first]


def uses_context(found: RunComparison, run: int) -> bool | None:
    """Whether anything shows that a run uses context; None where nothing was measured that could show it."""
    shown = [bool(gains(found, run)), any(_above_chance(found, run)), _adds(found.uses[run])]
    measured = (
        _tests(found, run, first_sees=False),
        _chance_groups(found, run),
        [use for use in found.uses[run] if use.condition == "true"],
    )
    return any(shown) if any(measured) else None


def _which(found: RunComparison) -> Iterable[str]:
    if not found.rows and not any(found.uses):
        return
    states = [uses_context(found, number) for number in range(len(found.runs))]
    blind = [run.title for run in found.runs if run.before + run.after == 0]
    using = [run.title for run, state in zip(found.runs, states, strict=True) if state]
    idle = [
        run.title
        for run, state in zip(found.runs, states, strict=True)
        if state is False and run.title not in blind
    ]
    unknown = [
        run.title
        for run, state in zip(found.runs, states, strict=True)
        if state is None and run.title not in blind
    ]
    if using:
        yield f"{_listed(using)} {_verb(using, 'uses', 'use')} context."
    if idle:
        yield f"{_listed(idle)} {_verb(idle, 'sees', 'see')} context, and nothing shows that it is used."
    if blind:
        yield f"{_listed(blind)} {_verb(blind, 'sees', 'see')} one sentence at a time, and cannot use any."
    if unknown:
        yield (
            f"Of {_listed(unknown)} it cannot be told: nothing measured here depends on context that the "
            "first run does not see."
        )


def _where(found: RunComparison) -> Iterable[str]:
    for number, run in enumerate(found.runs):
        above = _above_chance(found, number) if number == 0 else []
        won = [f"{t.phenomenon} ({_distances(t.distances)})" for t in gains(found, number)] or above
        lost = [
            f"{t.phenomenon} ({_distances(t.distances)})"
            for t in _tests(found, number, first_sees=False)
            if t not in gains(found, number)
        ]
        if not won and not lost:
            continue
        parts = [f"in {_listed(won)}" if won else "nowhere among the choices tested"]
        if lost and won:
            parts.append(f"not in {_listed(lost)}")
        yield f"{run.title}: {'; '.join(parts)}."


def _how_much(found: RunComparison) -> Iterable[str]:
    first = found.runs[0].title
    for number, run in enumerate(found.runs):
        if parts := [
            f"{test.own:.1f} % right in {test.phenomenon}, where {first} has {test.first:.1f} % "
            f"({_points(test)})"
            for test in gains(found, number)
        ]:
            yield f"{run.title}: {_listed(parts)}."
        shared = [t for t in _tests(found, number, first_sees=True) if t.significant]
        if shared:
            parts = [
                f"{'more' if t.own > t.first else 'less'} in {t.phenomenon}, {_distances(t.distances)}: "
                f"{t.own:.1f} % against {t.first:.1f} % ({_points(t)})"
                for t in shared
            ]
            yield f"{run.title} makes of context that {first} sees as well {_listed(parts)}."
        for use in found.uses[number]:
            low, high = use.interval_95
            what = "its true context" if use.condition == "true" else "sentences of other documents"
            verb, to = ("add", "to") if use.nats >= 0 else ("take", "from")
            adds = f"{verb}s" if use.condition == "true" else verb
            yield (
                f"{run.title}: {what} {adds} {abs(use.nats):.4f} nats a token {to} the log-probability of "
                f"the reference [{low:+.4f}, {high:+.4f}]."
            )


def _real(found: RunComparison) -> Iterable[str]:
    if not found.choices:
        if len(found.runs) == 1 and found.rows:
            yield "One run alone: compare it with one that sees less, to tell what context gives."
        return
    real = [t for t in found.choices if t.significant]
    rest = [t for t in found.choices if not t.significant]
    titles = [run.title for run in found.runs]
    if real:
        worst = max(t.p_corrected for t in real)
        yield (
            f"{len(real)} of {len(found.choices)} differences in choices from {titles[0]} are more than "
            f"luck: p at most {render_p(worst)} (McNemar, corrected for all {len(found.choices)} by Holm)."
        )
    if rest:
        listed = [
            f"{titles[t.run]} in {t.phenomenon}, {_distances(t.distances)} ({_points(t)}, "
            f"p {render_p(t.p_corrected)})"
            for t in rest
        ]
        yield f"No difference found: {_listed(listed)}."


def _quality(found: RunComparison) -> Iterable[str]:
    for number, run in enumerate(found.runs):
        for each in found.scores[number]:
            if each.beside_first is not None:
                yield f"{run.title}: {_score_line(each, found.runs[0].title)}"


def _score_line(each: ScoreOf, first: str) -> str:
    assert each.beside_first is not None
    low, high = each.beside_first.interval_95
    p = each.beside_first.p_corrected
    told = "no difference found" if p >= SIGNIFICANT else "a real difference"
    if p < SIGNIFICANT:
        lower_is_better = each.score.protocol == "ter"
        told = "better" if (each.beside_first.difference > 0) != lower_is_better else "worse"
        told = f"{told}, and more than luck on this test set"
    return (
        f"{each.score.title} {each.score.value:.2f}, {each.beside_first.difference:+.2f} [{low:+.2f}, "
        f"{high:+.2f}] from {first}, p {render_p(p)}: {told}."
    )


def _tests(found: RunComparison, run: int, *, first_sees: bool) -> list[ChoiceTest]:
    return [t for t in found.choices if t.run == run and t.first_sees is first_sees]


def _chance_groups(found: RunComparison, run: int) -> list[str]:
    """Groups of the controlled corpus whose clue a run may see in its context, as phenomenon and distance."""
    return [
        f"{row.phenomenon} ({_distances((row.distance,))})"
        for row in found.rows
        if row.exact_chance and row.distance != "0" and row.cells[run].in_reach
    ]


def _above_chance(found: RunComparison, run: int) -> list[str]:
    """Those of the chance groups in which a run is right more often than guessing, by its interval."""
    return [
        f"{row.phenomenon} ({_distances((row.distance,))})"
        for row in found.rows
        if row.exact_chance
        and row.distance != "0"
        and row.cells[run].in_reach
        and row.cells[run].low > row.chance
    ]


def _adds(uses: Sequence[UseOf]) -> bool:
    """Whether true context adds to the probability of the reference, and more than any other would."""
    by_condition = {use.condition: use for use in uses}
    true, other = by_condition.get("true"), by_condition.get("random")
    if true is None or true.interval_95[0] <= 0:
        return False
    return other is None or other.nats < true.interval_95[0]


def _points(test: ChoiceTest) -> str:
    low, high = test.test.interval_95
    return f"{test.test.difference:+.1f} points [{low:+.1f}, {high:+.1f}]"


def _distances(distances: Sequence[str]) -> str:
    names = {"ahead": "the next sentence", "unknown": "distance not told"}
    told = [names[d] for d in distances if d in names]
    back = [d for d in distances if d not in names]
    return ", ".join([*([f"{', '.join(back)} back"] if back else []), *told])


def _listed(parts: Sequence[str]) -> str:
    joint = "; " if any("," in part for part in parts) else ", "
    if len(parts) < 2:
        return "".join(parts)
    return f"{joint.join(parts[:-1])}{';' if joint == '; ' else ''} and {parts[-1]}"


def _verb(subjects: Sequence[str], one: str, several: str) -> str:
    return one if len(subjects) == 1 else several
