"""Training that starts from the weights of another run (`train.init`), and the account of what was taken.

A parameter is filled from the first of these that the other run has:

    taken     the parameter of its name and shape
    adopted   the parameter that the model names for it (`System.adopted_names`), of its shape
    partly    the parameter of its name with fewer rows: the leading ones, as of an embedding to which the
              recipe has appended special symbols

and keeps its fresh values otherwise, or the constant at which it changes nothing yet
(`System.neutral_start`). Without `train.init_copies` no parameter of the other run fills two. Where
`train.init_parts` is `encoder`, the other run has nothing that is the decoder's alone. Rows of the vocabulary
mean the same only as far as both recipes set sentences apart alike. Symbols which the other run has never
seen start as copies of those that they resemble (`translate_symbols`): fresh rows would have to be unlearned
as words first, since symbols that never occur have learned to be improbable.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cotext.config.recipe import Config, differences
from cotext.config.view import ViewConfig
from cotext.data.build import further_symbols, has_separators
from cotext.data.tokenizer import Tokenizer
from cotext.models.checkpoint import load_weights
from cotext.models.interface import System
from cotext.models.run_folder import describe_file, model_file
from cotext.runtime.errors import CotextError
from cotext.runtime.files import replacing
from cotext.runtime.integrity import sealed, unsealed
from cotext.runtime.reading import read_text
from cotext.training.start_settings import ARCHITECTURE, architecture, replacements

# Settings of the model under which the same weights may mean something else: how tokens are compared, and
# what is added to their embeddings.
TELLING = (
    *("score", "positions", "target_positions", "shift", "from_first", "relative_span"),
    *("segments", "target_segments", "segments_from"),
)
VOCABULARY = "embedding.weight"  # of every system
OF_SYMBOLS = (VOCABULARY, "embedding.source_weight", "output_bias")  # what has a row for every symbol
RELATIVE = "relative"  # the table of relative positions, of every system that has one
DECODER = (
    "decoder",
    "target",
    "batch_context.target",
    "latent",
    "length",
)  # how the modules begin that the encoder has no part in


@dataclass(slots=True)
class Inheritance:
    """The origins of a model's initial parameters: their names, and those in the other run.

    `sizes` counts the numbers in each parameter of the model; `partly` holds rows taken and rows in all.
    `constant`: the value of fresh parameters, and of the rest of those taken in part, that have only one.
    """

    sizes: dict[str, int]
    source: Collection[str]
    taken: list[str] = field(default_factory=list)
    adopted: dict[str, str] = field(default_factory=dict)
    partly: dict[str, tuple[int, int]] = field(default_factory=dict)
    neutral: list[str] = field(default_factory=list)
    fresh: list[str] = field(default_factory=list)
    constant: dict[str, float] = field(default_factory=dict)

    @property
    def unused(self) -> list[str]:
        """Parameters of the other run that the model does not use."""
        used = {*self.taken, *self.adopted.values(), *self.partly}
        return [name for name in self.source if name not in used]

    @property
    def new(self) -> list[str]:
        """Names of parameters that have nothing to start from in the other run."""
        return [*self.neutral, *self.fresh]

    def lines(self) -> Iterator[str]:
        """The account for a person; layers and parts that are treated alike are listed together."""
        yield f"  taken by name: {self._listed(self.taken)}"
        if self.adopted:
            pairs = dict.fromkeys(without_common_ending(own, other) for own, other in self.adopted.items())
            words = numbered_together(f"{own} from {other}" for own, other in pairs)
            yield f"  copied from another parameter: {self._count(self.adopted)}: {', '.join(words)}"
        for name, (rows, all_rows) in self.partly.items():
            value = f"to {self.constant[name]:g}" if name in self.constant else "at random"
            rest = f"; the rest is initialised {value}" if rows < all_rows else ""
            yield f"  taken in part: {name}, the first {rows:,} of {all_rows:,} rows{rest}"
        if self.neutral:
            yield f"  set to a neutral constant, without effect at first: {self._listed(self.neutral)}"
        yield from self._fresh_lines()
        if self.unused:
            yield f"  not used: {', '.join(grouped(self.unused, self.source))}"

    def _fresh_lines(self) -> Iterator[str]:
        constant = [name for name in self.fresh if name in self.constant]
        at_random = [name for name in self.fresh if name not in self.constant]
        # Biases are zero and the weights of norms one in every layer: not listed by name.
        usual = {name for name in constant if name.endswith(".bias") or self.constant[name] == 1}
        yield f"  initialised at random: {self._listed(at_random, usual)}"
        if constant:
            parts = grouped([name for name in constant if name not in usual], self.sizes)
            words = ", ".join([*parts, "biases and norms"] if usual else parts)
            yield f"  initialised to a constant: {self._count(constant)}: {words}"

    def _listed(self, names: Collection[str], unlisted: Collection[str] = ()) -> str:
        listed = [name for name in self.sizes if name not in unlisted]
        return f"{self._count(names)}: {', '.join(grouped(names, listed))}" if names else "nothing"

    def _count(self, names: Collection[str]) -> str:
        numbers = sum(self.sizes[name] for name in names)
        return f"{len(names)} parameter{'' if len(names) == 1 else 's'} ({numbers:,} numbers)"


@dataclass(frozen=True, slots=True)
class WarmStart:
    """From which run training started, and with what.

    `left_out` are parameters of the other run that were not asked for (`train.init_parts`). `differing` are
    settings under which the same weights may mean something else: here and there. `symbols` tells where the
    symbols come from that the other run has never seen, if there are any. `architecture` are settings that
    were taken from the other run (`train.init_architecture`): here, and in the recipe. `blended` are settings
    that come into force over the first `blend_updates` updates.
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

    def render(self) -> str:
        """The account for a person."""
        updates = "+".join(map(str, self.updates))
        lines = [f"starting from {self.run} (updates {updates}):", *self.inheritance.lines()]
        if self.left_out:
            left_out = ", ".join(grouped(self.left_out, [*self.inheritance.source, *self.left_out]))
            lines.append(
                f"  left out, as train.init_parts = encoder: {left_out}; the embedding, which encoder and "
                "decoder share, is taken"
            )
        if self.symbols:
            lines.append(f"  symbols: {self.symbols}")
        if self.architecture:
            words = (f"{key} = {here}, not {asked}" for key, (here, asked) in self.architecture.items())
            lines.append(f"  architecture of that run, not of the recipe: {', '.join(words)}")
        if self.blended:
            lines.append(f"  no neutral start: {', '.join(self.blended)}; {self._blending()}")
        if self.differing:
            words = (
                f"{key} = {here}, {there} in the other run" for key, (here, there) in self.differing.items()
            )
            lines.append(f"  settings that differ: {', '.join(words)}")
        return "\n".join(lines)

    def _blending(self) -> str:
        if not self.blend_updates:
            return "in force at once (train.blend_updates = 0)"
        return f"blended in over {self.blend_updates:,} updates"

    def write(self, path: Path, loss: Mapping[str, float]) -> None:
        """The account with every name and the losses at the start, as JSON.

        Raises:
            CotextError: it cannot be written.
        """
        found = self.inheritance
        numbers = {
            what: sum(found.sizes[name] for name in names)
            for what, names in (
                ("taken", found.taken),
                ("adopted", found.adopted),
                ("neutral", found.neutral),
                ("fresh", found.fresh),
            )
        }
        content = {
            "run": str(self.run.resolve()),
            "updates": self.updates,
            "numbers": numbers,
            "taken": found.taken,
            "adopted": found.adopted,
            "partly": {name: {"rows": n, "of": of} for name, (n, of) in found.partly.items()},
            "neutral": found.neutral,
            "fresh": found.fresh,
            "unused": found.unused,
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
        with replacing(path) as temporary:
            temporary.write_text(f"{sealed(content)}\n", encoding="utf-8")


def read_account(path: Path) -> dict[str, Any]:
    """An account that `WarmStart.write` wrote.

    Raises:
        CotextError: missing or damaged.
    """
    try:
        return unsealed(read_text(path))
    except (CotextError, ValueError):
        raise CotextError(
            f"{path}: missing or damaged; it says what training started from: restore it, or choose another "
            "--out"
        ) from None


def start_from(
    run: Path, model: System, config: Config, tokenizer: Tokenizer, asked: Config | None = None
) -> WarmStart:
    """Fill a model with the final weights of another run, those in int8 as float32, as far as they fit.

    `asked` is the configuration before it was settled by that run.

    Raises:
        CotextError: no trained run there, one of another tokenizer, no matrix that fits.
    """
    path = model_file(run)
    described = describe_file(path)
    if described.fingerprint != tokenizer.fingerprint:
        raise CotextError(
            f"{run}: was trained with another tokenizer than that of the data, so its embeddings are those "
            "of other subwords; give the data that it was trained on, or start from a run on this data"
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
        or (key.startswith("model.") and key.rpartition(".")[2] in (*TELLING, *ARCHITECTURE))
    }
    # Vectors of one length, and tables of more rows, are found between models of any two widths.
    matrices = {name for name, tensor in model.state_dict().items() if tensor.dim() > 1}
    if matrices.isdisjoint({*inheritance.taken, *inheritance.adopted}):
        words = "".join(f"\n  {key}: {there} there, {here} here" for key, (here, there) in differing.items())
        raise CotextError(f"{run}: none of its weights fits this model; start from another run{words}")
    keys = {f"model.{key}" for key in architecture(config, described.config)}
    taken = differences(asked or config, config)
    return WarmStart(
        run,
        described.updates,
        inheritance,
        differing,
        symbols,
        left_out,
        {key: (str(here), str(recipe)) for key, recipe, here in taken if key in keys},
        tuple(replacements(described.config, config)),
        config.train.blend_updates or 0 if config.train.blend else 0,
    )


def translate_symbols(
    table: Tensor, there: ViewConfig, here: ViewConfig, tokenizer: Tokenizer
) -> tuple[Tensor, str]:
    """The embeddings of one recipe with the rows of another, and an account of those that are new to them.

    The separator starts as the end symbol where the other run has seen none, and further indexed separators
    as the last one that it knows, which serves all later sentences there. Numbers of sentences start as the
    begin symbol, those beyond the other run's as its last.
    """
    shared, wanted = tokenizer.vocabulary_size, further_symbols(here)
    known = table[shared:][:wanted] if there.separators == here.separators else table[:0]
    # Behind the special symbols, a source with a vocabulary of its own has pieces, and no recipe symbols.
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
    """A table of relative positions for distances up to `span`: [2 * old + 1, K] -> [2 * span + 1, K].

    Further distances start as the last one that the other run knows, which served them there.
    """
    old = len(table) // 2
    return table[torch.arange(-span, span + 1).clamp(-old, old) + old]


def inherit(model: System, weights: Mapping[str, Tensor], copies: bool = True) -> Inheritance:
    """Copy into a model whatever fits of the weights of another, as the module says.

    Without `copies`, a parameter that another one has started from already is not adopted once more.

    Raises:
        ValueError: the model adopts weights for a parameter that it does not have.
    """
    own, adopted, neutral = model.state_dict(), model.adopted_names(), model.neutral_start()
    if unknown := adopted.keys() - own.keys():
        raise ValueError(
            f"{type(model).__name__} adopts weights for {', '.join(sorted(unknown))}: no such names"
        )
    found = Inheritance({name: tensor.numel() for name, tensor in own.items()}, weights.keys())
    with torch.no_grad():
        for name, tensor in own.items():
            same, other = weights.get(name), weights.get(adopted.get(name, ""))
            if same is not None and same.shape == tensor.shape:
                tensor.copy_(same)
                found.taken.append(name)
            elif (
                other is not None
                and other.shape == tensor.shape
                and (copies or adopted[name] not in {*found.taken, *found.adopted.values()})
            ):
                tensor.copy_(other)
                found.adopted[name] = adopted[name]
            elif same is not None and _shares_rows(same, tensor, name == VOCABULARY):
                rows = min(len(same), len(tensor))
                found.constant |= _constant(name, tensor[rows:])
                tensor[:rows].copy_(same[:rows])
                found.partly[name] = rows, len(tensor)
            elif name in neutral:
                tensor.fill_(neutral[name])
                found.neutral.append(name)
            else:
                found.fresh.append(name)
                found.constant |= _constant(name, tensor)
    return found


def _constant(name: str, tensor: Tensor) -> dict[str, float]:
    """The value of a parameter all of whose numbers are equal, by its name; else nothing."""
    values = tensor.flatten()
    return {name: float(values[0])} if len(values) and bool((values == values[0]).all()) else {}


def _shares_rows(source: Tensor, target: Tensor, of_symbols: bool) -> bool:
    """Whether the first rows of two tables stand for the same things."""
    # A longer vector is no table with more rows: it belongs to a wider layer. So may a longer table, but not
    # that of the vocabulary: there, the symbols of a recipe's separators follow all that recipes share.
    same_width = source.dim() == target.dim() > 1 and source.shape[1:] == target.shape[1:]
    return same_width and (of_symbols or len(source) < len(target))


def without_common_ending(own: str, other: str) -> tuple[str, str]:
    """The names of the modules that correspond: `a.global`, `a.local` of `a.global.w.x`, `a.local.w.x`."""
    one, two = own.split("."), other.split(".")
    while len(one) > 1 and len(two) > 1 and one[-1] == two[-1]:
        one.pop()
        two.pop()
    return ".".join(one), ".".join(two)


def grouped(names: Collection[str], everything: Iterable[str]) -> list[str]:
    """Names of parameters, words by the largest modules that hold no others, numbered ones together.

    `encoder.4.ffn.weight`, `encoder.4.ffn.bias`, `encoder.5.ffn...` become `encoder.4-5.ffn`.
    """
    chosen = set(names)
    mixed = {prefix for name in everything if name not in chosen for prefix in _prefixes(name)}
    return numbered_together(
        dict.fromkeys(next(p for p in _prefixes(name) if p not in mixed) for name in names)
    )


def numbered_together(names: Iterable[str]) -> list[str]:
    """`a.0-1.b` for `a.0.b`, `a.1.b`: names that differ in their first number alone, wherever it stands."""
    numbers: dict[str, list[int]] = {}
    for name in names:
        first = re.search(r"(?<=\.)\d+(?=[. ]|$)", name)
        pattern = re.sub(rf"(?<=\.){first[0]}(?=[. ]|$)", "#", name) if first else name
        numbers.setdefault(pattern, []).extend([int(first[0])] if first else [])
    return [pattern.replace("#", _ranges(found)) for pattern, found in numbers.items()]


def _prefixes(name: str) -> Iterator[str]:
    """`a`, `a.b`, `a.b.c` of `a.b.c`."""
    parts = name.split(".")
    return (".".join(parts[:length]) for length in range(1, len(parts) + 1))


def _ranges(numbers: list[int]) -> str:
    """`0-2,5` of 0, 1, 2, 5."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
