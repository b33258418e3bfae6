"""Splits of a corpus in preparation: checks, sentences for the tokenizer, encoding into token stores."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cotext.data.documents import ParallelDocument
from cotext.data.formats import detect_format
from cotext.data.formats.docids import find_side_file
from cotext.data.formats.streams import check_readable, is_regular, numbered_lines
from cotext.data.selection import Selection
from cotext.data.statistics import SplitStatistics, StatisticsCollector
from cotext.data.store import StoreWriter
from cotext.data.tokenizer import Side, Tokenizer
from cotext.runtime.errors import CotextError
from cotext.runtime.files import checksum

CHUNK_SENTENCES: Final = 4096
CHUNK_CHARACTERS: Final = 1_000_000
PROGRESS_DOCUMENTS: Final = 1000


# Called with a stage of the work and the documents done so far.
OnDocuments = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class CorpusSplit:
    """Training, development or test documents; `files`: those that `read` reads."""

    split: str
    read: Callable[[], Iterator[ParallelDocument]]
    files: tuple[Path, ...] = ()
    selection: Selection | None = None


def corpus_of_files(split: str, source: Path, target: Path | None, selection: Selection) -> CorpusSplit:
    """A corpus in files, which are read twice.

    Raises:
        CotextError: a file that is not there, or can be read only once.
    """
    files = (source,) if target is None else (source, target)
    for path in files:
        check_readable(path)
        if not is_regular(path):
            raise CotextError(f"{path}: not a regular file; preparing reads the text twice")
    return CorpusSplit(split, selection.read, files, selection)


def sentences_of(documents: Iterable[ParallelDocument], on_documents: OnDocuments) -> Iterator[str]:
    """The sentences of both sides, document by document."""
    number = 0
    for number, document in enumerate(documents, 1):
        yield from document.source
        yield from document.target
        if number % PROGRESS_DOCUMENTS == 0:
            on_documents("reading", number)
    on_documents("training the tokenizer", number)


def checked_documents(corpus: CorpusSplit, max_characters: int) -> Iterator[ParallelDocument]:
    """Yield the documents; raises CotextError at a sentence over the limit, with the line if possible."""
    for document in corpus.read():
        for side, sentences in enumerate((document.source, document.target)):
            if max(map(len, sentences)) > max_characters:
                index, sentence = next((i, s) for i, s in enumerate(sentences) if len(s) > max_characters)
                raise CotextError(
                    f"{location_of(corpus, side, sentence)}document {document.id!r}, sentence {index + 1}: "
                    f"{len(sentence):,} characters, more than the limit of {max_characters:,}; split or "
                    "remove it, or raise the limit (--max-characters)"
                )
        yield document


def location_of(corpus: CorpusSplit, side: int, sentence: str) -> str:
    """File and line of a sentence, as messages begin; empty where there is no file."""
    if not corpus.files:
        return ""
    path = corpus.files[min(side, len(corpus.files) - 1)]
    # Only for a message is the file searched for the line.
    line = next((number for number, line in numbered_lines(path) if sentence in line), None)
    return f"{path}: " if line is None else f"{path}:{line}: "


def encode_corpus(
    folder: Path, corpus: CorpusSplit, tokenizer: Tokenizer, on_documents: OnDocuments
) -> SplitStatistics:
    """Write the token store of a corpus; returns its statistics."""
    collector = StatisticsCollector(tokenizer.unk)
    on_documents(f"encoding {corpus.split}", 0)
    with StoreWriter(folder / f"{corpus.split}.arrow", tokenizer.fingerprint) as writer:
        for chunk in _chunks(corpus.read()):
            source = tokenizer.encode_batch([sentence for document in chunk for sentence in document.source])
            target = tokenizer.encode_batch(
                [sentence for document in chunk for sentence in document.target], side="target"
            )
            start = 0
            for document in chunk:
                end = start + len(document)
                writer.add(document.id, source[start:end], target[start:end])
                start = end
            collector.add(chunk, source, target)
            on_documents(f"encoding {corpus.split}", writer.totals.documents)
    return collector.statistics()


def pieces_seen(
    documents: Iterable[ParallelDocument], tokenizer: Tokenizer, on_documents: OnDocuments
) -> set[int]:
    """The pieces that a corpus is encoded as, on either side."""
    seen, count = set[int](), 0
    for chunk in _chunks(documents):
        sides: tuple[tuple[Side, list[str]], ...] = (
            ("source", [sentence for document in chunk for sentence in document.source]),
            ("target", [sentence for document in chunk for sentence in document.target]),
        )
        for side, sentences in sides:
            seen.update(piece for ids in tokenizer.encode_batch(sentences, side) for piece in ids)
        count += len(chunk)
        on_documents("trimming the vocabulary", count)
    return seen


def _chunks(documents: Iterable[ParallelDocument]) -> Iterator[list[ParallelDocument]]:
    chunk: list[ParallelDocument] = []
    sentences = characters = 0
    for document in documents:
        chunk.append(document)
        sentences += len(document)
        characters += sum(map(len, document.source)) + sum(map(len, document.target))
        if sentences >= CHUNK_SENTENCES or characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, sentences, characters = [], 0, 0
    if chunk:
        yield chunk


def input_checksums(corpora: Sequence[CorpusSplit], format: str | None) -> dict[str, str]:
    """SHA-256 of all files of corpora, side files too, by path."""
    checksums = {}
    for path in [path for corpus in corpora for path in corpus.files]:
        side_file = find_side_file(path) if (format or detect_format(path)) == "docids" else None
        for each in (path, side_file):
            if each is not None and str(each) not in checksums:
                checksums[str(each)] = checksum(each)
    return checksums
