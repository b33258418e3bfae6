"""Tokenised text as people write it: words that Moses' tokenizer has split are joined again.

Corpora and suites of the field often come tokenised (`weren 't , he said .`), and models of raw text meet in
them what they have never seen. Moses' own rules know the marks of ASCII alone; the others are joined here.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from cotext.data.contrastive_suites import ContrastiveSuite
from cotext.data.documents import Document, ParallelDocument
from cotext.data.languages import Languages, primary_language
from cotext.data.tokenizer.protocol import clean
from cotext.data.tokenizer.words import moses_detokenizer
from cotext.runtime.errors import CotextError

D = TypeVar("D", Document, ParallelDocument)
Rule = tuple[re.Pattern[str], str]
SUFFIX = "-detokenised"  # of the name of a suite, whose scores are not those of the published one

_CONTRACTION = "(?:s|t|d|m|re|ve|ll)"
_ESCAPE = "&(?:amp|apos|quot|lt|gt|bar|bra|ket|#124|#91|#93);"
_WIDE = "，。！？：；、（）《》"
_ARABIC = "،؛؟۔"
_MARK = rf"[,.!?;:%()\[\]\"'{_WIDE}{_ARABIC}“”„‘’]"
# What Moses' tokenizer makes and people hardly write ...
_TOKENISED = re.compile(rf"(?:^| ){_MARK}(?= |$)|{_ESCAPE}|@-@|\w '{_CONTRACTION}\b", re.IGNORECASE)
# ... and what it leaves nowhere: a mark that ends a word, if it is no abbreviation, and a no-break space.
_PLAIN = re.compile(rf"(?:\w[,!?;:]|\w{{3}}\.)(?=\s|$)|\w[{_WIDE}{_ARABIC}]|[\u00a0\u202f]")

_ASCII_QUOTES = re.compile("^['\"`]+$")
_ELISION: Final = frozenset({"ca", "fr", "it", "uk"})
_GERMAN_QUOTES = "be bg cs de et hr is ka lt lv mk ru sk sl sq sr uk"  # languages that quote „so“
_INWARD_GUILLEMETS = "cs da de hr hu pl sk sl sr"  # and »so«, but «so» too


def _rules(language: str) -> tuple[Rule, ...]:
    """What follows on Moses' rules in a language: patterns, and what stands for them."""
    opening, closing = ("„‘", "”“") if language in _GERMAN_QUOTES.split() else ("„‘“", "”")
    pairs = "“„”" if language in {"fi", "sv"} else "“„"
    rules = [
        (rf"(?i)(?<=\w) ’ (?={_CONTRACTION}\b)", "’"),  # didn ’ t
        (r"(?<=\b[DLOdlo]) ’ (?=\w)", "’"),  # O ’ Brien
        *([(r"(?<=\w) ’ (?=\w)", "’")] if language in _ELISION else []),
        (rf"(?<!\S)([{pairs}]) ([^“”„]*[^“”„ ]) ([{closing}])(?!\w)", r"\1\2\3"),
        (r"(?<!\S)‘ ((?:[^‘’]|\b’\b)*[^‘’ ]) ’(?!\w)", r"‘\1’"),
        (r"(?<=s) ’(?= )", "’"),  # the dogs ’ house
        # Those of a quotation that is longer than the sentence.
        (rf"(?<!\S)([{opening}]) (?=\S)", r"\1"),
        (rf"(?<=\S) ([{closing}])(?!\w)", r"\1"),
        (r"(?<=[,.!?…]) ’(?!\w)", "’"),
        (f" ([{_ARABIC}])", r"\1"),
    ]
    if language != "fr":
        rules.append((r"(?<!\S)([«»]) ([^«»]*[^«» ]) ([«»])(?!\w)", r"\1\2\3"))
        if language not in _INWARD_GUILLEMETS.split():
            rules += [(r"(?<!\S)« (?=\S)", "«"), (r"(?<=\S) »(?!\w)", "»")]
    if language in {"ja", "zh"}:
        rules.append((f" ?([{_WIDE}“”]) ?", r"\1"))
    return tuple((re.compile(pattern), put) for pattern, put in rules)


@dataclass(frozen=True, slots=True)
class Detokeniser:
    """Joins the words of sentences of one language by Moses' rules, and writes its escapes as characters.

    Raises:
        CotextError: sacremoses is not installed.
    """

    joiner: Any
    rules: tuple[Rule, ...]

    @classmethod
    def of(cls, language: str) -> "Detokeniser":
        """That of a language; of an unknown one, the rules that all share."""
        code = primary_language(language) or "xx"
        joiner = moses_detokenizer(code)
        joiner.IS_OPEN_QUOTE = _ASCII_QUOTES  # it takes “ for both ends of a quotation, and never ”
        return cls(joiner, _rules(code))

    def sentence(self, text: str) -> str:
        """A sentence of as many words as Moses makes of it; one that is plainly not tokenised, unchanged."""
        if _PLAIN.search(text) and not _TOKENISED.search(text):
            return text
        joined = self.joiner.detokenize(text.split(), unescape=True)
        for pattern, replacement in self.rules:
            joined = pattern.sub(replacement, joined)
        return clean(joined) or text  # no empty sentence where there was none

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
        """A suite of such text, under a name of its own.

        Raises:
            CotextError: it has such a name.
        """
        if suite.name.endswith(SUFFIX):
            raise CotextError(f"the suite {suite.name} is detokenised already; take it as it is")
        examples = tuple(
            replace(
                each,
                source=self.source.sentences(each.source),
                candidates=tuple(map(self.target.sentences, each.candidates)),
            )
            for each in suite.examples
        )
        return replace(suite, name=f"{suite.name}{SUFFIX}", examples=examples)
