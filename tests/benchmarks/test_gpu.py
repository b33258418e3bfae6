"""The benchmark of a GPU, in miniature on the CPU."""

import pytest
import torch

from benchmarks.speed import gpu
from benchmarks.speed.systems import random_documents

CPU = torch.device("cpu")
RECIPES = ("g-transformer/randinit", "casa/casa")


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gpu.SIZES, "tiny", (16, 32, 2))
    monkeypatch.setattr(gpu, "CEILING_SHAPES", ((64, 64, 64),))
    monkeypatch.setattr(gpu, "random_documents", lambda count, *_: random_documents(count, 2, 3))


def test_training() -> None:
    rows = gpu.training(RECIPES, "tiny", 100, "fp32", 1, CPU)
    assert [row[0] for row in rows] == list(RECIPES)
    assert all(row[4] == "nan" for row in rows)  # memory is the GPU's


def test_decoding() -> None:
    rows = gpu.decoding(RECIPES, "tiny", 1, 1, 1, CPU)
    assert rows[0][2] == "1.00 (1.00-1.00)"


def test_values_that_the_cpu_reads_are_counted() -> None:
    x = torch.arange(4)
    with gpu.HostReads() as reads:
        float(x.sum())
        x[x > 1]
        x.nonzero()
        x.repeat_interleave(x, output_size=6)
    assert reads.found.total() == 3
    with gpu.HostReads() as reads:
        x.repeat_interleave(x)
        x[torch.tensor([0, 1])] = 0
    assert reads.found.total() == 1


def test_an_update_reads_no_value() -> None:
    assert gpu.waiting(RECIPES[0], "tiny", 100, CPU) == 0
