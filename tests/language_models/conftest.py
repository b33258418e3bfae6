from collections.abc import Iterator

import pytest

from tests.language_models.described import KEY, VARIABLE, WORDS
from tests.language_models.fake import Fake


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for the next attempt, and there is a key."""
    from cotext.language_models import client

    monkeypatch.setattr(client, "backoff", lambda attempt: 0.01)
    monkeypatch.setenv(VARIABLE, KEY)


@pytest.fixture
def fake() -> Iterator[Fake]:
    with Fake(WORDS) as server:
        yield server
