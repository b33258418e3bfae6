"""Initialisation from the weights of another run (`train.init`), its report, and the loss at the start.

A parameter is initialised from the first of these parameters that the other run has:

    taken     the parameter of the same name and shape
    adopted   the parameter of the same shape and with the name in `System.adopted_names`
    partly    the leading rows of the parameter of the same name with fewer rows, such as an embedding
              without the symbols that the recipe adds (or with more symbols, which are then left out)

Otherwise it gets the constant at which it has no effect (`System.neutral_start`), or keeps its random values.
Unless `train.init_copies` or `model.neutral_start` is true, a parameter in use is not adopted again. With
`train.init_parts: encoder`, the decoder's parameters are ignored; embeddings and output bias are not.

If the two recipes separate sentences differently, the embeddings of separators have different meanings. A
symbol that does not occur in the other run starts as a copy of a similar symbol (`translate_symbols`). Its
row in the other run would be a bad start, because symbols that never occur are trained to be improbable.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cotext.config.recipe import Config, ViewConfig, differences
from cotext.data.sampling import ordered_batches
from cotext.data.store import TokenDocument, TokenStore
from cotext.data.tokenizer import Tokenizer
from cotext.data.views import View, WindowView
from cotext.layers.start import NewSymbols
from cotext.models.build_views import build_view, further_symbols, has_separators, special_symbols
from cotext.models.checkpoint import LoadedModel, load_run, load_weights, set_blend
from cotext.models.interface import Model, System, TranslationModel
from cotext.models.run_folder import describe_file, is_ended, model_file
from cotext.runtime import CotextError, read_text
from cotext.runtime.files import sealed, unsealed, write_text
from cotext.runtime.jobs.engine import in_ranges
from cotext.training.inputs import ARCHITECTURE, architecture, replacements
from cotext.training.losses import CrossEntropy

# Settings that change the meaning of weights, but not their shape: scores, and vectors added to embeddings.
MEANING = (
    *("score", "positions", "target_positions", "shift", "from_first", "relative_span"),
    *("segments", "target_segments", "segments_from"),
)
VOCABULARY = "embedding.weight"  # in every system
OF_SYMBOLS = (VOCABULARY, "embedding.source_weight", "output_bias")  # parameters with a row per symbol
RELATIVE = "relative"  # name of the table of relative positions
DECODER = ("decoder", "target", "batch_context.target", "latent", "length")  # prefixes of decoder modules


@dataclass(slots=True)
class Inheritance:
    """The origins of the initial parameters of a model, by name.

    `sizes`: number of elements of each parameter of the model. `source`: parameters of the other run.
    `partly`: number of rows taken, and of all rows.
    """

    sizes: dict[str, int]
    source: Collection[str]
    taken: list[str] = field(default_factory=list)
    adopted: dict[str, str] = field(default_factory=dict)
    partly: dict[str, tuple[int, int]] = field(default_factory=dict)
    neutral: list[str] = field(default_factory=list)
    fresh: list[str] = field(default_factory=list)

    @property
    def unused(self) -> list[str]:
        """Parameters of the other run that the model does not use."""
        used = {*self.taken, *self.adopted.values(), *self.partly}
        return [name for name in self.source if name not in used]

    @property
    def new(self) -> list[str]:
        """Parameters without a counterpart in the other run."""
        return [*self.neutral, *self.fresh]

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report; similar layers and modules are listed together."""
        yield f"  taken by name: {self._listed(self.taken)}"
        if self.adopted:
            yield f"  copied from another parameter: {self._listed(self.adopted)}"
        for name, (rows, all_rows) in self.partly.items():
            yield f"  taken in part: {name}, the first {rows:,} of {all_rows:,} rows"
        if self.neutral:
            yield f"  set to a neutral constant, without effect at first: {self._listed(self.neutral)}"
        yield f"  newly initialised: {self._listed(self.fresh)}"
        if self.unused:
            yield f"  not used: {', '.join(grouped(self.unused, self.source))}"

    def _listed(self, names: Collection[str]) -> str:
        if not names:
            return "nothing"
        numbers, several = sum(self.sizes[name] for name in names), "" if len(names) == 1 else "s"
        return (
            f"{len(names)} parameter{several} ({numbers:,} numbers): {', '.join(grouped(names, self.sizes))}"
        )


@dataclass(frozen=True, slots=True)
class WarmStart:
    """The run from which training started, and the parameters taken from it.

    `left_out`: parameters of the other run that were excluded (`train.init_parts`). `differing`: settings
    that change the meaning of the weights, with both values. `symbols`: the origin of symbols
    that do not occur in the other run. `architecture`: settings taken from the other run
    (`train.init_architecture`), with their values and the recipe's. `blended`: parts that are blended in
    over the first `blend_updates` updates. `is_ended`: whether the training of the other run is finished.
    """

    run: Path
    updates: list[int]
    inheritance: Inheritance
    differing: dict[str, tuple[str, str]]
    symbols: str = ""
    left_out: tuple[str, ...] = ()
    architecture: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    blended: tuple[str, ...] = ()
    blend_updates: int = 0
    is_ended: bool = True

    def render(self) -> str:
        updates = "+".join(map(str, self.updates))
        so_far = "" if self.is_ended else "; its training is not finished"
        lines = [f"starting from {self.run} (updates {updates}{so_far}):", *self.inheritance.lines()]
        if self.left_out:
            left_out = ", ".join(grouped(self.left_out, [*self.inheritance.source, *self.left_out]))
            lines.append(
                f"  left out (train.init_parts = encoder): {left_out}; embeddings and output bias are taken"
            )
        if self.symbols:
            lines.append(f"  symbols: {self.symbols}")
        if self.architecture:
            words = (f"{key} = {here}, not {asked}" for key, (here, asked) in self.architecture.items())
            lines.append(f"  architecture of that run, not of the recipe: {', '.join(words)}")
        if self.blended:
            when = f"blended in over {self.blend_updates:,} updates"
            if not self.blend_updates:
                when = "without blending (train.blend_updates = 0)"
            lines.append(f"  parts without neutral start: {', '.join(self.blended)}; {when}")
        if self.differing:
            words = (
                f"{key} = {here}, {there} in the other run" for key, (here, there) in self.differing.items()
            )
            lines.append(f"  settings that differ: {', '.join(words)}")
        return "\n".join(lines)

    def write(self, path: Path, loss: Mapping[str, float]) -> None:
        """Write the report with the initial losses as JSON; raises CotextError for storage errors."""
        origin = self.inheritance
        groups = {key: getattr(origin, key) for key in ("taken", "adopted", "neutral", "fresh")}
        content = {
            "run": str(self.run.resolve()),
            "updates": self.updates,
            "numbers": {key: sum(origin.sizes[name] for name in names) for key, names in groups.items()},
            "taken": origin.taken,
            "adopted": origin.adopted,
            "partly": {name: {"rows": n, "of": of} for name, (n, of) in origin.partly.items()},
            "neutral": origin.neutral,
            "fresh": origin.fresh,
            "unused": origin.unused,
            "left_out": self.left_out,
            "symbols": self.symbols,
            "differing": {
                key: {"here": here, "there": there} for key, (here, there) in self.differing.items()
            },
            "architecture": {
                key: {"here": here, "recipe": asked} for key, (here, asked) in self.architecture.items()
            },
            "blended": {"settings": self.blended, "updates": self.blend_updates},
            "loss": loss,
        }
        write_text(path, f"{sealed(content)}\n")


def read_account(path: Path) -> dict[str, Any]:
    """Read the report that `WarmStart.write` wrote; raises CotextError if it is missing or damaged."""
    try:
        return unsealed(read_text(path))
    except (CotextError, ValueError):
        raise CotextError(
            f"{path}: missing or damaged; it describes the start of training: restore it, or choose another "
            "--out"
        ) from None


def start_from(
    run: Path, model: System, config: Config, tokenizer: Tokenizer, requested: Config | None = None
) -> WarmStart:
    """Initialise a model from the final weights of another run; int8 weights are converted to float32.

    `requested` is the configuration before `settle_by_start`. Raises CotextError if the other run is not
    trained or has another tokenizer, or if no matrix of it fits.
    """
    path = model_file(run)
    described = describe_file(path)
    if described.fingerprint != tokenizer.fingerprint:
        raise CotextError(
            f"{run}: was not trained with the tokenizer of the data, so the embeddings cannot be "
            "used; pass the data that it was trained on, or start from a run on this data"
        )
    weights = load_weights(path)
    symbols = ""
    for name in OF_SYMBOLS:
        if name in weights:
            views = described.config.view, config.view
            weights[name], symbols = translate_symbols(weights[name], *views, tokenizer)
    if RELATIVE in weights:
        weights[RELATIVE] = at_span(weights[RELATIVE], config.model.relative_span)
    left_out = () if config.train.init_parts == "all" else tuple(n for n in weights if n.startswith(DECODER))
    given = {name: weights[name] for name in weights if name not in left_out}
    copies = config.train.init_copies or config.model.neutral_start is True
    inheritance = inherit(model, given, copies)
    differing = {
        key: (str(here), str(there))
        for key, there, here in differences(described.config, config)
        if key == "view.separators"
        or (key.startswith("model.") and key.rpartition(".")[2] in (*MEANING, *ARCHITECTURE))
    }
    # Only matrices count: some vectors, such as the output bias, have the same shape at any width.
    matrices = {name for name, tensor in model.state_dict().items() if tensor.dim() > 1}
    if matrices.isdisjoint({*inheritance.taken, *inheritance.adopted}):
        words = "".join(f"\n  {key}: {here} here, not {there}" for key, (here, there) in differing.items())
        raise CotextError(f"{run}: none of its weights fits this model; start from another run{words}")
    keys = {f"model.{key}" for key in architecture(config, described.config)}
    changed = differences(requested or config, config)
    return WarmStart(
        run,
        described.updates,
        inheritance,
        differing,
        symbols,
        left_out,
        {key: (str(here), str(recipe)) for key, recipe, here in changed if key in keys},
        tuple(replacements(described, config)),
        config.train.blend_updates or 0 if config.train.blend else 0,
        is_ended(run),
    )


def translate_symbols(
    table: Tensor, there: ViewConfig, here: ViewConfig, tokenizer: Tokenizer
) -> tuple[Tensor, str]:
    """Return an embedding with the rows that a recipe needs, and a description of the new rows.

    `there` and `here` are the views of the other run and of the recipe. A separator that the other run does
    not have is a copy of the end symbol. Additional indexed separators are copies of the last separator of
    the other run, which it uses for all later sentences. Sentence numbers are copies of that run's
    last number or the begin symbol.
    """
    shared, wanted = tokenizer.vocabulary_size, further_symbols(here)
    known = table[shared:][:wanted] if there.separators == here.separators else table[:0]
    # In a separate source vocabulary, subwords follow the special symbols, and there are no other symbols.
    pieces = table[shared : tokenizer.source_vocabulary_size]
    table, words = torch.cat((table[:shared], pieces)), []
    if has_separators(here) and not has_separators(there):
        table[tokenizer.sep] = table[tokenizer.eos]
        words.append("the separator is copied from the end symbol")
    if wanted:
        numbered = here.separators == "numbered"
        first, name = (tokenizer.bos, "the begin symbol") if numbered else (tokenizer.sep, "the separator")
        like, name = (known[-1], "the last") if len(known) else (table[first], name)
        copied = wanted - len(known)
        kind = "numbers of sentences" if numbered else "further separators"
        copies = f", {copied} copied from {name}" if copied else ""
        words.append(f"{kind}: {len(known)} taken{copies}")
        table = torch.cat((table, known, like.expand(copied, *like.shape)))
    return table, "; ".join(words)


def at_span(table: Tensor, span: int) -> Tensor:
    """Resize a table of relative positions to distances up to `span`: [2 * old + 1, K] -> [2 * span + 1, K].

    Larger distances are copies of the largest old distance, which represents them in the other run.
    """
    old = len(table) // 2
    return table[torch.arange(-span, span + 1).clamp(-old, old) + old]


def inherit(model: System, weights: Mapping[str, Tensor], copies: bool = True) -> Inheritance:
    """Copy the weights of another model that fit, as described at the top of this module.

    Without `copies`, a weight that was used once is not adopted again.
    """
    state, adopted, neutral = model.state_dict(), model.adopted_names(), model.neutral_start()
    if unknown := adopted.keys() - state.keys():
        raise ValueError(
            f"{type(model).__name__} adopts weights for {', '.join(sorted(unknown))}: no such names"
        )
    origin = Inheritance({name: tensor.numel() for name, tensor in state.items()}, weights.keys())
    with torch.no_grad():
        for name, tensor in state.items():
            same, other = weights.get(name), weights.get(adopted.get(name, ""))
            if same is not None and same.shape == tensor.shape:
                tensor.copy_(same)
                origin.taken.append(name)
            elif (
                other is not None
                and other.shape == tensor.shape
                and (copies or adopted[name] not in {*origin.taken, *origin.adopted.values()})
            ):
                tensor.copy_(other)
                origin.adopted[name] = adopted[name]
            elif same is not None and _shares_rows(same, tensor, name == VOCABULARY):
                rows = min(len(same), len(tensor))
                tensor[:rows].copy_(same[:rows])
                origin.partly[name] = rows, len(tensor)
            elif name in neutral:
                tensor.fill_(neutral[name])
                origin.neutral.append(name)
            else:
                origin.fresh.append(name)
    return origin


def _shares_rows(source: Tensor, target: Tensor, of_symbols: bool) -> bool:
    """Return whether the leading rows of two tables correspond."""
    # A vector of another length belongs to a layer of another width. A shorter table lacks the last rows. The
    # vocabulary may also be longer, because separators are appended after the shared symbols.
    same_width = source.dim() == target.dim() > 1 and source.shape[1:] == target.shape[1:]
    return same_width and (of_symbols or len(source) < len(target))


def grouped(names: Collection[str], everything: Iterable[str]) -> list[str]:
    """Shorten names of parameters to the largest modules that contain only them, and join numbered modules.

    `encoder.4.ffn.weight`, `encoder.4.ffn.bias`, `encoder.5.ffn...` become `encoder.4-5.ffn`.
    """
    chosen = set(names)
    mixed = {prefix for name in everything if name not in chosen for prefix in _prefixes(name)}
    numbers: dict[str, list[int]] = {}
    for part in dict.fromkeys(next(p for p in _prefixes(name) if p not in mixed) for name in names):
        first = re.search(r"(?<=\.)\d+(?=\.|$)", part)
        pattern = f"{part[: first.start()]}#{part[first.end() :]}" if first else part
        numbers.setdefault(pattern, []).extend([int(first[0])] if first else [])
    return [pattern.replace("#", in_ranges(sorted(group))) for pattern, group in numbers.items()]


def _prefixes(name: str) -> Iterator[str]:
    """Yield `a`, `a.b`, `a.b.c` for `a.b.c`."""
    parts = name.split(".")
    return (".".join(parts[:length]) for length in range(1, len(parts) + 1))


# --- The development loss before the first update. On single sentences, it equals that of the other run if
# all new parts of the model start without effect.


SAMPLE_SENTENCES = 400  # of the first development documents, which are complete; this takes seconds


@dataclass(frozen=True, slots=True)
class StartLoss:
    """Mean negative log-likelihood per current label, in nats, over the same documents.

    `sentences_there`: loss of the other run on single sentences. `sentences_here`, `instances_here`: loss of
    the model before its first update, on single sentences and on instances of its view.
    """

    sentences_there: float
    sentences_here: float
    instances_here: float

    def render(self) -> str:
        return (
            f"  development loss at the start, nats per token: single sentences {self.sentences_here:.3f} "
            f"({self.sentences_there:.3f} in that run), instances of this recipe {self.instances_here:.3f}"
        )


def start_loss(
    run: Path, model: Model, config: Config, dev: TokenStore, tokenizer: Tokenizer, device: torch.device
) -> StartLoss | None:
    """Measure a model that was initialised from `run`; return None if either is non-autoregressive."""
    here, there = LoadedModel(model, config, tokenizer, []), load_run(run)
    if not (here.writes_left_to_right and there.writes_left_to_right):
        return None
    new_model, old_model = (run.left_to_right("the loss at the start").to(device) for run in (here, there))
    documents: list[TokenDocument] = []
    count = 0
    while len(documents) < len(dev) and count < SAMPLE_SENTENCES:
        documents.append(dev[len(documents)])
        count += len(documents[-1].source)
    here_mode, blend = new_model.training, config.train.blend or ()

    measured = partial(_mean_nll, documents=documents, tokenizer=tokenizer, device=device)
    sentences = WindowView(0)
    if "separators" in blend:  # the other run was not trained to predict these symbols
        sep = there.tokenizer.sep
        old_model.new_symbols.append(NewSymbols("separators", range(sep, sep + 1)))
        old_model.blend(0.0, blend, everywhere=True)
    sentences_there = measured(old_model, there.config, sentences)
    set_blend(new_model, config.train, [0])
    sentences_here, instances_here = (
        measured(new_model, config, view) for view in (sentences, build_view(config.view))
    )
    new_model.blend(1.0, blend)
    new_model.train(here_mode)
    return StartLoss(sentences_there, sentences_here, instances_here)


@torch.no_grad()
def _mean_nll(
    model: TranslationModel,
    config: Config,
    view: View,
    documents: list[TokenDocument],
    tokenizer: Tokenizer,
    device: torch.device,
) -> float:
    batches = ordered_batches(
        documents,
        view,
        special_symbols(tokenizer, config.view),
        config.train.max_tokens,
        config.view.max_tokens,
        group_windows=config.decode.group_windows if model.sees_other_rows else None,
    )
    loss, total, count = CrossEntropy(0.0, 1.0), 0.0, 0
    for batch in batches:
        nll, labels = loss(model.eval(), batch.to(device)).parts["nll_current"]
        total, count = total + float(nll), count + int(labels)
    return total / max(count, 1)
