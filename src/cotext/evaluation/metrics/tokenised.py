"""Scores in the words of a tokenizer, tokenised or joined again, and truecased if the tokenizer truecases.

Also a warning if one side of a score is tokenised and the other is not.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from cotext.data.documents import Document
from cotext.data.tokenizer import MosesBPETokenizer, clean, load_tokenizer
from cotext.evaluation.metrics.interface import Measurement, Score, Texts, find_protocol, measure
from cotext.runtime.errors import CotextError
from cotext.runtime.tables import listed

MIN_MARKS: Final = 20  # commas and full stops that a side needs
FAR: Final = 0.5  # difference of shares that is reported
_MARK = re.compile(r"(?<![,.])(\s?)[,.](?=\s|$)")  # not an ellipsis, which may follow a space in plain text


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a tokenizer, into which a tokenised corpus and translations of it are both split."""

    tokenizer: MosesBPETokenizer

    @classmethod
    def of(cls, folder: Path | None) -> "Words | None":
        """Load the tokenizer of a run or of prepared data; None for no folder.

        Raises:
            CotextError: the tokenizer has no words.
        """
        if folder is None:
            return None
        tokenizer = load_tokenizer(folder / "tokenizer")
        if not isinstance(tokenizer, MosesBPETokenizer):
            raise CotextError(
                f"{folder}: its tokenizer, {tokenizer.kind}, has no words; give a folder prepared with "
                "--tokenizer moses-bpe, or omit --words"
            )
        return cls(tokenizer)

    def documents(self, documents: Sequence[Document], protocol: str) -> list[Document]:
        """Return documents as a protocol reads them: tokenised, or as the text that the words join to."""
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
    """Run `measure` on the words of a tokenizer, shown in signatures; None: on the unchanged texts."""
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


@dataclass(frozen=True, slots=True)
class Spacing:
    """Shares of commas and full stops after a space: of a reference, and of systems that differ from it."""

    references: float
    systems: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def render(self) -> str:
        shares = listed([f"{name} {share:.0%}" for name, share in self.systems.items()])
        return (
            "One side seems to be tokenised and the other not, which makes scores too low, above all "
            "under protocols on tokenised text: there is a space before "
            f"{self.references:.0%} of the commas and full stops of the reference, and of {shares}. "
            "--words DATA measures both in the words of a tokenizer."
        )


def unlike_spacing(
    systems: Mapping[str, Sequence[Document]], references: Sequence[Sequence[Document]]
) -> Spacing | None:
    """Return the systems that are tokenised while a reference is not, or vice versa; None: no system."""
    shares = {name: _apart(documents) for name, documents in systems.items()}
    for reference in references:
        if (right := _apart(reference)) is None:
            continue
        far = {n: share for n, share in shares.items() if share is not None and abs(share - right) > FAR}
        if far:
            return Spacing(right, far)
    return None


def _apart(documents: Iterable[Document]) -> float | None:
    """Return the share of commas and full stops with a space before them; None if there are too few."""
    marks = [
        mark.group(1) for d in documents for sentence in d.sentences for mark in _MARK.finditer(sentence)
    ]
    return sum(map(bool, marks)) / len(marks) if len(marks) >= MIN_MARKS else None
