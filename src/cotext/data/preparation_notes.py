"""Notes of `cotext prepare`: what of a tokenizer and of a corpus is not as asked for."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cotext.data.corpora import CorpusSplit
from cotext.data.encoding import location_of
from cotext.data.selection import render
from cotext.data.tokenizer import Tokenizer, TokenizerSettings, chosen_languages

MOSES_BPE: Final = "moses-bpe"  # which has the papers' number of merges
LONG_DOCUMENT: Final = 100  # sentences; a corpus of fewer may be one document


def tokenizer_notes(
    chosen: TokenizerSettings | Tokenizer, tokenizer: Tokenizer, sentences: int, texts: Sequence[str] = ()
) -> tuple[str, ...]:
    """Notes on the tokenizer of prepared data: of what it learned, where it is another than was asked for.

    `sentences`: those of the text that it could learn from; `texts`: its files, where it is not the corpus.
    """
    if not isinstance(chosen, TokenizerSettings):
        languages = chosen_languages(tokenizer)
        told = f"; rows begin with the symbols of {languages.strip('-')}" if languages else ""
        kept = (
            f", {tokenizer.pieces:,} of {chosen.pieces:,} pieces" if tokenizer.pieces < chosen.pieces else ""
        )
        return (f"the tokenizer is that of other data{kept}; nothing was learned here{told}",)
    notes: tuple[str, ...] = ()
    if texts:
        notes += (f"the tokenizer was trained on {', '.join(texts)} (--tokenizer-text)",)
    if chosen.sample_sentences is not None and chosen.sample_sentences < sentences:
        notes += (
            f"the tokenizer was trained on {chosen.sample_sentences:,} of {sentences:,} sentences, drawn "
            f"from the whole {'text' if texts else 'corpus'} (--tokenizer-sample)",
        )
    if chosen.vocabulary is None and chosen.kind != MOSES_BPE:
        notes += (
            f"the vocabulary has {tokenizer.pieces:,} pieces, by the size of the corpus ({sentences:,} "
            "sentences in both languages together) and what its text supports; --vocabulary N sets it",
        )
    return notes


def document_notes(statistics: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """Notes on splits that are one long document, as a translation memory without names of documents is."""
    return tuple(
        f"note: {split} is one document of {found['sentences']:,} sentences: nothing says where documents "
        "end, so that sentences of unrelated texts may become context of each other. Put an empty line "
        'between documents, in TMX a <prop type="x-document"> into every <tu>; or train on single sentences'
        for split, found in statistics.items()
        if found["documents"] == 1 and found["sentences"] >= LONG_DOCUMENT
    )


def selection_notes(corpus: CorpusSplit) -> list[str]:
    """Notes on the documents and sentences left out of a corpus."""
    if corpus.selection is None:
        return []

    def location(side: int, sentence: str) -> str:
        return location_of(corpus.files, side, sentence).removesuffix(": ") or repr(sentence[:40])

    return render(corpus.split, corpus.selection, location)
