"""Recipes in words: what stands above those of a folder."""

from cotext.config.recipe import load_config
from cotext.models.describe import entry


def test_recipes_of_a_folder_without_a_title_stand_below_its_name() -> None:
    """So that a paper that is just being added can be listed."""
    config = load_config("han/source")
    assert entry("han/source", config, 1).title.startswith("Miculicich et al. 2018, ")
    assert entry("a-new-paper/system", config, 1).title == "a-new-paper"
