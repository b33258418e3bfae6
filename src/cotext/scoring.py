"""How probable a given translation is, sentence by sentence, in its context.

The same view that cuts documents for training says what a sentence is scored in; the score of a sentence is
the sum of the log-probabilities of its labels, the symbol that closes it included.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice

import torch
from torch import Tensor

from cotext.data.batch import Batch, Instance, SpecialSymbols, make_batch
from cotext.errors import CotextError
from cotext.losses.cross_entropy import output_loss
from cotext.models.base import AutoregressiveModel
from cotext.neighbours import pack_groups


@dataclass(frozen=True, slots=True)
class SentenceScore:
    """Log-probability of one sentence (natural logarithm, summed over `tokens` labels, its end included)."""

    log_probability: float
    tokens: int


def score_instances(
    model: AutoregressiveModel,
    instances: Sequence[Instance],
    symbols: SpecialSymbols,
    max_tokens: int,
    device: torch.device,
    groups: Sequence[Sequence[int]] | None = None,
) -> list[list[SentenceScore]]:
    """Score the current sentences of every instance, in the order given; the model must be in eval mode.

    `groups`: which instances, by their places, must be in one batch; if None, none need be.
    """
    scores: list[list[SentenceScore]] = [[] for _ in instances]
    with torch.inference_mode():
        for members, batch in _batches(instances, symbols, max_tokens, device, groups):
            current = batch.is_current
            # The sentences of all rows one after the other, each with its place among the current ones.
            counts = [len(instances[i].window.current) for i in members]
            first = torch.tensor([0, *accumulate(counts)], device=device)
            row_N, _ = current.nonzero(as_tuple=True)
            place_N = first[row_N] + batch.label_sentence[current] - batch.source.current[row_N, 0]
            totals = torch.zeros(sum(counts), dtype=torch.float64, device=device)
            totals.index_add_(0, place_N, _label_nll(model, batch).double())
            labels = torch.bincount(place_N, minlength=len(totals))
            found = map(SentenceScore, (-totals).tolist(), labels.tolist())
            for i, count in zip(members, counts, strict=True):
                scores[i] = list(islice(found, count))
    return scores


def score_labels(
    model: AutoregressiveModel,
    instances: Sequence[Instance],
    symbols: SpecialSymbols,
    max_tokens: int,
    device: torch.device,
    groups: Sequence[Sequence[int]] | None = None,
) -> list[list[tuple[float, ...]]]:
    """As `score_instances`, but the log-probability of every label of a sentence, its end the last."""
    scores: list[list[tuple[float, ...]]] = [[] for _ in instances]
    with torch.inference_mode():
        for members, batch in _batches(instances, symbols, max_tokens, device, groups):
            found = iter((-_label_nll(model, batch)).tolist())
            for i in members:
                window, target = instances[i].window, instances[i].target
                lengths = [len(target[j - window.target.start]) + 1 for j in window.current]
                scores[i] = [tuple(islice(found, length)) for length in lengths]
    return scores


def _batches(
    instances: Sequence[Instance],
    symbols: SpecialSymbols,
    max_tokens: int,
    device: torch.device,
    groups: Sequence[Sequence[int]] | None,
) -> Iterator[tuple[list[int], Batch]]:
    """Which instances share a batch, by their places, and that batch."""
    lengths = [(i.row_tokens(symbols), i.source_tokens(symbols)) for i in instances]
    together = [[i] for i in range(len(instances))] if groups is None else [list(g) for g in groups]
    together.sort(key=lambda group: max(lengths[i] for i in group))
    rows = [[lengths[i][0] for i in group] for group in together]
    for packed in pack_groups(rows, max_tokens):
        members = [i for g in packed for i in together[g]]
        yield members, make_batch([instances[i] for i in members], symbols).to(device)


def _label_nll(model: AutoregressiveModel, batch: Batch) -> Tensor:
    """Negative log-likelihoods of the labels of current sentences, one row after the other: [N]."""
    hidden_BTD = model.decode(batch.target_input, batch.input_sentence, model.encode(batch.source))
    label_N = batch.target_label[batch.is_current]
    return negative_log_likelihood(model, hidden_BTD[batch.is_current], label_N)


def negative_log_likelihood(model: AutoregressiveModel, hidden_ND: Tensor, label_N: Tensor) -> Tensor:
    """Of labels, given the hidden states that foretell them: [N]."""
    _, nll_N = output_loss(hidden_ND, model.output_weight, label_N, torch.ones_like(label_N).float(), 0.0)
    return nll_N


def require_finite(scores: Iterable[SentenceScore]) -> None:
    """Refuse scores that are not numbers, which would lose every comparison in silence."""
    if not all(math.isfinite(s.log_probability) for s in scores):
        raise CotextError(
            "the model gives log-probabilities that are not finite numbers; its weights may be damaged"
        )
