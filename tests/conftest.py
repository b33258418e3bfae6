# What is imported here is imported by the process that hands out the tests, too: torch is not.
import gc
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.command_line import World

# The number of examples of property tests that do not set one; the default is 100. An example has no time
# limit, which a busy machine exceeds.
settings.register_profile("suite", max_examples=40, deadline=None)
settings.load_profile("suite")


def pytest_collection_finish() -> None:
    """What is there by now stays: looking through it for garbage again and again is in vain."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Tests work on tiny tensors, where a second thread costs more than it brings."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """A test draws the same random numbers alone, amid others, and in any process."""
    import torch

    # `torch.manual_seed` notes where it was called from, for devices not yet in use: half a millisecond.
    torch.default_generator.manual_seed(0)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real corpora beside the project; tests that ask for it skip where it is absent."""
    path = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not path.is_dir():
        pytest.skip("real corpora are not beside this checkout")
    return path


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small corpus as `prepare` leaves it; what changes it works on a copy."""
    from tests.tiny_runs import prepare_toy

    return prepare_toy(tmp_path_factory.mktemp("prepared") / "data")


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> "World":
    """A corpus, a suite and a run trained on it, made once in each process."""
    from tests.command_line import make_world

    return make_world(tmp_path_factory.getbasetemp() / "world")
