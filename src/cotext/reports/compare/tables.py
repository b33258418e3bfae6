"""A comparison of runs as text, CSV, JSON and LaTeX."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from cotext.analysis.contrastive_rows import Row
from cotext.analysis.runs.against_papers import PublishedComparison
from cotext.analysis.runs.comparison import RunComparison, TestedScore, signature
from cotext.metrics.evidence import CONDITIONS
from cotext.metrics.evidence_words import legend, render_evidence
from cotext.reports.compare.pooled import pooled_lines, pooled_text
from cotext.reports.compare.verdict import uses_context, verdict, window_words
from cotext.runtime.tables import render_p, render_rows

NOTE = (
    "Published systems were trained on other corpora with other vocabularies: compare differences between "
    "systems, never a value measured here with a published one."
)
_LATEX_CONDITIONS = {
    "chance": "chance", "balanced": "balanced (chance)", "none": "no context", "foreign": "foreign",
    "cxmi": "CXMI (foreign)",
}  # fmt: skip
CSV_COLUMNS = (
    "system", "recipe", "kind", "name", "group", "value", "low", "high", "baseline", "difference",
    "difference_low", "difference_high", "p", "p_corrected", "n", "signature",
)  # fmt: skip
_SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
    "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}",
}  # fmt: skip


def as_text(found: RunComparison) -> str:
    """Everything but curves and maps, for a terminal."""
    blocks = [
        "\n".join([answer.question, *(f"  {line}" for line in answer.lines)]) for answer in verdict(found)
    ]
    blocks.append(_systems(found))
    if found.rows:
        blocks.append(_choices(found))
    if found.pooled:
        blocks.append(pooled_text(found))
    blocks += _evidence(found)
    if found.contrastive_tests:
        blocks.append(_contrastive_tests(found))
    blocks += [block for block in (_profiles(found), _published_tables(found)) if block]
    if found.notes:
        blocks.append("\n".join(found.notes))
    return "\n\n".join(blocks)


def _systems(found: RunComparison) -> str:
    titles = [each.score.title for each in found.scores[0]]
    rows = [("", "recipe", "context window", "parameters", "updates", *titles)]
    for run, scores in zip(found.runs, found.scores, strict=True):
        rows.append(
            (
                run.title,
                run.recipe.title,
                window_words(run.window.before, run.window.after),
                f"{run.parameters:,}",
                f"{run.updates:,}",
                *(_with_mark(each) for each in scores),
            )
        )
    lines = [render_rows(rows, left=3)]
    if any(test.comparisons for test in found.tests.values()):
        lines.append("* differs significantly from the first system, p < 0.05 after correction")
        lines += dict.fromkeys(test.signature for test in found.tests.values())
    lines += [each.score.signature for each in found.scores[0]]
    return "\n".join(lines)


def _with_mark(each: TestedScore) -> str:
    return f"{each.score.value:.2f}{'*' if each.differs else ' '}"


def _choices(found: RunComparison) -> str:
    rows = [("contrastive accuracy, %", "distance", "chance", *(run.title for run in found.runs), "")]
    for row in found.rows:
        cells = [f"{c.percent:.1f} " if c.in_window else f"({c.percent:.1f})" for c in row.cells]
        rows.append((row.phenomenon, row.distance, f"{row.chance:.1f}", *cells, row.verdict))
    return f"{render_rows(rows, left=1)}\n(in brackets): the clue is outside the context window"


def _evidence(found: RunComparison) -> list[str]:
    """What each run does without context and in that of other documents; a table a run."""
    tables = [
        f"{run.title}\n{render_evidence(evidence)}"
        for run, evidence in zip(found.runs, found.evidence, strict=True)
        if evidence
    ]
    if tables:
        tables[-1] += f"\n{legend([each for evidence in found.evidence for each in evidence])}"
    return tables


def _contrastive_tests(found: RunComparison) -> str:
    rows = [
        ("", "phenomenon", "distance", "first", "own", "difference", "95 % interval", "p", "corrected", "")
    ]
    for each in found.contrastive_tests:
        low, high = each.test.interval_95
        rows.append(
            (
                found.runs[each.run].title,
                each.phenomenon,
                each.distance,
                f"{each.first:.1f}",
                f"{each.own:.1f}",
                f"{each.test.difference:+.1f}",
                f"[{low:+.1f}, {high:+.1f}]",
                render_p(each.test.p_mid),
                render_p(each.p_corrected),
                "too few documents"
                if each.too_few
                else "in the window of the first, too"
                if each.first_sees
                else "",
            )
        )
    return f"{render_rows(rows, left=3)}\n{signature(found)}"


def _profiles(found: RunComparison) -> str:
    blocks = []
    for what, buckets in (("sentences in the document", found.lengths), ("position", found.positions)):
        if buckets:
            title = buckets[0].scores[0][0].title
            rows = [(f"{title} by {what}", "documents", "sentences", *(run.title for run in found.runs))]
            for bucket in buckets:
                values = [f"{scores[0].value:.2f}" for scores in bucket.scores]
                rows.append((bucket.name, str(bucket.documents), str(bucket.sentences), *values))
            blocks.append(render_rows(rows, left=1))
    return "\n\n".join(blocks)


def _published_tables(found: RunComparison) -> str:
    if not found.published:
        return ""
    blocks = []
    for title, group in groupby(found.published, key=lambda each: each.published.table_title):
        values = list(group)
        columns = list(dict.fromkeys(each.published.column for each in values))
        cells: dict[tuple[int, str], dict[str, str]] = {}
        for each in values:
            value = each.published.value
            difference = _difference(value, each.first_published)
            key = each.run, each.published.row
            cells.setdefault(key, {})[each.published.column] = f"{_value(value)} {difference}".strip()
        rows = [(title, "row", *columns)]
        for (run, row), of_row in cells.items():
            rows.append((found.runs[run].title, row, *(of_row.get(column, "") for column in columns)))
        blocks.append(render_rows(rows, left=2))
    return "\n\n".join([*blocks, f"{NOTE} After a value: its difference from the first row of the table."])


def _value(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}" if abs(value) < 1 else f"{value:.2f}"


def _difference(value: float | None, first: float | None) -> str:
    return "" if value is None or first is None else f"{value - first:+.4g}"


def as_csv(found: RunComparison) -> str:
    """One figure a line, measured and published."""
    sink = io.StringIO()
    writer = csv.DictWriter(sink, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for line in _lines(found):
        writer.writerow(line)
    return sink.getvalue()


def as_dict(found: RunComparison) -> dict[str, Any]:
    """The words, the evidence of the use of context run by run, and all figures, as CSV has them."""
    return {
        "format": "cotext-compare",
        "version": 1,
        "verdict": {answer.question: answer.lines for answer in verdict(found)},
        "notes": found.notes,
        "systems": [
            {
                "system": run.title,
                "recipe": run.recipe.title,
                "languages": str(run.languages),
                "has_context": run.window.has_context,
                "uses_context": uses_context(found, number),
                "use_of_context": [
                    {"title": each.group.title, **each.as_dict()} for each in found.evidence[number]
                ],
            }
            for number, run in enumerate(found.runs)
        ],
        "figures": list(_lines(found)),
    }


def _lines(found: RunComparison) -> Iterator[dict[str, object]]:
    first = found.runs[0].title
    for number, run in enumerate(found.runs):
        base = {"system": run.title, "recipe": run.recipe.title}
        for what, count in (("parameters", run.parameters), ("updates", run.updates)):
            yield {**base, "kind": "run", "name": what, "value": count, "signature": run.signature}
        for update, loss in run.curve:
            yield {**base, "kind": "curve", "name": "nll_current", "group": update, "value": loss}
        yield from ({**base, **line} for line in _score_lines(found, number, first))
        yield from ({**base, **line} for line in _accuracy_lines(found, number, first))
        yield from ({**base, **line} for line in pooled_lines(found, number))
        yield from ({**base, **line} for line in _evidence_lines(found, number))
        for use in found.gains[number]:
            yield {
                **base, "kind": "context", "name": f"{use.condition} context, nats per token",
                "value": use.nats, "low": use.interval_95[0], "high": use.interval_95[1], "p": use.p,
                "n": use.tokens,
            }  # fmt: skip
        for each in found.published:
            if each.run == number and each.published.value is not None:
                yield {**base, **_published_line(each)}


def _score_lines(found: RunComparison, number: int, first: str) -> Iterator[dict[str, object]]:
    for each in found.scores[number]:
        line: dict[str, object] = {
            "kind": "score", "name": each.score.title, "value": each.score.value, "n": each.score.documents,
            "signature": each.score.signature,
        }  # fmt: skip
        if each.interval_95:
            line |= {"low": each.interval_95[0], "high": each.interval_95[1]}
        if each.against_first:
            test = each.against_first
            line |= {
                "baseline": first, "difference": test.difference, "difference_low": test.interval_95[0],
                "difference_high": test.interval_95[1], "p": test.p, "p_corrected": test.p_corrected,
            }  # fmt: skip
        yield line
    for what, buckets in (("length", found.lengths), ("position", found.positions)):
        for bucket in buckets:
            score = bucket.scores[number][0]
            yield {
                "kind": f"by {what}", "name": score.title, "group": bucket.name, "value": score.value,
                "n": bucket.sentences, "signature": score.signature,
            }  # fmt: skip


def _accuracy_lines(found: RunComparison, number: int, first: str) -> Iterator[dict[str, object]]:
    for row in found.rows:
        cell = row.cells[number]
        yield {
            "kind": "accuracy", "name": row.phenomenon, "group": row.distance, "value": cell.percent,
            "low": cell.low, "high": cell.high, "n": cell.total,
        }  # fmt: skip
    for each in found.contrastive_tests:
        if each.run == number:
            yield {
                "kind": "contrastive test", "name": each.phenomenon, "group": each.distance,
                "value": each.own, "baseline": first, "difference": each.test.difference,
                "difference_low": each.test.interval_95[0], "difference_high": each.test.interval_95[1],
                "p": each.test.p_mid, "p_corrected": each.p_corrected, "n": each.test.total,
                "signature": signature(found),
            }  # fmt: skip


def _evidence_lines(found: RunComparison, number: int) -> Iterator[dict[str, object]]:
    """A line for every condition: what the run has, what it is to exceed, and how sure it is that it does."""
    for each in found.evidence[number]:
        for name, condition in each.conditions.items():
            yield {
                "kind": f"use of context: {name}", "name": each.group.title, "group": each.group.distance,
                "value": condition.own, "baseline": condition.other,
                "difference": condition.own - condition.other, "p": condition.p,
                "p_corrected": condition.p_corrected, "n": each.documents,
            }  # fmt: skip


def _published_line(each: PublishedComparison) -> dict[str, object]:
    published = each.published
    line: dict[str, object] = {
        "kind": "published", "name": f"{published.table_title}, {published.row}", "group": published.column,
        "value": published.value,
        "signature": f"{published.measure.title}|{published.test.direction}|{published.test.corpus}|"
        f"{published.measure.protocol}",
    }  # fmt: skip
    if each.first_published is not None and published.value is not None:
        line["difference"] = published.value - each.first_published
    return line


def as_latex(found: RunComparison) -> str:
    """LaTeX tables of scores, contrastive accuracies and published values (needs booktabs)."""
    titles = [each.score.title for each in found.scores[0]]
    rows = [
        [_escaped(run.title), f"{run.parameters / 1e6:.1f}M", *map(_latex_score, scores)]
        for run, scores in zip(found.runs, found.scores, strict=True)
    ]
    parts = [
        "% needs \\usepackage{booktabs}",
        "% *: differs from the first system, p < 0.05 (paired, by document, Holm)",
        _tabular(["system", "parameters", *map(_escaped, titles)], rows),
    ]
    if found.rows:
        parts.append(
            "% contrastive accuracy in per cent; in brackets: the clue is outside the context window"
        )
        header = ["phenomenon", "distance", "chance", *(_escaped(run.title) for run in found.runs)]
        parts.append(_tabular(header, [_latex_accuracies(row) for row in found.rows]))
    if any(found.evidence):
        parts.append(
            "% context use: accuracy in per cent, CXMI in nats per token; *: the condition holds, p < 0.05"
        )
        header = [
            "system",
            "phenomenon",
            "distance",
            "accuracy",
            *(_LATEX_CONDITIONS[name] for name in CONDITIONS),
        ]
        parts.append(_tabular(header, list(_latex_evidence(found))))
    if found.published:
        parts.append(f"% {NOTE}")
        parts += list(_latex_published(found))
    return "\n".join(parts) + "\n"


def _latex_evidence(found: RunComparison) -> Iterator[list[str]]:
    for run, evidence in zip(found.runs, found.evidence, strict=True):
        for each in evidence:
            cells = []
            for name, condition in each.conditions.items():
                figures = (
                    f"{condition.own:+.3f} ({condition.other:+.3f})"
                    if name == "cxmi"
                    else (
                        f"{condition.own:.1f} ({condition.other:.1f})"
                        if name == "balanced"
                        else f"{condition.other:.1f}"
                    )
                )
                cells.append(f"{figures}{'$^{*}$' if condition.holds else ''}")
            own = f"{each.conditions['chance'].own:.1f}"
            yield [*map(_escaped, (run.title, each.group.title, each.group.distance)), own, *cells]


def _latex_published(found: RunComparison) -> Iterator[str]:
    for title, group in groupby(found.published, key=lambda each: each.published.table_title):
        values = list(group)
        columns = list(dict.fromkeys(each.published.column for each in values))
        by_row: dict[tuple[int, str], dict[str, float | None]] = {}
        for each in values:
            by_row.setdefault((each.run, each.published.row), {})[each.published.column] = (
                each.published.value
            )
        rows = [
            [_escaped(found.runs[run].title), _escaped(row), *(_value(cells.get(c)) or "--" for c in columns)]
            for (run, row), cells in by_row.items()
        ]
        yield f"% {title}"
        yield _tabular(["system", "row", *map(_escaped, columns)], rows)


def _tabular(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [" & ".join(row) + r" \\" for row in rows]
    return "\n".join(
        [
            f"\\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
            r"\toprule",
            " & ".join(header) + r" \\",
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )


def _latex_score(each: TestedScore) -> str:
    return f"{each.score.value:.2f}{'$^{*}$' if each.differs else ''}"


def _latex_accuracies(row: Row) -> list[str]:
    cells = [f"{c.percent:.1f}" if c.in_window else f"({c.percent:.1f})" for c in row.cells]
    return [_escaped(row.phenomenon), _escaped(row.distance), f"{row.chance:.1f}", *cells]


def _escaped(text: str) -> str:
    return re.sub(r"[\\&%$#_{}~^<>]", lambda match: _SPECIAL[match[0]], text)
