"""The page of `cotext translate --bilingual F.html`: source and translation side by side, by sentence.

The page is one file without scripts, for light and dark mode and for printing. A sentence pair is highlighted
under the pointer, and when its number has the focus (tab key). Colour is never the only signal.
"""

from collections.abc import Iterable, Sequence
from html import escape

from cotext.data.faults import add_faults, faults_in_words
from cotext.files.translate_blocks import PairedSentence
from cotext.runtime.rendering import facts, whole_page

# The share of sentences that are marked. The confidence of good translations differs between runs (label
# smoothing, domain): a fixed limit would mark all of one file and none of another.
LEAST_SURE = 0.1
STYLE = """<style>
body { max-width: 84rem; }
.both { display: table; width: 100%; border-collapse: collapse; table-layout: fixed;
  overflow-wrap: anywhere; }
.both td, .both th { text-align: left; padding: .35rem .6rem; border-top: 1px solid var(--faint); }
.both th.number, .both td.number { width: 3.4rem; text-align: right; color: var(--soft); }
.both tr.first td { border-top: 2px solid var(--soft); }
.both tbody tr:hover td, .both tbody tr:focus-within td { background: var(--window); }
.both tbody tr:target td { background: var(--marked); }
.both .number a { color: inherit; display: block; }
.note { font-size: .8rem; color: var(--soft); border: 1px solid var(--soft); border-radius: .3em;
  padding: 0 .35em; margin-right: .4em; display: inline-block; }
.note.unsure { color: var(--bad); border-color: var(--bad); }
.text.unsure { text-decoration: underline wavy var(--bad) 1px; text-underline-offset: .25em; }
@media (max-width: 40rem) { .both td, .both th { padding: .3rem; }
  .both th.number, .both td.number { width: 2.2rem; } }
</style>"""


def least_sure(values: Sequence[float | None]) -> list[bool]:
    """Return which sentences of a file to mark: the tenth with the lowest confidence.

    In files of fewer than ten sentences, none are marked. If values are equal, the first are marked.
    """
    # Sentences without a confidence are never marked.
    ranked = sorted((value, j) for j, value in enumerate(values) if value is not None)
    low = {j for _, j in ranked[: int(len(ranked) * LEAST_SURE)]}
    return [j in low for j in range(len(values))]


def render_page(
    title: str,
    languages: tuple[str, str],
    sentences: Sequence[PairedSentence],
    about: Iterable[tuple[str, str]],
) -> str:
    """Return the page of a translated file; `languages`: codes, empty if unknown; `about`: plain text."""
    low = least_sure([sentence.confidence for sentence in sentences])
    rows = [_row(number, sentences, low[number], languages) for number in range(len(sentences))]
    heads = (f'<th scope="col">{escape(name)}</th>' for name in ("Source", "Translation"))
    body = [
        STYLE,
        f"<h1>{escape(title)}</h1>",
        _legend(sentences, low),
        f'<table class="both"><thead><tr><th scope="col" class="number">No.</th>{"".join(heads)}</tr></thead>'
        f"\n<tbody>\n{chr(10).join(rows)}\n</tbody></table>",
        "<h2>How this translation was made</h2>",
        facts((name, escape(text)) for name, text in about),
    ]
    return whole_page(f"Cotext: {title}", body)


def _legend(sentences: Sequence[PairedSentence], low: Sequence[bool]) -> str:
    taken = sum(sentence.taken for sentence in sentences)
    lines = [
        "A pair is highlighted under the pointer, or when its number has the focus (tab key). A thick line "
        "marks the start of a paragraph.",
    ]
    if any(low):
        lines.append(
            f"{_note('unsure', 'unsure')} and a wavy line: one of the {LEAST_SURE:.0%} of sentences of "
            "this file with the lowest confidence. Confidence is the geometric mean of the "
            "probabilities of a sentence's tokens, from 0 to 1. Check these sentences; they may be correct."
        )
    if taken:
        lines.append(f"{_note('memory')} taken from the translation memory ({taken:,}).")
    if any(sentence.terms for sentence in sentences):
        lines.append(f"{_note('term')} a glossary term that is in the translation.")
    places: dict[str, list[str]] = {}
    for number, sentence in enumerate(sentences, 1):
        add_faults(places, f"no. {number}", sentence.faults)
    if places:
        lines.append(f"Compare with the source: {escape(faults_in_words(places))}.")
    return "".join(f"<p>{line}</p>" for line in lines)


def _note(text: str, kind: str = "") -> str:
    return f'<span class="note{" " + kind if kind else ""}">{escape(text)}</span>'


def _row(number: int, sentences: Sequence[PairedSentence], low: bool, languages: tuple[str, str]) -> str:
    sentence = sentences[number]
    previous = sentences[number - 1] if number else None
    first = previous is None or (previous.document, previous.block) != (sentence.document, sentence.block)
    notes = []
    if low:
        notes.append(_note(f"unsure: {sentence.confidence:.2f}", "unsure"))
    if sentence.taken:
        notes.append(_note("memory"))
    notes += [_note(f"term: {term}") for term in sentence.terms]
    notes += [_note(f"{fault.kind}: {fault.note}", "unsure") for fault in sentence.faults]
    kind = "text unsure" if low else "text"
    attributes = [f' lang="{escape(code)}"' if code else "" for code in languages]
    below = f"<div>{''.join(notes)}</div>" if notes else ""
    n = number + 1
    return (
        f'<tr id="s{n}"{" class=first" if first else ""}>'
        f'<td class="number"><a href="#s{n}" aria-label="sentence {n}">{n}</a></td>'
        f"<td{attributes[0]}>{escape(sentence.source)}</td>"
        f'<td{attributes[1]}><span class="{kind}">{escape(sentence.target)}</span>{below}</td></tr>'
    )
