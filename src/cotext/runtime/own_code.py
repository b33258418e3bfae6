"""Python files of users that define parts of a model. They are stored with the run.

Code is executed only if the SHA-256 of its file is listed in `cotext/trusted-code` in the configuration
folder of the user. Code of a downloaded run is not executed before the user agrees (`--trust-code`).
"""

import hashlib
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final

from cotext.runtime.errors import CotextError
from cotext.runtime.files import replacing, standard_folder
from cotext.runtime.reading import read_text

FOLDER: Final = "code"  # in a run folder: the files that the model needs
TRUSTED: Final = "trusted-code"
MAX_BYTES: Final = 1 << 20
_codes: dict[str, "Code"] = {}  # by the first 16 digits of the checksum, as in configurations
_allowed = False


@dataclass(frozen=True, slots=True)
class Code:
    """The content of a Python file."""

    path: Path
    text: str

    @classmethod
    def read(cls, path: Path, digest: str | None = None) -> "Code":
        """Read a file and register it for `module`.

        Raises:
            CotextError: it cannot be read, or its SHA-256 does not begin with `digest`.
        """
        code = cls(path, read_text(path, max_bytes=MAX_BYTES))
        if digest is not None and not code.digest.startswith(digest):
            raise CotextError(
                f"{path}: was changed: its SHA-256 begins with {code.digest[:16]}, not with {digest}"
            )
        _codes[code.digest[:16]] = code
        return code

    @property
    def digest(self) -> str:
        """SHA-256 of the text, in hexadecimal."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@contextmanager
def trusting(all_code: bool) -> Iterator[None]:
    """Within the block, trust all code if `all_code`; executed files are added to the trusted ones."""
    global _allowed
    before, _allowed = _allowed, _allowed or all_code
    try:
        yield
    finally:
        _allowed = before


def known() -> Collection[str]:
    """Return the beginnings of the checksums of all registered files."""
    return _codes.keys()


def code_of(digest: str, name: str) -> Code:
    """Return a registered file by the beginning of its SHA-256; raises CotextError if there is none."""
    if digest not in _codes:
        raise CotextError(
            f"{FOLDER}/{name}: is missing in the run folder, or was changed; its model needs it"
        )
    return _codes[digest]


def module(digest: str, name: str) -> ModuleType:
    """Import a registered file; in one process, it is executed once.

    Raises:
        CotextError: it is not registered, is not trusted, or raises an error.
    """
    full_name = f"cotext_own_code_{digest}"
    if full_name in sys.modules:
        return sys.modules[full_name]
    code = code_of(digest, name)
    if _allowed:
        _remember(code)
    elif code.digest not in _trusted():
        raise CotextError(
            f"{code.path}: is Python code that the model needs, and would be run; read it, then add "
            "--trust-code (Python: trust_code=True), once for this version of the file"
        )
    made = ModuleType(full_name)
    made.__file__ = str(code.path)
    sys.modules[full_name] = made
    try:
        exec(compile(code.text, str(code.path), "exec"), made.__dict__)
    except Exception as error:
        del sys.modules[full_name]
        raise CotextError(f"{code.path}: {type(error).__name__}: {error}") from error
    return made


def _list() -> Path:
    return standard_folder("XDG_CONFIG_HOME", ".config") / TRUSTED


def _trusted() -> set[str]:
    path = _list()
    lines = read_text(path).splitlines() if path.is_file() else []
    return {line.split()[0] for line in lines if line.strip()}


def _remember(code: Code) -> None:
    """Add a file to the list of trusted ones; ignored if the list cannot be written."""
    if code.digest in _trusted():
        return
    path = _list()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        before = read_text(path) if path.is_file() else ""
        with replacing(path) as temporary:
            temporary.write_text(f"{before}{code.digest}  {code.path.name}\n", encoding="utf-8")
    except OSError:
        pass
