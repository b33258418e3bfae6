"""Low-rank adaptation of a model that starts from another run (`train.lora`): what is trained, and its files.

Trained are corrections of the matrices that linear layers have from the other run, what is new in the
model, and the rows of symbols. All else stays as it is: embeddings of pieces, norms, biases. Files of models
hold the corrected weights, as those of a plain model do. To go on exactly, training keeps both terms of the
sums:

    RUN/base.safetensors               the matrices before correction, written once
    checkpoints/*/low-rank.safetensors corrections and rows, by their names in the model's state
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from cotext.config.recipe import Config
from cotext.data.build import further_symbols
from cotext.data.tokenizer import Tokenizer
from cotext.layers.low_rank import LowRank, NewRows, correct, corrections, low_rank_matrices, merged
from cotext.models.checkpoint import read_tensors
from cotext.models.parameters import count_parameters
from cotext.runtime.errors import CotextError
from cotext.runtime.files import replacing
from cotext.runtime.integrity import digests
from cotext.training.warm_start import OF_SYMBOLS

BYTES_PER_NUMBER = 4  # in single precision
BASE, CORRECTIONS = "base.safetensors", "low-rank.safetensors"


def require_start(config: Config) -> None:
    """Refuse low-rank adaptation of nothing, or of a rank that is not low.

    Raises:
        CotextError: no run to start from, or a rank as large as the model is wide.
    """
    rank, width = config.train.lora.rank, config.model.dimension
    if rank and not config.train.init:
        raise CotextError(
            f"train.lora.rank = {rank}: it corrects the weights of a trained model, and there is none: give "
            "--init RUN, or leave train.lora.rank out"
        )
    if rank >= width:
        raise CotextError(
            f"train.lora.rank = {rank}: no low rank where model.dimension = {width}: choose a smaller one, "
            "or 0 to train the matrices themselves"
        )


def adapt(
    model: nn.Module,
    config: Config,
    tokenizer: Tokenizer,
    new: Collection[str],
    partly: Mapping[str, tuple[int, int]],
) -> list[str]:
    """Have nothing trained but corrections and what is new; returns the names of all that is trained.

    `new` and `partly` as in `Inheritance`; of what was taken in part, the other rows are trained. So are the
    rows of symbols, whose use changes from recipe to recipe: a begin symbol that no model predicts becomes a
    bracket, padding becomes the blank of a path.

    Raises:
        CotextError: nothing of the other run could be corrected.
    """
    lora = config.train.lora
    symbols = range(tokenizer.pad, tokenizer.vocabulary_size + further_symbols(config.view))
    rows = {name: range(*taken) for name, taken in partly.items()} | dict.fromkeys(OF_SYMBOLS, symbols)
    linear = {f"{path}.weight" for path, module in model.named_modules() if isinstance(module, nn.Linear)}
    known = [name for name, _ in model.named_parameters() if name not in new]
    if linear.isdisjoint(known):
        raise CotextError(
            f"train.lora.rank = {lora.rank}: {config.train.init} has no matrix of a linear layer that "
            "this model takes; leave train.lora.rank out"
        )
    for name in known:
        parameter = model.get_parameter(name)
        parameter.requires_grad_(False)
        if len(rows.get(name, ())):
            correct(model, name, NewRows(parameter, rows[name]))
        elif name in linear:
            correct(model, name, LowRank(parameter, lora.rank, lora.alpha / lora.rank))
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad]


@dataclass(frozen=True, slots=True)
class Trained:
    """How many numbers a model has in a file, how many learn, and how many weights training holds.

    With corrections, training holds the weights before them, the corrections, and the sums.
    """

    parameters: int
    learning: int
    held: int

    @classmethod
    def of(cls, model: nn.Module) -> "Trained":
        """Those of a model in training."""
        held, own = count_parameters(model), model.state_dict()
        return cls(
            parameters=held - sum(tensor.numel() for tensor in corrections(model).values()),
            learning=sum(p.numel() for p in model.parameters() if p.requires_grad),
            held=held + sum(tensor.numel() for name, tensor in merged(model).items() if name not in own),
        )

    @property
    def memory(self) -> int:
        """Bytes of weights, and of the gradient and the two moments of Adam of all numbers that learn."""
        return BYTES_PER_NUMBER * (self.held + 3 * self.learning)


def save_base(run: Path, model: nn.Module) -> dict[str, str]:
    """Write the matrices that have corrections of low rank, if there are any: the digest of the file.

    Raises:
        CotextError: it cannot be written.
    """
    matrices = low_rank_matrices(model)
    if not matrices:
        return {}
    with replacing(run / BASE, SafetensorError) as temporary:
        save_file(matrices, temporary)
    return digests(run, [run / BASE])


def save_corrections(folder: Path, model: nn.Module) -> None:
    """Write what is trained in place of whole weights, if that is so, into the folder of a checkpoint."""
    if own := corrections(model):
        save_file(own, folder / CORRECTIONS)


def load(run: Path, folder: Path, model: nn.Module) -> None:
    """Restore both terms of corrected matrices, where the model has some.

    Raises:
        CotextError: a file is missing or damaged, or of another model.
    """
    for path, own in ((run / BASE, low_rank_matrices(model)), (folder / CORRECTIONS, corrections(model))):
        if own:
            _copy(read_tensors(path), own, path)


def _copy(found: Mapping[str, Tensor], own: Mapping[str, Tensor], path: Path) -> None:
    shapes, asked = ({n: (t.shape, t.dtype) for n, t in tensors.items()} for tensors in (found, own))
    if shapes != asked:
        raise CotextError(f"{path}: does not belong to this model")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(found[name])
