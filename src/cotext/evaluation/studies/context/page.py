"""The influence of each context sentence on the words of a document, and the page of `cotext context`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from itertools import accumulate, pairwise
from typing import Any

from cotext.data.context_edits import Excerpt, alone, without
from cotext.data.documents import ParallelDocument
from cotext.data.formats import check_output
from cotext.evaluation.requests import ContextRequest
from cotext.evaluation.studies.context.context_use import (
    influences,
    open_document,
    translated_by,
    translated_once,
    word_lengths,
)
from cotext.runtime import __version__
from cotext.runtime.files import write_text, writing
from cotext.runtime.progress import Meter
from cotext.runtime.rendering import facts, marked, render_rows, table, whole_page
from cotext.translation.translator import DocumentTranslator

DIGITS = 4  # decimal places of a log-probability
END = "(end)"  # represents the symbol that closes a sentence
STRONG_NATS = 0.5  # from this value on, the number is shown next to the word
FAINT_NATS = 0.1  # below this value, words are not shaded
FULL_SHADE_NATS = 3.0  # value of the darkest shade
MOST_OPAQUE_PERCENT = 55  # keeps the text legible
SHOWN = 1  # number of context sentences that are not folded

LEAD = """
Each context sentence of this document was removed in turn, from source and target, and every word of the
translation was scored again. A word is shaded where that changed its log-probability.
"""


@dataclass(frozen=True, slots=True)
class WordChange:
    """A word of the target, and the change of its log-probability, in nats."""

    text: str
    nats: float


@dataclass(frozen=True, slots=True)
class ContextInfluence:
    """The influence of context sentence `number` (from 1) on the words of the translated sentence.

    `nats` is the sum over these words, `change` the sum of the absolute values over their tokens.
    """

    number: int
    nats: float
    change: float
    words: tuple[WordChange, ...]

    @property
    def strongest(self) -> WordChange:
        return max(self.words, key=lambda word: abs(word.nats))


@dataclass(frozen=True, slots=True)
class ContextTranslations:
    """The run's own translations of a sentence: in context, without the strongest context sentence, alone."""

    in_context: str
    without_most: str
    alone: str


@dataclass(frozen=True, slots=True)
class SentenceContextUse:
    """One sentence, numbered from 1; `influences` are sorted by how much they change, largest first."""

    number: int
    source: str
    target: str
    cxmi: float
    words: tuple[WordChange, ...]  # with all context, compared with none
    influences: tuple[ContextInfluence, ...]
    translated: ContextTranslations | None  # None without context


@dataclass(frozen=True, slots=True)
class DocumentContextUse:
    """The influence of context on the sentences of one document."""

    signature: str
    document: str
    translated_by_run: bool
    sentences: tuple[SentenceContextUse, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "format": "cotext-context",
            "version": 1,
            "signature": self.signature,
            "document": self.document,
            "target": "translation by the run" if self.translated_by_run else "given",
            "unit": "nats",
            "sentences": json.loads(
                json.dumps([asdict(sentence) for sentence in self.sentences]),
                parse_float=lambda number: round(float(number), DIGITS) + 0.0,
            ),
        }

    def render(self) -> str:
        """Format as text: the CXMI of every sentence, its strongest context sentence, and word."""
        rows = [("sentence", "CXMI", "without", "nats", "word", "nats")]
        for sentence in self.sentences:
            cells = ("", "", "", "")
            if sentence.influences:
                most = sentence.influences[0]
                word = most.strongest
                cells = (str(most.number), f"{most.nats:+.2f}", word.text, f"{word.nats:+.2f}")
            rows.append((str(sentence.number), f"{sentence.cxmi:+.2f}", *cells))
        return render_rows(rows, left=0)


def document_context_use(
    translator: DocumentTranslator, document: ParallelDocument, signature: str, own: bool, progress: Meter
) -> DocumentContextUse:
    """Score each sentence without each of its context sentences; `own`: the run itself made the target."""
    sentence_influences = influences(translator, document)
    variants: dict[int, tuple[Excerpt, Excerpt, Excerpt]] = {}
    for number, effect in enumerate(sentence_influences):
        if (most := effect.most) is not None:
            index = effect.excerpt.numbers.index(most.number)
            variants[number] = effect.excerpt, without(effect.excerpt, index), alone(effect.excerpt)
    sources = [variant.document.source for of_sentence in variants.values() for variant in of_sentence]
    progress.restart(sum(map(len, dict.fromkeys(sources))))
    texts_of = iter(translated_once(translator, sources, progress.advance))
    translations = {
        number: ContextTranslations(*(next(texts_of).sentences[variant.sentence] for variant in of_sentence))
        for number, of_sentence in variants.items()
    }
    sentences = []
    for number, effect in enumerate(sentence_influences):
        lengths, texts = _target_words(translator, document.target[number], len(effect.cxmi))
        changes = [
            ContextInfluence(i.number + 1, i.nats, i.change, _changes(texts, lengths, i.tokens))
            for i in sorted(effect.influences, key=lambda i: -i.change)
        ]
        sentences.append(
            SentenceContextUse(
                number + 1,
                document.source[number],
                document.target[number],
                sum(effect.cxmi),
                _changes(texts, lengths, effect.cxmi),
                tuple(changes),
                translations.get(number),
            )
        )
    return DocumentContextUse(signature, document.id, own, tuple(sentences))


def _target_words(translator: DocumentTranslator, text: str, tokens: int) -> tuple[list[int], list[str]]:
    """Return token counts and words of a target sentence with its end; empty if no `tokens` were scored."""
    ids = translator.tokenizer.encode(text, side="target")
    lengths = word_lengths(translator.tokenizer.decode, ids)
    bounds = list(accumulate(lengths, initial=0))
    texts = translator.tokenizer.decode(ids).split()
    if len(texts) != len(lengths):
        texts = [translator.tokenizer.decode(ids[a:b]) for a, b in pairwise(bounds)]
    return ([*lengths, 1], [*texts, END]) if tokens else ([], [])


def _changes(texts: Sequence[str], lengths: Sequence[int], tokens: Sequence[float]) -> tuple[WordChange, ...]:
    bounds = pairwise(accumulate(lengths, initial=0))
    return tuple(WordChange(text, sum(tokens[a:b])) for text, (a, b) in zip(texts, bounds, strict=True))


def report_context(request: ContextRequest, progress: Meter) -> DocumentContextUse:
    """Measure the influence of each context sentence of a document; write the page `out` and a .json file.

    Raises the errors of `open_document`, and CotextError if an output cannot be written.
    """
    source, target, out = request.document, request.target, request.out
    figures = out.with_suffix(".json")
    for path in (out, figures):
        check_output(path, [path for path in (source, target) if path is not None])
    with writing(out, figures):
        run, document = open_document(request)
        document = translated_by(run, document) if target is None else document
        report = document_context_use(run.translator, document, run.signature, target is None, progress)
        page, content = render_page(report), json.dumps(report.as_dict(), indent=1, ensure_ascii=False)
        for path, text in ((figures, content), (out, page)):
            write_text(path, text)
        return report


def render_page(report: DocumentContextUse) -> str:
    sources = {sentence.number: sentence.source for sentence in report.sentences}
    body = [
        f"<h1>Which context sentence changes which word</h1>\n<p>{LEAD}</p>",
        _legend(),
        "<h2>At a glance</h2>",
        _table(report),
        "<h2>Sentence by sentence</h2>",
        *(_article(sentence, sources) for sentence in report.sentences),
        "<h2>How these values were computed</h2>",
        _facts(report),
    ]
    return whole_page(f"Cotext: use of context in {report.document}", body)


def _legend() -> str:
    up, down = (_word(WordChange(text, nats)) for text, nats in (("likelier", 2.0), ("less likely", -2.0)))
    return (
        f"<p>{up} with the context sentence than without it; {down} with it. Numbers are nats (natural "
        f"logarithm), given for changes of {STRONG_NATS:g} or more; +0.69 doubles a probability. CXMI is "
        "log p of a sentence in its context minus log p of the sentence alone. Where two translations "
        "differ, the words that differ are marked and in brackets.</p>"
    )


def _table(report: DocumentContextUse) -> str:
    rows = []
    for sentence in report.sentences:
        cells = ["", "", '<span class="soft">has no context</span>']
        if sentence.influences and sentence.influences[0].change < FAINT_NATS:
            cells[2] = '<span class="soft">not changed much by any context sentence</span>'
        elif sentence.influences:
            most = sentence.influences[0]
            number = f'<a href="#s{most.number}">{most.number}</a>'
            cells = [number, _nats(most.nats), _word(most.strongest, always=True)]
        cxmi = _nats(sentence.cxmi) if sentence.influences else ""
        rows.append((f'<a href="#s{sentence.number}">{sentence.number}</a>', cxmi, *cells))
    caption = (
        "For every sentence: its CXMI, the context sentence whose removal changes it most, how many nats "
        "this context sentence adds, and the word that changes most."
    )
    return table(caption, ("sentence", "CXMI", "context sentence", "nats", "word"), rows, left=0)


def _article(sentence: SentenceContextUse, sources: Mapping[int, str]) -> str:
    parts = [
        ("source", escape(sentence.source)),
        (f"all context, {_nats(sentence.cxmi)}" if sentence.influences else "target", _words(sentence.words)),
    ]
    parts += [_influence(influence, sources) for influence in sentence.influences[:SHOWN]]
    lines = _lines(parts)
    folded = sentence.influences[SHOWN:]
    if folded:
        lines += (
            f"<details><summary>{len(folded)} more context sentence{'s' if len(folded) > 1 else ''}</summary>"
            f"{_lines([_influence(influence, sources) for influence in folded])}</details>"
        )
    if sentence.translated is not None:
        lines += _lines(_translations(sentence.translated, sentence.influences[0].number))
    return f'<article id="s{sentence.number}"><h3>Sentence {sentence.number}</h3>\n{lines}</article>'


def _influence(influence: ContextInfluence, sources: Mapping[int, str]) -> tuple[str, str]:
    source = f'<span class="soft from">{influence.number}: {escape(sources[influence.number])}</span>'
    return f"by sentence {influence.number}, {_nats(influence.nats)}", f"{_words(influence.words)} {source}"


def _translations(translations: ContextTranslations, most: int) -> list[tuple[str, str]]:
    """Return the run's own translations; only those that differ are written out."""
    parts = [("own translation", escape(translations.in_context))]
    for what, text in (
        (f"without {most}", translations.without_most),
        ("without context", translations.alone),
    ):
        same = text == translations.in_context
        html = '<span class="soft">the same</span>' if same else _marked(text, translations.in_context)
        parts.append((what, html))
    return parts


def _lines(parts: Sequence[tuple[str, str]]) -> str:
    items = (f'<dt>{escape(what)}</dt><dd class="words">{text}</dd>' for what, text in parts)
    return f"<dl>{''.join(items)}</dl>"


def _words(words: Sequence[WordChange]) -> str:
    # The end of a sentence is shown only if it changes.
    visible = [w for i, w in enumerate(words) if i + 1 < len(words) or abs(w.nats) >= STRONG_NATS]
    return " ".join(_word(word) for word in visible)


def _word(word: WordChange, always: bool = False) -> str:
    if abs(word.nats) < FAINT_NATS and not always:
        return escape(word.text)
    strong = abs(word.nats) >= STRONG_NATS
    figure = f"<small>{_nats(word.nats, 1)}</small>" if strong or always else ""
    kind = f"w {'up' if word.nats >= 0 else 'down'}{' strong' if strong else ''}"
    shade = f"--shade:{round(MOST_OPAQUE_PERCENT * min(1.0, abs(word.nats) / FULL_SHADE_NATS))}%"
    return f'<span class="{kind}" style="{shade}">{escape(word.text)}{figure}</span>'


def _nats(value: float, digits: int = 2) -> str:
    """Format with a sign, and a real minus."""
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", "\N{MINUS SIGN}")


def _marked(text: str, other: str) -> str:
    html = marked(text, other, "<mark>[{}]</mark>")
    return html if "<mark>" in html else f'{escape(text)} <span class="soft">(words are missing)</span>'


def _facts(report: DocumentContextUse) -> str:
    target = "the run's own translation" if report.translated_by_run else "a given translation"
    return facts(
        [
            ("document", escape(report.document)),
            ("words that are scored", target),
            ("model and decoding", f"<code>{escape(report.signature)}</code>"),
            ("Cotext", __version__),
        ]
    )
