from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cotext.serving.systems import Systems


@pytest.fixture(scope="session")
def systems(tmp_path_factory: pytest.TempPathFactory) -> "Systems":
    """Three opened tiny systems from English to German: sentence, window, document."""
    from tiny_server import tiny_systems

    return tiny_systems(tmp_path_factory.mktemp("systems"))
