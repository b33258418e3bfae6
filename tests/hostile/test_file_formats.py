"""Files of every format with hostile translations, drawn at random by the thousand."""

import traceback

import pytest

from tests.files import enemies
from tests.files.structures import STRUCTURES
from tests.hostile.attacks import Attacks


@pytest.mark.parametrize("name", STRUCTURES)
def test_hostile_translations(name: str, attacks: Attacks) -> None:
    for turn in range(400):
        try:
            enemies.attack(name, attacks.random)
        except Exception:
            attacks.fail(f"{name}, turn {turn}", "".join(traceback.format_exc().splitlines(True)[-6:]))
        else:
            attacks.unharmed()
