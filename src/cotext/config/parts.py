"""Names of the parts of a model: parts of the package, or classes in Python files of users.

A class is named by its file, such as `idea.py:MyScore`. The path is relative to the recipe or, on the command
line, to the working folder. In loaded configurations and in signatures of scores, a prefix of the SHA-256 of
the file is added: `idea.py:MyScore@0123456789abcdef`.
"""

import hashlib
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from cotext.runtime import CotextError, read_text
from cotext.runtime.files import standard_folder, write_text

# --- User-written Python files that define components of a model. A copy is stored with the run.
#
# Code is executed only if the SHA-256 of its file is listed in `cotext/trusted-code` in the configuration
# folder of the user. Code of a downloaded run is not executed before the user agrees (`--trust-code`).


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
        """Read a file and register it for `module`; raise CotextError if it does not match `digest`."""
        code = cls(path, read_text(path, max_bytes=MAX_BYTES))
        if digest is not None and not code.digest.startswith(digest):
            raise CotextError(
                f"{path}: was modified: its SHA-256 begins with {code.digest[:16]}, not with {digest}; "
                "restore it, or train a new run with the changed file"
            )
        _codes[code.digest[:16]] = code
        return code

    @property
    def digest(self) -> str:
        """SHA-256 of the text, in hexadecimal."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@contextmanager
def trusting(all_code: bool) -> Iterator[None]:
    """Trust all code within the block if `all_code`; executed files are added to the trusted files."""
    global _allowed
    before, _allowed = _allowed, _allowed or all_code
    try:
        yield
    finally:
        _allowed = before


def known() -> Collection[str]:
    """Return the checksum prefixes (16 digits) of all registered files."""
    return _codes.keys()


def code_of(digest: str, name: str) -> Code:
    """Return the registered file whose SHA-256 has this prefix; raise CotextError if there is none."""
    if digest not in _codes:
        raise CotextError(
            f"{FOLDER}/{name}: is missing in the run folder or was modified; the model of this run cannot be "
            "loaded without it"
        )
    return _codes[digest]


def module(digest: str, name: str) -> ModuleType:
    """Execute a registered file once per process; raise CotextError if it fails or is not trusted."""
    full_name = f"cotext_own_code_{digest}"
    if full_name in sys.modules:
        return sys.modules[full_name]
    code = code_of(digest, name)
    if _allowed:
        _remember(code)
    elif code.digest not in _trusted():
        raise CotextError(
            f"{code.path}: the model needs this Python file, which is not trusted yet; review it, then pass "
            "--trust-code (Python: trust_code=True) once"
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


def _trusted_list_path() -> Path:
    return standard_folder("XDG_CONFIG_HOME", ".config") / TRUSTED


def _trusted() -> set[str]:
    path = _trusted_list_path()
    lines = read_text(path).splitlines() if path.is_file() else []
    return {line.split()[0] for line in lines if line.strip()}


def _remember(code: Code) -> None:
    """Add a file to the list of trusted files; do nothing if the list cannot be written."""
    if code.digest in _trusted():
        return
    path = _trusted_list_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        before = read_text(path) if path.is_file() else ""
        write_text(path, f"{before}{code.digest}  {code.path.name}\n")
    except OSError:
        pass


DOCUMENT_LAYERS: Final[Mapping[str, str]] = {  # name: module and class
    "segment_gate": "cotext.models.mcn:SegmentGate",
    "hierarchical": "cotext.models.han:HierarchicalAttention",
    "selective": "cotext.models.san:SelectiveAttention",
}
OWN: Final = re.compile(
    r"(?P<file>(?:[\w./\\-]*[./\\])?(?P<name>[\w-]+\.py)):(?P<kind>[A-Za-z_]\w*)(?:@(?P<digest>[0-9a-f]{16}))?"
)


@dataclass(frozen=True, slots=True)
class Part:
    """Check that a value is a shipped name or a class of a file."""

    names: tuple[str, ...]

    def __call__(self, value: str) -> str:
        """Return the value; raises ValueError if it is neither."""
        if value in self.names or OWN.fullmatch(value):
            return value
        names = ", ".join(map(repr, self.names))
        raise ValueError(f"input should be {names} or a class of a file, such as idea.py:MyPart")


def is_own(name: str) -> bool:
    """Return whether a name refers to a class in a file of the user."""
    return OWN.fullmatch(name) is not None


def pinned(content: Any, folder: Path) -> Any:
    """Read the files of users' parts in a nested mapping, and add their checksums to the names.

    Raises CotextError: no such file, or its checksum differs.
    """
    if isinstance(content, dict):
        return {key: pinned(value, folder) for key, value in content.items()}
    if not isinstance(content, str) or not (match := OWN.fullmatch(content)):
        return content
    digest = match["digest"]
    if digest not in known():
        digest = Code.read(folder / match["file"], digest).digest[:16]
    return f"{match['name']}:{match['kind']}@{digest}"


def own_parts(content: Any) -> Iterator[re.Match[str]]:
    """Yield the names of users' parts in a nested mapping."""
    if isinstance(content, dict):
        for value in content.values():
            yield from own_parts(value)
    elif isinstance(content, str) and (match := OWN.fullmatch(content)):
        yield match


def code_files(content: Any) -> list[str]:
    """Return the files of users' parts in a nested mapping, as paths in a run folder."""
    return sorted({f"{FOLDER}/{part['name']}" for part in own_parts(content)})
