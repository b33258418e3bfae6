"""`cotext attention`, `context`, `cxmi` and `profile` on the command line."""

import json
from pathlib import Path

import pytest

from cotext.data.documents import ParallelDocument
from cotext.data.formats import write_parallel
from tests.command_line import World, documents_file, listing, must_refuse, succeed
from tests.pages import Page
from tests.tiny_runs import toy_documents


def parallel(folder: Path) -> tuple[Path, Path, list[ParallelDocument]]:
    documents = [d for d in toy_documents(40, 9) if len(d.source) in (1, 4)][:6]
    source, target = folder / "d.en", folder / "d.de"
    write_parallel(source, target, documents, "docids")
    return source, target, documents


def test_maps_of_attention(world: World, tmp_path: Path) -> None:
    source, target, documents = parallel(tmp_path)
    chosen, out = next(d for d in documents if len(d.source) == 4), tmp_path / "maps"
    options = ("--target", target, "--document", chosen.id, "--out", out)
    shown = succeed("attention", world.run, source, *options).out
    names = {f"{name}.png" for name in ("encoder", "decoder", "cross")}
    assert {path.name for path in out.iterdir()} == {"attention.json", *names}
    assert all((out / name).read_bytes().startswith(b"\x89PNG\r\n\x1a\n") for name in names)
    assert all(name in shown for name in names)
    found = json.loads((out / "attention.json").read_text())
    assert (found["document"], found["target"]) == (chosen.id, "given")
    assert [s["target"] for s in found["sentences"]] == list(chosen.target)


def test_context_of_a_given_translation(world: World, tmp_path: Path) -> None:
    source, target, documents = parallel(tmp_path)
    chosen = next(d for d in documents if len(d.source) == 4)
    out = tmp_path / "page.html"
    before = listing(world.run)
    done = succeed("context", world.run, source, "--target", target, "--document", chosen.id, "--out", out)
    assert "page.html, page.json" in done.out
    assert {p.name for p in tmp_path.iterdir()} >= {"page.html", "page.json"}
    assert listing(world.run) == before
    found = json.loads((tmp_path / "page.json").read_text())
    assert (found["format"], found["document"], found["target"]) == ("cotext-context", chosen.id, "given")
    assert [s["target"] for s in found["sentences"]] == list(chosen.target)
    # Windows of two sentences: each sees the one before it, and that is all context.
    assert [[i["number"] for i in s["influences"]] for s in found["sentences"]] == [[], [1], [2], [3]]
    for sentence in found["sentences"][1:]:
        [influence] = sentence["influences"]
        assert influence["nats"] == pytest.approx(sentence["cxmi"], abs=1e-3)
        assert sentence["translated"]["without_most"] == sentence["translated"]["alone"]
    assert found["sentences"][0]["translated"] is None
    page = Page(out.read_text())
    assert {"s1", "s2", "s3", "s4"} <= {*page.ids}
    assert all(link.removeprefix("#") in page.ids for link in page.links)
    assert "prefers-color-scheme: dark" in out.read_text()
    assert "http" not in out.read_text().replace(found["signature"], "")


def test_context_of_the_runs_own_translation(world: World, tmp_path: Path) -> None:
    source = documents_file(tmp_path / "d.en", 3, 4)
    out = tmp_path / "page.html"
    succeed("context", world.run, source, "--out", out, "--set", "beam=1")
    found = json.loads((tmp_path / "page.json").read_text())
    assert found["target"] == "translation by the run"
    assert "beam:1" in found["signature"]
    succeed("translate", world.run, source, "--out", tmp_path / "d.de", "--set", "beam=1")
    first = (tmp_path / "d.de").read_text().split("\n\n")[0].splitlines()
    assert [s["target"] for s in found["sentences"]] == first
    assert "own translation" in out.read_text()


def test_text_is_shown_as_it_is(world: World, tmp_path: Path) -> None:
    path, out = tmp_path / "d.jsonl", tmp_path / "page.html"
    documents = [ParallelDocument("<b>", ("the <cat>", "", "a & dog"), ("die <katze>", "", "eine & hund"))]
    write_parallel(path, None, documents, "jsonl")
    succeed("context", world.run, path, "--target", path, "--out", out)
    Page(out.read_text())
    assert "the &lt;cat&gt;" in out.read_text()
    found = json.loads(out.with_suffix(".json").read_text())
    assert [len(s["words"]) > 0 for s in found["sentences"]] == [True, False, True]


def test_cxmi(world: World, tmp_path: Path) -> None:
    source, target, documents = parallel(tmp_path)
    out = tmp_path / "use.json"
    files = ("--source", source, "--target", target)
    shown = succeed("cxmi", world.run, *files, "--out", out).out
    found = json.loads(out.read_text())
    sentences = sum(len(d.source) for d in documents)
    assert f"{sentences - len(documents)} of {sentences} sentences have context" in shown
    for sentence in found["sentences"]:
        # One sentence of context has no other order.
        assert sentence["cxmi"]["shuffled"] == pytest.approx(sentence["cxmi"]["true"], abs=1e-4)
    assert ("|seed:1" in shown, "beam:" in shown) == (True, False)
    assert "seed:" not in succeed("cxmi", world.run, *files, "--context", "true").out
    again = succeed("cxmi", world.run, *files, "--context", "true", "--context", "random").out
    assert again.splitlines()[1].split()[:4] == shown.splitlines()[1].split()[:4]
    assert again.splitlines()[2].split()[:4] == shown.splitlines()[3].split()[:4]


def test_bad_input(world: World, tmp_path: Path) -> None:
    source, target, documents = parallel(tmp_path)
    out = tmp_path / "page.html"

    blank, single, alone, short = (tmp_path / f"{name}.jsonl" for name in ("blank", "one", "alone", "short"))
    blank.write_text('{"id": "b", "sentences": ["", ""]}\n')
    write_parallel(single, None, [ParallelDocument("a", ("the cat", "a"), ("die katze", "eine"))], "jsonl")
    pair = [ParallelDocument(name, ("the cat",), ("die katze",)) for name in "ab"]
    write_parallel(alone, None, pair, "jsonl")
    write_parallel(short, None, documents[:2], "jsonl")
    alike = tmp_path / "alike.json"
    alike.write_text('[{"src": "the", "dst": ["die", "Die"], "true_ind": 0}]')
    run, context = world.run, ("context", world.run, source, "--out")
    files = ("--source", source, "--target", target)
    attention = ("attention", run, source, "--target")
    before = listing(tmp_path)
    for page in ("page.pdf", "page.docx"):
        for command in (
            context,
            ("compare", run, "--source", source, "--reference", target, "--out"),
            ("leaderboard", target, "--reference", target, "--out"),
        ):
            must_refuse(f"{page}: ends in {page[4:]}, ", *command, tmp_path / page)
    for words, *arguments in (
        ("give the page the suffix .html", *context, tmp_path / "page.json"),
        ("page.pdf: ends in .pdf, ", "score", run, *files, "--out", tmp_path / "page.pdf"),
        ("one.jsonl", *attention, single, "--out", tmp_path / "maps"),
        ("no folder can be made", *attention, target, "--out", blank),
        ("does not exist", *context, tmp_path / "no" / "page.html"),
        ("would overwrite", *context, source),
        ("no document 'none' among its 6", *context, out, "--document", "none"),
        ("document b has no words", "context", run, blank, "--out", out),
        ("unknown decoding setting", *context, out, "--set", "width=3"),
        ("--context 'false': choose one of true, shuffled,", "cxmi", run, *files, "--context", "false"),
        ("there is only one", "cxmi", run, "--source", single),
        ("no sentence of", "cxmi", run, "--source", alone),
        ("add --generate", "contrastive", run, world.folder / "suite.json", "--set", "beam=1"),
        ("is given twice", "contrastive", run, *[world.folder / "suite.json"] * 2),
        ("differ in a word", "contrastive", run, world.folder / "suite.json", alike, "--generate"),
        ("short.jsonl", "profile", "--hypothesis", target, "--reference", short),
    ):
        must_refuse(words, *arguments)
    assert listing(tmp_path) == before
