"""Detection of corpus formats by the beginning of the content and by side files."""

import re
from pathlib import Path

from cotext.data.formats.docids import find_side_file
from cotext.data.formats.foreign import (
    CORPUS_ROOTS,
    PARQUET,
    TRANSLATION_MEMORY,
    binary_kind,
    markup_kind,
    refuse,
    subtitle_kind,
)
from cotext.data.formats.iwslt_tags import begins_talks
from cotext.data.formats.marked_lines import BOUNDARY_MARK, DOCUMENT_LINE, EOS_MARK
from cotext.data.formats.records import OUTER_SPACE
from cotext.data.formats.streams import beginning, check_readable, is_regular
from cotext.data.formats.wmt import begins_wmt
from cotext.runtime.errors import CotextError
from cotext.runtime.reading import parse_json

BEGINNING_BYTES = 1 << 18
# A prolog that markup follows, or a root element by itself; a sentence may begin with "<" too.
_PROLOG_BEGINNING = re.compile(r"<\?xml\b|<!DOCTYPE\b|<!--", re.IGNORECASE)
_ROOT_BEGINNING = re.compile(rf"<({'|'.join(CORPUS_ROOTS)})(\s+[\w:.-]+\s*=.*|\s*/?>.*|\s*)$", re.IGNORECASE)
_PROLOG_THEN_WORDS = re.compile(r"(?><\?.*?\?>|<!--.*?-->|<!DOCTYPE[^<>]*>)\s*[^\s<]", re.IGNORECASE)
_SEGMENT = re.compile(r"^[^\S\n]*<seg\s", re.MULTILINE)
_OBJECT_BEGINNING = re.compile(r'\{\s*"')
_CATALOGUE_BEGINNING = re.compile(r'[\[{]$|\[\s*["\[{]')
CATALOGUES = {".json": "JSON", ".arb": "JSON", ".yaml": "YAML", ".yml": "YAML"}


def detect_format(path: Path) -> str:
    """Name the format by the first 256 KiB of content; what no rule recognises is `text`.

    The rules, the first that holds: a Parquet table, a JSON object on the first line (of WMT, with
    `doc_id` and a text), lines that open a talk, an XML beginning, a first line `<d>`, a
    side file, `<EOS> <BOS>` in a line, `_eos` in a line, two tabs (or one) in every line. Raises CotextError
    for a file that is missing, empty, or no regular file (a pipe can be read only once: name its format), and
    for one that is no corpus but markup, subtitles or a binary file.
    """
    check_readable(path)
    if not is_regular(path):
        raise CotextError(
            f"{path}: the format of what is no regular file cannot be detected; name the format"
        )
    head, complete = beginning(path, BEGINNING_BYTES)
    if (kind := binary_kind(head)) == PARQUET:
        return "parquet"
    refuse(path, kind)
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
    if begins_talks(lines) and not _SEGMENT.search(text):
        return "iwslt-tags"
    prolog = _PROLOG_BEGINNING.match(first) and not _PROLOG_THEN_WORDS.match(first)
    if prolog or _ROOT_BEGINNING.match(first):
        kind = markup_kind(text)
        if kind == TRANSLATION_MEMORY:
            return "tmx"
        refuse(path, kind)
        return "wmt-xml"
    if first == DOCUMENT_LINE:
        return "d-lines"
    if find_side_file(path) is not None:
        return "docids"
    kind = markup_kind(text) if first.startswith("<") else subtitle_kind(lines)
    if kind == TRANSLATION_MEMORY:
        return "tmx"
    refuse(path, kind)
    if any(BOUNDARY_MARK.search(line) for line in lines):
        return "line-documents"
    if any(EOS_MARK.search(line) for line in lines):
        return "eos-groups"
    if lines[-1] == "":
        lines.pop()
    if {line.count("\t") for line in lines} in ({1}, {2}) and all(
        line.split("\t")[0].strip() for line in lines
    ):
        return "tsv"
    return "text"


def format_in(path: Path, format: str | None, language: str | None) -> str:
    """Name the format of a file, and of a file of WMT the language that is asked for."""
    name = format or detect_format(path)
    return f"{name}:{language}" if name == "wmt" and language else name


def is_parquet(path: Path) -> bool:
    """Whether a file begins as a Parquet table does."""
    return binary_kind(beginning(path, BEGINNING_BYTES)[0]) == PARQUET


def _is_object(line: str, whole: bool) -> bool:
    if not whole:
        return _OBJECT_BEGINNING.match(line) is not None
    try:
        return isinstance(parse_json(line, "", numbers=False), dict)
    except CotextError:
        # A broken object is still no sentence: the reader will say where it breaks.
        return re.match(r'\{\s*"(id|source|target|sentences)"\s*:', line) is not None
