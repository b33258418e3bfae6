"""Models on disk: safetensors and YAML, never pickle, never half-written.

`run_folder` describes run folders. Every model file contains its configuration and a checksum, so it can be
identified and verified without other files. The same training writes the same bytes.
"""

import copy
import json
import os
import shutil
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from cotext.config.recipe import Config, Precision, TrainConfig, dump_config
from cotext.data.documents import Languages
from cotext.data.tokenizer import Tokenizer, load_tokenizer
from cotext.layers.kernels.int8 import dequantised, quantised_weight
from cotext.layers.linear import HalfLinear, Int8Linear
from cotext.models.build import build_model, count_parameters, parameters_at_most
from cotext.models.describe import describe_model
from cotext.models.interface import Engine, Model, NonAutoregressiveModel, TranslationModel, with_states
from cotext.models.run_folder import (
    FORMAT,
    INT8_SCALE,
    checkpoint_folder,
    checkpoints,
    copy_records,
    describe_file,
    model_file,
    model_signature,
    read_metadata,
    read_shapes,
    write_config,
)
from cotext.runtime import CotextError, __version__, shown
from cotext.runtime.files import discard, new_folder, remove, replacing, require_new

BYTES_PER_NUMBER = 4
MOST_TIMES = 16  # above this ratio of memory to file size, tensors are compared with the configuration first
MISFITS = 5  # maximum number of wrong tensors in a message
CHECKSUM = "cotext.crc32"


def save_model(
    path: Path, weights: dict[str, Tensor], config: Config, fingerprint: str, updates: list[int]
) -> None:
    """Write weights with their configuration, tokenizer fingerprint and updates."""
    metadata = {
        "cotext.format": FORMAT,
        "cotext.version": __version__,
        "cotext.config": dump_config(config),
        "cotext.tokenizer": fingerprint,
        "cotext.updates": json.dumps(updates),
    }
    metadata[CHECKSUM] = model_checksum(weights, metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, SafetensorError) as temporary:
        save_file({name: tensor.contiguous() for name, tensor in weights.items()}, temporary, metadata)
        _sort_metadata(temporary)
        # save_file makes the file private; everyone who may read the folder may read the run.
        temporary.chmod(path.parent.stat().st_mode & 0o666)


def _sort_metadata(path: Path) -> None:
    """Sort the metadata of a model file, so that equal models are equal files.

    The library writes it in random order. The length of the header does not change.
    """
    with path.open("r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        file.seek(8)
        file.write(json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode().ljust(length))


def load_weights(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a model file; raise CotextError if it is damaged or invalid (`read_metadata`)."""
    metadata = read_metadata(path)
    weights = read_tensors(path)
    if CHECKSUM in metadata and metadata[CHECKSUM] != model_checksum(weights, metadata):
        raise CotextError(
            f"{path}: damaged: its checksum does not fit its content; copy the file again, or, if it is in "
            "a checkpoint folder, delete this folder"
        )
    return _without_int8(weights, path)


def _without_int8(weights: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Return weights with int8 matrices as float32; raise CotextError if the scale of a row is missing."""
    result = {name: weight for name, weight in weights.items() if not name.endswith(INT8_SCALE)}
    for name, weight in result.items():
        if weight.dtype == torch.int8:
            scale = weights.get(f"{name}{INT8_SCALE}")
            if scale is None or weight.dim() != 2 or scale.shape != weight.shape[:1]:
                raise CotextError(
                    f"{path}: damaged: {shown(name)} is int8 but does not have a scale for every row"
                )
            result[name] = dequantised(weight, scale)
    return result


def model_checksum(weights: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """Return the CRC-32 of the metadata of a model file, without the checksum, and of its weights."""
    entries = sorted((key, value) for key, value in metadata.items() if key != CHECKSUM)
    shapes = [(name, str(weights[name].dtype), list(weights[name].shape)) for name in sorted(weights)]
    # Metadata and shapes first: a damaged header is noticed, too.
    crc = zlib.crc32(json.dumps([entries, shapes]).encode())
    for name in sorted(weights):
        flat = weights[name].detach().cpu().contiguous().reshape(-1)
        crc = zlib.crc32(flat.view(torch.uint8).numpy().data, crc)
    return f"{crc:08x}"


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file; raise CotextError if it is missing, damaged or truncated."""
    try:
        if path.exists() and not path.is_file():
            raise CotextError(f"{path}: cannot be read: not a regular file")
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise CotextError(f"{path}: missing, damaged or truncated: {error}") from None


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to translate, possibly an engine, with its configuration and tokenizer."""

    model: Model | Engine
    config: Config
    tokenizer: Tokenizer
    updates: list[int]

    @property
    def languages(self) -> Languages:
        """Source and target language; unknown if the training data had no languages."""
        return Languages.parse(self.config.languages)

    @property
    def signature(self) -> str:
        """The name of the weights in reports: the system, and the updates of the weights."""
        engine = f"|{self.engine}" if self.engine else ""
        precision = f"|precision:{self.precision}" if self.precision != "float32" else ""
        return model_signature(self.config, self.updates) + engine + precision

    @property
    def precision(self) -> Precision:
        """The precision of large matrices; float32 for an engine, whose precision is in its name."""
        return "float32" if isinstance(self.model, Engine) else self.model.precision

    @property
    def engine(self) -> str:
        """The engine with version and quantization; empty for a PyTorch model."""
        return self.model.name if isinstance(self.model, Engine) else ""

    @property
    def parameters(self) -> int:
        return self.model.parameters if isinstance(self.model, Engine) else count_parameters(self.model)

    @property
    def writes_left_to_right(self) -> bool:
        return not isinstance(self.model, NonAutoregressiveModel)

    def with_states(self, purpose: str) -> Model:
        """Return the model for `purpose`, which needs hidden states; raise CotextError for an engine."""
        return with_states(self.model, purpose)

    def left_to_right(self, purpose: str) -> TranslationModel:
        """Return the model for `purpose`; raise CotextError if it is not autoregressive."""
        model = with_states(self.model, purpose)
        if isinstance(model, NonAutoregressiveModel):
            raise CotextError(
                f"{purpose} needs an autoregressive system, but {describe_model(self.config.model)} is "
                "non-autoregressive; choose another run"
            )
        return model


def load_run(run: Path, update: int | None = None) -> LoadedModel:
    """Load the model of a run folder, or of one of its checkpoints.

    Raises CotextError if the run does not exist, a file is damaged, or weights do not match the
    configuration.
    """
    path = model_file(run, update)
    weights = load_weights(path)  # first, because the metadata of a damaged file may be wrong
    described = describe_file(path)
    tokenizer = load_tokenizer(run / "tokenizer")
    if tokenizer.fingerprint != described.fingerprint:
        raise CotextError(f"{path}: needs another tokenizer than {run / 'tokenizer'}; restore this folder")
    # Untrusted configurations may describe any size: compare it with the file before memory is allocated.
    sizes = tokenizer.vocabulary_size, tokenizer.source_vocabulary_size
    most = BYTES_PER_NUMBER * parameters_at_most(described.config, max(sizes))
    if most > MOST_TIMES * path.stat().st_size:
        with torch.device("meta"):  # takes seconds
            expected = _shapes(build_model(described.config, *sizes).state_dict())
        _require_fit(expected, read_shapes(path), path)
    model = build_model(described.config, *sizes)
    fill(model, weights, path)
    set_blend(model, described.config.train, described.updates)
    return LoadedModel(model.eval(), described.config, tokenizer, described.updates)


def fill(model: nn.Module, weights: dict[str, Tensor], path: Path) -> None:
    """Copy weights into a model; names and shapes must match."""
    own = model.state_dict()
    _require_fit(_shapes(own), _shapes(weights), path)
    with torch.no_grad():
        for name, tensor in weights.items():
            own[name].copy_(tensor)


def set_blend(model: Model, config: TrainConfig, updates: Sequence[int]) -> None:
    """Enable the blended parts (`train.blend`) of a model, or disable them for the weights of update 0.

    Without these parts, the weights of update 0 compute the outputs of the run from which training started.
    """
    share = config.blended(0) if list(updates) == [0] else 1.0
    model.blend(share, config.blend or (), everywhere=True)


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, list[int]]:
    return {name: list(tensor.shape) for name, tensor in tensors.items()}


def _require_fit(expected: Mapping[str, list[int]], shapes: Mapping[str, list[int]], path: Path) -> None:
    """Raise CotextError if names or shapes of tensors differ."""
    problems = [f"{shown(name)} is not part of the model" for name in shapes if name not in expected]
    problems += [f"{name} is missing" for name in expected if name not in shapes]
    problems += [
        f"{name} is {shapes[name]}, but must be {shape}"
        for name, shape in expected.items()
        if shapes.get(name, shape) != shape
    ]
    refuse_misfits(path, problems)


def refuse_misfits(where: object, problems: Sequence[str]) -> None:
    """Raise CotextError with the first of these problems of tensors, if there are any."""
    if problems:
        more = f" and {len(problems) - MISFITS:,} more" if len(problems) > MISFITS else ""
        listed = "; ".join(problems[:MISFITS])
        raise CotextError(f"{where}: its weights do not fit its configuration: {listed}{more}")


def average(paths: Sequence[Path]) -> dict[str, Tensor]:
    """Average the weights of several model files, in float64; raise CotextError for different models."""
    total: dict[str, Tensor] = {}
    for path in paths:
        weights = load_weights(path)
        if total:
            _require_fit(_shapes(total), _shapes(weights), path)
        for name, tensor in weights.items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / len(paths)).float() for name, tensor in total.items()}


def average_run(run: Path, out: Path, updates: Sequence[int]) -> None:
    """Make a run folder with the average of checkpoints; raise CotextError if one is missing or repeated."""
    chosen = [model_file(run, update) for update in updates]
    if len(set(chosen)) < len(chosen):
        raise CotextError("a checkpoint is given twice; give each checkpoint once")
    require_new(out)
    loaded = load_run(run, updates[0])
    weights = average(chosen)
    with new_folder(out) as temporary:
        loaded.tokenizer.save(temporary / "tokenizer")
        write_config(temporary, loaded.config)
        copy_records(run, temporary)
        fingerprint = loaded.tokenizer.fingerprint
        save_model(temporary / "model.safetensors", weights, loaded.config, fingerprint, list(updates))


def averaged(candidates: Sequence[int], best: int, config: TrainConfig) -> list[int]:
    """Return the updates whose weights are averaged for the final model, ascending.

    They are the last `average` ones or, with `average_by: best`, those nearest the best (then the earlier).
    """
    if config.average_by == "last":
        return list(candidates[-config.average :])
    return sorted(sorted(candidates, key=lambda u: (abs(u - best), u))[: config.average])


def worth_keeping(candidates: Sequence[int], best: int, config: TrainConfig) -> set[int]:
    """Return the updates to keep: those that the final average may need, and the last `config.keep`.

    The last `config.average` updates are kept, because a later update may become the best.
    """
    recent = candidates[-max(config.keep, config.average) :]
    return {best, *averaged(candidates, best, config), *recent}


def put_in_place(temporary: Path, final: Path) -> None:
    """Rename a complete folder; its final name never refers to an incomplete folder."""
    if final.exists():
        discard(final)
    os.replace(temporary, final)


def prune(run: Path, keep_models: set[int], keep_states: set[int]) -> list[Path]:
    """Delete checkpoints outside `keep_models`, and training states of checkpoints outside `keep_states`.

    Return the folders and files that could not be deleted.
    """
    undeleted: list[Path] = []
    for update in checkpoints(run):
        folder = checkpoint_folder(run, update)
        if update not in keep_models:
            undeleted += [] if discard(folder) else [folder]
        elif update not in keep_states:
            states = [path for path in folder.glob("*.safetensors") if path.name != "model.safetensors"]
            for path in states:
                remove(path)
            undeleted += filter(Path.exists, states)
    return undeleted


def sweep(run: Path) -> None:
    """Delete temporary files of a process that was killed while writing."""
    for path in (run / "checkpoints").glob(".*"):
        shutil.rmtree(path, ignore_errors=True)


# --- Models with large matrices converted once, for translating or scoring: int8, bfloat16, float16.
#
# In bfloat16 and float16, only the products of linear layers are in half precision (`layers/linear.py`).
# Attention, norms, embeddings and the output layer stay in float32, hence also log-probabilities and the
# order of hypotheses.
#
# In int8, linear layers and the output layer are in int8 (`layers/linear.py`). Embedding tables are looked up
# as float32, with numbers that int8 can represent exactly, because the output layer is such a table. A model
# that is saved in int8 (`int8_weights`) therefore gives the same results as one that is quantised when it is
# loaded.


TABLES = ("embedding.weight", "embedding.source_weight")
OUTPUT = "embedding.weight"
LEAST = 2**17  # smallest matrix to convert: for smaller ones, quantising states takes longer than it saves

Half = Literal["bfloat16", "float16"]
TYPES: dict[Half, torch.dtype] = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def halved(model: Model, precision: Half, least: int) -> Model:
    """Return a copy of a model in half precision; unchanged tensors are shared.

    `least`: size of the smallest matrix to convert.
    """
    converted = _sharing_copy(model)
    for path, layer in model.named_modules():
        if type(layer) is nn.Linear and layer.weight.numel() >= least:
            converted.set_submodule(path, HalfLinear(layer, TYPES[precision]))
    converted.precision = precision
    return converted.eval()


def _sharing_copy(model: Model) -> Model:
    """Return a copy of a model with the same tensors."""
    return copy.deepcopy(model, {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())})


def in_precision(loaded: LoadedModel, precision: Precision, device: torch.device) -> LoadedModel:
    """Convert a loaded model to `decode.precision`.

    Raises CotextError for int8 on a GPU and float16 on a CPU. Engines and models that were not loaded in
    float32 keep their precision: any other is an error, too.
    """
    if precision == loaded.precision:
        return loaded
    if isinstance(loaded.model, Engine):
        raise CotextError(
            f"decode.precision = {precision}: engines have the precision of the export (--quantization); "
            "remove the setting"
        )
    if loaded.precision != "float32":
        raise CotextError(
            f"decode.precision = {precision}: this run was loaded in {loaded.precision}; load it again in "
            f"{precision}"
        )
    if precision == "float16" and device.type == "cpu":
        raise CotextError(
            "decode.precision = float16 needs a GPU, but this is a CPU; choose bfloat16 or int8, or remove "
            "the setting"
        )
    if precision in TYPES:
        return replace(loaded, model=halved(loaded.model, precision, LEAST))
    if device.type != "cpu":
        raise CotextError(
            f"decode.precision = int8 needs a CPU, but this is {device}; remove it, or choose --device cpu"
        )
    return replace(loaded, model=quantised(loaded.model, LEAST))


def quantised(model: Model, least: int) -> Model:
    """Return a copy of a model in int8; unchanged tensors are shared.

    `least`: size of the smallest matrix to convert.
    """
    converted = _sharing_copy(model)
    for name in large_matrices(model, least):
        path, _, own = name.rpartition(".")
        weight, scale = quantised_weight(model.get_parameter(name).detach())
        layer = model.get_submodule(path)
        if isinstance(layer, nn.Linear):
            converted.set_submodule(path, Int8Linear(weight, scale, layer.bias))
            continue
        setattr(
            converted.get_submodule(path), own, nn.Parameter(dequantised(weight, scale), requires_grad=False)
        )
        if name == OUTPUT:
            converted.int8_output = Int8Linear(weight, scale, model.output_bias)
    converted.precision = "int8"
    return converted.eval()


def large_matrices(model: Model, least: int) -> list[str]:
    """Return the names of matrices to convert to int8: weights of linear layers, and embedding tables."""
    linear = [f"{path}.weight" for path, layer in model.named_modules() if type(layer) is nn.Linear]
    names = [name for name in (*linear, *TABLES) if name in model.state_dict()]
    return [name for name in names if model.get_parameter(name).numel() >= least]


def int8_weights(model: Model) -> dict[str, Tensor]:
    """Return the weights for a model file, large matrices as integers with the scales of their rows."""
    weights = dict(model.state_dict())
    for name in large_matrices(model, LEAST):
        weights[name], weights[f"{name}{INT8_SCALE}"] = quantised_weight(weights[name])
    return weights
