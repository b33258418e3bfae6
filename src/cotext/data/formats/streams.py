"""Reading and writing of corpus files as streams: decompression, lines, limits, atomic writing.

Lines and documents, which must fit into memory, have a maximum size, so a small compressed file cannot fill
the memory. Files themselves may have any size. Only a line feed ends a line.
"""

import gzip
import io
import lzma
import os
import re
import sys
import zlib
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, Literal, cast

from cotext.runtime import CotextError
from cotext.runtime.files import ON_WINDOWS, replacing

# --- Detection of files that are not corpora: markup, subtitles, office documents, binary files.
#
# Messages name the kind of file instead of an invalid byte. Rules look at more than the first characters,
# because an ordinary sentence may begin with "<", "1" or "GIF89a".

# Elements of older test sets (mteval); a file has one of them, with documents of one language.
ONE_LANGUAGE_SETS: Final = ("srcset", "refset", "tstset")
# Root elements that the reader of wmt-xml accepts.
CORPUS_ROOTS: Final = ("dataset", "collection", "doc", "mteval", *ONE_LANGUAGE_SETS)

_PDF = re.compile(rb"%PDF-\d\.\d[ \t]*[\r\n]")
_LOOKED_AT = 1 << 12  # bytes at the beginning that are checked
XZ_BEGINNING, GZ_BEGINNING = b"\xfd7zXZ\0", b"\x1f\x8b"
# Files that can be converted to text, and how.
_CONVERTIBLE: Final = {
    b"\xff\xfe": "it looks like UTF-16: convert it to UTF-8",
    b"\xfe\xff": "it looks like UTF-16: convert it to UTF-8",
    XZ_BEGINNING: "it looks xz-compressed: add .xz to the file name",
    GZ_BEGINNING: "it looks gzip-compressed: add .gz to the file name",
}

MARKUP: Final = {"html": "HTML", "head": "HTML", "body": "HTML", "xliff": "XLIFF"}
# Root elements that are recognised without an XML declaration, because such files are common.
_BARE_ROOTS: Final = (*MARKUP, "tmx")
_DOCTYPE = r"<!DOCTYPE[^\[>]*(?:\[[^\]]*\]\s*)?>"
_PROLOG = re.compile(rf"(?:\s+|<\?.*?\?>|<!--.*?-->|{_DOCTYPE})*", re.DOTALL | re.IGNORECASE)
_ROOT = re.compile(r"<(?:\w+:)?([A-Za-z][\w.-]*)(?=[\s/>])[^<>]*>")
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_SRT_TIME = re.compile(r"\d{1,2}:\d\d:\d\d[,.]\d{1,3} --> \d{1,2}:\d\d:\d\d[,.]\d{1,3}\b")
_VTT_TIME = re.compile(r"(?:\d+:)?\d\d:\d\d\.\d{3} --> (?:\d+:)?\d\d:\d\d\.\d{3}\b")


def refuse(path: Path, kind: str) -> None:
    """Raise CotextError for a file of this kind; do nothing if `kind` is empty."""
    if kind:
        raise CotextError(
            f"{path}: not a supported format: it looks like {kind}; extract its text (one sentence per line, "
            "an empty line between documents), or use another format of docs/data-format.md"
        )


def binary_kind(head: bytes) -> str:
    """Return the kind of a binary file, detected from its beginning; empty for text in any encoding.

    Files in UTF-16 or compressed by gzip or xz do not count as binary: they can be converted to text.
    """
    if head.startswith((b"PK\3\4", b"PK\5\6")):
        return "an office document (such as docx or xlsx) or another zip archive"
    if _PDF.match(head):
        return "a PDF document"
    if head.startswith(b"{\\rtf1"):
        return "a rich text document (rtf)"
    looked_at = head[:_LOOKED_AT]
    if head.startswith(tuple(_CONVERTIBLE)) or b"\0" not in looked_at:
        return ""
    try:
        getincrementaldecoder("utf-8")().decode(looked_at)  # the last character may be cut off
    except UnicodeDecodeError:
        return "a Parquet table" if head.startswith(b"PAR1") else "a binary file"
    return ""


def markup_root(text: str) -> str:
    """Return the name of the root element of XML or HTML in lower case; empty for other text."""
    prolog = _PROLOG.match(text)
    begin = prolog.end() if prolog else 0
    declared = text[:begin].strip()
    root = _ROOT.match(text, begin)
    if root is None:
        # Malformed XML counts as a corpus, so that its reader reports the error.
        return CORPUS_ROOTS[0] if declared and text.startswith("<", begin) else ""
    name = root[1].lower()
    if declared or name in CORPUS_ROOTS:
        return "html" if re.search(r"<!DOCTYPE\s+html", declared, re.IGNORECASE) else name
    # In markup, another tag follows the first one; in a sentence about a tag, words follow.
    if name not in _BARE_ROOTS:
        return ""
    rest = text[root.end() :].lstrip()
    return name if rest.startswith("<!--") or _TAG.match(rest) else ""


def subtitle_kind(lines: list[str]) -> str:
    """Return the kind of subtitles, detected from the first lines; empty for other text."""
    first = [line.strip() for line in lines if line.strip()][:200]
    if not first:
        return ""
    if first[0].isdigit() and len(first) > 1 and _SRT_TIME.match(first[1]):
        return "subtitles (SubRip, srt)"
    if re.match(r"WEBVTT(?:\s|$)", first[0]) and any(map(_VTT_TIME.match, first)):
        return "subtitles (WebVTT)"
    return "subtitles (ASS, SSA)" if first[0] == "[Script Info]" else ""


class _XzContent(io.RawIOBase):
    """The decompressed content of all streams of an xz file, and of padding between them.

    `lzma.open` takes padding, or a damaged later stream, for the end of the file.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._stream = lzma.LZMADecompressor()
        self._is_between = False  # between two streams, or after the last one

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        plain = b""
        while not plain:
            packed = self._stream.unused_data
            if self._stream.eof:
                self._stream, self._is_between = lzma.LZMADecompressor(), True
            elif self._stream.needs_input:
                packed = self._file.read(io.DEFAULT_BUFFER_SIZE)
                if not packed and self._is_between:
                    return 0
                if not packed:
                    raise EOFError("Compressed file ended before the end-of-stream marker was reached")
            if self._is_between:
                packed = packed.lstrip(b"\0")  # padding
                self._is_between = not packed
            plain = self._stream.decompress(packed, len(buffer))
        buffer[: len(plain)] = plain
        return len(plain)


_UNPACK: Final[dict[str, Callable[..., Any]]] = {".xz": _XzContent, ".gz": gzip.open}
COMPRESSIONS = tuple(_UNPACK)
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_LINE_BYTES = 1 << 24  # enough for a document of three million words on one line
MAX_WHOLE_BYTES = 1 << 28  # decompressed, of a file that is not a corpus
READ_ERRORS = (OSError, EOFError, lzma.LZMAError, zlib.error)


def check_readable(path: Path) -> None:
    """Raise CotextError if there is no such file, or it is a directory."""
    try:
        if path.is_dir():
            raise CotextError(f"{path}: is a directory; pass the corpus file inside it")
        if not path.exists():
            raise CotextError(f"{path}: no such file")
    except OSError as error:
        raise CotextError(f"{path}: cannot be read: {error.strerror or error}") from error


@contextmanager
def opened(path: Path, by_content: bool = False) -> Iterator[IO[bytes]]:
    """Open a file for reading; re-raise errors as CotextError.

    It is decompressed by the suffix of its name or, with `by_content`, by its first bytes.
    """
    if ON_WINDOWS and path.as_posix() == "/dev/stdin":  # Windows has no such file
        yield sys.stdin.buffer
        return
    check_readable(path)
    try:
        with path.open("rb") as raw:
            head = raw.peek(len(XZ_BEGINNING)) if by_content else b""
            begins = {".xz": XZ_BEGINNING, ".gz": GZ_BEGINNING}
            found = (suffix for suffix, magic in begins.items() if head.startswith(magic))
            unpack = _UNPACK.get(next(found, "") if by_content else path.suffix)
            if unpack is None:
                yield raw
                return
            with unpack(raw) as plain:
                yield cast(IO[bytes], io.BufferedReader(plain))
    except READ_ERRORS as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CotextError(f"{path}: cannot be read: {reason}") from error


def numbered_lines(path: Path, whole: bool = False) -> Iterator[tuple[int, str]]:
    r"""Yield (line number from 1, line without its ending); only \n and \r\n end a line.

    A byte order mark at the beginning is removed. With `whole`, the byte order mark and line endings are
    kept. Raises CotextError for a binary file, invalid UTF-8, NUL, and a line of more than MAX_LINE_BYTES.
    """
    with opened(path) as stream:
        for number, raw in enumerate(iter(partial(stream.readline, MAX_LINE_BYTES + 1), b""), 1):
            if len(raw) > MAX_LINE_BYTES:
                raise CotextError(f"{path}:{number}: a line of more than {MAX_LINE_BYTES:,} bytes; split it")
            if number == 1:
                refuse(path, binary_kind(raw))
            try:
                line = raw.decode()
            except UnicodeDecodeError as error:
                hints = (
                    text for magic, text in _CONVERTIBLE.items() if number == 1 and raw.startswith(magic)
                )
                raise CotextError(
                    f"{path}:{number}: invalid UTF-8, byte {error.start + 1} of the line is "
                    f"0x{raw[error.start]:02x}; {next(hints, 'convert the file to UTF-8')}"
                ) from None
            if "\0" in line:
                raise CotextError(f"{path}:{number}: contains a NUL character; remove it")
            if not whole:
                line = line.removesuffix("\n").removesuffix("\r")
                line = line.removeprefix("\ufeff") if number == 1 else line
            yield number, line


def read_whole(path: Path) -> str:
    """Return the text of a file that is not a corpus; it is decompressed if its content is compressed.

    A byte order mark is removed. Raises CotextError if the file is missing, not UTF-8, larger than
    MAX_WHOLE_BYTES, or a named pipe.
    """
    refuse_named_pipe(path)
    with opened(path, by_content=True) as stream:
        content = stream.read(MAX_WHOLE_BYTES + 1)
    if len(content) > MAX_WHOLE_BYTES:
        raise CotextError(f"{path}: contains more than {MAX_WHOLE_BYTES:,} bytes; split it")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CotextError(f"{path}: not UTF-8 at byte {error.start}; convert the file") from None


def refuse_named_pipe(path: Path) -> None:
    """Raise CotextError for a named pipe, because reading would wait for a writer.

    Pipes that a shell creates for `<(...)` have a writer, and are allowed.
    """
    if path.is_fifo() and not str(path.absolute()).startswith(("/dev/fd/", "/dev/stdin", "/proc/")):
        raise CotextError(f"{path}: is a named pipe; pass a file, or a command such as <(...)")


class TextSink:
    """A text file that is being written; see `atomic_sinks`."""

    def __init__(self, path: Path, stream: IO[bytes]) -> None:
        self.path = path
        self._stream = stream
        self._empty = True

    def write(self, text: str) -> None:
        """Append text; raises UnicodeEncodeError for a lone surrogate."""
        if self._empty and text:
            self._empty = False
            if text.startswith("\ufeff"):
                raise CotextError(
                    f"{self.path}: the text begins with U+FEFF, which would be read as a byte order mark; "
                    "remove it from the first sentence"
                )
        self._stream.write(text.encode())


@contextmanager
def atomic_sinks(paths: Sequence[Path]) -> Iterator[list[TextSink]]:
    """Open UTF-8 files for writing, compressed by their suffixes.

    All files appear if the block succeeds. If it raises, existing files are unchanged. Raises CotextError for
    storage errors.
    """
    finals = [Path(os.path.realpath(path)) for path in paths]  # symbolic links are kept
    if len({*finals}) < len(paths):
        raise CotextError(f"the same file is to be written twice: {', '.join(map(str, paths))}")
    with ExitStack() as files:
        temporaries = []
        for path, final in zip(paths, finals, strict=True):
            temporaries.append(files.enter_context(replacing(final)))
            if final.is_dir():
                raise CotextError(f"{path}: is a directory; pass a file to write")
            if final.exists() and not final.is_file():
                raise CotextError(f"{path}: is not a regular file, and cannot be replaced by a file")
            if not final.parent.is_dir():
                raise CotextError(f"{path}: the folder {path.parent} does not exist; create it first")
        with ExitStack() as streams:  # all files are complete before the first one is replaced
            yield [
                TextSink(path, _compressed(streams.enter_context(temporary.open("wb")), path, streams))
                for path, temporary in zip(paths, temporaries, strict=True)
            ]


def _compressed(file: IO[bytes], path: Path, streams: ExitStack) -> IO[bytes]:
    if path.suffix == ".xz":
        return streams.enter_context(lzma.LZMAFile(file, "wb"))
    if path.suffix == ".gz":
        # There is no time stamp, so equal content gives equal files.
        return cast(IO[bytes], streams.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0)))
    return file


def without_compression(path: Path) -> Path:
    """Return `train.en` for `train.en.xz`."""
    return path.with_suffix("") if path.suffix in COMPRESSIONS else path


def beginning(path: Path, max_bytes: int) -> tuple[bytes, bool]:
    """Return up to `max_bytes` decompressed bytes without byte order mark, and whether the file has ended."""
    with opened(path) as stream:
        head = stream.read(max_bytes + 1)
    return head[:max_bytes].removeprefix(BYTE_ORDER_MARK), len(head) <= max_bytes


def same_file(first: Path, second: Path) -> bool:
    """Return whether two paths lead to the same file, which need not exist."""
    return os.path.realpath(first) == os.path.realpath(second)


def refuse_input(out: Path | None, inputs: Iterable[Path | None]) -> None:
    """Raise CotextError if an output, if there is one, is also an input."""
    if out is not None and any(path is not None and same_file(path, out) for path in inputs):
        raise CotextError(f"{out}: would overwrite an input file; choose another --out")


# --- Records: the documents of a file in any format, with their lines.

Side = Literal["source", "target"]

# Largest document, which must fit into memory.
MAX_DOCUMENT_BYTES = 1 << 30
SENTENCE_BYTES = 64  # memory of a sentence in addition to its characters

# White space that is removed around sentences. Deliberately few characters: a line with only U+3000 or a
# no-break space is a sentence, because treating it as empty would shift all following sentences.
OUTER_SPACE = " \t\r"


@dataclass(frozen=True, slots=True)
class Record:
    """A document of a file, in one language (`sentences`) or two (`source`, `target`).

    `line`: line where it begins. `lines_per_sentence`: 1 if each sentence is one line, the first at `line`.
    Otherwise 0; messages then give the number of the sentence.
    """

    id: str
    line: int = 0
    lines_per_sentence: int = 0
    sentences: tuple[str, ...] | None = None
    source: tuple[str, ...] | None = None
    target: tuple[str, ...] | None = None

    def side(self, side: Side) -> tuple[str, ...] | None:
        """Return the sentences of one side; a document in one language is used for both sides."""
        if self.sentences is not None:
            return self.sentences
        return self.source if side == "source" else self.target


class Gathered(list[str]):
    """The sentences of the document that is being read.

    `append` raises CotextError if the document exceeds MAX_DOCUMENT_BYTES, because a file without document
    boundaries could fill the memory.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._bytes = 0

    def append(self, sentence: str) -> None:
        self._bytes += len(sentence) + SENTENCE_BYTES
        if self._bytes > MAX_DOCUMENT_BYTES:
            raise CotextError(
                f"{self._path}: a document of more than {len(self):,} sentences and {MAX_DOCUMENT_BYTES:,} "
                "bytes, which is the limit; mark where documents end, or split the file"
            )
        super().append(sentence)


def sentences_to_write(record: Record) -> tuple[str, ...]:
    """Return the sentences of a record in one language without outer white space, to write one per line.

    Raises CotextError for a sentence that contains a line feed or a NUL character.
    """
    if record.sentences is None:
        raise CotextError(
            f"document {record.id!r} has two languages; files of this format contain one language"
        )
    return tuple(one_line(record.id, i, text).strip(OUTER_SPACE) for i, text in enumerate(record.sentences))


def one_line(document_id: str, index: int, sentence: str) -> str:
    """Return the sentence unchanged; raises CotextError if it contains a line feed or NUL."""
    if "\n" in sentence or "\0" in sentence:
        what = "a line feed" if "\n" in sentence else "a NUL character"
        raise CotextError(
            f"document {document_id!r}, sentence {index + 1}: contains {what}; replace it by a space, "
            "or split the sentence (a sentence is one line of text)"
        )
    return sentence


def without_breaks(text: str) -> str:
    """Return the text on one line: line breaks and the white space around them become a space."""
    lines = (line.strip(" \t") for line in text.split("\n")) if "\n" in text else (text,)
    return " ".join(filter(None, lines)).strip(OUTER_SPACE)


def id_to_write(record: Record) -> str:
    """Return the id; raises CotextError if it is empty or could not be read back from a line."""
    if not record.id or record.id != record.id.strip(OUTER_SPACE) or any(c in record.id for c in "\t\n\0"):
        raise CotextError(
            f"document id {record.id!r} cannot be written: an id is not empty, has no outer white space, and "
            "contains no tab, line feed or NUL"
        )
    return record.id
