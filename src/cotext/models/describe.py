"""Descriptions of recipes and configurations in words.

This module does not import torch, so that the list of all recipes is printed without delay.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from itertools import groupby
from textwrap import wrap

from cotext.config.model import ModelConfig
from cotext.config.recipe import Config, CutConfig, DecodeConfig, first_parent, load_config, recipe_names
from cotext.runtime import leaves

# Keys of the section `model` that define the architecture, not its size.
SLOTS = (
    "reads_source",
    "attention",
    "encoder",
    "decoder",
    "cross",
    "source_sentences",
    "batch_context",
    "batch",
    "context_encoder",
    "context_layers",
    "document_layer",
    "document",
    "nat",
    "positions",
    "target_positions",
    "position_encoding",
    "shift",
    "segments",
    "target_segments",
    "segments_from",
    "from_first",
)
WIDTH = 100  # columns of a terminal
# Made by `make docs`, because counting needs the models. A missing recipe has the number of its first parent.
PARAMETERS = "parameters.json"

PAPERS = {
    "casa": "Yu et al. 2024, Context-Aware Non-Autoregressive Document-Level Translation with "
    "Sentence-Aligned Connectionist Temporal Classification",
    "d-lm": "Sugiyama and Yoshinaga 2021, Context-aware Decoder for Neural Machine Translation using a "
    "Target-side Document-Level Language Model",
    "docrepair": "Voita et al. 2019, Context-Aware Monolingual Repair for Neural Machine Translation",
    "docflat": "Wu et al. 2023, Document Flattening: Beyond Concatenating Context for Document-Level "
    "Neural Machine Translation",
    "doct": "J. Zhang et al. 2018, Improving the Transformer Translation Model with Document-Level Context",
    "flat-transformer": "Ma et al. 2020, a baseline in other papers",
    "focused-concatenation": "Lupo et al. 2022, Focused Concatenation for Context-Aware Neural Machine "
    "Translation",
    "g-transformer": "Bao et al. 2021, a baseline in other papers",
    "lstm-trans": "P. Zhang et al. 2020, Long-Short Term Masking Transformer",
    "mcn": "Zheng et al. 2020, Toward Making the Most of Context in Neural Machine Translation",
    "mr": "Sun et al. 2022, a baseline in other papers",
    "han": "Miculicich et al. 2018, Document-Level Neural Machine Translation with Hierarchical Attention "
    "Networks",
    "mixtures": "Ideas of several papers in one system",
    "modern": "Positions of later models: Su et al. 2021; Post and Junczys-Dowmunt 2023",
    "opus": "Pretrained sentence models (OPUS-MT, NLLB, mBART) that are trained further on documents",
    "p-transformer": "Li et al. 2022, P-Transformer: Towards Better Document-to-Document Neural Machine "
    "Translation",
    "san": "Maruf et al. 2019, Selective Attention for Context-aware Neural Machine Translation",
    "voita-2018": "Voita et al. 2018, Context-Aware Neural Machine Translation Learns Anaphora Resolution",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """The description of a recipe in the package; `parameters` at base size with 32,000 subwords.

    `needs_init`: training starts from another run (`train --init RUN`).
    """

    recipe: str
    view: str
    model: str
    loss: str
    decoding: str
    parameters: int
    needs_init: bool

    @property
    def paper(self) -> str:
        """The name of its folder, which identifies the paper."""
        return self.recipe.partition("/")[0]

    @property
    def title(self) -> str:
        """The title of its paper; without one, the name of the folder."""
        return PAPERS.get(self.paper, self.paper)


def entries() -> Iterator[Entry]:
    """Yield every shipped recipe, by name."""
    text = (resources.files("cotext.config") / "recipes" / PARAMETERS).read_text(encoding="utf-8")
    counts: dict[str, int] = json.loads(text)
    for name in recipe_names():
        counted = name
        while counted and counted not in counts:
            counted = first_parent(counted)
        yield entry(name, load_config(name), counts.get(counted, 0))


def entry(name: str, config: Config, parameters: int) -> Entry:
    """Describe a configuration."""
    view, model, decode, loss = config.view, config.model, config.decode, config.loss
    of_glancing = loss.name == "glancing"
    number = "{:g} to {:g}".format(*loss.glancing) if of_glancing else f"CD {loss.context_discount:g}"
    views = [describe_cut(cut, view.max_sentences) for cut in (view, *view.mixed_with)]
    if config.train.order == "documents":
        views.append("in order")
    return Entry(
        name,
        ", ".join(views if len(views) < 4 else [views[0], views[1], "...", views[-1]]),
        describe_model(model).replace(",", ", "),
        f"{loss.name} {number}",
        f"beam {decode.beam} lp {describe_length_penalty(decode)} {describe_output(config)}".rstrip(),
        parameters,
        config.train.init == "required",
    )


def render() -> str:
    """Return all recipes by paper: name and number of parameters, with the settings in the next line."""
    lines: list[str] = []
    for title, recipes in groupby(entries(), key=lambda recipe: recipe.title):
        lines += ["", *wrap(title, WIDTH)]
        for recipe in recipes:
            parameters = f"{recipe.parameters / 1e6:.1f} M"
            name = f"{recipe.recipe} (needs --init)" if recipe.needs_init else recipe.recipe
            lines.append(f"  {name:<{WIDTH - 12}}{parameters:>10}")
            about = "; ".join((recipe.view, recipe.model, recipe.loss, recipe.decoding))
            indent = " " * 6
            lines += wrap(about, WIDTH, initial_indent=indent, subsequent_indent=indent)
    heading = (
        "recipe, and its parameters at base size with 32,000 subwords; view; model; loss; decoding.\n"
        "(needs --init): training starts from another run, as in `cotext train RECIPE --init RUN`."
    )
    return "\n".join([heading, *lines])


def describe_model(config: ModelConfig) -> str:
    """Return the base model, and the slots whose values are not the defaults."""
    base = "transformer" if config.writes == "left_to_right" else "nat"
    settings, defaults = (
        dict(leaves({slot: dump[slot] for slot in SLOTS}))
        for dump in (config.model_dump(), ModelConfig().model_dump())
    )
    filled = ",".join(f"{key}={value}" for key, value in settings.items() if defaults.get(key) != value)
    return f"{base}({filled})" if filled else base


def describe_cut(cut: CutConfig, max_sentences: int) -> str:
    """Return the windows of a view in short: `sentence`, `window-3+1+0`, `document`, `document-20s/4` ...

    `max_sentences`: the setting of the view; 20 in the last example.
    """
    if cut.kind == "sentence":
        return cut.kind
    if cut.kind == "window":
        target = "" if cut.target_before is None else f"to{cut.target_before + 1}"
        return f"window-{cut.before}+1+{cut.after}{target}"
    name = f"{cut.kind}-{max_sentences}s" if max_sentences else cut.kind
    return name if cut.parts == 1 else f"{name}/{cut.parts}"


def describe_length_penalty(decode: DecodeConfig) -> str:
    """Return the exponent of the length penalty, with the form unless it is `power`: `gnmt-0.6`."""
    form = "" if decode.length_penalty_form == "power" else f"{decode.length_penalty_form}-"
    return f"{form}{decode.length_penalty:g}"


def describe_output(config: Config) -> str:
    """Return `target_context` for windows with target context, `align` for documents, otherwise nothing."""
    view, decode = config.view, config.decode
    if view.kind == "window" and view.target_before != 0:
        return decode.target_context
    return decode.align if view.kind == "document" else ""
