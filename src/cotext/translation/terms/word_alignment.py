"""Word alignment of a sentence and its translation: convert alignments of tokens to alignments of words.

Shapes: T target tokens, S source tokens, U target units, V source units.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import torch
from torch import Tensor

from cotext.data.words import Span, Unit, word_units

# Settings of `sharpened`, chosen on development documents of the controlled corpus, over all systems.
DIAGONAL: Final = 2.0
LEAST_WEIGHT: Final = 1e-6
ROUNDS: Final = 3
MOST_PARTS: Final = 512  # parts of a text in a proportional alignment, which is a matrix of all pairs


@dataclass(frozen=True, slots=True, eq=False)
class SentenceAlignment:
    """The source tokens of each target token: spans of characters in both texts, and weights.

    `weights` [T, S] are not negative. If a row sums to less than one, the rest belongs to no word.
    """

    source_spans: tuple[Span, ...]
    target_spans: tuple[Span, ...]
    weights: Tensor


def proportional(source: str, target: str) -> SentenceAlignment:
    """Return an alignment by position: tokens at the same proportion of both texts correspond.

    Tokens are units, or groups of units if there are more than `MOST_PARTS`.
    """
    of_S, of_T = (_parted(word_units(text)) for text in (source, target))
    shares_S, shares_T = (
        edges / max(float(edges.max()), 1.0) if len(edges) else edges
        for edges in (_edges(source, of_S), _edges(target, of_T))
    )
    # The length of the overlap of each target part with each source part.
    first = torch.maximum(shares_T[:, None, 0], shares_S[None, :, 0])
    overlap = (torch.minimum(shares_T[:, None, 1], shares_S[None, :, 1]) - first).clamp(min=0)
    return SentenceAlignment(of_S, of_T, overlap / overlap.sum(dim=1, keepdim=True).clamp(min=1e-9))


def _parted(units: Sequence[Unit]) -> tuple[Span, ...]:
    size = -(-len(units) // MOST_PARTS)
    firsts = range(0, len(units), max(size, 1))
    return tuple((units[i].start, units[min(i + size, len(units)) - 1].stop) for i in firsts)


def agreement(
    alignment: SentenceAlignment,
    texts: tuple[str, str],
    source_spans: Sequence[Span],
    target_spans: Sequence[Span],
) -> Tensor:
    """Convert an alignment of tokens to an alignment of other spans of source and target: [U, V].

    A token in several spans is divided among them by its characters. Rows are means over the tokens of a
    target span.
    """
    s, v, of_S = _parts(texts[0], alignment.source_spans, source_spans)
    t, u, of_T = _parts(texts[1], alignment.target_spans, target_spans)
    whole_U = of_T.new_zeros(len(target_spans)).index_add_(0, u, of_T).clamp(min=1e-9)
    weights_TS = alignment.weights.double()
    weights_US = of_T.new_zeros(len(target_spans), len(alignment.source_spans))
    weights_US.index_add_(0, u, (of_T / whole_U[u])[:, None] * weights_TS[t])
    weights_UV = of_S.new_zeros(len(target_spans), len(source_spans))
    return weights_UV.index_add_(1, v, weights_US[:, s] * of_S)


def renderings(alignment: SentenceAlignment, texts: tuple[str, str], span: Span) -> list[tuple[float, Span]]:
    """Return spans of the target that may render a span of the source, with their shares, largest first.

    Each is a word. Only the first may include neighbours: words that are mainly aligned with the same span,
    with at least half of the largest share. A share is the word's part of the weights of the span.
    """
    of_S, of_T = word_units(texts[0], whole=[span]), word_units(texts[1])
    words = [unit for unit in of_T if not unit.punctuation]
    if not words:
        return []
    spans = [(unit.start, unit.stop) for unit in of_S], [(unit.start, unit.stop) for unit in words]
    column = spans[0].index(span)
    weights_UV = sharpened(agreement(alignment, texts, *spans))
    own_U = weights_UV[:, column] / weights_UV[:, column].sum().clamp(min=1e-9)
    first = last = int(own_U.argmax())
    aligned = ((weights_UV.argmax(dim=1) == column) & (own_U >= own_U.max() / 2)).tolist()
    while first and aligned[first - 1]:
        first -= 1
    while last + 1 < len(words) and aligned[last + 1]:
        last += 1
    best = [(float(own_U[first : last + 1].sum()), (words[first].start, words[last].stop))]
    others = (u for u in range(len(words)) if not first <= u <= last)
    return best + sorted(((float(own_U[u]), spans[1][u]) for u in others), reverse=True)


def sharpened(weights_UV: Tensor) -> Tensor:
    """Return the weights of units on which both directions agree: rows sum to one or zero.

    Attention is separate for each target unit, and several may attend to the same source unit. Columns and
    rows are therefore normalised in turn (Sinkhorn 1964), starting from weights with a slight preference for
    the diagonal (like Dyer et al. 2013, section 2). The result is squared.
    """
    place_U, place_V = ((torch.arange(n) + 0.5) / max(n, 1) for n in weights_UV.shape)
    weights = weights_UV * torch.exp(-DIAGONAL * (place_U[:, None] - place_V).abs())
    silent = weights_UV.sum(dim=1) == 0
    # Zeros are replaced, as a column of zeros could not be normalised.
    weights = weights.clamp(min=LEAST_WEIGHT)
    for _ in range(ROUNDS):
        weights = weights / weights.sum(dim=0)
        weights = weights / weights.sum(dim=1, keepdim=True)
    # Squaring makes the larger weights dominate.
    weights = weights.square()
    return (weights / weights.sum(dim=1, keepdim=True)).masked_fill(silent[:, None], 0.0)


def _parts(text: str, tokens: Sequence[Span], spans: Sequence[Span]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the token, the span and the share of the token, for each overlap of a token and a span.

    Spans are in order and disjoint, so there are few more overlaps than tokens and spans.
    """
    edges_N2, spans_M2 = _edges(text, tokens), _edges(text, spans)
    first_N = torch.searchsorted(spans_M2[:, 1].contiguous(), edges_N2[:, 0].contiguous(), right=True)
    behind_N = torch.searchsorted(spans_M2[:, 0].contiguous(), edges_N2[:, 1].contiguous())
    count_N = (behind_N - first_N).clamp(min=0)
    n = torch.arange(len(tokens)).repeat_interleave(count_N)
    m = torch.arange(len(n)) - (count_N.cumsum(0) - count_N - first_N)[n]
    own, other = edges_N2[n], spans_M2[m]
    shared = torch.minimum(own[:, 1], other[:, 1]) - torch.maximum(own[:, 0], other[:, 0])
    return n, m, shared.clamp(min=0) / (own[:, 1] - own[:, 0]).clamp(min=1)


def _edges(text: str, spans: Sequence[Span]) -> Tensor:
    """Return begin and end of spans, counted in characters other than white space: [N, 2]."""
    before = list(accumulate((not c.isspace() for c in text), initial=0))
    return torch.tensor([(before[a], before[b]) for a, b in spans], dtype=torch.float64).view(-1, 2)
