"""Splits of a corpus in preparation: checks, sentences for the tokenizer, encoding into token stores."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from cotext.data.documents import ParallelDocument
from cotext.data.encoding import SIDES, ChunkEncoder, location_of
from cotext.data.formats import detect_format
from cotext.data.formats.docids import find_side_file
from cotext.data.formats.streams import check_readable, is_regular
from cotext.data.formats.table import find_format
from cotext.data.languages import Languages, languages_of_names, primary_language
from cotext.data.selection import Selection, render
from cotext.data.statistics import SplitStatistics, StatisticsCollector
from cotext.data.store import StoreWriter
from cotext.data.tokenizer import Tokenizer, TokenizerSettings, chosen_languages, load_tokenizer
from cotext.runtime.errors import CotextError
from cotext.runtime.files import checksum
from cotext.runtime.workers import in_order

CHUNK_SENTENCES: Final = 4096
CHUNK_CHARACTERS: Final = 1_000_000
CHUNKS_ALONE: Final = 8  # for fewer, worker processes take longer to start than to work
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

    def text(self) -> Iterator[ParallelDocument]:
        """The documents as `read` gives them, of which nothing is counted."""
        return self.read() if self.selection is None else self.selection.read(counting=False)


@dataclass(frozen=True, slots=True)
class Encoded:
    """A corpus that is encoded: its figures, and which of the wanted hashes it holds."""

    statistics: SplitStatistics
    found: set[int]


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


def languages_of_files(source: Path, target: Path | None, format: str | None) -> Languages:
    """The language pair of a corpus: by the names of its files, or as one file with both languages says.

    Unknown unless both languages are found, and differ.

    Raises:
        CotextError: as the reader of the format does.
    """
    if target is not None or not is_regular(source):
        return languages_of_names(source, target)
    read = find_format(format or detect_format(source)).languages
    codes = [primary_language(code) for code in (read(source) if read else ())]
    are_codes = all(re.fullmatch("[a-z]{2,3}", code) for code in codes)
    return Languages(*codes) if are_codes and len(set(codes)) == 2 else Languages()


def checked_documents(corpus: CorpusSplit, max_characters: int) -> Iterator[ParallelDocument]:
    """Yield the documents; raises CotextError at a sentence over the limit, with the line if possible."""
    for document in corpus.text():
        for side, sentences in enumerate((document.source, document.target)):
            if max(map(len, sentences)) > max_characters:
                index, sentence = next((i, s) for i, s in enumerate(sentences) if len(s) > max_characters)
                where = location_of(corpus.files, side, sentence)
                raise CotextError(
                    f"{where}document {document.id!r}, sentence {index + 1}: "
                    f"{len(sentence):,} characters, more than the limit of {max_characters:,}; split or "
                    "remove it, or raise the limit (--max-characters)"
                )
        yield document


def encode_corpus(
    folder: Path,
    corpus: CorpusSplit,
    tokenizer: Path,
    wanted: frozenset[int],
    workers: int,
    on_documents: OnDocuments,
) -> Encoded:
    """Write the token store of a corpus into a folder.

    `tokenizer` is its folder, `wanted` the hashes of held-out sentences that are looked for. With any number
    of `workers`, processes that encode, the store is the same.

    Raises:
        CotextError: what readers refuse, a sentence that cannot be encoded, a worker that was killed.
    """
    of_store = load_tokenizer(tokenizer)
    collector, found = StatisticsCollector(of_store.unk), set[int]()
    stage = f"encoding {corpus.split}"
    on_documents(stage, 0)
    make = partial(ChunkEncoder.opened, tokenizer, wanted, corpus.files)
    with StoreWriter(folder / f"{corpus.split}.arrow", of_store.fingerprint) as writer:
        for chunk in in_order(make, chunks_of(corpus.read()), workers, CHUNKS_ALONE):
            for name, source, target in chunk.documents():
                writer.add_flat(name, source, target)
            collector.add(chunk)
            found |= chunk.found
            on_documents(stage, writer.totals.documents)
    return Encoded(collector.statistics(), found)


def pieces_seen(
    documents: Iterable[ParallelDocument], tokenizer: Tokenizer, on_documents: OnDocuments
) -> set[int]:
    """The pieces that a corpus is encoded as, on either side."""
    seen, count = set[int](), 0
    for chunk in chunks_of(documents):
        texts = ([s for d in chunk for s in d.source], [t for d in chunk for t in d.target])
        for side, sentences in zip(SIDES, texts, strict=True):
            seen.update(piece for ids in tokenizer.encode_batch(sentences, side) for piece in ids)
        count += len(chunk)
        on_documents("trimming the vocabulary", count)
    return seen


def chunks_of(documents: Iterable[ParallelDocument]) -> Iterator[list[ParallelDocument]]:
    """Documents in runs that are encoded at once."""
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


# --- Notes of `cotext prepare`: what of a tokenizer and of a corpus is not as asked for.

MOSES_BPE: Final = "moses-bpe"  # which has the papers' number of merges
LONG_DOCUMENT: Final = 100  # sentences; a corpus of fewer may be one document


def tokenizer_notes(
    chosen: TokenizerSettings | Tokenizer, tokenizer: Tokenizer, sentences: int, texts: Sequence[str] = ()
) -> tuple[str, ...]:
    """Notes on the tokenizer of prepared data: of what it learned, where it is another than was asked for.

    `sentences`: those of the text that it could learn from; `texts`: its files, where it is not the corpus.
    """
    if not isinstance(chosen, TokenizerSettings):
        languages = chosen_languages(tokenizer)
        told = f"; rows begin with the symbols of {languages.strip('-')}" if languages else ""
        kept = (
            f", {tokenizer.pieces:,} of {chosen.pieces:,} pieces" if tokenizer.pieces < chosen.pieces else ""
        )
        return (f"the tokenizer is that of other data{kept}; nothing was learned here{told}",)
    notes: tuple[str, ...] = ()
    if texts:
        notes += (f"the tokenizer was trained on {', '.join(texts)} (--tokenizer-text)",)
    if chosen.sample_sentences is not None and chosen.sample_sentences < sentences:
        notes += (
            f"the tokenizer was trained on {chosen.sample_sentences:,} of {sentences:,} sentences, drawn "
            f"from the whole {'text' if texts else 'corpus'} (--tokenizer-sample)",
        )
    if chosen.vocabulary is None and chosen.kind != MOSES_BPE:
        notes += (
            f"the vocabulary has {tokenizer.pieces:,} pieces, by the size of the corpus ({sentences:,} "
            "sentences in both languages together) and what its text supports; --vocabulary N sets it",
        )
    return notes


def document_notes(statistics: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """Notes on splits that are one long document, as a translation memory without names of documents is."""
    return tuple(
        f"note: {split} is one document of {found['sentences']:,} sentences: nothing says where documents "
        "end, so that sentences of unrelated texts may become context of each other. Put an empty line "
        'between documents, in TMX a <prop type="x-document"> into every <tu>; or train on single sentences'
        for split, found in statistics.items()
        if found["documents"] == 1 and found["sentences"] >= LONG_DOCUMENT
    )


def selection_notes(corpus: CorpusSplit) -> list[str]:
    """Notes on the documents and sentences left out of a corpus."""
    if corpus.selection is None:
        return []

    def location(side: int, sentence: str) -> str:
        return location_of(corpus.files, side, sentence).removesuffix(": ") or repr(sentence[:40])

    return render(corpus.split, corpus.selection, location)
