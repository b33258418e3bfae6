"""The report of the demonstration: one HTML page, and report.json with all figures."""

import json
from dataclasses import asdict
from html import escape
from pathlib import Path

from cotext.evaluation.studies.contrastive.contrastive_rows import PHENOMENA
from cotext.evaluation.studies.demo.demonstration import Demonstration, Line, Sample
from cotext.evaluation.studies.plots import accuracy_plots, accuracy_table, curves
from cotext.evaluation.studies.versions import versions
from cotext.runtime.files import replacing
from cotext.runtime.html import breakable, facts, folded, whole_page

LEAD = """
Tiny systems were trained on the same controlled English–German corpus, in which some words can be translated
only with the clue of another sentence. It is known which sentence that is, so it is known whether the clue is
within the context window of a system. Where it is, the system should learn to use it; where it is not, the
system can only guess, and accuracy should be at chance.
"""
WINDOWS = """
The sentence system reads one sentence. The document systems also read three sentences before it, in the
source and in their own translation, and none after it. So pronouns and register more than three sentences
from their clue must stay at chance for all of them, and so must cataphora, whose clue is in the next
sentence. Cohesion has its clue in the translation alone: the source gives no hint.
"""
CURVES = """Loss of current sentences on the development set, on a logarithmic scale. The sentence system
cannot get below the loss of the words that it can only guess."""


def write_report(out: Path, comparison: Demonstration) -> None:
    """Write report.html and report.json to the folder `out`."""
    content = {"versions": versions(), **asdict(comparison)}
    page = render(comparison)
    with replacing(out / "report.json") as temporary:
        temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
    with replacing(out / "report.html") as temporary:
        temporary.write_text(page, encoding="utf-8")


def render(comparison: Demonstration) -> str:
    """The page."""
    systems, rows = comparison.systems, comparison.rows
    return whole_page(
        "Cotext: what context does",
        [
            f"<h1>What context does</h1>\n<p>{LEAD}</p>",
            _checks(comparison),
            f"<h2>Contrastive accuracy</h2>\n<p>{WINDOWS}</p>",
            accuracy_plots(rows, systems, PHENOMENA),
            accuracy_table(rows, systems, PHENOMENA),
            _bleu(comparison),
            "<h2>One document</h2>",
            _sample(comparison.sample),
            "<h2>Training</h2>",
            curves(systems, CURVES),
            "<h2>How these figures came about</h2>",
            _facts(comparison),
        ],
    )


def _checks(comparison: Demonstration) -> str:
    items = []
    for expectation in comparison.expectations:
        kind, sign, word = (
            ("met", "✓", "as expected") if expectation.met else ("unmet", "✗", "not as expected")
        )
        items.append(
            f'<li><span class="{kind}">{sign} {word}:</span> {escape(expectation.text)} '
            f'<span class="soft">({escape(expectation.found)})</span></li>'
        )
    return f'<ul class="checks">\n{chr(10).join(items)}\n</ul>'


def _bleu(comparison: Demonstration) -> str:
    systems = comparison.systems
    titles = "".join(f'<th scope="col">{breakable(system.title)}</th>' for system in systems)
    lines = []
    for number, score in enumerate(systems[0].scores):
        values = "".join(f"<td>{system.scores[number].value:.1f}</td>" for system in systems)
        lines.append(f'<tr><th scope="row" class="words">{escape(score.title)}</th>{values}</tr>')
    first = systems[0].scores[0]
    return (
        '<h2>BLEU</h2>\n<div class="wide"><table class="scores"><caption>'
        f"{first.documents} test documents, {first.sentences} sentences. BLEU "
        "counts all words, and few of them depend on context; nor does it know that one rendering of a name "
        "or profession is as good as the other. It shows little of what the table above shows.</caption>\n"
        f"<thead><tr><td></td>{titles}</tr></thead>\n<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _sample(sample: Sample) -> str:
    items = []
    for sentence in sample.sentences:
        parts = [
            ("source", f'<span lang="en">{escape(sentence.source)}</span>'),
            (sample.first_title, _marked(sentence.first)),
            (sample.second_title, _marked(sentence.second)),
        ]
        if " ".join(word.text for word in sentence.second) != sentence.reference:
            parts.append(("reference", f'<span lang="de">{escape(sentence.reference)}</span>'))
        lines = "".join(f"<dt>{escape(who)}</dt><dd>{text}</dd>" for who, text in parts)
        items.append(f"<li><dl>{lines}</dl></li>")
    return (
        f"<p>Test document {sample.number}, chosen because it shows the difference well: words that differ "
        f"between {escape(sample.first_title)} and {escape(sample.second_title)} are marked and in brackets. "
        "The reference is given where the second differs from it.</p>\n"
        f'<ol class="sample">\n{chr(10).join(items)}\n</ol>'
    )


def _marked(line: Line) -> str:
    words = [f"<mark>[{escape(w.text)}]</mark>" if w.marked else escape(w.text) for w in line]
    return f'<span lang="de">{" ".join(words)}</span>'


def _facts(comparison: Demonstration) -> str:
    parts = []
    for system in comparison.systems:
        signatures = [
            *(f"{name}: {report['signature']}" for name, report in system.accuracies.items()),
            *(score.signature for score in system.scores),
        ]
        listed = facts(
            [
                (
                    "recipe",
                    escape(f"{system.recipe}, {system.parameters:,} parameters, {system.updates} updates"),
                ),
                ("command", f"<pre>{escape(comparison.commands[system.title])}</pre>"),
                ("model and decoding", f"<code>{escape(system.signature)}</code>"),
            ]
        )
        parts.append(
            f"<h3>{escape(system.title)}</h3>\n{listed}\n"
            f"{folded('Signatures of its figures', chr(10).join(signatures))}"
        )
    corpus = facts([("command", f"<pre>{escape(comparison.commands['corpus'])}</pre>")])
    parts.insert(0, f"<h3>corpus</h3>\n{corpus}")
    return f"{chr(10).join(parts)}\n<h3>Versions</h3>\n{facts((k, escape(v)) for k, v in versions().items())}"
