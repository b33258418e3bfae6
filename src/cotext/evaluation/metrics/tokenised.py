"""Scores of texts that a Moses tokenizer splits (and truecases), or splits and joins again, as in papers."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cotext.data.documents import Document
from cotext.data.tokenizer import MosesBPETokenizer, clean, load_tokenizer
from cotext.evaluation.metrics.interface import Measurement, Texts, find_protocol, measure
from cotext.runtime import CotextError

Words = MosesBPETokenizer  # splits both references and translations into words


def load_words(folder: Path | None) -> Words | None:
    """Load the tokenizer of a folder, if given; raise CotextError if it does not split into words."""
    if folder is None:
        return None
    tokenizer = load_tokenizer(folder / "tokenizer")
    if not isinstance(tokenizer, Words):
        raise CotextError(
            f"{folder}: --words needs a tokenizer that splits text into words, and this one is "
            f"{tokenizer.kind}; give a folder prepared with --tokenizer moses-bpe, or omit --words"
        )
    return tokenizer


def measure_words(
    words: Words | None, texts: Texts, protocols: Sequence[str], target_language: str | None
) -> dict[str, list[Measurement]]:
    """Run `measure` on texts split into `words`, if given, and note this in signatures."""
    if words is None:
        sides = (texts.systems, texts.references, protocols)
        return measure(*sides, target_language=target_language, source=texts.source)
    measured: dict[str, list[Measurement]] = {name: [] for name in texts.systems}
    for protocol in protocols:
        tokenised = find_protocol(protocol).reads_words
        systems = {name: _split(words, documents, tokenised) for name, documents in texts.systems.items()}
        references = [_split(words, documents, tokenised) for documents in texts.references]
        truecased = "truecased-" if words.words.truecase else ""
        form = f"{truecased}{'tokenised' if tokenised else 'joined'}"
        by_system = measure(systems, references, [protocol], target_language=target_language)
        for name, [measurement] in by_system.items():
            measured[name].append(measurement.signed(f"|words:{form}-{words.fingerprint[:8]}"))
    return measured


def _split(words: Words, documents: Sequence[Document], tokenised: bool) -> list[Document]:
    """Return documents split into words, or joined again from the words."""

    def text(sentence: str) -> str:
        parts = words.words.split(clean(sentence))
        return " ".join(parts) if tokenised else words.words.join(parts, as_written=False)

    return [replace(d, sentences=tuple(map(text, d.sentences))) for d in documents]
