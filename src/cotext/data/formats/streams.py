"""Bytes of corpus files: transparent .xz and .gz, lines that only a line feed ends, atomic writing.

Files are read as streams, whatever their size; what must fit into memory at once, a line, has a limit, so
that a small compressed file cannot unpack into all there is.
"""

import gzip
import io
import lzma
import os
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Final, Literal, cast

from cotext.runtime.errors import CotextError
from cotext.runtime.files import ON_WINDOWS, sweep, temporary_name

# --- Files that are no corpus, detected by their content: markup, subtitles, office documents, binary
# files.
#
# Named, so that a person learns what the file is and not which of its bytes is no UTF-8. Each rule asks for
# more than the first characters: an ordinary sentence may begin with "<", "1" or "GIF89a".

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


COMPRESSIONS = (".xz", ".gz")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_LINE_BYTES = 1 << 24  # a document of three million words, where a line holds one
MAX_WHOLE_BYTES = 1 << 28  # unpacked, of a file that is not a corpus
XZ_BEGINNING, GZ_BEGINNING = b"\xfd7zXZ\0", b"\x1f\x8b"
READ_ERRORS = (OSError, EOFError, lzma.LZMAError, zlib.error)
_FOREIGN_BEGINNINGS = (
    (b"\xff\xfe", "it looks like UTF-16: convert it to UTF-8"),
    (b"\xfe\xff", "it looks like UTF-16: convert it to UTF-8"),
    (XZ_BEGINNING, "it looks xz-compressed: give its name the ending .xz"),
    (GZ_BEGINNING, "it looks gzip-compressed: give its name the ending .gz"),
)


def check_readable(path: Path) -> None:
    """Raise CotextError where there is no such file or it is a directory."""
    try:
        if path.is_dir():
            raise CotextError(f"{path}: is a directory; name the corpus file inside it")
        if not path.exists():
            raise CotextError(f"{path}: no such file")
    except OSError as error:
        raise CotextError(f"{path}: cannot be read: {error.strerror or error}") from error


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading, decompressed by the ending of its name; reading errors become CotextError."""
    if ON_WINDOWS and path.as_posix() == "/dev/stdin":  # where there is no such file
        yield sys.stdin.buffer
        return
    check_readable(path)
    try:
        with path.open("rb") as raw:
            if path.suffix == ".xz":
                with lzma.open(raw) as plain:
                    yield cast(IO[bytes], io.BufferedReader(plain))
            elif path.suffix == ".gz":
                with gzip.open(raw) as unzipped:
                    yield cast(IO[bytes], io.BufferedReader(unzipped))
            else:
                yield raw
    except READ_ERRORS as error:
        raise _cannot_be_read(path, error) from error


def _cannot_be_read(path: Path, error: Exception) -> CotextError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return CotextError(f"{path}: cannot be read: {reason}")


def numbered_lines(path: Path, whole: bool = False) -> Iterator[tuple[int, str]]:
    r"""Yield (line number from 1, line without its ending); only \n and \r\n end a line.

    A byte order mark at the beginning is left out; both stay where lines are to be `whole`. Raises
    CotextError for invalid UTF-8, for NUL, and as
    `raw_lines` does.
    """
    for number, raw in raw_lines(path):
        try:
            line = raw.decode()
        except UnicodeDecodeError as error:
            raise CotextError(f"{path}:{number}: {describe_invalid(raw, error, number)}") from None
        if "\0" in line:
            raise CotextError(f"{path}:{number}: contains a NUL character; remove it")
        if whole:
            yield number, line
            continue
        if number == 1:
            line = line.removeprefix("\ufeff")
        yield number, line.removesuffix("\n").removesuffix("\r")


def raw_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (line number from 1, the bytes of the line).

    Raises CotextError for a line of more than MAX_LINE_BYTES, and for what begins as a binary file does.
    """
    with opened(path) as stream:
        for number, raw in enumerate(iter(partial(stream.readline, MAX_LINE_BYTES + 1), b""), 1):
            if len(raw) > MAX_LINE_BYTES:
                raise CotextError(f"{path}:{number}: a line of more than {MAX_LINE_BYTES:,} bytes; split it")
            if number == 1:
                refuse(path, binary_kind(raw))
            yield number, raw


def describe_invalid(raw: bytes, error: UnicodeDecodeError, number: int) -> str:
    """Say which byte of a line is no UTF-8 and, where the file's beginning tells it, what the file is."""
    hint = "convert the file to UTF-8"
    if number == 1:
        hint = next((text for magic, text in _FOREIGN_BEGINNINGS if raw.startswith(magic)), hint)
    return f"invalid UTF-8, byte {error.start + 1} of the line is 0x{raw[error.start]:02x}; {hint}"


def read_whole(path: Path) -> str:
    """The text of a file that is not a corpus, unpacked where its beginning says that it is compressed.

    A byte order mark is left out. Raises CotextError for a file that is missing, not UTF-8, or larger than
    MAX_WHOLE_BYTES, and as `refuse_named_pipe` does.
    """
    check_readable(path)
    refuse_named_pipe(path)
    try:
        with path.open("rb") as raw:
            content = raw.read(MAX_WHOLE_BYTES + 1)
        if content.startswith(XZ_BEGINNING):
            with lzma.open(io.BytesIO(content)) as plain:
                content = plain.read(MAX_WHOLE_BYTES + 1)
        elif content.startswith(GZ_BEGINNING):
            with gzip.open(io.BytesIO(content)) as unzipped:
                content = unzipped.read(MAX_WHOLE_BYTES + 1)
    except READ_ERRORS as error:
        raise _cannot_be_read(path, error) from error
    if len(content) > MAX_WHOLE_BYTES:
        raise CotextError(f"{path}: holds more than {MAX_WHOLE_BYTES:,} bytes; split it")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CotextError(f"{path}: not UTF-8 at byte {error.start}; convert the file") from None


def refuse_named_pipe(path: Path) -> None:
    """Raise CotextError for a pipe in a folder, into which nobody may ever write.

    Those that a shell makes for `<(...)` have somebody at the other end.
    """
    if path.is_fifo() and not str(path.absolute()).startswith(("/dev/fd/", "/dev/stdin", "/proc/")):
        raise CotextError(f"{path}: is a named pipe; give a file, or a command as in <(...)")


class TextSink:
    """A UTF-8 file in the making under a temporary name beside `path`, compressed by the ending of `path`.

    The old file stays untouched until `commit`. Every failure to write becomes a CotextError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # A link stays a link, and what it points to is replaced.
        self.final = Path(os.path.realpath(path))
        with self._named_errors():
            if self.final.is_dir():
                raise CotextError(f"{path}: is a directory; name a file to write")
            if self.final.exists() and not self.final.is_file():
                raise CotextError(f"{path}: is no regular file, and cannot be replaced by one")
            if not self.final.parent.is_dir():
                raise CotextError(f"{path}: the folder {path.parent} does not exist; create it first")
        self._temporary = temporary_name(self.final)
        self._empty = True
        self._replaces = True
        sweep(self.final)
        with self._named_errors():
            self._file = self._temporary.open("xb")
        self._stream: IO[bytes] = self._file
        if path.suffix == ".xz":
            self._stream = lzma.LZMAFile(self._file, "wb")  # noqa: SIM115 - closed by finish and discard
        elif path.suffix == ".gz":
            # The time of writing would make equal documents differ as files.
            self._stream = cast(IO[bytes], gzip.GzipFile("", "wb", fileobj=self._file, mtime=0))

    def write(self, text: str) -> None:
        """Append text; raises UnicodeEncodeError for a lone surrogate, CotextError where storage refuses."""
        if self._empty and text:
            self._empty = False
            if text.startswith("\ufeff"):
                raise CotextError(
                    f"{self.path}: the text begins with U+FEFF, which reading takes for a byte order mark; "
                    "remove it from the first sentence"
                )
        self._put(text.encode())

    def mark(self) -> None:
        """Put a byte order mark first, for programs that take UTF-8 without one for another encoding."""
        self._empty = False
        self._put(BYTE_ORDER_MARK)

    def _put(self, data: bytes) -> None:
        with self._named_errors():
            self._stream.write(data)

    def finish(self) -> None:
        """Bring everything to storage, still under the temporary name."""
        with self._named_errors():
            self._stream.close()
            self._file.close()

    def keep_old(self) -> None:
        """Turn `commit` into a step that leaves the old file as it is."""
        self._replaces = False

    def commit(self) -> None:
        """Give the finished file its name."""
        if not self._replaces:
            return
        with self._named_errors():
            self._temporary.replace(self.final)

    def discard(self) -> None:
        """Remove the temporary file, whatever state it is in."""
        for stream in (self._stream, self._file):
            # A full disk may refuse the last buffer a second time; the first refusal is the one reported.
            try:
                stream.close()
            except (OSError, ValueError):
                continue
        self._temporary.unlink(missing_ok=True)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CotextError(
                f"{self.path}: cannot be written: {error.strerror or error}; make room or choose another "
                "place "
                "(an older file of this name is unchanged)"
            ) from error


@contextmanager
def atomic_sinks(paths: Sequence[Path]) -> Iterator[list[TextSink]]:
    """Open a sink for each path; all get their names when the block succeeds, none when it raises."""
    if len({os.path.realpath(path) for path in paths}) < len(paths):
        raise CotextError(f"the same file is to be written twice: {', '.join(map(str, paths))}")
    sinks: list[TextSink] = []
    try:
        for path in paths:
            sinks.append(TextSink(path))
        yield sinks
        for sink in sinks:
            sink.finish()
        for sink in sinks:
            sink.commit()
    finally:
        for sink in sinks:
            sink.discard()


def without_compression(path: Path) -> Path:
    """Give `train.en` for `train.en.xz`."""
    return path.with_suffix("") if path.suffix in COMPRESSIONS else path


def beginning(path: Path, max_bytes: int) -> tuple[bytes, bool]:
    """Give up to `max_bytes` decompressed bytes without a byte order mark, and whether that is all."""
    with opened(path) as stream:
        head = stream.read(max_bytes + 1)
    return head[:max_bytes].removeprefix(BYTE_ORDER_MARK), len(head) <= max_bytes


def same_file(first: Path, second: Path) -> bool:
    """Tell whether two names lead to one file, without asking that it exists."""
    return os.path.realpath(first) == os.path.realpath(second)


# --- Records: the documents of a file in any format, with their lines.

Side = Literal["source", "target"]

# A document is held in memory as a whole, every sentence beside it.
MAX_DOCUMENT_BYTES = 1 << 30
SENTENCE_BYTES = 64  # that a sentence takes beside its characters

# What surrounds a sentence in a line and is no part of it. Deliberately narrow: a line of U+3000 or a
# no-break space is a sentence, because treating it as empty would shift everything after it.
OUTER_SPACE = " \t\r"


@dataclass(frozen=True, slots=True)
class Record:
    """A document as a file holds it, in one language (`sentences`) or two (`source`, `target`).

    `line` is where its first sentence begins; `lines_per_sentence` is 1 where each sentence has a line of
    its own, and 0 where the whole document shares one place.
    """

    id: str
    line: int = 0
    lines_per_sentence: int = 0
    sentences: tuple[str, ...] | None = None
    source: tuple[str, ...] | None = None
    target: tuple[str, ...] | None = None

    def side(self, side: Side) -> tuple[str, ...] | None:
        """Give the sentences of one side; a document in one language serves as either."""
        if self.sentences is not None:
            return self.sentences
        return self.source if side == "source" else self.target

    def line_of(self, sentence: int) -> int:
        """Give the line of sentence number `sentence`, counted from 0."""
        return self.line + sentence * self.lines_per_sentence


@dataclass(slots=True)
class Alignment:
    """`unequal`: documents left out of a corpus, as their sides are of unequal numbers of sentences."""

    unequal: int = 0


class Gathered(list[str]):
    """The sentences of the document that is being read.

    `append` raises CotextError where the document takes more than MAX_DOCUMENT_BYTES: a file in which nothing
    ends a document unpacks into one that no memory holds.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._bytes = 0

    def append(self, sentence: str) -> None:
        """Add a sentence."""
        self._bytes += len(sentence) + SENTENCE_BYTES
        if self._bytes > MAX_DOCUMENT_BYTES:
            raise CotextError(
                f"{self._path}: a document of more than {len(self):,} sentences and {MAX_DOCUMENT_BYTES:,} "
                "bytes, more than memory is taken for; mark where documents end, or split the file"
            )
        super().append(sentence)


def sentences_to_write(record: Record) -> tuple[str, ...]:
    """Give the sentences of a one-language record, fit to stand on a line each: outer white space removed.

    Raises CotextError for a sentence that contains a line feed or a NUL character.
    """
    if record.sentences is None:
        raise CotextError(f"document {record.id!r} has two languages; this format holds one language a file")
    return tuple(one_line(record.id, i, text).strip(OUTER_SPACE) for i, text in enumerate(record.sentences))


def one_line(document_id: str, index: int, sentence: str) -> str:
    """Give the sentence back unchanged; raises CotextError where it contains a line feed or NUL."""
    if "\n" in sentence or "\0" in sentence:
        what = "a line feed" if "\n" in sentence else "a NUL character"
        raise CotextError(
            f"document {document_id!r}, sentence {index + 1}: contains {what}; a sentence is one line of "
            "text, "
            "replace it by a space or split the sentence"
        )
    return sentence


def without_breaks(text: str) -> str:
    """The text of a segment on one line: line breaks, with the space around them, are a space."""
    lines = (line.strip(" \t") for line in text.split("\n")) if "\n" in text else (text,)
    return " ".join(filter(None, lines)).strip(OUTER_SPACE)


def id_to_write(record: Record) -> str:
    """Give the id; raises CotextError where it is empty or could not be read back from a line."""
    if not record.id or record.id != record.id.strip(OUTER_SPACE) or any(c in record.id for c in "\t\n\0"):
        raise CotextError(
            f"document id {record.id!r} cannot be written: an id is not empty, has no outer white space, and "
            "contains no tab, line feed or NUL"
        )
    return record.id
