"""The final page of `cotext adapt`: scores before and after, changed sentences, and next commands."""

from html import escape
from typing import Final

from cotext.evaluation.statistics.significance import SIGNIFICANT
from cotext.evaluation.studies.adapt.adapt import AdaptReport, ChangedSentence
from cotext.evaluation.studies.tables import Cell, Table, interval
from cotext.interchange.model_names import name_of
from cotext.runtime.html import facts, whole_page
from cotext.runtime.tables import render_p

BEFORE: Final = "before.jsonl"
AFTER: Final = "after.jsonl"
SHOWN: Final = 20  # number of changed sentences on the page


def summary(report: AdaptReport) -> Table:
    """Return the scores before and after, with the tests of their differences."""
    rows = []
    for before, after in zip(*(report.evaluation.scores[name] for name in (BEFORE, AFTER)), strict=True):
        [test] = report.evaluation.paired[after.protocol].differences.values()
        difference = Cell(f"{test.difference:+.2f}", (interval(test.interval_95),), test.p < SIGNIFICANT)
        rows.append((after.title, f"{before.value:.2f}", f"{after.value:.2f}", difference, render_p(test.p)))
    caption = (
        f"{after.documents:,} test documents, {after.sentences:,} sentences. Bold, or a star: p below "
        f"{SIGNIFICANT:g} in a paired test over documents."
    )
    return Table(("", "before", "after", "difference", "p"), rows, caption)


def answer(report: AdaptReport) -> str:
    """Return the result in a sentence, by the first score."""
    first = report.evaluation.scores[AFTER][0]
    [test] = report.evaluation.paired[first.protocol].differences.values()
    if not report.changed:
        outcome = "the model as it was: nothing was better on the development documents"
    elif test.p >= SIGNIFICANT:
        outcome = "not shown to be better or worse than the model on the test documents"
    else:
        outcome = f"{'better' if test.difference > 0 else 'worse'} than the model on the test documents"
    return f"{report.request.out} is {outcome} ({first.title}: {test.difference:+.2f})."


def next_commands(report: AdaptReport) -> list[str]:
    """Return commands that use the run or analyse it."""
    out, model, data = report.request.out, name_of(report.request.model), report.data
    return [
        f"cotext translate {out} letter.docx --out translated.docx",
        f"cotext serve {out}",
        f"cotext cxmi {out} --source {data}/test.jsonl",
        f"cotext compare {model} {out} --data {data} --out {data.parent}/compare.html",
    ]


def render(report: AdaptReport) -> str:
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
        "<h2>How these values were computed</h2>",
        facts((score.title, escape(score.signature)) for score in report.evaluation.scores[AFTER]),
    ]
    return whole_page(f"Cotext: {report.request.out.name}", body)


def _sentence(changed: ChangedSentence) -> str:
    lines = [(name, escape(getattr(changed, name))) for name in ("source", "before", "after", "reference")]
    title = f"{changed.document}, sentence {changed.number}: {changed.gain:+.1f}"
    return f"<article><h3>{escape(title)}</h3>{facts(lines)}</article>"
