"""`cotext windows` on the command line."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import copytree

import pytest
from command_line import World, cotext, succeed
from matplotlib.figure import Figure
from tiny_runs import train_here, write_run

from cotext.config.recipe import load_config, parse_config
from cotext.data.tokenizer import load_tokenizer
from cotext.evaluation.studies import plots
from cotext.evaluation.studies.plots import two_over_settings
from cotext.models.checkpoint import load_weights, save_model

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
    assert "--protocol evaluates translations: add --translate" in refused.err
    refused = cotext("windows", world.run, *files, "--out", tmp_path / "v", "--words", world.folder / "data")
    assert "--words evaluates translations: add --translate" in refused.err
    refused = cotext(
        "windows", world.run, *files, "--out", tmp_path / "v", "--translate", "--words", world.folder / "data"
    )
    assert "sentencepiece, has no words" in refused.err
    assert not (tmp_path / "v").exists() or not list((tmp_path / "v").iterdir())


def test_loss_and_share_over_context_discounts(
    world: World, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A picture where discounts set three runs apart; the figures are those of the table."""
    tokenizer = load_tokenizer(world.folder / "data" / "tokenizer")
    drawn: list[tuple[Sequence[str], Mapping[str, Sequence[float]]]] = []

    def draw(settings: Sequence[str], x_label: str, lines: Mapping[str, Sequence[float]]) -> Figure:
        drawn.append((settings, lines))
        return two_over_settings(settings, x_label, lines)

    monkeypatch.setattr(plots, "two_over_settings", draw)
    recipe = "focused-concatenation/s2to2-cd"
    small = ["model.dimension=16", "model.feed_forward=32", "model.heads=2", "model.decoder_layers=1"]
    runs = {}
    for discount in (0.01, 1, 0.5):
        config = load_config(recipe, None, [*small, f"loss.context_discount={discount}"])
        runs[discount] = write_run(tmp_path / f"cd-{discount}", config, tokenizer)
        model = runs[discount] / "model.safetensors"
        weights = {name: (1 + discount) * tensor for name, tensor in load_weights(model).items()}
        save_model(model, weights, config, tokenizer.fingerprint, [1])
    files = ["--source", world.folder / "test.en", "--target", world.folder / "test.de", "--samples", 100]
    asked = ["windows", *runs.values(), base, *files, "--out", tmp_path / "w", "--json"]
    found = {each["name"]: each for each in json.loads(succeed(*asked).out)["systems"]}
    assert [each["context_discount"] for each in found.values()] == [0.01, 1.0, 0.5, 1.0]
    assert len({each["figures"]["share"] for each in found.values()}) == 4
    # The run of single sentences has no context to discount.
    [(settings, lines)] = drawn
    assert settings == ["1", "0.5", "0.01"]
    for name, values in zip(("loss", "share"), lines.values(), strict=True):
        assert values == [found[f"cd-{discount}"]["figures"][name] for discount in (1, 0.5, 0.01)]
    assert (tmp_path / "w" / "by-discount.png").read_bytes().startswith(PNG)
    # Not of windows of another size, nor of runs that have one discount or differ in something else.
    succeed(*asked, "--before", 0, "--out", tmp_path / "other")
    again = copytree(runs[1], tmp_path / "again")
    settings = [*small, "loss.context_discount=0.1", "model.encoder_layers=1"]
    smaller = write_run(tmp_path / "smaller", load_config(recipe, None, settings), tokenizer)
    for further in (again, smaller):
        succeed("windows", *runs.values(), further, *files, "--out", tmp_path / "other")
    assert len(drawn) == 1
    assert not (tmp_path / "other" / "by-discount.png").exists()
