"""Preparation of training data from corpus files: the command `cotext prepare`.

The text is read at least twice: to sample sentences for the tokenizer, and to encode it. Memory does not grow
with the corpus. The output folder contains train.arrow, dev.arrow, dev.jsonl, tokenizer/ and report.json. A
test set adds test.arrow and test.jsonl.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import Any, Final

from cotext.data.contrastive_suites import write_suite
from cotext.data.controlled import VERSION, contrastive_suites, held_out_documents, training_documents
from cotext.data.documents import Languages, ParallelDocument, check_pair, check_sides, primary_language
from cotext.data.formats import detect_format, languages_of_files, read_parallel, write_parallel
from cotext.data.formats.line_formats import find_side_file
from cotext.data.formats.streams import check_readable
from cotext.data.prepared import (
    REPORT,
    HeldOut,
    Report,
    SplitStatistics,
    StatisticsCollector,
    file_digests,
    found_in,
    prepared,
    report_of,
    write_report,
)
from cotext.data.requests import ControlledRequest, PreparationRequest
from cotext.data.selection import (
    BOUNDARIES,
    Read,
    Selection,
    location_of,
    parse_rules,
    part_of,
    render,
    set_aside,
)
from cotext.data.splitting import Splitter
from cotext.data.store import Flat, store_writer
from cotext.data.tokenizer import (
    SIDES,
    ImportedTokenizer,
    MosesBPETokenizer,
    Tokenizer,
    TokenizerSettings,
    chosen_languages,
    load_tokenizer,
    require_languages,
    train_tokenizer,
)
from cotext.runtime import CotextError, __version__
from cotext.runtime.files import checksum
from cotext.runtime.processes import in_order, usable_cores

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
    with store_writer(folder / f"{corpus.split}.arrow", loaded.fingerprint) as writer:
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

    `sizes`: sentences per document. `found`: the requested hashes of `cotext.data.prepared` that occur in the
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

    `tokenizer`: folder of the tokenizer. `wanted`: hashes of sentences to look for.
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
    """Return notes on the tokenizer's origin and size; `sentences`: number available for its training."""
    if not isinstance(chosen, TokenizerSettings):
        languages = chosen_languages(tokenizer)
        symbols = f"; sequences begin with the symbols of {languages.strip('-')}" if languages else ""
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


def taken_tokenizer(folder: Path, symbols: Languages, pair: Languages) -> Tokenizer:
    """Load the tokenizer of a run or of prepared data, and choose the languages of this corpus.

    For a multilingual tokenizer, the choice is `symbols`, else the choice stored in the folder, else the
    languages with the codes of the corpus (`pair`).

    Raises CotextError if a language is unknown or not chosen, or the stored languages are not those of the
    corpus; also the errors of `load_tokenizer`.
    """
    tokenizer = load_tokenizer(folder / "tokenizer")
    if not isinstance(tokenizer, ImportedTokenizer) or not tokenizer.languages:
        return tokenizer
    tokenizer = tokenizer.with_languages(symbols.source, symbols.target)
    for side in tokenizer.lacking():
        code = pair.source if side == "source" else pair.target
        if len(matches := tokenizer.names_alike(code)) == 1:
            tokenizer = tokenizer.with_languages(**{"source": "", "target": "", side: matches[0]})
    options = "--source-language and --target-language"
    require_languages(tokenizer, options)
    chosen = tokenizer.chosen.source or pair.source, tokenizer.chosen.target or pair.target
    stored = Languages(*map(primary_language, chosen))
    check_pair(pair, stored, f"{folder}, without {options},", "the corpus is")
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


CONTROLLED_TOKENIZER_DOCUMENTS = 5000


def prepare(request: PreparationRequest, on_documents: OnDocuments = lambda stage, documents: None) -> Report:
    """Train a tokenizer, encode training, development and test corpora, and write all to the folder `out`.

    If a target is None, the source file contains both languages. Languages that are not given are inferred
    from the training files (`languages_of_files`). `out` is created only when all files are complete.

    Raises CotextError for an invalid corpus file, a sentence longer than `max_characters`, and swapped source
    and target files; also the errors of `taken_tokenizer` and `prepared`.
    """
    given = {
        "train": (request.source, request.target),
        "dev": (request.dev_source, request.dev_target),
        "test": (request.test_source, request.test_target),
    } | dict.fromkeys(request.set_aside, (request.source, request.target))
    named = request.languages
    guessed = languages_of_files(request.source, request.target, request.format)
    pair = Languages(named.source or guessed.source, named.target or guessed.target)
    rules = parse_rules(request.clean)
    folder = request.tokenizer_folder
    splitters = request.splitters(pair)
    symbols = Languages(request.source_language, request.target_language)
    chosen = request.tokenizer_settings if folder is None else taken_tokenizer(folder, symbols, pair)
    corpora = _corpora(request, given, pair, rules, splitters)
    extra: dict[str, Any] = {
        "tokenizer": folder and str(folder),
        "paragraphs": request.paragraphs,
        "set_aside": request.set_aside and {**request.set_aside, "seed": request.seed},
    }
    command = {
        **{f"{name}_files": [str(path) for path in paths if path] for name, paths in given.items()},
        "format": request.format,
        "max_characters": request.max_characters,
        "split": [splitter.name for splitter in splitters or ()],
        "clean": rules,
        "skip_unequal": request.skip_unequal,
        **{name: value for name, value in extra.items() if value},
    }
    job = _job(command, input_checksums(corpora, request.format), pair, chosen)

    def build(out: Path) -> dict[str, Any]:
        tokenizer, sentences = make_tokenizer(corpora, chosen, request.max_characters, on_documents)
        tokenizer.save(out / "tokenizer")
        notes = tokenizer_notes(chosen, tokenizer, sentences)
        return _build(out, corpora, job, notes, request.workers or usable_cores(), on_documents)

    files = [path for corpus in corpora for path in corpus.files]
    return report_of(prepared(request.out, request.overwrite, files, job, build), request.out / REPORT)


def _corpora(
    request: PreparationRequest,
    given: dict[str, tuple[Path | None, Path | None]],
    languages: Languages,
    rules: dict[str, float],
    splitters: tuple[Splitter, Splitter] | None,
) -> list[CorpusSplit]:
    """Return the corpora. Cleaning and, without `paragraphs`, splitting apply only to training data."""
    corpora: list[CorpusSplit] = []
    parts: dict[str, frozenset[int]] = {}
    for split, (source, target) in given.items():
        if source is not None:
            files = (source,) if target is None else (source, target)
            for path in files:
                check_readable(path)
                if not path.is_file():
                    raise CotextError(f"{path}: not a regular file; preparing reads the text twice")
            read = _reader(source, target, request)
            inside = languages_of_files(source, target, request.format) if target is None else Languages()
            if str(inside) and inside == languages.reversed:
                raise CotextError(f"{source}: the file is {inside}, but the corpus is to be {languages}")
            pairs = (pair for d in islice(read([]), 20) for pair in zip(d.source, d.target, strict=True))
            check_sides(languages, source, target, "the corpus is", zip(*pairs, strict=True))
            if request.set_aside and not parts:
                parts = set_aside(read([]), request.set_aside, request.seed)
            if parts and (split == "train" or split in parts):
                read = part_of(read, parts, split)
            training = split == "train"
            cut = splitters if training or request.paragraphs else None
            selection = Selection(read, languages, rules if training else {}, cut)
            corpora.append(CorpusSplit(split, selection.read, files, selection))
    return corpora


def _reader(source: Path, target: Path | None, request: PreparationRequest) -> Read:
    def read(skipped: list[str]) -> Iterator[ParallelDocument]:
        return read_parallel(source, target, request.format, skipped if request.skip_unequal else None)

    return read


def prepare_controlled(
    request: ControlledRequest, on_documents: OnDocuments = lambda stage, documents: None
) -> Report:
    """Generate the controlled corpus and prepare it.

    In addition to the files of `prepare`, `out` contains contrastive/<phenomenon>.json and, for translation,
    the development and test sets as plain text (dev.en, dev.de, test.en, test.de).
    """
    documents, seed, order = request.documents, request.seed, request.word_order
    # Byte fallback is not needed, because the generator uses a fixed set of words and characters. BPE is used
    # because nearly every word is frequent enough to become one token.
    settings = TokenizerSettings(
        kind="sentencepiece-bpe", vocabulary=request.vocabulary, byte_fallback=False, seed=seed
    )
    corpora = [
        CorpusSplit("train", partial(training_documents, documents, seed, order, request.mentions)),
        # These few hundred documents are kept in memory, because they are read several times.
        CorpusSplit("dev", tuple(held_out_documents("development", seed, order)).__iter__),
        CorpusSplit("test", tuple(held_out_documents("test", seed, order)).__iter__),
    ]
    command = {
        "controlled": VERSION,
        "size": request.size,
        "documents": documents,
        "seed": seed,
        "contrastive_examples": request.contrastive_examples,
        "word_order": order,
        "mentions": request.mentions,
    }
    job = _job(command, {}, Languages("en", "de"), settings)

    def build(out: Path) -> dict[str, Any]:
        # Corpora of all sizes have one vocabulary per seed: they train the tokenizer on the same documents.
        sample = partial(training_documents, CONTROLLED_TOKENIZER_DOCUMENTS, seed, order, request.mentions)
        learn_from = [CorpusSplit("train", sample), *corpora[1:]]
        tokenizer, _ = make_tokenizer(learn_from, settings, 10_000, on_documents)
        tokenizer.save(out / "tokenizer")
        (out / "contrastive").mkdir()
        for suite in contrastive_suites(seed, request.contrastive_examples, order):
            write_suite(out / "contrastive" / f"{suite.name.rpartition('/')[2]}.json", suite)
        for corpus in corpora[1:]:
            write_parallel(out / f"{corpus.split}.en", out / f"{corpus.split}.de", corpus.read(), "text")
        return _build(out, corpora, job, (), 1, on_documents)

    return report_of(prepared(request.out, request.overwrite, [], job, build), request.out / REPORT)


def _job(
    command: dict[str, Any],
    inputs: dict[str, str],
    languages: Languages,
    chosen: TokenizerSettings | Tokenizer,
) -> dict[str, Any]:
    """Return everything that determines the content of a prepared folder; `inputs` maps files to digests."""
    if isinstance(chosen, TokenizerSettings):
        how = asdict(chosen)
    else:
        how = {"kind": chosen.kind, "taken": chosen.fingerprint}
        if language_pair := chosen_languages(chosen):
            how["languages"] = language_pair
    return {
        "cotext": __version__,
        "command": command,
        "inputs": inputs,
        "languages": asdict(languages),
        "tokenizer": how,
    }


def _build(
    folder: Path,
    corpora: list[CorpusSplit],
    job: dict[str, Any],
    notes: tuple[str, ...],
    workers: int,
    on_documents: OnDocuments,
) -> dict[str, Any]:
    """Encode the corpora with the tokenizer in the folder; write and return the report."""
    path, held_out = folder / "tokenizer", corpora[1:]
    tokenizer, aside = load_tokenizer(path), job["command"].get("set_aside", {})
    sets = HeldOut({corpus.split: corpus.text() for corpus in held_out})
    statistics: dict[str, Any] = {}
    overlap: dict[str, Any] = {}
    for corpus in corpora:
        wanted = sets.wanted if corpus.split == "train" else frozenset[int]()
        counted, found = encode_corpus(folder, corpus, path, wanted, workers, on_documents)
        statistics[corpus.split] = asdict(counted)
        if corpus.split == "train":
            overlap = {split: asdict(part) for split, part in sets.overlaps(found).items()}
    for corpus in held_out:
        write_parallel(folder / f"{corpus.split}.jsonl", None, corpus.read(), "jsonl")
    report = {
        **job,
        "tokenizer": {**job["tokenizer"], "pieces": tokenizer.pieces, "fingerprint": tokenizer.fingerprint},
        "splits": statistics,
        "notes": (
            *notes,
            *(
                f"{part}: {count:,} whole documents set aside from the training corpus, by seed "
                f"{aside['seed']}{f'; {copies:,} with their copies and pieces' if copies > count else ''}"
                for part, count in aside.items()
                if part != "seed" and (copies := statistics[part]["documents"])
            ),
            *document_notes(statistics),
            *(line for c in corpora if c.selection for line in render(c.split, c.files, c.selection)),
        ),
        "files": file_digests(folder),
        "selected": {c.split: c.selection.counts() for c in corpora if c.selection is not None},
        "overlap": overlap,
    }
    write_report(folder, report)
    return report
