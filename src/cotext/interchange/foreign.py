"""Reading of foreign weights into a model: files, settings, and the order of vocabulary rows.

    Cotext      subword 0 ... P-1     pad              bos                 eos         sep
    foreign     in the same order     <pad>, or zeros  decoder's start     </s>        </s>

All symbols that the foreign model predicts keep their probabilities. Symbols that it does not predict get a
bias so low that they have no effect. These are `bos` and `sep`, whose rows are copies, and `pad` if the model
has no padding row. In training on documents, `sep` starts from `</s>`.
"""

import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from cotext.config.recipe import Config, parse_config
from cotext.data.documents import Languages, language_code
from cotext.data.tokenizer import ImportedTokenizer
from cotext.models.build import build_model, parameters_at_most
from cotext.models.checkpoint import refuse_misfits
from cotext.models.interface import Model
from cotext.runtime import CotextError, parse_json, read_bytes, read_json, shown

# --- Tensors in model files: safetensors, and PyTorch's pickles of tensors. Other objects in a pickle are
# rejected (`torch.load(weights_only=True)`).

MOST_TIMES = 16  # maximum memory of a model / size of its files
ALWAYS_ALLOWED = 1 << 26  # parameters of a model that is read even from smaller files
SHARDS = 1000
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
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
        raise CotextError(f"{path}: {'not a regular file' if path.exists() else 'missing'}")
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
        raise CotextError(f"{index}: damaged: weight_map must name files in the same folder")
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
            raise CotextError(f"{path}: damaged or truncated, or not a safetensors file: {error}") from None
    return Tensors(tuple(paths), shapes, lambda name: holding[name].get_tensor(name))


def open_pickle(path: Path) -> Tensors:
    """Open the tensors in a file of `torch.save`; raise CotextError for any other objects."""
    try:
        # Only the zip format can be mapped into memory.
        modern = zipfile.is_zipfile(require_file(path))
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=modern)
    except _PICKLE_ERRORS as error:
        reason = shown(str(error).partition("\n")[0])
        raise CotextError(
            f"{path}: damaged or truncated, or contains objects other than tensors: {reason}"
        ) from None
    is_valid = isinstance(content, Mapping) and all(
        isinstance(n, str)
        and isinstance(t, Tensor)
        and t.is_cpu
        and t.layout == torch.strided
        and not t.is_nested
        for n, t in content.items()
    )
    if not is_valid:
        raise CotextError(f"{path}: contains something other than named tensors with all their values")
    return Tensors((path,), {name: tuple(t.shape) for name, t in content.items()}, content.__getitem__)


# --- Settings, parameters and vocabularies.

ABSENT = -100.0  # bias of symbols that a foreign model does not predict: e^-100 is negligible
NO_ROW = -1  # denotes a row of zeros
SLICE = 4096  # rows of a vocabulary that are copied at once
MAX_BYTES = 1 << 26  # most bytes of a sentencepiece model or a vocabulary; the largest in use have 20 MB


@dataclass(frozen=True, slots=True)
class Part:
    """The source of a parameter: concatenated foreign tensors; `rows` selects from `count` rows."""

    names: tuple[str, ...]
    rows: tuple[int, ...] | None = None
    count: int = 0


@dataclass(frozen=True, slots=True)
class ForeignModel:
    """A model of another toolkit whose structure is known and whose weights are not read yet.

    `parts`: the sources of all parameters; `output_bias` may have none (zeros). `absent`: symbols of Cotext
    that the foreign model does not predict. `ignored`: redundant tensors.
    """

    kind: str
    config: Config
    tokenizer: ImportedTokenizer
    tensors: Tensors
    parts: Mapping[str, Part]
    absent: tuple[int, ...]
    ignored: frozenset[str] = field(default_factory=frozenset)
    files: tuple[Path, ...] = ()

    @property
    def symbol_rows(self) -> tuple[int, ...]:
        """Rows of the foreign target embedding, by id in Cotext."""
        rows = self.parts["embedding.weight"].rows
        assert rows is not None
        return rows


@dataclass(frozen=True, slots=True)
class Settings:
    """A foreign configuration; `where` names it in messages."""

    content: Mapping[str, Any]
    where: str

    @classmethod
    def read(cls, path: Path) -> "Settings":
        """Read the JSON object in a file; raise CotextError if there is none."""
        return cls(read_json(path), str(path))

    def whole(self, key: str, default: int | None = None) -> int:
        """Return an integer; raise CotextError if it is missing or something else."""
        return int(self._typed(key, default, (int,), "a whole number"))

    def number(self, key: str, default: float) -> float:
        """Return a number; raise CotextError for anything else."""
        return float(self._typed(key, default, (int, float), "a number"))

    def flag(self, key: str, default: bool) -> bool:
        """Return True or False; raise CotextError for anything else."""
        return bool(self._typed(key, default, (bool,), "true or false"))

    def _typed(self, key: str, default: Any, types: tuple[type, ...], needed: str) -> Any:
        value = self.content.get(key, default)
        if type(value) not in types:
            raise CotextError(f"{self.where}: {key} is {shown(value)}, {needed} is needed")
        return value

    def require(self, key: str, wanted: Any, default: Any, why: str) -> None:
        """Raise CotextError if a setting does not have its only supported value."""
        value = self.content.get(key, default)
        if value != wanted:
            raise CotextError(f"{self.where}: {key} = {shown(value)}: {why}; only {wanted!r} is supported")

    def choice(self, key: str, meanings: Mapping[str, str]) -> str:
        """Return the meaning of a value; raise CotextError for an unknown value."""
        value = self.content.get(key)
        if not isinstance(value, str) or value not in meanings:
            listed = ", ".join(meanings)
            raise CotextError(
                f"{self.where}: {key} = {shown(value)} is not supported; supported are: {listed}"
            )
        return meanings[value]


def read_files(folder: Path, required: Iterable[str], optional: Iterable[str] = ()) -> dict[str, bytes]:
    """Read required files and existing optional files; raise CotextError if a required file is missing."""
    contents = {}
    for name in required:
        if not (folder / name).exists():
            raise CotextError(f"{folder}: {name} is missing; models of this type need it")
        contents[name] = read_bytes(folder / name, MAX_BYTES)
    for name in (*optional, "tokenizer_config.json"):
        if (folder / name).exists():
            contents[name] = read_bytes(folder / name, MAX_BYTES)
    return contents


def language_pair(languages: Languages, config: bytes | None = None) -> str:
    """Return a pair, such as en-de; a language that is not given comes from tokenizer_config.json."""
    try:
        content = parse_json((config or b"{}").decode(errors="replace"), "tokenizer_config.json", False)
    except CotextError:
        content = None
    stated = content if isinstance(content, dict) else {}
    sides = ("source", languages.source), ("target", languages.target)
    return str(Languages(*(_code(given or str(stated.get(f"{side}_lang", ""))) for side, given in sides)))


def _code(language: str) -> str:
    """Return a code of two or three letters, or nothing: `ROMANCE` is a group."""
    try:
        return language_code(language, "")
    except CotextError:
        return ""


def make_config(model: Mapping[str, Any], decode: Mapping[str, Any], languages: str, where: str) -> Config:
    """Return the configuration of a sentence model; raise CotextError for impossible sizes."""
    content = {
        "languages": languages,
        "view": {"kind": "sentence"},
        "model": {"output_bias": True, "initialisation": "normal", **model},
        "decode": decode,
    }
    return parse_config(content, where)


@dataclass(frozen=True, slots=True)
class VocabularyRows:
    """Rows of a foreign embedding of `count` rows, by id in Cotext; `pad`: the row of padding, or -1."""

    rows: tuple[int, ...]
    count: int
    pad: int

    @classmethod
    def of(
        cls, tokenizer: ImportedTokenizer, pieces: Sequence[int], count: int, start: int, end: int, where: str
    ) -> "VocabularyRows":
        """Return the rows of subwords and symbols; the decoder starts with row `start`."""
        # The other rows are the end of a sentence and, in most vocabularies, padding.
        near = 0 < count - len(pieces) <= 2
        others = set(range(count)) - set(pieces) if near else set()
        if end not in others or start not in {NO_ROW, *others} or len(pieces) + len(others) != count:
            raise CotextError(
                f"{where}: sentences end with the symbol of row {shown(end)} of {count:,} and begin with "
                f"that of row {shown(start)}, but the vocabulary has them elsewhere: these files "
                "belong to different models, or the decoder starts with a language, which is not supported"
            )
        pad = next(iter(others - {end}), NO_ROW)
        own = tokenizer.pieces
        missing = (NO_ROW,) * (own - len(pieces))
        return cls((*pieces[:own], *missing, pad, start, end, end, *pieces[own:]), count, pad)

    def part(self, name: str) -> Part:
        return Part((name,), rows=self.rows, count=self.count)

    def absent(self, tokenizer: ImportedTokenizer) -> tuple[int, ...]:
        """Return the symbols of Cotext that the foreign model does not predict."""
        never = (tokenizer.bos, tokenizer.sep)
        return never if self.pad != NO_ROW else (tokenizer.pad, *never)


def read_model(foreign: ForeignModel) -> Model:
    """Read the foreign weights into a model, in single precision; raise CotextError if they do not fit."""
    tokenizer, tensors = foreign.tokenizer, foreign.tensors
    sizes = tokenizer.vocabulary_size, tokenizer.source_vocabulary_size
    most = 4 * parameters_at_most(foreign.config, max(sizes))
    if most > max(MOST_TIMES * tensors.size, 4 * ALWAYS_ALLOWED):
        raise CotextError(
            f"{tensors.where}: far smaller than the model of its configuration; get both from the same model"
        )
    with torch.no_grad():
        model = build_model(foreign.config, *sizes)
        _require_fit(foreign, model)
        [name] = foreign.parts["embedding.weight"].names
        original = _finite(name, tensors)
        for copy in sorted(foreign.ignored & tensors.shapes.keys()):
            if "positions" not in copy and not _finite(copy, tensors).equal(original):
                raise CotextError(f"{tensors.where}: {copy} differs from {name}; it must be a copy")
        for name, parameter in model.named_parameters():
            if name in foreign.parts:
                _fill(parameter, foreign.parts[name], tensors)
            if name == "output_bias":
                parameter[list(foreign.absent)] = ABSENT
    return model.eval()


def _require_fit(foreign: ForeignModel, model: Model) -> None:
    """Compare names and shapes of tensors with the model, before any is read."""
    tensors, problems = foreign.tensors, []
    used = {name for part in foreign.parts.values() for name in part.names}
    problems += [f"{name} is missing" for name in sorted(used - tensors.shapes.keys())]
    unknown = tensors.shapes.keys() - used - foreign.ignored
    problems += [f"{shown(name)} is unknown in this type of model" for name in sorted(unknown)]
    if not problems:
        for own, parameter in model.named_parameters():
            if own in foreign.parts:
                problems += _misfits(foreign.parts[own], tensors, tuple(parameter.shape))
    refuse_misfits(tensors.where, problems)


def _misfits(part: Part, tensors: Tensors, needed: tuple[int, ...]) -> list[str]:
    """Return messages for foreign tensors whose shape does not match a parameter of the shape `needed`."""
    problems = []
    for name in part.names:
        shape = tuple(size for size in tensors.shapes[name] if size != 1)
        rows = needed[0] // len(part.names) if part.rows is None else part.count
        expected = tuple(size for size in (rows, *needed[1:]) if size != 1)
        if shape != expected:
            problems.append(f"{name} is {list(tensors.shapes[name])}, which does not fit {list(needed)}")
    return problems


def _fill(parameter: Tensor, part: Part, tensors: Tensors) -> None:
    """Copy foreign tensors into a parameter; a vocabulary in slices, to avoid a second copy in memory."""
    read = [_finite(name, tensors) for name in part.names]
    if part.rows is None:
        parameter.copy_(torch.cat(read))
        return
    for begin in range(0, len(part.rows), SLICE):
        index = torch.tensor(part.rows[begin : begin + SLICE])
        slot = parameter[begin : begin + SLICE].copy_(read[0].index_select(0, index.clamp(min=0)))
        slot[index < 0] = 0


def _finite(name: str, tensors: Tensors) -> Tensor:
    tensor = tensors.read(name)
    if tensor.dtype not in FLOATS or not bool(tensor.isfinite().all()):
        raise CotextError(
            f"{tensors.where}: {name} contains values that are not finite numbers, or are in {tensor.dtype}"
        )
    return tensor if tensor.dim() == 2 and 1 not in tensor.shape else tensor.squeeze()
