"""Context of sentences in a folder of subtitles: a file a film and language, a sentence a line.

As ContraPro's own scripts make it of OpenSubtitles 2018 (Müller et al., 2018): `1921/1921_12806_3712161.en`
and `.de`, or all files in one folder.
"""

import re
from pathlib import Path

from cotext.data.formats.records import OUTER_SPACE
from cotext.data.formats.streams import numbered_lines
from cotext.runtime.errors import CotextError, shown

_LANGUAGES = ("en", "de")
# Editions write these in different ways.
_NOT_COMPARED = re.compile("[\\s\"'`´]+")


class SubtitleContext:
    """The `sentences` before a line of a film; `folder` may be None where they are 0."""

    def __init__(self, folder: Path | None, sentences: int) -> None:
        if folder is not None and not folder.is_dir():
            raise CotextError(f"{folder}: no such folder; give the one with the documents of OpenSubtitles")
        if folder is None and sentences:
            raise CotextError(
                f"{sentences} sentences of context need the folder with the documents of OpenSubtitles "
                "(--documents); without it, --context 0"
            )
        self.folder = folder
        self.sentences = sentences
        self._film = ""
        self._sides: tuple[list[str], list[str]] = ([], [])

    def before(
        self, film: str, line: int | None, source: str, where: str
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The sentences before line `line` (from 1) on both sides, fewer at the beginning of the film.

        Raises CotextError where there is no such file or line, or where the line is not `source`; white space
        and quotation marks are not compared.
        """
        if self.folder is None:
            return (), ()
        if film != self._film:
            self._sides = self._read(self.folder, film, where)
            self._film = film
        sources, targets = self._sides
        if line is None or not 1 <= line <= len(sources):
            raise CotextError(
                f"{where}: 'segment id' is {shown(line)}, but {film} in {self.folder} has lines 1 to "
                f"{len(sources)}"
            )
        if _NOT_COMPARED.sub("", sources[line - 1]) != _NOT_COMPARED.sub("", source):
            raise CotextError(
                f"{where}: line {line} of {film} in {self.folder} is {sources[line - 1][:60]!r}, not "
                f"{source[:60]!r}; ContraPro is of OpenSubtitles 2018"
            )
        first = max(0, line - 1 - self.sentences)
        return tuple(sources[first : line - 1]), tuple(targets[first : line - 1])

    def _read(self, folder: Path, film: str, where: str) -> tuple[list[str], list[str]]:
        stem = film.removesuffix(f".{_LANGUAGES[1]}")
        if not re.fullmatch(r"[\w-][\w.-]*", stem):
            raise CotextError(f"{where}: 'document id' is {shown(film)}, which cannot be the name of a file")
        paths = [folder / f"{stem}.{language}" for language in _LANGUAGES]
        if not paths[0].exists():
            paths = [folder / stem.partition("_")[0] / path.name for path in paths]
        sides = [[line.strip(OUTER_SPACE) for _, line in numbered_lines(path)] for path in paths]
        if len(sides[0]) != len(sides[1]):
            raise CotextError(
                f"{paths[0]} has {len(sides[0])} lines but {paths[1]} has {len(sides[1])}; both sides of a "
                "film have the same number"
            )
        return sides[0], sides[1]
