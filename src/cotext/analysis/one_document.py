"""The one document of a file that is to be looked at."""

from itertools import chain
from pathlib import Path

from cotext.data.documents import ParallelDocument
from cotext.data.formats import read_documents, read_parallel, second_file
from cotext.runtime.errors import CotextError, nearest


def choose_document(
    source: Path, target: Path | None, wanted: str | None, format: str | None
) -> ParallelDocument:
    """The document that is asked for; without a translation, its target is empty."""
    ids = []
    for found in _documents(source, target, format):
        if wanted is None or found.id == wanted:
            return found
        ids.append(found.id)
    near = nearest(str(wanted), ids, 3, cutoff=0.4) or ids[:3]
    raise CotextError(
        f"{source}: no document '{wanted}' among its {len(ids):,}; there are {', '.join(near)}"
        f"{' ...' if len(ids) > len(near) else ''}"
    )


def _documents(source: Path, target: Path | None, format: str | None) -> chain[ParallelDocument]:
    if target is not None:
        return chain(read_parallel(source, second_file(source, target), format))
    alone = read_documents(source, format)
    return chain(ParallelDocument(d.id, d.sentences, ("",) * len(d)) for d in alone)
