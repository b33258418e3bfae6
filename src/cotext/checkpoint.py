"""Models and training states on disk: safetensors and JSON, never pickle, never half-written.

A run folder:

    config.yaml            the resolved configuration
    tokenizer/             a copy: a run needs nothing but itself
    model.safetensors      what `translate` uses: the best so far, at the end the average
    metrics.jsonl          one line per report and validation
    checkpoints/00001000/  model, optimizer, and per process its random state and place in the data

Every model file carries its whole configuration, so that a file alone says what it is.
"""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer

import cotext
from cotext.config import Config, dump_config, parse_config
from cotext.data.sampling import Cursor
from cotext.data.tokenizer import Tokenizer, load_tokenizer
from cotext.errors import CotextError
from cotext.models.transformer import Transformer
from cotext.systems import build_model

FORMAT = "1"  # raised whenever older model files can no longer be read


def save_model(
    path: Path, weights: dict[str, Tensor], config: Config, fingerprint: str, updates: list[int]
) -> None:
    """Write weights with their configuration, tokenizer fingerprint and the update(s) they come from."""
    metadata = {
        "cotext.format": FORMAT,
        "cotext.version": cotext.__version__,
        "cotext.config": dump_config(config),
        "cotext.tokenizer": fingerprint,
        "cotext.updates": json.dumps(updates),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_file({name: tensor.contiguous() for name, tensor in weights.items()}, temporary, metadata)
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        temporary.unlink(missing_ok=True)
        raise CotextError(f"{path}: cannot be written: {error}") from None


def read_metadata(path: Path) -> dict[str, str]:
    """What a model file says of itself.

    Raises:
        CotextError: missing, truncated, not written by Cotext, or written in another format.
    """
    if not path.is_file():
        raise CotextError(f"{path}: no such model file; has the run been trained?")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise CotextError(f"{path}: damaged or truncated, or not a safetensors file: {error}") from None
    if "cotext.format" not in metadata:
        raise CotextError(f"{path}: a safetensors file, but not a model of Cotext")
    if metadata["cotext.format"] != FORMAT:
        raise CotextError(
            f"{path}: written by Cotext {metadata.get('cotext.version')} in model format "
            f"{metadata['cotext.format']}; this is Cotext {cotext.__version__}, which reads format {FORMAT}"
        )
    return metadata


def load_weights(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a model file."""
    read_metadata(path)
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise CotextError(f"{path}: damaged or truncated: {error}") from None


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to translate, with what made it."""

    model: Transformer
    config: Config
    tokenizer: Tokenizer
    updates: list[int]

    @property
    def signature(self) -> str:
        """Names the weights in reports: system, and the updates they were taken from."""
        made_of = "+".join(str(u) for u in self.updates)
        return f"model:{self.config.model.name}|updates:{made_of}|version:cotext-{cotext.__version__}"


def load_run(run: Path, update: int | None = None) -> LoadedModel:
    """Load the model of a run folder, or that of one of its checkpoints.

    Raises:
        CotextError: no run there, a damaged or foreign file, weights that do not fit their configuration.
    """
    if not run.is_dir():
        raise CotextError(f"{run}: no such run folder")
    path = (
        run / "model.safetensors" if update is None else checkpoint_folder(run, update) / "model.safetensors"
    )
    metadata = read_metadata(path)
    try:
        content = yaml.safe_load(metadata["cotext.config"])
        updates = list(json.loads(metadata["cotext.updates"]))
    except (KeyError, ValueError, yaml.YAMLError):
        raise CotextError(f"{path}: its description of itself is damaged") from None
    config = parse_config(content, str(path))
    tokenizer = load_tokenizer(run / "tokenizer")
    if tokenizer.fingerprint != metadata.get("cotext.tokenizer"):
        raise CotextError(f"{path}: was trained with another tokenizer than the one in {run / 'tokenizer'}")
    model = build_model(config, tokenizer.vocabulary_size)
    fill(model, load_weights(path), path)
    return LoadedModel(model.eval(), config, tokenizer, updates)


def fill(model: nn.Module, weights: dict[str, Tensor], path: Path) -> None:
    """Copy weights into a model; names and shapes must agree."""
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise CotextError(f"{path}: its weights do not fit its configuration: {error}") from None


def average(paths: Sequence[Path]) -> dict[str, Tensor]:
    """Mean of the weights of several model files, added up in float64."""
    total: dict[str, Tensor] = {}
    for path in paths:
        for name, tensor in load_weights(path).items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / len(paths)).float() for name, tensor in total.items()}


def average_run(run: Path, out: Path, updates: Sequence[int]) -> None:
    """Make a run folder with the mean of some checkpoints of a run.

    Raises:
        CotextError: no such checkpoint, or `out` exists and is not empty.
    """
    saved = checkpoints(run)
    missing = [u for u in updates if u not in saved]
    if missing:
        raise CotextError(f"{run}: no checkpoint of update {missing[0]}; there are {saved}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CotextError(f"{out}: exists; choose another --out")
    loaded = load_run(run, updates[0])
    weights = average([checkpoint_folder(run, u) / "model.safetensors" for u in updates])
    loaded.tokenizer.save(out / "tokenizer")
    (out / "config.yaml").write_text(dump_config(loaded.config), encoding="utf-8")
    fingerprint = loaded.tokenizer.fingerprint
    save_model(out / "model.safetensors", weights, loaded.config, fingerprint, list(updates))


def checkpoint_folder(run: Path, update: int) -> Path:
    """Where the checkpoint of an update lies."""
    return run / "checkpoints" / f"{update:08d}"


def checkpoints(run: Path) -> list[int]:
    """Updates of the complete checkpoints of a run, ascending."""
    folder = run / "checkpoints"
    return sorted(int(p.name) for p in folder.iterdir() if p.name.isdigit()) if folder.is_dir() else []


@dataclass(slots=True)
class Progress:
    """What training knows beside weights: how far it is and what was best."""

    update: int = 0
    best: float | None = None
    best_update: int = 0
    validations_without_best: int = 0
    processes: int = 1
    finished: bool = False


def optimizer_tensors(optimizer: Optimizer, names: Sequence[str]) -> dict[str, Tensor]:
    """The optimizer's state as named tensors, `names` being those of its parameters in order."""
    state = optimizer.state_dict()["state"]
    return {f"{names[i]}|{key}": value for i, entry in state.items() for key, value in entry.items()}


def fill_optimizer(optimizer: Optimizer, tensors: dict[str, Tensor], names: Sequence[str]) -> None:
    """Undo `optimizer_tensors`."""
    state: dict[int, dict[str, Tensor]] = {}
    index = {name: i for i, name in enumerate(names)}
    for key, value in tensors.items():
        name, _, field = key.rpartition("|")
        state.setdefault(index[name], {})[field] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def save_process_state(folder: Path, rank: int, cursor: Cursor) -> None:
    """Write this process's random state and its place in the data."""
    tensors = {
        "random": torch.get_rng_state(),
        "cursor": torch.tensor([cursor.epoch, cursor.document, cursor.batch]),
    }
    if torch.cuda.is_available():
        tensors["random_cuda"] = torch.cuda.get_rng_state()
    save_file(tensors, folder / f"process-{rank}.safetensors")


def load_process_state(folder: Path, rank: int) -> Cursor:
    """Restore what `save_process_state` wrote; returns the place in the data."""
    tensors = load_file(folder / f"process-{rank}.safetensors")
    torch.set_rng_state(tensors["random"])
    if "random_cuda" in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors["random_cuda"])
    return Cursor(*(int(n) for n in tensors["cursor"]))


def write_json(path: Path, content: Any) -> None:
    """Write JSON under a temporary name, then rename."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")
    os.replace(temporary, path)


def save_progress(folder: Path, progress: Progress) -> None:
    """Write `trainer.json`."""
    write_json(folder / "trainer.json", asdict(progress))


def load_progress(folder: Path) -> Progress:
    """Read `trainer.json`."""
    try:
        return Progress(**json.loads((folder / "trainer.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise CotextError(f"{folder / 'trainer.json'}: damaged: {error}") from None


def prune(run: Path, keep_models: set[int], keep_states: set[int]) -> None:
    """Delete checkpoints outside `keep_models`, and the optimizer files of those outside `keep_states`."""
    for update in checkpoints(run):
        folder = checkpoint_folder(run, update)
        if update not in keep_models:
            shutil.rmtree(folder)
        elif update not in keep_states:
            for path in (folder / "optimizer.safetensors", *folder.glob("process-*.safetensors")):
                path.unlink(missing_ok=True)
