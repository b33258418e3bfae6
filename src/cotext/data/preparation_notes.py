"""Notes of `cotext prepare`: what of a tokenizer and of a corpus is not as asked for."""

from collections.abc import Sequence

from cotext.data.corpora import CorpusSplit
from cotext.data.encoding import location_of
from cotext.data.selection import render
from cotext.data.tokenizer import Tokenizer, TokenizerSettings, chosen_languages


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
    if chosen.vocabulary is None and tokenizer.pieces < chosen.requested_vocabulary:
        notes += (
            f"note: the text supports {tokenizer.pieces} pieces, fewer than the usual "
            f"{chosen.requested_vocabulary}; the largest possible vocabulary was taken",
        )
    return notes


def selection_notes(corpus: CorpusSplit) -> list[str]:
    """Notes on the documents and sentences left out of a corpus."""
    if corpus.selection is None:
        return []

    def location(side: int, sentence: str) -> str:
        return location_of(corpus.files, side, sentence).removesuffix(": ") or repr(sentence[:40])

    return render(corpus.split, corpus.selection, location)
