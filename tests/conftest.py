# The process that distributes the tests also imports this file, so torch is not imported here.
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
    """Exclude all present objects from garbage collection, because they stay until the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Use one thread: with tiny tensors, a second thread costs more time than it saves."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """Let a test draw the same random numbers alone, among others, and in any process."""
    import torch

    # `torch.manual_seed` records its caller for devices that are not initialised, which takes 0.5 ms.
    torch.default_generator.manual_seed(0)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real corpora next to the project; tests that need it are skipped if it is missing."""
    path = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not path.is_dir():
        pytest.skip("real corpora are not beside this checkout")
    return path


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small prepared corpus; tests that change it use a copy."""
    from tests.tiny_runs import prepare_toy

    return prepare_toy(tmp_path_factory.mktemp("prepared") / "data")


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> "World":
    """A corpus, a suite and a run trained on it, made once in each process."""
    from tests.command_line import make_world

    return make_world(tmp_path_factory.getbasetemp() / "world")
