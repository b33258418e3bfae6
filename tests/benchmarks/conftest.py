"""All benchmarks run on one thread, without an accelerator."""

from collections.abc import Iterator

import pytest

from tests.command_line import process_environment


@pytest.fixture(scope="package", autouse=True)
def _alone() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name, value in process_environment().items():
            monkeypatch.setenv(name, value)
        yield
