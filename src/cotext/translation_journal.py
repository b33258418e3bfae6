"""The translations of a long job so far, on disk, so that an interrupted job can go on."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TextIO

from cotext.data.documents import Document
from cotext.errors import CotextError
from cotext.files import replacing
from cotext.translate import Translation

# What an entry has beside the document; see `Translation`.
LISTS = tuple(f.name for f in fields(Translation) if f.name != "document")


class TranslationJournal:
    """The translations so far, on disk: a header line, then one line per document."""

    def __init__(self, out: Path, header: dict[str, Any], on_message: Callable[[str], None]) -> None:
        self.path = out.with_name(out.name + ".partial")
        self.header = header
        self.on_message = on_message
        self.done: dict[int, Translation] = {}
        self.file: TextIO | None = None

    def __enter__(self) -> "TranslationJournal":
        with replacing(self.path) as temporary:
            text = self.path.read_text(encoding="utf-8", errors="replace") if self.path.exists() else ""
            kept = self._take_over(text.splitlines())
            temporary.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
        self.file = self.path.open("a", encoding="utf-8")
        return self

    def _take_over(self, lines: list[str]) -> list[str]:
        """Read the lines of an earlier, interrupted job; a line cut off by the interruption is dropped."""
        header = json.dumps(self.header)
        if not lines:
            return [header]
        if lines[0] != header:
            self.on_message(
                f"{self.path}: of another job ({self._differing(lines[0])}), not taken over; starting anew"
            )
            return [header]
        kept = [header]
        for line in lines[1:]:
            try:
                entry = json.loads(line)
                document = Document(entry["id"], tuple(entry["sentences"]))
                lists = {k: tuple(entry[k]) for k in LISTS}
                translation = Translation(document, **lists)
                self.done[int(entry["place"])] = translation
            except (ValueError, KeyError, TypeError):
                break
            kept.append(line)
        return kept

    def _differing(self, line: str) -> str:
        """Which parts of the header of another job differ.

        Raises:
            CotextError: not the header of any job.
        """
        try:
            other = dict(json.loads(line))
            if "cotext" not in other:
                raise ValueError("another kind of file")
        except (ValueError, TypeError):
            raise CotextError(
                f"{self.path}: is in the way, and not from an interrupted translation; move it or choose "
                "another --out"
            ) from None
        return ", ".join(key for key in self.header if other.get(key) != self.header[key])

    def add(self, place: int, translation: Translation) -> None:
        """Append one document and push it to the disk."""
        assert self.file is not None
        entry = asdict(translation)
        document = entry.pop("document")
        try:
            self.file.write(json.dumps({"place": place, **document, **entry}) + "\n")
            self.file.flush()
        except OSError as error:
            raise CotextError(
                f"{self.path}: cannot be written: {error.strerror or error}; make room, and the same command "
                "goes on from there"
            ) from None
        self.done[place] = translation

    def finish(self) -> None:
        """The output is complete: the journal has done its service."""
        self.path.unlink(missing_ok=True)

    def __exit__(self, *exc: object) -> None:
        if self.file is not None:
            # What a full disk has refused once is refused again here, and has been reported.
            with suppress(OSError):
                self.file.close()
