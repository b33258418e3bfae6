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

from cotext.data.batch import Batch, Instance, SpecialSymbols
from cotext.data.batching import pack
from cotext.data.collate import bracketed_targets, make_batch
from cotext.losses.cross_entropy import output_loss
from cotext.losses.ctc import ctc_nll, fits
from cotext.losses.ctc_targets import units
from cotext.models.interface import AutoregressiveModel, Model, NonAutoregressiveModel
from cotext.runtime.errors import CotextError


@dataclass(frozen=True, slots=True)
class SentenceScore:
    """Log-probability of one sentence (natural logarithm, summed over `tokens` labels, its end included)."""

    log_probability: float
    tokens: int


def score_instances(
    model: Model,
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
            if isinstance(model, NonAutoregressiveModel):
                totals = _written_at_once(model, batch)
            else:
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
    for packed in pack(rows, max_tokens):
        members = [i for g in packed for i in together[g]]
        yield members, make_batch([instances[i] for i in members], symbols).to(device)


def _label_nll(model: AutoregressiveModel, batch: Batch) -> Tensor:
    """Negative log-likelihoods of the labels of current sentences, one row after the other: [N]."""
    hidden_BTD = model.decode(batch.target_input, batch.input_sentence, model.encode(batch.source))
    label_N = batch.target_label[batch.is_current]
    return negative_log_likelihood(model.output_weight, hidden_BTD[batch.is_current], label_N)


def negative_log_likelihood(weight_VD: Tensor, hidden_ND: Tensor, label_N: Tensor) -> Tensor:
    """Of labels, given the output layer and the hidden states that predict them: [N]."""
    ones = torch.ones_like(label_N).to(hidden_ND.dtype)
    _, nll_N = output_loss(hidden_ND, weight_VD, label_N, ones, 0.0)
    return nll_N


def _written_at_once(model: NonAutoregressiveModel, batch: Batch) -> Tensor:
    """Negative log-likelihoods of the sentences of all rows, which are current, one after the other.

    With a path for every sentence, those of its text over all paths, infinite where it does not fit. Where
    only the row has a likelihood, each of its sentences has an equal share of it: two versions of a row
    then compare as wholes, whichever sentences are looked at.
    """
    tokens, sentence = bracketed_targets(batch)
    known = (sentence >= 0).sum(dim=1) if model.path == "length" else None
    draft = model.encode(batch.source, known)
    real = draft.sentence >= 0
    hidden_ND = model.decode(draft)[real]
    sentences = sentence.max(dim=1).values + 1
    if model.path == "length":
        label_N = tokens[sentence >= 0]
        nll_N = negative_log_likelihood(model.output_weight, hidden_ND, label_N)
        row_N = real.nonzero()[:, 0]
        nll = torch.zeros(len(sentences), dtype=torch.float64, device=row_N.device)
        nll = nll.index_add_(0, row_N, nll_N.double()) + model.length_nll(draft).double()
    else:
        asked = units(model.path, draft, tokens, sentence)
        nll = ctc_nll(hidden_ND, model.output_weight.detach(), asked, model.blank).double()
        nll = nll.masked_fill(~fits(asked, model.blank), math.inf)
    return nll if model.path == "sentences" else (nll / sentences).repeat_interleave(sentences)


def require_finite(scores: Iterable[SentenceScore], none_possible: bool = False) -> None:
    """Refuse scores that are not numbers, which would lose every comparison in silence.

    `none_possible`: a sentence may have no probability at all.
    """
    worst = -math.inf if none_possible else None
    if not all(math.isfinite(s.log_probability) or s.log_probability == worst for s in scores):
        raise CotextError(
            "the model gives log-probabilities that are not finite numbers; its weights may be damaged"
        )
