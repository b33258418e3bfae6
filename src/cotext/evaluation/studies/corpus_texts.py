"""The documents of an analysis: corpus files, or the training corpus of a prepared folder."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
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
    """Return whether a folder was made by `cotext prepare`."""
    return (source / REPORT).is_file()


def _open(source: Path) -> "PreparedData":
    from cotext.training.prepared_data import open_data  # needs pyarrow, which a server may lack

    return open_data(source)


def corpus_texts(source: Path, target: Path | None, format: str | None) -> list[ParallelDocument]:
    """Read the documents of two files, of one file with both sides, or of a prepared training corpus.

    The texts of a prepared corpus are decoded from its tokens.

    Raises:
        CotextError: unreadable or unequal files; a target or a format given with a folder.
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
    """Return the files, or the folder, from which `corpus_texts` reads the same texts again."""
    second = None if is_prepared(source) else second_file(source, target)
    return [source] if second is None else [source, second]


def corpus_checksums(source: Path, target: Path | None, format: str | None) -> list[str]:
    """Return the SHA-256 of what `corpus_texts` reads.

    Raises:
        CotextError: not a regular file; a folder whose files differ from its report.
    """
    if not is_prepared(source):
        return checksums_of(corpus_files(source, target), format)
    return [digest_of_store(source), _open(source).tokenizer.fingerprint]


def check_languages(languages: Languages, source: Path, target: Path | None, whose: str) -> None:
    """Check the languages of texts, as far as file names or a report state them.

    Raises:
        CotextError: files in the wrong order, or a folder of another language pair.
    """
    if is_prepared(source):
        check_pair(languages, _open(source).languages, str(source), whose)
    else:
        check_sides(languages, source, target, whose)


def digest_of_texts(documents: Iterable[ParallelDocument]) -> str:
    """Return the SHA-256 of ids and sentences, which identifies a corpus in results."""
    digest = hashlib.sha256()
    for document in documents:
        digest.update(json.dumps([document.id, document.source, document.target]).encode())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class DocumentOfRun:
    """A document and the run to analyse it with.

    `own`: its target is still empty and will be the translation by the run.
    """

    run: OpenedRun
    document: ParallelDocument
    own: bool

    def with_translation(self) -> ParallelDocument:
        """Return the document with its target: the given one, or the translation by the run."""
        if not self.own:
            return self.document
        source = Document(self.document.id, self.document.source)
        [(_, translation)] = self.run.translator.translate([source])
        return ParallelDocument(source.id, source.sentences, translation.document.sentences)


def open_document(request: DocumentRequest, translates: bool = True) -> DocumentOfRun:
    """Read a document from a file, and load a run that can score it, and translate it if required.

    The target may be the source file itself if it has both languages. Without `translates`, a run need not be
    able to translate if the document has a target.

    Raises:
        CotextError: no such run, device or document, a translation that does not fit, no words at all.
    """
    source, target = request.document, request.target
    document = choose_document(source, target, request.id, request.format)
    own = target is None
    open_one = open_run if own or translates else open_scorer
    opened = open_one(request.run, request.device, dict(request.decode), request.checkpoint)
    translator = opened.translator
    if own or translates:
        translator.check([Document(document.id, document.source)])
    else:
        translator.check_pairs([document])
    if not any(translator.tokenizer.encode_batch(document.source)):
        raise CotextError(f"{source}: document {document.id} has no words; there is nothing to analyse")
    return DocumentOfRun(opened, document, own)


def choose_document(
    source: Path, target: Path | None, id: str | None, format: str | None
) -> ParallelDocument:
    """Return the document with an id, or the first of a file; without a translation, its target is empty."""
    if target is not None:
        documents = iter(read_parallel(source, second_file(source, target), format))
    else:
        sides = read_documents(source, format)
        documents = (ParallelDocument(d.id, d.sentences, ("",) * len(d)) for d in sides)
    ids = []
    for document in documents:
        if id is None or document.id == id:
            return document
        ids.append(document.id)
    near = nearest(str(id), ids, 3) or ids[:3]
    raise CotextError(
        f"{source}: no document '{id}' among its {len(ids):,}; there are {', '.join(near)}"
        f"{' ...' if len(ids) > len(near) else ''}"
    )
