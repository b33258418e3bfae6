"""Files that are no corpus, detected by their content: markup, subtitles, office documents, binary files.

Named, so that a person learns what the file is and not which of its bytes is no UTF-8. Each rule asks for
more than the first characters: an ordinary sentence may begin with "<", "1" or "GIF89a".
"""

import re
from pathlib import Path
from typing import Final

from cotext.runtime.errors import CotextError

# Of the older XML of test sets (mteval): a file has one, whose documents are of one language.
ONE_LANGUAGE_SETS: Final = ("srcset", "refset", "tstset")
# Root elements of what the reader of wmt-xml takes.
CORPUS_ROOTS: Final = ("dataset", "collection", "doc", "mteval", *ONE_LANGUAGE_SETS)

_ZIPPED: Final = (
    (b"word/", "a Word document (docx)"),
    (b"xl/", "an Excel workbook (xlsx)"),
    (b"ppt/", "a PowerPoint presentation (pptx)"),
    (b"opendocument.text", "an OpenDocument text (odt)"),
    (b"opendocument.", "an OpenDocument file"),
    (b"epub+zip", "an electronic book (epub)"),
)
# Beginnings by themselves; those of letters alone count where what follows is no text.
_MAGIC: Final = (
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office document (doc, xls, ppt)"),
    (b"\x89PNG\r\n", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"\x28\xb5\x2f\xfd", "a file compressed with zstd"),
    (b"\x7fELF", "a program"),
    (b"\x1a\x45\xdf\xa3", "a video (mkv, webm)"),
)
PARQUET: Final = "a Parquet table"  # which may be a corpus
_LETTERS: Final = (
    (b"GIF8", "a GIF picture"),
    (b"BZh", "a file compressed with bzip2"),
    (b"Rar!", "a RAR archive"),
    (b"SQLite format 3", "an SQLite database"),
    (b"PAR1", PARQUET),
    (b"ARROW1", "an Arrow table"),
    (b"ID3", "a sound file (mp3)"),
    (b"OggS", "a sound file (ogg)"),
    (b"RIFF", "a sound or video file"),
)
_PDF = re.compile(rb"%PDF-\d\.\d[ \t]*[\r\n]")
_ENCODED_OTHERWISE: Final = (b"\xff\xfe", b"\xfe\xff", b"\x1f\x8b", b"\xfd7zXZ\0")
_LOOKED_AT = 1 << 12  # bytes: a text is a text from its beginning

TRANSLATION_MEMORY: Final = "a translation memory (TMX)"  # which is a corpus, unlike the others
_KNOWN_ROOTS: Final = {
    "html": "HTML",
    "tmx": TRANSLATION_MEMORY,
    "xliff": "XLIFF",
    "mxliff": "XLIFF",
    "tt": "subtitles (TTML)",
    "ts": "Qt translations (ts)",
    "tbx": "a terminology (TBX)",
    "martif": "a terminology (TBX)",
    "tei": "TEI XML",
    "svg": "an SVG picture",
    "rss": "an RSS feed",
}
# Of these, files without an XML declaration are about; others cannot be told from text.
_BARE_ROOTS: Final = ("html", "head", "body", "tmx", "xliff", "tt")
_DOCTYPE = r"<!DOCTYPE[^\[>]*(?:\[[^\]]*\]\s*)?>"
_PROLOG = re.compile(rf"(?:\s+|<\?.*?\?>|<!--.*?-->|{_DOCTYPE})*", re.DOTALL | re.IGNORECASE)
_ROOT = re.compile(r"<(?:\w+:)?([A-Za-z][\w.-]*)(?=[\s/>])[^<>]*>")
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_SRT_TIME = re.compile(r"\d{1,2}:\d\d:\d\d[,.]\d{1,3} --> \d{1,2}:\d\d:\d\d[,.]\d{1,3}\b")
_VTT_TIME = re.compile(r"(?:\d+:)?\d\d:\d\d\.\d{3} --> (?:\d+:)?\d\d:\d\d\.\d{3}\b")
_SBV_TIME = re.compile(r"\d+:\d\d:\d\d\.\d{3},\d+:\d\d:\d\d\.\d{3}$")


def refuse(path: Path, kind: str) -> None:
    """Raise CotextError for a file of the named kind; nothing where it is empty."""
    if kind:
        raise CotextError(
            f"{path}: not a supported format: it looks like {kind}; take out its text, one sentence a line, "
            "an empty line between documents, or give another of the formats in docs/data-format.md"
        )


def binary_kind(head: bytes) -> str:
    """The kind of a binary file, by its beginning; empty for text in any encoding.

    Compressed by gzip or xz and UTF-16 are no kinds: these are texts once they are put right.
    """
    if head.startswith((b"PK\3\4", b"PK\5\6")):
        return next((kind for mark, kind in _ZIPPED if mark in head), "a zip archive")
    if _PDF.match(head):
        return "a PDF document"
    if head.startswith(b"{\\rtf1"):
        return "a rich text document (rtf)"
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    looked_at = head[:_LOOKED_AT]
    if head.startswith(_ENCODED_OTHERWISE) or b"\0" not in looked_at or _is_utf8(looked_at):
        return ""
    # A text of another encoding may hold a stray control character; numbers are full of them.
    controls = sum(byte < 32 and byte not in b"\t\n\r\f" for byte in looked_at)
    if controls < 4 or 20 * controls < len(looked_at):
        return ""
    if head[257:262] == b"ustar":
        return "a tar archive"
    return next((kind for magic, kind in _LETTERS if head.startswith(magic)), "a binary file")


def _is_utf8(head: bytes) -> bool:
    try:
        head.decode()
    except UnicodeDecodeError as error:
        # A character that the end has cut.
        return len(head) == _LOOKED_AT and error.start > len(head) - 4
    return True


def markup_kind(text: str) -> str:
    """The kind of markup of a text; empty for plain text and for XML that the reader of wmt-xml may take."""
    start = _PROLOG.match(text)
    begin = start.end() if start else 0
    declared = text[:begin].strip()
    root = _ROOT.match(text, begin)
    if root is None:
        return ""
    name = root[1].lower()
    if declared:
        if name in CORPUS_ROOTS:
            return ""
        if name == "html" or re.search(r"<!DOCTYPE\s+html", declared, re.IGNORECASE):
            return "HTML"
        return _KNOWN_ROOTS.get(name, f"XML with the root element <{root[1][:40]}>")
    if name not in _BARE_ROOTS or not _goes_on_as_markup(text, root.end()):
        return ""
    return _KNOWN_ROOTS.get(name, "HTML")


def _goes_on_as_markup(text: str, after: int) -> bool:
    """Whether what follows the first tag is another; a sentence about a tag goes on in words."""
    rest = text[after:].lstrip()
    return rest.startswith("<!--") or _TAG.match(rest) is not None


def subtitle_kind(lines: list[str]) -> str:
    """The kind of subtitles, by the first lines; empty for any other text."""
    first = [line.strip() for line in lines if line.strip()][:200]
    if not first:
        return ""
    if first[0].isdigit() and len(first) > 1 and _SRT_TIME.match(first[1]):
        return "subtitles (SubRip, srt)"
    if re.match(r"WEBVTT(?:\s|$)", first[0]) and any(map(_VTT_TIME.match, first)):
        return "subtitles (WebVTT)"
    if first[0] == "[Script Info]":
        return "subtitles (ASS, SSA)"
    if _SBV_TIME.match(first[0]):
        return "subtitles (SBV)"
    if len(first) > 1 and all(re.match(r"\{\d+\}\{\d+\}", line) for line in first[:2]):
        return "subtitles (MicroDVD)"
    return ""
