"""Conversion of a corpus from one format into another, and a preview of its beginning."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

from cotext.data.contrastive_suites import ContrastiveSuite
from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import (
    detect_format,
    read_documents,
    read_parallel,
    write_documents,
    write_parallel,
)
from cotext.data.formats.corpus import checked_records
from cotext.data.formats.streams import Record, atomic_sinks, check_readable, same_file
from cotext.data.formats.table import Format, find_format
from cotext.data.formats.wmt import joined, read_wmt_lines
from cotext.data.languages import Languages, primary_language
from cotext.data.prepared import store_exists
from cotext.data.tokenizer import load_tokenizer
from cotext.data.tokenizer.moses_bpe import moses_detokenizer
from cotext.data.tokenizer.protocol import clean
from cotext.runtime.errors import CotextError

D = TypeVar("D", Document, ParallelDocument)

# --- Tokenised text as people write it: words that Moses' tokenizer has split are joined again.
#
# Corpora and suites of the field often come tokenised (`weren 't , he said .`), and models of raw text meet
# in them what they have never seen. Moses' own rules know the marks of ASCII alone; the others are joined
# here.

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


SOURCE_ALONE = "the source alone"
SPLITS = ("train", "dev", "test")


class Tally:
    """Documents and sentences that went through."""

    def __init__(self) -> None:
        self.documents = 0
        self.sentences = 0

    def count(self, documents: Iterable[D]) -> Iterator[D]:
        """Let documents through and count them; a pair of sentences is one."""
        for document in documents:
            self.documents += 1
            self.sentences += len(document)
            yield document


def convert(
    source: Path,
    target: Path | None,
    out: Path,
    out_target: Path | None,
    to: str,
    format: str | None = None,
    detokenise: Detokenisers | None = None,
) -> Tally:
    """Write a corpus in the format `to`: as many documents and sentences, in the same order.

    Of one language or of two, in a file or in two, on either side: `out_target` is needed where there are two
    languages, and the format holds one. Documents whose source alone is there stay so, where `to` tells it
    from a translation (wmt). `detokenise` joins what Moses' tokenizer has split; that of the source side is
    for the only one, too.

    Raises:
        CotextError: what the readers refuse, what the format cannot hold, an output that is an input.
    """
    for written in (out, out_target):
        for read in (source, target):
            if written is not None and read is not None and same_file(written, read):
                raise CotextError(f"{written}: would overwrite what is read from; give --out another name")
    row, tally = find_format(to), Tally()
    if target is None and not holds_two_languages(source, format):
        if out_target is not None:
            raise CotextError(f"{source}: holds one language; leave --out-target {out_target} out")
        check_readable(source)
        found = find_format(format or detect_format(source))
        untranslated = _kind(next(checked_records(source, found))) == SOURCE_ALONE
        documents: Iterator[Document] = (
            Document(record.id, record.sentences or record.source or record.target or ())
            for record in _alike(source, found)
        )
        if detokenise is not None:
            documents = detokenise.documents(documents)
        write_documents(out, tally.count(documents), to, untranslated=untranslated)
        return tally
    if not row.holds_both_languages and out_target is None:
        raise CotextError(
            f"the format {to} holds one language a file, and the corpus two: name the file of the other, "
            "--out-target"
        )
    pairs = read_parallel(source, target, format)
    write_parallel(
        out, out_target, tally.count(pairs if detokenise is None else detokenise.documents(pairs)), to
    )
    return tally


def _kind(record: Record) -> str:
    """What a document holds, in words."""
    if record.sentences is not None:
        return "one language"
    if record.source is not None and record.target is not None:
        return "both languages"
    return SOURCE_ALONE if record.source is not None else "the target alone"


def _alike(path: Path, format: Format) -> Iterator[Record]:
    """The records of a file, as long as they hold what the first one does.

    Raises:
        CotextError: what the readers refuse; a document of which a side would be lost or taken for the other.
    """
    first = ""
    for record in checked_records(path, format):
        first = first or _kind(record)
        if (kind := _kind(record)) != first:
            raise CotextError(
                f"{path}:{record.line}: document {record.id!r} holds {kind}, and the first one {first}; "
                "convert them apart, in files of their own"
            )
        yield record


def convert_to_submission(
    source: Path, out: Path, like: Path, format: str | None = None, wanted: str = ""
) -> Tally:
    """Write a submission to WMT: translated paragraphs, a sentence each, in the places of the task's own.

    `like` has the lines of the task; `wanted` is its language or pair, where it has several. Documents
    without ids answer them in their order.

    Raises:
        CotextError: what the readers refuse; other documents than the task's, or other numbers of paragraphs.
    """
    for read in (source, like):
        if same_file(out, read):
            raise CotextError(f"{out}: would overwrite what is read from; give --out another name")
    tally = Tally()
    documents: Iterable[Document] = read_documents(source, format, side="target")
    if not find_format(format or detect_format(source)).carries_ids:
        found, lines = list(documents), list(read_wmt_lines(like, wanted))
        if len(found) != len(lines):
            raise CotextError(f"{source}: {len(found)} documents for {len(lines)} lines of {like}")
        documents = [Document(line.doc_id, own.sentences) for line, own in zip(lines, found, strict=True)]
    with atomic_sinks([out]) as [sink]:
        for line in joined(source, tally.count(documents), like, wanted):
            sink.write(line)
    return tally


def holds_two_languages(path: Path, format: str | None = None) -> bool:
    """Whether a corpus file does, as its first document tells.

    Raises:
        CotextError: what the readers refuse.
    """
    row = find_format(format or detect_format(path))
    if not row.holds_both_languages:
        return False
    record = next(checked_records(path, row))
    return record.source is not None and record.target is not None


def beginning(
    path: Path, target: Path | None, documents: int, split: str = "train", format: str | None = None
) -> list[Document] | list[ParallelDocument]:
    """The first documents of a corpus, or of a part of prepared data, as its tokenizer gives the text back.

    Raises:
        CotextError: what the readers refuse, or no such part.
    """
    if path.is_dir():
        return list(islice(_stored(path, split), documents))
    if target is None and not holds_two_languages(path, format):
        return list(islice(read_documents(path, format), documents))
    return list(islice(read_parallel(path, target, format), documents))


def _stored(folder: Path, split: str) -> Iterator[ParallelDocument]:
    if split not in SPLITS:
        raise CotextError(f"--split {split}: choose one of {', '.join(SPLITS)}")
    from cotext.data.store import TokenStore  # needs pyarrow, which text needs not

    path = folder / f"{split}.arrow"
    if not store_exists(path):
        raise CotextError(f"{path}: not there; is {folder} made by `cotext prepare`, with such a part?")
    store, tokenizer = TokenStore(path), load_tokenizer(folder / "tokenizer")
    store.require_tokenizer(tokenizer)
    for document in store:
        source = tuple(tokenizer.decode(s.tolist(), side="source") for s in document.source)
        target = tuple(tokenizer.decode(t.tolist(), side="target") for t in document.target)
        yield ParallelDocument(document.id, source, target)


def render_beginning(
    documents: Iterable[Document | ParallelDocument], sentences: int, characters: int
) -> str:
    """The first sentences of documents, both sides one below the other; long ones are cut."""
    lines: list[str] = []
    for document in documents:
        count = len(document)
        lines.append(f"document {document.id}, {count:,} sentence{'' if count == 1 else 's'}")
        two = isinstance(document, ParallelDocument)
        source = document.source if isinstance(document, ParallelDocument) else document.sentences
        target = document.target if isinstance(document, ParallelDocument) else ()
        for number in range(min(sentences, count)):
            lines.append(f"{number + 1:5}  {_cut(source[number], characters)}")
            if two:
                lines.append(f"{'':5}  {_cut(target[number], characters)}")
        if count > sentences:
            lines.append(f"{'':5}  ... and {count - sentences:,} more")
        lines.append("")
    return "\n".join(lines)


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[:characters]} ..."
