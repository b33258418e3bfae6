"""How many tokens of a batch fit into memory: `train.max_tokens = auto`.

What a batch takes beside the model grows with its tokens, as rows have a longest length: two sizes are tried
with the data of the run, and the line through them says how many tokens take what is free. On a GPU the
largest of an update is measured, and the answer is tried before it is given. On a CPU the states that are
kept for the backward pass are counted, and half of what is free is left for everything else.
"""

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor

from cotext.config.training import TrainConfig
from cotext.data.batch import Batch
from cotext.data.sampling import Cursor
from cotext.losses.build import Loss
from cotext.models.interface import Model
from cotext.runtime.errors import CotextError
from cotext.training.corpus import Corpus
from cotext.training.objective import Objective

SMALLEST: Final = 1000  # tokens; smaller batches say little about larger ones
LARGEST: Final = 1_000_000
STEP: Final = 500
TRIED: Final = 4  # batches of each size
SHARE: Final = {"cpu": 0.5, "cuda": 0.85}  # of free memory
LESS: Final = 0.8  # where the answer turns out to be too many
STATE: Final = 12  # bytes of a parameter that an update adds: its gradient, and Adam's moments


def largest_batch(
    train: TrainConfig, model: Model, loss: Loss, corpus: Corpus, accelerator: Accelerator
) -> int:
    """Tokens of the largest batches that fit, of the process that has the least memory.

    Every process must call it. The model is as it was before, and so are random numbers.

    Raises:
        CotextError: not even rows of the longest length fit.
    """
    device = accelerator.device
    model.to(device)
    trial = _Trial(train, Objective(model, loss), corpus, accelerator)
    parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
    room = _free(device) * SHARE.get(device.type, SHARE["cpu"]) - STATE * parameters
    if device.type == "cpu":
        room /= accelerator.num_processes
    with _as_it_was(model):
        few = max(SMALLEST, corpus.max_row_tokens)
        sizes = [few, 2 * few]
        found = tokens_that_fit(sizes, [trial.bytes_of(size) for size in sizes], room)
        while device.type == "cuda" and found >= corpus.max_row_tokens and not trial.fits(found):
            found = int(found * LESS) // STEP * STEP
    found = int(min(gather_object([found])))
    if found < corpus.max_row_tokens:
        raise CotextError(
            f"train.max_tokens = auto: a row of view.max_tokens = {corpus.max_row_tokens} does not fit into "
            "the memory that is free; lower it, choose a smaller model, or set "
            "train.checkpoint_activations = true"
        )
    return found


def tokens_that_fit(sizes: list[int], taken: list[int], room: float) -> int:
    """How many tokens take `room` bytes, given what two numbers of them take: a multiple of STEP."""
    slope = max((taken[1] - taken[0]) / (sizes[1] - sizes[0]), taken[1] / sizes[1] / 2, 1.0)
    found = sizes[1] + (room - taken[1]) / slope
    return int(min(max(found, 0), LARGEST)) // STEP * STEP


class _Trial:
    """Forward and backward passes over batches of the run, without an update."""

    def __init__(
        self, train: TrainConfig, objective: Objective, corpus: Corpus, accelerator: Accelerator
    ) -> None:
        self.train, self.objective, self.corpus, self.accelerator = train, objective, corpus, accelerator

    def bytes_of(self, tokens: int) -> int:
        """Bytes that batches of so many tokens take at most."""
        batches = itertools.islice(self.corpus.sampler(self.train, tokens).batches(Cursor()), TRIED)
        return max(self._taken(batch) for batch, _ in batches)

    def fits(self, tokens: int) -> bool:
        """Whether such batches go through."""
        try:
            self.bytes_of(tokens)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            return False
        return True

    def _taken(self, batch: Batch) -> int:
        device, objective = self.accelerator.device, self.objective
        laid_out = objective.loss.laid_out(objective.model, batch, training=True).to(device)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            before = torch.cuda.memory_allocated(device)
            self._pass(laid_out)
            return torch.cuda.max_memory_allocated(device) - before
        # What an update keeps and what it needs for a moment are of one order: half of the memory is left.
        kept: dict[int, int] = {}  # of every storage, its bytes

        def keep(x: Tensor) -> Tensor:
            kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
            return x

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            self._pass(laid_out)
        return sum(kept.values())

    def _pass(self, batch: Batch) -> None:
        self.objective.train()
        with self.accelerator.autocast():
            outcome = self.objective(batch)
        outcome.loss.backward()
        self.objective.zero_grad()


def _free(device: torch.device) -> int:
    if device.type != "cuda":
        return free_memory()
    free, _ = torch.cuda.mem_get_info(device)
    return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))


@contextmanager
def _as_it_was(model: Model) -> Iterator[None]:
    """Buffers that move in training, gradients, mode and random numbers are put back at the end."""
    buffers = [(module, dict(module._buffers)) for module in model.modules()]
    training = model.training
    with torch.random.fork_rng():
        yield
    for module, before in buffers:
        module._buffers.update(before)
    model.zero_grad()
    model.train(training)


MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")


def free_memory() -> int:
    """Bytes that the machine has left, and the group of processes that this one is limited with.

    Where the system does not tell, half of what there is.
    """
    try:
        lines = dict(line.split(":", 1) for line in MEMINFO.read_text(encoding="ascii").splitlines())
        free = 1024 * int(lines["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    try:
        limit, used = (
            int((CGROUP / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current")
        )
    except (OSError, ValueError):  # no such group, or no limit
        return free
    return min(free, max(0, limit - used))
