"""The command `shortlist`, and runs opened with and without its table."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_runs import prepare_toy, run_config, write_run
from typer.testing import CliRunner

from cotext import load
from cotext.cli.main import app
from cotext.data.shortlist import SHORTLIST, Shortlist
from cotext.data.tokenizer import load_tokenizer
from cotext.decoding.open import open_run
from cotext.decoding.translate_file import systems_of
from cotext.interchange.int8 import export_int8
from cotext.runtime.errors import CotextError


def test_a_run_gets_a_table_and_translates_with_it(tmp_path: Path) -> None:
    data = prepare_toy(tmp_path / "data")
    run = write_run(tmp_path / "run", run_config(), load_tokenizer(data / "tokenizer"))
    text = ["the cat sees a dog"]
    with pytest.raises(CotextError, match="has no shortlist"):
        load(run, shortlist=5)
    done = CliRunner().invoke(app, ["shortlist", str(run), "--data", str(data), "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)["shortlist"]["100"]
    assert found["tokens"] > 90
    assert 0 < found["size"] <= found["vocabulary"]
    told = CliRunner().invoke(app, ["shortlist", str(run), "--data", str(data)])
    assert "of the tokens are on it" in told.output
    listed = load(run, shortlist=5)
    assert len(listed.translate(text)) == 1
    assert "|shortlist:5" in listed.signature
    assert "shortlist" not in load(run).signature
    before = systems_of(open_run(run, decode={"shortlist": 5}))
    table = Shortlist.load(run / SHORTLIST, load_tokenizer(run / "tokenizer"))
    replace(table, frequent=table.frequent[:1]).save(run / SHORTLIST)
    assert systems_of(open_run(run, decode={"shortlist": 5})) != before  # an interrupted job is another now
    export_int8(run, tmp_path / "int8")
    assert (tmp_path / "int8" / SHORTLIST).read_bytes() == (run / SHORTLIST).read_bytes()


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = CliRunner().invoke(app, ["shortlist", str(tmp_path / "empty"), "--data", str(tmp_path)])
    assert isinstance(done.exception, CotextError)
    assert "is no run folder" in str(done.exception)
