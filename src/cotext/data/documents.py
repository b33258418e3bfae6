"""Documents: an id and sentences in order."""

from dataclasses import dataclass

from cotext.runtime.errors import CotextError


@dataclass(frozen=True, slots=True)
class Document:
    """A document in one language; empty sentences are allowed and counted."""

    id: str
    sentences: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.sentences)


@dataclass(frozen=True, slots=True)
class ParallelDocument:
    """A document and its translation; sentence i of the target translates sentence i of the source.

    Raises CotextError if the two sides differ in their number of sentences.
    """

    id: str
    source: tuple[str, ...]
    target: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.source) != len(self.target):
            raise CotextError(
                f"document {self.id!r}: {len(self.source)} source sentences but {len(self.target)} target "
                "sentences; every source sentence needs exactly one target sentence (it may be empty)"
            )

    def __len__(self) -> int:
        """Count the sentence pairs."""
        return len(self.source)
