"""The page of `cotext compare`: conclusions first, then the figures and their signatures."""

from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby

import numpy as np

from cotext.data.contrastive_suites import CONTROLLED
from cotext.evaluation.metrics.profile import Bucket
from cotext.evaluation.studies.attention.report import title_of
from cotext.evaluation.studies.compare.against_papers import PublishedComparison
from cotext.evaluation.studies.compare.comparison import RunComparison
from cotext.evaluation.studies.compare.pooled_tables import pooled_table
from cotext.evaluation.studies.compare.quality import TestedScore
from cotext.evaluation.studies.compare.seed_table import seed_table, titled
from cotext.evaluation.studies.compare.tables import FIRST_LOSS, NOTE
from cotext.evaluation.studies.compare.verdict import context_words, verdict
from cotext.evaluation.studies.contrastive.contrastive_rows import PHENOMENA
from cotext.evaluation.studies.contrastive.evidence import CONDITIONS, Condition, away
from cotext.evaluation.studies.plots import (
    accuracy_plots,
    accuracy_table,
    attention_shares,
    curves,
    legend,
    quality_by,
    ratios,
)
from cotext.evaluation.studies.versions import versions
from cotext.runtime.html import breakable, facts, folded, table, whole_page
from cotext.runtime.tables import render_p

LEAD = """How these runs use context, measured on the same test set and contrastive suites. Differences are
relative to the first run. Every sentence here is computed from the tables below."""
CURVES = "Loss of current sentences on the development set of each run, on a logarithmic scale."
RATIOS = """The same loss over that of context sentences, both by token: below 1, current sentences are
predicted better than the context in their windows. Of systems whose windows have context in the target."""
MAPS = """How the attention of a sentence is distributed over sentences: the mean of all layers and heads of a
kind. A full square is a share of 1, grey is outside the context window. Attention does not show what changes
a translation: see contrastive accuracy and CXMI for that."""
USE = """CXMI: what context adds to the log-probability of the reference, compared with the sentence alone, in
nats per token (0.69 doubles a probability); intervals by bootstrap over documents. Random context is
sentences of other documents: what it adds or takes away is not use of this document."""


EVIDENCE = """The accuracy of each system with the true context, without context, and with context from other
documents. It is said to use context where all five conditions hold: its accuracy is above chance; so is its
balanced accuracy, where every correct form has the same weight; its accuracy is above that without context,
and above that with context from other documents; and the correct candidate is more probable than with the
latter (CXMI: what context adds to its log-probability, nats per token). Bold: p &lt; 0.05."""


def render_comparison(found: RunComparison) -> str:
    """The page."""
    body = [
        f"<h1>Systems side by side</h1>\n<p>{LEAD}</p>",
        _verdict(found),
        "<h2>The systems</h2>",
        _systems(found),
    ]
    if found.scores[0]:
        body += ["<h2>Quality</h2>", _scores(found)]
    if found.lengths:
        body.append(_profiles(found))
    if any(run.seeds for run in found.runs):
        body += ["<h2>Seeds</h2>", *seed_table(found)]
    if found.rows:
        about = {name: words for name, words in PHENOMENA.items() if _has_controlled(found, name)}
        body += [
            "<h2>Contrastive accuracy</h2>",
            accuracy_plots(found.rows, found.systems, about),
            accuracy_table(found.rows, found.systems, about),
        ]
    if found.pooled:
        body.append(pooled_table(found))
    if any(found.evidence):
        body += ["<h2>Context use, tested</h2>", f"<p>{EVIDENCE}</p>", _evidence(found)]
    if found.contrastive_tests:
        body.append(_contrastive_tests(found))
    if any(found.gains):
        body += ["<h2>CXMI</h2>", f"<p>{USE}</p>", _uses(found)]
    if any(run.attention for run in found.runs):
        body += ["<h2>Attention</h2>", f"<p>{MAPS}</p>", *_maps(found)]
    if any(run.curve for run in found.runs):
        drawn = curves(found.systems, CURVES) + ratios(found.systems, RATIOS)
        body += ["<h2>Training</h2>", f'<div class="pair">{drawn}</div>']
    if found.published:
        body += ["<h2>Published values</h2>", *_published_tables(found)]
    body += ["<h2>How these figures came about</h2>", _facts(found)]
    return whole_page("Cotext: systems side by side", body)


def _has_controlled(found: RunComparison, name: str) -> bool:
    return any(f"{CONTROLLED}{name}" in system.accuracies for system in found.systems)


def _verdict(found: RunComparison) -> str:
    items = []
    for answer in verdict(found):
        lines = "".join(f"<dd>{escape(line)}</dd>" for line in answer.lines)
        items.append(f"<dt>{escape(answer.question)}</dt>{lines}")
    notes = "".join(f'<p class="soft">{escape(note)}</p>' for note in found.notes)
    return f'<dl class="verdict">{"".join(items)}</dl>\n{notes}'


def _systems(found: RunComparison) -> str:
    started = any(run.first_loss for run in found.runs)
    rows = [
        (
            titled(run),
            escape(run.recipe.title),
            context_words(run),
            run.parameters_in_words,
            run.updates_in_words,
            *([run.first_loss_in_words] * started),
        )
        for run in found.runs
    ]
    caption = "Context window: the sentences around the one that is translated which the system may read."
    if started:
        caption += f" {FIRST_LOSS[0].upper()}{FIRST_LOSS[1:]}."
    header = ("system", "recipe", "context window", "parameters", "updates", *(["first loss"] * started))
    return table(caption, header, rows, left=3)


def _scores(found: RunComparison) -> str:
    titles = [each.score.title for each in found.scores[0]]
    rows = [
        (breakable(run.label), *map(_score, scores))
        for run, scores in zip(found.runs, found.scores, strict=True)
    ]
    tested = any(each.against_first for scores in found.scores for each in scores)
    words = (
        " With 95 % intervals; below, the difference from the first system, its interval, and p after "
        "correction. Bold: significant, p &lt; 0.05."
        if tested
        else ""
    )
    caption = f"{found.documents:,} documents, {found.sentences:,} sentences.{words}"
    return table(caption, ("", *map(escape, titles)), rows)


def _score(each: TestedScore) -> str:
    value = f"{each.score.value:.2f}"
    if each.interval_95:
        value += f' <span class="interval">{each.interval_95[0]:.1f} to {each.interval_95[1]:.1f}</span>'
    if each.against_first is None:
        return value
    low, high = each.against_first.interval_95
    difference = f"{each.against_first.difference:+.2f}"
    return (
        f"{value}{f'<b>{difference}</b>' if each.differs else difference} "
        f'<span class="interval">{low:+.2f} to {high:+.2f}</span>'
        f'<span class="interval">p {escape(render_p(each.against_first.p_corrected))}</span>'
    )


def _profiles(found: RunComparison) -> str:
    figures = []
    for what, buckets in (
        ("sentences in the document", found.lengths),
        ("position in the document", found.positions),
    ):
        words = ". ".join(
            f"{run.label}: " + ", ".join(f"{b.scores[i][0].value:.1f} at {b.name}" for b in buckets)
            for i, run in enumerate(found.runs)
        )
        description = escape(f"{buckets[0].scores[0][0].title} by {what}. {words}.")
        figures.append(
            f"<figure>{quality_by(what, buckets, len(found.systems), description)}"
            f"<figcaption>{_counts(buckets)}</figcaption></figure>"
        )
    return f'{legend(found.systems)}\n<div class="pair">{"".join(figures)}</div>'


def _counts(buckets: Sequence[Bucket]) -> str:
    return "Sentences: " + ", ".join(f"{bucket.sentences:,} at {bucket.name}" for bucket in buckets) + "."


def _evidence(found: RunComparison) -> str:
    rows = []
    for run, evidence in zip(found.runs, found.evidence, strict=True):
        for each in evidence:
            chance, balanced, none, foreign, cxmi = (each.conditions[name] for name in CONDITIONS)
            rows.append(
                (
                    escape(run.label),
                    f'{escape(each.group.title)} <span class="interval">{away([each.group.distance])}; '
                    f"documents: {each.documents:,}</span>"
                    f'<span class="interval">chance {chance.other:.1f}</span>',
                    _evident(f"{chance.own:.1f}", chance),
                    _evident(f"{balanced.own:.1f}", balanced),
                    _evident(f"{none.other:.1f}", none),
                    _evident(f"{foreign.other:.1f}", foreign),
                    f"{cxmi.own:+.3f}",
                    _evident(f"{cxmi.other:+.3f}", cxmi),
                    "too few documents" if each.too_few else "used" if each.used else "not significant",
                )
            )
    count = max(each.groups for evidence in found.evidence for each in evidence)
    caption = (
        "Accuracy in per cent, below it p over documents, two-sided, corrected for all "
        f"{count} rows (Bonferroni). Only clues within the context window of the system."
    )
    header = (
        "system", "phenomenon", "accuracy", "balanced", "no context", "other documents", "CXMI",
        "other documents", "context",
    )  # fmt: skip
    return table(caption, header, rows, left=2, heads=2)


def _evident(figure: str, condition: Condition) -> str:
    """A figure, bold where the condition holds, and p below it."""
    shown = f"<b>{figure}</b>" if condition.holds else figure
    return f'{shown} <span class="interval">p {escape(render_p(condition.p_corrected))}</span>'


def _contrastive_tests(found: RunComparison) -> str:
    first = escape(found.runs[0].title)
    rows = []
    for each in found.contrastive_tests:
        low, high = each.test.interval_95
        words = "too few documents" if each.too_few else "no significant difference"
        if each.significant:
            words = "higher accuracy" if each.own > each.first else "lower accuracy"
        words += f"; also within the context window of {first}" if each.first_sees else ""
        rows.append(
            (
                escape(found.runs[each.run].label),
                escape(each.phenomenon),
                escape(each.distance),
                f"{each.first:.1f}",
                f"{each.own:.1f}",
                f'{each.test.difference:+.1f} <span class="interval">{low:+.1f} to {high:+.1f}</span>',
                escape(render_p(each.p_corrected)),
                words,
            )
        )
    caption = (
        f"Contrastive examples whose clue is within the context window of the system, compared with {first}: "
        "accuracy in per cent, difference in points with its 95 % interval, and p of McNemar's test over "
        "documents, corrected for all rows. "
        f"<code>{escape(found.signature)}</code>"
    )
    header = ("system", "phenomenon", "distance", first, "own", "difference", "p", "in words")
    content = table(caption, header, rows, left=2)
    return (
        f"<details><summary>Every difference in contrastive accuracy, tested</summary>\n{content}</details>"
    )


def _uses(found: RunComparison) -> str:
    rows = []
    for run, uses in zip(found.runs, found.gains, strict=True):
        for use in uses:
            low, high = use.interval_95
            rows.append(
                (
                    escape(run.label),
                    escape(use.condition),
                    f"{use.nats:+.4f}",
                    f"{low:+.4f} to {high:+.4f}",
                    escape(render_p(use.p)),
                    f"{use.documents:,}",
                    f"{use.tokens:,}",
                )
            )
    header = ("system", "context", "nats per token", "95 % interval", "p", "documents", "tokens")
    return table("Over all sentences that have context.", header, rows, left=2, heads=2)


def _maps(found: RunComparison) -> list[str]:
    parts = []
    for number, run in enumerate(found.runs):
        report = run.attention
        if report is None:
            continue
        figures = []
        for each in report.kinds:
            share = np.asarray(each.share.numpy(), dtype=np.float64)
            own = float(np.nanmean(np.diagonal(share)))
            title = title_of(each.kind)
            description = escape(
                f"{run.label}, {title}: share of attention between the sentences of a document; "
                f"{own:.2f} on the sentence itself."
            )
            svg = attention_shares(
                f"attention-{number}-{each.kind}", report.numbers, share, number, description
            )
            figures.append(
                f"<figure>{svg}<figcaption>{escape(title)}; on the sentence itself {own:.2f}</figcaption>"
                "</figure>"
            )
        parts.append(
            f"<h3>{escape(run.label)}, document {escape(report.document.id)}</h3>\n"
            f'<div class="maps">{"".join(figures)}</div>'
        )
    return parts


def _published_tables(found: RunComparison) -> Iterable[str]:
    yield (
        f"<p>{escape(NOTE)} Below a value: its difference from the first row of the table, where both are "
        "published; after “here”: the figure measured here on the same suite or test set, and its "
        "difference.</p>"
    )
    for title, group in groupby(found.published, key=lambda each: each.published.table_title):
        yield _published(found, title, list(group))


def _published(found: RunComparison, title: str, values: Sequence[PublishedComparison]) -> str:
    columns = list(dict.fromkeys(each.published.column for each in values))
    by_row: dict[tuple[int, str], dict[str, PublishedComparison]] = {}
    for each in values:
        by_row.setdefault((each.run, each.published.row), {})[each.published.column] = each
    rows = [
        (
            escape(found.runs[run].label),
            escape(row),
            *(_published_cell(cells[column]) if column in cells else "" for column in columns),
        )
        for (run, row), cells in by_row.items()
    ]
    described = {each.published.column: each.published for each in values}
    words = "; ".join(
        f"{name}: {described[name].test.corpus}, {described[name].test.direction}, "
        f"{described[name].measure.title}, {described[name].measure.protocol}"
        for name in columns
    )
    return (
        f"{table(f'<b>{escape(title)}</b>', ('system', 'row', *map(escape, columns)), rows, left=2)}\n"
        f"{folded('Columns', words.replace('; ', chr(10)))}"
    )


def _published_cell(each: PublishedComparison) -> str:
    value = each.published.value
    cell = "–" if value is None else f"{value:g}"
    if value is not None and each.first_published is not None:
        cell += f' <span class="interval">{value - each.first_published:+.4g}</span>'
    if each.measured is not None:
        difference = ""
        if each.first_measured is not None:
            difference = f", {each.measured - each.first_measured:+.3g}"
        cell += f' <span class="interval">here {each.measured:.4g}{difference}</span>'
    return cell


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
        parts.append(
            f"<h3>{escape(run.label)}</h3>\n{facts(told)}\n"
            f"{folded('Signatures of its figures', chr(10).join(signatures))}"
        )
    tests = list(dict.fromkeys(test.signature for test in found.tests.values()))
    shared = [("differences in quality", f"<code>{escape(each)}</code>") for each in tests]
    if found.test is not None:
        files = dict.fromkeys((str(found.test.source), str(found.test.reference)))
        shared.insert(0, ("test set", f"{escape(', '.join(files))} ({found.test.digest})"))
    shared += [(name, escape(value)) for name, value in versions().items()]
    return f"{chr(10).join(parts)}\n<h3>All</h3>\n{facts(shared)}"
