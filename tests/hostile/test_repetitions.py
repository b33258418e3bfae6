"""Texts of one unit again and again: whatever reads them takes time by their length."""

from collections.abc import Callable

import pytest

from tests.hostile.attacks import Attacks
from tests.hostile.repetitions import (
    FILES,
    NO_TEXT,
    TEXTS,
    file_read_and_written,
    file_written,
    offence,
    repetitions,
)


def _try_all(subject: Callable[[str], object], what: str, attacks: Attacks) -> None:
    for name, text in repetitions(attacks.random):
        if problem := offence(subject, text):
            attacks.fail(f"{what}: {name!r}", problem)
        else:
            attacks.unharmed()


@pytest.mark.parametrize("what", TEXTS)
def test_a_text(what: str, attacks: Attacks) -> None:
    _try_all(TEXTS[what], what, attacks)


@pytest.mark.parametrize("what", FILES)
def test_a_file(what: str, attacks: Attacks) -> None:
    _try_all(file_read_and_written(what), what, attacks)


@pytest.mark.parametrize("what", [what for what in FILES if what not in NO_TEXT])
def test_a_translation_of_a_file(what: str, attacks: Attacks) -> None:
    _try_all(file_written(what), what, attacks)
