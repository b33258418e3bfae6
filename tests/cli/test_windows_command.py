"""`cotext windows` on the command line."""

import json
from pathlib import Path

import pytest
from command_line import World, cotext, succeed
from tiny_runs import train_here

from cotext.config.recipe import parse_config

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def base(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of single sentences, trained for two updates."""
    content = {
        "model": {"dimension": 16, "feed_forward": 32, "heads": 2, "encoder_layers": 1, "decoder_layers": 1},
        "train": {"max_updates": 2, "max_tokens": 500, "validate_every": 2, "threads": 1}
        | {"validate_bleu": False},
    }
    run = tmp_path_factory.mktemp("base") / "base"
    train_here(parse_config(content, "test"), world.folder / "data", run)
    return run


def test_sizes_of_windows_and_translations(world: World, tmp_path: Path) -> None:
    files = ["--source", world.folder / "test.en", "--target", world.folder / "test.de"]
    sizes = ["--before", 0, "--before", 1, "--before", 3]
    out = tmp_path / "w"
    shown = succeed("windows", world.run, *files, *sizes, "--translate", "--protocol", "chrf", "--out", out)
    assert {path.name for path in out.iterdir()} == {
        "windows.json",
        "loss-by-sentence.png",
        "by-context-size.png",
    }
    assert (out / "by-context-size.png").read_bytes().startswith(PNG)
    found = json.loads((out / "windows.json").read_text())
    assert [s["before"] for s in found["systems"]] == [0, 1, 3]
    assert [s["trained_before"] for s in found["systems"]] == [1, 1, 1]
    assert [list(s["loss_by_sentence"]) for s in found["systems"]][:2] == [["0"], ["0", "1"]]
    assert [s["figures"]["ratio"] is None for s in found["systems"]] == [True, False, False]
    assert found["systems"][0]["figures"]["share"] == pytest.approx(1)
    assert all(
        f"view:window-{n}+1+0" in s["signature"] for n, s in zip((0, 1, 3), found["systems"], strict=True)
    )
    assert [line.split()[1] for line in shown.out.splitlines()[1:4]] == ["0", "1*", "3"]
    # Translations and scores are those of the other commands with the same setting.
    test = world.folder / "test.en"
    succeed("translate", world.run, test, "--set", "before=3", "--out", tmp_path / "t.de")
    scored = succeed(
        *("evaluate", "--hypothesis", tmp_path / "t.de", "--reference", world.folder / "test.de"),
        *("--protocol", "chrf", "--json"),
    )
    [system] = json.loads(scored.out)["systems"].values()
    assert system["scores"]["chrf"]["value"] == found["systems"][2]["scores"]["chrf"]["value"]


def test_runs_are_compared_at_every_size(world: World, base: Path, tmp_path: Path) -> None:
    files = ["--source", world.folder / "test.en", "--target", world.folder / "test.de"]
    arguments = [*files, "--samples", 100, "--out", tmp_path / "w", "--before", 0, "--json"]
    found = json.loads(succeed("windows", world.run, base, *arguments).out)
    assert [s["name"] for s in found["systems"]] == ["run", "base"]
    # Windows without context have no ratio.
    assert [test["figure"] for test in found["tests"]] == ["loss", "entropy", "share"]
    assert {test["before"] for test in found["tests"]} == {0}
    difference = [s["figures"]["entropy"] for s in found["systems"]]
    [comparison] = found["tests"][1]["comparisons"]
    assert comparison["difference"] == pytest.approx(difference[1] - difference[0])
    assert found["tests"][1]["unit"] == "document"
    assert not (tmp_path / "w" / "by-context-size.png").exists()
    shown = succeed("windows", world.run, base, *arguments[:-1])
    assert "too few for any significant difference" in shown.out
    refused = cotext("windows", base, *files, "--out", tmp_path / "v", "--before", 2)
    assert refused.code == 2
    assert "decode.before = 2: this system reads no windows" in refused.err
    refused = cotext("windows", world.run, *files, "--out", tmp_path / "v", "--protocol", "chrf")
    assert "--protocol needs --translate" in refused.err
    refused = cotext("windows", world.run, *files, "--out", tmp_path / "v", "--words", world.folder / "data")
    assert "--words needs --translate" in refused.err
    refused = cotext(
        "windows", world.run, *files, "--out", tmp_path / "v", "--translate", "--words", world.folder / "data"
    )
    assert "sentencepiece, has no words" in refused.err
    assert not (tmp_path / "v").exists() or not list((tmp_path / "v").iterdir())
