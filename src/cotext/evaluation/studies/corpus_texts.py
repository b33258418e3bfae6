"""The documents that an analysis reads: corpus files, or the training corpus of a prepared folder."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from cotext.data.documents import ParallelDocument
from cotext.data.formats import read_parallel, second_file
from cotext.data.languages import Languages, check_pair, check_sides
from cotext.data.prepared import REPORT, digest_of_store
from cotext.runtime.errors import CotextError
from cotext.training.prepared_data import open_data
from cotext.translation.source_file import checksums_of


def is_prepared(source: Path) -> bool:
    """Whether this is a folder that `cotext prepare` made."""
    return (source / REPORT).is_file()


def corpus_texts(source: Path, target: Path | None, format: str | None) -> list[ParallelDocument]:
    """The documents of two files, of one with both sides, or of the training corpus of a prepared folder.

    The texts of the latter are what its tokens say.

    Raises:
        CotextError: unreadable or unequal files; a target or a format beside a folder.
    """
    if not is_prepared(source):
        return list(read_parallel(source, second_file(source, target), format))
    if target is not None or format is not None:
        raise CotextError(
            f"{source}: a prepared folder has both sides and no format; leave out --target and --format"
        )
    data = open_data(source)
    return [data.texts(index) for index in range(len(data.train))]


def corpus_files(source: Path, target: Path | None) -> list[Path]:
    """The files, or the folder, by which `corpus_texts` finds the same texts again."""
    second = None if is_prepared(source) else second_file(source, target)
    return [source] if second is None else [source, second]


def corpus_checksums(source: Path, target: Path | None, format: str | None) -> list[str]:
    """SHA-256 of what `corpus_texts` reads.

    Raises:
        CotextError: no such file, or no regular one; a folder whose files are not what its report says.
    """
    if not is_prepared(source):
        return checksums_of(corpus_files(source, target), format)
    return [digest_of_store(source), open_data(source).tokenizer.fingerprint]


def check_languages(known: Languages, source: Path, target: Path | None, whose: str) -> None:
    """Refuse texts of other languages than the known ones, as far as names or a report tell them.

    Raises:
        CotextError: files the wrong way round, or a folder of another language pair.
    """
    if is_prepared(source):
        check_pair(known, open_data(source).languages, str(source), whose)
    else:
        check_sides(known, source, target, whose)


def digest_of_texts(documents: Iterable[ParallelDocument]) -> str:
    """SHA-256 over ids and sentences, by which figures of a corpus are known to be of it."""
    found = hashlib.sha256()
    for document in documents:
        found.update(json.dumps([document.id, document.source, document.target]).encode())
    return found.hexdigest()
