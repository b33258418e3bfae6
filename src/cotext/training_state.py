"""What training needs beside the weights to go on as if it had never stopped.

A checkpoint that training can resume from holds:

    model.safetensors      weights (see `checkpoint`)
    optimizer.safetensors  moments and step counts, named after their parameters
    process-0.safetensors  of each process: random state, place in the data, sums since the last report
    trainer.json           how far training is, what was best, the scale of the loss in half precision
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.optim import Optimizer

from cotext.checkpoint import read_tensors
from cotext.data.sampling import Cursor
from cotext.errors import CotextError
from cotext.files import replacing


@dataclass(slots=True)
class Progress:
    """How far a run is and what was best.

    `epoch` counts those that the processes have ended, on average. `validated` lists the updates with a
    validation behind them: the checkpoints that averaging may choose from, others being stops on the way.
    `corpus` holds the totals of the training corpus, `scaler` the state of the loss scale (fp16 alone).
    """

    update: int = 0
    epoch: int = 0
    best: float | None = None
    best_update: int = 0
    validations_without_best: int = 0
    processes: int = 1
    finished: bool = False
    validated: list[int] = field(default_factory=list)
    corpus: dict[str, int] = field(default_factory=dict)
    scaler: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProcessState:
    """Where one process stands: its place in the data and its sums since the last report."""

    cursor: Cursor
    sums: Mapping[str, Tensor]


def save_optimizer(path: Path, optimizer: Optimizer, names: Sequence[str]) -> None:
    """Write the optimizer's state, `names` being those of its parameters in order."""
    state = optimizer.state_dict()["state"]
    tensors = {f"{names[i]}|{key}": value for i, entry in state.items() for key, value in entry.items()}
    save_file(tensors, path)


def load_optimizer(path: Path, optimizer: Optimizer, names: Sequence[str]) -> None:
    """Undo `save_optimizer`.

    Raises:
        CotextError: missing or damaged, or the state of another model.
    """
    index = {name: i for i, name in enumerate(names)}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in read_tensors(path).items():
        name, _, entry = key.rpartition("|")
        if name not in index or value.shape not in (torch.Size([]), parameters[index[name]].shape):
            raise CotextError(f"{path}: '{key}' does not belong to this model")
        # Cloned: what was read is a map of a file that pruning deletes.
        state.setdefault(index[name], {})[entry] = value.clone()
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def save_process_state(folder: Path, rank: int, state: ProcessState) -> None:
    """Write this process's random state, place in the data and sums."""
    cursor = state.cursor
    tensors = {
        "random": torch.get_rng_state(),
        "cursor": torch.tensor(astuple(cursor)),
        **{f"sum|{name}": pair for name, pair in state.sums.items()},
    }
    if torch.cuda.is_available():
        tensors["random_cuda"] = torch.cuda.get_rng_state()
    save_file(tensors, folder / f"process-{rank}.safetensors")


def load_process_state(folder: Path, rank: int) -> ProcessState:
    """Restore the random state that `save_process_state` wrote; returns the rest.

    Raises:
        CotextError: missing or damaged.
    """
    path = folder / f"process-{rank}.safetensors"
    tensors = read_tensors(path)
    if not {"random", "cursor"} <= tensors.keys():
        raise CotextError(f"{path}: not the training state of a process")
    torch.set_rng_state(tensors["random"])
    if "random_cuda" in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors["random_cuda"])
    sums = {n.removeprefix("sum|"): t.clone() for n, t in tensors.items() if n.startswith("sum|")}
    return ProcessState(Cursor(*(int(n) for n in tensors["cursor"])), sums)


def save_progress(folder: Path, progress: Progress) -> None:
    """Write `trainer.json`."""
    with replacing(folder / "trainer.json") as temporary:
        temporary.write_text(json.dumps(asdict(progress), indent=1), encoding="utf-8")


def load_progress(folder: Path) -> Progress:
    """Read `trainer.json`.

    Raises:
        CotextError: missing or damaged.
    """
    try:
        return Progress(**json.loads((folder / "trainer.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise CotextError(f"{folder / 'trainer.json'}: damaged: {error}") from None
