"""Stages of preparation: checking sentences, training the tokenizer, and encoding into token stores."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Final

from cotext.data.documents import Languages, ParallelDocument
from cotext.data.formats import detect_format
from cotext.data.formats.docids import find_side_file
from cotext.data.overlap import found_in
from cotext.data.selection import Selection, location_of
from cotext.data.set_aside import BOUNDARIES
from cotext.data.statistics import SplitStatistics, StatisticsCollector
from cotext.data.store import Flat, StoreWriter
from cotext.data.tokenizer import (
    ImportedTokenizer,
    LanguageChoice,
    MosesBPETokenizer,
    Tokenizer,
    TokenizerSettings,
    chosen_languages,
    load_tokenizer,
    require_languages,
    train_tokenizer,
)
from cotext.data.tokenizer.kinds import SIDES
from cotext.runtime import CotextError
from cotext.runtime.files import checksum
from cotext.runtime.processes import in_order

CHUNK_SENTENCES: Final = 4096
CHUNK_CHARACTERS: Final = 1_000_000
CHUNKS_ALONE: Final = 8  # chunks encoded in this process; for fewer chunks, starting workers is slower
PROGRESS_DOCUMENTS: Final = 1000

# Called with the name of the stage and the number of finished documents.
OnDocuments = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class CorpusSplit:
    """Training, development or test documents; `read` reads them from `files`."""

    split: str
    read: Callable[[], Iterator[ParallelDocument]]
    files: tuple[Path, ...] = ()
    selection: Selection | None = None

    def text(self) -> Iterator[ParallelDocument]:
        """Read the documents without counting."""
        return self.read() if self.selection is None else self.selection.read(counting=False)


def checked_documents(corpus: CorpusSplit, max_characters: int) -> Iterator[ParallelDocument]:
    """Yield the documents; raises CotextError for a sentence over the limit, with its line if possible."""
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
) -> tuple[SplitStatistics, set[int]]:
    """Write the token store of a corpus into a folder.

    `tokenizer` is the folder of the tokenizer, `wanted` are hashes of held-out sentences to look for. The
    number of worker processes does not change the result. Returns statistics, and the hashes that occur.

    Raises CotextError if a worker was killed.
    """
    loaded = load_tokenizer(tokenizer)
    collector, found = StatisticsCollector(loaded.unk), set[int]()
    stage = f"encoding {corpus.split}"
    on_documents(stage, 0)
    make = partial(chunk_encoder, tokenizer, wanted)
    with StoreWriter(folder / f"{corpus.split}.arrow", loaded.fingerprint) as writer:
        for chunk in in_order(make, _chunks_of(corpus.read()), workers, CHUNKS_ALONE):
            for name, source, target in chunk.documents():
                writer.add_flat(name, source, target)
            collector.add(chunk.sizes, chunk.source, chunk.target)
            found |= chunk.found
            on_documents(stage, writer.totals.documents)
    return collector.statistics(), found


@dataclass(frozen=True, slots=True)
class EncodedChunk:
    """Consecutive documents as token ids.

    `sizes`: sentences per document. `found`: the requested hashes of `cotext.data.overlap` that occur in the
    documents.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    source: Flat
    target: Flat
    found: frozenset[int]

    def documents(self) -> Iterator[tuple[str, Flat, Flat]]:
        """Yield name, source and target of each document, in the form for `StoreWriter.add_flat`."""
        sides = [(side, [0, *accumulate(side.lengths.tolist())]) for side in (self.source, self.target)]
        bounds = pairwise(accumulate(self.sizes, initial=0))
        for name, (low, high) in zip(self.names, bounds, strict=True):
            source, target = (
                Flat(side.tokens[ends[low] : ends[high]], side.lengths[low:high]) for side, ends in sides
            )
            yield name, source, target


def chunk_encoder(
    tokenizer: Path, wanted: frozenset[int]
) -> Callable[[Sequence[ParallelDocument]], EncodedChunk]:
    """Return a function that encodes chunks of documents; called in each worker process.

    `tokenizer`: its folder. `wanted`: hashes to look for.
    """
    loaded = load_tokenizer(tokenizer)

    def encode(documents: Sequence[ParallelDocument]) -> EncodedChunk:
        texts = ([s for d in documents for s in d.source], [t for d in documents for t in d.target])
        source, target = (
            Flat.of(loaded.encode_batch(sentences, side))
            for side, sentences in zip(SIDES, texts, strict=True)
        )
        names, sizes = tuple(document.id for document in documents), tuple(map(len, documents))
        found = found_in(documents, wanted) if wanted else ()
        return EncodedChunk(names, sizes, source, target, frozenset(found))

    return encode


def _chunks_of(documents: Iterable[ParallelDocument]) -> Iterator[list[ParallelDocument]]:
    """Group documents into chunks, each of which is encoded at once."""
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
    """Return the SHA-256 of all files of corpora, including side files, by path."""
    checksums = {}
    for path in [path for corpus in corpora for path in corpus.files]:
        side_file = find_side_file(path) if (format or detect_format(path)) == "docids" else None
        for file in (path, side_file):
            if file is not None and str(file) not in checksums:
                checksums[str(file)] = checksum(file)
    return checksums


# --- Notes in the report of `cotext prepare`.

LONG_DOCUMENT: Final = 100  # sentences; a smaller corpus may really be one document


def tokenizer_notes(
    chosen: TokenizerSettings | Tokenizer, tokenizer: Tokenizer, sentences: int
) -> tuple[str, ...]:
    """Return notes on the origin and the size of the tokenizer; `sentences` are available for training it."""
    if not isinstance(chosen, TokenizerSettings):
        languages = chosen_languages(tokenizer)
        symbols = f"; rows begin with the symbols of {languages.strip('-')}" if languages else ""
        return (f"the tokenizer was trained on other data, and is used unchanged{symbols}",)
    notes: tuple[str, ...] = ()
    if chosen.sample_sentences is not None and chosen.sample_sentences < sentences:
        notes += (
            f"the tokenizer was trained on {chosen.sample_sentences:,} of {sentences:,} sentences, drawn "
            "from the whole corpus (--tokenizer-sample)",
        )
    # The default number of merges of moses-bpe does not depend on the corpus.
    if chosen.vocabulary is None and chosen.kind != MosesBPETokenizer.kind:
        notes += (
            f"the vocabulary has {tokenizer.pieces:,} pieces, chosen from the size of the corpus "
            f"({sentences:,} sentences in both languages together) and from its text; --vocabulary N sets it",
        )
    return notes


def document_notes(statistics: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """Return notes on splits with a single long document, probably without document boundaries."""
    return tuple(
        f"note: {split} is one document of {counts['sentences']:,} sentences without document "
        f"boundaries; sentences of unrelated texts may become context of each other; {BOUNDARIES}, or train "
        "on single sentences"
        for split, counts in statistics.items()
        if counts["documents"] == 1 and counts["sentences"] >= LONG_DOCUMENT
    )


def taken_tokenizer(folder: Path, symbols: LanguageChoice, pair: Languages) -> Tokenizer:
    """Load the tokenizer of a run or of prepared data, and choose the languages of this corpus.

    For a multilingual tokenizer, the choice is `symbols`, otherwise the choice already stored in the folder,
    otherwise the languages with the codes of the corpus (`pair`).

    Raises CotextError if the tokenizer has no language symbols, or a language is unknown; also the errors of
    `load_tokenizer`.
    """
    tokenizer = load_tokenizer(folder / "tokenizer")
    if not isinstance(tokenizer, ImportedTokenizer) or not tokenizer.languages:
        return tokenizer
    tokenizer = tokenizer.with_languages(symbols.source, symbols.target)
    for side in tokenizer.lacking():
        code = pair.source if side == "source" else pair.target
        if len(matches := tokenizer.names_alike(code)) == 1:
            tokenizer = tokenizer.with_languages(**{"source": "", "target": "", side: matches[0]})
    require_languages(tokenizer, "--source-language and --target-language")
    return tokenizer


def make_tokenizer(
    corpora: Sequence[CorpusSplit],
    chosen: TokenizerSettings | Tokenizer,
    max_characters: int,
    on_documents: OnDocuments,
) -> tuple[Tokenizer, int]:
    """Check all sentences of the corpora and return the tokenizer, trained on the first corpus if necessary.

    Also returns the number of non-empty sentences of the first corpus.
    """
    for corpus in corpora[1:]:
        for _ in checked_documents(corpus, max_characters):
            pass
    count = 0

    def sentences() -> Iterator[str]:
        nonlocal count
        number = 0
        on_documents("reading", 0)  # a corpus may be one long document
        for number, document in enumerate(checked_documents(corpora[0], max_characters), 1):
            for sentence in filter(None, (*document.source, *document.target)):
                count += 1
                yield sentence
            if number % PROGRESS_DOCUMENTS == 0:
                on_documents("reading", number)
        is_trained = isinstance(chosen, TokenizerSettings)
        on_documents("training the tokenizer" if is_trained else "reading", number)

    if isinstance(chosen, TokenizerSettings):
        return train_tokenizer(sentences(), chosen), count
    for _ in sentences():  # reading checks and counts them
        pass
    return chosen, count
