"""Kernels of oneDNN: how many it keeps."""

import os

import pytest

from cotext.runtime.devices import KEPT_KERNELS, KERNELS, keep_few_kernels


def test_a_number_of_the_user_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KERNELS, "")  # so that it is restored
    monkeypatch.delenv(KERNELS)
    keep_few_kernels()
    assert os.environ[KERNELS] == str(KEPT_KERNELS)
    monkeypatch.setenv(KERNELS, "7")
    keep_few_kernels()
    assert os.environ[KERNELS] == "7"
