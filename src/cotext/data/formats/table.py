"""The table of corpus formats: readers, writers and properties, and detection of the format of a file."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from cotext.data.formats import docids, line_formats, wmt, xml_formats
from cotext.data.formats.docids import find_side_file
from cotext.data.formats.line_formats import DOCUMENT_LINE
from cotext.data.formats.streams import (
    CORPUS_ROOTS,
    MARKUP,
    OUTER_SPACE,
    Record,
    beginning,
    binary_kind,
    check_readable,
    markup_root,
    refuse,
    subtitle_kind,
)
from cotext.data.formats.wmt import begins_wmt
from cotext.runtime import CotextError, nearest, parse_json, shown

# Suffixes of common formats that are not written.
UNWRITTEN: Final = frozenset(
    (".pdf", ".doc", ".rtf", ".xls", ".ods", ".ppt", ".odp", ".pages", ".mobi", ".zip")
)
NOT_CORPORA: Final = frozenset((".htm", ".html", ".xhtml", ".md", ".markdown", ".po", ".pot"))


@dataclass(frozen=True, slots=True)
class Format:
    """One corpus format: its reader, its writer and its properties.

    `encode` returns the text of one document, or is None for a format that is only read. `header`, `between`
    and `footer` surround the documents. `holds_empty_sentences`: at any position. `languages` reads the codes
    of source and target from a file; a missing code is empty.
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
    languages: Callable[[Path], tuple[str, str]] | None = None

    def require_written(self) -> None:
        """Raise CotextError if this format cannot be written."""
        if self.encode is None:
            written = ", ".join(name for name, row in FORMATS.items() if row.encode)
            raise CotextError(
                f"the format {self.name} can be read, but not written; choose one of {written} "
                "(`cotext convert FILE --to jsonl --out NEW` makes a copy in another format)"
            )


FORMATS = {
    row.name: row
    for row in (
        Format(
            "text",
            line_formats.read_text,
            line_formats.encode_text,
            between="\n",
            holds_empty_sentences=False,
        ),
        Format("docids", docids.read_docids, docids.encode_docids, between="\n", carries_ids=True),
        Format("d-lines", line_formats.read_d_lines, line_formats.encode_d_lines),
        Format(
            "wmt-xml",
            xml_formats.read_wmt_xml,
            carries_ids=True,
            holds_both_languages=True,
            languages=xml_formats.languages_of_wmt_xml,
        ),
        Format(
            "tmx",
            xml_formats.read_tmx,
            xml_formats.encode_tmx,
            header=xml_formats.HEADER,
            footer=xml_formats.FOOTER,
            carries_ids=True,
            holds_both_languages=True,
            languages=xml_formats.languages_of_tmx,
            neighbours_need_different_ids=True,
        ),
        Format(
            "tsv",
            line_formats.read_tsv,
            line_formats.encode_tsv,
            carries_ids=True,
            holds_both_languages=True,
            neighbours_need_different_ids=True,
        ),
        Format(
            "jsonl",
            line_formats.read_jsonl,
            line_formats.encode_jsonl,
            carries_ids=True,
            holds_both_languages=True,
        ),
        Format(
            "wmt",
            wmt.read_wmt,
            wmt.encode_wmt,
            carries_ids=True,
            holds_both_languages=True,
            languages=wmt.languages_of_wmt,
        ),
    )
}


def find_format(name: str) -> Format:
    """Return a format by name; raises CotextError with the nearest known name.

    `wmt:de_DE` and `wmt:cs-de_DE` select the format `wmt`, and only the documents of this language or pair.
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
    raise CotextError(f"unknown corpus format {shown(name)}: {hint}known formats: {', '.join(FORMATS)}")


def require_written(out: Path) -> None:
    """Raise CotextError if the suffix of an output belongs to a format that cannot be written."""
    if out.suffix.lower() in UNWRITTEN:
        raise CotextError(f"{out}: ends in {out.suffix}, a format that is not written; choose another name")


# --- Detection of corpus formats by the beginning of the content and by side files.

BEGINNING_BYTES = 1 << 18
_TALK_BEGINNING = re.compile(r"(?:<doc\s[^<>]*>\s*)?<(?:url>\s*https?:|talkid>)")
_OBJECT_BEGINNING = re.compile(r'\{\s*"')
_CATALOGUE_BEGINNING = re.compile(r'[\[{]$|\{\s*"|\[\s*["\[{]')
CATALOGUES = {".json": "JSON", ".arb": "JSON", ".yaml": "YAML", ".yml": "YAML"}


def detect_format(path: Path) -> str:
    """Return the name of the format, from the first 256 KiB of content; the default is `text`.

    The first matching rule counts: a JSON object on the first line (wmt: with `doc_id` and a text), a first
    line `<d>`, an XML beginning, a side file, two tabs (or one) in every line.

    Raises CotextError if the file is missing or empty, is not a regular file (a pipe can be read only once),
    or is markup, subtitles or a binary file.
    """
    check_readable(path)
    if not path.is_file():
        raise CotextError(
            f"{path}: not a regular file, so that its format cannot be detected; name the format"
        )
    head, complete = beginning(path, BEGINNING_BYTES)
    refuse(path, binary_kind(head))
    text = head.decode(errors="replace")
    lines = [line.strip("\r") for line in text.split("\n")]
    if not complete and len(lines) > 1:
        lines.pop()
    first = next((line.strip(OUTER_SPACE) for line in lines if line.strip(OUTER_SPACE)), "")
    if not first and complete:
        raise CotextError(f"{path}: is empty; a corpus has at least one sentence")
    if _is_object(first, complete or len(lines) > 1):
        return "wmt" if begins_wmt(first) else "jsonl"
    kind = CATALOGUES.get(path.suffix.lower(), "")
    if kind == "YAML" or (kind and _CATALOGUE_BEGINNING.match(first)):
        refuse(path, f"{kind}, as a catalogue of strings")
    if _TALK_BEGINNING.match(text.lstrip()):
        refuse(path, "a training file of IWSLT (train.tags)")
    if first == DOCUMENT_LINE:
        return "d-lines"
    root = markup_root(text) if first.startswith("<") else ""
    if root not in CORPUS_ROOTS and not first.startswith(("<?", "<!")) and find_side_file(path) is not None:
        return "docids"  # a sentence may begin with a tag
    if root == "tmx" or root in CORPUS_ROOTS:
        return "tmx" if root == "tmx" else "wmt-xml"
    if root:
        refuse(path, MARKUP.get(root, f"XML with the root element <{root[:40]}>"))
    refuse(path, subtitle_kind(lines))
    if lines[-1] == "":
        lines.pop()
    if {line.count("\t") for line in lines} in ({1}, {2}) and all(
        line.split("\t")[0].strip() for line in lines
    ):
        return "tsv"
    return "text"


def is_corpus(path: Path) -> bool:
    """Return whether a file has a corpus format; False for folders and missing files.

    Web pages, Markdown and message catalogues are not, although their content may look like plain text.
    """
    if path.is_dir() or path.suffix.lower() in NOT_CORPORA:
        return False
    try:
        detect_format(path)
    except CotextError:
        return False
    return True


def format_in(path: Path, format: str | None, language: str | None) -> str:
    """Return the name of the format of a file; for WMT files including the requested language."""
    name = format or detect_format(path)
    return f"{name}:{language}" if name == "wmt" and language else name


def _is_object(line: str, whole: bool) -> bool:
    if not whole:
        return _OBJECT_BEGINNING.match(line) is not None
    try:
        return isinstance(parse_json(line, "", numbers=False), dict)
    except CotextError:
        # A truncated object is not a sentence; the reader will report the error.
        return re.match(r'\{\s*"(id|source|target|sentences)"\s*:', line) is not None
