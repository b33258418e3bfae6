"""The influence of each context sentence on the words of a document, and translations without it."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from typing import Any

from cotext.data.context_edits import Excerpt, alone, without
from cotext.data.documents import Document, ParallelDocument
from cotext.evaluation.studies.context.context_use import SentenceInfluences, influences, word_lengths
from cotext.runtime.tables import render_rows
from cotext.translation.translator import DocumentTranslator

DIGITS = 4  # of a log-probability that are worth keeping
END = "(end)"  # stands for the symbol that closes a sentence


@dataclass(frozen=True, slots=True)
class WordChange:
    """A word of the target and what is added to its log-probability, in nats."""

    text: str
    nats: float


@dataclass(frozen=True, slots=True)
class ContextInfluence:
    """The influence of one context sentence, by its number from 1, on the words of another.

    `nats` is the sum over the words, `change` that of its tokens' absolute values.
    """

    number: int
    nats: float
    change: float
    words: tuple[WordChange, ...]

    @property
    def strongest(self) -> WordChange:
        """The word that it changes most."""
        return max(self.words, key=lambda word: abs(word.nats))


@dataclass(frozen=True, slots=True)
class ContextTranslations:
    """The run's own translations of a sentence: in context, without the most telling sentence, alone."""

    in_context: str
    without_most: str
    alone: str


@dataclass(frozen=True, slots=True)
class SentenceContextUse:
    """One sentence, numbered from 1; `influences` in the order of how much they change."""

    number: int
    source: str
    target: str
    cxmi: float
    words: tuple[WordChange, ...]  # with all context and with none
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
        """Everything, for a JSON file."""
        target = "translation by the run" if self.translated_by_run else "given"
        heading = {"format": "cotext-context", "version": 1, "signature": self.signature}
        found = {"document": self.document, "target": target, "unit": "nats"}
        return {**heading, **found, "sentences": [_rounded(asdict(each)) for each in self.sentences]}

    def render(self) -> str:
        """A line for every sentence: its CXMI, the sentence that changes most, and which word."""
        rows = [("sentence", "CXMI", "without", "nats", "word", "nats")]
        for each in self.sentences:
            cells = (str(each.number), f"{each.cxmi:+.2f}", "", "", "", "")
            if each.influences:
                most = each.influences[0]
                word = most.strongest
                found = (str(most.number), f"{most.nats:+.2f}", word.text, f"{word.nats:+.2f}")
                cells = (*cells[:2], *found)
            rows.append(cells)
        return render_rows(rows, left=0)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_rounded(each) for each in value]
    return round(value, DIGITS) + 0.0 if isinstance(value, float) else value


def document_context_use(
    translator: DocumentTranslator,
    document: ParallelDocument,
    signature: str,
    own: bool,
    on_start: Callable[[int], None] = lambda total: None,
    on_sentences: Callable[[int], None] = lambda count: None,
) -> DocumentContextUse:
    """Take the context of every sentence away, piece by piece; `own`: the target is by this very run."""
    found = influences(translator, document)
    translations = _translations(translator, found, on_start, on_sentences)
    sentences = []
    for number, (each, translated) in enumerate(zip(found, translations, strict=True)):
        lengths, texts = _words(translator, document.target[number], len(each.cxmi))
        changes = [
            ContextInfluence(i.number + 1, i.nats, i.change, _changes(texts, lengths, i.tokens))
            for i in sorted(each.influences, key=lambda i: -i.change)
        ]
        sentences.append(
            SentenceContextUse(
                number + 1,
                document.source[number],
                document.target[number],
                sum(each.cxmi),
                _changes(texts, lengths, each.cxmi),
                tuple(changes),
                translated,
            )
        )
    return DocumentContextUse(signature, document.id, own, tuple(sentences))


def _words(translator: DocumentTranslator, text: str, tokens: int) -> tuple[list[int], list[str]]:
    """The words of a target sentence and how many tokens each has; its end comes last, if it has `tokens`."""
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


def _translations(
    translator: DocumentTranslator,
    found: Sequence[SentenceInfluences],
    on_start: Callable[[int], None],
    on_sentences: Callable[[int], None],
) -> list[ContextTranslations | None]:
    """The run's own translations of every sentence that has context; equal documents are translated once."""
    asked: list[tuple[Excerpt, Excerpt, Excerpt] | None] = []
    for each in found:
        most = each.most
        if most is None:
            asked.append(None)
            continue
        index = each.excerpt.numbers.index(most.number)
        asked.append((each.excerpt, without(each.excerpt, index), alone(each.excerpt)))
    order = list(dict.fromkeys(e.document.source for group in asked if group for e in group))
    on_start(sum(map(len, order)))
    translated: dict[tuple[str, ...], tuple[str, ...]] = {}
    documents = (Document(str(i), source) for i, source in enumerate(order))
    for index, translation in translator.translate(documents, on_sentences):
        translated[order[index]] = translation.document.sentences
    return [
        None
        if group is None
        else ContextTranslations(*(translated[e.document.source][e.sentence] for e in group))
        for group in asked
    ]
