"""The page of `cotext compare`: first what the figures say, then the figures and where they are from."""

from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby

import numpy as np

from cotext.analysis.contrastive_rows import PHENOMENA
from cotext.analysis.runs.against_papers import BesidePaper
from cotext.analysis.runs.comparison import RunComparison, ScoreOf, signature
from cotext.data.contrastive_suites import CONTROLLED
from cotext.metrics.evidence import CONDITIONS, Condition
from cotext.metrics.evidence_words import away
from cotext.metrics.profile import Bucket
from cotext.reports.attention import title_of
from cotext.reports.compare.tables import NOTE
from cotext.reports.compare.verdict import sight, verdict
from cotext.reports.contrastive_figures import choice_plots, choice_table, curves, legend
from cotext.reports.html import breakable, facts, folded, table, whole_page
from cotext.reports.plots import attention_shares, quality_by
from cotext.reports.versions import versions
from cotext.runtime.tables import render_p

LEAD = """What these runs make of context, measured on the same sentences and choices. Differences are taken
from the first one. Every sentence here is computed from the tables below."""
CURVES = "Loss of current sentences on the development set of each run, on a logarithmic scale."
MAPS = """How the attention of a sentence is shared out among the sentences that it sees: the mean of all
layers and heads of a kind. A full square is everything, grey is out of sight. Where attention goes is not
what decides: what context changes is told by the choices and by what context adds."""
USE = """What context adds to the log-probability of the reference, beside the sentence alone, in nats a token
(0.69 doubles a probability); intervals by drawing documents. Random context holds sentences of other
documents: what it adds, or takes, is not use of this document."""


EVIDENCE = """What each system chooses in its true context, without context, and beside sentences of
other documents. It is said to use context where all five hold: it is right more often than by guessing;
the same where every form counts the same (“balanced”); more often than without context; more often than
beside sentences of other documents; and it is surer of what is right than beside these (CXMI: what
context adds to the log-probability of the right candidate, in nats a token). Bold: the true context is
better, p &lt; 0.05."""


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
    if found.rows:
        about = {name: words for name, words in PHENOMENA.items() if _has_controlled(found, name)}
        body += [
            "<h2>Right choices</h2>",
            choice_plots(found.rows, found.systems, about),
            choice_table(found.rows, found.systems, about),
        ]
    if any(found.evidence):
        body += ["<h2>Use of context</h2>", f"<p>{EVIDENCE}</p>", _evidence(found)]
    if found.choices:
        body.append(_choice_tests(found))
    if any(found.uses):
        body += ["<h2>What context adds</h2>", f"<p>{USE}</p>", _uses(found)]
    if any(run.attention for run in found.runs):
        body += ["<h2>Attention</h2>", f"<p>{MAPS}</p>", *_maps(found)]
    if any(run.curve for run in found.runs):
        body += ["<h2>Training</h2>", curves(found.systems, CURVES)]
    if found.beside:
        body += ["<h2>Beside the papers</h2>", *_beside(found)]
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
    rows = [
        (
            escape(run.title),
            escape(run.recipe.title),
            sight(run.sight.before, run.sight.after),
            f"{run.parameters:,}",
            f"{run.updates:,}",
        )
        for run in found.runs
    ]
    caption = "“May see”: sentences around the one that is translated, as far as its view goes."
    return table(caption, ("system", "recipe", "may see", "parameters", "updates"), rows, left=3)


def _scores(found: RunComparison) -> str:
    titles = [each.score.title for each in found.scores[0]]
    rows = [
        (breakable(run.title), *map(_score, scores))
        for run, scores in zip(found.runs, found.scores, strict=True)
    ]
    tested = any(each.beside_first for scores in found.scores for each in scores)
    words = (
        " With 95 % intervals; below, the difference from the first system, its interval, and p after "
        "correction. Bold: more than luck, p &lt; 0.05."
        if tested
        else ""
    )
    caption = f"{found.documents:,} documents, {found.sentences:,} sentences.{words}"
    return table(caption, ("", *map(escape, titles)), rows)


def _score(each: ScoreOf) -> str:
    value = f"{each.score.value:.2f}"
    if each.interval_95:
        value += f' <span class="interval">{each.interval_95[0]:.1f} to {each.interval_95[1]:.1f}</span>'
    if each.beside_first is None:
        return value
    low, high = each.beside_first.interval_95
    difference = f"{each.beside_first.difference:+.2f}"
    return (
        f"{value}{f'<b>{difference}</b>' if each.differs else difference} "
        f'<span class="interval">{low:+.2f} to {high:+.2f}</span>'
        f'<span class="interval">p {escape(render_p(each.beside_first.p_corrected))}</span>'
    )


def _profiles(found: RunComparison) -> str:
    figures = []
    for what, buckets in (
        ("sentences in the document", found.lengths),
        ("position in the document", found.positions),
    ):
        told = ". ".join(
            f"{run.title}: " + ", ".join(f"{b.scores[i][0].value:.1f} at {b.name}" for b in buckets)
            for i, run in enumerate(found.runs)
        )
        description = escape(f"{buckets[0].scores[0][0].title} by {what}. {told}.")
        figures.append(
            f"<figure>{quality_by(what, buckets, found.systems, description)}"
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
                    escape(run.title),
                    f'{escape(each.group.title)} <span class="interval">{away([each.group.distance])}; '
                    f"documents: {each.documents:,}</span>"
                    f'<span class="interval">chance {chance.other:.1f}</span>',
                    _evident(f"{chance.own:.1f}", chance),
                    _evident(f"{balanced.own:.1f}", balanced),
                    _evident(f"{none.other:.1f}", none),
                    _evident(f"{foreign.other:.1f}", foreign),
                    f"{cxmi.own:+.3f}",
                    _evident(f"{cxmi.other:+.3f}", cxmi),
                    "too few to tell" if each.too_few else "used" if each.used else "not shown",
                )
            )
    count = max(each.groups for evidence in found.evidence for each in evidence)
    caption = (
        "Per cent right, below it p over documents, two-sided, corrected for all "
        f"{count} rows (Bonferroni). Clues that lie in context that the system may see."
    )
    header = (
        "system", "choices", "right", "balanced", "no context", "foreign", "CXMI", "foreign", "context",
    )  # fmt: skip
    return table(caption, header, rows, left=2, heads=2)


def _evident(figure: str, condition: Condition) -> str:
    """A figure, bold where the condition holds, and p below it."""
    shown = f"<b>{figure}</b>" if condition.holds else figure
    return f'{shown} <span class="interval">p {escape(render_p(condition.p_corrected))}</span>'


def _choice_tests(found: RunComparison) -> str:
    first = escape(found.runs[0].title)
    rows = []
    for each in found.choices:
        low, high = each.test.interval_95
        told = "too few documents to tell" if each.too_few else "no difference found"
        if each.significant:
            told = f"{'more' if each.own > each.first else 'fewer'} right"
        told += f"; {first} sees the clue, too" if each.first_sees else ""
        rows.append(
            (
                escape(found.runs[each.run].title),
                escape(each.phenomenon),
                escape(each.distance),
                f"{each.first:.1f}",
                f"{each.own:.1f}",
                f'{each.test.difference:+.1f} <span class="interval">{low:+.1f} to {high:+.1f}</span>',
                escape(render_p(each.p_corrected)),
                told,
            )
        )
    caption = (
        f"Choices whose clue is in context that the system may see, beside those of {first}: per cent right, "
        "difference in points with its 95 % interval, and p of McNemar's test over documents, corrected for "
        "all rows. "
        f"<code>{escape(signature(found))}</code>"
    )
    header = ("system", "choices", "back", first, "own", "difference", "p", "in words")
    content = table(caption, header, rows, left=2)
    return f"<details><summary>Every difference in choices, tested</summary>\n{content}</details>"


def _uses(found: RunComparison) -> str:
    rows = []
    for run, uses in zip(found.runs, found.uses, strict=True):
        for use in uses:
            low, high = use.interval_95
            rows.append(
                (
                    escape(run.title),
                    escape(use.condition),
                    f"{use.nats:+.4f}",
                    f"{low:+.4f} to {high:+.4f}",
                    escape(render_p(use.p)),
                    f"{use.documents:,}",
                    f"{use.tokens:,}",
                )
            )
    header = ("system", "context", "nats a token", "95 % interval", "p", "documents", "tokens")
    return table("Of all sentences that have context.", header, rows, left=2, heads=2)


def _maps(found: RunComparison) -> list[str]:
    parts = []
    for place, run in enumerate(found.runs):
        report = run.attention
        if report is None:
            continue
        figures = []
        for each in report.kinds:
            share = np.asarray(each.share.numpy(), dtype=np.float64)
            own = float(np.nanmean(np.diagonal(share)))
            title = title_of(each.kind)
            description = escape(
                f"{run.title}, {title}: share of attention between the sentences of a document; "
                f"{own:.2f} on the sentence itself."
            )
            svg = attention_shares(
                f"attention-{place}-{each.kind}", report.numbers, share, place, description
            )
            figures.append(
                f"<figure>{svg}<figcaption>{escape(title)}; on the sentence itself {own:.2f}</figcaption>"
                "</figure>"
            )
        parts.append(
            f"<h3>{escape(run.title)}, document {escape(report.document.id)}</h3>\n"
            f'<div class="maps">{"".join(figures)}</div>'
        )
    return parts


def _beside(found: RunComparison) -> Iterable[str]:
    yield (
        f"<p>{escape(NOTE)} Below a value stands its difference from the first row of the table, where both "
        "are published; after “here”, the figure measured here on the same suite or test set, and its "
        "difference.</p>"
    )
    for place, group in groupby(found.beside, key=lambda each: each.published.place):
        yield _published(found, place, list(group))


def _published(found: RunComparison, place: str, values: Sequence[BesidePaper]) -> str:
    columns = list(dict.fromkeys(each.published.column for each in values))
    by_row: dict[tuple[int, str], dict[str, BesidePaper]] = {}
    for each in values:
        by_row.setdefault((each.run, each.published.row), {})[each.published.column] = each
    rows = [
        (
            escape(found.runs[run].title),
            escape(row),
            *(_published_cell(cells[column]) if column in cells else "" for column in columns),
        )
        for (run, row), cells in by_row.items()
    ]
    described = {each.published.column: each.published for each in values}
    told = "; ".join(
        f"{name}: {described[name].test.corpus}, {described[name].test.direction}, "
        f"{described[name].measure.title}, {described[name].measure.protocol}"
        for name in columns
    )
    return (
        f"{table(f'<b>{escape(place)}</b>', ('system', 'row', *map(escape, columns)), rows, left=2)}\n"
        f"{folded('What the columns are', told.replace('; ', chr(10)))}"
    )


def _published_cell(each: BesidePaper) -> str:
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
        signatures = [each.score.signature for each in found.scores[number]]
        signatures += [f"{name}: {each.signature}" for name, each in run.decisions.items()]
        signatures += [f"context: {run.use.signature}"] if run.use else []
        told = facts(
            [
                ("run", f"<code>{escape(str(run.path))}</code>"),
                ("model and decoding", f"<code>{escape(run.signature)}</code>"),
            ]
        )
        parts.append(
            f"<h3>{escape(run.title)}</h3>\n{told}\n"
            f"{folded('Signatures of its figures', chr(10).join(signatures))}"
        )
    tests = list(dict.fromkeys(test.signature for test in found.tests.values()))
    shared = [("differences in quality", f"<code>{escape(each)}</code>") for each in tests]
    if found.test is not None:
        files = dict.fromkeys((str(found.test.source), str(found.test.reference)))
        shared.insert(0, ("test set", f"{escape(', '.join(files))} ({found.test.digest})"))
    shared += [(name, escape(value)) for name, value in versions().items()]
    return f"{chr(10).join(parts)}\n<h3>All</h3>\n{facts(shared)}"
