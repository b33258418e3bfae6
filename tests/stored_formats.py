"""Write what a release promises to read for ever: folders, files and outputs of this version, small.

    python -m tests.stored_formats        (from the repository root; for a release, and never again for it)

`test_formats.py` opens them with every later version.
"""

import json
import shutil
import sys
import tempfile
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

import cotext
from cotext.cli.main import COMMANDS
from cotext.config.recipe import Config, keys, recipe_names
from tests import golden_outputs
from tests.command_line import succeed, train_arguments

# Commands with --json that `golden_outputs` does not run.
FURTHER = {
    "audit": ("audit", "test.de", "--source", "test.en", "--json"),
    "align": ("align", "--source", "test.en", "--target", "test.de", "--out", "pairs.tsv", "--json"),
    "shard": ("score", "run", "--source", "test.en", "--target", "test.de", "--out", "s.jsonl",
              "--shard", "1/1", "--json"),
}  # fmt: skip
WRITTEN = ("data", "run", "engine", "test.en", "test.de", "suite.json", "n.en.nbest.jsonl")
SCORE = ("score", "run", "--source", "test.en", "--target", "test.de")


def names() -> dict[str, Any]:
    """What programs and recipes call by name: commands, Python names with their parameters, keys, recipes."""
    requests = (cotext.PreparationRequest, cotext.TranslationRequest, cotext.EvaluationRequest)
    return {
        "commands": sorted(name for panel in COMMANDS.values() for name in panel),
        "cotext": sorted(cotext.__all__),
        "load": list(signature(cotext.load).parameters),
        "Translator": sorted(name for name in vars(cotext.Translator) if not name.startswith("_")),
        **{each.__name__: sorted(field.name for field in fields(each)) for each in requests},
        "keys": [key for key, _ in keys(Config)],
        "recipes": recipe_names(),
    }


def shape(output: Any) -> Any:
    """A JSON output with the first entry of every list alone."""
    if isinstance(output, dict):
        return {key: shape(value) for key, value in output.items()}
    return [shape(output[0])] if isinstance(output, list) and output else output


def missing(kept: Any, found: Any, place: str = "") -> list[str]:
    """Places of a kept output that a newer one lacks, or has with another type."""
    if None in (kept, found):
        return []
    if isinstance(kept, dict) and isinstance(found, dict):
        lists = [
            missing(value, found[key], f"{place}/{key}") if key in found else [f"{place}/{key}"]
            for key, value in kept.items()
        ]
        return [each for some in lists for each in some]
    if isinstance(kept, list) and isinstance(found, list):
        return missing(kept[0], found[0], f"{place}/0") if kept and found else []
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (kept, found))
    unknown = golden_outputs.ANY in (kept, found)
    return [] if numbers or unknown or type(kept) is type(found) else [place]


def json_outputs(folder: Path) -> dict[str, Any]:
    """The JSON output of each command that has one, by its name; `folder` holds what `WRITTEN` names."""
    golden = json.loads(golden_outputs.GOLDEN.read_text(encoding="utf-8"))
    found = {name: each["out"] for name, each in golden.items() if isinstance(each, dict)}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        found |= {name: json.loads(succeed(*command).out) for name, command in FURTHER.items()}
    return {name: shape(output) for name, output in found.items() if isinstance(output, dict)}


def write(folder: Path) -> None:
    """Write the folder of this version."""
    with tempfile.TemporaryDirectory() as name:
        made = Path(name)
        golden_outputs.outputs(made)
        succeed("export", made / "sent", "--to", "ctranslate2", "--out", made / "engine")
        succeed(*train_arguments(made, made / "run"))
        for part in ("checkpoints", "tensorboard"):
            shutil.rmtree(made / "run" / part)
        folder.mkdir()
        for each in WRITTEN:
            (shutil.copytree if (made / each).is_dir() else shutil.copyfile)(made / each, folder / each)
        (folder / "json.json").write_text(
            json.dumps(json_outputs(made), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(made)
            (folder / "scores.tsv").write_text(succeed(*SCORE).out, encoding="utf-8")
    (folder / "names.json").write_text(json.dumps(names(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(__file__).parent / f"formats-{cotext.__version__}")
    sys.stdout.write("written\n")
