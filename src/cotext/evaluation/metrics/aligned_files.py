"""Reading of translations, references and source whose documents correspond."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from cotext.data.documents import Document
from cotext.data.formats import read_documents
from cotext.data.formats.streams import Side
from cotext.data.formats.table import Format, find_format, format_in
from cotext.data.formats.wmt import in_order
from cotext.data.splitting import Splitter
from cotext.evaluation.metrics.interface import Texts, check_correspondence
from cotext.runtime.errors import CotextError


def name_systems(paths: Sequence[Path]) -> dict[str, Path]:
    """Name systems by the names of their files or folders, or by their paths if two have the same name.

    Raises CotextError if a file is given twice, also under another path or link.
    """
    require_different(paths)
    plain = [path.absolute().name for path in paths]
    names = [name if plain.count(name) == 1 else str(path) for name, path in zip(plain, paths, strict=True)]
    return dict(zip(names, paths, strict=True))


def require_different(paths: Sequence[Path]) -> None:
    """Raise CotextError if a file is given twice, also under another path or link."""
    first_paths: dict[Path, Path] = {}
    for path in paths:
        first = first_paths.setdefault(path.resolve(), path)
        if first is not path:
            by = "" if first == path else f", as {first} too"
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
    """Read hypotheses, references and source (if any) under the document ids of the first file with ids.

    References come first, then the source, so that errors name the hypothesis that differs. WMT files are
    read for `target_language`, in the order of that file. Without `same_sentences`, hypotheses may have other
    numbers of sentences in their documents; references and source may not.

    Raises:
        CotextError: documents do not correspond.
    """
    paths = [*hypotheses.values(), *references]
    read = [(path, *_read_side(path, format, "target", target_language)) for path in paths]
    original = source and (source, *_read_side(source, format, "source", target_language))
    count = len(hypotheses)
    every = [*read[count:], *([original] if original else []), *read[:count]]
    like = next((documents for _, documents, kind in every if kind.carries_ids), read[0][1])
    if not any(kind.carries_ids for _, _, kind in every[:-count]):
        for path, _, kind in read[:count]:
            if kind.name == "wmt":
                raise CotextError(
                    f"{path}: the lines of WMT may be in any order, and neither the references nor a source "
                    "have ids; give the lines of the task with --source"
                )
    sides = [_as_others(*side, like) for side in read]
    sources = _as_others(*original, like) if original else []
    written, right = dict(zip(paths[:count], sides[:count], strict=True)), sides[count:]
    if not same_sentences:
        for path, documents in zip(references[1:], right[1:], strict=True):
            _require_same(path, documents, references[0], right[0])
    for path, hypothesis in written.items():
        for reference, documents in zip(references, right, strict=True):
            with located(f"{path} and {reference}"):
                check_correspondence(hypothesis, documents, same_sentences=same_sentences)
        if original:
            _require_same(
                original[0], sources, *((path, hypothesis) if same_sentences else (paths[-1], right[-1]))
            )
    return dict(zip(hypotheses, sides, strict=False)), right, sources


@contextmanager
def located(where: str) -> Iterator[None]:
    """Put `where` in front of the message of a CotextError."""
    try:
        yield
    except CotextError as error:
        raise CotextError(f"{where}: {error}") from None


def _read_side(
    path: Path, format: str | None, side: Side, language: str | None
) -> tuple[list[Document], Format]:
    """Read the documents of a file; return them with the format."""
    name = format_in(path, format, language)
    return list(read_documents(path, name, side=side)), find_format(name)


def _as_others(
    path: Path, documents: list[Document], format: Format, like: Sequence[Document]
) -> list[Document]:
    """Adapt documents to others: take their ids for formats without ids, and their order for WMT files."""
    if not format.carries_ids:
        ids = [document.id for document in like]
        return [Document(ids[i] if i < len(ids) else d.id, d.sentences) for i, d in enumerate(documents)]
    if format.name == "wmt" and documents is not like:
        return in_order(path, documents, [document.id for document in like])
    return documents


def _require_same(path: Path, documents: Sequence[Document], other: Path, others: Sequence[Document]) -> None:
    """Raise CotextError unless two files have the same documents with the same numbers of sentences."""
    if len(documents) != len(others):
        raise CotextError(f"{path}: {len(documents)} documents, but {other} has {len(others)}")
    for ours, theirs in zip(documents, others, strict=True):
        if (ours.id, len(ours)) != (theirs.id, len(theirs)):
            raise CotextError(
                f"{path}: document {ours.id!r} has {len(ours)} sentences, but the document in its place in "
                f"{other} is {theirs.id!r} with {len(theirs)}; both need the same documents and sentences"
            )


@dataclass(slots=True)
class ParagraphCounts:
    """Numbers of lines, of lines split and the resulting sentences, and of lines left whole."""

    lines: int = 0
    split: int = 0
    sentences: int = 0
    whole: int = 0

    def as_dict(self) -> dict[str, int]:
        return asdict(self)

    def render(self) -> str:
        return (
            f"{self.lines:,} lines: {self.split:,} split into {self.sentences:,} sentences, as all sides "
            f"have equally many; {self.whole:,} left whole, as sides have unequal numbers of sentences"
        )


def split_paragraphs(
    texts: Texts, splitter: Splitter, source_splitter: Splitter
) -> tuple[Texts, ParagraphCounts]:
    """Split lines into sentences, except lines in which sides have different numbers of sentences."""
    counts = ParagraphCounts()
    sides = [*texts.systems.values(), *texts.references, *([texts.source] if texts.source else [])]
    splitters = [splitter] * (len(texts.systems) + len(texts.references)) + [source_splitter]
    split_sides: list[list[Document]] = [[] for _ in sides]
    for documents in zip(*sides, strict=True):
        lines: list[list[str]] = [[] for _ in sides]
        for line in zip(*(document.sentences for document in documents), strict=True):
            cut = [by.sentences(text) for by, text in zip(splitters, line, strict=False)]
            numbers = set(map(len, cut))
            counts.lines += 1
            if len(numbers) == 1 and max(numbers) > 1:
                counts.split += 1
                counts.sentences += max(numbers)
            else:
                counts.whole += max(numbers) > 1
                cut = [[text] for text in line]
            for side, sentences in zip(lines, cut, strict=True):
                side += sentences
        for documents_of_side, document, side in zip(split_sides, documents, lines, strict=True):
            documents_of_side.append(Document(document.id, tuple(side)))
    first, last = len(texts.systems), len(texts.systems) + len(texts.references)
    systems = dict(zip(texts.systems, split_sides[:first], strict=True))
    return Texts(systems, split_sides[first:last], split_sides[last] if texts.source else []), counts
