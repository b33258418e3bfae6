"""Files at addresses such as `s3://bucket/train.parquet`, read through fsspec without a copy on the disk.

Whatever fsspec knows can be read: `https`, `s3`, `gs`, `az`, `hf` and others, each with the package that it
needs (`pip install aiohttp`, `s3fs` and the like), which is told as it wishes who may read. Nothing is
written there.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, cast

from cotext.runtime.errors import CotextError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_ADDRESS: Final = re.compile(r"([a-z][a-z0-9+.-]+):/(.+)", re.DOTALL)
_ROOTED: Final = ("file", "local", "memory")  # whose paths begin with a slash, as in file:///home


def address_of(path: Path) -> str | None:
    """The address that a path was made of; None for a file of this machine.

    `pathlib` reads `s3://bucket/key` as the relative path `s3:/bucket/key`.
    """
    if not (found := _ADDRESS.match(str(path))) or path.exists():
        return None
    import fsspec

    if found[1] not in fsspec.available_protocols():
        return None
    return f"{found[1]}:{'///' if found[1] in _ROOTED else '//'}{found[2]}"


def absolute(path: Path) -> Path:
    """The same file by a name that holds in every working folder; an address as it is."""
    return path.absolute() if address_of(path) is None else path


def named_in(path: Path, folder: Path) -> Path:
    """The file that a path named where `folder` was the working folder, as it is named in this one."""
    return path if address_of(path) is not None or folder == Path.cwd() else folder / path


def require_here(out: Path) -> None:
    """Raise CotextError for an output at an address, which `pathlib` would take for a folder of that name."""
    if (address := address_of(out)) is not None:
        raise CotextError(
            f"{address}: only what is read may be at an address; write to a disk, and copy it there"
        )


def address_exists(address: str) -> bool:
    """Whether there is a file at an address.

    Raises:
        CotextError: nobody answers, or what fsspec needs is not installed.
    """
    with _named(address):
        return bool(_found(address).isfile(address))


@contextmanager
def opened_address(address: str) -> Iterator[IO[bytes]]:
    """The content of a file at an address, read as it is asked for, forwards or at places.

    Raises:
        CotextError: no such file; else as `address_exists`.
    """
    with _named(address):
        stream = _found(address).open(address, "rb")
    with stream:
        yield cast(IO[bytes], _Named(stream, address))


class _Named:
    """A stream whose failures name the address."""

    def __init__(self, stream: Any, address: str) -> None:
        self._stream, self._address = stream, address
        self.closed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def read(self, size: int = -1) -> bytes:
        with _named(self._address):
            return cast(bytes, self._stream.read(size))

    def readline(self, size: int = -1) -> bytes:
        with _named(self._address):
            return cast(bytes, self._stream.readline(size))


def _found(address: str) -> "AbstractFileSystem":
    import fsspec

    return fsspec.core.url_to_fs(address)[0]


@contextmanager
def _named(address: str) -> Iterator[None]:
    try:
        yield
    except CotextError:
        raise
    except FileNotFoundError:
        raise CotextError(f"{address}: no such file") from None
    except ImportError as error:
        raise CotextError(f"{address}: cannot be read without another package: {error}") from None
    except Exception as error:  # every system has errors of its own
        said = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise CotextError(f"{address}: cannot be read: {said}") from None
