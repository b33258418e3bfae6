"""The command `shortlist`, and runs opened with and without its table."""

import json
from dataclasses import replace
from pathlib import Path

from cotext import load
from cotext.data.shortlist import SHORTLIST, Shortlist
from cotext.data.tokenizer import load_tokenizer
from cotext.interchange.export import export_hub, export_int8
from cotext.translation.open import open_run, open_scorer, systems_of
from tests.command_line import must_refuse, succeed
from tests.refusals import must_raise
from tests.tiny_runs import run_config, toy_documents, with_section, write_run


def test_a_run_gets_a_table_and_translates_with_it(data: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", run_config(), load_tokenizer(data / "tokenizer"))
    text = ["the cat sees a dog"]
    must_raise("has no shortlist", load, run, shortlist=5)
    command = ("shortlist", run, "--data", data)
    found = json.loads(succeed(*command, "--json").out)["shortlist"]["100"]
    assert found["tokens"] > 90
    assert 0 < found["size"] <= found["vocabulary"]
    assert "of the tokens in dev references" in succeed(*command).out
    listed = load(run, shortlist=5)
    assert len(listed.translate(text)) == 1
    assert "|shortlist:5" in listed.signature
    assert "shortlist" not in load(run).signature
    for export, name in ((export_int8, "int8"), (export_hub, "hub")):
        export(run, tmp_path / name)
        assert (tmp_path / name / SHORTLIST).read_bytes() == (run / SHORTLIST).read_bytes()
    before = systems_of(open_run(run, decode={"shortlist": 5}))
    table = Shortlist.load(run / SHORTLIST, load_tokenizer(run / "tokenizer"))
    replace(table, frequent=table.frequent[:1]).save(run / SHORTLIST)
    assert systems_of(open_run(run, decode={"shortlist": 5})) != before  # an interrupted job is another now


def test_given_text_is_scored_without_a_table(data: Path, tmp_path: Path) -> None:
    config = with_section(run_config(), "decode", shortlist=5)
    run = write_run(tmp_path / "run", config, load_tokenizer(data / "tokenizer"))
    must_raise("has no shortlist", open_run, run, "cpu")
    [document] = toy_documents(1, 3)
    assert len(open_scorer(run, "cpu").translator.score([document])[0]) == len(document)
    (tmp_path / "empty").mkdir()
    must_refuse("not a run folder", "shortlist", tmp_path / "empty", "--data", tmp_path)
