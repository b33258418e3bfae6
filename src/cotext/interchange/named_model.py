"""Models on this machine that have a name: licence, size and checksums."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cotext.models.run_folder import noted_import
from cotext.runtime.errors import CotextError, shown
from cotext.runtime.files import discard
from cotext.runtime.integrity import digests, require_whole
from cotext.runtime.reading import parse_yaml, read_text

CHECKSUMS: Final = "SHA256SUMS"  # in the format of `sha256sum`; verify with `sha256sum -c`
CARD: Final = "README.md"

_SUM = re.compile(r"([0-9a-f]{64}) [ *](.+)")
_HEAD = re.compile(r"---\n(.*?)\n---\n", re.DOTALL)


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model on this machine with a name.

    `package` is the name of the Python package that contains the model, or empty for a model in the cache.
    """

    name: str
    folder: Path
    package: str = ""

    @property
    def licence(self) -> str:
        """The licence recorded when the model was imported, or given in the model card; empty if unknown."""
        if stated := noted_import(self.folder).get("licence"):
            return str(stated)
        try:
            head = _HEAD.match(read_text(self.folder / CARD))
            content = parse_yaml(head[1], CARD) if head else None
        except CotextError:
            return ""
        return str(content.get("license") or "") if isinstance(content, dict) else ""

    @property
    def size(self) -> int:
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    def verify(self) -> int:
        """Compare the files with their checksums; return the number of files."""
        path, sums = self.folder / CHECKSUMS, {}
        for line in read_text(path).splitlines():
            match = _SUM.fullmatch(line)
            if match is None or ".." in Path(match[2]).parts or Path(match[2]).is_absolute():
                raise CotextError(f"{path}: {shown(line)} is not the checksum of a file in this folder")
            sums[match[2]] = match[1]
        remedy = f"install {self.package} again" if self.package else f"`cotext models remove {self.name}`"
        require_whole(self.folder, sums, remedy)
        return len(sums)

    def remove(self) -> None:
        """Delete the model from the cache; raise CotextError for a model of an installed package."""
        if self.package:
            raise CotextError(
                f"{self.name}: is an installed package; remove it with pip uninstall {self.package}"
            )
        discard(self.folder)


def write_checksums(folder: Path) -> None:
    """Write the SHA-256 checksums of all files of a folder into its file SHA256SUMS."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != CHECKSUMS)
    lines = [f"{digest}  {name}\n" for name, digest in digests(folder, files).items()]
    (folder / CHECKSUMS).write_text("".join(lines), encoding="utf-8")
