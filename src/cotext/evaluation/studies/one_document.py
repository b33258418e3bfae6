"""One document of a file, with the run that it is analysed by."""

from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import read_documents, read_parallel, second_file
from cotext.evaluation.requests import DocumentRequest
from cotext.runtime.errors import CotextError, nearest
from cotext.translation.open import OpenedRun, open_run, open_scorer


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
