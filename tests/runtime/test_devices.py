"""Kernels of oneDNN: how many it keeps, in a process of its own, as it asks once."""

import os
import subprocess
import sys

import pytest
import torch

from cotext.runtime.devices import KEPT_KERNELS, KERNELS, keep_few_kernels

# Two shapes in turn: with room for one kernel, none is found again.
WORK = """
import torch
from cotext.runtime import devices
devices.KEPT_KERNELS = 1
devices.keep_few_kernels()
weight = torch.ones(64, 64, dtype=torch.bfloat16)
for rows in (48, 80, 48, 80):
    torch.ones(rows, 64, dtype=torch.bfloat16) @ weight
"""


@pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="products in bfloat16 are not of oneDNN here"
)
@pytest.mark.parametrize(("own", "hits"), [(None, 0), ("8", 2)])
def test_it_keeps_as_many_as_it_is_told_after_torch_is_imported(own: str | None, hits: int) -> None:
    """And as many as the user has chosen."""
    plain = {name: value for name, value in os.environ.items() if name != KERNELS}
    chosen = {} if own is None else {KERNELS: own}
    ran = subprocess.run(
        [sys.executable, "-c", WORK],
        env={**plain, **chosen, "ONEDNN_VERBOSE": "profile_create"},
        check=True,
        capture_output=True,
        text=True,
    )
    found = [line for line in ran.stdout.splitlines() if ",create:" in line and ",matmul," in line]
    assert len(found) == 4
    assert sum("cache_hit" in line for line in found) == hits


def test_a_number_of_the_user_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KERNELS, "")  # so that it is restored
    monkeypatch.delenv(KERNELS)
    keep_few_kernels()
    assert os.environ[KERNELS] == str(KEPT_KERNELS)
    monkeypatch.setenv(KERNELS, "7")
    keep_few_kernels()
    assert os.environ[KERNELS] == "7"
