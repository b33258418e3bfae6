"""Preparation of training data from corpus files: the command `cotext prepare`.

The text is read twice, once to draw the sample the tokenizer is trained on and once to encode it; memory
does not grow with the corpus. OUT holds train.arrow, dev.arrow, dev.jsonl, tokenizer/, report.json, where
there is a test set test.arrow and test.jsonl, and shortlist.safetensors if it is asked for.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from cotext.data.contrastive_suites import ContrastiveSuite, write_suite
from cotext.data.controlled import (
    SIZES,
    VERSION,
    WordOrder,
    contrastive_suites,
    development_documents,
    test_documents,
    training_documents,
)
from cotext.data.corpora import (
    CorpusSplit,
    OnDocuments,
    build_shortlist,
    build_tokenizer,
    corpus_of_files,
    document_notes,
    encode_corpus,
    input_checksums,
    languages_of_files,
    selection_notes,
    taken_tokenizer,
    text_checksums,
    tokenizer_notes,
)
from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import read_parallel, write_documents, write_parallel
from cotext.data.languages import Languages, check_sides
from cotext.data.overlap import HeldOut
from cotext.data.preparation import STATE, Preparation, preparing
from cotext.data.preparation_report import Report, report_of
from cotext.data.prepared import REPORT, file_digests, store_files, write_report
from cotext.data.selection import Selection, parse_rules
from cotext.data.splitting import Splitter, Splitting
from cotext.data.store import TokenStore
from cotext.data.tokenizer import (
    LanguageChoice,
    Tokenizer,
    TokenizerSettings,
    chosen_languages,
    load_tokenizer,
)
from cotext.runtime.errors import CotextError
from cotext.runtime.version import __version__

CONTROLLED_VOCABULARY = 1500
CONTROLLED_TOKENIZER_DOCUMENTS = 5000
CONTRASTIVE_EXAMPLES: Final = 600


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
    tokenizer_text: Sequence[Path] = (),
    trim_vocabulary: bool = False,
    shortlist: bool = False,
    symbols: LanguageChoice | None = None,
    max_characters: int = 10_000,
    split: Splitting | None = None,
    paragraphs: bool = False,
    clean: Sequence[str] = (),
    skip_unequal: bool = False,
    overwrite: bool = False,
    workers: int = 1,
    on_documents: OnDocuments = lambda stage, documents: None,
) -> Report:
    """Train a tokenizer, encode training, development and test corpora, and write all to the folder `out`.

    `tokenizer`: a run or data whose tokenizer is taken, not `settings`, to train on from there;
    `trim_vocabulary` leaves out pieces that training does not need. `tokenizer_text`: files that it is
    trained on, not the corpus. `shortlist`: a table of `cotext.data.shortlist`, too. `symbols`: the languages
    as a tokenizer of many names them, where `languages` do not tell. A target of None: the source file holds
    both languages. Languages left open: see `languages_of_files`, of the training files. Lines of several
    sentences are split by `split`, in the training corpus or, if they are `paragraphs`, in all; `clean` names
    rules of `cotext.data.selection` for the former. `skip_unequal` leaves out documents of unequal sides.
    `workers` change nothing in it. `out` appears whole or not at all; `overwrite` replaces one. The same call
    resumes an interrupted one. Raises CotextError for what readers refuse, sentences over `max_characters`,
    files named after the pair the wrong way round, and as `taken_tokenizer`, `trimmed` and `preparing` do.
    """
    given = {"train": (source, target), "dev": (dev_source, dev_target), "test": (test_source, test_target)}
    pair = _languages(languages or Languages(), languages_of_files(source, target, format))
    rules = parse_rules(clean)
    splitters = None if split is None else (split.splitter(pair.source), split.splitter(pair.target))
    taken = None if tokenizer is None else taken_tokenizer(tokenizer, symbols or LanguageChoice(), pair)
    chosen = taken or settings or TokenizerSettings()
    corpora = _corpora(given, format, skip_unequal, pair, rules, splitters, paragraphs)
    extra: dict[str, Any] = {"tokenizer": tokenizer and str(tokenizer), "trim_vocabulary": trim_vocabulary}
    extra |= {"tokenizer_text": [*map(str, tokenizer_text)], "shortlist": shortlist, "paragraphs": paragraphs}
    command = {
        **{f"{name}_files": [str(path) for path in paths if path] for name, paths in given.items()},
        "format": format,
        "max_characters": max_characters,
        "split": [each.name for each in splitters or ()],
        "clean": rules,
        "skip_unequal": skip_unequal,
        **{name: value for name, value in extra.items() if value},
    }
    with preparing(out, overwrite, [*tokenizer_text, *(p for c in corpora for p in c.files)]) as work:
        job = _job(command, input_checksums(corpora, format), pair, chosen, tokenizer_text)
        return _carry_out(work, job, corpora, chosen, max_characters, workers, on_documents)


def _carry_out(
    work: Preparation,
    job: dict[str, Any],
    corpora: Sequence[CorpusSplit],
    chosen: TokenizerSettings | Tokenizer,
    max_characters: int,
    workers: int,
    on_documents: OnDocuments,
) -> Report:
    """What is left to be done of a job."""
    report = work.begin(job)
    if not report:
        texts = [Path(path) for path in job["command"].get("tokenizer_text", ())]
        trim = job["command"].get("trim_vocabulary", False)
        build_tokenizer(work, corpora, chosen, max_characters, on_documents, texts=texts, trim=trim)
        report = _build(work, corpora, job, chosen, workers, on_documents)
    work.publish()
    return report_of(report, work.out / REPORT)


def _corpora(
    given: dict[str, tuple[Path | None, Path | None]],
    format: str | None,
    skip_unequal: bool,
    languages: Languages,
    rules: dict[str, float],
    splitters: tuple[Splitter, Splitter] | None,
    paragraphs: bool,
) -> list[CorpusSplit]:
    """The corpora in files; rules are for training alone, and splitters without `paragraphs`."""
    corpora = []
    for split, (source, target) in given.items():
        if source is not None:
            check_sides(languages, source, target, "the corpus is")
            read = partial(read_parallel, source, target, format, skip_unequal=skip_unequal)
            training = split == "train"
            cut = splitters if training or paragraphs else None
            selection = Selection(read, languages, rules if training else {}, cut)
            corpora.append(corpus_of_files(split, source, target, selection))
    return corpora


def _languages(given: Languages, found: Languages) -> Languages:
    """The languages as they are given; a side that is not, as found."""
    return Languages(given.source or found.source, given.target or found.target)


def prepare_controlled(
    size: str | int,
    out: Path,
    seed: int = 1,
    vocabulary: int | None = None,
    *,
    contrastive_examples: int = CONTRASTIVE_EXAMPLES,
    order: WordOrder = "verb-second",
    mentions: int | None = None,
    overwrite: bool = False,
    on_documents: OnDocuments = lambda stage, documents: None,
) -> Report:
    """Generate the controlled corpus and prepare it; `size` is a name in SIZES or a number of documents.

    `order` is that of the target's words; `mentions`: see `training_documents`. Beside what `prepare` writes,
    `out` holds contrastive/<phenomenon>.json and, to translate, the plain text of dev and test (dev.en,
    dev.de, test.en, test.de).
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
        CorpusSplit("train", partial(training_documents, documents, seed, order, mentions)),
        _generated_once("dev", partial(development_documents, seed, order)),
        _generated_once("test", partial(test_documents, seed, order)),
    ]
    command = {
        "controlled": VERSION,
        "size": size,
        "documents": documents,
        "seed": seed,
        "contrastive_examples": contrastive_examples,
        "word_order": order,
        "mentions": mentions,
    }
    with preparing(out, overwrite, []) as work:
        job = _job(command, {}, Languages("en", "de"), settings)
        report = work.begin(job)
        if not report:
            # From the same documents whatever the size: all sizes of a seed share one vocabulary.
            of_all = partial(training_documents, CONTROLLED_TOKENIZER_DOCUMENTS, seed, order, mentions)
            learn_from = CorpusSplit("train", of_all)
            build_tokenizer(work, corpora, settings, 10_000, on_documents, learn_from=learn_from)
            _write_suites(work.folder, contrastive_suites(seed, contrastive_examples, order))
            _write_sides(work.folder, corpora[1:])
            report = _build(work, corpora, job, settings, 1, on_documents)
        work.publish()
        return report_of(report, work.out / REPORT)


def _generated_once(split: str, documents: Callable[[], Iterator[ParallelDocument]]) -> CorpusSplit:
    """A few hundred documents, which are read several times."""
    generated = cache(lambda: tuple(documents()))
    return CorpusSplit(split, lambda: iter(generated()))


def _write_suites(folder: Path, suites: Iterable[ContrastiveSuite]) -> None:
    (folder / "contrastive").mkdir(exist_ok=True)
    for suite in suites:
        write_suite(folder / "contrastive" / f"{suite.name.rpartition('/')[2]}.json", suite)


def _write_sides(folder: Path, corpora: Iterable[CorpusSplit]) -> None:
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
    tokenizer_text: Sequence[Path] = (),
) -> dict[str, Any]:
    """The settings and inputs that decide what a prepared folder holds; `inputs`: digests by file.

    Raises:
        CotextError: text for a tokenizer that is not trained here, or that cannot be read.
    """
    if isinstance(chosen, TokenizerSettings):
        how = asdict(chosen)
        if tokenizer_text:
            how["text"] = text_checksums(tokenizer_text)
    else:
        if tokenizer_text:
            raise CotextError(f"a {chosen.kind} tokenizer is trained already; leave out --tokenizer-text")
        how = {"kind": chosen.kind, "taken": chosen.fingerprint}
        if spoken := chosen_languages(chosen):
            how["languages"] = spoken
    return {
        "cotext": __version__,
        "command": command,
        "inputs": inputs,
        "languages": asdict(languages),
        "tokenizer": how,
    }


def _build(
    work: Preparation,
    corpora: Sequence[CorpusSplit],
    job: dict[str, Any],
    chosen: TokenizerSettings | Tokenizer,
    workers: int,
    on_documents: OnDocuments,
) -> dict[str, Any]:
    """Encode the corpora that are not encoded yet, and write the report, which is returned."""
    folder = work.folder
    tokenizer = load_tokenizer(folder / "tokenizer")
    encoded: dict[str, Any] = {}
    for corpus in corpora:
        noted = work.done(corpus.split)
        if noted is None:
            noted = _encoded(folder, corpus, corpora[1:], workers, on_documents)
            work.note(corpus.split, store_files(folder / f"{corpus.split}.arrow"), noted)
        encoded[corpus.split] = noted
    # Whether just counted or read back as JSON, whose keys are texts.
    lengths = encoded["train"]["statistics"]["sentence_tokens"]["source"]["percentiles"]
    usual = {str(q): n for q, n in lengths.items()}["99"]
    for corpus in corpora[1:]:
        write_parallel(folder / f"{corpus.split}.jsonl", None, corpus.read(), "jsonl")
        encoded[corpus.split] |= _looked_at(folder, corpus, usual)
    if job["command"].get("shortlist"):
        job = {**job, "shortlist": build_shortlist(work, on_documents)}
    report = {
        **job,
        "tokenizer": {**job["tokenizer"], "pieces": tokenizer.pieces, "fingerprint": tokenizer.fingerprint},
        "splits": {split: found["statistics"] for split, found in encoded.items()},
        "notes": (
            *tokenizer_notes(
                chosen, tokenizer, work.done("tokenizer")["sentences"], [*job["tokenizer"].get("text", ())]
            ),
            *document_notes({split: found["statistics"] for split, found in encoded.items()}),
            *(line for found in encoded.values() for line in found["notes"]),
        ),
        "files": {**work.digests, **file_digests(folder, without=[STATE, *work.digests])},
        "selected": {split: found["selected"] for split, found in encoded.items() if found["selected"]},
        "overlap": encoded["train"]["overlap"],
    }
    write_report(folder, report)
    return report


def _encoded(
    folder: Path,
    corpus: CorpusSplit,
    held_out: Sequence[CorpusSplit],
    workers: int,
    on_documents: OnDocuments,
) -> dict[str, Any]:
    """Encode a corpus; gives what the report says of it, of training data with their overlap with others."""
    sets = HeldOut({each.split: each.text() for each in held_out} if corpus.split == "train" else {})
    found = encode_corpus(folder, corpus, folder / "tokenizer", sets.wanted, workers, on_documents)
    overlap = {split: asdict(each) for split, each in sets.overlaps(found.found).items()}
    return {"statistics": asdict(found.statistics), "overlap": overlap, **_selected(corpus)}


def _selected(corpus: CorpusSplit) -> dict[str, Any]:
    counts = None if corpus.selection is None else corpus.selection.counts()
    return {"selected": counts, "notes": selection_notes(corpus)}


def _looked_at(folder: Path, corpus: CorpusSplit, usual_tokens: int) -> dict[str, Any]:
    """What is left out of a held-out set and far longer than is usual, given its store."""
    if corpus.selection is not None:
        store = TokenStore(folder / f"{corpus.split}.arrow")
        for index, document in enumerate(corpus.read()):
            corpus.selection.note_lengths(document, store.lengths(index)[0], usual_tokens)
    return _selected(corpus)
