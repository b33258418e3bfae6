"""Read translations, references and the source, and check that their documents correspond."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from unicodedata import is_normalized

from cotext.data.documents import Document
from cotext.data.formats import Format, find_format, format_in, read_documents
from cotext.data.formats.streams import Side
from cotext.data.formats.wmt import in_order
from cotext.evaluation.metrics.interface import check_correspondence
from cotext.runtime import CotextError
from cotext.runtime.progress import say


def name_systems(paths: Sequence[Path]) -> dict[str, Path]:
    """Return paths by file name, or by path if names are equal; raise the errors of `require_different`."""
    require_different(paths)
    plain = [path.absolute().name for path in paths]
    names = [name if plain.count(name) == 1 else str(path) for name, path in zip(plain, paths, strict=True)]
    return dict(zip(names, paths, strict=True))


def require_different(paths: Sequence[Path]) -> None:
    """Raise CotextError if a file is given twice, even under another path or through a link."""
    first_paths: dict[Path, Path] = {}
    for path in paths:
        first = first_paths.setdefault(path.resolve(), path)
        if first is not path:
            by = "" if first == path else f" (also as {first})"
            raise CotextError(f"{path}: is given twice{by}; give each file once")


def read_aligned(
    hypotheses: Mapping[str, Path],
    references: Sequence[Path],
    source: Path | None,
    format: str | None,
    target_language: str | None = None,
    *,
    same_sentences: bool = True,
) -> tuple[dict[str, list[Document]], list[list[Document]], list[Document]]:
    """Read hypotheses, references and source (if any), and give their documents the same ids.

    Ids are taken from the first reference with ids, else from the source, else from a hypothesis. So errors
    name the hypothesis that differs. From WMT files, only documents in `target_language` are read, and put
    into the order of the file that gives the ids. Without `same_sentences`, hypotheses may have different
    numbers of sentences. A message names files with more than twice as many decomposed sentences (not in
    Unicode NFC) as the file with the fewest. Raises CotextError if documents do not correspond.
    """
    paths = [*hypotheses.values(), *references]
    read = [(path, *_read_side(path, format, "target", target_language)) for path in paths]
    decomposed = [sum(not is_normalized("NFC", s) for d in each for s in d.sentences) for _, each, _ in read]
    for path, count in zip(paths, decomposed, strict=True):
        if count > 2 * min(decomposed):
            say(
                f"{path}: {count:,} sentences have decomposed characters (Unicode NFD), which metrics count "
                "as different from composed characters; convert the file to NFC"
            )
    original = source and (source, *_read_side(source, format, "source", target_language))
    count = len(hypotheses)
    every = [*read[count:], *([original] if original else []), *read[:count]]
    like = next((documents for _, documents, kind in every if kind.carries_ids), read[0][1])
    if not any(kind.carries_ids for _, _, kind in every[:-count]):
        for path, _, kind in read[:count]:
            if kind.name == "wmt":
                raise CotextError(f"{path}: WMT lines may be in any order; give WMT's source with --source")
    sides = [_as_others(*side, like) for side in read]
    sources = _as_others(*original, like) if original else []
    written, right = dict(zip(paths[:count], sides[:count], strict=True)), sides[count:]
    if not same_sentences:
        for path, documents in zip(references[1:], right[1:], strict=True):
            check_correspondence(documents, right[0], names=(f"{path}", f"{references[0]}"))
    for path, hypothesis in written.items():
        for reference, documents in zip(references, right, strict=True):
            names = f"{path}", f"{reference}"
            check_correspondence(hypothesis, documents, same_sentences=same_sentences, names=names)
        if original:
            other, documents = (path, hypothesis) if same_sentences else (paths[-1], right[-1])
            check_correspondence(sources, documents, names=(f"{original[0]}", f"{other}"))
    return dict(zip(hypotheses, sides, strict=False)), right, sources


def _read_side(
    path: Path, format: str | None, side: Side, language: str | None
) -> tuple[list[Document], Format]:
    """Read the documents of a file; return them with the format."""
    name = format_in(path, format, language)
    return list(read_documents(path, name, side=side)), find_format(name)


def _as_others(
    path: Path, documents: list[Document], format: Format, like: Sequence[Document]
) -> list[Document]:
    """Give documents the ids of `like` if their format has no ids, and its order if they are a WMT file."""
    if not format.carries_ids:
        ids = [document.id for document in like]
        return [Document(ids[i] if i < len(ids) else d.id, d.sentences) for i, d in enumerate(documents)]
    if format.name == "wmt" and documents is not like:
        return in_order(path, documents, [document.id for document in like])
    return documents
