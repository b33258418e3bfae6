"""Copies of layouts on another device."""

import torch

from cotext.layers.layout import Layout, Packed
from cotext.runtime.devices import moved


def test_a_layout_that_is_part_of_itself() -> None:
    """Where every row has several sentences, these rows are all rows."""
    rows = Layout(torch.tensor([[0, 0, 1], [0, 1, 1]]), Packed(by_sentence=True, answers=("has_several",)))
    rows.__dict__["itself"] = rows
    copied = moved(rows, torch.clone)
    assert copied.__dict__["itself"] is copied
    assert torch.equal(copied.sentence, rows.sentence)
    assert copied.sentence is not rows.sentence
