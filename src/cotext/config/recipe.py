"""Settings of views, training and decoding, and the loading of recipes: YAML, sizes and overrides.

A recipe is a YAML file, which can extend other recipes. Some of its settings are replaced by a size (see
`sizes.py`), and then by overrides `key.path=value`. The result is stored in every checkpoint. The error for
an unknown key contains the nearest known key.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache, reduce
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import BaseModel, Field, NonNegativeFloat, ValidationError

from cotext.config.model import ModelConfig
from cotext.config.parts import pinned
from cotext.config.sizes import size_settings
from cotext.runtime import CotextError, leaves, nearest, nearest_known, parse_yaml, read_text, shown
from cotext.runtime.sections import BelowOne, Closed, Count, Fraction, PositiveInt, Seed, Sentences, Symbols

# --- How documents are cut into instances: the section `view`.


class CutConfig(Closed):
    """A way to cut documents into instances."""

    kind: Literal["sentence", "window", "document", "cumulative"] = "sentence"
    """What an instance is. `sentence`: one sentence. `window`: a sentence with sentences around it.
    `document`: a whole document, or a chunk of it of at most `max_tokens`. `cumulative`: a sentence with all
    sentences before it in its chunk, on the source side only."""
    before: Sentences = 0
    """For `window`: context sentences before the current one; K - 1 in recipes sKtoK."""
    after: Sentences = 0
    """For `window`: context sentences after the current one, on the source side only."""
    target_before: Sentences | None = None
    """For `window`: context sentences before the current one on the target side. Default: as many as
    `before`."""
    parts: PositiveInt = 1
    """For `document` and `cumulative`: number of equal parts into which every chunk is cut."""

    @property
    def target_context(self) -> int:
        """For `window`: number of context sentences before the current one on the target side."""
        return self.before if self.target_before is None else self.target_before


class MixedCut(CutConfig):
    """Additional instances to train on."""

    weight: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """How often an epoch shows each of these instances, on average."""


class ViewConfig(CutConfig):
    """How documents are cut into instances, and the symbols between sentences."""

    max_tokens: Annotated[int, Field(gt=0, le=1_000_000, strict=True)] = 512
    """Largest number of tokens on a side of an instance. A longer window loses context sentences, a longer
    document is cut into chunks, and a longer sentence is left out of training."""
    max_sentences: Count = 0
    """For `document` and `cumulative`: maximum number of sentences in a chunk, in addition to `max_tokens`;
    0: no limit."""
    separators: Literal["plain", "indexed", "bracket", "numbered"] = "plain"
    """Symbols between sentences. `plain`: one symbol for all. `indexed`: a different symbol after the first,
    second, third ... sentence of the row. `bracket`: a begin and an end symbol around every sentence.
    `numbered`: the same, with the number of the sentence in its document as the begin symbol."""
    open_source: bool | None = None
    """With `bracket` and `numbered`: whether source sentences have a begin symbol, too. Default: yes, as
    published, but no if `model.neutral_start` is true and the other run is trained without this symbol."""
    indexed_separators: Symbols = 100
    """With `indexed`: number of different symbols; all later sentences use the last symbol."""
    numbers: Symbols | Literal["corpus"] = "corpus"
    """With `numbered`: number of different sentence numbers, at most (`corpus`: exactly) the number of
    sentences of the longest training document. All later sentences use the last number."""
    mixed_with: Annotated[tuple[MixedCut, ...], Field(max_length=100)] = ()
    """Additional kinds of instances to train on, each with `weight`, `kind`, `before`, `after`,
    `target_before` and `parts`. Translation and validation use only the main kind."""

    @property
    def bracketed(self) -> bool:
        """Whether every sentence has its own begin and end symbol."""
        return self.separators in ("bracket", "numbered")


# --- Loss and training settings: the sections `loss` and `train`.


Blended = Literal["positions", "score", "mean", "separators", "symbols"]
# Validation metrics in `metrics.jsonl`, by the value of `train.best_by`. BLEU is maximised, losses minimised.
BEST_BY: Final = {"loss": "nll_current", "objective": "loss", "undiscounted": "undiscounted", "bleu": "bleu"}


class LossConfig(Closed):
    """The loss that training minimises."""

    name: Literal["cross_entropy", "glancing"] = "cross_entropy"
    """The loss: `cross_entropy`, or `glancing` for non-autoregressive models."""
    label_smoothing: BelowOne = 0.1
    """Label smoothing: probability mass spread over the vocabulary."""
    context_discount: Fraction = 1.0
    """Weight of context sentences in the loss; 1 is the weight of current sentences."""
    foreign_weight: NonNegativeFloat = 0.0
    """Weight of a term that rewards true over foreign context, for `cross_entropy`. For one current sentence
    of each row, it is max(0, 1 + log p(foreign) - log p(true)), in nats. p is the probability of the sentence
    after true or foreign context. Foreign context comes from another document. Training takes about twice as
    long."""
    glancing: tuple[Fraction, Fraction] = (0.5, 0.3)
    """For `glancing`: number of random positions revealed to the decoder, divided by the number of wrongly
    predicted ones, at the start and at the end of training."""


class TrainConfig(Closed):
    """Optimiser, schedule, validation and checkpoints."""

    init: str = ""
    """Run whose weights training starts from (`--init RUN`). `required`: the recipe needs such a run."""
    init_parts: Literal["all", "encoder"] = "all"
    """Parameters to take from that run. `all`: all matching parameters. `encoder`: the same without those
    of the decoder; embeddings and the output bias are taken."""
    init_copies: bool = True
    """Whether a weight of that run initialises both of its counterparts, such as G-Transformer's local and
    global attention; otherwise the second starts at random. With `model.neutral_start`, both always
    start from it."""
    init_architecture: Literal["auto", "recipe", "run"] = "auto"
    """Whether the model's sizes, norms, activation, kind of positions and output layer come from the `recipe`
    or from the `run` that training starts from. `auto`: from the run if it is an imported model or descends
    from an imported model, otherwise from the recipe."""
    freeze: Literal["none", "init"] = "none"
    """Parameters that training leaves unchanged. `init`: those that come from the run that training starts
    from, completely or in part."""
    blend: tuple[Blended, ...] | None = None
    """New parts that are blended in gradually, because they change the output from the start. `positions`:
    shifted or no input positions, and sinusoidal segments. `score`: rotary or ALiBi. `mean`: MBE's mean in
    front of a row. `separators`, `symbols`: new separators or sentence numbers that the output layer can
    predict. Default: all of these that the other run does not have, if `model.neutral_start` is true;
    otherwise none."""
    blend_updates: Count | None = None
    """Number of updates over which these parts are blended in, linearly. Translation and validation have them
    in full, except at update 0. Default: the warm-up."""
    fresh_rate: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Learning rate of parameters that do not come from the other run, as a multiple of `learning_rate`."""
    seed: Seed = 1
    """Random seed for initial weights, dropout and the order of the data."""
    max_updates: PositiveInt = 100_000
    """Number of updates (optimiser steps)."""
    max_epochs: Count = 0
    """Maximum number of epochs; 0: no limit. Schedules depend only on `max_updates`."""
    max_cpu_minutes: NonNegativeFloat = 0.0
    """Maximum processor time of training, in minutes, summed over threads and processes, without validation
    and checkpoints; 0: no limit. Schedules depend only on `max_updates`."""
    max_tokens: PositiveInt = 16_000
    """Batch size in tokens for each process: rows times the length of the longer side, padding included."""
    checkpoint_activations: bool = False
    """Keep only layer inputs for the backward pass and recompute the rest: the same results, with less
    memory and about a third more time."""
    order: Literal["shuffled", "documents"] = "shuffled"
    """Instances of a batch. `shuffled`: random instances of similar length. `documents`: consecutive
    instances of a document."""
    context: Literal["own", "foreign"] = "own"
    """Context sentences in training: the document's `own`, or `foreign` sentences from another document, for
    a control experiment."""
    word_dropout: BelowOne = 0.0
    """Share of the subwords of source and target input that training replaces by the unknown token; labels
    do not change."""
    word_dropout_epochs: Count = 0
    """Number of epochs with `word_dropout`; 0: all of them."""
    coword_dropout: BelowOne = 0.0
    """Share of the source subwords of current sentences that training replaces by the unknown token, so that
    the model learns to use context (Fernandes et al. 2021)."""
    position_offset: Annotated[int, Field(ge=0, le=50_000, strict=True)] = 0
    """Maximum random shift of the positions of a row in training. Shifts are drawn separately for source and
    target, so that the model learns not to depend on absolute positions (Kiyono et al. 2021)."""
    accumulate: Annotated[int, Field(gt=0, le=10_000, strict=True)] = 1
    """Gradient accumulation: batches per update."""
    learning_rate: Annotated[float, Field(gt=0)] = 7e-4
    """Peak learning rate, reached at the end of the warm-up."""
    warmup_updates: Count = 4000
    """Updates over which the learning rate rises linearly; afterwards it falls with the inverse square root
    of the update."""
    adam_betas: tuple[BelowOne, BelowOne] = (0.9, 0.98)
    """Decay rates of Adam's moments."""
    adam_epsilon: Annotated[float, Field(gt=0, le=1)] = 1e-9
    """Added to the root of Adam's second moment (Vaswani et al. 2017, section 5.3)."""
    weight_decay: NonNegativeFloat = 0.0
    """Weight decay, decoupled from the gradient (AdamW)."""
    clip_norm: NonNegativeFloat = 1.0
    """Maximum gradient norm; 0: no limit."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Precision of matrix products; weights, sums and losses stay in fp32. `bf16`: for GPUs, and for CPUs
    with AMX or AVX512-BF16. `fp16`: for GPUs without bfloat16. With `fp32`, GPUs multiply in TF32."""
    shard_model: bool = False
    """Divide weights, gradients and Adam's moments among processes, for models too large for one device."""
    validate_every: PositiveInt | Literal["epoch"] = 1000
    """Updates between validations, or `epoch`: after every epoch. Every validation writes a checkpoint."""
    validate_bleu: bool = True
    """Whether validation also translates development documents (greedily) and computes BLEU."""
    validate_sentences: PositiveInt = 300
    """Number of development sentences, from the first, that are translated for BLEU; the last document
    may be cut."""
    best_by: Literal["loss", "objective", "undiscounted", "bleu"] = "loss"
    """The figure on the development set that decides the best checkpoint and patience. `loss`:
    negative log-likelihood of current sentences, without smoothing. `objective`: the loss that training
    minimises, with smoothing and discount. `undiscounted`: smoothed loss of all labels without discount, like
    fairseq's default. `bleu`: BLEU."""
    patience: Count = 12
    """Stop after this many validations without improvement; 0: never."""
    keep: PositiveInt = 5
    """Number of most recent checkpoints to keep, in addition to the checkpoints needed for averaging."""
    average: PositiveInt = 5
    """Number of checkpoints averaged into the final model; if the best checkpoint is better on the
    development set, it is the final model instead. 1: no averaging."""
    average_by: Literal["best", "last"] = "best"
    """Checkpoints to average (not that of update 0): the `best` and the closest to it, or the `last`."""
    log_every: PositiveInt = 100
    """Updates between progress reports."""
    pool_tokens: PositiveInt = 2_000_000
    """Number of tokens read ahead, for shuffling and for batching by length."""
    threads: Annotated[int, Field(ge=0, le=1024, strict=True)] = 0
    """CPU threads of each process, at most the number of cores. 0: one thread for models with `dimension`
    below 256, otherwise all cores."""

    def blended(self, done: int) -> float:
        """Return the weight of blended parts after `done` updates, from 0 to 1."""
        return min(done / self.blend_updates, 1.0) if self.blend and self.blend_updates else 1.0


# --- How documents are translated: the section `decode`.


Align = Literal["constrained", "free"]
LengthPenaltyForm = Literal["power", "gnmt"]
Precision = Literal["float32", "bfloat16", "float16", "int8"]
EngineChoice = Literal["auto", "ctranslate2", "torch"]


class SamplingConfig(Closed):
    """How tokens are drawn at random, if translations are sampled."""

    temperature: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Divisor of the log-probabilities. Below 1, probable tokens become more probable."""
    top_k: Count = 0
    """Draw only from this number of the most probable tokens; 0: from all tokens."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Draw only from the most probable tokens: the smallest set whose probabilities sum to at least this
    value; 1: from all tokens."""
    seed: Seed = 1
    """Seed of the random numbers. With the same seed, the translation of a document depends only on its
    sentences."""


class DecodeConfig(Closed):
    """Beam search, and the order in which the sentences of a document are translated."""

    beam: Annotated[int, Field(gt=0, le=1000, strict=True)] = 4
    """Beam size; 1 is greedy search."""
    beam_per: Literal["document", "sentence"] = "document"
    """For documents translated as a whole. `document`: hypotheses compete until the end of the document (or
    chunk). `sentence`: they compete until the end of each sentence, and the best hypothesis becomes the
    context of the next sentence; needs `view.separators: bracket` or `numbered`."""
    nbest: Annotated[int, Field(gt=0, le=1000, strict=True)] = 1
    """Number of different translations of every sentence to write into an n-best list next to the output, at
    most `beam` (mbr.md); 1: no list."""
    length_penalty: Annotated[float, Field(ge=0, le=10)] = 0.6
    """Exponent of the length penalty; 0: no penalty."""
    length_penalty_form: LengthPenaltyForm = "power"
    """Divisor of the log-probability of n tokens; n includes the end of sentence. `power`: n **
    `length_penalty`, as in fairseq. `gnmt`: ((5 + n) / 6) ** `length_penalty`, as in Wu et al. 2016 and
    Vaswani et al. 2017."""
    sampling: SamplingConfig | None = None
    """Draw translations at random instead of searching for the most probable ones: `{temperature: 1.0, top_k:
    0, top_p: 1.0, seed: 1}`; each key may be left out. Needs `beam: 1`. Default: search."""
    align: Align = "constrained"
    """`constrained`: search is forced to generate the number of sentences of the source, none of them empty.
    `free`: search has no such constraint; sentences are recovered from separators, and missing sentences
    are empty."""
    target_context: Literal["prefix", "regenerate"] = "prefix"
    """For windows with target context. `prefix`: the existing translations of context sentences are forced,
    and only the current sentence is searched. `regenerate`: the whole window is translated again, and its
    last sentence is kept, as in Lupo et al. 2022."""
    before: Sentences | None = None
    """For windows: number of context sentences before the current sentence, on both sides, in translation and
    scoring. Default: `view.before`, as in training."""
    group_windows: Annotated[int, Field(gt=0, le=10_000, strict=True)] = 16
    """For batch-level context: number of consecutive windows of a document that attend to each other."""
    schedule: Literal["sequential", "simultaneous"] = "sequential"
    """Order of the windows that attend to each other. `sequential`: one after the other; each attends to
    the finished translations of the windows before it. `simultaneous`: all at once; each attends to the
    partial translations of the others. This needs `first_pass` if the target has context."""
    first_pass: str = ""
    """Run whose translations are used as target context instead of the system's own; `init`: the run that
    training started from."""
    language_model: str = ""
    """For sentence models: run of a language model of target documents with the same tokenizer
    (monolingual.md). The pointwise mutual information of each sentence with the translations before it is
    added to its score, in translation and scoring."""
    precision: Precision = "float32"
    """Precision of the model's large matrices (speed.md). `int8`: fastest on a CPU. `bfloat16`: for GPUs, and
    CPUs with instructions for it. `float16`: for GPUs only."""
    engine: EngineChoice = "auto"
    """Program that runs the model and the search (speed.md). `auto`: CTranslate2 for single sentences on a
    CPU, if it is installed and supports the run and the settings, else PyTorch. `ctranslate2`: also for
    windows and documents; an error if it is not possible. `torch`: always PyTorch."""
    shortlist: Annotated[int, Field(ge=0, le=100, strict=True)] = 0
    """Restrict search to this number of most probable target tokens for each source token, and to the most
    frequent target tokens (speed.md). Needs the table of `cotext shortlist`. 0: the whole
    vocabulary."""
    scores: bool = True
    """Whether to compute the log-probabilities of translations. `false`: greedy search is slightly faster and
    gives the same translations (speed.md), but `--scores` and confidence are not available."""
    source_language: str = ""
    """For multilingual tokenizers: the source language. Default: the source language of the run's data."""
    target_language: str = ""
    """For multilingual tokenizers: the target language. Default: the target language of the run's data."""
    max_ratio: Annotated[float, Field(gt=0, le=20)] = 2.0
    """Length limit: a sentence has at most `max_ratio` times the tokens of its source, plus `max_extra`."""
    max_extra: Annotated[int, Field(ge=0, le=10_000, strict=True)] = 20
    """Tokens of a sentence in addition to `max_ratio` times those of its source."""
    max_source_tokens: Annotated[int, Field(gt=0, le=1_000_000, strict=True)] = 1024
    """Maximum length of a source sentence, in tokens. Longer sentences are reported as an error before
    translation begins. In scoring, target sentences longer than the length limit for such a source (see
    `max_ratio`) are errors, too."""
    max_tokens: PositiveInt = 8000
    """Batch size in tokens while decoding, beams included."""


# --- Loading and checking of recipes.


MAX_SECTIONS = 8  # maximum nesting depth of an override's key, and of recipes that extend other recipes
_ROOT = resources.files("cotext.config") / "recipes"
PARTS = "parts/"  # folder of partial recipes
MAX_PROBLEMS = 10  # maximum number of problems in a message


class Config(Closed):
    """A recipe: all settings of a system, for training and translation."""

    paper: str = ""
    """The table and the row of the paper that the recipe implements."""
    languages: Annotated[str, Field(pattern="^([a-z]{2,3}-[a-z]{2,3})?$")] = ""
    """Source and target language, such as en-de, which come from the data. Empty: unknown."""
    view: ViewConfig = ViewConfig()
    model: ModelConfig = ModelConfig()
    loss: LossConfig = LossConfig()
    train: TrainConfig = TrainConfig()
    decode: DecodeConfig = DecodeConfig()


def recipe_names() -> list[str]:
    """Return the names of shipped recipes, <paper>/<system>, sorted."""
    return sorted(name for name in _shipped() if not name.startswith(PARTS))


@cache
def _shipped() -> tuple[str, ...]:
    """Return the names of shipped recipes and partial recipes."""
    return tuple(
        f"{folder.name}/{file.name.removesuffix('.yaml')}"
        for folder in _ROOT.iterdir()
        if folder.is_dir()
        for file in folder.iterdir()
        if file.name.endswith(".yaml")
    )


def first_parent(recipe: str) -> str:
    """Return the first recipe that a shipped recipe extends; empty if there is none."""
    text = (_ROOT / f"{recipe}.yaml").read_text(encoding="utf-8")
    return next(iter(parse_yaml(text, recipe).get("extends", [])), "")


def load_config(recipe: str, size: str | None = None, overrides: Iterable[str] = ()) -> Config:
    """Read a shipped recipe by name or a YAML file by path; apply a size, then overrides.

    Raises CotextError: missing recipe or invalid YAML; unknown key or size; invalid value; parents
    (`extends`) that contradict each other.
    """
    content, where = read_recipe(recipe)
    if size is not None:
        _lay_over(content, size_settings(parse_config(content, where).model_dump(), size))
    for override in overrides:
        _apply_override(content, override)
    return parse_config(pinned(content, Path()), where)


def parse_config(content: Any, where: str) -> Config:
    """Return the configuration of a nested mapping; `where` names it in messages.

    Raises CotextError: unknown keys or invalid values.
    """
    if not isinstance(content, dict):
        raise CotextError(f"{where}: expected a mapping of keys to values")
    try:
        return Config.model_validate(content)
    except ValidationError as error:
        raise CotextError("\n".join(_explain(error, where))) from None


def dump_config(config: Config) -> str:
    """Return the configuration as YAML, including defaults."""
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # libyaml is several times faster, if present
    return str(yaml.dump(config.model_dump(mode="json"), Dumper=dumper, sort_keys=False))


def recipe_schema() -> dict[str, Any]:
    """Return the JSON Schema of a recipe file, in which every key is optional."""
    schema = Config.model_json_schema()
    schema["title"] = "A recipe of Cotext"
    schema["properties"]["extends"] = {
        "type": "array",
        "items": {"type": "string"},
        "description": "Recipes, shipped or in files, whose keys this one takes over.",
    }
    return schema


def differences(before: Config, now: Config) -> Iterator[tuple[str, Any, Any]]:
    """Yield the dotted keys in which two configurations differ, with both values."""
    contents = before.model_dump(), now.model_dump()
    for key, _ in keys(Config):
        one, other = (reduce(lambda section, part: section[part], key.split("."), c) for c in contents)
        if one != other:
            yield key, one, other


def is_file(recipe: str) -> bool:
    """Return whether a recipe is given as the path of a file, not as the name of a shipped recipe."""
    return recipe.endswith((".yaml", ".yml"))


def read_recipe(recipe: str, children: tuple[str, ...] = ()) -> tuple[dict[str, Any], str]:
    """Return the content of a recipe, merged with the recipes that it extends, and its name for messages.

    Raises CotextError: recipes extend each other in a circle; also the errors of `load_config`.
    """
    if recipe in children:
        raise CotextError(f"recipe {' extends '.join([*children, recipe])}: a cycle; remove one `extends`")
    if is_file(recipe):
        where = recipe
        text = read_text(Path(recipe))
    else:
        names = _shipped()
        if recipe not in names:
            containing = (name for name in names if recipe in name)
            near = sorted(containing, key=lambda name: (len(Path(name).name), name))[:3]
            near = near or nearest(recipe, names, 3)
            hint = f"did you mean {' or '.join(near)}?" if near else "`cotext systems` lists them all"
            raise CotextError(f"no recipe {shown(recipe)}: {hint} (for your own, pass its .yaml path)")
        where = f"recipe {recipe}"
        text = (_ROOT / f"{recipe}.yaml").read_text(encoding="utf-8")
    content = parse_yaml(text, where) or {}
    if not isinstance(content, dict):
        raise CotextError(f"{where}: expected a mapping of keys to values")
    parents = content.pop("extends", [])
    if is_file(recipe):
        content = pinned(content, Path(recipe).parent)  # paths of parts are relative to the recipe
    if not isinstance(parents, list) or not all(isinstance(parent, str) for parent in parents):
        raise CotextError(f"{where}: extends must be a list of recipes, such as extends: [p-transformer/ctx]")
    if len(children) >= MAX_SECTIONS:
        raise CotextError(f"{where}: extends recipes that extend others, more than {MAX_SECTIONS} deep")
    merged: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for parent in parents:
        inherited, _ = read_recipe(parent, (*children, recipe))
        inherited.pop("paper", None)
        _merge_parent(merged, inherited, parent, origin, where)
    _lay_over(merged, content)
    return merged, where


def _merge_parent(
    merged: dict[str, Any], inherited: dict[str, Any], parent: str, origin: dict[str, str], where: str
) -> None:
    """Add the keys of another parent; raise CotextError if an earlier parent has a different value."""
    for (other, there), (key, value) in product(leaves(merged), leaves(inherited)):
        # The same key, or a value and a key below it. Empty sections contradict nothing.
        is_same = f"{other}.".startswith(f"{key}.") or key.startswith(f"{other}.")
        if is_same and {} not in (value, there) and value != there:
            raise CotextError(
                f"{where}: extends {origin[other]}, where {other} = {shown(there)}, and {parent}, where "
                f"{key} = {shown(value)}; remove one of them, or extend a recipe without this key"
            )
    _lay_over(merged, inherited)
    origin.update({key: parent for key, _ in leaves(inherited) if key not in origin})


def _lay_over(below: dict[str, Any], above: Mapping[str, Any]) -> None:
    """Overwrite a mapping with another mapping, section by section."""
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(below.get(key), dict):
            _lay_over(below[key], value)
        else:
            below[key] = value


def _apply_override(content: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    written = shown(override)
    if not equals or not key:
        raise CotextError(f"{written} is not an override: write key.path=value, such as train.max_updates=3")
    *sections, last = key.split(".")
    if len(sections) > MAX_SECTIONS:
        raise CotextError(f"{written}: no key is nested that deeply")
    target = content
    for section in sections:
        inner = target.get(section)
        if inner is None:
            inner = target[section] = {}
        if not isinstance(inner, dict):
            raise CotextError(f"{written}: {section} is a value, not a section")
        target = inner
    _lay_over(target, {last: parse_yaml(value, f"{written}: the value")})


def _explain(error: ValidationError, where: str) -> Iterator[str]:
    leaf_keys = [key for key, _ in keys(Config)]
    sections = {key.rsplit(".", count)[0] for key in leaf_keys for count in range(1, key.count(".") + 1)}
    known = [*sorted(sections), *leaf_keys]
    parts = {part for key in known for part in key.split(".")}
    problems = error.errors(include_url=False)
    for problem in problems[:MAX_PROBLEMS]:
        key = ".".join(str(part) for part in problem["loc"] if isinstance(part, int) or part in parts)
        written = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            hint = nearest_known(written, known) or ": docs/recipes.md lists all keys"
            yield f"{where}: unknown key {shown(written)}{hint}"
        else:
            setting = f"{key or shown(written)} = {shown(problem['input'])}"
            reason = problem["msg"].removeprefix("Value error, ")
            yield f"{where}: {setting}: {reason[:1].lower()}{reason[1:]}"
    if len(problems) > MAX_PROBLEMS:
        yield f"{where}: and {len(problems) - MAX_PROBLEMS:,} more like these"


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all dotted keys of a configuration model with their defaults."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from keys(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field.default
