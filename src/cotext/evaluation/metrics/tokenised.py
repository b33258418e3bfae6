"""Scores of texts that a Moses tokenizer splits (and truecases), or splits and joins again, as in papers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cotext.data.documents import Document
from cotext.data.tokenizer import MosesBPETokenizer, clean, load_tokenizer
from cotext.evaluation.metrics.interface import Measurement, Score, Texts, find_protocol, measure
from cotext.runtime.errors import CotextError


@dataclass(frozen=True, slots=True)
class Words:
    """A tokenizer that splits both references and translations into words."""

    tokenizer: MosesBPETokenizer

    @classmethod
    def of(cls, folder: Path | None) -> "Words | None":
        """Load the tokenizer of a folder, if given; raise CotextError if it does not split into words."""
        if folder is None:
            return None
        tokenizer = load_tokenizer(folder / "tokenizer")
        if not isinstance(tokenizer, MosesBPETokenizer):
            raise CotextError(
                f"{folder}: --words needs a tokenizer that splits text into words, and this one is "
                f"{tokenizer.kind}; give a folder prepared with --tokenizer moses-bpe, or omit --words"
            )
        return cls(tokenizer)

    def documents(self, documents: Sequence[Document], protocol: str) -> list[Document]:
        """Return documents as a protocol reads them: split into words, or joined again from the words."""
        splitter, tokenised = self.tokenizer.words, find_protocol(protocol).reads_words

        def text(sentence: str) -> str:
            words = splitter.split(clean(sentence))
            return " ".join(words) if tokenised else splitter.join(words, as_written=False)

        return [replace(d, sentences=tuple(map(text, d.sentences))) for d in documents]

    def signed(self, score: Score) -> Score:
        """Add the form of the texts to the signature of a score."""
        truecased = ["truecased"] if self.tokenizer.words.truecase else []
        form = "-".join([*truecased, "tokenised" if find_protocol(score.protocol).reads_words else "joined"])
        digest = self.tokenizer.fingerprint[:8]
        return replace(score, signature=f"{score.signature}|words:{form}-{digest}")


def measure_words(
    words: Words | None, texts: Texts, protocols: Sequence[str], target_language: str | None
) -> dict[str, list[Measurement]]:
    """Run `measure` on texts split into `words`, if given, and note this in signatures."""
    if words is None:
        sides = (texts.systems, texts.references, protocols)
        return measure(*sides, target_language=target_language, source=texts.source)
    measured: dict[str, list[Measurement]] = {name: [] for name in texts.systems}
    for protocol in protocols:
        systems = {name: words.documents(documents, protocol) for name, documents in texts.systems.items()}
        references = [words.documents(documents, protocol) for documents in texts.references]
        by_system = measure(systems, references, [protocol], target_language=target_language)
        for name, [measurement] in by_system.items():
            measured[name].append(replace(measurement, score=words.signed(measurement.score)))
    return measured
