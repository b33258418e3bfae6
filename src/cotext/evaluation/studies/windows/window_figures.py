"""Windows of sentences over a corpus: loss by sentence, and the entropy and direction of attention.

What Lupo et al. 2022 show in figures 2 and 3 (loss of the current sentence, its ratio to that of the context,
attention on the current sentence) and table 5 (entropy of attention). Every figure is a ratio of sums over
documents, so that two systems can be compared by swapping documents.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from cotext.data.batch import Batch
from cotext.data.documents import ParallelDocument
from cotext.evaluation.statistics.sufficient_statistics import Floats, Statistics
from cotext.evaluation.studies.attention.attention_of_document import window_batches
from cotext.evaluation.studies.attention.sentence_maps import SentenceMap, observed
from cotext.models.interface import TranslationModel
from cotext.runtime.errors import CotextError
from cotext.search.likelihood import negative_log_likelihood
from cotext.translation.translator import DocumentTranslator

SELF: Final = ("encoder", "decoder")
STACKS: Final = (*SELF, "cross")


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean: a sum of some columns over a sum of others, and where asked for, over another such mean."""

    above: tuple[str, ...]
    below: tuple[str, ...]
    over: tuple[str, str] | None = None

    def of(self, sums: Mapping[str, Floats]) -> Floats:
        """The figure of every corpus whose sums are given; 0 where there is nothing to divide by."""
        value = _ratio(_added(sums, self.above), _added(sums, self.below))
        return value if self.over is None else _ratio(value, _ratio(sums[self.over[0]], sums[self.over[1]]))


def _added(sums: Mapping[str, Floats], columns: Sequence[str]) -> Floats:
    added: Floats = np.stack([sums[column] for column in columns]).sum(axis=0)
    return added


def _ratio(above: Floats, below: Floats) -> Floats:
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


def _attention(what: str, stacks: Sequence[str]) -> Figure:
    return Figure(tuple(f"{what} {s}" for s in stacks), tuple(f"{what} queries {s}" for s in stacks))


FIGURES: Final[Mapping[str, Figure]] = {
    "loss": Figure(("current nll",), ("current tokens",)),
    "ratio": Figure(("nll beside context",), ("windows with context",), ("context nll", "context sentences")),
    "entropy": _attention("entropy", STACKS),
    **{f"entropy, {stack}": _attention("entropy", (stack,)) for stack in STACKS},
    "share": _attention("share", SELF),
    **{f"share, {stack}": _attention("share", (stack,)) for stack in STACKS},
}
MEANINGS: Final[Mapping[str, str]] = {
    "loss": "of the current sentence, nats a token",
    "ratio": "loss of the current sentence over that of a context sentence in the same window",
    "entropy": "of attention weights, nats, over all queries of self- and cross-attention",
    "share": "of the self-attention of current tokens that goes to their own sentence",
}


@dataclass(frozen=True, slots=True)
class PlaceLoss:
    """Loss of the sentences at one place of a window: nats, tokens and sentences."""

    nats: float
    tokens: int
    sentences: int


@dataclass(frozen=True, slots=True, eq=False)
class WindowFigures:
    """Sums of a system over a corpus by document, and losses by place: 0 the current sentence, 1 that before.

    `before` and `trained` are the context sentences of the windows here and in training.
    """

    signature: str
    before: int
    trained: int
    columns: Mapping[str, Floats]  # [documents] each
    places: Mapping[int, PlaceLoss]

    def statistics(self, figure: str) -> Statistics:
        """A figure as a function of sums over documents."""
        names = list(self.columns)
        counts = np.stack([self.columns[name] for name in names], axis=1)
        return Statistics(
            counts, np.arange(len(counts)), "document", partial(_scored, FIGURES[figure], names)
        )

    def value(self, figure: str) -> float | None:
        """A figure over the corpus; None where there is nothing of the kind."""
        below = [*FIGURES[figure].below, *(FIGURES[figure].over or ())]
        empty = any(not self.columns[name].any() for name in below)
        return None if empty else self.statistics(figure).score

    def as_dict(self) -> dict[str, Any]:
        """Everything but sums by document, for a JSON file."""
        return {
            "signature": self.signature,
            "before": self.before,
            "trained_before": self.trained,
            "figures": {name: self.value(name) for name in FIGURES},
            "loss_by_sentence": {
                str(place): {
                    "nats_a_token": each.nats / each.tokens,
                    "nats_a_sentence": each.nats / each.sentences,
                    "tokens": each.tokens,
                    "sentences": each.sentences,
                }
                for place, each in self.places.items()
            },
        }


def _scored(figure: Figure, names: Sequence[str], sums: Floats) -> Floats:
    return figure.of({name: sums[:, i] for i, name in enumerate(names)})


def measure_windows(
    translator: DocumentTranslator,
    model: TranslationModel,
    documents: Sequence[ParallelDocument],
    signature: str,
    trained: int,
    on_sentences: Callable[[int], None] = lambda count: None,
) -> WindowFigures:
    """The figures of a system on a corpus; `model` is that of the translator, and in eval mode.

    `trained`: context sentences of its windows in training.

    Raises:
        CotextError: a system that reads no windows, a sentence over the limit.
    """
    view = translator.config.view
    if view.kind not in ("window", "sentence"):
        raise CotextError(
            f"this system reads no windows (view.kind = {view.kind}): of documents, see cotext attention, "
            "cxmi and profile"
        )
    translator.check_pairs(documents)
    of_documents: list[dict[str, float]] = []
    places: dict[int, list[float]] = {}
    for document in documents:
        source = translator.tokenizer.encode_batch(document.source)
        target = translator.tokenizer.encode_batch(document.target, side="target")
        kept, batches = window_batches(translator, source, target)
        # Losses and attention are those of one pass.
        with observed(model, len(kept)) as reader:
            sums = _of_losses(model, batches, reader.read, places)
        of_documents.append(sums | _of_attention(reader.maps))
        on_sentences(len(document))
    if not places:
        raise CotextError("no sentence of the corpus has words on either side; there is nothing to measure")
    names = dict.fromkeys(name for sums in of_documents for name in sums)
    return WindowFigures(
        signature=signature,
        before=view.before if view.kind == "window" else 0,
        trained=trained,
        columns={name: np.array([sums.get(name, 0.0) for sums in of_documents]) for name in names},
        places={
            place: PlaceLoss(nats, int(tokens), int(sentences))
            for place, (nats, tokens, sentences) in sorted(places.items())
        },
    )


def _of_losses(
    model: TranslationModel,
    batches: Sequence[Batch],
    read: Callable[[Batch], Tensor],
    places: dict[int, list[float]],
) -> dict[str, float]:
    """Losses of the current and the context sentences of the windows of a document; adds to `places`."""
    sums = dict.fromkeys(
        (
            *("current nll", "current tokens", "nll beside context", "windows with context"),
            *("context nll", "context sentences"),
        ),
        0.0,
    )
    for batch in batches:
        nll_BN, tokens_BN = _by_place(model, batch, read(batch))
        for place in range(nll_BN.size(1)):
            there = tokens_BN[:, place] > 0
            found = [nll_BN[:, place].sum().item(), tokens_BN[:, place].sum().item(), there.sum().item()]
            if found[2]:
                places[place] = [a + b for a, b in zip(places.get(place, [0.0] * 3), found, strict=True)]
        context = (tokens_BN[:, 1:] > 0).sum(dim=1)
        sums["current nll"] += nll_BN[:, 0].sum().item()
        sums["current tokens"] += tokens_BN[:, 0].sum().item()
        sums["nll beside context"] += nll_BN[context > 0, 0].sum().item()
        sums["windows with context"] += (context > 0).sum().item()
        sums["context nll"] += nll_BN[:, 1:].sum().item()
        sums["context sentences"] += context.sum().item()
    return sums


def _by_place(model: TranslationModel, batch: Batch, hidden_BTD: Tensor) -> tuple[Tensor, Tensor]:
    """Loss and labels of every row by sentences back from the current one: two times [B, N], in float64."""
    real = batch.label_sentence >= 0
    nll = negative_log_likelihood(model, hidden_BTD[real], batch.target_label[real]).double()
    row, _ = real.nonzero(as_tuple=True)
    place = batch.source.current[row, 0] - batch.label_sentence[real]
    size = (len(real), int(place.max()) + 1)
    index = row * size[1] + place
    sums = [
        torch.zeros(size[0] * size[1], dtype=torch.float64, device=nll.device).index_add_(0, index, each)
        for each in (nll, torch.ones_like(nll))
    ]
    return sums[0].view(size), sums[1].view(size)


def _of_attention(maps: Mapping[str, SentenceMap]) -> dict[str, float]:
    """Sums of entropies over all queries, and of shares over current ones, by stack."""
    sums: dict[str, float] = {}

    def add(name: str, value: float) -> None:
        sums[name] = sums.get(name, 0.0) + value

    for each in maps.values():
        stack = each.kind.partition("-")[0]
        add(f"entropy {stack}", each.spread_of_all.entropy)
        add(f"entropy queries {stack}", each.spread_of_all.queries)
        add(f"share {stack}", each.weight.diagonal().sum().item())
        add(f"share queries {stack}", each.queries.sum().item())
    return sums
