from pathlib import Path

import pytest
import torch
from command_line import World, make_world


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Tests work on tiny tensors, where a second thread costs more than it brings."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """A test draws the same random numbers alone, amid others, and in any process."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real corpora beside the project; tests that ask for it skip where it is absent."""
    path = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not path.is_dir():
        pytest.skip("real corpora are not beside this checkout")
    return path


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A corpus, a suite and a run trained on it, made once in each process."""
    return make_world(tmp_path_factory.getbasetemp() / "world")
