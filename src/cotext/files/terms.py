"""Terms: glossaries, words that are not translated, and the constraints that follow from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cotext.files.guide import SentenceConstraints


@dataclass(frozen=True, slots=True)
class Term:
    """A source term with its preferred and its forbidden translations."""

    source: str
    targets: tuple[str, ...]
    forbidden: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Glossary:
    """Terms of one pair of languages."""

    terms: tuple[Term, ...]

    @classmethod
    def of(cls, terms: Mapping[str, str | Sequence[str]]) -> "Glossary":
        """A glossary of source terms and the translation, or translations, of each."""
        found = ((source, (t,) if isinstance(t, str) else tuple(t)) for source, t in terms.items())
        return cls(tuple(Term(source, targets) for source, targets in found))

    @classmethod
    def read(cls, path: Path, source_language: str = "", target_language: str = "") -> "Glossary":
        """Read a glossary in TSV, CSV or TBX; languages are needed for TBX alone."""
        raise NotImplementedError


class TermGuide:
    """The constraints of documents from a glossary, words to keep, and copied texts.

    `documents` are the sentences as the model reads them, in the order in which they are translated;
    `copied[document][sentence]` the texts copied in each, as the model reads them.
    """

    def __init__(
        self,
        documents: Sequence[Sequence[str]],
        glossary: Glossary | None = None,
        *,
        keep: Sequence[str] = (),
        consistency: bool = False,
        copied: Sequence[Sequence[Sequence[str]]] | None = None,
    ) -> None:
        self._copied = copied

    def constraints(self, document: int, sentence: int, earlier: Mapping[int, str]) -> SentenceConstraints:
        """As `Guide.constraints`."""
        copied = self._copied[document][sentence] if self._copied is not None else ()
        return SentenceConstraints(copied=tuple(copied))

    def awaits(self, document: int, sentence: int) -> tuple[int, ...]:
        """As `Guide.awaits`."""
        return ()
