"""`cotext schema`: an editor accepts what the command line reads, as far as a schema can say."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from cotext.config.recipe import _ROOT, recipe_names
from cotext.models.run_folder import write_config
from tests.command_line import succeed
from tests.loops import loop_over
from tests.tiny_runs import run_config


def schema(what: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(succeed("schema", what).out)
    jsonschema.Draft202012Validator.check_schema(found)
    return found


def test_shipped_recipes_and_configurations_of_runs_are_valid(tmp_path: Path) -> None:
    validator = jsonschema.Draft202012Validator(schema("recipe"))
    for name in recipe_names():
        validator.validate(yaml.safe_load((Path(str(_ROOT)) / f"{name}.yaml").read_text()) or {})
    write_config(tmp_path, run_config())
    text = (tmp_path / "config.yaml").read_text()
    assert text.startswith("# yaml-language-server: $schema=recipe.schema.json\n")
    jsonschema.validate(yaml.safe_load(text), schema("recipe"))


@loop_over(
    "content",
    [{"modle": {}}, {"model": {"encodr": {}}}, {"train": {"max_updates": "many"}}, {"extends": "han/han"}],
)
def test_a_mistake_in_a_recipe_is_found(content: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, schema("recipe"))


def test_an_endpoint_file_is_checked() -> None:
    page = (Path(__file__).parents[2] / "docs" / "language-models.md").read_text()
    written = yaml.safe_load(page.partition("# endpoint.yaml\n")[2].partition("```")[0])
    found = schema("endpoint")
    jsonschema.validate(written, found)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**written, "temprature": 0}, found)
