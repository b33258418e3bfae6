"""Conclusions of a comparison in words: which systems use context, where, how much, and how certainly."""

from collections.abc import Iterable
from itertools import groupby

from cotext.evaluation.metrics.interface import is_lower_better
from cotext.evaluation.statistics.significance import SIGNIFICANT, are_too_few
from cotext.evaluation.studies.compare.comparison import RunComparison
from cotext.evaluation.studies.compare.measured import ContextGain, MeasuredSystem
from cotext.evaluation.studies.contrastive.evidence import (
    WHOLE_DOCUMENT,
    Evidence,
    groups_in_words,
    shortfall,
    too_few,
)
from cotext.runtime.rendering import listed, render_p


def verdict(result: RunComparison) -> dict[str, list[str]]:
    """Return the questions about the runs that have an answer, each with the lines of its answer."""
    answers = {
        "Which system uses context?": _which(result),
        "Where?": _where(result),
        "How much?": _how_much(result),
        "Are the differences significant?": _real(result),
        "Are the translations better?": _quality(result),
    }
    return {question: lines for question, answer in answers.items() if (lines := list(answer))}


def context_words(run: MeasuredSystem) -> str:
    window = run.first.window
    before, after = window.before, window.after
    if before == WHOLE_DOCUMENT:
        return "the whole document" if after == WHOLE_DOCUMENT else "all sentences before"
    parts = [f"{count} {side}" for count, side in ((before, "before"), (after, "after")) if count]
    words, written = " and ".join(parts) or "one sentence", window.target_before
    if written <= before:
        return words
    return f"{words}, {'all' if written == WHOLE_DOCUMENT else written} before in the translation"


def uses_context(result: RunComparison, run: int) -> bool | None:
    """Return whether context use is significant for a run; None if the required measurements are missing.

    All conditions must hold for a group of examples. On a test set, if any, true context must help
    significantly more than context from other documents.
    """
    tested = [evidence.used for evidence in result.evidence[run] if evidence.used is not None]
    if not tested:
        return None
    return any(tested) and _against(result, run) is None


def _against(result: RunComparison, run: int) -> ContextGain | None:
    """Return the gain from true context on the test set if context of other documents helps as much, or None.

    "As much": the gain is not significantly larger, though there are enough documents.
    """
    for use in result.gains[run]:
        if use.p_foreign is not None and not are_too_few(use.documents):
            foreign = next(other for other in result.gains[run] if other.condition == "random")
            if use.nats <= foreign.nats or use.p_foreign >= SIGNIFICANT:
                return use
    return None


def _which(result: RunComparison) -> Iterable[str]:
    if not result.rows and not any(result.gains):
        return
    states = {run.title: uses_context(result, number) for number, run in enumerate(result.runs)}
    blind = [run.title for run in result.runs if not run.first.window.has_context]
    if using := [title for title, state in states.items() if state]:
        yield f"{listed(using)} {_verb(using, 'uses', 'use')} context."
    for number, run in enumerate(result.runs):
        if states[run.title] and run.seeds:
            yield f"{run.title}: context use is significant for each of its {len(run.seeds)} seeds."
        if states[run.title] is False and run.title not in blind:
            yield (
                f"{run.title} has context, but its use is not significant{_by_some(result, number)}: "
                f"{_missing(result, number)}."
            )
    if blind:
        yield f"{listed(blind)} {_verb(blind, 'reads', 'read')} single sentences and cannot use context."
    for number, run in enumerate(result.runs):
        if states[run.title] is None and run.title not in blind:
            yield f"Context use of {run.title} cannot be tested: {_why_untestable(result, number)}."


def _by_some(result: RunComparison, number: int) -> str:
    """Return a phrase with the number of seeds for which context use is significant; empty without seeds."""
    by_seed = zip(*(evidence.by_seed for evidence in result.evidence[number]), strict=True)
    used = [any(evidence.used for evidence in of_seed) for of_seed in by_seed]
    return f" for the system (only for {sum(used)} of its {len(used)} seeds)" if used else ""


def _missing(result: RunComparison, run: int) -> str:
    against = _against(result, run)
    if against is None or not any(evidence.used for evidence in result.evidence[run]):
        return shortfall(result.evidence[run])
    used = groups_in_words(evidence.group for evidence in result.evidence[run] if evidence.used)
    return (
        f"contrastive accuracy is significantly higher with context in {used}; but the references of "
        "the test set are not significantly more probable with their own context than with "
        f"context from other documents (p {render_p(against.p_foreign or 0.0)})"
    )


def _why_untestable(result: RunComparison, run: int) -> str:
    if result.evidence[run]:
        return too_few(result.evidence[run])
    if not result.rows:
        return "no contrastive suite was scored, and CXMI alone does not show which candidate is preferred"
    if any(row.cells[run].in_window and row.group.distance != "0" for row in result.rows):
        return "its accuracy without context and with context from other documents was not measured"
    return "in all suites, the disambiguating sentence is outside its context window"


def _where(result: RunComparison) -> Iterable[str]:
    for number, run in enumerate(result.runs):
        parts = []
        for used, words in ((True, "in"), (False, "not significant in"), (None, "too few documents in")):
            if groups := groups_in_words(e.group for e in result.evidence[number] if e.used is used):
                parts.append(f"{words} {groups}")
        if parts:
            yield f"{run.title}: {'; '.join(parts)}."


def _how_much(result: RunComparison) -> Iterable[str]:
    for number, run in enumerate(result.runs):
        used = [evidence for evidence in result.evidence[number] if evidence.used]
        by_title = groupby(used, key=lambda evidence: evidence.group.title)
        if parts := [_amount(title, list(members)) for title, members in by_title]:
            yield f"{run.title}: {listed(parts)}."
        yield from (_added(run.title, use) for use in result.gains[number])


def _amount(title: str, used: list[Evidence]) -> str:
    """Return a phrase with the accuracies of a run, averaged over the distances at which it uses context."""
    sizes = [len(evidence.group.examples) for evidence in used]

    def mean(values: Iterable[float]) -> float:
        return sum(value * size for value, size in zip(values, sizes, strict=True)) / sum(sizes)

    accuracy = mean(evidence.conditions["chance"].own for evidence in used)
    chance, none, foreign = (
        mean(evidence.conditions[name].other for evidence in used) for name in ("chance", "none", "foreign")
    )
    return (
        f"{accuracy:.1f} % accuracy in {title} ({none:.1f} % without context, {foreign:.1f} % with context "
        f"from other documents, {chance:.1f} % by chance)"
    )


def _added(title: str, use: ContextGain) -> str:
    low, high = use.interval_95
    what = "the true context" if use.condition == "true" else "sentences of other documents"
    verb = "changes" if use.condition == "true" else "change"
    note = ""
    if use.p_foreign is not None:
        note = f"; p {render_p(use.p_foreign)} against context from other documents"
        if are_too_few(use.documents):
            note = f"; too few documents ({use.documents}) for a significant difference from random context"
    return (
        f"{title}: {what} {verb} the log-probability of the reference by {use.nats:+.4f} nats per token "
        f"[{low:+.4f}, {high:+.4f}]{note}."
    )


def _real(result: RunComparison) -> Iterable[str]:
    if not result.contrastive_tests:
        if len(result.runs) == 1 and result.rows:
            yield "Only one run was given: compare it with a run that has less context, to measure the gain."
        return
    count, first = len(result.contrastive_tests), result.runs[0].title
    real = sum(t.test.significant for t in result.contrastive_tests)
    several = any(run.seeds for run in result.runs)
    test = "test over documents and seeds" if several else "McNemar's test over documents"
    yield (
        f"{real} of {count} differences in contrastive accuracy from {first} are significant ({test}, Holm "
        f"correction for all {count})."
    )
    if few := [t for t in result.contrastive_tests if t.too_few]:
        most = max(t.group.document_count for t in few)
        yield f"Too few documents (at most {most}) for any significant difference: {len(few)} of {count}."
    for number, run in enumerate(result.runs):
        tests = (t for t in result.contrastive_tests if t.run == number)
        gained = (t for t in tests if t.test.significant and t.own > t.first)
        explained = [evidence.group for evidence in result.evidence[number] if evidence.used]
        if unexplained := [t.group for t in gained if not any(t.group is group for group in explained)]:
            yield (
                f"{run.title} has a higher accuracy than {first} in {groups_in_words(unexplained)}, but it "
                "is not shown that context is the reason."
            )


def _quality(result: RunComparison) -> Iterable[str]:
    first = result.runs[0].title
    for run, scores in zip(result.runs, result.quality.scores, strict=True):
        outcomes: dict[str, list[str]] = {}
        for tested in scores:
            if (test := tested.against_first) is None:
                continue
            score, of_all = tested.score, result.quality.tests[tested.score.protocol]
            outcome = f"no significant difference from {first}"
            if of_all.too_few:
                outcome = f"too few documents ({of_all.units}) for a significant difference from {first}"
            elif test.significant:
                better = (test.difference > 0) != is_lower_better(score.protocol)
                outcome = f"significantly {'better' if better else 'worse'} than {first}"
            low, high = test.interval_95
            difference = f"{test.difference:+.2f} [{low:+.2f}, {high:+.2f}], p {render_p(test.p_corrected)}"
            outcomes.setdefault(outcome, []).append(f"{score.title} {score.value:.1f} ({difference})")
        for outcome, parts in outcomes.items():
            yield f"{run.title}: {outcome}: {', '.join(parts)}."


def _verb(subjects: list[str], one: str, several: str) -> str:
    return one if len(subjects) == 1 else several
