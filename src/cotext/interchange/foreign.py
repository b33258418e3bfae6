"""Foreign models as Cotext's own: which parameter stands where, and in which rows of a vocabulary.

    own row     piece 0 ... P-1       pad              bos                 eos         sep
    theirs      theirs, in order      <pad>, or zeros  decoder's start     </s>        </s>

All that theirs predicts is predicted with its probability: what it does not know in the output (`bos` and
`sep`, which are rows of its a second time, and `pad` where it has none) has a bias so low that it takes no
part. Training that adds sentences starts `sep` from `</s>`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cotext.config.recipe import Config, parse_config
from cotext.data.languages import Languages, language_code
from cotext.data.tokenizer import ImportedTokenizer
from cotext.interchange.tensors import ALWAYS_ALLOWED, MOST_TIMES, Tensors
from cotext.models.build import build_model
from cotext.models.interface import Model
from cotext.models.parameters import parameters_at_most
from cotext.runtime.errors import CotextError, shown
from cotext.runtime.reading import parse_json, read_bytes, read_json

ABSENT = -100.0  # bias of symbols that a foreign model does not predict: e^-100 is no probability
NO_ROW = -1  # of zeros
SLICE = 4096  # rows of a vocabulary that are copied at once
MAX_BYTES = 1 << 26  # of a sentencepiece model or a vocabulary; the largest in use have 20 MB
MISFITS = 5  # tensors that do not fit, named in a message


@dataclass(frozen=True, slots=True)
class Part:
    """Where a parameter comes from: foreign tensors, one below the other; `rows` picks some of `count`."""

    names: tuple[str, ...]
    transposed: bool = False
    rows: tuple[int, ...] | None = None
    count: int = 0


@dataclass(frozen=True, slots=True)
class ForeignModel:
    """A model of another toolkit that has been understood, but not read yet.

    `parts`: own parameters but `output_bias`, whose tensor is `bias` (None: zeros). `absent`: own symbols
    that it does not predict. `ignored`: tensors that say nothing new.
    """

    kind: str
    config: Config
    tokenizer: ImportedTokenizer
    tensors: Tensors
    parts: Mapping[str, Part]
    bias: Part | None
    absent: tuple[int, ...]
    ignored: frozenset[str] = field(default_factory=frozenset)
    files: tuple[Path, ...] = ()

    @property
    def symbol_rows(self) -> tuple[int, ...]:
        """Rows of the foreign target matrix by own id."""
        rows = self.parts["embedding.weight"].rows
        assert rows is not None
        return rows


@dataclass(frozen=True, slots=True)
class Settings:
    """A foreign configuration, read key by key; `where` names it in messages."""

    content: Mapping[str, Any]
    where: str

    @classmethod
    def read(cls, path: Path) -> "Settings":
        """The JSON object in a file; raises CotextError where there is none."""
        return cls(read_json(path), str(path))

    def whole(self, key: str, default: int | None = None) -> int:
        """A whole number; raises CotextError where it is missing or none."""
        value = self.content.get(key, default)
        if type(value) is not int:
            raise CotextError(f"{self.where}: {key} is {shown(value)}, a whole number is needed")
        return value

    def number(self, key: str, default: float) -> float:
        """A number; raises CotextError where it is none."""
        value = self.content.get(key, default)
        if type(value) not in (int, float):
            raise CotextError(f"{self.where}: {key} is {shown(value)}, a number is needed")
        return float(value)

    def text(self, key: str, default: str = "") -> str:
        """A text, or the default where there is none."""
        value = self.content.get(key, default)
        return value if isinstance(value, str) else default

    def flag(self, key: str, default: bool) -> bool:
        """True or false; raises CotextError where it is neither."""
        value = self.content.get(key, default)
        if type(value) is not bool:
            raise CotextError(f"{self.where}: {key} is {shown(value)}, true or false is needed")
        return value

    def require(self, key: str, wanted: Any, default: Any, why: str) -> None:
        """Refuse a setting that has another value than the one that can be expressed."""
        value = self.content.get(key, default)
        if value != wanted:
            raise CotextError(f"{self.where}: {key} = {shown(value)}: {why}; models with {wanted!r} are read")

    def choice(self, key: str, meanings: Mapping[str, str], default: str | None = None) -> str:
        """What a value means here; raises CotextError where it has no meaning."""
        value = self.content.get(key, default)
        if not isinstance(value, str) or value not in meanings:
            known = ", ".join(meanings)
            raise CotextError(f"{self.where}: {key} = {shown(value)} is not known here; these are: {known}")
        return meanings[value]


def read_files(folder: Path, required: Iterable[str], optional: Iterable[str] = ()) -> dict[str, bytes]:
    """Contents of files by name, of the optional ones those that are there.

    Raises:
        CotextError: a missing file, or one that cannot be read.
    """
    found = {}
    for name in required:
        if not (folder / name).exists():
            raise CotextError(f"{folder}: {name} is missing; it is a part of such a model")
        found[name] = read_bytes(folder / name, MAX_BYTES)
    for name in (*optional, "tokenizer_config.json"):
        if (folder / name).exists():
            found[name] = read_bytes(folder / name, MAX_BYTES)
    return found


@dataclass(frozen=True, slots=True)
class LanguagePair:
    """Source and target language as they were given; empty where they were not."""

    source: str = ""
    target: str = ""

    @property
    def tag(self) -> str:
        """The target language as a tokenizer is asked for it."""
        return self.target

    def of_tokenizer(self, config: bytes | None) -> str:
        """The pair for a configuration, as in en-de; what is not given is as tokenizer_config.json tells."""
        told = _told(config)
        pair = [
            _code(given or there) for given, there in ((self.source, told.source), (self.target, told.target))
        ]
        return str(Languages(*pair))


def _told(config: bytes | None) -> Languages:
    try:
        content = parse_json((config or b"{}").decode(), "tokenizer_config.json")
    except (UnicodeDecodeError, CotextError):
        return Languages()
    if not isinstance(content, dict):
        return Languages()
    found = [content.get(f"{side}_lang") for side in ("source", "target")]
    return Languages(*(each if isinstance(each, str) else "" for each in found))


def _code(language: str) -> str:
    """A code of two or three letters, or nothing: `ROMANCE` is a group."""
    try:
        return language_code(language, "") if language else ""
    except CotextError:
        return ""


def make_config(model: Mapping[str, Any], decode: Mapping[str, Any], languages: str, where: str) -> Config:
    """A resolved recipe of single sentences.

    Raises:
        CotextError: sizes that no model has.
    """
    content = {
        "languages": languages,
        "view": {"kind": "sentence"},
        "model": {"output_bias": True, "initialisation": "normal", **model},
        "decode": decode,
    }
    return parse_config(content, where)


@dataclass(frozen=True, slots=True)
class VocabularyRows:
    """Rows of a foreign matrix of `count` rows by own id; `pad`: its row of padding, or none (-1)."""

    rows: tuple[int, ...]
    count: int
    pad: int

    @classmethod
    def of(
        cls, tokenizer: ImportedTokenizer, pieces: Sequence[int], count: int, start: int, end: int, where: str
    ) -> "VocabularyRows":
        """The rows of pieces, and those of the symbols; `start`: that with which the decoder starts.

        Raises:
            CotextError: rows that are not those of the tokenizer.
        """
        # Beside pieces there are the end of a sentence and, in most vocabularies, padding.
        near = 0 < count - len(pieces) <= 2 and NO_ROW <= start < count
        others = set(range(count)) - set(pieces) if near else set()
        if end not in others or len(pieces) + len(others) != count:
            raise CotextError(
                f"{where}: sentences end with the symbol of row {shown(end)} of {count:,} and begin with "
                f"that of row {shown(start)}, but the vocabulary has them elsewhere: these files are not "
                "of one model"
            )
        pad = next(iter(others - {end}), NO_ROW)
        own = tokenizer.pieces
        missing = (NO_ROW,) * (own - len(pieces))
        return cls((*pieces[:own], *missing, pad, start, end, end, *pieces[own:]), count, pad)

    def part(self, name: str) -> Part:
        """These rows of a tensor."""
        return Part((name,), rows=self.rows, count=self.count)

    def absent(self, tokenizer: ImportedTokenizer) -> tuple[int, ...]:
        """Own symbols that the foreign model does not predict."""
        never = (tokenizer.bos, tokenizer.sep)
        return never if self.pad != NO_ROW else (tokenizer.pad, *never)


def read_model(foreign: ForeignModel) -> Model:
    """The model with the foreign weights, in single precision.

    Raises:
        CotextError: tensors that are missing, left over, of another shape, or not of numbers.
    """
    tokenizer, tensors = foreign.tokenizer, foreign.tensors
    sizes = tokenizer.vocabulary_size, tokenizer.source_vocabulary_size
    most = 4 * parameters_at_most(foreign.config, max(sizes))
    if most > max(MOST_TIMES * tensors.size, 4 * ALWAYS_ALLOWED):
        raise CotextError(
            f"{tensors.where}: far smaller than the model that its configuration describes; they are not of "
            "one model"
        )
    with torch.no_grad():
        model = build_model(foreign.config, *sizes)
        _require_fit(foreign, model)
        for name, parameter in model.named_parameters():
            if name != "output_bias":
                _fill(parameter, foreign.parts[name], tensors)
            elif foreign.bias is not None:
                _fill(parameter, foreign.bias, tensors)
            if name == "output_bias":
                parameter[list(foreign.absent)] = ABSENT
    return model.eval()


def _require_fit(foreign: ForeignModel, model: Model) -> None:
    """Compare names and shapes of tensors with what is asked for, before any of them is read."""
    tensors, problems = foreign.tensors, []
    used = {name for part in foreign.parts.values() for name in part.names}
    if foreign.bias is not None:
        used |= {*foreign.bias.names}
    problems += [f"{name} is missing" for name in sorted(used - tensors.shapes.keys())]
    left = tensors.shapes.keys() - used - foreign.ignored
    problems += [f"{shown(name)} is not known in such a model" for name in sorted(left)]
    if not problems:
        for own, parameter in model.named_parameters():
            part = foreign.bias if own == "output_bias" else foreign.parts[own]
            if part is not None:
                problems += _misfits(part, tensors, tuple(parameter.shape))
    if problems:
        more = f" and {len(problems) - MISFITS:,} more" if len(problems) > MISFITS else ""
        told = "; ".join(problems[:MISFITS])
        raise CotextError(f"{tensors.where}: its weights do not fit its configuration: {told}{more}")


def _misfits(part: Part, tensors: Tensors, asked: tuple[int, ...]) -> list[str]:
    """Foreign tensors of another shape than a parameter of the shape `asked` needs."""
    problems = []
    for name in part.names:
        shape = tuple(size for size in tensors.shapes[name] if size != 1)
        rows = asked[0] // len(part.names) if part.rows is None else part.count
        wanted = tuple(size for size in (rows, *asked[1:]) if size != 1)
        if (shape[::-1] if part.transposed else shape) != wanted:
            problems.append(f"{name} is {list(tensors.shapes[name])}, which does not fit {list(asked)}")
    return problems


def _fill(parameter: Tensor, part: Part, tensors: Tensors) -> None:
    """Copy foreign tensors into a parameter, of a vocabulary in slices: there is no second copy of it."""
    read = [_finite(name, tensors) for name in part.names]
    if part.rows is None:
        parameter.copy_(torch.cat([each.T for each in read] if part.transposed else read))
        return
    for begin in range(0, len(part.rows), SLICE):
        index = torch.tensor(part.rows[begin : begin + SLICE])
        slot = parameter[begin : begin + SLICE].copy_(read[0].index_select(0, index.clamp(min=0)))
        slot[index < 0] = 0


def _finite(name: str, tensors: Tensors) -> Tensor:
    tensor = tensors.read(name)
    if not tensor.is_floating_point() or not bool(tensor.isfinite().all()):
        raise CotextError(f"{tensors.where}: {name} holds what is no number, or infinite")
    return tensor if tensor.dim() == 2 and 1 not in tensor.shape else tensor.squeeze()
