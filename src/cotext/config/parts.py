"""Names of the parts of a model: parts of the package, or classes in Python files of users.

A key of type `Part` names a part of the package, or a class of a Python file, such as
`idea.py:MyScore`. The path is relative to the recipe or, in a setting on the command line, to the working
folder. In loaded configurations and in signatures of scores, a prefix of the SHA-256 of the file is added:
`idea.py:MyScore@0123456789abcdef`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cotext.runtime.own_code import Code, known

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

    Raises:
        CotextError: no such file, or its checksum differs.
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
