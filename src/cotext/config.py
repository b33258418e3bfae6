"""The whole configuration as closed, typed models: YAML recipes and dotted overrides.

A recipe is one YAML file. `SIZES` are laid over it, then `key.path=value` overrides; what results travels
with every checkpoint. An unknown key is an error that names the nearest known one.
"""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveInt, ValidationError

from cotext.errors import CotextError

Fraction = Annotated[float, Field(ge=0, le=1)]
Dropout = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=0)]


class Closed(BaseModel):
    """A configuration section: unknown keys are errors, values are checked, nothing changes afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ViewConfig(Closed):
    """How documents are cut into instances: `sentence`, or `window` with sentences before and after."""

    kind: Literal["sentence", "window"] = "sentence"
    before: Count = 0
    after: Count = 0
    max_tokens: PositiveInt = 512  # per side of an instance; context is shed, longer sentences are left out


class ModelConfig(Closed):
    """Which model, how large, and where its tokens think they stand."""

    name: Literal["transformer"] = "transformer"
    dimension: PositiveInt = 512
    feed_forward: PositiveInt = 2048
    heads: PositiveInt = 8
    encoder_layers: PositiveInt = 6
    decoder_layers: PositiveInt = 6
    dropout: Dropout = 0.3
    attention_dropout: Dropout = 0.0
    pre_norm: bool = False
    positions: Literal["absolute", "reset", "shifted"] = "absolute"
    # Positions between two sentences; `corpus` becomes the mean sentence length of the training corpus.
    shift: Count | Literal["corpus", "sequence"] = "corpus"
    segments: Literal["none", "learned", "sinusoidal"] = "none"


class LossConfig(Closed):
    """Label-smoothed cross-entropy; context labels weigh `context_discount`."""

    name: Literal["cross_entropy"] = "cross_entropy"
    label_smoothing: Dropout = 0.1
    context_discount: Fraction = 1.0


class TrainConfig(Closed):
    """Optimiser, schedule, validation and checkpoints."""

    seed: Count = 1
    max_updates: PositiveInt = 100_000
    max_tokens: PositiveInt = 16_000  # per batch and process: rows times the longer side, padding included
    accumulate: PositiveInt = 1  # batches per update
    learning_rate: Annotated[float, Field(gt=0)] = 7e-4  # at the end of the warm-up
    warmup_updates: Count = 4000
    adam_betas: tuple[Fraction, Fraction] = (0.9, 0.98)
    weight_decay: NonNegativeFloat = 0.0
    clip_norm: NonNegativeFloat = 1.0  # 0: off
    mixed_precision: Literal["no", "bf16", "fp16"] = "no"
    validate_every: PositiveInt = 1000  # updates
    validate_bleu: bool = True  # translate the development documents at every validation
    validate_documents: PositiveInt = 50  # of the development set, translated for BLEU
    best_by: Literal["loss", "bleu"] = "loss"
    patience: Count = 12  # validations without a better one before training stops; 0: never
    keep: PositiveInt = 5  # most recent checkpoints kept beside the best
    average: PositiveInt = 5  # checkpoints averaged into the final model; 1: the best alone
    average_by: Literal["best", "last"] = "best"  # those closest to the best (itself included), or the last
    log_every: PositiveInt = 100  # updates
    pool_tokens: PositiveInt = 2_000_000  # documents read ahead, to shuffle and to bucket by length
    threads: Count = 0  # per process on the CPU; 0: chosen by the size of the model


class DecodeConfig(Closed):
    """Beam search, and how documents are translated sentence after sentence."""

    beam: PositiveInt = 4
    length_penalty: NonNegativeFloat = 0.6
    # `prefix` forces the translations already made and writes the current sentence alone; `regenerate`
    # writes the whole window and keeps its last sentence (Lupo et al. 2022, section 2.2).
    target_context: Literal["prefix", "regenerate"] = "prefix"
    max_ratio: Annotated[float, Field(gt=0)] = 2.0  # target tokens at most max_ratio * source + max_extra
    max_extra: Count = 20
    max_source_tokens: PositiveInt = 1024  # a longer sentence is refused
    max_tokens: PositiveInt = 8000  # of a batch being decoded, beams included


class Config(Closed):
    """A recipe: everything that decides what is trained and how it translates."""

    paper: str = ""  # which row of which table the recipe stands for
    view: ViewConfig = ViewConfig()
    model: ModelConfig = ModelConfig()
    loss: LossConfig = LossConfig()
    train: TrainConfig = TrainConfig()
    decode: DecodeConfig = DecodeConfig()


# What a recipe written for base size changes to when it is trained smaller.
SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "tiny": {
        "model": {
            "dimension": 128,
            "feed_forward": 512,
            "heads": 4,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "dropout": 0.1,
        },
        "train": {"learning_rate": 2e-3, "warmup_updates": 400, "max_tokens": 4000, "max_updates": 4000},
    },
    "small": {
        "model": {
            "dimension": 256,
            "feed_forward": 1024,
            "heads": 4,
            "encoder_layers": 4,
            "decoder_layers": 4,
            "dropout": 0.1,
        },
        "train": {"learning_rate": 1e-3, "warmup_updates": 1000, "max_tokens": 8000, "max_updates": 20_000},
    },
    "base": {},
}


def recipe_names() -> list[str]:
    """Shipped recipes as <paper>/<system>, sorted."""
    root = resources.files("cotext") / "recipes"
    return sorted(
        f"{paper.name}/{file.name.removesuffix('.yaml')}"
        for paper in root.iterdir()
        if paper.is_dir()
        for file in paper.iterdir()
        if file.name.endswith(".yaml")
    )


def load_config(recipe: str, size: str | None = None, overrides: Iterable[str] = ()) -> Config:
    """Read a shipped recipe by name or a YAML file by path; lay a size, then overrides over it.

    Raises:
        CotextError: no such recipe, unreadable YAML, an unknown key or size, a value that does not fit.
    """
    content, where = _read_recipe(recipe)
    if size is not None:
        if size not in SIZES:
            raise CotextError(f"unknown size '{size}': choose one of {', '.join(SIZES)}")
        for section, values in SIZES[size].items():
            content[section] = {**(content.get(section) or {}), **values}
    for override in overrides:
        _apply_override(content, override)
    return parse_config(content, where)


def parse_config(content: Any, where: str) -> Config:
    """Check a nested mapping; `where` names it in messages."""
    if not isinstance(content, dict):
        raise CotextError(f"{where}: expected a mapping of keys to values")
    try:
        return Config.model_validate(content)
    except ValidationError as error:
        raise CotextError("\n".join(_explain(error, where))) from None


def dump_config(config: Config) -> str:
    """The configuration as YAML, every key written out."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)


def _read_recipe(recipe: str) -> tuple[dict[str, Any], str]:
    if recipe.endswith((".yaml", ".yml")):
        path = Path(recipe)
        where = recipe
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CotextError(f"{recipe}: cannot be read: {error}") from None
    else:
        names = recipe_names()
        if recipe not in names:
            near = [n for n in names if recipe in n][:3] or get_close_matches(recipe, names, n=3, cutoff=0.4)
            hint = f"did you mean {' or '.join(near)}?" if near else "`cotext systems` lists them all"
            raise CotextError(f"no recipe '{recipe}': {hint} (a recipe of your own ends in .yaml)")
        where = f"recipe {recipe}"
        text = (resources.files("cotext") / "recipes" / f"{recipe}.yaml").read_text(encoding="utf-8")
    try:
        content = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise CotextError(f"{where}: not valid YAML: {error}") from None
    if not isinstance(content, dict):
        raise CotextError(f"{where}: expected a mapping of keys to values")
    return content, where


def _apply_override(content: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    if not equals or not key:
        raise CotextError(f"'{override}' is not an override: write key.path=value, as in train.max_updates=3")
    *sections, last = key.split(".")
    place = content
    for section in sections:
        inner = place.get(section)
        if inner is None:
            inner = place[section] = {}
        if not isinstance(inner, dict):
            raise CotextError(f"'{override}': {section} is a value, not a section")
        place = inner
    try:
        place[last] = yaml.safe_load(value)
    except yaml.YAMLError:
        raise CotextError(f"'{override}': the value is not valid YAML") from None


def _explain(error: ValidationError, where: str) -> Iterator[str]:
    known = [*Config.model_fields, *(key for key, _ in _keys(Config))]
    for problem in error.errors():
        key = ".".join(str(part) for part in problem["loc"] if isinstance(part, int) or part in _parts(known))
        written = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            near = get_close_matches(written, known, n=1, cutoff=0.0)
            yield f"{where}: unknown key '{written}'; the nearest known one is '{near[0]}'"
        else:
            yield f"{where}: {key or written} = {problem['input']!r}: {problem['msg'].lower()}"


def _parts(keys: Iterable[str]) -> set[str]:
    return {part for key in keys for part in key.split(".")}


def _keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All dotted keys of a configuration model with their defaults."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _keys(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field.default


def reference() -> Iterator[tuple[str, str, Any]]:
    """Every key with the type it takes and its default: what the recipe reference is made of."""
    for key, default in _keys(Config):
        field: Any = Config
        for part in key.split("."):
            field = field.model_fields[part]
            kind = field.annotation
            field = kind if isinstance(kind, type) and issubclass(kind, BaseModel) else field
        yield key, _type_name(field.annotation), default


def _type_name(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " | ".join(str(value) for value in get_args(kind))
    if get_origin(kind) is Annotated:
        return _type_name(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return " | ".join(_type_name(part) for part in get_args(kind))
    return str(kind.__name__ if isinstance(kind, type) else kind)
