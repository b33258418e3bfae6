"""The whole configuration as closed, typed models: YAML recipes and dotted overrides.

A recipe is one YAML file. A size is laid over it (see `sizes.py`), then `key.path=value` overrides; what
results travels with every checkpoint. An unknown key is an error that names the nearest known one.
"""

from collections.abc import Iterable, Iterator
from functools import reduce
from importlib import resources
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, ValidationError

from cotext.errors import CotextError, nearest, shown
from cotext.reading import parse_yaml, read_text
from cotext.sizes import sized

# Every number has a largest value, far beyond what is of use: a file from elsewhere must not be able to ask
# for memory without end. Those that decide how much is allocated have one of their own.
LARGEST = 10**9
MAX_SECTIONS = 8  # of an override, that its key lies in
MAX_PROBLEMS = 10  # told at once

Fraction = Annotated[float, Field(ge=0, le=1)]
BelowOne = Annotated[float, Field(ge=0, lt=1)]
# Strict, or `true` would count as 1. Floats are not: YAML reads 1e-3 as a string.
Count = Annotated[int, Field(ge=0, le=LARGEST, strict=True)]
PositiveInt = Annotated[int, Field(gt=0, le=LARGEST, strict=True)]
Sentences = Annotated[int, Field(ge=0, le=10_000, strict=True)]
Symbols = Annotated[int, Field(gt=0, le=100_000, strict=True)]
Width = Annotated[int, Field(gt=0, le=65_536, strict=True)]
Layers = Annotated[int, Field(gt=0, le=256, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**32, strict=True)]


class Closed(BaseModel):
    """A configuration section: unknown keys are errors, values are checked, nothing changes afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


class CutConfig(Closed):
    """One way of cutting documents into instances."""

    kind: Literal["sentence", "window", "document", "cumulative"] = "sentence"
    """`sentence`: each alone. `window`: each with sentences around it. `document`: pieces of at most
    `max_tokens`, translated whole. `cumulative`: each with all those before it in its piece, on the source
    side alone."""
    before: Sentences = 0
    """Of a window: sentences of context before the current one; sKtoK has K - 1."""
    after: Sentences = 0
    """Of a window: sentences of context after the current one, source alone."""
    target_before: Sentences | None = None
    """Of a window: sentences of context on the target side; not given: as many as `before`."""
    parts: PositiveInt = 1
    """Of `document` and `cumulative`: equal parts that every piece is cut into."""


class SharedCut(CutConfig):
    """Further instances to train on."""

    weight: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """How often an epoch shows each of them, on average."""


class ViewConfig(CutConfig):
    """How documents are cut into instances, and what stands between sentences."""

    max_tokens: Annotated[int, Field(gt=0, le=1_000_000, strict=True)] = 512
    """Per side of an instance: a longer window sheds context, a longer document is cut, a longer sentence is
    left out of training."""
    max_sentences: Count = 0
    """Of `document` and `cumulative`: per piece, beside `max_tokens`; 0: any number."""
    separators: Literal["plain", "indexed", "bracket", "numbered"] = "plain"
    """Between sentences: one symbol for all, one for every place in the row, a begin and an end around
    every sentence, or these with the number of the sentence in its document as the begin."""
    indexed_separators: Symbols = 100
    """How many there are; the last one serves all later places too."""
    numbers: Symbols | Literal["corpus"] = "corpus"
    """How many numbers of sentences there are; `corpus`: as many as the longest training document has
    sentences, and never more. The last one serves all later sentences too."""
    mixed_with: Annotated[tuple[SharedCut, ...], Field(max_length=100)] = ()
    """Further ways of cutting to train on (`kind`, ..., `weight`); translation and validation use the
    first."""


class PTransformerConfig(Closed):
    """Where attention is made aware of positions: the switches of Li et al. 2022, table VI."""

    self_source: bool = True
    """Absolute positions in the encoder's self-attention."""
    self_target: bool = True
    """Absolute positions in the decoder's self-attention."""
    cross: bool = True
    """Absolute positions in cross-attention."""
    relative: bool = True
    """Relative positions in self-attention on both sides."""


class GTransformerConfig(Closed):
    """Where attention leaves the sentence."""

    global_layers: Count = 2
    """Top layers of encoder and decoder with global attention beside the local one."""


class FlatTransformerConfig(Closed):
    """Where the context ends."""

    current_layers: Count = 1
    """Top encoder layers that see the current sentence alone."""


class DocFlatConfig(Closed):
    """Where current sentences see those of other rows, and how much of them passes: Wu et al. 2023."""

    source: bool = True
    """Flat-batch attention over the source."""
    target: bool = True
    """Flat-batch attention over the target, causal."""
    gate: Literal["continuous", "discrete", "identity"] = "continuous"
    """Of what was seen: a share, all or nothing, or all of it added."""
    threshold: Fraction = 0.5
    """Of the discrete gate: what opens it."""
    cross_document: bool = False
    """In training, rows of different documents see each other, as in the paper; translation, scores and
    validation keep documents apart."""


class BatchEmbeddingConfig(Closed):
    """Which side begins with the mean of all source embeddings of the batch: Morishita et al. 2021."""

    source: bool = True
    """Source rows."""
    target: bool = True
    """Target rows."""
    cross_document: bool = False
    """See `docflat.cross_document`."""


class DatapointsConfig(Closed):
    """Which side has attention between the means of rows: Wu et al. 2023, appendix C."""

    source: bool = True
    """Source rows."""
    target: bool = False
    """Target rows: every current token sees the mean of those of its row so far, and of rows before it."""
    cross_document: bool = False
    """See `docflat.cross_document`."""


class MCNConfig(Closed):
    """The switches of Zheng et al. 2020, table 3, and how far the model sees."""

    local: bool = True
    """The encoder's layers stay inside sentences, and one more on top sees the whole row; if not, there is no
    further layer, and every layer sees the whole row."""
    relative: bool = True
    """Attention over the row knows how many sentences apart two tokens are."""
    gate: bool = True
    """A gate mixes local and global states of the encoder; if not, they are added."""
    xl: bool = True
    """The decoder has relative positions and a memory; if not, ordinary positions, and its sentences are
    apart."""
    memory_sentences: Sentences = 1
    """Of `xl`: target sentences before the current one that the decoder remembers."""
    context: Sentences | None = None
    """Source sentences before and after its own that a token sees; not given: all of the row."""
    feed_forward: bool = True
    """The layer that sees the row is a whole one, as the parameter count of table 1 has it; if not, it is its
    attention alone, as the equations have it."""
    cross_context: bool = False
    """Cross-attention sees all source sentences of the row; if not, that of its target sentence alone."""


class CasaConfig(Closed):
    """How a document is written at once: what makes CASA of GLAT (Yu et al. 2024, tables 6, 7 and 9)."""

    path: Literal["sentences", "row", "length"] = "sentences"
    """How tokens come to stand on places: a path (CTC) for every sentence, one for the whole row, or as many
    places as tokens, whose number the model foretells."""
    local: bool = True
    """Lower layers stay inside sentences; if not, they see the whole row."""
    context_layers: Count = 2
    """Top layers of every stack, all if it has fewer, that see their sentence and the first and last tokens
    of the others."""
    context_nodes: Literal["keys", "queries"] = "keys"
    """What first and last tokens are in these layers: `keys`, seen by every token of the row, as the paper's
    text has it, or `queries`, which see every token, as its equation 14 is printed."""
    soft_copy: Literal["sentences", "row"] = "sentences"
    """Of what the encoder's states are copied to the places: each sentence by itself, or the row."""
    source_context: bool = True
    """Context layers of the encoder, and of the decoder looking at it; if not, they stay inside sentences."""
    target_context: bool = True
    """Context layers of the decoder looking at itself; if not, they stay inside sentences."""
    latent: bool = False
    """A second decoder foretells a code for every place, which a gate mixes into the decoder's input."""
    codes: Symbols = 64
    """Of `latent`: how many there are."""
    code_mixing: Literal["drawn", "all"] = "drawn"
    """Of `latent`, in training: where the decoder reads the right codes. `drawn`: at random places, half as
    many as were foretold wrong, and its own input elsewhere; `all`: at every place of the best path."""
    code_weight: NonNegativeFloat = 0.5
    """Of `latent`: weight of the loss of foretold codes; 1.0 in the scripts of Bao et al. 2022."""
    length_offsets: Symbols = 128
    """Of the path `length`: how many tokens more or fewer than the source a row may have."""


class ModelConfig(Closed):
    """Which model, how large, and where its tokens think they stand."""

    name: Literal[
        "transformer",
        "p_transformer",
        "g_transformer",
        "flat_transformer",
        "docflat",
        "batch_embedding",
        "datapoints",
        "mcn",
        "casa",
    ] = "transformer"
    """File in `cotext/models`."""
    dimension: Width = 512
    """Width of the stream; a multiple of `heads`."""
    feed_forward: Width = 2048
    """Inner width of the feed-forward layers."""
    heads: Width = 8
    """Attention heads."""
    encoder_layers: Layers = 6
    """Encoder blocks."""
    decoder_layers: Layers = 6
    """Decoder blocks."""
    dropout: BelowOne = 0.3
    """On embeddings and sublayer outputs (Vaswani et al. 2017, section 5.4)."""
    activation_dropout: BelowOne = 0.0
    """Inside the feed-forward layers, on what comes out of their ReLU; base systems have none there."""
    attention_dropout: BelowOne = 0.0
    """On attention weights; above 0, attention on a CPU is several times slower."""
    pre_norm: bool = False
    """Layer norm before each sublayer, not after it."""
    initialisation: Literal["xavier", "fairseq", "normal"] = "fairseq"
    """Distribution of initial weights: Xavier's; that of the toolkit which the papers used, layer for layer;
    or a normal one of standard deviation 0.02, as BERT's."""
    positions: Literal["absolute", "reset", "shifted"] = "absolute"
    """From the start of the row, from the start of the sentence, or segment-shifted."""
    shift: Sentences | Literal["corpus", "sequence"] = "corpus"
    """Positions added per sentence if shifted; `corpus`: the mean sentence length of the training corpus in
    tokens, `sequence`: that of the source window."""
    segments: Literal["none", "learned", "sinusoidal"] = "none"
    """Embeddings of the sentence index, added at the input."""
    from_first: bool | None = None
    """Shifted positions and sinusoidal segments begin with the first sentence of a row, as published; if not,
    with the second. Not given: as published, but with the second in training that starts from a run without
    them (`train.init`), which knows first sentences as they are."""
    p_transformer: PTransformerConfig = PTransformerConfig()
    g_transformer: GTransformerConfig = GTransformerConfig()
    flat_transformer: FlatTransformerConfig = FlatTransformerConfig()
    docflat: DocFlatConfig = DocFlatConfig()
    batch_embedding: BatchEmbeddingConfig = BatchEmbeddingConfig()
    datapoints: DatapointsConfig = DatapointsConfig()
    mcn: MCNConfig = MCNConfig()
    casa: CasaConfig = CasaConfig()


class LossConfig(Closed):
    """What training minimises."""

    name: Literal["cross_entropy", "glancing"] = "cross_entropy"
    """File in `cotext/losses`; `glancing` for models that write all at once."""
    label_smoothing: BelowOne = 0.1
    """Probability mass spread over the vocabulary."""
    context_discount: Fraction = 1.0
    """Weight of labels of context sentences; 1: like all others."""
    glancing: tuple[Fraction, Fraction] = (0.5, 0.3)
    """Of the places that are wrong, the share revealed in training: at its start, and at its end."""


class TrainConfig(Closed):
    """Optimiser, schedule, validation and checkpoints."""

    init: str = ""
    """Run whose weights training starts from (`--init RUN`); `required` in a recipe that needs one."""
    init_parts: Literal["all", "encoder"] = "all"
    """What starts from them: all that fits, or all but what is the decoder's alone; embeddings are shared."""
    init_copies: bool = True
    """Where one of them has two counterparts, as in G-Transformer's local and global attention, both start
    from it; if not, the first alone, and the other at random."""
    fresh_rate: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Learning rate of parameters that have nothing to start from there, as a multiple of `learning_rate`."""
    seed: Seed = 1
    """Of initial weights, dropout and the order of the data."""
    max_updates: PositiveInt = 100_000
    """Optimiser steps."""
    max_tokens: PositiveInt = 16_000
    """Of a batch on one process: rows times the longer side, padding included."""
    order: Literal["shuffled", "documents"] = "shuffled"
    """Of the instances in a batch: `shuffled` ones of like length, or consecutive ones of a document."""
    context: Literal["own", "foreign"] = "own"
    """Sentences around the current one: its own, or as a control those of another document."""
    word_dropout: BelowOne = 0.0
    """Share of the words of source and target input that training hides, as unknown words; labels stay."""
    word_dropout_epochs: Count = 0
    """For how many epochs; afterwards all words are seen. 0: always."""
    accumulate: Annotated[int, Field(gt=0, le=10_000, strict=True)] = 1
    """Batches per update."""
    learning_rate: Annotated[float, Field(gt=0)] = 7e-4
    """At the end of the warm-up, its peak."""
    warmup_updates: Count = 4000
    """Linear rise; afterwards the rate falls with the inverse square root."""
    adam_betas: tuple[BelowOne, BelowOne] = (0.9, 0.98)
    """Decay rates of Adam's moments."""
    adam_epsilon: Annotated[float, Field(gt=0, le=1)] = 1e-9
    """Added to the root of Adam's second moment (Vaswani et al. 2017, section 5.3)."""
    weight_decay: NonNegativeFloat = 0.0
    """Decoupled from the gradient."""
    clip_norm: NonNegativeFloat = 1.0
    """Largest gradient norm; 0: no limit."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Of matrix products; weights and sums stay fp32. Less than fp32 pays on a GPU alone."""
    validate_every: PositiveInt | Literal["epoch"] = 1000
    """Updates between validations, or `epoch`: one after each; a checkpoint is written at each."""
    validate_bleu: bool = True
    """Translate development documents (greedily) at every validation."""
    validate_documents: PositiveInt = 50
    """How many of them."""
    best_by: Literal["loss", "bleu"] = "loss"
    """What makes a checkpoint the best; `loss` is that of the current sentences, per token."""
    patience: Count = 12
    """Validations without a better one before training stops; 0: never."""
    keep: PositiveInt = 5
    """Most recent checkpoints kept, beside those that averaging needs."""
    average: PositiveInt = 5
    """Checkpoints averaged into the final model, unless the development set prefers the best of them; 1: the
    best alone."""
    average_by: Literal["best", "last"] = "best"
    """Those closest to the best, itself included, or the last."""
    log_every: PositiveInt = 100
    """Updates between reports."""
    pool_tokens: PositiveInt = 2_000_000
    """Tokens of documents read ahead, to shuffle and to bucket by length."""
    threads: Annotated[int, Field(ge=0, le=1024, strict=True)] = 0
    """Per process on the CPU, never more than there are cores; 0: one for models narrower than 256, else all
    cores."""


class DecodeConfig(Closed):
    """Beam search, and how documents are translated sentence after sentence."""

    beam: Annotated[int, Field(gt=0, le=1000, strict=True)] = 4
    """Hypotheses side by side; 1: greedy."""
    beam_per: Literal["document", "sentence"] = "document"
    """Of documents translated whole: hypotheses compete to the end of their piece, or to the end of every
    sentence, where the best one becomes the context of the next; the latter needs `bracket`."""
    length_penalty: Annotated[float, Field(ge=0, le=10)] = 0.6
    """Scores are log-probabilities divided by length to this power."""
    align: Literal["constrained", "free"] = "constrained"
    """`constrained`: as many sentences as the source has, each with a word, whatever the model would write;
    `free`: sentences are recovered from the separators that the model writes, and missing ones stay empty."""
    target_context: Literal["prefix", "regenerate"] = "prefix"
    """`prefix` forces the translations already made and writes the current sentence alone; `regenerate`
    writes the whole window and keeps its last sentence, as the paper does."""
    neighbours: Annotated[int, Field(gt=0, le=10_000, strict=True)] = 16
    """Of models that see other rows: how many consecutive windows of a document see each other."""
    schedule: Literal["sequential", "parallel"] = "sequential"
    """Of these windows: one after the other, each beside the finished translations of those before it, or all
    at once, beside what they have written so far; the latter needs `first_pass` where the target has
    context."""
    first_pass: str = ""
    """Run whose translations are the target context, instead of the system's own; `init`: that which training
    started from."""
    max_ratio: Annotated[float, Field(gt=0, le=20)] = 2.0
    """A sentence holds at most max_ratio times its source tokens, plus `max_extra`."""
    max_extra: Annotated[int, Field(ge=0, le=10_000, strict=True)] = 20
    """See `max_ratio`."""
    max_source_tokens: Annotated[int, Field(gt=0, le=1_000_000, strict=True)] = 1024
    """A longer sentence is refused before any work is done; to score, so is a target sentence that is longer
    than what would be written for one of so many."""
    max_tokens: PositiveInt = 8000
    """Of a batch being decoded, beams included."""


class Config(Closed):
    """A recipe: everything that decides what is trained and how it translates."""

    paper: str = ""
    """Which row of which table the recipe stands for."""
    languages: Annotated[str, Field(pattern="^([a-z]{2,3}-[a-z]{2,3})?$")] = ""
    """Source and target language, as in en-de; filled in from the data. Empty: not known."""
    view: ViewConfig = ViewConfig()
    model: ModelConfig = ModelConfig()
    loss: LossConfig = LossConfig()
    train: TrainConfig = TrainConfig()
    decode: DecodeConfig = DecodeConfig()


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
        content = sized(content, parse_config(content, where).model_dump(), size)
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


def differences(before: Config, now: Config) -> Iterator[tuple[str, Any, Any]]:
    """The dotted keys in which two configurations differ, with both values."""
    contents = before.model_dump(), now.model_dump()
    for key, _ in _keys(Config):
        one, other = (reduce(lambda place, part: place[part], key.split("."), c) for c in contents)
        if one != other:
            yield key, one, other


def _read_recipe(recipe: str) -> tuple[dict[str, Any], str]:
    if recipe.endswith((".yaml", ".yml")):
        where = recipe
        text = read_text(Path(recipe))
    else:
        names = recipe_names()
        if recipe not in names:
            near = [n for n in names if recipe in n][:3] or nearest(recipe, names, 3, cutoff=0.4)
            hint = f"did you mean {' or '.join(near)}?" if near else "`cotext systems` lists them all"
            raise CotextError(f"no recipe {shown(recipe)}: {hint} (a recipe of your own ends in .yaml)")
        where = f"recipe {recipe}"
        text = (resources.files("cotext") / "recipes" / f"{recipe}.yaml").read_text(encoding="utf-8")
    content = parse_yaml(text, where) or {}
    if not isinstance(content, dict):
        raise CotextError(f"{where}: expected a mapping of keys to values")
    return content, where


def _apply_override(content: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    written = shown(override)
    if not equals or not key:
        raise CotextError(f"{written} is not an override: write key.path=value, as in train.max_updates=3")
    *sections, last = key.split(".")
    if len(sections) > MAX_SECTIONS:
        raise CotextError(f"{written}: no key lies in so many sections")
    place = content
    for section in sections:
        inner = place.get(section)
        if inner is None:
            inner = place[section] = {}
        if not isinstance(inner, dict):
            raise CotextError(f"{written}: {section} is a value, not a section")
        place = inner
    place[last] = parse_yaml(value, f"{written}: the value")


def _explain(error: ValidationError, where: str) -> Iterator[str]:
    known = [*Config.model_fields, *(key for key, _ in _keys(Config))]
    parts = _parts(known)
    problems = error.errors(include_url=False)
    for problem in problems[:MAX_PROBLEMS]:
        key = ".".join(str(part) for part in problem["loc"] if isinstance(part, int) or part in parts)
        written = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            [near] = nearest(written, known)
            yield f"{where}: unknown key {shown(written)}; the nearest known one is '{near}'"
        else:
            found = f"{key or shown(written)} = {shown(problem['input'])}"
            yield f"{where}: {found}: {problem['msg'].lower()}"
    if len(problems) > MAX_PROBLEMS:
        yield f"{where}: and {len(problems) - MAX_PROBLEMS:,} more like these"


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


def reference() -> Iterator[tuple[str, str, Any, str]]:
    """Every key with the type it takes, its default and what it does: the recipe reference."""
    for key, default in _keys(Config):
        *sections, last = key.split(".")
        model: Any = Config
        for section in sections:
            model = model.model_fields[section].annotation
        field = model.model_fields[last]
        schema = model.model_json_schema()["properties"][last]
        limits = [part["maximum"] for part in (schema, *schema.get("anyOf", ())) if "maximum" in part]
        most = min(limits, default=LARGEST)
        limit = f", at most {most:,}" if most < LARGEST else ""
        yield key, _type_name(field.annotation) + limit, default, " ".join((field.description or "").split())


def _type_name(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " | ".join(str(value) for value in get_args(kind))
    if get_origin(kind) is Annotated:
        return _type_name(get_args(kind)[0])
    if get_origin(kind) is tuple and get_args(kind)[-1] is Ellipsis:
        return f"list of {_type_name(get_args(kind)[0])}"
    if get_origin(kind) is tuple:
        return ", ".join(_type_name(part) for part in get_args(kind))
    if get_origin(kind) in (Union, UnionType):
        return " | ".join(_type_name(part) for part in get_args(kind))
    return str(kind.__name__ if isinstance(kind, type) else kind)
