"""A run is loaded once, whatever is done with it."""

from pathlib import Path

import pytest

from cotext.translation import open as opening
from cotext.translation.open import open_run
from cotext.translation.score_file import score_file
from cotext.translation.translate_file import translate_file
from tests.command_line import World, documents_file
from tests.refusals import must_raise
from tests.tiny_runs import toy_documents


def test_a_run_is_loaded_once(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads = []
    load = opening.load_run
    monkeypatch.setattr(opening, "load_run", lambda *given: loads.append(given) or load(*given))
    opened = open_run(world.run, "cpu", {"beam": 1})
    source, out = documents_file(tmp_path / "in.en", 2, 3), tmp_path / "out.de"
    report = translate_file(opened, source, out)
    assert report.signature == opened.signature
    wider = opened.with_decode({"beam": 2})
    assert [each.config.decode.beam for each in (wider, opened)] == [2, 1]
    assert wider.loaded.model is opened.loaded.model
    scored, _ = score_file(opened.with_decode({"first_pass": ""}), source, out)
    assert [len(scores) for _, scores in scored] == [len(d) for d in toy_documents(2, 3)]
    assert loads == [(world.run, None)]
    must_raise("unknown decoding setting", opened.with_decode, {"beams": 2})
