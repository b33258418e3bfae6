"""Names of the parts that fill slots, and parts of a user's own file.

A slot of `Part` takes the name of a shipped part or, as in `idea.py:MyScore`, a class of a file. A recipe
names the file relative to itself, an override relative to the working folder. What is read becomes
`idea.py:MyScore@0123456789abcdef`, with the beginning of the file's SHA-256: so it stands in configurations
and signatures.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import AfterValidator

from cotext.runtime.own_code import Code, known

DOCUMENT_LAYERS: Final[Mapping[str, str]] = {  # name: where its class is
    "segment_gate": "cotext.models.mcn:SegmentGate",
    "hierarchical": "cotext.models.han:HierarchicalAttention",
}
OWN: Final = re.compile(
    r"(?P<file>[\w./\\-]*?(?P<name>[\w-]+\.py)):(?P<kind>[A-Za-z_]\w*)(?:@(?P<digest>[0-9a-f]{16}))?"
)


@dataclass(frozen=True, slots=True)
class Part:
    """A check that a value is one of the shipped names, or names a class of a file."""

    names: tuple[str, ...]

    def __call__(self, value: str) -> str:
        """The value; ValueError where it is neither."""
        if value in self.names or OWN.fullmatch(value):
            return value
        names = ", ".join(map(repr, self.names))
        raise ValueError(f"input should be {names} or a class of a file, as in idea.py:MyPart")


def names_of(metadata: object) -> tuple[str, ...]:
    """The shipped names that a type's annotation allows; none where it is of no slot."""
    check = metadata.func if isinstance(metadata, AfterValidator) else None
    return check.names if isinstance(check, Part) else ()


def is_own(name: str) -> bool:
    """Whether a filling is a class of a user's file."""
    return OWN.fullmatch(name) is not None


def pinned(content: Any, folder: Path) -> Any:
    """A nested mapping in which files of own parts are read, and named with their checksums.

    Raises:
        CotextError: no such file, or its checksum is another one.
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
    """The own parts that a nested mapping names."""
    if isinstance(content, dict):
        for value in content.values():
            yield from own_parts(value)
    elif isinstance(content, str) and (match := OWN.fullmatch(content)):
        yield match
