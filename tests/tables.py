"""A model for tests of search: the next token is looked up by what was read so far."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cotext.data.batch import Source


class Table:
    """A model whose next-token distribution is looked up by what it has read so far, sentences included."""

    sees_other_rows = False
    output_bias = int8_output = None

    def __init__(self, seed: int, sharpness: float = 2.0, entries: int = 997) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.logits = torch.randn(entries, 9, generator=generator, dtype=torch.float64) * sharpness
        self.calls = 0

    @property
    def output_weight(self) -> Tensor:
        return torch.eye(9, dtype=torch.float64)

    def encode(self, source: Source) -> "TableState":
        return TableState(source.tokens[:, 0])

    def decode(self, tokens: Tensor, sentence: Tensor, state: "TableState") -> Tensor:
        self.calls += 1
        hidden = []
        for token, k in zip(tokens.T, sentence.T, strict=True):
            read = self.read(state.history, token, k)
            state.history = torch.where(k >= 0, read, state.history)
            hidden.append(self.logits[state.history])
        return torch.stack(hidden, dim=1)

    def read(self, history: Tensor, token: Tensor, sentence: Tensor) -> Tensor:
        return (history * 31 + token * 7 + sentence + 1) % len(self.logits)


@dataclass
class TableState:
    history: Tensor

    def open(self, places: int) -> None:
        self.places = places

    def widen(self, beam: int) -> None:
        self.history = self.history.repeat_interleave(beam)

    def reorder(self, origin: Tensor) -> None:
        self.history = self.history[origin]

    def select(self, entries: Tensor, beam: int) -> None:
        self.history = self.history.view(-1, beam)[entries].flatten()


def table_source(keys: Sequence[int]) -> Source:
    n = len(keys)
    zeros = torch.zeros(n, dtype=torch.long)
    return Source(torch.tensor(keys)[:, None], zeros[:, None], torch.tensor([[0, 1]] * n), zeros, zeros)
