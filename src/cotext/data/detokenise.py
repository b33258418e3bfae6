"""Tokenised text as people write it: words that Moses' tokenizer has split are joined again.

Corpora and suites of the field often come tokenised (`weren 't , he said .`), and models of raw text meet in
them what they have never seen.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from cotext.data.contrastive_suites import ContrastiveSuite
from cotext.data.documents import Document, ParallelDocument
from cotext.data.languages import Languages, primary_language
from cotext.data.tokenizer.protocol import clean
from cotext.data.tokenizer.words import moses_detokenizer

D = TypeVar("D", Document, ParallelDocument)
SUFFIX = "-detokenised"  # of the name of a suite, whose scores are not those of the published one


@dataclass(frozen=True, slots=True)
class Detokeniser:
    """Joins the words of sentences of one language by Moses' rules, and writes its escapes as characters.

    Raises:
        CotextError: sacremoses is not installed.
    """

    joiner: Any

    @classmethod
    def of(cls, language: str) -> "Detokeniser":
        """That of a language; of an unknown one, the rules that all share."""
        return cls(moses_detokenizer(primary_language(language) if language else "xx"))

    def sentence(self, text: str) -> str:
        """A sentence of as many words as Moses makes of it; one of plain text hardly changes."""
        return clean(self.joiner.detokenize(text.split(), unescape=True))

    def sentences(self, texts: Iterable[str]) -> tuple[str, ...]:
        """All of a document."""
        return tuple(map(self.sentence, texts))


@dataclass(frozen=True, slots=True)
class Detokenisers:
    """Those of both sides."""

    source: Detokeniser
    target: Detokeniser

    @classmethod
    def of(cls, languages: Languages) -> "Detokenisers":
        """Those of a language pair."""
        return cls(Detokeniser.of(languages.source), Detokeniser.of(languages.target))

    def documents(self, documents: Iterable[D]) -> Iterator[D]:
        """Documents of both languages, or of the source language."""
        for each in documents:
            if isinstance(each, Document):
                yield replace(each, sentences=self.source.sentences(each.sentences))
            else:
                yield replace(
                    each,
                    source=self.source.sentences(each.source),
                    target=self.target.sentences(each.target),
                )

    def suite(self, suite: ContrastiveSuite) -> ContrastiveSuite:
        """A suite of such text, under a name of its own."""
        examples = tuple(
            replace(
                each,
                source=self.source.sentences(each.source),
                candidates=tuple(map(self.target.sentences, each.candidates)),
            )
            for each in suite.examples
        )
        return replace(suite, name=f"{suite.name}{SUFFIX}", examples=examples)
