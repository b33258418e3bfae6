"""Devices: how many kernels of oneDNN are kept, and copies of layouts on another one."""

import os

import pytest
import torch

from cotext.layers.layout import Layout, Packed
from cotext.runtime.devices import KEPT_KERNELS, KERNELS, keep_few_kernels, moved


def test_a_number_of_the_user_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KERNELS, "")  # so that it is restored
    monkeypatch.delenv(KERNELS)
    keep_few_kernels()
    assert os.environ[KERNELS] == str(KEPT_KERNELS)
    monkeypatch.setenv(KERNELS, "7")
    keep_few_kernels()
    assert os.environ[KERNELS] == "7"


def test_a_layout_that_is_part_of_itself() -> None:
    """Where every row has several sentences, these rows are all rows."""
    rows = Layout(torch.tensor([[0, 0, 1], [0, 1, 1]]), Packed(by_sentence=True, answers=("has_several",)))
    rows.__dict__["itself"] = rows
    copied = moved(rows, torch.clone)
    assert copied.__dict__["itself"] is copied
    assert torch.equal(copied.sentence, rows.sentence)
    assert copied.sentence is not rows.sentence
