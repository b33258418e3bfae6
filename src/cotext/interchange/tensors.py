"""Tensors in foreign model files: safetensors, and PyTorch's pickles of tensors.

Only tensors are read: `torch.load(weights_only=True)` rejects other objects in a pickle.
"""

import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from cotext.runtime.errors import CotextError, shown
from cotext.runtime.reading import read_json

MOST_TIMES = 16  # most memory / file size
ALWAYS_ALLOWED = 1 << 26  # bytes
SHARDS = 1000
# Errors of loading a damaged or hostile pickle of tensors.
_PICKLE_ERRORS = (
    *(RuntimeError, UnpicklingError, ValueError, EOFError, KeyError, IndexError, TypeError),
    *(AttributeError, OSError, OverflowError, MemoryError, AssertionError, zipfile.BadZipFile),
)


@dataclass(frozen=True, slots=True)
class Tensors:
    """The tensors of a model, read one by one."""

    files: tuple[Path, ...]
    shapes: Mapping[str, tuple[int, ...]]
    read: Callable[[str], Tensor]

    @property
    def where(self) -> str:
        """The first file, as messages name it."""
        return str(self.files[0])

    @property
    def size(self) -> int:
        return sum(file.stat().st_size for file in self.files)


def require_file(path: Path) -> Path:
    """Return the path of a regular file; raise CotextError if it is missing or something else."""
    if not path.is_file():
        raise CotextError(f"{path}: {'no regular file' if path.exists() else 'missing'}")
    return path


def open_folder(folder: Path) -> Tensors:
    """Open the weights of a Hugging Face folder; raise CotextError if they are missing or damaged."""
    if (folder / "model.safetensors").exists():
        return open_safetensors([folder / "model.safetensors"])
    index = folder / "model.safetensors.index.json"
    if index.exists():
        return open_safetensors([folder / name for name in _shards(index)])
    if (folder / "pytorch_model.bin").exists():
        return open_pickle(folder / "pytorch_model.bin")
    raise CotextError(
        f"{folder}: has no model.safetensors and no pytorch_model.bin; pass the folder with the weights"
    )


def _shards(index: Path) -> list[str]:
    """Return the names of the weight files in an index."""
    listed = read_json(index, 1 << 24).get("weight_map")
    names = sorted(set(map(str, listed.values()))) if isinstance(listed, dict) else []
    if not 0 < len(names) <= SHARDS or any(Path(name).name != name or name in (".", "..") for name in names):
        raise CotextError(f"{index}: damaged: weight_map does not name files beside it")
    return names


def open_safetensors(paths: Sequence[Path]) -> Tensors:
    """Open the tensors in safetensors files; raise CotextError if a file is missing or damaged."""
    holding: dict[str, Any] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for path in paths:
        try:
            file: Any = safe_open(require_file(path), framework="pt")
            for name in file.keys():  # noqa: SIM118
                holding[name] = file
                shapes[name] = tuple(file.get_slice(name).get_shape())
        except (SafetensorError, OSError) as error:
            raise CotextError(f"{path}: damaged or truncated, or no safetensors file: {error}") from None

    def read(name: str) -> Tensor:
        tensor: Tensor = holding[name].get_tensor(name)
        return tensor

    return Tensors(tuple(paths), shapes, read)


def open_pickle(path: Path) -> Tensors:
    """Open the tensors in a file of `torch.save`; raise CotextError for any other objects."""
    # Only the zip format can be mapped into memory.
    modern = zipfile.is_zipfile(require_file(path))
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=modern)
    except _PICKLE_ERRORS as error:
        reason = shown(str(error).partition("\n")[0])
        raise CotextError(
            f"{path}: damaged or truncated, or contains objects other than tensors: {reason}"
        ) from None
    is_valid = isinstance(content, Mapping) and all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in content.items()
    )
    if not is_valid:
        raise CotextError(f"{path}: does not contain named tensors")
    return Tensors((path,), {name: tuple(t.shape) for name, t in content.items()}, content.__getitem__)
