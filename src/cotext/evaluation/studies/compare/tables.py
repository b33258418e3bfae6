"""A comparison of systems as text and LaTeX."""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from cotext.evaluation.statistics.seeds import Difference
from cotext.evaluation.studies.compare.comparison import RunComparison
from cotext.evaluation.studies.compare.pooled_tables import pooled_text
from cotext.evaluation.studies.compare.quality import TestedScore
from cotext.evaluation.studies.compare.verdict import context_words, verdict
from cotext.evaluation.studies.contrastive.contrastive_rows import Row
from cotext.evaluation.studies.contrastive.evidence import CONDITIONS, legend, render_evidence
from cotext.runtime.tables import render_p, render_rows

NOTE = (
    "Published systems were trained on other corpora with other vocabularies: compare differences between "
    "systems, never a value measured here with a published one."
)
FIRST_LOSS = (
    "first loss: nats per token before the first update, on the first documents of the development set; in "
    "brackets: of the run that training starts from, on the same sentences one by one"
)
_LATEX_CONDITIONS = {
    "chance": "chance", "balanced": "balanced (chance)", "none": "no context", "foreign": "foreign",
    "cxmi": "CXMI (foreign)",
}  # fmt: skip
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
    blocks += [block for block in (_seeds(found), _profiles(found), _published_tables(found)) if block]
    if found.notes:
        blocks.append("\n".join(found.notes))
    return "\n\n".join(blocks)


def _systems(found: RunComparison) -> str:
    titles = [each.score.title for each in found.scores[0]]
    started = any(run.first_loss for run in found.runs)
    rows = [("", "recipe", "context window", "parameters", "updates", *(["first loss"] * started), *titles)]
    for run, scores in zip(found.runs, found.scores, strict=True):
        rows.append(
            (
                run.label,
                run.recipe.title,
                context_words(run),
                run.parameters_in_words,
                run.updates_in_words,
                *([run.first_loss_in_words] * started),
                *(_with_mark(each) for each in scores),
            )
        )
    lines = [render_rows(rows, left=3), *([FIRST_LOSS] * started)]
    if any(test.differences for test in found.tests.values()):
        lines.append("* differs significantly from the first system, p < 0.05 after correction")
        lines += dict.fromkeys(test.signature for test in found.tests.values())
    lines += [each.score.signature for each in found.scores[0]]
    return "\n".join(lines)


def _with_mark(each: TestedScore) -> str:
    return f"{each.score.value:.2f}{'*' if each.differs else ' '}"


def _choices(found: RunComparison) -> str:
    rows = [("contrastive accuracy, %", "distance", "chance", *(run.label for run in found.runs), "")]
    for row in found.rows:
        cells = [f"{c.percent:.1f} " if c.in_window else f"({c.percent:.1f})" for c in row.cells]
        rows.append((row.phenomenon, row.distance, f"{row.chance:.1f}", *cells, row.verdict))
    return f"{render_rows(rows, left=1)}\n(in brackets): the clue is outside the context window"


def _evidence(found: RunComparison) -> list[str]:
    """What each run does without context and in that of other documents; a table a run."""
    tables = [
        f"{run.label}\n{render_evidence(evidence)}"
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
                found.runs[each.run].label,
                each.phenomenon,
                each.distance,
                f"{each.first:.1f}",
                f"{each.own:.1f}",
                f"{each.test.difference:+.1f}",
                f"[{low:+.1f}, {high:+.1f}]",
                render_p(each.test.p),
                render_p(each.p_corrected),
                "too few documents"
                if each.too_few
                else "in the window of the first, too"
                if each.first_sees
                else "",
            )
        )
    return f"{render_rows(rows, left=3)}\n{found.signature}"


def _seeds(found: RunComparison) -> str:
    """Every figure by seed, and what the tests make of seeds and of documents alone."""
    rows = [
        (
            "by seed", "", "", "mean", "deviation", "values", "difference", "p, documents", "p, seeds",
            "corrected",
        )
    ]  # fmt: skip
    for number, run in enumerate(found.runs):
        for each in found.over_seeds(number):
            deviation, test = each.by_seed.deviation, each.against_first
            rows.append(
                (
                    run.label,
                    each.name,
                    each.group,
                    f"{each.by_seed.mean:.2f}",
                    "" if deviation is None else f"{deviation:.2f}",
                    " ".join(f"{value:.1f}" for value in each.by_seed.values),
                    *_seed_test(test),
                )
            )
    return render_rows(rows, left=3) if len(rows) > 1 else ""


def _seed_test(test: Difference | None) -> tuple[str, str, str, str]:
    if test is None:
        return "", "", "", ""
    over = "" if test.over_seeds is None else render_p(test.over_seeds.p)
    return f"{test.difference:+.2f}", render_p(test.p_documents), over, render_p(test.p_corrected)


def _profiles(found: RunComparison) -> str:
    blocks = []
    for what, buckets in (("sentences in the document", found.lengths), ("position", found.positions)):
        if buckets:
            title = buckets[0].scores[0][0].title
            rows = [(f"{title} by {what}", "documents", "sentences", *(run.label for run in found.runs))]
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
            rows.append((found.runs[run].label, row, *(of_row.get(column, "") for column in columns)))
        blocks.append(render_rows(rows, left=2))
    return "\n\n".join([*blocks, f"{NOTE} After a value: its difference from the first row of the table."])


def _value(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}" if abs(value) < 1 else f"{value:.2f}"


def _difference(value: float | None, first: float | None) -> str:
    return "" if value is None or first is None else f"{value - first:+.4g}"


def as_latex(found: RunComparison) -> str:
    """LaTeX tables of scores, contrastive accuracies and published values (needs booktabs)."""
    titles = [each.score.title for each in found.scores[0]]
    rows = [
        [
            _escaped(run.label),
            f"{run.parameters / 1e6:.1f}M" if run.has_model else "",
            *map(_latex_score, scores),
        ]
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
        header = ["phenomenon", "distance", "chance", *(_escaped(run.label) for run in found.runs)]
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
            yield [*map(_escaped, (run.label, each.group.title, each.group.distance)), own, *cells]


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
            [_escaped(found.runs[run].label), _escaped(row), *(_value(cells.get(c)) or "--" for c in columns)]
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
