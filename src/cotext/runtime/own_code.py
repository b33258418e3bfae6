"""Python files of users with parts of a model: kept with a run, and run once they are trusted.

A file is trusted by its SHA-256, in `cotext/trusted-code` of the user's configuration folder. A run that
comes from elsewhere can bring code; it is not run before the user agrees (`--trust-code`).
"""

import hashlib
import os
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final

from cotext.runtime.errors import CotextError
from cotext.runtime.files import replacing
from cotext.runtime.reading import read_text

FOLDER: Final = "code"  # of a run, with the files that its model needs
TRUSTED: Final = "trusted-code"
MAX_BYTES: Final = 1 << 20
_codes: dict[str, "Code"] = {}  # by the beginning of their checksums, which configurations name
_allowed = False


@dataclass(frozen=True, slots=True)
class Code:
    """A Python file as it was read."""

    path: Path
    text: str

    @classmethod
    def read(cls, path: Path, digest: str | None = None) -> "Code":
        """Read a file, which `module` can run from now on.

        Raises:
            CotextError: it cannot be read, or does not begin with this SHA-256.
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
        """SHA-256 of the text, in hexadecimal digits."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@contextmanager
def trusting(all_code: bool) -> Iterator[None]:
    """Trust all code that is met meanwhile, if asked to; what is run is remembered for later."""
    global _allowed
    before, _allowed = _allowed, _allowed or all_code
    try:
        yield
    finally:
        _allowed = before


def known() -> Collection[str]:
    """The beginnings of the checksums of files that were read."""
    return _codes.keys()


def code_of(digest: str, name: str) -> Code:
    """A file that was read, by the beginning of its SHA-256.

    Raises:
        CotextError: none was read.
    """
    if digest not in _codes:
        raise CotextError(
            f"{FOLDER}/{name}: is missing in the run folder, or was changed; its model needs it"
        )
    return _codes[digest]


def module(digest: str, name: str) -> ModuleType:
    """Run a file that was read, once in a process.

    Raises:
        CotextError: it was not read, is not trusted, or fails.
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
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "cotext" / TRUSTED


def _trusted() -> set[str]:
    path = _list()
    lines = read_text(path).splitlines() if path.is_file() else []
    return {line.split()[0] for line in lines if line.strip()}


def _remember(code: Code) -> None:
    """Note that a file is trusted; where that cannot be written, it holds for this process alone."""
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
