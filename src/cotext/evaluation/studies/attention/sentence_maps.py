"""Which sentence looks at which: attention of tokens, gathered by sentence, over a whole document.

    patch i, j      the weights of the query tokens of sentence i on the key tokens of sentence j
    mean weight     of a patch, over its pairs of tokens and over heads: Wu et al. 2023, equation 12
    share           what a query of sentence i gives to sentence j in all; a row sums to one, but for what
                    goes to keys that are no token of a sentence (`beside`)

A sentence asks in the row in which it is current, and nowhere else, so that every row of a map comes from one
window; the maps of overlapping windows make one map of their document.

Shapes: B rows, H heads, T queries, S keys, N sentences of the document.

How attention spreads: its entropy, for every attention of a model, by watching it at work.

Bao et al. 2021 and Li et al. 2022 tell a Doc2Doc model that fails to train by the flat weights of its
cross-attention: their entropy stays near that of a uniform distribution.

Shapes: B rows, H heads, T queries, S keys.

How open a gate stands to other sentences, and to how distant ones.

Openness of a gate of DocFlat is the mean of its values over the numbers of a state: 1 lets all through that
attention across the batch has found, 0 nothing (Wu et al. 2023, section 3.3). What comes from sentence j into
sentence i is the openness of i times the share of its attention that goes to j.

A gate to other sentences of a row (`layers/others.py`) is one factor per head, between -1 and 1.

Shapes: B rows, H heads, T queries, S keys, M tokens, D model, N sentences of the document.
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
from cotext.layers.others import GatedOthersSpan
from cotext.layers.sentence_spans import SentenceSpan
from cotext.models.interface import Model
from cotext.translation.alignment import RowTokens, token_indices
from cotext.translation.plan import kind_of


@dataclass(slots=True)
class Spread:
    """Sums over heads and real queries of one attention."""

    entropy: float = 0.0
    uniform: float = 0.0
    queries: float = 0.0

    @property
    def nats(self) -> float:
        """Mean entropy of the weights."""
        return self.entropy / self.queries

    @property
    def normalised_entropy(self) -> float:
        """Entropy as a share of what even weights over the same keys would have; 1: nothing is chosen."""
        return self.entropy / self.uniform if self.uniform else 0.0

    def add(self, weights_BHTS: Tensor, real_BT: Tensor) -> None:
        """Count the weights of one call."""
        real = real_BT[:, None].expand(weights_BHTS.shape[:3])
        weights = weights_BHTS.double()[real]
        self.entropy -= float(torch.special.xlogy(weights, weights).sum())
        # Keys that may not be attended to have weights of exactly zero.
        self.uniform += float((weights > 0).sum(dim=1).double().log().sum())
        self.queries += weights.size(0)


@contextmanager
def calls(model: nn.Module) -> Iterator[list[str]]:
    """The names of the modules being called, innermost last, while the context is open."""
    calling: list[str] = []

    def enter(name: str, module: nn.Module) -> None:
        handles.callback(module.register_forward_pre_hook(lambda *_: calling.append(name)).remove)
        handles.callback(module.register_forward_hook(lambda *_: _left(calling)).remove)

    with ExitStack() as handles:
        for name, module in model.named_modules():
            enter(name, module)
        yield calling


def _left(calling: list[str]) -> None:
    calling.pop()


@dataclass(frozen=True, slots=True)
class AtDistance:
    """Means over the sentences that have one at this distance in view."""

    share: float  # of the attention of a sentence
    passed: float  # openness times share
    sentences: int


class GateOpenness:
    """Sums over the current tokens of one gate."""

    def __init__(self, kind: str, sentences: int) -> None:
        self.kind = kind  # that of the attention behind it
        self._open = torch.zeros(sentences, dtype=torch.float64)
        self._tokens = torch.zeros(sentences, dtype=torch.float64)

    def add(self, gate_MD: Tensor, sentence_M: Tensor) -> None:
        """Count tokens, each with its sentence of the document."""
        self._open.index_add_(0, sentence_M.cpu(), gate_MD.double().mean(dim=1).cpu())
        self._tokens.index_add_(0, sentence_M.cpu(), torch.ones(len(gate_MD), dtype=torch.float64))

    @property
    def openness(self) -> Tensor:
        """Mean over the tokens of a sentence: [N]."""
        return self._open / self._tokens

    @property
    def overall(self) -> float:
        """Mean over all tokens."""
        return float(self._open.sum() / self._tokens.sum())

    def by_distance(self, share: Tensor) -> dict[int, AtDistance]:
        """By how many sentences back what is attended to stands; below zero: ahead. `share` is [N, N]."""
        passed = self.openness[:, None] * share
        found = {}
        for distance in range(1 - len(share), len(share)):
            shares = share.diagonal(-distance)
            seen = ~shares.isnan()
            if bool(seen.any()):
                through = passed.diagonal(-distance)[seen]
                found[distance] = AtDistance(
                    float(shares[seen].mean()), float(through.mean()), int(seen.sum())
                )
        return found

    def as_dict(self, share: Tensor) -> dict[str, Any]:
        """For a JSON file."""
        return {
            "kind": self.kind,
            "openness": self.overall,
            "openness_by_sentence": [None if math.isnan(v) else v for v in self.openness.tolist()],
            "by_distance": {
                str(d): {"share": at.share, "passed": at.passed, "sentences": at.sentences}
                for d, at in self.by_distance(share).items()
            },
        }


class HeadGates:
    """Gates of one attention to other sentences: how far they are open, and what passes, by head.

    `open` [H] holds their factors, `kind` names the attention. What passes a gate from the sentence at a
    distance is the weight of its tokens among other sentences times the absolute factor: the mean over the
    queries that see this sentence.
    """

    def __init__(self, kind: str, open_H: Tensor, sentences: int) -> None:
        self.kind, self.open = kind, open_H.detach().double().cpu()
        self._last = sentences - 1
        self._weight = torch.zeros(len(open_H), 2 * sentences - 1, dtype=torch.float64)
        self._queries = torch.zeros(2 * sentences - 1, dtype=torch.float64)

    def add(self, weights_BHTS: Tensor, query_BT: Tensor, key_BS: Tensor) -> None:
        """Count the weights of one call, as `SentenceMap.add`."""
        query, key = query_BT[:, :, None], key_BS[:, None]
        distance = torch.where((query >= 0) & (key >= 0), query - key, 0) + self._last
        shape = (*weights_BHTS.shape[:3], len(self._queries))
        weight = weights_BHTS.new_zeros(shape).scatter_add(
            3, distance[:, None].expand_as(weights_BHTS), weights_BHTS
        )
        self._weight += weight.sum(dim=(0, 2)).cpu()
        self._queries += (weight.amax(dim=1) > 0).sum(dim=(0, 1)).cpu()

    @property
    def overall(self) -> float:
        """Mean of the absolute factors."""
        return float(self.open.abs().mean())

    @property
    def by_distance(self) -> dict[int, Tensor]:
        """What passes [H], by sentences back; below zero: ahead."""
        # Weights are shown scaled to a sum of 1, which is 1 + |factor| before.
        passed = (1 + self.open.abs())[:, None] * self._weight / self._queries
        found = (self._queries > 0).nonzero()[:, 0].tolist()
        return {place - self._last: passed[:, place] for place in found if place != self._last}

    def as_dict(self) -> dict[str, Any]:
        """For a JSON file."""
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
        self.spread = Spread()
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

    def add(self, weights_BHTS: Tensor, query_BT: Tensor, key_BS: Tensor) -> None:
        """Count the weights of one call.

        `query_BT` and `key_BS` hold the sentence of each, `NOWHERE` on
        queries that do not count and keys that are no token of a sentence.
        """
        count = len(self.queries)
        self.heads = weights_BHTS.size(1)
        self.spread.add(weights_BHTS, query_BT >= 0)
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

    def read(self, batch: Batch) -> None:
        """Count a batch.

        Raises:
            CotextError: an attention whose tokens cannot be told.
        """
        forced_pass = kind_of(self.model).forced_pass
        assert forced_pass is not None  # a model of ours shows its states
        self.source, self.target = RowTokens.of(batch.source.sentence, batch.source), None
        forced = forced_pass(self.model, batch)
        self.target = RowTokens.of(forced.sentence, batch.source)
        forced.decode()

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
        found.add(weights_BHTS, query, key)
        if isinstance(span, GatedOthersSpan):
            gates = self.head_gates.setdefault(name, HeadGates(kind, span.open, self.sentences))
            gates.add(weights_BHTS, query, key)

    def note_gate(self, name: str, module: nn.Module, arguments: Any, gate: Tensor) -> None:
        """What a forward hook shows of a gate: that of current tokens, row after row, [..., D]."""
        own = self.source if self.target is None else self.target
        assert own is not None
        kind = "batch-source" if self.target is None else "batch-target"
        found = self.gates.setdefault(name, GateOpenness(kind, self.sentences))
        found.add(gate.flatten(0, -2), own.document[own.current])


def sentence_maps(model: Model, batches: Iterable[Batch], sentences: int) -> ObservedModel:
    """A model that has read one document: the maps of its attentions and its gates, by module.

    The batches hold the document's windows, in order; `sentences` counts those of the document. The model
    must be in eval mode.

    Raises:
        CotextError: as `ObservedModel.read`.
    """
    with torch.inference_mode(), calls(model) as calling, ExitStack() as hooks:
        found = ObservedModel(model, dict(model.named_modules()), calling, sentences)
        for name, module in found.modules.items():
            if isinstance(module, NeuralContextGate):
                hooks.callback(module.register_forward_hook(partial(found.note_gate, name)).remove)
        hooks.enter_context(watch_weights(found.note))
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
