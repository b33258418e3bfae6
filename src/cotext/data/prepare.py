"""Preparation of training data from corpus files: the command `cotext prepare`.

The text is read twice: to sample the sentences for the tokenizer, and to encode it. Memory does not grow with
the corpus. The output folder contains train.arrow, dev.arrow, dev.jsonl, tokenizer/ and report.json. A test
set adds test.arrow and test.jsonl.
"""

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from cotext.data.contrastive_suites import write_suite
from cotext.data.controlled import (
    VERSION,
    contrastive_suites,
    development_documents,
    test_documents,
    training_documents,
)
from cotext.data.corpora import (
    CorpusSplit,
    OnDocuments,
    document_notes,
    encode_corpus,
    input_checksums,
    make_tokenizer,
    taken_tokenizer,
    tokenizer_notes,
)
from cotext.data.documents import Languages, ParallelDocument, check_sides
from cotext.data.formats import languages_of_files, read_parallel, write_parallel
from cotext.data.formats.streams import check_readable
from cotext.data.overlap import HeldOut
from cotext.data.preparation import prepared
from cotext.data.prepared import REPORT, Report, file_digests, report_of, write_report
from cotext.data.requests import ControlledRequest, PreparationRequest
from cotext.data.selection import Selection, parse_rules, render
from cotext.data.set_aside import Read, part_of, set_aside
from cotext.data.splitting import Splitter
from cotext.data.tokenizer import (
    LanguageChoice,
    Tokenizer,
    TokenizerSettings,
    chosen_languages,
    load_tokenizer,
)
from cotext.runtime import CotextError, __version__
from cotext.runtime.processes import usable_cores

CONTROLLED_TOKENIZER_DOCUMENTS = 5000


def prepare(request: PreparationRequest, on_documents: OnDocuments = lambda stage, documents: None) -> Report:
    """Train a tokenizer, encode training, development and test corpora, and write all to the folder `out`.

    If a target is None, the source file contains both languages. Languages that are not given are inferred
    from the training files (`languages_of_files`). `out` is created only when all files are complete.

    Raises CotextError if a corpus file is invalid, a sentence is longer than `max_characters`, or source and
    target files are swapped; also the errors of `taken_tokenizer` and `prepared`.
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
    symbols = LanguageChoice(request.source_language, request.target_language)
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
            check_sides(languages, source, target, "the corpus is")
            read = _reader(source, target, request)
            if request.set_aside and not parts:
                parts = set_aside(read([]), request.set_aside, request.seed)
            if parts and (split == "train" or split in parts):
                read = part_of(read, parts, split)
            training = split == "train"
            cut = splitters if training or request.paragraphs else None
            selection = Selection(read, languages, rules if training else {}, cut)
            files = (source,) if target is None else (source, target)
            for path in files:
                check_readable(path)
                if not path.is_file():
                    raise CotextError(f"{path}: not a regular file; preparing reads the text twice")
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
        # A few hundred documents, which are read several times.
        CorpusSplit("dev", tuple(development_documents(seed, order)).__iter__),
        CorpusSplit("test", tuple(test_documents(seed, order)).__iter__),
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
        # All sizes of a seed use the same documents for the tokenizer, and so share one vocabulary.
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
                f"{part}: {count:,} whole documents set aside from the training corpus, "
                f"by seed {aside['seed']}"
                for part, count in aside.items()
                if part != "seed"
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
