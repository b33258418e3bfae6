"""Files of translations, references and source whose documents correspond, read for measurement."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from cotext.data.documents import Document
from cotext.data.formats import detect_format, read_documents
from cotext.data.formats.records import Side
from cotext.data.formats.table import find_format
from cotext.metrics.bleu import check_correspondence
from cotext.runtime.errors import CotextError


def name_systems(paths: Sequence[Path]) -> dict[str, Path]:
    """Name systems by the names of their files, or by their paths where two files have the same name.

    Raises CotextError where a file is given twice.
    """
    plain = [path.name for path in paths]
    names = [path.name if plain.count(path.name) == 1 else str(path) for path in paths]
    for name in names:
        if names.count(name) > 1:
            raise CotextError(f"{name}: is given twice; a system compared with itself tells nothing")
    return dict(zip(names, paths, strict=True))


def read_aligned(
    hypotheses: Mapping[str, Path],
    references: Sequence[Path],
    source: Path | None,
    format: str | None,
    *,
    same_sentences: bool = True,
) -> tuple[dict[str, list[Document]], list[list[Document]], list[Document]]:
    """Hypotheses, references and source (if any) under common document ids: of the first file that has them.

    References are asked first, so that an error names the hypothesis that differs. Unless `same_sentences`,
    hypotheses may have other numbers of sentences in their documents; references and source may not.
    """
    paths = [*hypotheses.values(), *references]
    read = [(path, *_read_side(path, format, "target")) for path in paths]
    original = source and (source, *_read_side(source, format, "source"))
    fitting: list[Document] = []
    count = len(hypotheses)
    every = [*read[count:], *read[:count], *([original] if original else [])]
    like = next((documents for _, documents, carries_ids in every if carries_ids), read[0][1])
    same = [documents if carries_ids else _renamed(documents, like) for _, documents, carries_ids in read]
    first = same[count]
    if not same_sentences:
        for path, documents in zip(references[1:], same[count + 1 :], strict=True):
            _require_correspondence(path, documents, references[0], first)
    for path, hypothesis in zip(paths[:count], same[:count], strict=True):
        for reference, documents in zip(references, same[count:], strict=True):
            _require_correspondence(path, hypothesis, reference, documents, same_sentences)
    if original:
        _, documents, carries_ids = original
        fitting = documents if carries_ids else _renamed(documents, first)
        _require_fit(original[0], fitting, first)
    return dict(zip(hypotheses, same[:count], strict=True)), same[count:], fitting


def _require_correspondence(
    path: Path,
    documents: Sequence[Document],
    reference: Path,
    others: Sequence[Document],
    same_sentences: bool = True,
) -> None:
    try:
        check_correspondence(documents, others, same_sentences=same_sentences)
    except CotextError as error:
        raise CotextError(f"{path} and {reference}: {error}") from None


def _read_side(path: Path, format: str | None, side: Side) -> tuple[list[Document], bool]:
    """The documents of a file, and whether it names them."""
    documents = list(read_documents(path, format, side=side))
    return documents, find_format(format or detect_format(path)).carries_ids


def _renamed(documents: Sequence[Document], like: Sequence[Document]) -> list[Document]:
    """The documents under the ids of others, by their order."""
    ids = [document.id for document in like]
    return [Document(ids[i] if i < len(ids) else d.id, d.sentences) for i, d in enumerate(documents)]


def _require_fit(source: Path, documents: Sequence[Document], hypothesis: Sequence[Document]) -> None:
    if len(documents) != len(hypothesis):
        raise CotextError(
            f"{source}: {len(documents)} documents, but their translation has {len(hypothesis)}"
        )
    for ours, theirs in zip(documents, hypothesis, strict=True):
        if (ours.id, len(ours)) != (theirs.id, len(theirs)):
            raise CotextError(
                f"{source}: document {ours.id!r} has {len(ours)} sentences, but the translation in its place "
                f"is document {theirs.id!r} with {len(theirs)}"
            )
