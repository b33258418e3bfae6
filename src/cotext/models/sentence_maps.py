"""Attention between the sentences of a document, its entropy, and the openness of gates.

Attention of tokens is summed by sentence:

    patch i, j      the weights of the query tokens of sentence i on the key tokens of sentence j
    mean weight     of a patch, over its pairs of tokens and over heads: Wu et al. 2023, equation 12
    share           the attention of a query of sentence i to sentence j; a row sums to one, except for the
                    share of keys that are not tokens of a sentence (`beside`)

Overlapping windows form one map of their document: a sentence counts as query only in the sequence in which
it is current. The cross-attention of a Doc2Doc model that fails to train has an entropy near that of a
uniform distribution (Bao et al. 2021; Li et al. 2022).

The openness of a DocFlat gate is the mean of its values over the hidden dimension (Wu et al. 2023, section
3.3). With 1, the complete output of the attention across the batch passes; with 0, nothing. A gate to other
sentences of a sequence (`layers/spans.py`) is one factor per head, between -1 and 1.

Shapes: B sequences, H heads, T queries, S keys, M tokens, D model, N sentences of the document.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from cotext.data.batch import Batch
from cotext.layers.flat_batch import NeuralContextGate
from cotext.layers.kernels.sdpa import TokenIndices, watch_weights
from cotext.layers.multi_head import CrossAttention, RowSpan, SelfAttention
from cotext.layers.spans import GatedOthersSpan, NodeSpan, SentenceSpan
from cotext.models.attention_weights import RowTokens, token_indices
from cotext.models.interface import Model
from cotext.models.likelihood import forced_pass


@contextmanager
def calls(model: nn.Module) -> Iterator[list[str]]:
    """Yield a list of the names of the modules that are running at the moment, the innermost last."""
    calling: list[str] = []

    def leave(*_: Any) -> None:  # a result other than None would replace the output
        calling.pop()

    with ExitStack() as handles:
        for name, module in model.named_modules():
            enter = module.register_forward_pre_hook(lambda *_, name=name: calling.append(name))
            handles.callback(enter.remove)
            handles.callback(module.register_forward_hook(leave).remove)
        yield calling


class GateOpenness:
    """Sums of the values of one gate over current tokens."""

    def __init__(self, kind: str, sentences: int) -> None:
        self.kind = kind  # the kind of the gated attention
        self._open = torch.zeros(sentences, dtype=torch.float64)
        self._tokens = torch.zeros(sentences, dtype=torch.float64)

    def add(self, gate_MD: Tensor, sentence_M: Tensor) -> None:
        """Count tokens, each with its sentence of the document."""
        self._open.index_add_(0, sentence_M.cpu(), gate_MD.double().mean(dim=1).cpu())
        self._tokens.index_add_(0, sentence_M.cpu(), torch.ones(len(gate_MD), dtype=torch.float64))

    @property
    def openness(self) -> Tensor:
        """Return the mean over the tokens of a sentence: [N]."""
        return self._open / self._tokens

    @property
    def overall(self) -> float:
        return float(self._open.sum() / self._tokens.sum())

    def as_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "openness": self.overall,
            "openness_by_sentence": [None if math.isnan(v) else v for v in self.openness.tolist()],
        }


class HeadGates:
    """The gates of one attention to other sentences: their factors, and the share that passes, by head.

    `open` holds the factors [H]. The share that passes from a sentence is its attention weight among other
    sentences, times the absolute factor; it is averaged over the queries that attend to the sentence.
    """

    def __init__(self, kind: str, open_H: Tensor, sentences: int) -> None:
        self.kind, self.open = kind, open_H.detach().double().cpu()
        self._last = sentences - 1
        self._weight = torch.zeros(len(open_H), 2 * sentences - 1, dtype=torch.float64)
        self._queries = torch.zeros(2 * sentences - 1, dtype=torch.float64)

    def add(self, weights_BHTS: Tensor, query_BT: Tensor, key_BS: Tensor) -> None:
        """Count the weights of one call, like `SentenceMap.add`."""
        query, key = query_BT[:, :, None], key_BS[:, None]
        distance = torch.where((query >= 0) & (key >= 0), query - key, 0) + self._last
        weight = weights_BHTS.new_zeros(*weights_BHTS.shape[:3], len(self._queries)).scatter_add(
            3, distance[:, None].expand_as(weights_BHTS), weights_BHTS
        )
        self._weight += weight.sum(dim=(0, 2)).cpu()
        self._queries += (weight.amax(dim=1) > 0).sum(dim=(0, 1)).cpu()

    @property
    def overall(self) -> float:
        """Return the mean of the absolute factors."""
        return float(self.open.abs().mean())

    @property
    def by_distance(self) -> dict[int, Tensor]:
        """Return the share that passes, [H], by distance in sentences; negative: to later sentences."""
        # The recorded weights are normalised; before normalisation, their sum is 1 + |factor|.
        passed = (1 + self.open.abs())[:, None] * self._weight / self._queries
        places = (self._queries > 0).nonzero()[:, 0].tolist()
        return {place - self._last: passed[:, place] for place in places if place != self._last}

    def as_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "openness": self.overall,
            "open_by_head": self.open.tolist(),
            "passed_by_distance": {str(d): passed.tolist() for d, passed in self.by_distance.items()},
        }


class SentenceMap:
    """Sums over heads and query tokens of one attention."""

    def __init__(self, kind: str, sentences: int) -> None:
        self.kind = kind
        self.heads = 0
        # Sums of entropies: of the weights, and of uniform weights over the same keys.
        self._entropy = self._uniform = 0.0
        self.weight = torch.zeros(sentences, sentences, dtype=torch.float64)  # mean over heads
        self.pairs = torch.zeros_like(self.weight)
        self.seen = torch.zeros(sentences, sentences, dtype=torch.bool)
        self.queries = torch.zeros(sentences, dtype=torch.float64)
        self._beside = torch.zeros_like(self.queries)

    @property
    def nats(self) -> float:
        """Return the mean entropy of the weights of a query and head."""
        return self._entropy / (self.heads * float(self.queries.sum()))

    @property
    def normalised_entropy(self) -> float:
        """Return the entropy divided by that of uniform weights; 1: uniform attention."""
        return self._entropy / self._uniform if self._uniform else 0.0

    @property
    def mean(self) -> Tensor:
        """Return the mean weight (equation 12): [N, N], NaN where no token of i attends to a token of j."""
        return torch.where(self.seen, self.weight / self.pairs, math.nan)

    @property
    def share(self) -> Tensor:
        """Return the average attention of a query to each sentence: [N, N], NaN as in `mean`."""
        return torch.where(self.seen, self.weight / self.queries[:, None], math.nan)

    @property
    def beside(self) -> Tensor:
        """Return the share of keys that belong to no sentence: [N]."""
        return self._beside / self.queries

    def add(self, weights_BHTS: Tensor, query_BT: Tensor, key_BS: Tensor) -> None:
        """Count the weights of one call, with the sentences of queries and keys; `NOWHERE` is not counted."""
        count = len(self.queries)
        self.heads = weights_BHTS.size(1)
        real = (query_BT >= 0)[:, None].expand(weights_BHTS.shape[:3])
        weights = weights_BHTS.double()[real]
        self._entropy -= float(torch.special.xlogy(weights, weights).sum())
        # Masked keys have weights of exactly zero.
        self._uniform += float((weights > 0).sum(dim=1).double().log().sum())
        weights_BTS = weights_BHTS.mean(dim=1)
        of_query = one_hot(query_BT + 1, count + 1)[..., 1:].double()
        of_key = one_hot(key_BS + 1, count + 1)[..., 1:].double()
        queries_BNT = of_query.transpose(1, 2)
        weight_NN = (queries_BNT @ weights_BTS @ of_key).sum(dim=0).cpu()
        self.weight += weight_NN
        self.seen |= weight_NN > 0  # weights of keys that are not masked are above zero: see `watch_weights`
        self.pairs += (of_query.sum(dim=1)[:, :, None] * of_key.sum(dim=1)[:, None]).sum(dim=0).cpu()
        self.queries += of_query.sum(dim=(0, 1)).cpu()
        self._beside += (queries_BNT @ weights_BTS @ (key_BS < 0).double()[..., None]).sum(dim=(0, 2)).cpu()


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
    """Return one map per kind; layers that do not attend to a sentence count as 0."""
    kinds: dict[str, list[str]] = {}
    for name, sentence_map in maps.items():
        kinds.setdefault(sentence_map.kind, []).append(name)
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
    """A model that reads the batches of one document, with maps of its attentions and its gates."""

    model: Model
    modules: dict[str, nn.Module]
    calling: list[str]
    sentences: int
    maps: dict[str, SentenceMap] = field(default_factory=dict)
    gates: dict[str, GateOpenness] = field(default_factory=dict)
    head_gates: dict[str, HeadGates] = field(default_factory=dict)
    source: RowTokens | None = None
    target: RowTokens | None = None  # while decoding

    def read(self, batch: Batch) -> None:
        """Count a batch; raise CotextError if the tokens of an attention cannot be determined."""
        (in_source, in_target), source = self.model.extra_tokens, batch.source
        self.source, self.target = RowTokens.of(source, in_source, source.sentence), None
        forced = forced_pass(self.model, batch)
        self.target = RowTokens.of(source, in_target, forced.sentence)
        forced.decode()

    def note(self, weights_BHTS: Tensor, real_BT: Tensor, indices: TokenIndices | None) -> None:
        """Count the weights that `watch_weights` reports."""
        name = self.calling[-1]
        if name.startswith("context_encoder."):
            return  # its queries belong to sentences that are not current
        queries = self.source if self.target is None else self.target
        of_source = {"cross", "context_attention"}.intersection(name.split("."))
        keys = self.source if of_source else queries
        assert queries is not None
        assert keys is not None
        indices = indices or token_indices(weights_BHTS, real_BT, queries, keys)
        query = queries.sentences(indices.query, queries.current)
        key = keys.sentences(indices.key, keys.sentence >= 0)
        if not bool((query >= 0).any()):
            return  # such as attention to earlier sentences, in a document of one sentence
        module = self.modules[name]
        span = module.span if isinstance(module, SelfAttention | CrossAttention) else None
        kind = _kind(name, span, self.target is not None)
        counts = self.maps.setdefault(name, SentenceMap(kind, self.sentences))
        counts.add(weights_BHTS, query, key)
        if isinstance(span, GatedOthersSpan):
            gates = self.head_gates.setdefault(name, HeadGates(kind, span.open, self.sentences))
            gates.add(weights_BHTS, query, key)

    def note_gate(self, name: str, module: nn.Module, arguments: Any, gate: Tensor) -> None:
        """Count the values of a gate, from a forward hook: those of current tokens, [..., D]."""
        queries = self.source if self.target is None else self.target
        assert queries is not None
        kind = "batch-source" if self.target is None else "batch-target"
        counts = self.gates.setdefault(name, GateOpenness(kind, self.sentences))
        counts.add(gate.flatten(0, -2), queries.document[queries.current])


def sentence_maps(model: Model, batches: Iterable[Batch], sentences: int) -> ObservedModel:
    """Run a model on one document; return it with the maps of its attentions and its gates, by module.

    The batches hold the document's windows, in order. The model must be in eval mode. Raises the errors of
    `ObservedModel.read`.
    """
    with torch.inference_mode(), calls(model) as calling, ExitStack() as hooks:
        observed = ObservedModel(model, dict(model.named_modules()), calling, sentences)
        for name, module in observed.modules.items():
            if isinstance(module, NeuralContextGate):
                hooks.callback(module.register_forward_hook(partial(observed.note_gate, name)).remove)
        hooks.enter_context(watch_weights(observed.note))
        for batch in batches:
            observed.read(batch)
    return observed


def _kind(name: str, span: RowSpan | None, of_target: bool) -> str:
    """Return the kind, such as `encoder`, `cross`, `batch-source`; `...-context` for a context encoder."""
    parts = name.split(".")
    if "context_attention" in parts:
        return f"{parts[0]}-context"
    if parts[0] == "batch_context":
        return "batch-target" if of_target else "batch-source"
    if parts[0].endswith("_document"):
        return "decoder-document" if of_target else "encoder-document"
    inside = isinstance(span, SentenceSpan) and span.memory_sentences == 0
    inside &= not isinstance(span, NodeSpan)
    kind = "cross" if "cross" in parts else parts[0]
    if parts[0] == "latent":
        kind = "codes_cross" if kind == "cross" else "codes"
    return f"{kind}-local" if inside else kind
