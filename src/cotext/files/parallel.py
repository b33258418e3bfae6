"""Parallel corpora from files that are not corpora: bilingual files, and documents with their translations.

Bilingual files (XLIFF, gettext PO) contain both languages. Documents of any other format are aligned by
sentence (`cotext.data.aligned_corpus`). `prepare` and `adapt` accept both and write the pairs to a TMX file.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, islice, pairwise
from pathlib import Path
from typing import Final

from cotext.data.aligned_corpus import ALONE, AlignedCorpus, align_corpus
from cotext.data.alignment import Probabilities
from cotext.data.documents import (
    CODES,
    Document,
    Languages,
    ParallelDocument,
    check_pair,
    check_sides,
    languages_of_names,
    primary_language,
)
from cotext.data.formats import (
    FORMATS,
    format_in,
    is_corpus,
    languages_of_files,
    read_documents,
    read_parallel,
    write_parallel,
)
from cotext.data.formats.streams import Side, check_readable, read_whole
from cotext.data.splitting import Splitter
from cotext.files import po, xliff
from cotext.files.block_sentences import cut
from cotext.files.blocks import Copied, FileFormat, shown_text
from cotext.files.table import GENERIC, format_of, read_file
from cotext.files.text import wrap_width
from cotext.runtime import CotextError

BILINGUAL: Final = {"xliff": xliff.translated_documents, "po": po.translated_documents}
SECTION: Final = 20  # sentence pairs of a section, where a document must be cut into several


def pair_files(
    source: Path, target: Path | None, out: Path, known: Languages, needed: int = 0
) -> tuple[str, ...] | None:
    """Write the sentence pairs of files to the TMX file `out`; return notes for the user.

    Files may be folders, bilingual files, or two documents in a format that `translate` reads. Returns None
    if they are corpora or have no file format. `known`: languages that are given; others are taken from the
    files. Fewer than `needed` documents are cut into sections of about `SECTION` pairs. Raises CotextError if
    a file cannot be read, or there are no pairs; or if the files are not in the known languages, or `out` is
    in a folder that is read.
    """
    paths = [path for path in (source, target) if path is not None]
    if all(is_corpus(path) or _is_refused(path) for path in paths):
        return None
    for folder in paths:
        if out.resolve().is_relative_to(folder.resolve()):
            raise CotextError(f"{out}: would be written into the folder {folder}; choose another --out")
    if target is None:
        documents, stated = _bilingual_documents(source)
        size = f"{len(documents):,} documents with {sum(map(len, documents)):,} translated segments"
        notes = [f"{source}: {size}"]
        check_pair(known, stated, str(source), "the languages are to be")
    else:
        check_pair(known, languages_of_names(source, target), str(source), "the languages are to be")
        corpus, stated = align_files([source], [target], known)
        documents = corpus.documents
        notes = [f"{source} and {target}: aligned by sentence", *corpus.render().splitlines()]
    if not documents:
        raise CotextError("\n".join([f"{source}: contains no sentence pairs", *notes[1:]]))
    return (*notes, *_write_pairs(documents, out, (known, stated), needed))


def cut_corpus(
    source: Path, target: Path | None, format: str | None, out: Path, known: Languages, needed: int
) -> tuple[str, ...] | None:
    """Cut a corpus with fewer than `needed` documents into sections in the TMX file `out`; return notes.

    So a translation memory without document boundaries can be used, if its units are in the order of a text.
    Returns None if the corpus has enough documents. Raises the errors of `read_parallel`.
    """
    documents = list(islice(read_parallel(source, target, format), needed))
    if len(documents) >= needed or not documents:
        return None
    return _write_pairs(documents, out, (known, languages_of_files(source, target, format)), needed)


def _write_pairs(
    documents: list[ParallelDocument], out: Path, languages: tuple[Languages, Languages], needed: int
) -> tuple[str, ...]:
    """Write documents as TMX, cut into sections if there are fewer than `needed`; return notes.

    `languages`: the languages that are given, and those that the files state.
    """
    notes = []
    if len(documents) < needed:
        notes.append(f"fewer than {needed} documents: cut into sections of about {SECTION} sentences")
        count = Counter[str]()  # sections by id, as several documents may have one id
        documents = [section for document in documents for section in _sections(document, count)]
    known, stated = languages
    codes = known.source or stated.source, known.target or stated.target
    out.parent.mkdir(parents=True, exist_ok=True)
    write_parallel(out, None, documents, "tmx", codes if str(Languages(*codes)) else None)
    return (*notes, f"{out}: the sentence pairs")


def _is_refused(path: Path) -> bool:
    """Return whether a path is missing or has no file format; `prepare` then reports the reason."""
    if path.is_dir():
        return False
    try:
        return isinstance(format_of(path), str)
    except CotextError:
        return True


def _bilingual_documents(path: Path) -> tuple[list[ParallelDocument], Languages]:
    """Return the translated documents of a bilingual file, or of all files in a folder, and their languages.

    Raises CotextError if a file has one language, or two files state different languages.
    """
    documents: list[ParallelDocument] = []
    languages = Languages()
    for file in files_in(path):
        name, format = str(file.relative_to(path)) if path.is_dir() else file.name, format_of(file)
        if not isinstance(format, str) and format.name in BILINGUAL:
            stated, texts = BILINGUAL[format.name](read_file(file), str(file))
            here = Languages(*map(primary_language, stated))
            several = len(texts) > 1
            found = [
                ParallelDocument(f"{name}/{number}" if several else name, *zip(*pairs, strict=True))
                for number, pairs in enumerate(texts, 1)
                if pairs
            ]
        elif isinstance(format, str) and FORMATS[format].holds_both_languages:
            here = languages_of_files(file, None, format)
            found = [
                replace(document, id=f"{name}/{document.id}")
                for document in read_parallel(file, None, format)
            ]
        else:
            raise CotextError(
                f"{file}: contains one language; give the folder or file of its translations, too"
            )
        if languages.contradicts(here):
            raise CotextError(
                f"{file}: is {here.shown}, and files before it are {languages.shown}; use one language pair"
            )
        languages = Languages(languages.source or here.source, languages.target or here.target)
        documents += found
    return documents, languages


def _sections(document: ParallelDocument, before: Counter[str]) -> Iterator[ParallelDocument]:
    """Cut a document into sections of about `SECTION` sentence pairs; `before`: earlier sections by id."""
    count = max(1, round(len(document) / SECTION))
    bounds = [len(document) * number // count for number in range(count + 1)]
    for a, b in pairwise(bounds):
        before[document.id] += 1
        name = f"{document.id}, section {before[document.id]}"
        yield ParallelDocument(name, document.source[a:b], document.target[a:b])


def align_files(
    source: Sequence[Path],
    target: Sequence[Path],
    known: Languages,
    abbreviations: frozenset[str] = frozenset(),
    probabilities: Probabilities | None = None,
) -> tuple[AlignedCorpus, Languages]:
    """Align documents and translations, given as files or folders; return the corpus and its languages.

    Files of folders are paired by their names without endings and language codes. Languages that are not
    `known` are taken from the names of the first two files. Raises CotextError if a file cannot be read, no
    names match, or the names suggest swapped sides.
    """
    sources, targets = _by_name(source), _by_name(target)
    names = {name: name for name in sources if name in targets}
    if len(sources) == len(targets) == 1:
        names = dict(zip(sources, targets, strict=True))
    alone = [name for name in (*sources, *targets) if name not in names and name not in names.values()]
    if not names:
        raise CotextError(f"no source and target file have the same name; rename {', '.join(alone[:5])}")
    files = [(name, sources[name], targets[other]) for name, other in names.items()]
    guessed = languages_of_names(*files[0][1:])
    languages = Languages(known.source or guessed.source, known.target or guessed.target)
    for _, first, second in files:
        check_sides(languages, first, second, "the corpus is")
    splitters = [Splitter(code, abbreviations) for code in (languages.source, languages.target)]
    pairs = [
        pair
        for name, first, second in files
        for pair in _paired(
            name,
            _read(first, "source", splitters[0], len(files) > 1),
            _read(second, "target", splitters[1], len(files) > 1),
            f"{name}/" if len(files) > 1 else "",
        )
    ]
    corpus = align_corpus(pairs, languages, probabilities)
    corpus.left_out.update(dict.fromkeys(alone, ALONE))
    return corpus, languages


def files_in(path: Path) -> list[Path]:
    """Return the files of a folder, at any depth, except hidden files; for a file, return the file."""
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.rglob("*") if file.is_file() and file.name[0] != ".")


def _by_name(paths: Sequence[Path]) -> dict[str, Path]:
    """Map names, without ending and language code, to the given files and the files in given folders.

    Raises CotextError if two files have the same name.
    """
    found: dict[str, Path] = {}
    for path in paths:
        for file in files_in(path):
            stem = Path(re.sub(r"\.(xz|gz)$", "", file.name)).stem
            before, code = stem[:-3], stem[-2:].lower()
            if before and stem[-3] in "._-" and code in CODES:
                stem = before
            name = str(file.relative_to(path).with_name(stem)) if path.is_dir() else stem
            if name in found:
                raise CotextError(
                    f"{found[name]} and {file}: both documents have the name {name}; rename one"
                )
            found[name] = file
    return found


def _read(path: Path, side: Side, splitter: Splitter, is_one_of_several: bool) -> list[Document]:
    """Read the documents of a file; ids are empty if its format has no ids.

    In plain text, empty lines separate documents. Running text is one document if its lines are wrapped, or
    if it is one of several files. Raises CotextError if the file cannot be read.
    """
    check_readable(path)
    if path.stat().st_size == 0:
        return [Document("", ())]
    format = format_of(path)
    is_text = format == "text" or (not isinstance(format, str) and format.name == GENERIC)
    lines = [line.strip() for line in read_whole(path).split("\n")] if is_text else []
    if format == "text" or (is_text and not is_one_of_several and not wrap_width(lines)):
        groups = [list(group) for is_filled, group in groupby(lines, key=bool) if is_filled]
        return [
            Document("", tuple(s for line in group for s in splitter.sentences(line))) for group in groups
        ]
    if isinstance(format, str):
        with_ids = FORMATS[format].carries_ids
        return [
            Document(document.id if with_ids else "", tuple(s for s in document.sentences if s.strip()))
            for document in read_documents(path, format, side)
        ]
    return [Document("", tuple(map(str.strip, texts))) for texts in _sentences(path, format, splitter)]


def read_sentences(path: Path, side: Side, language: str, format: str | None = None) -> list[Document]:
    """Read a corpus or a file (one side, if it is bilingual); inline elements become tags.

    Raises CotextError if the file cannot be read, is empty, or has an unknown format.
    """
    found = format_of(path, format)
    if isinstance(found, str) and found != "text":
        return list(read_documents(path, format_in(path, found, language), side=side))
    if isinstance(found, str) or found.name == GENERIC:
        # Outputs of other systems may have empty lines anywhere.
        lines = groupby(read_whole(path).split("\n"), key=lambda line: bool(line.strip()))
        texts = [tuple(group) for is_text, group in lines if is_text]
    elif found.name in BILINGUAL:
        _, files = BILINGUAL[found.name](read_file(path), str(path), every=True)
        texts = [tuple(pair[side == "target"] for pairs in files for pair in pairs)]
    else:
        texts = _sentences(path, found, Splitter(language), "<x/>")
    return [Document(str(number), text) for number, text in enumerate(texts, 1)]


def _sentences(
    path: Path, format: FileFormat, splitter: Splitter, element: str = ""
) -> list[tuple[str, ...]]:
    """Return the sentences of each document of a file; `element` is written for each inline element."""
    return [
        tuple(
            shown_text(piece if isinstance(piece, str | Copied) else element for piece in pieces)
            for block in blocks
            for pieces in cut(block, splitter.spans).sentences
        )
        for blocks in format.open(read_file(path), str(path)).contents.documents
    ]


def _paired(
    name: str, sources: list[Document], targets: list[Document], prefix: str
) -> list[tuple[Document, Document]]:
    """Pair documents by id if all have ids, otherwise in order; `prefix` distinguishes ids of several files.

    If the sides have different numbers of documents, each side is read as one document.
    """
    by_id = {target.id: target for target in targets}
    if all(each.id for each in (*sources, *targets)) and len(by_id) == len(targets):
        pairs = [(each, by_id.pop(each.id, Document(each.id, ()))) for each in sources]
        pairs += [(Document(each.id, ()), each) for each in by_id.values()]
        return [(replace(each, id=f"{prefix}{each.id}"), target) for each, target in pairs]
    if len(sources) != len(targets):
        sources, targets = (
            [Document("", tuple(s for each in side for s in each.sentences))] for side in (sources, targets)
        )
    several = len(sources) > 1
    return [
        (Document(f"{name}/{number}" if several else name, source.sentences), target)
        for number, (source, target) in enumerate(zip(sources, targets, strict=True), 1)
    ]
