"""Every language that a run can be prepared for by its code of two letters has a name."""

from cotext.data.languages import CODES, NAMES, name_of


def test_every_code_has_a_name_of_its_own() -> None:
    assert NAMES.keys() == CODES
    assert len(set(NAMES.values())) == len(NAMES)
    assert (name_of("de"), name_of("nds")) == ("German", "nds")
