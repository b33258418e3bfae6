"""A summary of a corpus file: format, documents, sentences; of a file of WMT, language pairs and kinds."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from cotext.data.formats.corpus import checked_records
from cotext.data.formats.table import detect_format, find_format
from cotext.data.formats.wmt import all_wmt_lines, paragraphs
from cotext.evaluation.studies.info.run import render_info
from cotext.runtime.tables import render_rows

_COUNTS: Final = ("documents", "paragraphs", "instructions", "references", "hypotheses")


@dataclass(slots=True)
class PairInfo:
    """Documents of a language pair in a file of WMT, and what they are."""

    documents: int = 0
    paragraphs: int = 0
    instructions: int = 0
    references: int = 0
    hypotheses: int = 0
    kinds: dict[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The counts by name."""
        return asdict(self)


@dataclass(slots=True)
class CorpusInfo:
    """The content of a corpus file; `pairs` of a file of WMT alone."""

    path: Path
    format: str
    documents: int = 0
    sentences: int = 0
    languages: int = 1
    pairs: dict[str, PairInfo] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "format": "cotext-corpus",
            "version": 1,
            "file": str(self.path),
            "kind": self.format,
            "documents": self.documents,
            "sentences": self.sentences,
            "languages": self.languages,
            "pairs": {name: pair.as_dict() for name, pair in self.pairs.items()},
        }

    def render(self) -> str:
        """One line for each thing that is known."""
        sides = "sides" if self.languages == 2 else "side"
        rows = [
            ("format", f"{self.format}, {self.languages} {sides}"),
            ("documents", f"{self.documents:,}"),
            ("paragraphs" if self.format == "wmt" else "sentences", f"{self.sentences:,}"),
        ]
        lines = [str(self.path), *render_info(rows)]
        if self.pairs:
            kept = [key for key in _COUNTS if any(getattr(pair, key) for pair in self.pairs.values())]
            table = [("", *kept, "kinds")]
            for name, pair in self.pairs.items():
                kinds = ", ".join(f"{count} {kind}" for kind, count in pair.kinds.items())
                table.append((name, *(f"{getattr(pair, key):,}" for key in kept), kinds))
            lines += ["", render_rows(table, left=1)]
        return "\n".join(lines)


def corpus_info(path: Path) -> CorpusInfo:
    """The summary of a corpus file in any format; a file of WMT may hold several language pairs.

    Raises:
        CotextError: no corpus, or a damaged one.
    """
    found = CorpusInfo(path, detect_format(path))
    if found.format == "wmt":
        _count_wmt(found)
        return found
    for record in checked_records(path, find_format(found.format)):
        found.documents += 1
        found.sentences += len(record.sentences or record.source or record.target or ())
        if record.source is not None and record.target is not None:
            found.languages = 2
    return found


def _count_wmt(found: CorpusInfo) -> None:
    for line in all_wmt_lines(found.path):
        text = line.source if line.source is not None else line.hypothesis or ""
        read = paragraphs(text)
        pair = found.pairs.setdefault(line.pair or "unknown languages", PairInfo())
        pair.documents += 1
        pair.paragraphs += len(read.texts)
        pair.instructions += bool(line.instruction)
        pair.references += line.reference is not None
        pair.hypotheses += line.hypothesis is not None
        pair.kinds[read.kind] = pair.kinds.get(read.kind, 0) + 1
        found.documents += 1
        found.sentences += len(read.texts)
        if line.source is not None and (line.hypothesis or line.reference) is not None:
            found.languages = 2
