"""Engine folders: a system in the format of another program, with what Cotext needs to use it.

    cotext.json       engine and version, quantization, configuration, checksums of all other files
    tokenizer/        a copy
    data.json         the training data of the run, if known
    model.bin, ...    the files of the engine

A folder is made under a temporary name and renamed. It can be used instead of a run to translate or score.
"""

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
PLAIN: Final = {"engine": str, "version": str, "quantization": str, "positions": int, "parameters": int}


@dataclass(frozen=True, slots=True)
class EngineDescription:
    """The content of `cotext.json`: the system, and its engine.

    `fingerprint`: fingerprint of the tokenizer; `updates`: updates of the weights. `positions`: maximum
    length of a source or target row. `parameters`: the number of parameters of the run.
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
        return model_signature(self.config, self.updates)


def write_description(folder: Path, description: EngineDescription) -> None:
    """Write `cotext.json` into a folder that contains all other files."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ENGINE)
    content: dict[str, Any] = {
        "format": FORMAT,
        "cotext": __version__,
        **{key: getattr(description, key) for key in PLAIN},
        "tokenizer": description.fingerprint,
        "updates": description.updates,
        "config": description.config.model_dump(mode="json"),
        "checksums": digests(folder, files),
    }
    (folder / ENGINE).write_text(sealed(content) + "\n", encoding="utf-8")


def read_engine(folder: Path) -> EngineDescription:
    """Read the description of an engine folder; raise CotextError if any of its files is damaged."""
    description, checksums = describe_engine(folder)
    require_whole(folder, checksums, REMEDY)
    return description


def describe_engine(folder: Path) -> tuple[EngineDescription, dict[str, str]]:
    """Read the description and the file checksums of an engine; raise CotextError for another format."""
    path = folder / ENGINE
    try:
        content = unsealed(read_text(path).rstrip("\n"))
    except ValueError as error:
        raise CotextError(f"{path}: {error}; {REMEDY}") from None
    if content.get("format") != FORMAT:
        raise CotextError(
            f"{path}: engine format {shown(content.get('format'))}, but this version reads {FORMAT}; {REMEDY}"
        )
    try:
        checksums = {str(name): str(digest) for name, digest in content["checksums"].items()}
        description = EngineDescription(
            config=parse_config(content["config"], str(path)),
            fingerprint=str(content["tokenizer"]),
            updates=[int(update) for update in content["updates"]],
            **{key: kind(content[key]) for key, kind in PLAIN.items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise CotextError(f"{path}: not the description of an engine; {REMEDY}") from None
    for name in checksums:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise CotextError(f"{path}: names a file outside its folder ({shown(name)}); {REMEDY}")
    return description, checksums


def config_of(folder: Path) -> Config:
    """Return the configuration of a run or of an engine; raise CotextError if it cannot be read."""
    if is_engine(folder):
        return describe_engine(folder)[0].config
    return describe_file(model_file(folder)).config
