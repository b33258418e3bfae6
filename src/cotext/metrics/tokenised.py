"""Scores of texts that a tokenizer has split into words, tokenised or joined again, perhaps truecased."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cotext.data.documents import Document
from cotext.data.tokenizer import MosesBPETokenizer, clean, load_tokenizer
from cotext.metrics.bleu import Measurement, find_protocol, measure
from cotext.runtime.errors import CotextError


def measure_words(
    folder: Path,
    systems: Mapping[str, Sequence[Document]],
    references: Sequence[Sequence[Document]],
    protocols: Sequence[str],
    target_language: str | None,
) -> dict[str, list[Measurement]]:
    """As `measure`, on texts that a tokenizer has split into words; signatures say so."""
    tokenizer = load_tokenizer(folder / "tokenizer")
    if not isinstance(tokenizer, MosesBPETokenizer):
        raise CotextError(
            f"{folder}: its tokenizer, {tokenizer.kind}, has no words; give a folder prepared with "
            "--tokenizer moses-bpe, or leave --words out"
        )
    splitter = tokenizer.words
    measured: dict[str, list[Measurement]] = {name: [] for name in systems}
    for protocol in protocols:
        tokenised = find_protocol(protocol).tokenize == "none"
        forms = [*(["truecased"] if splitter.truecase else []), "tokenised" if tokenised else "joined"]

        def text(sentence: str, tokenised: bool = tokenised) -> str:
            words = splitter.split(clean(sentence))
            return " ".join(words) if tokenised else splitter.join(words, as_written=False)

        own = {name: _rewritten(documents, text) for name, documents in systems.items()}
        right = [_rewritten(documents, text) for documents in references]
        found = measure(own, right, [protocol], target_language=target_language)
        for name, [each] in found.items():
            signature = f"{each.score.signature}|words:{'-'.join(forms)}-{tokenizer.fingerprint[:8]}"
            measured[name].append(replace(each, score=replace(each.score, signature=signature)))
    return measured


def _rewritten(documents: Sequence[Document], text: Callable[[str], str]) -> list[Document]:
    return [replace(d, sentences=tuple(map(text, d.sentences))) for d in documents]
