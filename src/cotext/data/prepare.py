"""From corpus files to a folder to train from: what `cotext prepare` does.

The text is read twice, once to draw the sample the tokenizer is trained on and once to encode it; memory
does not grow with the corpus. OUT holds train.arrow, dev.arrow, dev.jsonl, tokenizer/, report.json and, where
there is a test set, test.arrow and test.jsonl.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from cotext import __version__
from cotext.data.controlled import (
    SIZES,
    VERSION,
    contrastive_suites,
    development_documents,
    test_documents,
    training_documents,
)
from cotext.data.corpus_statistics import OUTLIER_RATIO, Distribution, SplitStatistics, StatisticsCollector
from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import detect_format, read_parallel, write_documents, write_parallel
from cotext.data.formats.docids import find_side_file
from cotext.data.formats.streams import check_readable, numbered_lines
from cotext.data.languages import Languages, check_sides, languages_of_names
from cotext.data.preparation import STATE, Preparation, preparing
from cotext.data.prepared import REPORT, file_digests
from cotext.data.store import StoreWriter
from cotext.data.suites import write_suite
from cotext.data.tokenizer import (
    SentencePieceTokenizer,
    Tokenizer,
    TokenizerSettings,
    load_tokenizer,
    train_tokenizer,
)
from cotext.errors import CotextError
from cotext.files import checksum, replacing

CHUNK_SENTENCES: Final = 4096
CHUNK_CHARACTERS: Final = 1_000_000
CONTROLLED_VOCABULARY = 1500
CONTROLLED_TOKENIZER_DOCUMENTS = 5000
CONTRASTIVE_EXAMPLES: Final = 600
PROGRESS_DOCUMENTS: Final = 1000

# Called with what is being done and the documents done so far.
Progress = Callable[[str, int], None]


def silent(stage: str, documents: int) -> None:
    """Report no progress."""


@dataclass(frozen=True, slots=True)
class Report:
    """What was prepared, from what and how; written as report.json.

    `inputs` and `files` hold SHA-256 digests: of what was read, and of what was written.
    """

    cotext: str
    command: dict[str, Any]
    inputs: dict[str, str]
    languages: dict[str, str]
    tokenizer: dict[str, Any]
    splits: dict[str, SplitStatistics]
    notes: tuple[str, ...]
    files: dict[str, str]

    def render(self) -> str:
        """Lay the main figures out as a table, one column a split."""
        columns = [
            [name, *(figure(split) for figure in _ROWS.values())] for name, split in self.splits.items()
        ]
        widths = [max(map(len, column)) + 2 for column in columns]
        lines = [
            f"{label:32}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
            for label, *cells in zip(["", *_ROWS], *columns, strict=True)
        ]
        for name, split in self.splits.items():
            for example in split.ratio_examples:
                lines.append(
                    f"{name}: document {example.document!r}, sentence {example.sentence}: "
                    f"{example.source_tokens} source and {example.target_tokens} target tokens"
                )
        pair = str(Languages(**self.languages)) or "not told (--source-language, --target-language)"
        lines.append(f"languages: {pair}")
        lines.append(f"tokenizer: {self.tokenizer['kind']}, {self.tokenizer['pieces']} pieces")
        return "\n".join([*lines, *self.notes])


def _percentiles(distribution: Distribution) -> str:
    return "/".join(str(value) for value in (*distribution.percentiles.values(), distribution.maximum))


_ROWS: Final[dict[str, Callable[[SplitStatistics], str]]] = {
    "documents": lambda s: f"{s.documents:,}",
    "sentence pairs": lambda s: f"{s.sentences:,}",
    "source tokens": lambda s: f"{s.source_tokens:,}",
    "target tokens": lambda s: f"{s.target_tokens:,}",
    "tokens a sentence, mean": lambda s: f"{s.mean_sentence_tokens:.1f}",
    "source, 50/90/99 %, longest": lambda s: _percentiles(s.sentence_tokens.source),
    "target, 50/90/99 %, longest": lambda s: _percentiles(s.sentence_tokens.target),
    "sentences a document": lambda s: _percentiles(s.document_sentences),
    "source tokens a document": lambda s: _percentiles(s.document_tokens.source),
    "target tokens a document": lambda s: _percentiles(s.document_tokens.target),
    "empty, source/target": lambda s: "/".join(map(str, s.empty_sentences)),
    "unknown tokens, source/target": lambda s: "/".join(f"{rate:.2%}" for rate in s.unknown_token_rate),
    f"lengths differ more than {OUTLIER_RATIO} times": lambda s: f"{s.ratio_outliers:,}",
    "repeated pairs, approximately": lambda s: f"{s.duplicate_pairs:,}",
}


@dataclass(frozen=True, slots=True)
class _Corpus:
    split: str
    read: Callable[[], Iterator[ParallelDocument]]
    files: tuple[Path, ...] = ()


def prepare(
    source: Path,
    target: Path | None,
    dev_source: Path,
    dev_target: Path | None,
    out: Path,
    *,
    test_source: Path | None = None,
    test_target: Path | None = None,
    languages: Languages | None = None,
    format: str | None = None,
    settings: TokenizerSettings | None = None,
    max_characters: int = 10_000,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Report:
    """Train a tokenizer, encode training, development and test corpora, and write all to the folder `out`.

    A target of None: the source file holds both languages. A language that `languages` leaves open is that
    which the names of the training files tell. `out` appears whole or not at all; with `overwrite` it
    replaces an earlier prepared folder. The same call goes on with what an interrupted one has done: the
    tokenizer, and each split. Raises CotextError for what the readers refuse, for a sentence of more than
    `max_characters`, for files whose names are the pair the wrong way round, and as `train_tokenizer` and
    `preparing` do.
    """
    given = {
        "train": (source, target),
        "dev": (dev_source, dev_target),
        "test": (test_source, test_target),
    }
    pair = _languages(languages or Languages(), source, target)
    corpora = []
    for split, (source_path, target_path) in given.items():
        if source_path is None:
            continue
        check_sides(pair, source_path, target_path, "the corpus is")
        files = (source_path,) if target_path is None else (source_path, target_path)
        for path in files:
            check_readable(path)
            if not path.is_file():
                raise CotextError(f"{path}: not a regular file; preparing reads the text twice")
        corpora.append(_Corpus(split, partial(read_parallel, source_path, target_path, format), files))
    command = {
        **{f"{split}_files": [str(path) for path in pair if path] for split, pair in given.items()},
        "format": format,
        "max_characters": max_characters,
    }
    settings = settings or TokenizerSettings()
    with preparing(out, overwrite, [path for corpus in corpora for path in corpus.files]) as work:
        job = _job(command, _checksums(corpora, format), pair, settings)
        report = work.begin(job)
        if not report:
            _build_tokenizer(work, corpora, corpora[0], settings, max_characters, progress)
            report = _build(work, corpora, job, settings, progress)
        work.publish()
        return _read(work.out, report)


def _languages(told: Languages, source: Path, target: Path | None) -> Languages:
    """What is told of the languages; a side that is not, by the names of the files."""
    guessed = languages_of_names(source, target)
    return Languages(told.source or guessed.source, told.target or guessed.target)


def prepare_controlled(
    size: str | int,
    out: Path,
    seed: int = 1,
    vocabulary: int | None = None,
    *,
    contrastive_examples: int = CONTRASTIVE_EXAMPLES,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Report:
    """Generate the controlled corpus and prepare it; `size` is a name in SIZES or a number of documents.

    Beside what `prepare` writes, `out` holds contrastive/<phenomenon>.json and, to translate, the plain text
    of dev and test (dev.en, dev.de, test.en, test.de).
    """
    documents = SIZES.get(size, 0) if isinstance(size, str) else size
    if documents < 1:
        raise CotextError(
            f"unknown size {size!r}; choose one of {', '.join(SIZES)}, or a number of documents"
        )
    # The generator's words are known: no character will ever be unknown, so no byte pieces are needed.
    # BPE, because nearly every word is frequent enough to become one piece.
    settings = TokenizerSettings(
        kind="sentencepiece-bpe",
        vocabulary=vocabulary or CONTROLLED_VOCABULARY,
        byte_fallback=False,
        seed=seed,
    )
    corpora = [
        _Corpus("train", partial(training_documents, documents, seed)),
        _Corpus("dev", partial(development_documents, seed)),
        _Corpus("test", partial(test_documents, seed)),
    ]
    command = {
        "controlled": VERSION,
        "size": size,
        "documents": documents,
        "seed": seed,
        "contrastive_examples": contrastive_examples,
    }
    with preparing(out, overwrite, []) as work:
        job = _job(command, {}, Languages("en", "de"), settings)
        report = work.begin(job)
        if not report:
            # From the same documents whatever the size: all sizes of a seed share one vocabulary.
            learn_from = _Corpus("train", partial(training_documents, CONTROLLED_TOKENIZER_DOCUMENTS, seed))
            _build_tokenizer(work, corpora, learn_from, settings, 10_000, progress)
            _write_suites(work.folder, seed, contrastive_examples)
            _write_sides(work.folder, corpora[1:])
            report = _build(work, corpora, job, settings, progress)
        work.publish()
        return _read(work.out, report)


def _read(out: Path, report: dict[str, Any]) -> Report:
    try:
        return TypeAdapter(Report).validate_python(report)
    except ValidationError:
        raise CotextError(f"{out / REPORT}: damaged; prepare it again, with --overwrite") from None


def _write_suites(folder: Path, seed: int, examples: int) -> None:
    (folder / "contrastive").mkdir(exist_ok=True)
    for suite in contrastive_suites(seed, examples):
        write_suite(folder / "contrastive" / f"{suite.name.rpartition('/')[2]}.json", suite)


def _write_sides(folder: Path, corpora: Iterable[_Corpus]) -> None:
    """Both languages of controlled corpora as plain text, to be translated."""
    for corpus in corpora:
        sides = {"en": (Document(d.id, d.source) for d in corpus.read())}
        sides["de"] = (Document(d.id, d.target) for d in corpus.read())
        for language, side in sides.items():
            write_documents(folder / f"{corpus.split}.{language}", side, "text")


def _job(
    command: dict[str, Any], inputs: dict[str, str], languages: Languages, settings: TokenizerSettings
) -> dict[str, Any]:
    """All that decides what a prepared folder holds; `inputs`: digests by file."""
    return {
        "cotext": __version__,
        "command": command,
        "inputs": inputs,
        "languages": asdict(languages),
        "tokenizer": asdict(settings),
    }


def _build_tokenizer(
    work: Preparation,
    corpora: Sequence[_Corpus],
    learn_from: _Corpus,
    settings: TokenizerSettings,
    max_characters: int,
    progress: Progress,
) -> None:
    """Check all sentences and train the tokenizer, unless that is done."""
    if work.done("tokenizer") is not None:
        return
    for corpus in corpora[1:]:
        for _ in _checked(corpus, max_characters):
            pass
    tokenizer = train_tokenizer(_sentences(_checked(learn_from, max_characters), progress), settings)
    tokenizer.save(work.folder / "tokenizer")
    work.note("tokenizer", (work.folder / "tokenizer").iterdir(), {})


def _build(
    work: Preparation,
    corpora: Sequence[_Corpus],
    job: dict[str, Any],
    settings: TokenizerSettings,
    progress: Progress,
) -> dict[str, Any]:
    """Encode the corpora that are not encoded yet, and write the report, which is returned."""
    folder = work.folder
    tokenizer = load_tokenizer(folder / "tokenizer")
    if isinstance(tokenizer, SentencePieceTokenizer):
        tokenizer = tokenizer.with_threads(os.cpu_count() or 1)
    splits: dict[str, Any] = {}
    for corpus in corpora:
        found = work.done(corpus.split)
        if found is None:
            found = asdict(_encode(folder, corpus, tokenizer, progress))
            work.note(corpus.split, [folder / f"{corpus.split}.arrow"], found)
        splits[corpus.split] = found
    for corpus in corpora[1:]:
        write_parallel(folder / f"{corpus.split}.jsonl", None, corpus.read(), "jsonl")
    report = {
        **job,
        "tokenizer": {**job["tokenizer"], "pieces": tokenizer.pieces, "fingerprint": tokenizer.fingerprint},
        "splits": splits,
        "notes": _notes(settings, tokenizer),
        "files": {**work.digests, **file_digests(folder, without=[STATE, *work.digests])},
    }
    with replacing(folder / REPORT) as temporary:
        temporary.write_text(f"{json.dumps(report, indent=2, ensure_ascii=False)}\n", encoding="utf-8")
    return report


def _notes(settings: TokenizerSettings, tokenizer: Tokenizer) -> tuple[str, ...]:
    if settings.vocabulary is None and tokenizer.pieces < settings.requested_vocabulary:
        return (
            f"note: the text supports {tokenizer.pieces} pieces, fewer than the usual "
            f"{settings.requested_vocabulary}; the largest possible vocabulary was taken",
        )
    return ()


def _sentences(documents: Iterable[ParallelDocument], progress: Progress) -> Iterator[str]:
    number = 0
    for number, document in enumerate(documents, 1):
        yield from document.source
        yield from document.target
        if number % PROGRESS_DOCUMENTS == 0:
            progress("reading", number)
    progress("training the tokenizer", number)


def _checked(corpus: _Corpus, max_characters: int) -> Iterator[ParallelDocument]:
    """Yield the documents; raises CotextError at a sentence over the limit, with the line if possible."""
    for document in corpus.read():
        for side, sentences in enumerate((document.source, document.target)):
            if max(map(len, sentences)) > max_characters:
                place, sentence = next((i, s) for i, s in enumerate(sentences) if len(s) > max_characters)
                raise CotextError(
                    f"{_place(corpus, side, sentence)}document {document.id!r}, sentence {place + 1}: "
                    f"{len(sentence):,} characters, more than the limit of {max_characters:,}; split or "
                    "remove it, or raise the limit (--max-characters)"
                )
        yield document


def _place(corpus: _Corpus, side: int, sentence: str) -> str:
    if not corpus.files:
        return ""
    path = corpus.files[min(side, len(corpus.files) - 1)]
    # Only now, that there is something to tell, is the file searched for the line.
    line = next((number for number, line in numbered_lines(path) if sentence in line), None)
    return f"{path}: " if line is None else f"{path}:{line}: "


def _encode(folder: Path, corpus: _Corpus, tokenizer: Tokenizer, progress: Progress) -> SplitStatistics:
    collector = StatisticsCollector(tokenizer.unk)
    progress(f"encoding {corpus.split}", 0)
    with StoreWriter(folder / f"{corpus.split}.arrow", tokenizer.fingerprint) as writer:
        for chunk in _chunks(corpus.read()):
            source = tokenizer.encode_batch([sentence for document in chunk for sentence in document.source])
            target = tokenizer.encode_batch([sentence for document in chunk for sentence in document.target])
            start = 0
            for document in chunk:
                end = start + len(document)
                writer.add(document.id, source[start:end], target[start:end])
                start = end
            collector.add(chunk, source, target)
            progress(f"encoding {corpus.split}", writer.totals.documents)
    return collector.statistics()


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


def _checksums(corpora: Sequence[_Corpus], format: str | None) -> dict[str, str]:
    checksums = {}
    for path in [path for corpus in corpora for path in corpus.files]:
        side_file = find_side_file(path) if (format or detect_format(path)) == "docids" else None
        for each in (path, side_file):
            if each is not None and str(each) not in checksums:
                checksums[str(each)] = checksum(each)
    return checksums
