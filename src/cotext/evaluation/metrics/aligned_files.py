"""Files of translations, references and source whose documents correspond, read for measurement."""

from collections.abc import Mapping, Sequence
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
    """Name systems by the names of their files or folders, or by their paths where two have the same name.

    Raises CotextError where one is given twice, by whatever path or link.
    """
    require_different(paths)
    plain = [path.absolute().name for path in paths]
    names = [name if plain.count(name) == 1 else str(path) for name, path in zip(plain, paths, strict=True)]
    return dict(zip(names, paths, strict=True))


def require_different(paths: Sequence[Path]) -> None:
    """Raise CotextError where a path is given twice, by whatever name or link."""
    seen: dict[Path, Path] = {}
    for path in paths:
        first = seen.setdefault(path.resolve(), path)
        if first is not path:
            by = "" if first == path else f", as {first} too"
            raise CotextError(f"{path}: is given twice{by}; a system beside itself tells nothing")


def read_aligned(
    hypotheses: Mapping[str, Path],
    references: Sequence[Path],
    source: Path | None,
    format: str | None,
    target_language: str | None = None,
    *,
    same_sentences: bool = True,
) -> tuple[dict[str, list[Document]], list[list[Document]], list[Document]]:
    """Hypotheses, references and source (if any) under common document ids: of the first file that has them.

    References are asked first, then the source, so that an error names the hypothesis that differs. Files of
    WMT, of which those of `target_language` are read, come in the order of that file. Unless
    `same_sentences`, hypotheses may have other numbers of sentences in their documents; references and source
    may not.
    """
    paths = [*hypotheses.values(), *references]
    read = [(path, *_read_side(path, format, "target", target_language)) for path in paths]
    original = source and (source, *_read_side(source, format, "source", target_language))
    count = len(hypotheses)
    every = [*read[count:], *([original] if original else []), *read[:count]]
    like = next((documents for _, documents, kind in every if kind.carries_ids), read[0][1])
    if not any(kind.carries_ids for _, _, kind in every[:-count]):
        _require_known_order(read[:count])
    same = [_as_others(*each, like) for each in read]
    fitting = _as_others(*original, like) if original else []
    if not same_sentences:
        for path, documents in zip(references[1:], same[count + 1 :], strict=True):
            _require_same_references(path, documents, references[0], same[count])
    reference_side = (paths[-1], same[-1])
    for path, hypothesis in zip(paths[:count], same[:count], strict=True):
        for reference, documents in zip(references, same[count:], strict=True):
            _require_correspondence(path, hypothesis, reference, documents, same_sentences)
        if original:
            _require_fit(original[0], fitting, *((path, hypothesis) if same_sentences else reference_side))
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


def _require_same_references(
    path: Path, documents: Sequence[Document], first: Path, others: Sequence[Document]
) -> None:
    if len(documents) != len(others):
        raise CotextError(
            f"{path}: {len(documents)} documents, and {first} has {len(others)}; references need the same"
        )
    for ours, theirs in zip(documents, others, strict=True):
        if (ours.id, len(ours)) != (theirs.id, len(theirs)):
            raise CotextError(
                f"{path}: document {ours.id!r} with {len(ours)} sentences stands where {first} has "
                f"{theirs.id!r} with {len(theirs)}; references need the same documents and sentences, as "
                "hypotheses alone are cut anew"
            )


def _read_side(
    path: Path, format: str | None, side: Side, language: str | None
) -> tuple[list[Document], Format]:
    """The documents of a file, and its format."""
    name = format_in(path, format, language)
    return list(read_documents(path, name, side=side)), find_format(name)


def _as_others(
    path: Path, documents: list[Document], format: Format, like: Sequence[Document]
) -> list[Document]:
    """The documents as others stand: under their ids, where they have none; of WMT, in their order."""
    if not format.carries_ids:
        return _renamed(documents, like)
    if format.name == "wmt" and documents is not like:
        return in_order(path, documents, [document.id for document in like])
    return documents


def _renamed(documents: Sequence[Document], like: Sequence[Document]) -> list[Document]:
    """The documents under the ids of others, by their order."""
    ids = [document.id for document in like]
    return [Document(ids[i] if i < len(ids) else d.id, d.sentences) for i, d in enumerate(documents)]


def _require_known_order(hypotheses: Sequence[tuple[Path, list[Document], Format]]) -> None:
    """Refuse files of WMT, whose lines stand in any order, where no reference or source has ids."""
    for path, _, format in hypotheses:
        if format.name == "wmt":
            raise CotextError(
                f"{path}: the lines of WMT may stand in any order, and neither references nor a source have "
                "ids that tell theirs; give the lines of the task by --source"
            )


def _require_fit(
    source: Path, documents: Sequence[Document], path: Path, hypothesis: Sequence[Document]
) -> None:
    if len(documents) != len(hypothesis):
        raise CotextError(
            f"{source}: {len(documents)} documents, but their translation has {len(hypothesis)} ({path})"
        )
    for ours, theirs in zip(documents, hypothesis, strict=True):
        if (ours.id, len(ours)) != (theirs.id, len(theirs)):
            raise CotextError(
                f"{source}: document {ours.id!r} has {len(ours)} sentences, but the translation in its place "
                f"in {path} is document {theirs.id!r} with {len(theirs)}"
            )


@dataclass(slots=True)
class ParagraphCounts:
    """Lines, those split and the sentences that they became, and those of several sentences left whole."""

    lines: int = 0
    split: int = 0
    sentences: int = 0
    whole: int = 0

    def as_dict(self) -> dict[str, int]:
        """The counts by name."""
        return asdict(self)

    def render(self) -> str:
        """As one line."""
        return (
            f"{self.lines:,} lines: {self.split:,} split into {self.sentences:,} sentences, as all sides "
            f"have equally many; {self.whole:,} left whole, as sides have unequal numbers of sentences"
        )


def split_paragraphs(
    texts: Texts, splitter: Splitter, source_splitter: Splitter
) -> tuple[Texts, ParagraphCounts]:
    """The texts with a sentence a line, but for lines in which sides have unequal numbers of sentences."""
    counts = ParagraphCounts()
    sides = [*texts.systems.values(), *texts.references, *([texts.source] if texts.source else [])]
    splitters = [splitter] * (len(texts.systems) + len(texts.references)) + [source_splitter]
    found: list[list[Document]] = [[] for _ in sides]
    for documents in zip(*sides, strict=True):
        lines: list[list[str]] = [[] for _ in sides]
        for line in zip(*(document.sentences for document in documents), strict=True):
            cut = [by.sentences(text) for by, text in zip(splitters, line, strict=False)]
            numbers = {len(each) for each in cut}
            counts.lines += 1
            if len(numbers) == 1 and max(numbers) > 1:
                counts.split += 1
                counts.sentences += max(numbers)
            else:
                counts.whole += max(numbers) > 1
                cut = [[text] for text in line]
            for side, each in zip(lines, cut, strict=True):
                side += each
        for documents_of_side, document, side in zip(found, documents, lines, strict=True):
            documents_of_side.append(Document(document.id, tuple(side)))
    first, last = len(texts.systems), len(texts.systems) + len(texts.references)
    systems = dict(zip(texts.systems, found[:first], strict=True))
    return Texts(systems, found[first:last], found[last] if texts.source else []), counts
