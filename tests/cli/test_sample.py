"""The page of software help that the demonstration translates first."""

from pathlib import Path

import pytest

from cotext.cli import sample
from cotext.cli.demo import run_demo
from cotext.interchange.named_model import NamedModel
from cotext.runtime.errors import CotextError
from tests.command_line import World


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


def test_words_that_differ_from_the_first_model_are_marked() -> None:
    page = sample._page(["It is old."], {"a": ["Er ist alt."], "b": ["Sie ist alt."]})
    assert "<td>Er ist alt.</td>" in page.replace(' class="left"', "")
    assert "<mark>Sie</mark> ist alt." in page


def test_without_the_models_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "known_models", dict)
    assert not sample.translate_sample(tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(CotextError, match="--no-train: there is nothing to do"):
        run_demo(tmp_path, train=False)
