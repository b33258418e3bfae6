"""The page of `cotext context`: one HTML file that needs nothing else, light and dark, without scripts.

Shades tell how much a word gains (or loses) by context; figures stand beside strong ones, so that nothing is
told by colour alone.
"""

from collections.abc import Mapping, Sequence
from html import escape

from cotext.analysis.context_of_document import (
    ContextInfluence,
    ContextReport,
    ReportedSentence,
    Translated,
    WordChange,
)
from cotext.reports.word_diff import differing
from cotext.runtime.version import __version__

STRONG_NATS = 0.5  # from here on a figure stands beside the word
FAINT_NATS = 0.1  # below it nothing is shaded
FULL_SHADE_NATS = 3.0  # no darker shade above it
MOST_OPAQUE_PERCENT = 55  # so that the text stays legible
MOST_COLUMNS = 24  # of the map from sentence to sentence
SHOWN = 1  # context sentences that are not folded away

STYLE = """
:root { color-scheme: light dark; --paper: #fdfdfb; --ink: #23262b; --soft: #5b626c; --faint: #d9dbdd;
  --up: #1668b8; --down: #c2570c; --marked: #ffe9a8; }
@media (prefers-color-scheme: dark) { :root { --paper: #17191c; --ink: #e4e6e8; --soft: #a3abb5;
  --faint: #3a3e44; --up: #6bb0f2; --down: #f0964e; --marked: #5c4a12; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem 1rem 4rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .6rem; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .6rem; padding-top: .8rem; border-top: 1px solid var(--faint); }
h3 { font-size: 1rem; margin: 0 0 .3rem; }
p { max-width: 44rem; } .soft, dt, summary { color: var(--soft); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th, td { padding: .25rem .6rem; text-align: right; vertical-align: top; font-weight: normal; }
thead th { font-weight: 600; border-bottom: 1px solid var(--ink); vertical-align: bottom; }
tbody tr + tr > * { border-top: 1px solid var(--faint); }
td.text, th.text { text-align: left; } a { color: inherit; } p.soft { font-size: .9rem; margin: 0 0 .6rem; }
table.map td { padding: .2rem .35rem; min-width: 2.2rem; border: 1px solid var(--paper); }
table.map th { padding: .2rem .35rem; border: 0; }
article { margin: 1.6rem 0 0; padding-top: 1rem; border-top: 1px solid var(--faint); }
dl { margin: 0; display: grid; grid-template-columns: 11rem 1fr; gap: .15rem .9rem; }
dt { font-size: .9rem; } dd { margin: 0; } dd.words { line-height: 1.9; }
.w { border-radius: .2em; padding: .1em .2em; } .w small { font-size: .7em; padding-left: .2em; }
.up { background: color-mix(in srgb, var(--up) var(--shade), transparent); }
.down { background: color-mix(in srgb, var(--down) var(--shade), transparent); }
.down.strong { text-decoration: underline dotted; text-underline-offset: .2em; }
.from { display: block; font-size: .85rem; line-height: 1.4; }
mark { background: var(--marked); color: inherit; font-weight: 600; padding: 0 .15em; border-radius: .2em; }
details { margin: .3rem 0; } summary { cursor: pointer; font-size: .9rem; }
code { font: .85rem/1.5 ui-monospace, monospace; }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr; } dd { margin-bottom: .3rem; }
  th, td { padding: .25rem .3rem; } table { font-size: .92rem; } }
"""

LEAD = """
Every context sentence of this document was taken away in turn, on both sides, and the probability of every
word of the translation was asked for again. A word is shaded where that made a difference.
"""


def render_page(report: ContextReport) -> str:
    """The page."""
    sources = {sentence.number: sentence.source for sentence in report.sentences}
    body = "\n".join(
        [
            f"<h1>Which context sentence changes which word</h1>\n<p>{LEAD}</p>",
            _legend(),
            "<h2>At a glance</h2>",
            _table(report),
            _map(report),
            "<h2>Sentence by sentence</h2>",
            *(_article(sentence, sources) for sentence in report.sentences),
            "<h2>How these figures came about</h2>",
            _facts(report),
        ]
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Cotext: use of context in {escape(report.document)}</title>\n"
        f"<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _legend() -> str:
    up, down = (_word(WordChange(text, nats)) for text, nats in (("likelier", 2.0), ("less likely", -2.0)))
    return (
        f"<p>{up} with the context sentence than without it; {down} with it. Figures are nats (natural "
        f"logarithm) and stand beside changes of {STRONG_NATS:g} and more; 0.69 doubles a probability. CXMI "
        "is what all context together adds: log p of a sentence in its context minus log p of it alone. "
        "Words in brackets and marked are those in which two translations differ.</p>"
    )


def _table(report: ContextReport) -> str:
    rows = []
    for each in report.sentences:
        cells = '<td></td><td></td><td class="text soft">sees no context</td>'
        if each.influences and each.influences[0].change < FAINT_NATS:
            cells = '<td></td><td></td><td class="text soft">no context sentence matters</td>'
        elif each.influences:
            most = each.influences[0]
            cells = (
                f'<td><a href="#s{most.number}">{most.number}</a></td><td>{_nats(most.nats)}</td>'
                f'<td class="text">{_word(most.strongest, always=True)}</td>'
            )
        rows.append(
            f'<tr><th scope="row"><a href="#s{each.number}">{each.number}</a></th>'
            f"<td>{_nats(each.cxmi) if each.influences else ''}</td>{cells}</tr>"
        )
    return (
        '<p class="soft">Of every sentence: its CXMI, the context sentence that changes it most when taken '
        "away, what that one adds to it, and the word that changes most.</p>\n"
        '<div class="wide"><table><thead><tr><th scope="col">sentence</th><th scope="col">CXMI</th>'
        '<th scope="col">most by</th><th scope="col">nats</th><th scope="col" class="text">word</th></tr>'
        f"</thead>\n<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _map(report: ContextReport) -> str:
    """Which sentence matters to which, where that fits on a screen."""
    if len(report.sentences) > MOST_COLUMNS or not any(s.influences for s in report.sentences):
        return ""
    numbers = [s.number for s in report.sentences]
    head = "".join(f'<th scope="col">{n}</th>' for n in numbers)
    rows = []
    for sentence in report.sentences:
        by = {each.number: each for each in sentence.influences}
        cells = "".join(
            f'<td class="w up" style="{_shade(by[n].change)}">{by[n].change:.1f}</td>'
            if n in by
            else f'<td class="soft">{"–" if n == sentence.number else ""}</td>'
            for n in numbers
        )
        rows.append(f'<tr><th scope="row">{sentence.number}</th>{cells}</tr>')
    return (
        "<h2>Which sentence matters to which</h2>\n"
        '<p class="soft">How much a sentence (row) changes when a context sentence (column) is taken away: '
        "the absolute change of its tokens, added up, in nats. An empty cell: it does not see that "
        "sentence.</p>\n"
        f'<div class="wide"><table class="map"><thead><tr><td></td>{head}</tr></thead>\n'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _article(sentence: ReportedSentence, sources: Mapping[int, str]) -> str:
    parts = [
        ("source", escape(sentence.source)),
        (f"all context, {_nats(sentence.cxmi)}" if sentence.influences else "target", _words(sentence.words)),
    ]
    parts += [_influence(each, sources) for each in sentence.influences[:SHOWN]]
    lines = _lines(parts)
    folded = sentence.influences[SHOWN:]
    if folded:
        lines += (
            f"<details><summary>{len(folded)} more context sentence{'s' if len(folded) > 1 else ''}</summary>"
            f"{_lines([_influence(each, sources) for each in folded])}</details>"
        )
    if sentence.translated is not None:
        lines += _lines(_translations(sentence.translated, sentence.influences[0].number))
    return f'<article id="s{sentence.number}"><h3>Sentence {sentence.number}</h3>\n{lines}</article>'


def _influence(each: ContextInfluence, sources: Mapping[int, str]) -> tuple[str, str]:
    source = f'<span class="soft from">{each.number}: {escape(sources[each.number])}</span>'
    return f"by sentence {each.number}, {_nats(each.nats)}", f"{_words(each.words)} {source}"


def _translations(found: Translated, most: int) -> list[tuple[str, str]]:
    """The run's own translations, of which only those that differ are written out."""
    parts = [("own translation", escape(found.in_context))]
    for what, text in ((f"without {most}", found.without_most), ("without context", found.alone)):
        same = text == found.in_context
        shown = '<span class="soft">the same</span>' if same else _marked(text, found.in_context)
        parts.append((what, shown))
    return parts


def _lines(parts: Sequence[tuple[str, str]]) -> str:
    items = (f'<dt>{escape(what)}</dt><dd class="words">{text}</dd>' for what, text in parts)
    return f"<dl>{''.join(items)}</dl>"


def _words(words: Sequence[WordChange]) -> str:
    # The end of a sentence is of interest only where something happens to it.
    shown = [w for i, w in enumerate(words) if i + 1 < len(words) or abs(w.nats) >= STRONG_NATS]
    return " ".join(_word(word) for word in shown)


def _word(word: WordChange, always: bool = False) -> str:
    if abs(word.nats) < FAINT_NATS and not always:
        return escape(word.text)
    strong = abs(word.nats) >= STRONG_NATS
    figure = f"<small>{_nats(word.nats, 1)}</small>" if strong or always else ""
    kind = f"w {'up' if word.nats >= 0 else 'down'}{' strong' if strong else ''}"
    return f'<span class="{kind}" style="{_shade(word.nats)}">{escape(word.text)}{figure}</span>'


def _nats(value: float, digits: int = 2) -> str:
    """With its sign, a real minus."""
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", "\N{MINUS SIGN}")


def _shade(nats: float) -> str:
    share = min(1.0, abs(nats) / FULL_SHADE_NATS)
    return f"--shade:{round(MOST_OPAQUE_PERCENT * share)}%"


def _marked(text: str, beside: str) -> str:
    pairs = differing(text, beside)
    if not any(marked for _, marked in pairs):
        return f'{escape(text)} <span class="soft">(words are missing)</span>'
    return " ".join(f"<mark>[{escape(w)}]</mark>" if marked else escape(w) for w, marked in pairs)


def _facts(report: ContextReport) -> str:
    target = "the run's own translation" if report.translated_by_run else "a given translation"
    facts = {
        "document": report.document,
        "words that are scored": target,
        "model and decoding": report.signature,
        "Cotext": __version__,
    }
    items = "".join(f"<dt>{k}</dt><dd><code>{escape(v)}</code></dd>" for k, v in facts.items())
    return f"<dl>{items}</dl>"
