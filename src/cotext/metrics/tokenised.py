"""Scores of texts that a tokenizer has split into words, tokenised or joined again, perhaps truecased."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cotext.data.documents import Document
from cotext.data.tokenizer import MosesBPETokenizer, clean, load_tokenizer
from cotext.metrics.bleu import Measurement, Score, find_protocol, measure
from cotext.runtime.errors import CotextError


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a tokenizer, in which a corpus that is tokenised and its translations are alike."""

    tokenizer: MosesBPETokenizer

    @classmethod
    def of(cls, folder: Path | None) -> "Words | None":
        """Those of a run or of prepared data, None of no folder; CotextError where its tokenizer has none."""
        if folder is None:
            return None
        tokenizer = load_tokenizer(folder / "tokenizer")
        if not isinstance(tokenizer, MosesBPETokenizer):
            raise CotextError(
                f"{folder}: its tokenizer, {tokenizer.kind}, has no words; give a folder prepared with "
                "--tokenizer moses-bpe, or leave --words out"
            )
        return cls(tokenizer)

    def documents(self, documents: Sequence[Document], protocol: str) -> list[Document]:
        """Documents as a protocol reads them: words where it is on tokenised text, else what they join to."""
        splitter, tokenised = self.tokenizer.words, reads_words(protocol)

        def text(sentence: str) -> str:
            words = splitter.split(clean(sentence))
            return " ".join(words) if tokenised else splitter.join(words, as_written=False)

        return [replace(d, sentences=tuple(map(text, d.sentences))) for d in documents]

    def signed(self, score: Score) -> Score:
        """A score of such documents, whose signature tells what they are."""
        truecased = ["truecased"] if self.tokenizer.words.truecase else []
        form = "-".join([*truecased, "tokenised" if reads_words(score.protocol) else "joined"])
        digest = self.tokenizer.fingerprint[:8]
        return replace(score, signature=f"{score.signature}|words:{form}-{digest}")


def reads_words(protocol: str) -> bool:
    """Whether a protocol takes words as spaces separate them, so that text has to be tokenised before."""
    return find_protocol(protocol).tokenize == "none"


def measure_words(
    words: Words | None,
    systems: Mapping[str, Sequence[Document]],
    references: Sequence[Sequence[Document]],
    protocols: Sequence[str],
    target_language: str | None,
) -> dict[str, list[Measurement]]:
    """As `measure`, on the words of a tokenizer, which signatures tell; None: on the texts as they are."""
    if words is None:
        return measure(systems, references, protocols, target_language=target_language)
    measured: dict[str, list[Measurement]] = {name: [] for name in systems}
    for protocol in protocols:
        own = {name: words.documents(documents, protocol) for name, documents in systems.items()}
        right = [words.documents(documents, protocol) for documents in references]
        found = measure(own, right, [protocol], target_language=target_language)
        for name, [each] in found.items():
            measured[name].append(replace(each, score=words.signed(each.score)))
    return measured
