"""Engine folders: a system as another program runs it, with what Cotext needs to translate and score with it.

    cotext.json       the engine and its version, quantization, configuration, checksums of all other files
    tokenizer/        a copy
    data.json         which data the run was trained on, if it is known
    model.bin, ...    the engine's own files

A folder is made under a temporary name and renamed. It stands for a run wherever one is translated or scored
with.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cotext.config.recipe import Config, parse_config
from cotext.models.run_folder import ENGINE, describe_file, is_engine, model_file, model_signature
from cotext.runtime.errors import CotextError, shown
from cotext.runtime.integrity import digests, require_whole, sealed, unsealed
from cotext.runtime.reading import read_text
from cotext.runtime.version import __version__

FORMAT: Final = 1
CTRANSLATE2: Final = "ctranslate2"
INSTALL: Final = "pip install 'cotext[ctranslate2]'"
REMEDY: Final = "export the run again"


@dataclass(frozen=True, slots=True)
class EngineDescription:
    """What `cotext.json` says: the system, and the engine that it was written for.

    `fingerprint` is that of the tokenizer, `updates` are those that the weights come from. `positions`: the
    longest row, source or target, that the engine can read. `parameters`: as many as the run had.
    """

    engine: str
    version: str
    quantization: str
    config: Config
    fingerprint: str
    updates: list[int]
    positions: int
    parameters: int

    @property
    def signature(self) -> str:
        """As of the run that was exported."""
        return model_signature(self.config, self.updates)


def write_description(folder: Path, description: EngineDescription) -> None:
    """Write `cotext.json` into a folder that holds everything else."""
    said: dict[str, Any] = {
        "format": FORMAT,
        "cotext": __version__,
        "engine": description.engine,
        "version": description.version,
        "quantization": description.quantization,
        "tokenizer": description.fingerprint,
        "updates": description.updates,
        "positions": description.positions,
        "parameters": description.parameters,
        "config": description.config.model_dump(mode="json"),
        "checksums": digests(folder, _files(folder)),
    }
    (folder / ENGINE).write_text(sealed(said) + "\n", encoding="utf-8")


def read_engine(folder: Path) -> EngineDescription:
    """Read what an engine folder says of itself, and check that all its files are whole.

    Raises:
        CotextError: damaged, incomplete, or of another format.
    """
    description, checksums = describe_engine(folder)
    require_whole(folder, checksums, REMEDY)
    return description


def describe_engine(folder: Path) -> tuple[EngineDescription, dict[str, str]]:
    """What an engine folder says of itself, and the checksums that its files should have, by name.

    Raises:
        CotextError: a damaged description, or one of another format.
    """
    path = folder / ENGINE
    try:
        said = unsealed(read_text(path).rstrip("\n"))
    except ValueError as error:
        raise CotextError(f"{path}: {error}; {REMEDY}") from None
    if said.get("format") != FORMAT:
        raise CotextError(
            f"{path}: engine format {shown(said.get('format'))}, but this version reads {FORMAT}; {REMEDY}"
        )
    try:
        checksums = {str(name): str(digest) for name, digest in said["checksums"].items()}
        description = EngineDescription(
            str(said["engine"]),
            str(said["version"]),
            str(said["quantization"]),
            parse_config(said["config"], str(path)),
            str(said["tokenizer"]),
            [int(update) for update in said["updates"]],
            int(said["positions"]),
            int(said["parameters"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise CotextError(f"{path}: not the description of an engine; {REMEDY}") from None
    _require_inside(path, checksums)
    return description, checksums


def config_of(folder: Path) -> Config:
    """The configuration of a run or of an engine.

    Raises:
        CotextError: as `describe_file` or `describe_engine`.
    """
    if is_engine(folder):
        return describe_engine(folder)[0].config
    return describe_file(model_file(folder)).config


def _require_inside(path: Path, checksums: Mapping[str, str]) -> None:
    for name in checksums:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise CotextError(f"{path}: names a file outside its folder ({shown(name)}); {REMEDY}")


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and path.name != ENGINE)
