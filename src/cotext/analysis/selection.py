"""Sentences of a corpus ranked by how much they need context: `cotext select`.

The gain of a word is the sum over its tokens of P-CXMI (pointwise CXMI; Fernandes et al. 2023): log p of the
token with context minus log p without, of reference translations, as `cotext cxmi` finds it. The score of a
sentence is

    word        the largest gain of a word                    (one word that needs context is enough)
    sentence    the sum of the gains of all words
    token       that sum divided by the tokens

With marked words of the target, these alone count, and sentences without one are not ranked; with those of
the source, sentences without one are not ranked either. Nor is a sentence in whose window no other stands.
The end of a sentence is a word where nothing is marked.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from cotext.analysis.corpus_texts import digest_of_texts
from cotext.analysis.marked_words import MarkedWords
from cotext.analysis.token_words import token_words
from cotext.data.documents import ParallelDocument
from cotext.data.tokenizer import Tokenizer
from cotext.files.words import overlaps
from cotext.runtime.errors import CotextError, shown
from cotext.runtime.reading import read_json
from cotext.runtime.tables import render_rows

BY: Final = ("word", "sentence", "token")
END: Final = "(end)"
DIGITS: Final = 5
MAX_FIGURES_BYTES: Final = 1 << 31
SHOWN_CHARACTERS: Final = 60


@dataclass(frozen=True, slots=True)
class WordGain:
    """A word of the target, what context adds to its log-probability in nats, and whether it counts."""

    text: str
    nats: float
    tokens: int
    counts: bool


@dataclass(frozen=True, slots=True)
class RankedSentence:
    """A sentence by the index of its document and its own; `context`: sentences in its context window.

    `marked`: the marked words of its source, as they stand there.
    """

    document: int
    sentence: int
    context: int
    score: float
    words: tuple[WordGain, ...]
    marked: tuple[str, ...]

    @property
    def most(self) -> WordGain:
        """The word with the largest gain of those that count."""
        return max((word for word in self.words if word.counts), key=lambda word: word.nats)


@dataclass(frozen=True, slots=True)
class Criterion:
    """What sentences are ranked by, and the words that are marked; raises CotextError for another measure."""

    by: str = "word"
    source: MarkedWords | None = None
    target: MarkedWords | None = None

    def __post_init__(self) -> None:
        if self.by not in BY:
            raise CotextError(f"--by {shown(self.by)}: choose {', '.join(BY)}")

    @property
    def signature(self) -> str:
        """What was ranked by, and which words were marked."""
        lists = [("source", self.source), ("target", self.target)]
        marked = "+".join(f"{side}-{words.digest}" for side, words in lists if words is not None)
        return f"by:{self.by}|marked:{marked or 'none'}"

    def score(self, words: Sequence[WordGain]) -> float | None:
        """The score of a sentence with these words; None where none counts."""
        gains = [word for word in words if word.counts]
        if not gains:
            return None
        if self.by == "word":
            return max(word.nats for word in gains)
        total = sum(word.nats for word in gains)
        return total / sum(word.tokens for word in gains) if self.by == "token" else total


@dataclass(frozen=True)
class Selection:
    """The sentences of a corpus that are ranked, those that need context most first."""

    documents: Sequence[ParallelDocument]
    ranked: tuple[RankedSentence, ...]
    signature: str

    @cached_property
    def total(self) -> int:
        """Count the sentences of the corpus, those that are not ranked among them."""
        return sum(map(len, self.documents))

    def rows(self) -> Iterator[dict[str, Any]]:
        """JSON lines: a header, then a line for each sentence."""
        header = {"format": "cotext-selection", "version": 1, "signature": self.signature, "unit": "nats"}
        yield {**header, "sentences": self.total, "ranked": len(self.ranked)}
        for rank, each in enumerate(self.ranked, 1):
            document = self.documents[each.document]
            yield {
                "rank": rank,
                "document": document.id,
                "sentence": each.sentence + 1,
                "context": each.context,
                "score": round(each.score, DIGITS),
                "words": [{"text": word.text, "nats": round(word.nats, DIGITS)} for word in each.words],
                "counted": [i for i, word in enumerate(each.words) if word.counts],
                "marked": list(each.marked),
                "source": document.source[each.sentence],
                "target": document.target[each.sentence],
            }

    def held(self, share: float) -> float:
        """How much of all that is above 0 the first `share` of the ranked sentences hold."""
        gains = [max(0.0, each.score) for each in self.ranked]
        first = gains[: round(share * len(gains))]
        return sum(first) / sum(gains) if sum(gains) else 0.0

    def render(self, top: int) -> str:
        """The first sentences as a table, and how unequally need of context is spread."""
        rows = [["rank", "document", "sentence", "score", "word", "gain", "target"]]
        for rank, each in enumerate(self.ranked[:top], 1):
            document, most = self.documents[each.document], each.most
            text = document.target[each.sentence]
            shown = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
            score, gain = f"{each.score:+.3f}", f"{most.nats:+.3f}"
            rows.append([str(rank), document.id, str(each.sentence + 1), score, most.text, gain, shown])
        above = sum(each.score > 0 for each in self.ranked)
        parts = ", ".join(f"{self.held(share):.0%} by the first {share:.0%}" for share in (0.01, 0.1, 0.5))
        return "\n".join(
            [
                render_rows(rows, left=7),
                f"{len(self.ranked):,} of {self.total:,} sentences are ranked; {above:,} have a score above "
                f"0, of whose sum are held {parts}",
                self.signature,
            ]
        )


def read_figures(path: Path) -> dict[str, Any]:
    """The figures that `cotext cxmi --out` wrote.

    Raises:
        CotextError: not such a file.
    """
    figures = read_json(path, MAX_FIGURES_BYTES)
    if (figures.get("format"), figures.get("version")) != ("cotext-cxmi", 1):
        raise CotextError(f"{path}: not figures of `cotext cxmi --out`; give such a file")
    return figures


def select(
    figures: Mapping[str, Any],
    documents: Sequence[ParallelDocument],
    tokenizer: Tokenizer,
    criterion: Criterion,
    where: str,
) -> Selection:
    """Rank the sentences of a corpus by the figures of `cotext cxmi`; `tokenizer`: of the run that scored.

    `where` names the figures in messages.

    Raises:
        CotextError: figures of other texts or of another tokenizer, or damaged; no sentence to be ranked.
    """
    if figures.get("texts") != digest_of_texts(documents):
        raise CotextError(f"{where}: figures of other texts; give the ones that were measured")
    try:
        indices = [(number, place) for number, each in enumerate(documents) for place in range(len(each))]
        found = [
            ranked
            for (number, place), entry in zip(indices, figures["sentences"], strict=True)
            if entry["context"] and entry["tokens"]
            for ranked in _ranked(documents[number], (number, place), entry, tokenizer, criterion, where)
        ]
        signature = str(figures["signature"])
    except (KeyError, TypeError, ValueError) as error:
        raise CotextError(f"{where}: damaged figures ({error}); measure again with `cotext cxmi`") from None
    if not found:
        raise CotextError(
            f"{where}: no sentence has both context and a marked word; give other words, or none"
        )
    found.sort(key=lambda each: -each.score)  # stable: equal ones in the order of the corpus
    return Selection(documents, tuple(found), f"{signature}|{criterion.signature}")


def _ranked(
    document: ParallelDocument,
    indices: tuple[int, int],
    entry: Mapping[str, Any],
    tokenizer: Tokenizer,
    criterion: Criterion,
    where: str,
) -> Iterator[RankedSentence]:
    """The sentence, if it is ranked."""
    number, place = indices
    source = document.source[place]
    marked = [] if criterion.source is None else criterion.source.spans(source)
    if criterion.source is not None and not marked:
        return
    words = _word_gains(document.target[place], entry["tokens"], tokenizer, criterion.target)
    if words is None:
        raise CotextError(
            f"{where}: document {document.id!r}, sentence {place + 1}: another number of tokens than the "
            "tokenizer of the run gives; name the run that was measured"
        )
    score = criterion.score(words)
    if score is not None:
        texts = tuple(source[start:stop] for start, stop in marked)
        yield RankedSentence(number, place, int(entry["context"]), score, words, texts)


def _word_gains(
    target: str, gains: Sequence[float], tokenizer: Tokenizer, marked: MarkedWords | None
) -> tuple[WordGain, ...] | None:
    """The gains of the words of a sentence and of its end; None where the tokens are not these."""
    spans = None if marked is None else marked.spans(target)
    words = token_words(tokenizer, target, "target")
    # Of a text that shows in no token, its end alone was scored, or tokens that are no word.
    last = words[-1].tokens.stop if words else len(gains) - 1
    if last != len(gains) - 1 or last < 0:
        return None
    found = [
        WordGain(
            word.text,
            float(word.total(gains)),
            len(word.tokens),
            spans is None or overlaps(spans, word.start, word.stop),
        )
        for word in words
    ]
    return *found, WordGain(END, float(gains[-1]), 1, spans is None)


def training_weights(selection: Selection, share: float) -> Iterator[tuple[str, list[float]]]:
    """Weights of all sentences by document: `share` of all weight in proportion to scores above 0.

    The rest is spread evenly; their mean over sentences is 1. A sentence that is not ranked, or below 0,
    has 1 - `share`.

    Raises:
        CotextError: no score is above 0.
    """
    scores = {(each.document, each.sentence): max(0.0, each.score) for each in selection.ranked}
    mean = sum(scores.values()) / selection.total
    if not mean:
        raise CotextError("no sentence has a score above 0: context helps nowhere, and weights nothing")
    for number, document in enumerate(selection.documents):
        gains = (scores.get((number, place), 0.0) for place in range(len(document)))
        yield document.id, [1 - share + share * gain / mean for gain in gains]


def effective_share(weights: Sequence[float]) -> float:
    """The effective number of sentences as a share of all: (sum w)^2 / (n sum w^2), Kish 1965."""
    return sum(weights) ** 2 / (len(weights) * sum(weight * weight for weight in weights))
