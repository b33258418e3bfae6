"""Campaigns for Pearmut: what annotators see, which documents are drawn, what is refused."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from command_line import cotext, succeed

from cotext.data.documents import Document
from cotext.data.languages import Languages
from cotext.reports.pearmut import Sampling, campaign
from cotext.runtime.errors import CotextError

SOURCE = [Document(f"d{n}", tuple(f"s{n}.{m}" for m in range(n % 3 + 1))) for n in range(30)]


def translated(word: str) -> list[Document]:
    return [Document(d.id, tuple(f"{word} {s}" for s in d.sentences)) for d in SOURCE]


def test_a_campaign_by_hand() -> None:
    made = campaign("x", SOURCE[:2], {"a b": translated("a")[:2], "c": translated("c")[:2]}, Sampling())
    assert made["info"] == {
        "assignment": "single-stream",
        "protocol": "cESA",
        "users": 1,
        "shuffle": True,
        "seed": 1,
    }
    assert made["data"] == [
        [{"item_id": "d0_#_0", "src": "s0.0", "tgt": {"a b": "a s0.0", "c": "c s0.0"}}],
        [
            {"item_id": "d1_#_0", "src": "s1.0", "tgt": {"a b": "a s1.0", "c": "c s1.0"}},
            {"item_id": "d1_#_1", "src": "s1.1", "tgt": {"a b": "a s1.1", "c": "c s1.1"}},
        ],
    ]
    assert {**made["cotext"], "version": ""} == {
        "version": "",
        "documents": 2,
        "of": 2,
        "items": 3,
        "seed": 1,
    }
    alone = campaign("x", SOURCE, {"a": translated("a")}, Sampling(), Languages("en", "de"))
    assert alone["info"]["protocol"] == "ESA"
    assert alone["data"][1][0]["instructions"] == "Evaluate translation from en to de."
    assert "instructions" not in alone["data"][1][1]


def test_documents_are_drawn_with_the_seed_and_stay_whole_and_in_order() -> None:
    systems = {"a": translated("a")}
    drawn = [campaign("x", SOURCE, systems, Sampling(8, seed)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1]
    ids = [[document[0]["item_id"] for document in made["data"]] for made in drawn]
    assert ids[0] != ids[2]
    for each in ids:
        numbers = [int(name.removesuffix("_#_0")[1:]) for name in each]
        assert len(set(numbers)) == 8
        assert numbers == sorted(numbers)
    for document in drawn[0]["data"]:
        assert len(document) == len(SOURCE[int(document[0]["item_id"].split("_")[0][1:])])


def test_a_text_that_would_be_shown_as_a_picture_stays_text() -> None:
    one = [Document("d", ("<img src=x onerror=alert(1)> and <b>",))]
    [[item]] = campaign("x", one, {"a": one}, Sampling())["data"]
    assert item["src"] == item["tgt"]["a"] == " <img src=x onerror=alert(1)> and <b>"


@pytest.mark.parametrize(
    ("systems", "sampling", "said"),
    [
        ({"2024": SOURCE}, Sampling(), "'2024': no name for Pearmut"),
        ({'a"b': SOURCE}, Sampling(), "no name for Pearmut"),
        ({"a": SOURCE}, Sampling(31), "there are 30 documents"),
        ({"a": SOURCE[:-1]}, Sampling(), "a: its documents do not fit the source"),
    ],
)
def test_what_is_refused(systems: dict[str, list[Document]], sampling: Sampling, said: str) -> None:
    with pytest.raises(CotextError, match=said):
        campaign("x", SOURCE, systems, sampling)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, word in (("s.en", ""), ("a.de", "Ein "), ("b.de", "Der ")):
        lines = (f"{word}Satz {n}.\n{word}Ende.\n\n" for n in range(5))
        (tmp_path / name).write_text("".join(lines), encoding="utf-8")
    return tmp_path


def given(files: Path) -> list[str | Path]:
    hypotheses = ["--hypothesis", files / "a.de", "--hypothesis", files / "b.de"]
    return ["evaluate", *hypotheses, "--reference", files / "a.de", "--source", files / "s.en"]


def test_from_files_of_any_system(files: Path) -> None:
    out = files / "camp.json"
    options = [
        "--pearmut",
        out,
        "--pearmut-documents",
        "2",
        "--pearmut-seed",
        "7",
        "--pearmut-annotators",
        "3",
    ]
    shown = succeed(*given(files), *options)
    assert "camp.json: 2 of 5 documents (seed 7), 4 items, protocol cESA" in shown.err
    made = json.loads(out.read_text(encoding="utf-8"))
    assert (made["campaign_id"], made["info"]["users"], len(made["data"])) == ("camp", 3, 2)
    assert set(made["data"][0][0]["tgt"]) == {"a.de", "b.de"}


def test_what_the_command_refuses_leaves_no_file(files: Path) -> None:
    out = files / "camp.json"
    for options, said in (
        (["--pearmut", out, "--pearmut-documents", "6"], "there are 5 documents"),
        (["--pearmut", files / "s.en"], "would overwrite what is read from"),
        (["--pearmut-seed", "0"], "describe --pearmut FILE"),
    ):
        refused = cotext(*given(files), *options)
        assert (refused.code, said in refused.err) == (2, True), refused.err
    without = cotext(*given(files)[:-2], "--pearmut", out)
    assert (without.code, "give it by --source" in without.err) == (2, True)
    assert not out.exists()


@pytest.mark.outside
def test_pearmut_loads_it(files: Path) -> None:
    program = os.environ.get("COTEXT_PEARMUT") or shutil.which("pearmut")
    if program is None:
        pytest.skip("no pearmut (COTEXT_PEARMUT: where it is)")
    succeed(*given(files), "--pearmut", files / "camp.json")
    (files / "root").mkdir()
    done = subprocess.run(
        [program, "add", files / "camp.json"],
        env={**os.environ, "PEARMUT_ROOT": str(files / "root")},
        cwd=files / "root",
        capture_output=True,
        text=True,
        check=False,
    )
    assert "campaign_id=camp" in done.stdout, done.stdout + done.stderr
    kept = json.loads(next((files / "root").rglob("campaigns/camp.json")).read_text(encoding="utf-8"))
    assert len(kept["data"]) == 5
