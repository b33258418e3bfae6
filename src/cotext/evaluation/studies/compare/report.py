"""A comparison as sections of tables and plots, for a terminal and a page, and as CSV and JSON."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from itertools import groupby
from typing import Any, Final

from cotext.data.formats import read_documents
from cotext.evaluation.statistics.significance import Difference
from cotext.evaluation.studies.compare.comparison import (
    PHENOMENA,
    PublishedComparison,
    RunComparison,
    TestedScore,
)
from cotext.evaluation.studies.compare.measured import MeasuredSystem
from cotext.evaluation.studies.compare.verdict import context_words, uses_context, verdict
from cotext.evaluation.studies.contrastive.evidence import EVIDENCE_HEADER, evidence_row, legend
from cotext.evaluation.studies.tables import Cell, Row, Table, interval, versions
from cotext.models.run_folder import listed_seeds
from cotext.runtime.rendering import breakable, facts, folded, marked, render_p, table, whole_page

NOTE = (
    "Published systems were trained on other corpora with other vocabularies: compare differences between "
    "systems, never a value measured here with a published one."
)
FIRST_LOSS = (
    "first loss: nats per token before the first update, on the first documents of the development set; in "
    "brackets: loss of the run that training starts from, on single sentences of the same documents"
)
LEAD = """How these runs use context, measured on the same test set and contrastive suites. Differences are
relative to the first run. Every sentence here is computed from the tables below."""
USE = """CXMI: what context adds to the log-probability of the reference, compared with the sentence alone, in
nats per token (0.69 doubles a probability); intervals by bootstrap over documents. Random context consists of
sentences of other documents, so its effect is not use of this document."""
SEEDS = """Every figure of a system that was trained with several seeds is a mean over them. A difference
that is significant over documents concerns the trained models. A difference that is significant over seeds
and documents together concerns models of other seeds. Deviation: the standard deviation of single seeds."""
MAX_SENTENCES = 12  # number of sentences shown of the example document


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a comparison: tables, lines below them and, for the page, a paragraph and plots (HTML)."""

    title: str
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    about: str = ""
    pictures: str = ""

    def text(self) -> str:
        return "\n".join([self.title, "\n\n".join(table.text() for table in self.tables), *self.notes])

    def html(self) -> str:
        about = [f"<p>{escape(self.about)}</p>"] if self.about else []
        notes = [f'<p class="soft">{escape(note)}</p>' for note in self.notes]
        tables = [table.html() for table in self.tables]
        return "\n".join([f"<h2>{escape(self.title)}</h2>", *about, self.pictures, *tables, *notes])


def as_text(result: RunComparison, brief: bool = False) -> str:
    """Return everything except plots for a terminal; `brief`: only the answers and contrastive accuracies."""
    answers = [
        "\n".join([question, *(f"  {line}" for line in lines)]) for question, lines in verdict(result).items()
    ]
    sections = [_choices(result, False)] if brief else _sections(result)
    blocks = [section.text() for section in sections if section.tables]
    notes = ["\n".join(result.notes)] if result.notes and not brief else []
    return "\n\n".join([*answers, *blocks, *notes])


def render_comparison(result: RunComparison) -> str:
    """Return the page: an example document and conclusions first, then the values and their signatures."""
    items = []
    for question, answers in verdict(result).items():
        lines = "".join(f"<dd>{escape(line)}</dd>" for line in answers)
        items.append(f"<dt>{escape(question)}</dt>{lines}")
    notes = "".join(f'<p class="soft">{escape(note)}</p>' for note in result.notes)
    body = [
        f"<h1>Systems side by side</h1>\n<p>{LEAD}</p>",
        example(result),
        "<h2>Answers</h2>",
        f'<dl class="verdict">{"".join(items)}</dl>\n{notes}',
        *(section.html() for section in _sections(result, pictures=True)),
        "<h2>How these values were computed</h2>",
        _facts(result),
    ]
    return whole_page("Cotext: systems side by side", body)


def _sections(result: RunComparison, pictures: bool = False) -> Iterator[Section]:
    yield _systems(result)
    if result.quality.scores[0]:
        yield _quality(result)
    if any(run.seeds for run in result.runs):
        yield Section("Seeds", [_seeds(result)], about=SEEDS)
    if result.rows:
        yield _choices(result, pictures)
    if any(result.evidence):
        rows: list[Row] = [
            (run.label, *evidence_row(evidence_of_group))
            for run, evidence in zip(result.runs, result.evidence, strict=True)
            for evidence_of_group in evidence
        ]
        words = legend([evidence_of_group for evidence in result.evidence for evidence_of_group in evidence])
        table = Table(("system", *EVIDENCE_HEADER), rows, left=2, heads=2)
        yield Section("Context use, tested", [table], words.splitlines())
    if result.contrastive_tests:
        yield _contrastive_tests(result)
    if any(result.gains):
        yield Section("CXMI", [_gains(result)], about=USE)
    if result.published:
        yield _published(result)


def _systems(result: RunComparison) -> Section:
    started = any(run.first_loss for run in result.runs)
    header = ("system", "recipe", "context window", "parameters", "updates", *["first loss"] * started)
    rows: list[Row] = [
        (
            _label(run),
            run.first.recipe.title,
            context_words(run),
            f"{run.first.parameters:,}",
            " to ".join(dict.fromkeys(f"{count:,}" for count in run.updates)),
            *["" if run.first_loss is None else "{:.3f} ({:.3f})".format(*run.first_loss)] * started,
        )
        for run in result.runs
    ]
    caption = "Context window: the sentences around the translated sentence that the system may read."
    return Section("The systems", [Table(header, rows, caption, left=3)], [FIRST_LOSS] * started)


def _quality(result: RunComparison) -> Section:
    tested = any(test.differences for test in result.quality.tests.values())
    rows: list[Row] = [
        (run.label, *map(_score, scores))
        for run, scores in zip(result.runs, result.quality.scores, strict=True)
    ]
    caption = f"{result.quality.documents:,} documents, {result.quality.sentences:,} sentences."
    notes = [score.score.signature for score in result.quality.scores[0]]
    if tested:
        caption += (
            " With 95 % intervals; below, the difference from the first system, its interval, and p after "
            "correction."
        )
        signatures = dict.fromkeys(test.signature for test in result.quality.tests.values())
        notes = [
            "* differs significantly from the first system, p < 0.05 after correction",
            *signatures,
            *notes,
        ]
    table = Table(("", *(score.score.title for score in result.quality.scores[0])), rows, caption)
    return Section("Quality", [table], notes)


def _score(score: TestedScore) -> Cell:
    small = [] if score.interval_95 is None else [interval(score.interval_95, ".1f")]
    test = score.against_first
    if test is not None:
        small += [f"{test.difference:+.2f}", interval(test.interval_95), f"p {render_p(test.p_corrected)}"]
    return Cell(f"{score.score.value:.2f}", tuple(small), test is not None and test.significant)


def _label(run: MeasuredSystem) -> Cell:
    return Cell(run.label, (f"seeds {listed_seeds(run.seeds)}",) if run.seeds else ())


def _seeds(result: RunComparison) -> Table:
    """Return every value by seed, and the tests over documents and over seeds."""
    rows: list[Row] = []
    for number, run in enumerate(result.runs):
        for figure in result.over_seeds(number):
            deviation = figure.by_seed.deviation
            cells: list[str | Cell] = ["", "", "", ""]
            if (test := figure.against_first) is not None:
                over = "" if test.over_seeds is None else render_p(test.over_seeds.p)
                p = Cell(render_p(test.p_corrected), marked=test.significant)
                cells = [f"{test.difference:+.2f}", render_p(test.p_documents), over, p]
            values = " ".join(f"{value:.1f}" for value in figure.by_seed.values)
            spread = "" if deviation is None else f"{deviation:.2f}"
            name = (_label(run), figure.name, figure.group)
            rows.append((*name, f"{figure.by_seed.mean:.2f}", spread, values, *cells))
    header = (
        "by seed", "", "", "mean", "deviation", "values", "difference", "p, documents", "p, seeds",
        "corrected",
    )  # fmt: skip
    return Table(header, rows, f"Differences from {result.runs[0].title}.", left=3, heads=3)


def _choices(result: RunComparison, pictures: bool) -> Section:
    rows: list[Row] = [
        (
            *row.group.name,
            f"{row.chance:.1f}",
            *(
                Cell(
                    f"{cell.percent:.1f}" if cell.in_window else f"({cell.percent:.1f})",
                    (interval((cell.low, cell.high), ".0f"),),
                    cell.shown,
                )
                for cell in row.cells
            ),
            row.verdict,
        )
        for row in result.rows
    ]
    header = ("contrastive accuracy, %", "distance", "chance", *(run.label for run in result.runs), "")
    caption = (
        "With 95 % intervals. Distance: sentences back to the clue; ahead: the clue is in the next sentence."
    )
    notes = ["(in brackets): the clue is outside the context window, and chance is expected"]
    if any(cell.shown for row in result.rows for cell in row.cells):
        notes.append("* context use is significant")
    drawn = ""
    if pictures:
        from cotext.evaluation.studies.plots import accuracy_plots

        drawn = accuracy_plots(result.rows, [run.label for run in result.runs], PHENOMENA)
    return Section("Contrastive accuracy", [Table(header, rows, caption, heads=2)], notes, pictures=drawn)


def _contrastive_tests(result: RunComparison) -> Section:
    rows: list[Row] = []
    for test in result.contrastive_tests:
        words = "too few documents" if test.too_few else "no significant difference"
        if test.test.significant:
            words = "higher accuracy" if test.own > test.first else "lower accuracy"
        words += "; the clue is also in the window of the first system" if test.first_sees else ""
        name = (result.runs[test.run].label, *test.group.name)
        tested = (
            Cell(f"{test.test.difference:+.1f}", marked=test.test.significant),
            interval(test.test.interval_95, "+.1f"),
            render_p(test.test.p),
            render_p(test.test.p_corrected),
        )
        rows.append((*name, f"{test.first:.1f}", f"{test.own:.1f}", *tested, words))
    caption = (
        "Contrastive examples whose clue is within the context window of the system, compared with "
        f"{result.runs[0].title}: accuracy in per cent, difference in points, and p over documents, "
        "corrected for all rows."
    )
    header = (
        "", "phenomenon", "distance", "first", "own", "difference", "95 % interval", "p", "corrected", "",
    )  # fmt: skip
    table = Table(header, rows, caption, left=3, heads=3)
    return Section("Every difference in contrastive accuracy, tested", [table], [result.signature])


def _gains(result: RunComparison) -> Table:
    rows: list[Row] = [
        (
            run.label,
            use.condition,
            f"{use.nats:+.4f}",
            interval(use.interval_95, "+.4f"),
            render_p(use.p),
            f"{use.documents:,}",
            f"{use.tokens:,}",
        )
        for run, uses in zip(result.runs, result.gains, strict=True)
        for use in uses
    ]
    header = ("system", "context", "nats per token", "95 % interval", "p", "documents", "tokens")
    return Table(header, rows, "Over all sentences that have context.", left=2, heads=2)


def _published(result: RunComparison) -> Section:
    tables, notes = [], []
    for title, group in groupby(result.published, key=lambda value: value.published.table_title):
        values = list(group)
        described = {value.published.column: value.published for value in values}
        by_row: dict[tuple[int, str], dict[str, Cell]] = {}
        for value in values:
            cells = by_row.setdefault((value.run, value.published.row), {})
            cells[value.published.column] = _published_cell(value)
        rows: list[Row] = [
            (result.runs[run].label, row, *(cells.get(column, "") for column in described))
            for (run, row), cells in by_row.items()
        ]
        tables.append(Table((title, "row", *described), rows, left=2))
        notes += [
            f"{title}, {name}: {value.test.corpus}, {value.test.direction}, {value.measure.title}, "
            f"{value.measure.protocol}"
            for name, value in described.items()
        ]
    about = (
        "Below a value: its difference from the first row of the table, where both are published; "
        "after “here”: the figure measured here on the same suite or test set, and its difference."
    )
    return Section("Published values", tables, [NOTE, *notes], about)


def _published_cell(compared: PublishedComparison) -> Cell:
    value, small = compared.published.value, []
    if (difference := difference_of(value, compared.first_published)) is not None:
        small.append(f"{difference:+.4g}")
    if compared.measured is not None:
        difference_here = difference_of(compared.measured, compared.first_measured)
        small.append(
            f"here {compared.measured:.4g}{'' if difference_here is None else f', {difference_here:+.3g}'}"
        )
    return Cell("–" if value is None else f"{value:g}", tuple(small))


def _facts(result: RunComparison) -> str:
    parts = []
    for number, run in enumerate(result.runs):
        signatures = [score.score.signature for score in result.quality.scores[number]]
        entries = []
        for measured in run.runs:
            signatures += [f"{name}: {decisions.signature}" for name, decisions in measured.decisions.items()]
            signatures += [f"context: {measured.use.signature}"] if measured.use else []
            entries += [
                ("run", f"<code>{escape(str(measured.path))}</code>"),
                ("model and decoding", f"<code>{escape(measured.signature)}</code>"),
            ]
        folded_signatures = folded("Signatures of all values", "\n".join(signatures))
        parts.append(f"<h3>{escape(run.label)}</h3>\n{facts(entries)}\n{folded_signatures}")
    shared = [(name, escape(value)) for name, value in versions().items()]
    if result.test is not None:
        files = dict.fromkeys((str(result.test.source), str(result.test.reference)))
        shared.insert(0, ("test set", f"{escape(', '.join(files))} ({result.test.digest})"))
    return f"{chr(10).join(parts)}\n<h3>All</h3>\n{facts(shared)}"


def example(result: RunComparison) -> str:
    """Return the document in which most sentences differ, with the differing words marked."""
    paths = {run.label: run.first.hypothesis for run in result.runs if run.first.hypothesis is not None}
    if result.test is None or not paths:
        return ""
    translations = [list(read_documents(path, result.test.format, "target")) for path in paths.values()]
    sources = list(read_documents(result.test.source, result.test.format))
    references = list(read_documents(result.test.reference, result.test.format, "target"))
    differences = []
    for documents in zip(*translations, strict=True):
        sides = (document.sentences[:MAX_SENTENCES] for document in documents)
        differences.append(sum(len(set(sentences)) > 1 for sentences in zip(*sides, strict=True)))
    number = differences.index(max(differences))
    source, reference = sources[number], references[number].sentences
    written = [translation[number].sentences for translation in translations]
    rows = []
    for n in range(min(len(source), MAX_SENTENCES)):
        first, *others = [side[n] for side in written]
        cells = [escape(first), *(marked(other, first) for other in others)]
        rows.append([str(n + 1), escape(source.sentences[n]), *cells, escape(reference[n])])
    caption = f"Document {escape(source.id)}"
    if differences[number]:
        caption += (
            f": the systems differ in more of the first {MAX_SENTENCES} sentences than in other documents. "
            f"Marked: words that differ from {escape(next(iter(paths)))}"
        )
    header = ("", "source", *map(breakable, paths), "reference")
    return "<h2>A document, translated by each system</h2>\n" + table(
        f"{caption}.", header, rows, left=len(header)
    )


# Differences and p are relative to `baseline`: the first system or, for context use, the value to exceed.
CSV_COLUMNS: Final = (
    "system", "recipe", "kind", "name", "group", "value", "low", "high", "baseline", "difference",
    "difference_low", "difference_high", "p", "p_corrected", "n", "signature",
)  # fmt: skip


def as_csv(result: RunComparison) -> str:
    sink = io.StringIO()
    writer = csv.DictWriter(sink, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(figures(result))
    return sink.getvalue()


def as_dict(result: RunComparison) -> dict[str, Any]:
    """Return the verdict, the evidence of context use by run, and the same values as the CSV file."""
    return {
        "format": "cotext-compare",
        "version": 1,
        "verdict": verdict(result),
        "notes": result.notes,
        "systems": [
            {
                "system": run.title,
                "recipe": run.first.recipe.title,
                "languages": str(run.first.languages),
                "seeds": list(run.seeds),
                "not_learned": run.not_learned,
                "has_context": run.first.window.has_context,
                "uses_context": uses_context(result, number),
                "use_of_context": [
                    {"title": each.group.title, **each.as_dict()} for each in result.evidence[number]
                ],
                "over_seeds": [
                    {
                        "name": each.name,
                        "group": each.group,
                        **each.by_seed.as_dict(),
                        "against_first": each.against_first and each.against_first.as_dict(),
                    }
                    for each in result.over_seeds(number)
                ],
            }
            for number, run in enumerate(result.runs)
        ],
        "figures": list(figures(result)),
    }


def figures(result: RunComparison) -> Iterator[dict[str, Any]]:
    """Yield every value as a line of the CSV file, system by system; values by seed are left out."""
    first = result.runs[0].title
    for number, run in enumerate(result.runs):
        make = partial(_line, system=run.title, recipe=run.first.recipe.title)
        for name, count in (("parameters", run.first.parameters), ("updates", run.updates[1])):
            yield make(kind="run", name=name, value=count, signature=run.first.signature)
        if run.first_loss is not None:
            own, there = run.first_loss
            yield make(kind="run", name="first loss", value=own)
            yield make(kind="run", name="loss of the run it starts from", value=there)
        for each in result.quality.scores[number]:
            low, high = each.interval_95 or (None, None)
            yield make(kind="score", name=each.score.title, value=each.score.value, low=low, high=high,
                       n=each.score.documents, signature=each.score.signature,
                       **_against(each.against_first, first))  # fmt: skip
        for row in result.rows:
            cell = row.cells[number]
            yield make(kind="accuracy", name=row.group.title, group=row.group.distance, value=cell.percent,
                       low=cell.low, high=cell.high, n=cell.total)  # fmt: skip
        for test in result.contrastive_tests:
            if test.run == number:
                yield make(kind="contrastive test", name=test.group.title, group=test.group.distance,
                           value=test.own, n=len(test.group.examples), signature=result.signature,
                           **_against(test.test, first))  # fmt: skip
        for evidence in result.evidence[number]:
            for name, condition in evidence.conditions.items():
                yield make(kind=f"use of context: {name}", name=evidence.group.title,
                           group=evidence.group.distance, value=condition.own, baseline=condition.other,
                           difference=condition.own - condition.other, p=condition.p,
                           p_corrected=condition.p_corrected, n=evidence.documents)  # fmt: skip
        for use in result.gains[number]:
            yield make(kind="context", name=f"{use.condition} context, nats per token", value=use.nats,
                       low=use.interval_95[0], high=use.interval_95[1], p=use.p, n=use.tokens)  # fmt: skip
        for compared in result.published:
            value, measure, data = compared.published, compared.published.measure, compared.published.test
            if compared.run == number and value.value is not None:
                yield make(kind="published", name=f"{value.table_title}, {value.row}", group=value.column,
                           value=value.value,
                           difference=difference_of(value.value, compared.first_published),
                           signature="|".join((measure.title, data.direction, data.corpus,
                                               measure.protocol)))  # fmt: skip


def _line(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _against(test: Difference | None, first: str) -> dict[str, Any]:
    if test is None:
        return {}
    low, high = test.interval_95
    return {
        "baseline": first, "difference": test.difference, "difference_low": low, "difference_high": high,
        "p": test.p, "p_corrected": test.p_corrected,
    }  # fmt: skip


def difference_of(value: float | None, first: float | None) -> float | None:
    """Return a value minus the value of the first system; None if either is missing."""
    return None if value is None or first is None else value - first
