"""Run folders: their files, and the metadata of model files; read without torch.

A run folder:

    config.yaml            the resolved configuration
    code/                  Python files of the user with parts of the model, if any
    tokenizer/             a copy, so that a run needs no other files
    model.safetensors      used by `translate`: the best model so far, at the end the average if it is better
    metrics.jsonl          one line per report and validation
    data.json              folder and checksums of the training data
    init.json              the run that it started from, if any
    checkpoints/00001000/  a model, and the state to resume training (`training/resume.py`)
    import.json            the origin of its weights, if they were imported
    shortlist.safetensors  target tokens for each source token, for `decode.shortlist`, if made
    seeds.json             the seeds of its training, if it is one of several runs
    engines/               its weights for CTranslate2, made when they are first used; may be deleted

A folder of several seeds contains only their runs:

    seed-1/                a run folder
    seed-2/                another

An engine folder is a system in the format of another program. It can be used instead of a run to translate
or score. While it is written, it has a temporary name. It contains:

    cotext.json            engine and version, quantization, configuration, checksums of all other files
    tokenizer/             a copy
    data.json              the training data of the run, if known
    model.bin, ...         the files of the engine
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile
from typing import Any, Final

from safetensors import SafetensorError, safe_open

from cotext.config.parts import FOLDER, Code, code_of, known, own_parts
from cotext.config.recipe import Config, differences, dump_config, parse_config
from cotext.data.shortlist import SHORTLIST
from cotext.models.describe import describe_model
from cotext.runtime import CotextError, __version__, parse_json, parse_yaml, read_text, shown
from cotext.runtime.files import digests, replacing, require_whole, sealed, sealed_lines, unsealed, write_text

SEEDS = "seeds.json"
CHECKPOINTS = "checkpoints"
IMPORT = "import.json"
RECORDS: Final = ("data.json", "init.json", IMPORT, SHORTLIST)
SCHEMA_LINE = "# yaml-language-server: $schema=recipe.schema.json"  # first line of config.yaml, for editors
ENGINE = "cotext.json"  # in an engine folder: see above
INT8_SCALE = ".int8_scale"  # an int8 matrix NAME has its row scales in the tensor NAME.int8_scale
_MOST_NAMED = 5  # maximum number of runs that a message lists
FORMAT = "1"  # increased whenever older model files can no longer be read
# Keys that may change when training resumes: limits, output, and settings that do not change the result.
MAY_CHANGE: Final = (
    *("paper", "languages", "train.max_updates", "train.max_epochs", "train.max_cpu_minutes"),
    *("train.patience", "train.average", "train.average_by", "train.keep", "train.log_every"),
    *("train.threads", "train.shard_model", "train.checkpoint_activations"),
)


def model_file(run: Path, update: int | None = None) -> Path:
    """Return the model file of a run or of a checkpoint; raise CotextError if there is none."""
    if not run.is_dir():
        raise CotextError(
            f"{run}: no such run folder; give a folder made by `cotext train` or `cotext import`"
        )
    require_one_run(run)
    if is_engine(run):
        raise CotextError(
            f"{run}: is an engine, which can only translate and score; give the run that it was exported from"
        )
    if update is None:
        return run / "model.safetensors"
    if update not in (saved := checkpoints(run)):
        available = ", ".join(map(str, saved)) or "none"
        raise CotextError(f"{run}: no checkpoint of update {update}; there are: {available}")
    return checkpoint_folder(run, update) / "model.safetensors"


def write_config(folder: Path, config: Config) -> None:
    """Write `config.yaml` and the user's files that the model needs; raise CotextError if names clash."""
    files: dict[str, str] = {}
    for part in own_parts(config.model.model_dump()):
        name, digest = part["name"], part["digest"]
        if files.setdefault(name, digest) != digest:
            raise CotextError(f"two different files are called {name}; rename one of them")
    for name, digest in files.items():
        (folder / FOLDER).mkdir(exist_ok=True)
        with replacing(folder / FOLDER / name) as temporary:
            temporary.write_text(code_of(digest, name).text, encoding="utf-8", newline="")
    write_text(folder / "config.yaml", f"{SCHEMA_LINE}\n{dump_config(config)}")


def is_engine(folder: Path) -> bool:
    """Whether a folder is an engine, intact or damaged."""
    return (folder / ENGINE).is_file()


def require_one_run(folder: Path) -> None:
    """Raise CotextError if a folder contains runs of several seeds and is not a run itself."""
    if seeds := seeds_in(folder):
        runs = [str(seed_folder(folder, seed)) for seed in seeds[:_MOST_NAMED]]
        more = ", ..." if len(seeds) > _MOST_NAMED else ""
        raise CotextError(
            f"{folder}: contains a run for each of the seeds {listed_seeds(seeds)}; choose one of them: "
            f"{', '.join(runs)}{more}"
        )


def checkpoint_folder(run: Path, update: int) -> Path:
    """Return the folder of the checkpoint of an update."""
    return run / CHECKPOINTS / f"{update:08d}"


def checkpoints(run: Path) -> list[int]:
    """Return the updates of the complete checkpoints of a run, ascending."""
    folder = run / CHECKPOINTS
    if not folder.is_dir():
        return []
    return sorted(int(p.name) for p in folder.iterdir() if re.fullmatch("[0-9]{8,12}", p.name) and p.is_dir())


def is_ended(run: Path) -> bool:
    """Return whether the last report of a run is the final one; also true if there are no reports."""
    path = run / "metrics.jsonl"
    return not path.exists() or '"kind": "final"' in sealed_lines(path)[-2:][0]


def seed_folder(folder: Path, seed: int) -> Path:
    """Return the run of a seed in a folder of several runs."""
    return folder / f"seed-{seed}"


def seeds_in(folder: Path) -> list[int]:
    """Return the seeds whose runs are in a folder, ascending; none if it is a run itself, or missing."""
    if not folder.is_dir() or any((folder / name).exists() for name in ("config.yaml", "model.safetensors")):
        return []
    names = (re.fullmatch("seed-(0|[1-9][0-9]{0,18})", path.name) for path in folder.iterdir())
    return sorted(int(name[1]) for name in names if name and (folder / name[0]).is_dir())


def listed_seeds(seeds: Sequence[int]) -> str:
    """Format seeds as for `--seeds`."""
    return ",".join(map(str, seeds))


def noted_seeds(run: Path) -> list[int]:
    """Return all seeds of the training of a run, from `seeds.json`; none if it is missing or damaged."""
    seeds = read_sealed(run / SEEDS).get("seeds")
    return seeds if isinstance(seeds, list) and all(type(seed) is int for seed in seeds) else []


def with_seed(config: Config, seed: int) -> Config:
    """Return the configuration for another seed; `train.init` changes if it is a run of the old seed."""
    init, start = config.train.init, Path(config.train.init)
    if start == seed_folder(start.parent, config.train.seed):
        init = str(seed_folder(start.parent, seed))
    return config.model_copy(update={"train": config.train.model_copy(update={"seed": seed, "init": init})})


def told_differences(
    one: Config, other: Config, places: tuple[str, str], may_differ: Collection[str] = MAY_CHANGE
) -> str:
    """Return a line for each key with different values, except `may_differ`; `places`: text after values."""
    lines = []
    for key, *values in differences(one, other):
        if key not in may_differ:
            first, second = ("nothing" if value == "" else value for value in values)
            lines.append(f"\n  {key}: {first} {places[0]}, {second} {places[1]}")
    return "".join(lines)


def read_sealed(path: Path) -> dict[str, Any]:
    """Read a JSON object that has a checksum; empty if the file is missing or damaged."""
    try:
        return unsealed(read_text(path))
    except (CotextError, ValueError):
        return {}


def read_metadata(path: Path) -> dict[str, str]:
    """Read the metadata of a model file.

    Raises CotextError if it is missing, truncated, not written by Cotext, or written in another format.
    """
    if not path.is_file():
        raise CotextError(
            f"{path}: no such model file; has the run been trained? `cotext train` writes the file at its "
            "first validation"
        )
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise CotextError(f"{path}: damaged or truncated, or not a safetensors file: {error}") from None
    if "cotext.format" not in metadata:
        raise CotextError(f"{path}: a safetensors file, but not a model of Cotext")
    if metadata["cotext.format"] != FORMAT:
        raise CotextError(
            f"{path}: written by Cotext {metadata.get('cotext.version', 'of no version')[:20]} in model "
            f"format {metadata['cotext.format'][:20]}; this is Cotext {__version__}, which reads "
            f"format {FORMAT}"
        )
    return metadata


def noted_data(run: Path) -> dict[str, Any]:
    """Return the content of `data.json` of a run; empty if it is missing or damaged."""
    noted = read_sealed(run / "data.json")
    is_valid = isinstance(noted.get("folder"), str) and isinstance(noted.get("checksums"), dict)
    return noted if is_valid else {}


def copy_records(run: Path, folder: Path, names: Collection[str] = RECORDS) -> None:
    """Copy files about a model, where they exist, to a run folder that is made from it."""
    for name in names:
        if (run / name).is_file():
            copyfile(run / name, folder / name)


def noted_import(run: Path) -> dict[str, Any]:
    """Return the content of `import.json` of a run; empty if it is missing or damaged."""
    return read_sealed(run / IMPORT)


@dataclass(frozen=True, slots=True)
class Description:
    """The metadata of a model file: configuration, tokenizer, and the updates of its weights."""

    config: Config
    fingerprint: str
    updates: list[int]

    @property
    def signature(self) -> str:
        return model_signature(self.config, self.updates)


def model_signature(config: Config, updates: Sequence[int]) -> str:
    """Return the name of weights in reports: the system, and the updates of the weights."""
    joined_updates = "+".join(map(str, updates))
    return f"model:{describe_model(config.model)}|updates:{joined_updates}|version:cotext-{__version__}"


def describe_file(path: Path) -> Description:
    """Read the description in a model file; raise CotextError if its metadata or settings are invalid."""
    metadata = read_metadata(path)
    try:
        content = parse_yaml(metadata["cotext.config"], "its configuration")
        updates = parse_json(metadata["cotext.updates"], "its updates")
        fingerprint = metadata["cotext.tokenizer"]
    except KeyError as error:
        raise CotextError(f"{path}: its metadata is damaged: no {error}") from None
    except CotextError as error:
        raise CotextError(f"{path}: its metadata is damaged: {error}") from None
    if not isinstance(updates, list) or not all(type(update) is int for update in updates):
        raise CotextError(f"{path}: its metadata is damaged: its updates are not whole numbers")
    config = parse_config(content, str(path))
    folder = path.parent
    run = folder.parent.parent if folder.parent.name == CHECKPOINTS else folder
    for part in own_parts(config.model.model_dump()):  # files of the user
        code = run / FOLDER / part["name"]
        if part["digest"] not in known() and code.is_file():
            Code.read(code, part["digest"])
    return Description(config, fingerprint, updates)


def read_shapes(path: Path) -> dict[str, list[int]]:
    """Return the shapes of the tensors of a model file that `read_metadata` accepts, by name."""
    with safe_open(path, framework="numpy") as file:
        return {
            name: list(file.get_slice(name).get_shape())
            for name in file.keys()  # noqa: SIM118
            if not name.endswith(INT8_SCALE)
        }


def is_int8(path: Path) -> bool:
    """Whether a model file is in int8; False if there is none. Raises the errors of `read_metadata`."""
    if not path.exists():
        return False
    read_metadata(path)
    with safe_open(path, framework="numpy") as file:
        return any(name.endswith(INT8_SCALE) for name in file.keys())  # noqa: SIM118


ENGINE_FORMAT: Final = 1
CTRANSLATE2: Final = "ctranslate2"
INSTALL: Final = "pip install '.[ctranslate2]' in Cotext's repository"
REMEDY: Final = "export the run again"
PLAIN: Final = {"engine": str, "version": str, "quantization": str, "positions": int, "parameters": int}


@dataclass(frozen=True, slots=True)
class EngineDescription(Description):
    """The content of `cotext.json`: the system, and its engine.

    `positions`: maximum length of a source or target row. `parameters`: the number of parameters of the run.
    """

    engine: str
    version: str
    quantization: str
    positions: int
    parameters: int


def write_description(folder: Path, description: EngineDescription) -> None:
    """Write `cotext.json` into a folder that contains all other files."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ENGINE)
    content: dict[str, Any] = {
        "format": ENGINE_FORMAT,
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
    if content.get("format") != ENGINE_FORMAT:
        raise CotextError(
            f"{path}: engine format {shown(content.get('format'))}, but this version reads {ENGINE_FORMAT}; "
            f"{REMEDY}"
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
