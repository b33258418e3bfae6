"""The page at the end of `cotext adapt`: before and after, what changed, and what to run next."""

from html import escape
from typing import Final

from cotext.evaluation.statistics.significance import SIGNIFICANT, SystemDifference
from cotext.evaluation.studies.adapt.adapt import AdaptReport, ChangedSentence
from cotext.evaluation.studies.tables import Cell, Table, interval
from cotext.runtime.html import facts, whole_page
from cotext.runtime.tables import render_p

BEFORE: Final = "before.jsonl"
AFTER: Final = "after.jsonl"
SHOWN: Final = 20  # sentences that changed most


def summary(report: AdaptReport) -> Table:
    """The scores before and after, with the tests of their differences."""
    rows = []
    for before, after in zip(*(report.evaluation.scores[name] for name in (BEFORE, AFTER)), strict=True):
        [test] = report.evaluation.paired[after.protocol].comparisons
        difference = Cell(f"{test.difference:+.2f}", (interval(test.interval_95),), test.p < SIGNIFICANT)
        rows.append((after.title, f"{before.value:.2f}", f"{after.value:.2f}", difference, render_p(test.p)))
    caption = (
        f"{after.documents:,} test documents, {after.sentences:,} sentences. Bold, or a star: p below "
        f"{SIGNIFICANT:g} in a paired test over documents."
    )
    return Table(("", "before", "after", "difference", "p"), rows, caption)


def answer(report: AdaptReport) -> str:
    """The outcome in a sentence, by the first score."""
    first = report.evaluation.scores[AFTER][0]
    [test] = report.evaluation.paired[first.protocol].comparisons
    outcome = _outcome(test, len(report.changed))
    return f"{report.request.out} is {outcome} ({first.title}: {test.difference:+.2f})."


def _outcome(test: SystemDifference, changed: int) -> str:
    if not changed:
        return "the model as it was: nothing was better on the development documents"
    if test.p >= SIGNIFICANT:
        return "not shown to be better or worse than the model on the test documents"
    return f"{'better' if test.difference > 0 else 'worse'} than the model on the test documents"


def next_commands(report: AdaptReport) -> list[str]:
    """Commands that use the run, and those that look closer."""
    out, model, data = report.request.out, report.request.model, report.data
    return [
        f"cotext translate {out} letter.docx --out translated.docx",
        f"cotext serve {out}",
        f"cotext cxmi {out} --source {data}/test.jsonl",
        f"cotext compare {model} {out} --data {data} --out {data.parent}/compare.html",
    ]


def render(report: AdaptReport) -> str:
    """The page."""
    body = [
        f"<h1>{escape(report.request.out.name)}</h1>\n<p>{escape(answer(report))}</p>",
        "<h2>Before and after</h2>",
        summary(report).html(),
        f"<h2>The sentences that changed most</h2>\n<p>{len(report.changed):,} translations changed. The "
        "number is the change in chrF, which may be wrong about a single sentence: read them.</p>",
        *map(_sentence, report.changed[:SHOWN]),
        "<h2>What to run next</h2>",
        f"<pre>{escape(chr(10).join(next_commands(report)))}</pre>",
        "<p>They translate a file, start a server with a page, measure how much context is used, and compare "
        "both systems in detail.</p>",
        "<h2>How these figures came about</h2>",
        facts((score.title, escape(score.signature)) for score in report.evaluation.scores[AFTER]),
    ]
    return whole_page(f"Cotext: {report.request.out.name}", body)


def _sentence(each: ChangedSentence) -> str:
    texts = (each.source, each.before, each.after, each.reference)
    lines = zip(("source", "before", "after", "reference"), map(escape, texts), strict=True)
    title = f"{each.document}, sentence {each.number}: {each.gain:+.1f}"
    return f"<article><h3>{escape(title)}</h3>{facts(lines)}</article>"
