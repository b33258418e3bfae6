"""The page of software help that the demonstration translates first."""

from pathlib import Path

import pytest

from cotext.cli import sample
from cotext.cli.demo import run_demo
from cotext.interchange.model_names import NamedModel
from tests.command_line import World
from tests.refusals import must_raise


def test_every_sentence_has_a_row_with_each_models_translation(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    models = {name: NamedModel(name, world.run, "a package") for name in sample.MODELS}
    monkeypatch.setattr(sample, "known_models", lambda: models)
    assert sample.translate_sample(tmp_path)
    page = (tmp_path / "sample.html").read_text(encoding="utf-8")
    printed = capsys.readouterr().out
    lines = (Path(sample.__file__).parent / "sample.en").read_text(encoding="utf-8").splitlines()
    assert page.count("<tr>") == len(lines) + 1
    assert all(line in page for line in lines)
    assert "<mark>" not in page  # the same model twice
    assert all(f"{name}:" in printed for name in sample.MODELS)


def test_differing_words_are_marked_and_without_models_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = sample._page(["It is old."], {"a": ["Er ist alt."], "b": ["Sie ist alt."]})
    assert "<td>Er ist alt.</td>" in page.replace(' class="left"', "")
    assert "<mark>Sie</mark> ist alt." in page
    monkeypatch.setattr(sample, "known_models", dict)
    assert not sample.translate_sample(tmp_path)
    assert not list(tmp_path.iterdir())
    must_raise("--no-train: there is nothing to do", run_demo, tmp_path, train=False)
