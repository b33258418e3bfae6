"""Which sentence looks at which: attention of tokens, gathered by sentence, over a whole document.

    patch i, j      the weights of the query tokens of sentence i on the key tokens of sentence j
    mean weight     of a patch, over its pairs of tokens and over heads: Wu et al. 2023, equation 12
    share           what a query of sentence i gives to sentence j in all; a row sums to one, but for what
                    goes to keys that are no token of a sentence (`beside`)

A sentence asks in the row in which it is current, and nowhere else, so that every row of a map comes from one
window; the maps of overlapping windows make one map of their document.

Shapes: B rows, H heads, T queries, S keys, N sentences of the document.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from cotext.data.batch import Batch
from cotext.evaluation.studies.attention.attention import Spread, calls
from cotext.evaluation.studies.attention.gates import GateOpenness, HeadGates
from cotext.layers.flat_batch import NeuralContextGate
from cotext.layers.kernels.sdpa import TokenIndices, watch_weights
from cotext.layers.multi_head import CrossAttention, RowSpan, SelfAttention
from cotext.layers.others import GatedOthersSpan
from cotext.layers.sentence_spans import SentenceSpan
from cotext.models.interface import Model
from cotext.search.row_tokens import RowTokens, token_indices
from cotext.translation.plan import kind_of


class SentenceMap:
    """Sums over heads and query tokens of one attention.

    `spread` is that of the queries which a map has, `spread_of_all` of those of context sentences, too.
    """

    def __init__(self, kind: str, sentences: int) -> None:
        self.kind = kind
        self.heads = 0
        self.spread = Spread()
        self.spread_of_all = Spread()
        self.weight = torch.zeros(sentences, sentences, dtype=torch.float64)  # mean over heads
        self.pairs = torch.zeros_like(self.weight)
        self.seen = torch.zeros(sentences, sentences, dtype=torch.bool)
        self.queries = torch.zeros(sentences, dtype=torch.float64)
        self._beside = torch.zeros_like(self.queries)

    @property
    def mean(self) -> Tensor:
        """Equation 12: [N, N], not a number where no token of i may see any of j."""
        return torch.where(self.seen, self.weight / self.pairs, math.nan)

    @property
    def share(self) -> Tensor:
        """Where a query's attention goes, on average: [N, N], not a number as above."""
        return torch.where(self.seen, self.weight / self.queries[:, None], math.nan)

    @property
    def beside(self) -> Tensor:
        """The share that goes to no sentence: [N]."""
        return self._beside / self.queries

    def add(self, weights_BHTS: Tensor, real_BT: Tensor, query_BT: Tensor, key_BS: Tensor) -> None:
        """Count the weights of one call.

        `real_BT` tells queries from padding. `query_BT` and `key_BS` hold the sentence of each, `NOWHERE` on
        queries that do not count and keys that are no token of a sentence.
        """
        count = len(self.queries)
        self.heads = weights_BHTS.size(1)
        self.spread.add(weights_BHTS, query_BT >= 0)
        self.spread_of_all.add(weights_BHTS, real_BT)
        weights_BTS = weights_BHTS.mean(dim=1)
        of_query = one_hot(query_BT + 1, count + 1)[..., 1:].double()
        of_key = one_hot(key_BS + 1, count + 1)[..., 1:].double()
        asked = of_query.transpose(1, 2)
        given = (asked @ weights_BTS @ of_key).sum(dim=0).cpu()
        self.weight += given
        self.seen |= given > 0  # no weight that there may be is zero: see `watch_weights`
        self.pairs += (of_query.sum(dim=1)[:, :, None] * of_key.sum(dim=1)[:, None]).sum(dim=0).cpu()
        self.queries += of_query.sum(dim=(0, 1)).cpu()
        self._beside += (asked @ weights_BTS @ (key_BS < 0).double()[..., None]).sum(dim=(0, 2)).cpu()


@dataclass(frozen=True, slots=True)
class Averaged:
    """The maps of all attentions of a kind, averaged."""

    kind: str
    attentions: tuple[str, ...]
    heads: int
    mean: Tensor  # [N, N]
    share: Tensor  # [N, N]
    beside: Tensor  # [N]


def average_by_kind(maps: dict[str, SentenceMap]) -> list[Averaged]:
    """One map a kind; where some layers see nothing, that counts as nothing."""
    kinds: dict[str, list[str]] = {}
    for name, each in maps.items():
        kinds.setdefault(each.kind, []).append(name)
    return [
        Averaged(
            kind,
            tuple(names),
            maps[names[0]].heads,
            _mean([maps[name].mean for name in names]),
            _mean([maps[name].share for name in names]),
            torch.stack([maps[name].beside for name in names]).mean(dim=0),
        )
        for kind, names in kinds.items()
    ]


def _mean(matrices: Sequence[Tensor]) -> Tensor:
    stacked = torch.stack(list(matrices))
    return torch.where(stacked.isnan().all(dim=0), math.nan, stacked.nan_to_num(0.0).mean(dim=0))


@dataclass(slots=True)
class ObservedModel:
    """A model that reads the batches of one document: maps of its attentions and its gates, by module."""

    model: Model
    modules: dict[str, nn.Module]
    calling: list[str]
    sentences: int
    maps: dict[str, SentenceMap] = field(default_factory=dict)
    gates: dict[str, GateOpenness] = field(default_factory=dict)
    head_gates: dict[str, HeadGates] = field(default_factory=dict)
    source: RowTokens | None = None
    target: RowTokens | None = None  # while decoding

    def read(self, batch: Batch) -> Tensor:
        """Count a batch; returns the hidden states of its decoder, [B, T, D].

        They are those that nobody looks on, but for rounding where attention computes whole rows to be seen.

        Raises:
            CotextError: an attention whose tokens cannot be told.
        """
        forced_pass = kind_of(self.model).forced_pass
        assert forced_pass is not None  # a model of ours shows its states
        self.source, self.target = RowTokens.of(batch.source.sentence, batch.source), None
        forced = forced_pass(self.model, batch)
        self.target = RowTokens.of(forced.sentence, batch.source)
        return forced.decode()

    def note(self, weights_BHTS: Tensor, real_BT: Tensor, places: TokenIndices | None) -> None:
        """What `watch_weights` shows."""
        name = self.calling[-1]
        own = self.source if self.target is None else self.target
        keys = self.source if "cross" in name.split(".") else own
        assert own is not None
        assert keys is not None
        places = places or token_indices(weights_BHTS, real_BT, own, keys)
        query, key = own.queries(places.query), keys.keys(places.key)
        span = _span(self.modules[name])
        kind = _kind(name, span, self.target is not None)
        found = self.maps.setdefault(name, SentenceMap(kind, self.sentences))
        found.add(weights_BHTS, real_BT, query, key)
        if isinstance(span, GatedOthersSpan):
            gates = self.head_gates.setdefault(name, HeadGates(kind, span.open, self.sentences))
            gates.add(weights_BHTS, query, key)

    def note_gate(self, name: str, gate: Tensor) -> None:
        """That of current tokens, row after row, [..., D]."""
        own = self.source if self.target is None else self.target
        assert own is not None
        kind = "batch-source" if self.target is None else "batch-target"
        found = self.gates.setdefault(name, GateOpenness(kind, self.sentences))
        found.add(gate.flatten(0, -2), own.document[own.current])


def _hook(onlooker: ObservedModel, name: str) -> Callable[[nn.Module, Any, Tensor], None]:
    return lambda module, arguments, gate: onlooker.note_gate(name, gate)


@contextmanager
def observed(model: Model, sentences: int) -> Iterator[ObservedModel]:
    """Look on while a model, in eval mode, reads a document of so many sentences; it is left as it was."""
    with torch.inference_mode(), calls(model) as calling, ExitStack() as hooks:
        found = ObservedModel(model, dict(model.named_modules()), calling, sentences)
        for name, module in found.modules.items():
            if isinstance(module, NeuralContextGate):
                hooks.callback(module.register_forward_hook(_hook(found, name)).remove)
        hooks.enter_context(watch_weights(found.note))
        yield found


def sentence_maps(model: Model, batches: Iterable[Batch], sentences: int) -> ObservedModel:
    """A model that has read one document: the maps of its attentions and its gates, by module.

    The batches hold the document's windows, in order; `sentences` counts those of the document. The model
    must be in eval mode.

    Raises:
        CotextError: as `ObservedModel.read`.
    """
    with observed(model, sentences) as found:
        for batch in batches:
            found.read(batch)
    return found


def _span(module: nn.Module) -> RowSpan | None:
    return module.span if isinstance(module, SelfAttention | CrossAttention) else None


def _kind(name: str, span: RowSpan | None, of_target: bool) -> str:
    """What an attention is for: `encoder`, `decoder`, `cross` or, outside the two stacks, `batch-...`.

    That of what predicts codes: `codes` and `codes_cross`.
    """
    parts = name.split(".")
    if parts[0] == "batch_context":
        return "batch-target" if of_target else "batch-source"
    if parts[0].endswith("_document"):
        return "decoder-document" if of_target else "encoder-document"
    inside = isinstance(span, SentenceSpan) and span.memory_sentences == 0
    kind = "cross" if "cross" in parts else parts[0]
    if parts[0] == "latent":
        kind = "codes_cross" if kind == "cross" else "codes"
    return f"{kind}-local" if inside else kind
