"""The influence of each context sentence on the words of a document, and translations without it."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from typing import Any

from cotext.data.context_edits import Excerpt, alone, without
from cotext.data.documents import ParallelDocument
from cotext.evaluation.studies.context.context_use import SentenceInfluences, influences, word_lengths
from cotext.evaluation.studies.document_of_run import translated_once
from cotext.runtime.tables import render_rows
from cotext.translation.translator import DocumentTranslator

DIGITS = 4  # decimal places of a log-probability
END = "(end)"  # represents the symbol that closes a sentence


@dataclass(frozen=True, slots=True)
class WordChange:
    """A word of the target, and the change of its log-probability, in nats."""

    text: str
    nats: float


@dataclass(frozen=True, slots=True)
class ContextInfluence:
    """The influence of one context sentence, by its number from 1, on the words of another.

    `nats` is the sum over the words, `change` the sum of the absolute values of its tokens.
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
            "sentences": _rounded([asdict(sentence) for sentence in self.sentences]),
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


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_rounded(item) for item in value]
    return round(value, DIGITS) + 0.0 if isinstance(value, float) else value


def document_context_use(
    translator: DocumentTranslator,
    document: ParallelDocument,
    signature: str,
    own: bool,
    on_start: Callable[[int], None] = lambda total: None,
    on_sentences: Callable[[int], None] = lambda count: None,
) -> DocumentContextUse:
    """Remove the context of every sentence, one by one; `own`: the target is the translation by the run."""
    sentence_influences = influences(translator, document)
    translations = _translations(translator, sentence_influences, on_start, on_sentences)
    sentences = []
    for number, effect in enumerate(sentence_influences):
        lengths, texts = _words(translator, document.target[number], len(effect.cxmi))
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


def _words(translator: DocumentTranslator, text: str, tokens: int) -> tuple[list[int], list[str]]:
    """Return the token counts and words of a target sentence, with its end if it has tokens."""
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
    sentence_influences: Sequence[SentenceInfluences],
    on_start: Callable[[int], None],
    on_sentences: Callable[[int], None],
) -> dict[int, ContextTranslations]:
    """Translate every sentence that has context; return the translations by its index."""
    variants: dict[int, tuple[Excerpt, Excerpt, Excerpt]] = {}
    for number, effect in enumerate(sentence_influences):
        if (most := effect.most) is not None:
            index = effect.excerpt.numbers.index(most.number)
            variants[number] = effect.excerpt, without(effect.excerpt, index), alone(effect.excerpt)
    sources = [variant.document.source for of_sentence in variants.values() for variant in of_sentence]
    on_start(sum(map(len, dict.fromkeys(sources))))
    texts = iter(translated_once(translator, sources, on_sentences))
    return {
        number: ContextTranslations(*(next(texts).sentences[variant.sentence] for variant in of_sentence))
        for number, of_sentence in variants.items()
    }
