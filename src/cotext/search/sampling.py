"""Sampling: every token is drawn from the distribution of the model, with random numbers of its own row.

A row has one random number per token, made from the seed of its request. What is drawn depends neither on the
batch nor on other rows.

Shapes: B entries, M most new tokens, R rows (here R = B), U columns of the output layer.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from cotext.config.decoding import SamplingConfig
from cotext.search.constraints import SearchRequest

LARGEST = 1 - 1e-12  # random numbers are below the sum of all probabilities, whatever its rounding


def distribution(log_probability_RU: Tensor, settings: SamplingConfig) -> Tensor:
    """Return the probabilities with which tokens are drawn, float64: [R, U] -> [R, U].

    Log-probabilities may lack a constant per row. They are divided by the temperature. Then only the `top_k`
    most probable tokens remain; then, of these, the fewest whose probabilities sum to `top_p` or more. Of
    equally probable tokens, the first one counts as more probable.
    """
    scaled_RU = log_probability_RU.double() / settings.temperature
    p_RU = scaled_RU.softmax(dim=1)
    if not settings.top_k and settings.top_p == 1:
        return p_RU
    ordered_RU, order_RU = p_RU.sort(dim=1, descending=True, stable=True)
    if settings.top_k:
        ordered_RU[:, settings.top_k :] = 0
    # A token remains if those before it do not reach the sum yet.
    before_RU = ordered_RU.cumsum(dim=1) - ordered_RU
    ordered_RU[before_RU >= settings.top_p * ordered_RU.sum(dim=1, keepdim=True)] = 0
    kept_RU = torch.zeros_like(p_RU).scatter_(1, order_RU, ordered_RU)
    return kept_RU / kept_RU.sum(dim=1, keepdim=True)


def uniform_numbers(requests: Sequence[SearchRequest], most: int) -> Tensor:
    """Return random numbers between 0 and 1 for the tokens of requests, by their seeds: float64 [B, M]."""
    numbers = [np.random.default_rng(request.seed).random(most) for request in requests]
    return torch.from_numpy(np.array(numbers).clip(max=LARGEST))


def only_drawn(log_probability_RU: Tensor, uniform_R: Tensor, settings: SamplingConfig) -> Tensor:
    """Draw a token in every row, by random numbers; return the values with -inf for all others, [R, U]."""
    p_RU = distribution(log_probability_RU, settings)
    upto_RU = p_RU.cumsum(dim=1)
    drawn_R1 = torch.searchsorted(upto_RU, uniform_R[:, None] * upto_RU[:, -1:], right=True)
    drawn_R1 = drawn_R1.clamp(max=p_RU.size(1) - 1)  # without any probability: `search` reports it
    is_other = torch.ones_like(p_RU, dtype=torch.bool).scatter_(1, drawn_R1, False)
    return log_probability_RU.masked_fill(is_other, -torch.inf)
