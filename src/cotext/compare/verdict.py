"""What the figures of a comparison say, in words: who uses context, where, how much, and is it real.

Every sentence is computed from figures that stand in the tables below it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from cotext.compare.figures import SIGNIFICANT, WITHIN, ChoiceTest, RunComparison, ScoreOf, UseOf
from cotext.comparison import Row
from cotext.metrics.text import render_p


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
    return [test for test in _tests(found, run, first_sees=False) if _gained(test)]


def uses_context(found: RunComparison, run: int) -> bool | None:
    """Whether anything shows that a run uses context; None where nothing was measured that could show it."""
    shown = [bool(gains(found, run)), any(_above_chance(found, run)), _adds(found.uses[run])]
    measured = (
        _tests(found, run, first_sees=False),
        _chance_rows(found, run),
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
        tests = _tests(found, number, first_sees=False)
        won = _places(t for t in tests if _gained(t)) or ([] if tests else _above_chance(found, number))
        rest = _places(t for t in tests if not _gained(t))
        if won:
            yield f"{run.title}: in {_listed(won)}{'; not in ' if rest else ''}{_listed(rest)}."
        elif rest:
            yield f"{run.title}: nowhere among {_listed(rest)}."


def _how_much(found: RunComparison) -> Iterable[str]:
    first = found.runs[0].title
    for number, run in enumerate(found.runs):
        by_phenomenon = groupby(gains(found, number), key=lambda test: test.phenomenon)
        if parts := [_amount(phenomenon, list(tests), first) for phenomenon, tests in by_phenomenon]:
            yield f"{run.title}: {_listed(parts)}."
        shared = [t for t in _tests(found, number, first_sees=True) if t.significant]
        if shared:
            parts = [
                f"{'more' if t.own > t.first else 'less'} in {_place(t.phenomenon, [t.distance])}: "
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
            f"luck: {_at_most(worst)} (McNemar, corrected for all {len(found.choices)} by Holm)."
        )
    if rest:
        for number, title in enumerate(titles):
            if places := _places(t for t in rest if t.run == number):
                least = min(t.p_corrected for t in rest if t.run == number)
                yield (
                    f"No difference found: {title} in {_listed(places)} (p "
                    f"{'at least ' if least < 1 else ''}{render_p(least)})."
                )


def _quality(found: RunComparison) -> Iterable[str]:
    first = found.runs[0].title
    for number, run in enumerate(found.runs):
        tested = [each for each in found.scores[number] if each.beside_first is not None]
        outcomes = dict.fromkeys(_outcome(each) for each in tested)
        for outcome in outcomes:
            parts = [_score_words(each) for each in tested if _outcome(each) == outcome]
            yield f"{run.title}: {outcome} {first}: {', '.join(parts)}."


def _outcome(each: ScoreOf) -> str:
    assert each.beside_first is not None
    if each.beside_first.p_corrected >= SIGNIFICANT:
        return "no difference found from"
    lower_is_better = each.score.protocol == "ter"
    better = (each.beside_first.difference > 0) != lower_is_better
    return f"{'better' if better else 'worse'}, by more than luck, than"


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


def _chance_rows(found: RunComparison, run: int) -> list[Row]:
    """Groups of the controlled corpus whose clue a run may see in its context."""
    return [
        row for row in found.rows if row.exact_chance and row.distance != WITHIN and row.cells[run].in_reach
    ]


def _above_chance(found: RunComparison, run: int) -> list[str]:
    """Those of the chance groups in which a run is right more often than guessing, by its interval."""
    above = [row for row in _chance_rows(found, run) if row.cells[run].low > row.chance]
    by_phenomenon = groupby(above, key=lambda row: row.phenomenon)
    return [_place(name, [row.distance for row in rows]) for name, rows in by_phenomenon]


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


def _gained(test: ChoiceTest) -> bool:
    return test.significant and test.own > test.first


def _amount(phenomenon: str, tests: Sequence[ChoiceTest], first: str) -> str:
    """What a run gains in a phenomenon over all distances, each with an interval in the table."""
    sizes = [test.test.total for test in tests]
    own, theirs = (
        sum(value * size for value, size in zip(values, sizes, strict=True)) / sum(sizes)
        for values in ([test.own for test in tests], [test.first for test in tests])
    )
    lows, highs = zip(*(test.test.interval_95 for test in tests), strict=True)
    interval = f", 95 % intervals by distance from {min(lows):+.1f} to {max(highs):+.1f}"
    if len(tests) == 1:
        interval = f" [{lows[0]:+.1f}, {highs[0]:+.1f}]"
    return (
        f"{own:.1f} % right in {phenomenon}, where {first} has {theirs:.1f} % ({own - theirs:+.1f} "
        f"points{interval})"
    )


def _places(tests: Iterable[ChoiceTest]) -> list[str]:
    by_phenomenon = groupby(tests, key=lambda test: test.phenomenon)
    return [_place(name, [test.distance for test in group]) for name, group in by_phenomenon]


def _place(phenomenon: str, distances: Sequence[str]) -> str:
    """As in "pronoun (1, 2, 3 back)"."""
    names = {"ahead": "in the next sentence", "unknown": "distance not told"}
    back = [distance for distance in distances if distance not in names]
    told = [f"{', '.join(back)} back"] if back else []
    return f"{phenomenon} ({', '.join([*told, *(names[d] for d in distances if d in names)])})"


def _listed(parts: Sequence[str]) -> str:
    joint = "; " if any("," in part for part in parts) else ", "
    if len(parts) < 2:
        return "".join(parts)
    return f"{joint.join(parts[:-1])}{';' if joint == '; ' else ''} and {parts[-1]}"


def _verb(subjects: Sequence[str], one: str, several: str) -> str:
    return one if len(subjects) == 1 else several
