"""Summary of a corpus file: format, documents, sentences; for WMT files also language pairs and kinds."""

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
    """Counts of the documents of a language pair in a WMT file."""

    documents: int = 0
    paragraphs: int = 0
    instructions: int = 0
    references: int = 0
    hypotheses: int = 0
    kinds: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class CorpusInfo:
    """The content of a corpus file; `pairs` only for WMT files."""

    path: Path
    format: str
    documents: int = 0
    sentences: int = 0
    languages: int = 1
    pairs: dict[str, PairInfo] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        heading = {"format": "cotext-corpus", "version": 1, "file": str(self.path), "kind": self.format}
        return {**heading, **{k: v for k, v in asdict(self).items() if k not in ("path", "format")}}

    def render(self) -> str:
        """Format as text, one line for each known property."""
        sides = "sides" if self.languages == 2 else "side"
        rows = [
            ("format", f"{self.format}, {self.languages} {sides}"),
            ("documents", f"{self.documents:,}"),
            ("paragraphs" if self.format == "wmt" else "sentences", f"{self.sentences:,}"),
        ]
        lines = [str(self.path), *render_info(rows)]
        if self.pairs:
            columns = [key for key in _COUNTS if any(getattr(pair, key) for pair in self.pairs.values())]
            table = [("", *columns, "kinds")]
            for name, pair in self.pairs.items():
                kinds = ", ".join(f"{count} {kind}" for kind, count in pair.kinds.items())
                table.append((name, *(f"{getattr(pair, key):,}" for key in columns), kinds))
            lines += ["", render_rows(table, left=1)]
        return "\n".join(lines)


def corpus_info(path: Path) -> CorpusInfo:
    """Summarise a corpus file in any format; a WMT file may have several language pairs.

    Raises:
        CotextError: not a corpus, or a damaged one.
    """
    info = CorpusInfo(path, detect_format(path))
    if info.format == "wmt":
        _count_wmt(info)
        return info
    for record in checked_records(path, find_format(info.format)):
        info.documents += 1
        info.sentences += len(record.sentences or record.source or record.target or ())
        if record.source is not None and record.target is not None:
            info.languages = 2
    return info


def _count_wmt(info: CorpusInfo) -> None:
    for line in all_wmt_lines(info.path):
        text = line.source if line.source is not None else line.hypothesis or ""
        read = paragraphs(text)
        pair = info.pairs.setdefault(line.pair or "unknown languages", PairInfo())
        pair.documents += 1
        pair.paragraphs += len(read.texts)
        pair.instructions += bool(line.instruction)
        pair.references += line.reference is not None
        pair.hypotheses += line.hypothesis is not None
        pair.kinds[read.kind] = pair.kinds.get(read.kind, 0) + 1
        info.documents += 1
        info.sentences += len(read.texts)
        if line.source is not None and (line.hypothesis or line.reference) is not None:
            info.languages = 2
