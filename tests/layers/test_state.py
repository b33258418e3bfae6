"""The decoder's state: whatever search does to it, a step equals the full forward pass of that row."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from cotext.data.batch import Source
from cotext.layers.positions import Kind
from cotext.layers.state import STEPS_BETWEEN_COLLECTIONS, DecoderState
from cotext.models.build import build_model
from cotext.models.transformer import Transformer
from tests.tiny import shake, tiny_config, window

VOCABULARY, SEP, PAD = 12, 10, 11


def system(sentences: int = 5, **model: Any) -> Transformer:
    """A model for rows of so many sentences."""
    torch.manual_seed(3)
    built = build_model(tiny_config(model={"shift": 0, **model}, view=window(sentences - 1)), VOCABULARY)
    assert isinstance(built, Transformer)
    return built.double().eval()


def model(positions: Kind = "absolute", pre_norm: bool = False) -> Transformer:
    shift = "sequence" if positions == "shifted" else 0
    built = system(positions=positions, shift=shift, segments="learned", pre_norm=pre_norm)
    assert built.embedding.segment is not None
    torch.nn.init.normal_(built.embedding.segment)
    return built


def source(lengths: list[int]) -> Source:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.full((len(lengths), max(lengths)), PAD)
    sentence = torch.full_like(tokens, -1)
    for i, length in enumerate(lengths):
        tokens[i, :length] = torch.randint(0, 10, (length,), generator=generator)
        sentence[i, :length] = torch.arange(length) // 3
    n = len(lengths)
    return Source(tokens, sentence, torch.tensor([[0, 1]] * n), torch.zeros(n).long(), torch.zeros(n).long())


class Rows:
    """A state beside the plain lists of tokens that it should stand for."""

    def __init__(self, model: Transformer, source: Source, prefixes: list[list[int]], slots: int) -> None:
        self.model, self.source = model, source
        self.entries = list(range(len(prefixes)))
        self.beam = 1
        self.passed = 0  # slots before all sentences and memories that were read
        self.tokens = [list(p) for p in prefixes]
        self.state: DecoderState = model.encode(source)
        self.state.open(slots)
        longest = max(map(len, prefixes))
        tokens = torch.tensor([p + [PAD] * (longest - len(p)) for p in prefixes])
        sentence = (tokens == SEP).cumsum(dim=1)
        for i, p in enumerate(prefixes):
            sentence[i, len(p) :] = -1
        hidden = model.decode(tokens, sentence, self.state)
        for i, p in enumerate(prefixes):
            torch.testing.assert_close(hidden[i, : len(p)], self.full(i))

    def full(self, row: int) -> Tensor:
        """The hidden states of one row, by a full forward pass over it alone."""
        entry = torch.tensor([self.entries[row // self.beam]])
        own = self.source.select(entry)
        length = int((own.sentence >= 0).sum())
        own = Source(
            own.tokens[:, :length], own.sentence[:, :length], own.current, own.document, own.first_sentence
        )
        tokens = torch.tensor([self.tokens[row]])
        return self.model.decode(tokens, (tokens == SEP).cumsum(dim=1), self.model.encode(own))[0]

    def step(self, new: list[list[int]]) -> None:
        for row, tokens in zip(self.tokens, new, strict=True):
            row.extend(tokens)
        sentence = torch.stack(
            [(torch.tensor(row) == SEP).cumsum(dim=0)[-len(new[0]) :] for row in self.tokens]
        )
        hidden = self.model.decode(torch.tensor(new), sentence, self.state)
        self.passed = max(self.passed, self.state.near)
        for row in range(len(self.tokens)):
            torch.testing.assert_close(hidden[row], self.full(row)[-len(new[0]) :])

    def widen(self, beam: int) -> None:
        self.state.widen(beam)
        self.beam = beam
        self.tokens = [list(row) for row in self.tokens for _ in range(beam)]

    def reorder(self, origin: list[int]) -> None:
        self.state.reorder(torch.tensor(origin))
        self.tokens = [list(self.tokens[i]) for i in origin]

    def select(self, entries: list[int]) -> None:
        self.state.select(torch.tensor(entries), self.beam)
        self.entries = [self.entries[i] for i in entries]
        self.tokens = [list(self.tokens[i * self.beam + w]) for i in entries for w in range(self.beam)]

    def random_tokens(self, generator: torch.Generator, count: int = 1) -> list[list[int]]:
        return torch.randint(0, SEP + 1, (len(self.tokens), count), generator=generator).tolist()


def search_at_random(rows: Rows, beam: int, steps: int, stay: Mapping[int, list[int]]) -> None:
    """Random tokens, now and then two, and origins; after some steps only the entries of `stay` remain."""
    generator = torch.Generator().manual_seed(beam)
    rows.widen(beam)
    for step in range(steps):
        rows.step(rows.random_tokens(generator, 1 if step % 5 else 2))
        within = torch.randint(0, beam, (len(rows.tokens),), generator=generator).tolist()
        rows.reorder([row // beam * beam + w for row, w in enumerate(within)])
        if step in stay:
            rows.select(stay[step])


PREFIXES = [[0], [0, 4, 5, SEP, 3], [0, 4, SEP], [0, 1, 2, 3]]
GATED = {"span": "sentence", "top": {"layers": 1, "span": "row", "mix": "gated"}}


def remembering(sentences: int) -> dict[str, Any]:
    return {
        "encoder": {"span": "sentence"},
        "decoder": {"span": "memory", "score": "transformer_xl", "memory_sentences": sentences},
        **{"cross": {"span": "sentence"}, "target_positions": "none", "encoder_layers": 2},
    }


@pytest.mark.parametrize(
    ("slots", "beam", "inside"),
    [
        ({}, 1, False),
        ({"positions": "reset"}, 3, False),
        ({"positions": "shifted", "shift": "sequence", "segments": "learned"}, 1, False),
        ({"positions": "shifted", "shift": "sequence", "segments": "learned"}, 3, False),
        ({"segments": "learned", "segments_from": "current"}, 1, False),
        ({"segments": "sinusoidal", "segments_from": "current"}, 3, False),
        ({"attention": {"score": "relative"}}, 3, False),
        ({"document_layer": "hierarchical", "document": {"target": True}}, 2, False),
        ({"attention": {"span": "sentence"}}, 3, True),
        ({"attention": GATED}, 1, True),
        ({"attention": {**GATED, "others": "gated"}}, 3, True),
        (remembering(0), 2, True),
        (remembering(1), 1, True),
        (remembering(1), 3, True),
        (remembering(2), 2, False),
    ],
)
@torch.no_grad()
def test_every_step_equals_the_full_pass_through_reordering_and_departures(
    slots: dict[str, Any], beam: int, inside: bool
) -> None:
    """Beams fall into different sentences, and past the last one of the source."""
    built, given = system(**slots), source([7, 3, 9, 4])
    shake(built)
    given.current[:] = torch.tensor([[2, 3], [0, 1], [3, 4], [1, 2]])
    rows = Rows(built, given, PREFIXES, slots=80)
    # The gap is filled by the last entry.
    search_at_random(rows, beam, 2 * STEPS_BETWEEN_COLLECTIONS + 4, {5: [0, 3, 2], 10: [2, 1]})
    assert rows.passed > 0 or not inside


@torch.no_grad()
def test_equal_prefixes_need_no_mask_and_give_the_same() -> None:
    generator = torch.Generator().manual_seed(1)
    rows = Rows(model(pre_norm=True), source([4, 4]), [[0, 1], [0, 2]], slots=9)
    assert rows.state.sees is None
    for _ in range(7):
        rows.step(rows.random_tokens(generator))
    assert rows.state.sees is None


@torch.no_grad()
def test_a_state_may_be_widened_before_its_first_token() -> None:
    rows = Rows.__new__(Rows)
    rows.model, rows.source = model(), source([5, 3])
    rows.entries, rows.beam, rows.passed, rows.tokens = [0, 1], 1, 0, [[], []]
    rows.state = rows.model.encode(rows.source)
    rows.state.open(4)
    rows.widen(2)
    for new in ([[0], [1], [2], [3]], [[5], [6], [SEP], [8]]):
        rows.step(new)


@torch.no_grad()
def test_nothing_is_copied_per_beam_and_dead_slots_are_freed() -> None:
    generator = torch.Generator().manual_seed(4)
    rows = Rows(model(), source([5, 7]), [[0], [0]], slots=200)
    memory = [k.data_ptr() for k, _ in rows.state.source.keys_values]
    rows.widen(4)
    assert [k.size(0) for k, _ in rows.state.source.keys_values] == [2, 2]
    for _ in range(STEPS_BETWEEN_COLLECTIONS * 4):
        tokens = torch.tensor(rows.random_tokens(generator))
        rows.model.decode(tokens, torch.zeros_like(tokens), rows.state)
        # All beams continue the first: of the four slots of each step one stays in use.
        rows.state.reorder(torch.arange(8) // 4 * 4)
    assert [k.data_ptr() for k, _ in rows.state.source.keys_values] == memory
    assert rows.state.used <= STEPS_BETWEEN_COLLECTIONS * (3 + 4) + 1
