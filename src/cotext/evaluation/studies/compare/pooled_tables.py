"""Contrastive accuracy over all suites together, as text, as a table of a page, and as lines of CSV."""

from collections.abc import Iterator
from html import escape

from cotext.evaluation.studies.compare.comparison import RunComparison, contrastive_signature
from cotext.evaluation.studies.contrastive.decisions import ALL_SUITES
from cotext.runtime.html import table
from cotext.runtime.tables import render_p, render_rows

HEADER = (ALL_SUITES, "every example", "every suite", "difference", "95 % interval", "p", "corrected")


def _signature(found: RunComparison) -> str:
    return (
        f"suite:{'+'.join(found.pooled[0].suites)}|n:{found.pooled[0].examples}|clue:other-sentences"
        f"|{contrastive_signature(found.runs, len(found.pooled) - 1)}"
    )


def _rows(found: RunComparison) -> Iterator[tuple[str, ...]]:
    for run, each in zip(found.runs, found.pooled, strict=True):
        cells = ("", "", "", "")
        if each.test is not None:
            low, high = each.test.interval_95
            cells = (
                f"{each.test.difference:+.2f}{'*' if each.differs else ''}",
                f"[{low:+.2f}, {high:+.2f}]",
                render_p(each.test.p),
                render_p(each.test.p_corrected),
            )
        yield run.label, f"{each.disc:.2f}", f"{each.disc_avg:.2f}", *cells


def pooled_text(found: RunComparison) -> str:
    """For a terminal."""
    return f"{render_rows([HEADER, *_rows(found)], left=1)}\n{_signature(found)}"


def pooled_table(found: RunComparison) -> str:
    """For a page."""
    caption = (
        f"All {len(found.pooled[0].suites)} suites together, {found.pooled[0].examples:,} examples whose "
        f"clue is in another sentence, in per cent; differences from the first system. {_signature(found)}"
    )
    rows = [tuple(map(escape, row)) for row in _rows(found)]
    return table(escape(caption), tuple(map(escape, HEADER)), rows, left=1)


def pooled_lines(found: RunComparison, number: int) -> Iterator[dict[str, object]]:
    """For CSV, of one system."""
    if not found.pooled:
        return
    each = found.pooled[number]
    line: dict[str, object] = {"kind": "accuracy", "n": each.examples, "signature": _signature(found)}
    disc = {**line, "name": "disc", "group": ALL_SUITES, "value": each.disc}
    if each.test is not None:
        low, high = each.test.interval_95
        disc |= {
            "baseline": found.runs[0].title, "difference": each.test.difference, "difference_low": low,
            "difference_high": high, "p": each.test.p, "p_corrected": each.test.p_corrected,
        }  # fmt: skip
    yield disc
    yield {**line, "name": "disc_avg", "group": ALL_SUITES, "value": each.disc_avg}
