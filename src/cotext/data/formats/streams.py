"""Bytes of corpus files: transparent .xz and .gz, lines that only a line feed ends, atomic writing.

Files are read as streams, whatever their size; what must fit into memory at once, a line, has a limit, so
that a small compressed file cannot unpack into all there is.
"""

import gzip
import io
import lzma
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, cast

from cotext.data.formats.foreign import binary_kind, refuse
from cotext.runtime.addresses import address_exists, address_of, opened_address
from cotext.runtime.errors import CotextError
from cotext.runtime.files import sweep, temporary_name

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
    if (address := address_of(path)) is not None:
        if not address_exists(address):
            raise CotextError(f"{address}: no such file")
        return
    try:
        if path.is_dir():
            raise CotextError(f"{path}: is a directory; name the corpus file inside it")
        if not path.exists():
            raise CotextError(f"{path}: no such file")
    except OSError as error:
        raise CotextError(f"{path}: cannot be read: {error.strerror or error}") from error


def is_regular(path: Path) -> bool:
    """Whether a file that is there can be read more than once."""
    return path.is_file() or address_of(path) is not None


def opened_raw(path: Path) -> AbstractContextManager[IO[bytes]]:
    """Open a file, or what an address leads to, for reading as it is."""
    address = address_of(path)
    return path.open("rb") if address is None else opened_address(address)


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading, decompressed by the ending of its name; reading errors become CotextError.

    An address (`cotext.runtime.addresses`) is read as it is asked for.
    """
    check_readable(path)
    try:
        with opened_raw(path) as raw:
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
        with opened_raw(path) as raw:
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
