"""A comparison as sections of tables and pictures, for a terminal, a page and LaTeX."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from cotext.evaluation.metrics.profile import TITLES, Bucket
from cotext.evaluation.statistics.seeds import Difference
from cotext.evaluation.statistics.significance import SIGNIFICANT
from cotext.evaluation.studies.compare.against_papers import PublishedComparison
from cotext.evaluation.studies.compare.comparison import PHENOMENA, RunComparison
from cotext.evaluation.studies.compare.example import example
from cotext.evaluation.studies.compare.figures import difference_of
from cotext.evaluation.studies.compare.quality import TestedScore
from cotext.evaluation.studies.compare.system import MeasuredSystem
from cotext.evaluation.studies.compare.verdict import context_words, verdict
from cotext.evaluation.studies.contrastive.decisions import ALL_SUITES
from cotext.evaluation.studies.contrastive.evidence import EVIDENCE_HEADER, evidence_row, legend
from cotext.evaluation.studies.tables import Cell, Row, Table, interval
from cotext.evaluation.studies.versions import versions
from cotext.models.run_folder import listed_seeds
from cotext.runtime.html import facts, folded, whole_page
from cotext.runtime.tables import render_p

NOTE = (
    "Published systems were trained on other corpora with other vocabularies: compare differences between "
    "systems, never a value measured here with a published one."
)
FIRST_LOSS = (
    "first loss: nats per token before the first update, on the first documents of the development set; in "
    "brackets: of the run that training starts from, on the same sentences one by one"
)
LEAD = """How these runs use context, measured on the same test set and contrastive suites. Differences are
relative to the first run. Every sentence here is computed from the tables below."""
CURVES = "Loss of current sentences on the development set of each run, on a logarithmic scale."
RATIOS = """The same loss over that of context sentences, both by token: below 1, current sentences are
predicted better than the context in their windows. Of systems whose windows have context in the target."""
USE = """CXMI: what context adds to the log-probability of the reference, compared with the sentence alone, in
nats per token (0.69 doubles a probability); intervals by bootstrap over documents. Random context is
sentences of other documents: what it adds or takes away is not use of this document."""
EVIDENCE = """The accuracy of each system with the true context, without context, and with context from other
documents. It is said to use context where all five conditions hold: its accuracy is above chance; so is its
balanced accuracy, where every correct form has the same weight; its accuracy is above that without context,
and above that with context from other documents; and the correct candidate is more probable than with the
latter (CXMI: what context adds to its log-probability, nats per token)."""
SEEDS = """Every figure of a system that was trained with several seeds is a mean over them. A difference is
said to be significant where it is over documents, for the models that were trained, and over seeds and
documents together, for models of other seeds. Deviation: the standard deviation of single seeds. A difference
that is no larger than the deviation of one of the two systems is marked ≈: two single runs may well differ
the other way round."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a comparison: tables, lines below them, and for a page a paragraph and pictures (HTML)."""

    title: str
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    about: str = ""
    pictures: str = ""

    def text(self) -> str:
        """For a terminal."""
        return "\n".join([self.title, "\n\n".join(table.text() for table in self.tables), *self.notes])

    def html(self) -> str:
        """For a page."""
        about = [f"<p>{escape(self.about)}</p>"] if self.about else []
        notes = [f'<p class="soft">{escape(note)}</p>' for note in self.notes]
        tables = [table.html() for table in self.tables]
        return "\n".join([f"<h2>{escape(self.title)}</h2>", *about, self.pictures, *tables, *notes])


def as_text(found: RunComparison, brief: bool = False) -> str:
    """Everything but curves and maps, for a terminal; `brief`: the answers and the accuracies of choices."""
    answers = ["\n".join([each.question, *(f"  {line}" for line in each.lines)]) for each in verdict(found)]
    sections = [_choices(found, False)] if brief else _sections(found)
    blocks = [section.text() for section in sections if section.tables]
    notes = ["\n".join(found.notes)] if found.notes and not brief else []
    return "\n\n".join([*answers, *blocks, *notes])


def as_latex(found: RunComparison) -> str:
    """The tables as LaTeX (needs booktabs)."""
    heading = ["% needs \\usepackage{booktabs}", "% *: significant, p < 0.05 after correction"]
    tables = (table.latex() for section in _sections(found) for table in section.tables)
    return "\n".join([*heading, *tables, ""])


def render_comparison(found: RunComparison) -> str:
    """The page: a document and conclusions first, then the figures and their signatures."""
    items = []
    for answer in verdict(found):
        lines = "".join(f"<dd>{escape(line)}</dd>" for line in answer.lines)
        items.append(f"<dt>{escape(answer.question)}</dt>{lines}")
    notes = "".join(f'<p class="soft">{escape(note)}</p>' for note in found.notes)
    body = [
        f"<h1>Systems side by side</h1>\n<p>{LEAD}</p>",
        example(found),
        "<h2>Answers</h2>",
        f'<dl class="verdict">{"".join(items)}</dl>\n{notes}',
        *(section.html() for section in _sections(found, pictures=True)),
        "<h2>How these figures came about</h2>",
        _facts(found),
    ]
    return whole_page("Cotext: systems side by side", body)


def _sections(found: RunComparison, pictures: bool = False) -> Iterator[Section]:
    """The sections that there are figures for."""
    yield _systems(found)
    if found.scores[0]:
        yield _quality(found, pictures)
    if any(run.seeds for run in found.runs):
        yield Section("Seeds", [_seeds(found)], about=SEEDS)
    if found.rows:
        yield _choices(found, pictures)
    if found.pooled:
        yield _pooled(found)
    if any(found.evidence):
        rows: list[Row] = [
            (run.label, *evidence_row(each))
            for run, evidence in zip(found.runs, found.evidence, strict=True)
            for each in evidence
        ]
        words = legend([each for evidence in found.evidence for each in evidence])
        table = Table(("system", *EVIDENCE_HEADER), rows, left=2, heads=2)
        yield Section("Context use, tested", [table], words.splitlines(), EVIDENCE)
    if found.contrastive_tests:
        yield _contrastive_tests(found)
    if any(found.gains):
        yield Section("CXMI", [_gains(found)], about=USE)
    if pictures and any(run.curve for run in found.runs):
        yield _training(found)
    if found.published:
        yield _published(found)


def _systems(found: RunComparison) -> Section:
    started = any(run.first_loss for run in found.runs)
    header = ["system", "recipe", "context window", "parameters", "updates", "first loss"]
    rows: list[Sequence[str | Cell]] = [
        [
            _label(run),
            run.first.recipe.title,
            context_words(run),
            run.parameters_in_words,
            run.updates_in_words,
            run.first_loss_in_words,
        ]
        for run in found.runs
    ]
    shown = len(header) if started else len(header) - 1
    caption = "Context window: the sentences around the one that is translated which the system may read."
    table = Table(header[:shown], [row[:shown] for row in rows], caption, left=3)
    return Section("The systems", [table], [FIRST_LOSS] * started)


def _quality(found: RunComparison, pictures: bool) -> Section:
    tested = any(test.differences for test in found.tests.values())
    rows: list[Row] = [
        (run.label, *map(_score, scores)) for run, scores in zip(found.runs, found.scores, strict=True)
    ]
    caption = f"{found.documents:,} documents, {found.sentences:,} sentences."
    if tested:
        caption += (
            " With 95 % intervals; below, the difference from the first system, its interval, and p after "
            "correction."
        )
    notes = [each.score.signature for each in found.scores[0]]
    if tested:
        signatures = dict.fromkeys(test.signature for test in found.tests.values())
        notes = [
            "* differs significantly from the first system, p < 0.05 after correction",
            *signatures,
            *notes,
        ]
    profiles = [(TITLES["length"], found.lengths), (TITLES["position"], found.positions)]
    tables = [Table(("", *(each.score.title for each in found.scores[0])), rows, caption)]
    tables += [_profile(found, what, buckets) for what, buckets in profiles if buckets]
    return Section("Quality", tables, notes, pictures=_profile_plots(found, profiles) if pictures else "")


def _score(each: TestedScore) -> Cell:
    small = [] if each.interval_95 is None else [interval(each.interval_95, ".1f")]
    if (test := each.against_first) is not None:
        small += [f"{test.difference:+.2f}", interval(test.interval_95), f"p {render_p(test.p_corrected)}"]
    return Cell(f"{each.score.value:.2f}", tuple(small), each.differs)


def _profile(found: RunComparison, what: str, buckets: Sequence[Bucket]) -> Table:
    header = (f"{buckets[0].scores[0][0].title} by {what}", "documents", "sentences")
    rows: list[Row] = [
        (b.name, f"{b.documents:,}", f"{b.sentences:,}", *(f"{scores[0].value:.2f}" for scores in b.scores))
        for b in buckets
    ]
    return Table((*header, *(run.label for run in found.runs)), rows)


def _profile_plots(found: RunComparison, profiles: Iterable[tuple[str, Sequence[Bucket]]]) -> str:
    from cotext.evaluation.studies.plots import legend as legend_of
    from cotext.evaluation.studies.plots import quality_by

    titles = [run.label for run in found.runs]
    drawn = [f"<figure>{quality_by(what, buckets, titles)}</figure>" for what, buckets in profiles if buckets]
    return f'{legend_of(titles)}\n<div class="pair">{"".join(drawn)}</div>'


def _label(run: MeasuredSystem) -> Cell:
    return Cell(run.label, (f"seeds {listed_seeds(run.seeds)}",) if run.seeds else ())


def _seeds(found: RunComparison) -> Table:
    """Every figure by seed, and what the tests make of seeds and of documents alone."""
    rows: list[Row] = []
    for number, run in enumerate(found.runs):
        for each in found.over_seeds(number):
            deviation = each.by_seed.deviation
            cells: list[str | Cell] = ["", "", "", ""]
            if (test := each.against_first) is not None:
                over = "" if test.over_seeds is None else render_p(test.over_seeds.p)
                difference = f"{test.difference:+.2f}{' ≈' if each.lost_in_seeds else ''}"
                p = Cell(render_p(test.p_corrected), marked=test.p_corrected < SIGNIFICANT)
                cells = [difference, render_p(test.p_documents), over, p]
            values = " ".join(f"{value:.1f}" for value in each.by_seed.values)
            spread = "" if deviation is None else f"{deviation:.2f}"
            name = (_label(run), each.name, each.group)
            rows.append((*name, f"{each.by_seed.mean:.2f}", spread, values, *cells))
    header = (
        "by seed", "", "", "mean", "deviation", "values", "difference", "p, documents", "p, seeds",
        "corrected",
    )  # fmt: skip
    return Table(header, rows, f"Differences from {found.runs[0].title}.", left=3, heads=3)


def _choices(found: RunComparison, pictures: bool) -> Section:
    rows: list[Row] = [
        (
            row.phenomenon,
            row.distance,
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
        for row in found.rows
    ]
    header = ("contrastive accuracy, %", "distance", "chance", *(run.label for run in found.runs), "")
    caption = (
        "With 95 % intervals. Distance: sentences back to the clue; ahead: the clue is in the next sentence."
    )
    notes = ["(in brackets): the clue is outside the context window, and chance is expected"]
    if any(cell.shown for row in found.rows for cell in row.cells):
        notes.append("* context use is significant")
    drawn = ""
    if pictures:
        from cotext.evaluation.studies.plots import accuracy_plots

        about = PHENOMENA if any(row.exact_chance for row in found.rows) else {}
        drawn = accuracy_plots(found.rows, [run.label for run in found.runs], about)
    return Section("Contrastive accuracy", [Table(header, rows, caption, heads=2)], notes, pictures=drawn)


def _tested(test: Difference | None, form: str, differs: bool) -> tuple[str | Cell, ...]:
    """A difference, its interval, p, and p after correction."""
    if test is None:
        return "", "", "", ""
    difference = Cell(format(test.difference, form), marked=differs)
    return difference, interval(test.interval_95, form), render_p(test.p), render_p(test.p_corrected)


_TESTED = ("difference", "95 % interval", "p", "corrected")


def _pooled(found: RunComparison) -> Section:
    rows: list[Row] = [
        (run.label, f"{each.disc:.2f}", f"{each.disc_avg:.2f}", *_tested(each.test, "+.2f", each.differs))
        for run, each in zip(found.runs, found.pooled, strict=True)
    ]
    caption = (
        f"All {len(found.pooled[0].suites)} suites together, {found.pooled[0].examples:,} examples whose "
        "clue is in another sentence, in per cent; differences from the first system."
    )
    table = Table((ALL_SUITES, "every example", "every suite", *_TESTED), rows, caption)
    return Section("All suites together", [table], [found.pooled_signature])


def _contrastive_tests(found: RunComparison) -> Section:
    rows: list[Row] = []
    for each in found.contrastive_tests:
        words = "too few documents" if each.too_few else "no significant difference"
        if each.significant:
            words = "higher accuracy" if each.own > each.first else "lower accuracy"
        words += "; in the window of the first, too" if each.first_sees else ""
        name = (found.runs[each.run].label, each.phenomenon, each.distance)
        accuracies = (f"{each.first:.1f}", f"{each.own:.1f}")
        rows.append((*name, *accuracies, *_tested(each.test, "+.1f", each.significant), words))
    caption = (
        "Contrastive examples whose clue is within the context window of the system, compared with "
        f"{found.runs[0].title}: accuracy in per cent, difference in points, and p over documents, corrected "
        "for all rows."
    )
    header = ("", "phenomenon", "distance", "first", "own", *_TESTED, "")
    table = Table(header, rows, caption, left=3, heads=3)
    return Section("Every difference in contrastive accuracy, tested", [table], [found.signature])


def _gains(found: RunComparison) -> Table:
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
        for run, uses in zip(found.runs, found.gains, strict=True)
        for use in uses
    ]
    header = ("system", "context", "nats per token", "95 % interval", "p", "documents", "tokens")
    return Table(header, rows, "Over all sentences that have context.", left=2, heads=2)


def _published(found: RunComparison) -> Section:
    tables, notes = [], []
    for title, group in groupby(found.published, key=lambda each: each.published.table_title):
        values = list(group)
        described = {each.published.column: each.published for each in values}
        by_row: dict[tuple[int, str], dict[str, Cell]] = {}
        for each in values:
            cells = by_row.setdefault((each.run, each.published.row), {})
            cells[each.published.column] = _published_cell(each)
        rows: list[Row] = [
            (found.runs[run].label, row, *(cells.get(column, "") for column in described))
            for (run, row), cells in by_row.items()
        ]
        tables.append(Table((title, "row", *described), rows, left=2))
        notes += [
            f"{title}, {name}: {each.test.corpus}, {each.test.direction}, {each.measure.title}, "
            f"{each.measure.protocol}"
            for name, each in described.items()
        ]
    about = (
        f"{NOTE} Below a value: its difference from the first row of the table, where both are published; "
        "after “here”: the figure measured here on the same suite or test set, and its difference."
    )
    return Section("Published values", tables, [NOTE, *notes], about)


def _published_cell(each: PublishedComparison) -> Cell:
    value, small = each.published.value, []
    if (difference := difference_of(value, each.first_published)) is not None:
        small.append(f"{difference:+.4g}")
    if each.measured is not None:
        own = difference_of(each.measured, each.first_measured)
        small.append(f"here {each.measured:.4g}{'' if own is None else f', {own:+.3g}'}")
    return Cell("–" if value is None else f"{value:g}", tuple(small))


def _training(found: RunComparison) -> Section:
    """Losses over updates, which are pictures alone."""
    from cotext.evaluation.studies.plots import loss_ratios, training_curves

    titles = [run.label for run in found.runs]
    curves = [(training_curves(titles, [run.curve for run in found.runs]), CURVES)]
    if any(run.loss_ratio for run in found.runs):
        curves.append((loss_ratios(titles, [run.loss_ratio for run in found.runs]), RATIOS))
    drawn = [
        f'<figure class="curves">{svg}<figcaption>{words}</figcaption></figure>' for svg, words in curves
    ]
    return Section("Training", pictures=f'<div class="pair">{"".join(drawn)}</div>')


def _facts(found: RunComparison) -> str:
    parts = []
    for number, run in enumerate(found.runs):
        signatures = [score.score.signature for score in found.scores[number]]
        told = []
        for each in run.runs:
            signatures += [f"{name}: {decisions.signature}" for name, decisions in each.decisions.items()]
            signatures += [f"context: {each.use.signature}"] if each.use else []
            told += [
                ("run", f"<code>{escape(str(each.path))}</code>"),
                ("model and decoding", f"<code>{escape(each.signature)}</code>"),
            ]
        own = folded("Signatures of its figures", "\n".join(signatures))
        parts.append(f"<h3>{escape(run.label)}</h3>\n{facts(told)}\n{own}")
    shared = [(name, escape(value)) for name, value in versions().items()]
    if found.test is not None:
        files = dict.fromkeys((str(found.test.source), str(found.test.reference)))
        shared.insert(0, ("test set", f"{escape(', '.join(files))} ({found.test.digest})"))
    return f"{chr(10).join(parts)}\n<h3>All</h3>\n{facts(shared)}"
