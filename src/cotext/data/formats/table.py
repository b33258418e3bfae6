"""The table of formats: each row says how one is read and written and what it can carry."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from cotext.data.formats import docids, iwslt_tags, jsonl, marked_lines, parquet, tmx, tsv, wmt, wmt_xml
from cotext.data.formats.records import Record
from cotext.runtime.errors import CotextError, nearest, shown

# Suffixes of formats that people have and that are not written.
UNWRITTEN: Final = frozenset(
    (".pdf", ".doc", ".rtf", ".xls", ".ods", ".ppt", ".odp", ".pages", ".mobi", ".zip")
)


@dataclass(frozen=True, slots=True)
class Format:
    """One corpus format: its reader, its writer and its properties.

    `encode` gives the text of one document; `header`, `between` and `footer` surround the documents. `write`,
    of a format that is no text, writes all of them. A format with neither is read only.
    `holds_empty_sentences`: wherever they stand. `languages`: of a format that names them, reads the codes of
    source and target, each empty if the file does not have it.
    """

    name: str
    read: Callable[[Path], Iterator[Record]]
    encode: Callable[[Record], str] | None = None
    header: str = ""
    between: str = ""
    footer: str = ""
    carries_ids: bool = False
    holds_both_languages: bool = False
    neighbours_need_different_ids: bool = False
    holds_empty_sentences: bool = True
    write: Callable[[Path, Iterable[Record]], None] | None = None
    languages: Callable[[Path], tuple[str, str]] | None = None

    @property
    def is_written(self) -> bool:
        """Whether documents can be written in this format."""
        return self.encode is not None or self.write is not None

    def require_written(self) -> None:
        """Raise CotextError if documents cannot be written in this format."""
        if not self.is_written:
            written = ", ".join(name for name, row in FORMATS.items() if row.is_written)
            raise CotextError(
                f"the format {self.name} is read, not written; choose one of {written} "
                "(`cotext convert FILE --to jsonl --out NEW` makes a copy in another format)"
            )


FORMATS = {
    row.name: row
    for row in (
        Format(
            "text",
            marked_lines.read_text,
            marked_lines.encode_text,
            between="\n",
            holds_empty_sentences=False,
        ),
        Format("docids", docids.read_docids, docids.encode_docids, between="\n", carries_ids=True),
        Format("d-lines", marked_lines.read_d_lines, marked_lines.encode_d_lines),
        Format("iwslt-tags", iwslt_tags.read_iwslt_tags, carries_ids=True),
        Format("eos-groups", marked_lines.read_eos_groups),
        Format("line-documents", marked_lines.read_line_documents),
        Format(
            "wmt-xml",
            wmt_xml.read_wmt_xml,
            carries_ids=True,
            holds_both_languages=True,
            languages=wmt_xml.languages_of_wmt_xml,
        ),
        Format(
            "tmx",
            tmx.read_tmx,
            tmx.encode_tmx,
            header=tmx.HEADER,
            footer=tmx.FOOTER,
            carries_ids=True,
            holds_both_languages=True,
            languages=tmx.languages_of_tmx,
            neighbours_need_different_ids=True,
        ),
        Format(
            "tsv",
            tsv.read_tsv,
            tsv.encode_tsv,
            carries_ids=True,
            holds_both_languages=True,
            neighbours_need_different_ids=True,
        ),
        Format("jsonl", jsonl.read_jsonl, jsonl.encode_jsonl, carries_ids=True, holds_both_languages=True),
        Format(
            "wmt",
            wmt.read_wmt,
            wmt.encode_wmt,
            carries_ids=True,
            holds_both_languages=True,
            languages=wmt.languages_of_wmt,
        ),
        Format(
            "parquet",
            parquet.read_parquet,
            write=parquet.write_parquet,
            carries_ids=True,
            holds_both_languages=True,
        ),
    )
}


def find_format(name: str) -> Format:
    """Give the row of a format; raises CotextError with the nearest known name.

    `wmt:de_DE` and `wmt:cs-de_DE` are the format wmt, of whose files the documents of this language are read.
    """
    if name in FORMATS:
        return FORMATS[name]
    kind, _, languages = name.partition(":")
    if kind == "wmt" and languages:
        return replace(
            FORMATS[kind],
            read=partial(wmt.read_wmt, wanted=languages),
            languages=partial(wmt.languages_of_wmt, wanted=languages),
        )
    near = nearest(kind, FORMATS)
    hint = f"did you mean {near[0]}? " if near else ""
    raise CotextError(f"unknown corpus format {shown(name)}: {hint}known are {', '.join(FORMATS)}")


def require_written(out: Path) -> None:
    """Raise CotextError if an output is named after a format that is not written."""
    if out.suffix.lower() in UNWRITTEN:
        raise CotextError(f"{out}: ends in {out.suffix}, a format that is not written; choose another name")
