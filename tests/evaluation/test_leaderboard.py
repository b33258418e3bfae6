"""`cotext leaderboard`: places and clusters, the page, and what is refused."""

import json
import random
import re
from pathlib import Path

import pytest

from cotext.data.documents import Document
from cotext.data.formats import write_documents
from cotext.data.nbest_lists import lists_beside
from cotext.evaluation.requests import LeaderboardRequest
from cotext.evaluation.statistics.significance import Difference, PairedTest
from cotext.evaluation.studies.leaderboard.measure import (
    Place,
    make_leaderboard,
    output_files,
    places,
    ranked,
)
from cotext.language_models.translator import report_of
from tests.command_line import must_refuse, succeed

PAGE = Path("page.html")
WORDS = [f"w{number}" for number in range(60)]


def compared(*pairs: tuple[str, str, float, float]) -> PairedTest:
    """Tests of (baseline, system, difference, p)."""
    tests = {(one, other): Difference(gain, (0.0, 0.0), p, None, p) for one, other, gain, p in pairs}
    return PairedTest("test:randomisation|", "document", 30, {}, tests)


def test_ranks_and_clusters_by_hand() -> None:
    """a and b beat c and d, a beats b; c and d are one: d loses against a alone by too little."""
    test = compared(
        ("a", "b", -1.0, 0.01),
        ("a", "c", -2.0, 0.01),
        ("a", "d", -3.0, 0.01),
        ("b", "c", -1.0, 0.01),
        ("b", "d", -2.0, 0.2),
        ("c", "d", -1.0, 0.9),
    )
    assert places(["a", "b", "c", "d"], test, "chrf") == [
        Place("a", 1, 1, 1),
        Place("b", 2, 3, 2),
        Place("c", 3, 4, 2),
        Place("d", 2, 4, 2),
    ]
    # Where lower is better, the same differences are the other way round.
    turned = {place.system: place.ranks for place in places(["d", "c", "b", "a"], test, "ter")}
    assert turned == {"d": "1-3", "c": "1-2", "b": "2-3", "a": "4"}
    assert places(["a", "b"], None, "chrf") == [Place("a", 1, 2, 1), Place("b", 1, 2, 1)]
    assert ranked({"a": 1.0, "b": 2.0, "c": 2.0}, "chrf") == ["b", "c", "a"]
    assert ranked({"a": 1.0, "b": 2.0}, "ter") == ["a", "b"]


def corpus(generator: random.Random) -> list[Document]:
    return [
        Document(f"d{n}", tuple(" ".join(generator.choices(WORDS, k=8)) for _ in range(1 + n % 6)))
        for n in range(24)
    ]


def garbled(documents: list[Document], rate: float, generator: random.Random) -> list[Document]:
    def wrong(sentence: str) -> str:
        return " ".join(word if generator.random() > rate else "x" for word in sentence.split())

    return [Document(d.id, tuple(map(wrong, d.sentences))) for d in documents]


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with reference.de, source.en, and systems/: two good ones, alike, and one that is poor.

    One of the good ones writes documents as one line each.
    """
    folder, generator = tmp_path_factory.mktemp("board"), random.Random(6)
    (folder / "systems").mkdir()
    reference = corpus(generator)
    source = [Document(d.id, tuple(s.replace("w", "q") for s in d.sentences)) for d in reference]
    write_documents(folder / "reference.de", reference, "text")
    write_documents(folder / "source.en", source, "text")
    write_documents(folder / "systems" / "good.jsonl", garbled(reference, 0.1, generator), "jsonl")
    in_lines = [Document(d.id, (" ".join(d.sentences),)) for d in garbled(reference, 0.1, generator)]
    write_documents(folder / "systems" / "lines.jsonl", in_lines, "jsonl")
    write_documents(folder / "systems" / "poor.de", garbled(reference, 0.4, generator), "text")
    return folder


def command(folder: Path, *more: str | Path) -> list[str | Path]:
    places = ["--reference", folder / "reference.de", "--out", folder / "systems" / "page.html"]
    return ["leaderboard", folder / "systems", *places, "--samples", "500", *more]


def test_the_page_and_the_figures(board: Path) -> None:
    options = ["--source", board / "source.en", "--protocol", "chrf", "--protocol", "d-bleu"]
    told = json.loads(succeed(*command(board), *options, "--json").out)
    assert {place["system"] for place in told["places"][:2]} == {"good.jsonl", "lines.jsonl"}
    ranks = [(p["first"], p["last"], p["cluster"]) for p in told["places"]]
    assert ranks == [(1, 2, 1), (1, 2, 1), (3, 3, 2)]
    by_name = {entry["name"]: entry for entry in told["systems"]}
    assert by_name["lines.jsonl"]["alignment"]["realigned_documents"] == 20
    assert by_name["good.jsonl"]["alignment"]["realigned_documents"] == 0
    for entry in told["systems"]:
        low, high = entry["scores"][0]["interval_95"]
        assert low < entry["scores"][0]["value"] < high
    page = (board / "systems" / "page.html").read_text(encoding="utf-8")
    assert not re.search(r"<script|(?:src|href)=\"http", page)
    assert re.search(r">3</th><th[^>]*>2</th><th[^>]*>poor.de</th>", page)
    assert "realign:least-edits-13a-lc-20-of-24" in page
    tests = page.partition("<h2>Every difference, tested</h2>")[2].partition("<h2>")[0]
    assert tests.count('<span class="interval">p ') == 3  # pairs
    # The page lies among the outputs, and is none of them; the same command gives the same page.
    succeed(*command(board), *options)
    assert (board / "systems" / "page.html").read_text(encoding="utf-8") == page


def test_the_terminal_and_names_of_harm(board: Path, tmp_path: Path) -> None:
    shown = succeed(*command(board), "--rank-by", "s-bleu").out.splitlines()
    assert shown[0].split() == ["rank", "cluster", "s-BLEU", "d-BLEU", "chrF", "omitted", "added"]
    assert shown[3].split()[:3] == ["3", "2", "poor.de"]
    assert shown[-1].endswith("page.html")
    evil, out = tmp_path / "<img src=x onerror=alert(1)>$\\frac$.de", tmp_path / "page.html"
    evil.write_bytes((board / "systems" / "poor.de").read_bytes())
    to = ("--reference", board / "reference.de", "--out", out)
    succeed("leaderboard", evil, *to)
    page = out.read_text(encoding="utf-8")
    assert "<img" not in page
    assert "only one system: differences cannot be tested for significance" in page
    succeed("leaderboard", evil, board / "systems" / "poor.de", *to)
    assert re.findall(r"[+-]0\.00", out.read_text(encoding="utf-8")) == ["+0.00"]


def test_one_document_has_no_tests(tmp_path: Path) -> None:
    for name, text in (("r", "a b c d\ne f g h\n"), ("x", "a b c\ne f g h\n"), ("y", "a b c d\n")):
        (tmp_path / name).write_text(text)
    systems = (tmp_path / "x", tmp_path / "y")
    found = make_leaderboard(LeaderboardRequest(out=PAGE, systems=systems, reference=(tmp_path / "r",)))
    assert found.test is None
    assert [place.ranks for place in found.places] == ["1-2", "1-2"]
    assert found.systems[0].intervals_95 == (None, None, None)
    assert found.notes == ("only one document: differences cannot be tested for significance",)


def test_what_can_find_nothing_says_so(tmp_path: Path) -> None:
    """Of 15 pairs, three documents and a hundred samples can tell none apart."""
    text = "a b c d\n\ne f g h\n\ni j k l\n"
    paths = [tmp_path / f"{number}.de" for number in range(6)]
    for number, path in enumerate(paths):
        path.write_text(text.replace("b", f"b{number}"))
    given = {"systems": tuple(paths), "reference": (paths[0],), "protocol": ("chrf",), "samples": 100}
    found = make_leaderboard(LeaderboardRequest(out=PAGE, **given))
    assert {place.ranks for place in found.places} == {"1-6"}
    assert found.notes == (
        "3 documents are too few: no difference can be significant (tests: 15)",
        "100 samples are too few for 15 tests; remove --samples, or use more",
    )


def test_what_is_refused_and_outputs_that_stay(board: Path, tmp_path: Path) -> None:
    measured = "--rank-by comet: is not measured; the measured scores are s-bleu, d-bleu, chrf"
    missing = ("leaderboard", tmp_path / "missing.de", "--reference", tmp_path / "missing.de", "--out", PAGE)
    # Refused before files are read, and long before COMET has scored them.
    must_refuse(measured, *missing, "--rank-by", "comet")
    must_refuse("unknown protocol 'bleurt'", *missing, "--protocol", "bleurt")
    (tmp_path / "empty").mkdir()
    options = ("--reference", board / "reference.de", "--out", tmp_path / "p.html")
    must_refuse("contains no outputs of systems", "leaderboard", tmp_path / "empty", *options)
    # Only what is called a page is left out of a folder as one.
    taken = board / "systems" / "poor.de"
    before = taken.read_bytes()
    must_refuse("poor.de", *command(board), "--out", taken)
    assert taken.read_bytes() == before
    request = LeaderboardRequest(out=PAGE, systems=(board / "systems",), reference=())
    before = output_files(request)
    beside = [named(board / "systems" / "poor.de") for named in (report_of, lists_beside)]
    beside.append(board / "systems" / "older.HTML")
    for path in beside:
        path.write_text("{}")
    assert output_files(request) == before
    for path in beside:
        path.unlink()
