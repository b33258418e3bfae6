"""What lies in a run folder, and what a model file says of itself; read without torch.

A run folder:

    config.yaml            the resolved configuration
    code/                  files with parts of its model, if the user wrote some
    tokenizer/             a copy: a run needs nothing but itself
    model.safetensors      what `translate` uses: the best so far, at the end the average
    metrics.jsonl          one line per report and validation
    data.json              which data it was trained on
    init.json              what it started from, if from another run
    checkpoints/00001000/  model, and what it takes to train on from it (see `training_state`)
    import.json            where its weights come from, if they were imported
    shortlist.safetensors  which target tokens go with which source token, for `decode.shortlist`, if made
    seeds.json             the seeds that it was trained with, if as one of several

Runs of several seeds lie in one folder, and nothing else of theirs does:

    seed-1/                a run folder
    seed-2/                another
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from cotext.config.parts import own_parts
from cotext.config.recipe import Config, dump_config, parse_config
from cotext.models.describe import describe_model
from cotext.runtime import own_code
from cotext.runtime.errors import CotextError
from cotext.runtime.files import replacing
from cotext.runtime.integrity import unsealed
from cotext.runtime.reading import parse_json, parse_yaml, read_text
from cotext.runtime.version import __version__

SEEDS = "seeds.json"
CHECKPOINTS = "checkpoints"
IMPORT = "import.json"
ENGINE = "cotext.json"  # in the folder of an engine: see `engine_folder`
INT8_SCALE = ".int8_scale"  # of a matrix in int8, after its name: the scales of its rows
_MOST_NAMED = 5  # runs of a folder of several seeds, in a message
FORMAT = "1"  # raised whenever older model files can no longer be read


def model_file(run: Path, update: int | None = None) -> Path:
    """Where the model of a run lies, or that of one of its checkpoints.

    Raises:
        CotextError: no such folder or checkpoint.
    """
    if not run.is_dir():
        raise CotextError(f"{run}: no such run folder; give one that `cotext train` or `import` has made")
    require_one_run(run)
    if is_engine(run):
        raise CotextError(
            f"{run}: is an engine, which translates and scores alone; give the run that it was exported from"
        )
    if update is None:
        return run / "model.safetensors"
    if update not in (saved := checkpoints(run)):
        there = ", ".join(map(str, saved)) or "none"
        raise CotextError(f"{run}: no checkpoint of update {update}; there are: {there}")
    return checkpoint_folder(run, update) / "model.safetensors"


def write_config(folder: Path, config: Config) -> None:
    """Write `config.yaml` and the files of own parts that the model needs.

    Raises:
        CotextError: two different files have one name.
    """
    files: dict[str, str] = {}
    for part in own_parts(config.model.model_dump()):
        name, digest = part["name"], part["digest"]
        if files.setdefault(name, digest) != digest:
            raise CotextError(f"two different files are called {name}; rename one of them")
    for name, digest in files.items():
        (folder / own_code.FOLDER).mkdir(exist_ok=True)
        with replacing(folder / own_code.FOLDER / name) as temporary:
            temporary.write_text(own_code.code_of(digest, name).text, encoding="utf-8", newline="")
    with replacing(folder / "config.yaml") as temporary:
        temporary.write_text(dump_config(config), encoding="utf-8")


def read_code(config: Config, run: Path) -> None:
    """Read the files of own parts that lie in a run folder.

    Raises:
        CotextError: one was changed. Where one is missing, building the model says so.
    """
    for part in own_parts(config.model.model_dump()):
        path = run / own_code.FOLDER / part["name"]
        if part["digest"] not in own_code.known() and path.is_file():
            own_code.Code.read(path, part["digest"])


def is_engine(folder: Path) -> bool:
    """Whether a folder is one of an engine, damaged ones included."""
    return (folder / ENGINE).is_file()


def require_one_run(folder: Path) -> None:
    """Raise CotextError where a folder holds runs of several seeds, and is no run itself."""
    if seeds := seeds_in(folder):
        runs = [str(seed_folder(folder, seed)) for seed in seeds[:_MOST_NAMED]]
        more = ", ..." if len(seeds) > _MOST_NAMED else ""
        raise CotextError(
            f"{folder}: holds a run for each of the seeds {listed_seeds(seeds)}, and is none itself; name "
            f"one of them: {', '.join(runs)}{more}"
        )


def checkpoint_folder(run: Path, update: int) -> Path:
    """Where the checkpoint of an update lies."""
    return run / CHECKPOINTS / f"{update:08d}"


def checkpoints(run: Path) -> list[int]:
    """Updates of the complete checkpoints of a run, ascending."""
    folder = run / CHECKPOINTS
    if not folder.is_dir():
        return []
    return sorted(int(p.name) for p in folder.iterdir() if re.fullmatch("[0-9]{8,12}", p.name) and p.is_dir())


def seed_folder(folder: Path, seed: int) -> Path:
    """Where the run of a seed lies in a folder of several."""
    return folder / f"seed-{seed}"


def seeds_in(folder: Path) -> list[int]:
    """The seeds whose runs lie in a folder, ascending; none where it is a run itself, or absent."""
    if not folder.is_dir() or any((folder / name).exists() for name in ("config.yaml", "model.safetensors")):
        return []
    names = (re.fullmatch("seed-(0|[1-9][0-9]{0,18})", path.name) for path in folder.iterdir())
    return sorted(int(name[1]) for name in names if name and (folder / name[0]).is_dir())


def listed_seeds(seeds: Sequence[int]) -> str:
    """Seeds as they are given to `--seeds`."""
    return ",".join(map(str, seeds))


def noted_seeds(run: Path) -> list[int]:
    """The seeds among which a run was trained, by its `seeds.json`; none where that is missing or damaged."""
    try:
        noted = unsealed(read_text(run / SEEDS)).get("seeds")
    except (CotextError, ValueError):
        return []
    return noted if isinstance(noted, list) and all(type(seed) is int for seed in noted) else []


def read_metadata(path: Path) -> dict[str, str]:
    """What a model file says of itself.

    Raises:
        CotextError: missing, truncated, not written by Cotext, or written in another format.
    """
    if not path.is_file():
        raise CotextError(
            f"{path}: no such model file; has the run been trained? Give the folder of a run "
            "that `cotext train` has validated at least once"
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
    """What `data.json` of a run says of its data; nothing where it is missing or damaged."""
    try:
        noted = unsealed(read_text(run / "data.json"))
    except (CotextError, ValueError):
        return {}
    whole = isinstance(noted.get("folder"), str) and isinstance(noted.get("checksums"), dict)
    return noted if whole else {}


def noted_import(run: Path) -> dict[str, Any]:
    """What `import.json` of a run says of its origin; nothing where it is missing or damaged."""
    try:
        return unsealed(read_text(run / IMPORT))
    except (CotextError, ValueError):
        return {}


@dataclass(frozen=True, slots=True)
class Description:
    """What a model file says of the model: its configuration, its tokenizer, the updates it comes from."""

    config: Config
    fingerprint: str
    updates: list[int]

    @property
    def signature(self) -> str:
        """As `model_signature`."""
        return model_signature(self.config, self.updates)


def model_signature(config: Config, updates: Sequence[int]) -> str:
    """Names the weights in reports: system, and the updates they were taken from."""
    made_of = "+".join(map(str, updates))
    return f"model:{describe_model(config.model)}|updates:{made_of}|version:cotext-{__version__}"


def describe_file(path: Path) -> Description:
    """Read what a model file says of the model.

    Raises:
        CotextError: as `read_metadata`, or unknown or impossible settings.
    """
    metadata = read_metadata(path)
    try:
        content = parse_yaml(metadata["cotext.config"], "its configuration")
        updates = parse_json(metadata["cotext.updates"], "its updates")
        fingerprint = metadata["cotext.tokenizer"]
    except KeyError as error:
        raise CotextError(f"{path}: its description of itself is damaged: no {error}") from None
    except CotextError as error:
        raise CotextError(f"{path}: its description of itself is damaged: {error}") from None
    if not isinstance(updates, list) or not all(type(update) is int for update in updates):
        raise CotextError(f"{path}: its description of itself is damaged: its updates are no whole numbers")
    config = parse_config(content, str(path))
    run = path.parent
    read_code(config, run.parent.parent if run.parent.name == CHECKPOINTS else run)
    return Description(config, fingerprint, updates)


def read_shapes(path: Path) -> dict[str, list[int]]:
    """The shapes of the tensors of a model file that `read_metadata` has read, by name."""
    with safe_open(path, framework="numpy") as file:
        return {
            name: list(file.get_slice(name).get_shape())
            for name in file.keys()  # noqa: SIM118
            if not name.endswith(INT8_SCALE)
        }


def is_int8(path: Path) -> bool:
    """Whether a model file is one in int8, to translate and to score; False where there is no such file.

    Raises:
        CotextError: as `read_metadata`.
    """
    if not path.exists():
        return False
    read_metadata(path)
    with safe_open(path, framework="numpy") as file:
        return any(name.endswith(INT8_SCALE) for name in file.keys())  # noqa: SIM118
