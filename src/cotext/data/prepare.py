"""From corpus files to a folder to train from: what `cotext prepare` does.

The text is read twice, once to draw the sample the tokenizer is trained on and once to encode it; memory
does not grow with the corpus. OUT holds train.arrow, dev.arrow, dev.jsonl, tokenizer/, report.json and, where
there is a test set, test.arrow and test.jsonl.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from cotext.data.cleaning import parse_rules
from cotext.data.contrastive_suites import write_suite
from cotext.data.controlled import (
    SIZES,
    VERSION,
    contrastive_suites,
    development_documents,
    test_documents,
    training_documents,
)
from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import detect_format, read_parallel, write_documents, write_parallel
from cotext.data.formats.docids import find_side_file
from cotext.data.formats.streams import check_readable, numbered_lines
from cotext.data.languages import Languages, check_sides, languages_of_names
from cotext.data.overlap import Overlap, OverlapCounter
from cotext.data.preparation import STATE, Preparation, preparing
from cotext.data.preparation_report import Report, report_of
from cotext.data.prepared import REPORT, file_digests, write_report
from cotext.data.selection import Selection, render
from cotext.data.splitting import Splitter
from cotext.data.statistics import SplitStatistics, StatisticsCollector
from cotext.data.store import StoreWriter, TokenStore
from cotext.data.tokenizer import (
    SentencePieceTokenizer,
    Tokenizer,
    TokenizerSettings,
    load_tokenizer,
    train_tokenizer,
)
from cotext.runtime.errors import CotextError
from cotext.runtime.files import checksum
from cotext.runtime.version import __version__

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
class _Corpus:
    split: str
    read: Callable[[], Iterator[ParallelDocument]]
    files: tuple[Path, ...] = ()
    selection: Selection | None = None


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
    tokenizer: Path | None = None,
    max_characters: int = 10_000,
    split: bool = False,
    clean: Sequence[str] = (),
    skip_unequal: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Report:
    """Train a tokenizer, encode training, development and test corpora, and write all to the folder `out`.

    `tokenizer`: a run or prepared data whose tokenizer is taken instead, so that training can go on from the
    run with other text; `settings` say nothing then. A target of None: the source file holds both languages.
    A language that `languages` leaves open is that which the names of the training files tell. Of the
    training corpus, `split` splits lines of several sentences and `clean` names rules of
    `cotext.data.cleaning`; of all, `skip_unequal` leaves out documents whose sides have unequal numbers of
    sentences. `out` appears whole or not at all; with `overwrite` it replaces an earlier prepared folder. The
    same call goes on with what an interrupted one has done: the tokenizer, and each split. Raises CotextError
    for what the readers refuse, for a sentence of more than `max_characters`, for files whose names are the
    pair the wrong way round, and as `load_tokenizer`, `train_tokenizer` and `preparing` do.
    """
    given = {
        "train": (source, target),
        "dev": (dev_source, dev_target),
        "test": (test_source, test_target),
    }
    pair = _languages(languages or Languages(), source, target)
    rules = parse_rules(clean)
    splitters = (Splitter(pair.source), Splitter(pair.target)) if split else None
    given_tokenizer = None if tokenizer is None else load_tokenizer(tokenizer / "tokenizer")
    corpora = []
    for name, (source_path, target_path) in given.items():
        if source_path is None:
            continue
        check_sides(pair, source_path, target_path, "the corpus is")
        files = (source_path,) if target_path is None else (source_path, target_path)
        for path in files:
            check_readable(path)
            if not path.is_file():
                raise CotextError(f"{path}: not a regular file; preparing reads the text twice")
        read = partial(read_parallel, source_path, target_path, format, skip_unequal=skip_unequal)
        selection = Selection(read, pair, *((rules, splitters) if name == "train" else ()))
        corpora.append(_Corpus(name, selection.read, files, selection))
    command = {
        **{f"{name}_files": [str(path) for path in paths if path] for name, paths in given.items()},
        "format": format,
        "max_characters": max_characters,
        "split": [splitter.name for splitter in splitters or ()],
        "clean": rules,
        "skip_unequal": skip_unequal,
        **({} if tokenizer is None else {"tokenizer": str(tokenizer)}),
    }
    chosen = given_tokenizer or settings or TokenizerSettings()
    with preparing(out, overwrite, [path for corpus in corpora for path in corpus.files]) as work:
        job = _job(command, _checksums(corpora, format), pair, chosen)
        report = work.begin(job)
        if not report:
            _build_tokenizer(work, corpora, corpora[0], chosen, max_characters, progress)
            report = _build(work, corpora, job, chosen, progress)
        work.publish()
        return report_of(report, work.out / REPORT)


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
        return report_of(report, work.out / REPORT)


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
    command: dict[str, Any],
    inputs: dict[str, str],
    languages: Languages,
    chosen: TokenizerSettings | Tokenizer,
) -> dict[str, Any]:
    """All that decides what a prepared folder holds; `inputs`: digests by file."""
    if isinstance(chosen, TokenizerSettings):
        how = asdict(chosen)
    else:
        how = {"kind": chosen.kind, "taken": chosen.fingerprint}
    return {
        "cotext": __version__,
        "command": command,
        "inputs": inputs,
        "languages": asdict(languages),
        "tokenizer": how,
    }


def _build_tokenizer(
    work: Preparation,
    corpora: Sequence[_Corpus],
    learn_from: _Corpus,
    chosen: TokenizerSettings | Tokenizer,
    max_characters: int,
    progress: Progress,
) -> None:
    """Check all sentences and train the tokenizer, unless that is done."""
    if work.done("tokenizer") is not None:
        return
    for corpus in corpora[1:]:
        for _ in _checked(corpus, max_characters):
            pass
    sentences = _sentences(_checked(learn_from, max_characters), progress)
    if isinstance(chosen, TokenizerSettings):
        tokenizer = train_tokenizer(sentences, chosen)
    else:
        tokenizer = chosen
        for _ in sentences:  # which are checked while they are read
            pass
    tokenizer.save(work.folder / "tokenizer")
    work.note("tokenizer", (work.folder / "tokenizer").iterdir(), {})


def _build(
    work: Preparation,
    corpora: Sequence[_Corpus],
    job: dict[str, Any],
    chosen: TokenizerSettings | Tokenizer,
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
    # Whether just counted or read back as JSON, whose keys are texts.
    usual = {str(q): n for q, n in splits["train"]["sentence_tokens"]["source"]["percentiles"].items()}["99"]
    overlap = _survey(folder, corpora, usual, progress)
    told = [line for corpus in corpora for line in _told(corpus)]
    report = {
        **job,
        "tokenizer": {**job["tokenizer"], "pieces": tokenizer.pieces, "fingerprint": tokenizer.fingerprint},
        "splits": splits,
        "notes": (*_notes(chosen, tokenizer), *told),
        "files": {**work.digests, **file_digests(folder, without=[STATE, *work.digests])},
        "selected": {c.split: c.selection.counts() for c in corpora if c.selection is not None},
        "overlap": {split: asdict(found) for split, found in overlap.items()},
    }
    write_report(folder, report)
    return report


def _notes(chosen: TokenizerSettings | Tokenizer, tokenizer: Tokenizer) -> tuple[str, ...]:
    if not isinstance(chosen, TokenizerSettings):
        return ("the tokenizer is that of other data; nothing was learned here",)
    if chosen.vocabulary is None and tokenizer.pieces < chosen.requested_vocabulary:
        return (
            f"note: the text supports {tokenizer.pieces} pieces, fewer than the usual "
            f"{chosen.requested_vocabulary}; the largest possible vocabulary was taken",
        )
    return ()


def _survey(
    folder: Path, corpora: Sequence[_Corpus], usual_tokens: int, progress: Progress
) -> dict[str, Overlap]:
    """Count, in stores that are written, what is not one sentence beside another, and what training holds."""
    overlap = OverlapCounter()
    for corpus in corpora[1:]:
        store = TokenStore(folder / f"{corpus.split}.arrow")
        for index, document in enumerate(overlap.remember(corpus.split, corpus.read())):
            if corpus.selection is not None:
                corpus.selection.note_lengths(document, store.lengths(index)[0], usual_tokens)
    for number, _ in enumerate(overlap.compare(corpora[0].read()), 1):
        if number % PROGRESS_DOCUMENTS == 0:
            progress("comparing", number)
    return overlap.overlaps()


def _told(corpus: _Corpus) -> list[str]:
    """What there is to say of what was selected of a corpus."""
    if corpus.selection is None:
        return []

    def place(side: int, sentence: str) -> str:
        return _place(corpus, side, sentence).removesuffix(": ") or repr(sentence[:40])

    return render(corpus.split, corpus.selection, place)


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
