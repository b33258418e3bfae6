"""The document of an analysis, the run that is analysed with it, and translations by a run."""

from collections.abc import Callable, Sequence
from pathlib import Path

from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import read_documents, read_parallel, second_file
from cotext.evaluation.requests import DocumentRequest
from cotext.runtime import CotextError, nearest
from cotext.translation.open import OpenedRun, open_run, open_scorer
from cotext.translation.translator import DocumentTranslator


def translated(
    translator: DocumentTranslator,
    documents: Sequence[Document],
    on_sentences: Callable[[int], None] = lambda count: None,
) -> list[Document]:
    translations = dict(translator.translate(documents, on_sentences))
    return [translations[index].document for index in range(len(documents))]


def translated_once(
    translator: DocumentTranslator,
    sources: Sequence[tuple[str, ...]],
    on_sentences: Callable[[int], None] = lambda count: None,
) -> list[Document]:
    """Translate sources, each a document; equal sources are translated once."""
    distinct = [Document(str(n), source) for n, source in enumerate(dict.fromkeys(sources))]
    pairs = zip(distinct, translated(translator, distinct, on_sentences), strict=True)
    by_source = {document.sentences: translation for document, translation in pairs}
    return [by_source[source] for source in sources]


def translated_by(run: OpenedRun, document: ParallelDocument) -> ParallelDocument:
    [translation] = translated(run.translator, [Document(document.id, document.source)])
    return ParallelDocument(document.id, document.source, translation.sentences)


def open_document(request: DocumentRequest, translates: bool = True) -> tuple[OpenedRun, ParallelDocument]:
    """Load the run and the document to analyse; the run can score the document, and translate it if required.

    Without a target, target sentences are empty. With a target and `translates=False`, the run only needs to
    score. Raises CotextError if run, device, document or target do not exist or fit, or there are no words.
    """
    source, target = request.document, request.target
    document = choose_document(source, target, request.id, request.format)
    translates = translates or target is None
    open_one = open_run if translates else open_scorer
    opened = open_one(request.run, request.device, dict(request.decode), request.checkpoint)
    translator = opened.translator
    if translates:
        translator.check([Document(document.id, document.source)])
    else:
        translator.check_pairs([document])
    if not any(translator.tokenizer.encode_batch(document.source)):
        raise CotextError(f"{source}: document {document.id} has no words; there is nothing to analyse")
    return opened, document


def choose_document(
    source: Path, target: Path | None, id: str | None, format: str | None
) -> ParallelDocument:
    """Return the document with an id, or the first document; without a target, its sentences are empty."""
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
        f"{source}: no document '{id}' among its {len(ids):,} documents: {', '.join(near)}"
        f"{' ...' if len(ids) > len(near) else ''}"
    )
