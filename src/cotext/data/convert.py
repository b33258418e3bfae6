"""Conversion of corpora between formats, detokenisation, and a preview of the first documents."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from cotext.data.contrastive_suites import ContrastiveSuite
from cotext.data.documents import Document, Languages, ParallelDocument, primary_language
from cotext.data.formats import (
    Format,
    checked_records,
    detect_format,
    find_format,
    languages_of_files,
    read_documents,
    read_parallel,
    write_documents,
    write_parallel,
)
from cotext.data.formats.line_formats import LISTS
from cotext.data.formats.streams import check_readable, refuse_input
from cotext.data.tokenizer import load_tokenizer
from cotext.data.tokenizer.protocol import clean, moses_detokenizer
from cotext.runtime import CotextError

D = TypeVar("D", Document, ParallelDocument)

# --- Detokenisation: undoing the Moses tokenizer.
#
# Published corpora and suites are often tokenised (`weren 't , he said .`), which models trained on raw text
# have never seen. The rules of Moses handle only ASCII punctuation; additional rules are here.

Rule = tuple[re.Pattern[str], str]
SUFFIX = "-detokenised"  # appended to the name of a suite, because scores differ from the published suite

_CONTRACTION = "(?:s|t|d|m|re|ve|ll)"
_ESCAPE = "&(?:amp|apos|quot|lt|gt|bar|bra|ket|#124|#91|#93);"
_WIDE = "，。！？：；、（）《》"
_ARABIC = "،؛؟۔"
_MARK = rf"[,.!?;:%()\[\]\"'{_WIDE}{_ARABIC}“”„‘’]"
# Text that the Moses tokenizer produces and people rarely write.
_TOKENISED = re.compile(rf"(?:^| ){_MARK}(?= |$)|{_ESCAPE}|@-@|\w '{_CONTRACTION}\b", re.IGNORECASE)
# Text that the Moses tokenizer never makes: words with punctuation (except abbreviations), no-break spaces.
_PLAIN = re.compile(rf"(?:\w[,!?;:]|\w{{3}}\.)(?=\s|$)|\w[{_WIDE}{_ARABIC}]|[\u00a0\u202f]")

_ASCII_QUOTES = re.compile("^['\"`]+$")
_ELISION: Final = frozenset({"ca", "fr", "it", "uk"})
_GERMAN_QUOTES = "be bg cs de et hr is ka lt lv mk ru sk sl sq sr uk"  # languages that quote „so“
_INWARD_GUILLEMETS = "cs da de hr hu pl sk sl sr"  # languages that quote both »so« and «so»


def _rules(language: str) -> tuple[Rule, ...]:
    """Return the additional rules of a language, applied after the rules of Moses: patterns, replacements."""
    opening, closing = ("„‘", "”“") if language in _GERMAN_QUOTES.split() else ("„‘“", "”")
    pairs = "“„”" if language in {"fi", "sv"} else "“„"
    rules = [
        (rf"(?i)(?<=\w) ’ (?={_CONTRACTION}\b)", "’"),  # didn ’ t
        (r"(?<=\b[DLOdlo]) ’ (?=\w)", "’"),  # O ’ Brien
        *([(r"(?<=\w) ’ (?=\w)", "’")] if language in _ELISION else []),
        (rf"(?<!\S)([{pairs}]) ([^“”„]*[^“”„ ]) ([{closing}])(?!\w)", r"\1\2\3"),
        (r"(?<!\S)‘ ((?:[^‘’]|\b’\b)*[^‘’ ]) ’(?!\w)", r"‘\1’"),
        (r"(?<=s) ’(?= )", "’"),  # the dogs ’ house
        # Unpaired quotation marks, of a quotation longer than the sentence.
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


class Detokeniser:
    """A detokeniser of one language, with the rules of Moses and additional rules. It decodes Moses escapes.

    For an unknown language, it has only general rules. Raises CotextError if sacremoses is not installed.
    """

    def __init__(self, language: str) -> None:
        code = primary_language(language) or "xx"
        self._joiner, self._rules = moses_detokenizer(code), _rules(code)
        # The pattern of sacremoses accepts “ for both ends, and never ”.
        self._joiner.IS_OPEN_QUOTE = _ASCII_QUOTES

    def sentence(self, text: str) -> str:
        """Detokenise a sentence; a sentence that is clearly not tokenised is unchanged."""
        if _PLAIN.search(text) and not _TOKENISED.search(text):
            return text
        joined = self._joiner.detokenize(text.split(), unescape=True)
        for pattern, replacement in self._rules:
            joined = pattern.sub(replacement, joined)
        return clean(joined) or text  # a sentence never becomes empty

    def sentences(self, texts: Iterable[str]) -> tuple[str, ...]:
        return tuple(map(self.sentence, texts))


class Detokenisers:
    """The detokenisers of both sides."""

    def __init__(self, languages: Languages) -> None:
        self.source, self.target = Detokeniser(languages.source), Detokeniser(languages.target)

    def documents(self, documents: Iterable[D]) -> Iterator[D]:
        """Detokenise documents of both languages, or of the source language."""
        for document in documents:
            if isinstance(document, Document):
                yield replace(document, sentences=self.source.sentences(document.sentences))
            else:
                source = self.source.sentences(document.source)
                target = self.target.sentences(document.target)
                yield replace(document, source=source, target=target)

    def suite(self, suite: ContrastiveSuite) -> ContrastiveSuite:
        """Detokenise a suite and add `SUFFIX` to its name; raises CotextError if the name ends so already."""
        if suite.name.endswith(SUFFIX):
            raise CotextError(f"the suite {suite.name} is detokenised already; use it as it is")
        examples = tuple(
            replace(
                example,
                source=self.source.sentences(example.source),
                candidates=tuple(map(self.target.sentences, example.candidates)),
            )
            for example in suite.examples
        )
        return replace(suite, name=f"{suite.name}{SUFFIX}", examples=examples)


def convert(
    source: Path,
    target: Path | None,
    out: Path,
    out_target: Path | None,
    to: str,
    format: str | None = None,
    detokenise: Detokenisers | None = None,
) -> tuple[int, int]:
    """Write a corpus in the format `to`, with the same documents and sentences in the same order.

    Input and output have one or two languages, in one or two files. `out_target` is required for two
    languages if files of the format contain one language. `detokenise` undoes the Moses tokenizer. For a
    corpus in one language, the rules of the source are used. Returns the numbers of documents and sentences.

    Raises CotextError if the input is invalid, the format cannot represent the content, or an output is also
    an input.
    """
    for written in (out, out_target):
        refuse_input(written, [source, target])
    row = find_format(to)
    if target is None and not holds_two_languages(source, format):
        if out_target is not None:
            raise CotextError(f"{source}: contains one language; remove --out-target {out_target}")
        check_readable(source)
        documents = _one_language(source, find_format(format or detect_format(source)))
        if detokenise is not None:
            documents = detokenise.documents(documents)
        return write_documents(out, documents, to)
    if not row.holds_both_languages and out_target is None:
        raise CotextError(
            f"files of the format {to} contain one language, but the corpus has two: name a second file, "
            "--out-target"
        )
    pairs, known = read_parallel(source, target, format), languages_of_files(source, target, format)
    pairs = pairs if detokenise is None else detokenise.documents(pairs)
    return write_parallel(out, out_target, pairs, to, (known.source, known.target) if str(known) else None)


def _one_language(path: Path, format: Format) -> Iterator[Document]:
    """Yield the documents of a file with one language."""
    first: list[str] = []
    for record in checked_records(path, format):
        sides = [name for name in LISTS if getattr(record, name) is not None]
        first = first or sides
        if sides != first:
            raise CotextError(
                f"{path}:{record.line}: document {record.id!r} has {' and '.join(sides)}, but the first one "
                f"has {' and '.join(first)}; convert them separately"
            )
        yield Document(record.id, getattr(record, sides[0]))


def holds_two_languages(path: Path, format: str | None = None) -> bool:
    """Return whether the first document of a corpus file has two languages.

    Raises CotextError if the input is invalid.
    """
    row = find_format(format or detect_format(path))
    if not row.holds_both_languages:
        return False
    record = next(checked_records(path, row))
    return record.source is not None and record.target is not None


def beginning(
    path: Path, target: Path | None, documents: int, split: str = "train", format: str | None = None
) -> list[Document] | list[ParallelDocument]:
    """Return the first documents of a corpus, or of a split of prepared data, decoded by its tokenizer."""
    if path.is_dir():
        from cotext.data.store import TokenStore  # needs pyarrow; text files do not

        file = path / f"{split}.arrow"
        if not file.is_file():
            raise CotextError(
                f"{file}: does not exist; was {path} made by `cotext prepare`, with this split?"
            )
        store, tokenizer = TokenStore(file), load_tokenizer(path / "tokenizer")
        store.require_tokenizer(tokenizer)
        return [document.decoded(tokenizer) for document in islice(store, documents)]
    if target is None and not holds_two_languages(path, format):
        return list(islice(read_documents(path, format), documents))
    return list(islice(read_parallel(path, target, format), documents))


def render_beginning(
    documents: Iterable[Document | ParallelDocument], sentences: int, characters: int
) -> str:
    """Format the first sentences of documents, with each target below its source; long sentences are cut."""
    lines: list[str] = []
    for document in documents:
        count = len(document)
        lines.append(f"document {document.id}, {count:,} sentence{'' if count == 1 else 's'}")
        if isinstance(document, ParallelDocument):
            sides = [document.source, document.target]
        else:
            sides = [document.sentences]
        for number, texts in enumerate(islice(zip(*sides, strict=True), sentences), 1):
            for place, text in zip((number, ""), texts, strict=False):
                lines.append(f"{place:5}  {text[:characters]}{' ...' * (len(text) > characters)}")
        if count > sentences:
            lines.append(f"{'':5}  ... and {count - sentences:,} more")
        lines.append("")
    return "\n".join(lines)
