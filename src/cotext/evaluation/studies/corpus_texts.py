"""The documents that an analysis reads: corpus files, or the training corpus of a prepared folder."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import read_documents, read_parallel, second_file
from cotext.data.languages import Languages, check_pair, check_sides
from cotext.data.prepared import REPORT, digest_of_store
from cotext.evaluation.requests import DocumentRequest
from cotext.runtime.errors import CotextError, nearest
from cotext.translation.open import OpenedRun, open_run, open_scorer
from cotext.translation.translate_file import checksums_of

if TYPE_CHECKING:
    from cotext.training.prepared_data import PreparedData


def is_prepared(source: Path) -> bool:
    """Whether this is a folder that `cotext prepare` made."""
    return (source / REPORT).is_file()


def _open(source: Path) -> "PreparedData":
    from cotext.training.prepared_data import open_data  # needs pyarrow, which a server may lack

    return open_data(source)


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
    data = _open(source)
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
    return [digest_of_store(source), _open(source).tokenizer.fingerprint]


def check_languages(known: Languages, source: Path, target: Path | None, whose: str) -> None:
    """Refuse texts of other languages than the known ones, as far as names or a report tell them.

    Raises:
        CotextError: files the wrong way round, or a folder of another language pair.
    """
    if is_prepared(source):
        check_pair(known, _open(source).languages, str(source), whose)
    else:
        check_sides(known, source, target, whose)


def digest_of_texts(documents: Iterable[ParallelDocument]) -> str:
    """SHA-256 over ids and sentences, by which figures of a corpus are known to be of it."""
    found = hashlib.sha256()
    for document in documents:
        found.update(json.dumps([document.id, document.source, document.target]).encode())
    return found.hexdigest()


@dataclass(frozen=True, slots=True)
class DocumentOfRun:
    """A document and the run that it is analysed by.

    `own`: its target is empty so far and is to be the translation by the run.
    """

    run: OpenedRun
    document: ParallelDocument
    own: bool

    def with_translation(self) -> ParallelDocument:
        """The document with its target: the given one, or the translation by the run."""
        if not self.own:
            return self.document
        source = Document(self.document.id, self.document.source)
        [(_, found)] = self.run.translator.translate([source])
        return ParallelDocument(source.id, source.sentences, found.document.sentences)


def open_document(request: DocumentRequest, translates: bool = True) -> DocumentOfRun:
    """Open a document of a file and a run that can score it, and translate it where that is asked for.

    The target may be the source file itself, where it holds both languages. Without `translates`, a run whose
    document has a target need not be able to translate.

    Raises:
        CotextError: no such run, device or document, a translation that does not fit, no words at all.
    """
    source, target = request.document, request.target
    chosen = choose_document(source, target, request.id, request.format)
    own = target is None
    open_one = open_run if own or translates else open_scorer
    opened = open_one(request.run, request.device, dict(request.decode), request.checkpoint)
    translator = opened.translator
    if own or translates:
        translator.check([Document(chosen.id, chosen.source)])
    else:
        translator.check_pairs([chosen])
    if not any(translator.tokenizer.encode_batch(chosen.source)):
        raise CotextError(f"{source}: document {chosen.id} has no words; there is nothing to analyse")
    return DocumentOfRun(opened, chosen, own)


def choose_document(
    source: Path, target: Path | None, wanted: str | None, format: str | None
) -> ParallelDocument:
    """The document of an id, or the first of a file; without a translation, its target is empty."""
    ids = []
    for found in _documents(source, target, format):
        if wanted is None or found.id == wanted:
            return found
        ids.append(found.id)
    near = nearest(str(wanted), ids, 3) or ids[:3]
    raise CotextError(
        f"{source}: no document '{wanted}' among its {len(ids):,}; there are {', '.join(near)}"
        f"{' ...' if len(ids) > len(near) else ''}"
    )


def _documents(source: Path, target: Path | None, format: str | None) -> chain[ParallelDocument]:
    if target is not None:
        return chain(read_parallel(source, second_file(source, target), format))
    alone = read_documents(source, format)
    return chain(ParallelDocument(d.id, d.sentences, ("",) * len(d)) for d in alone)
