"""The page of the study, of made-up results: what follows from them is said, and nothing that does not."""

import json
import lzma
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.experiments.plan_data import Sampled
from benchmarks.study.comparison import Comparison
from benchmarks.study.page import (
    CONSISTENCY,
    FAILS,
    HOLDS,
    INCONCLUSIVE,
    consistency,
    main,
    orderings,
    render,
    teacher_is_good,
    verdict,
)
from benchmarks.study.parts import drawn
from cotext.data.documents import Document
from cotext.data.formats import write_documents
from cotext.evaluation.statistics.significance import Difference, SeedTest
from tests.loops import loop_over
from tests.refusals import must_raise

PART = "contrapro-ctx1-part"
EXAMPLES = 200
WORDS = ["die", "Lampe", "ist", "neu", "und", "der", "Tisch", "bleibt", "heute", "sehr", "alt"]


@loop_over(
    ("size", "p", "word"),
    [
        (2.0, 0.01, HOLDS),
        (-2.0, 0.01, FAILS),
        (2.0, 0.06, INCONCLUSIVE),
        (0.4, 0.01, INCONCLUSIVE),  # significant, but within the spread of seeds
        (-0.4, 0.01, INCONCLUSIVE),
    ],
)
def test_verdicts(size: float, p: float, word: str) -> None:
    found = Difference(size, (0, 0), p, SeedTest(0.1, 0.1, 4.0, p, (0, 0)))
    assert verdict(found, p, 0.5).word == word


class Made:
    """A folder of made-up results."""

    def __init__(self, folder: Path, teacher: float = 20.0) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.rows: dict[str, dict[str, object]] = {}
        self.add("teacher", [1], own={"s-bleu": teacher})

    def add(self, system: str, seeds: Sequence[int], **figures: dict[str, float]) -> None:
        measured = {name: {"figures": each} for name, each in figures.items()}
        self.rows[system] = {str(seed): {"measures": measured} for seed in seeds}
        (self.folder / "results.json").write_text(json.dumps({"rows": self.rows, "data": {}}))

    def place(self, system: str, seed: int) -> Path:
        place = self.folder / "measures" / f"{system}-{seed}"
        place.mkdir(parents=True, exist_ok=True)
        return place

    def decide(self, system: str, right: Sequence[int], used: bool | None = None) -> None:
        """Decisions on a suite: so many of EXAMPLES right, by seed; examples of two are of one document."""
        self.add(system, range(1, len(right) + 1))
        for seed, count in enumerate(right, 1):
            entry = {
                "decisions": {str(n): "right" if n < count else "wrong" for n in range(EXAMPLES)},
                "documents": {str(n): n // 2 for n in range(EXAMPLES)},
                "signature": "tie:wrong",
            }
            if used is not None:
                # And a group, as of a distance, that no document is of.
                entry["use_of_context"] = [{"uses_context": used}, {"uses_context": None}]
            (self.place(system, seed) / "contrapro.json").write_text(json.dumps({PART: entry}))

    def translate(self, system: str, wrong: Sequence[int]) -> None:
        """Translations of 20 documents: so many of their sentences spoilt, by seed."""
        self.add(system, range(1, len(wrong) + 1))
        texts = [" ".join(WORDS[(n // 4 + n % 4) % 5 :]) for n in range(80)]
        for seed, count in enumerate(wrong, 1):
            spoilt = ["nichts davon"] * count + texts[count:]
            for name, lines in (("own-own.source", spoilt), ("own.target", texts)):
                documents = [Document(str(d), tuple(lines[4 * d : 4 * d + 4])) for d in range(20)]
                write_documents(self.place(system, seed) / f"{name}.jsonl", documents, "jsonl")

    def verdicts(self) -> dict[str, str]:
        return {f"{o.better} > {o.worse}": v.word for o, v in orderings(Comparison(self.folder))}


def test_an_ordering_that_holds_one_that_does_not_and_one_within_the_spread(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.decide("sentence", [80, 82, 81])
    made.decide("s4to4", [100, 101, 99])
    made.decide("s4to4-shift-cd", [150, 152, 151], used=True)
    made.decide("s4to4-cd", [70, 71, 72], used=False)
    assert made.verdicts() == {
        "s4to4-shift-cd > s4to4": HOLDS,
        "s4to4-cd > s4to4": FAILS,
        "s4to4-shift-cd > sentence": HOLDS,
    }
    made.decide("s4to4-shift-cd", [60, 152, 110])  # better in the mean, within the spread of its seeds
    assert made.verdicts()["s4to4-shift-cd > s4to4"] == INCONCLUSIVE
    page = render([Comparison(tmp_path)])
    assert "| s4to4-shift-cd > s4to4 | ContraPro | Lupo et al. 2022, table 2 | **inconclusive**" in page
    # A single run beside three: it is taken to vary as they do.
    made.decide("s4to4-shift-cd", [150], used=True)
    made.decide("s4to4", [100])
    assert made.verdicts() == {
        "s4to4-shift-cd > s4to4": INCONCLUSIVE,  # two single runs
        "s4to4-cd > s4to4": FAILS,
        "s4to4-shift-cd > sentence": HOLDS,
    }


@pytest.mark.parametrize("used", [None, False])
def test_who_is_right_without_context_is_not_called_better(tmp_path: Path, used: bool | None) -> None:
    """As one that has learned nothing, and prefers the form that is right more often than the others."""
    made = Made(tmp_path)
    made.decide("sentence", [80, 82, 81])
    made.decide("s4to4-shift-cd", [150, 152, 151], used=used)
    assert made.verdicts() == {"s4to4-shift-cd > sentence": INCONCLUSIVE}
    page = render([Comparison(tmp_path)])
    assert "In ContraPro, no system is shown to be better and no system is shown to be worse" in page
    assert "In ContraPro, s4to4-shift-cd is right more often, but is not shown to use context" in page
    assert ", but s4to4-shift-cd is not shown to use context |" in page
    made.decide("s4to4-shift-cd", [20, 21, 22], used=used)  # to be worse takes no context
    assert made.verdicts() == {"s4to4-shift-cd > sentence": FAILS}


@loop_over("name", CONSISTENCY)
def test_consistency_sets_have_the_names_that_detokenising_gives_them(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.json.xz"
    group = {"src": "It is old .", "dst": ["Он .", "Она ."], "true_ind": 0, "ctx_dist": 1}
    path.write_bytes(lzma.compress(json.dumps([group]).encode()))
    made = drawn(Sampled(suite=str(path), detokenise=True))
    assert f"consistency.{made.name}" == consistency(name)


def test_orderings_of_translations(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.translate("sentence", [30, 31, 32])
    made.translate("docflat-c", [5, 6, 7])
    made.translate("mcn", [70, 71, 72])
    made.translate("g-transformer", [30, 33, 31])
    found = made.verdicts()
    assert found["docflat-c > sentence"] == HOLDS
    assert found["mcn > sentence"] == FAILS
    assert found["g-transformer > sentence"] == INCONCLUSIVE


def test_the_page_says_what_follows_and_has_its_picture(tmp_path: Path) -> None:
    made = Made(tmp_path / "made")
    made.decide("sentence", [80, 82, 81])
    made.decide("s4to4-shift-cd", [150, 152, 151], used=True)
    made.decide("s4to4", [82, 83, 81], used=False)
    content = {
        "conditions": {name: {"per_token": 0.02} for name in ("true", "shuffled", "random")},
        "sentences": [
            {"document": str(n // 2), "context": n % 2, "cxmi": {"true": 1.0, "shuffled": 0.5, "random": 0.1}}
            for n in range(40)
        ],
    }
    for seed in (1, 2, 3):
        (made.place("s4to4", seed) / "cxmi.json").write_text(json.dumps(content))
    out = tmp_path / "docs" / "study.md"
    out.parent.mkdir()
    main([str(tmp_path / "made"), "--out", str(out)])
    page = out.read_text()
    assert "## made\n" in page
    assert "| sentence | 40.50 (40.00-41.00) |" in page
    assert "| s4to4-shift-cd | **75.50 (75.00-76.00)** |" in page
    assert "| s4to4 | 41.00 (40.50-41.50) |" in page  # not bold
    assert "| s4to4-shift-cd | uses context |" in page
    assert "| s4to4 | not shown |" in page
    assert "| s4to4 | +0.0200 | +0.0200 | +0.0200 | 5e-05 |" in page
    assert "In ContraPro, s4to4-shift-cd is better and no system is shown to be worse than" in page
    assert "Of 2 orderings in the papers, 2 hold, 0 do not hold and 0 are inconclusive." in page
    assert "than foreign context does for no system, and" in page  # of means, too
    assert "Choices show use of context by s4to4-shift-cd (ContraPro)." in page
    assert (tmp_path / "docs" / "figures" / "study-made.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("bleu", [14.9, None])
def test_nothing_is_claimed_of_a_model_that_does_not_translate(bleu: float | None, tmp_path: Path) -> None:
    made = Made(tmp_path, teacher=bleu or 0.0)
    if bleu is None:
        made.add("teacher", [1])
    made.decide("sentence", [80, 82, 81])
    made.decide("s4to4-shift-cd", [150, 152, 151])
    assert set(made.verdicts().values()) == {INCONCLUSIVE}
    assert teacher_is_good(Comparison(tmp_path)).word != HOLDS
    must_raise(r"no results\.json", Comparison, tmp_path / "none")
    page = render([Comparison(tmp_path)])
    assert "No claim about documents is made here" in page
    assert "**75.50" not in page


def test_the_page_says_what_the_experiment_is_and_what_is_missing(tmp_path: Path) -> None:
    made = Made(tmp_path / "out")
    made.translate("sentence", [3])
    rows = "* **sentence**: focused-concatenation/base\n* **mcn**: mcn/final-tl, from teacher\n"
    tables = f"# A study\n\nTen minutes each.\n\n## Translation\n\n|  |\n\n## Rows\n\n{rows}"
    (tmp_path / "out" / "tables.md").write_text(tables)
    page = render([Comparison(tmp_path / "out")])
    assert "## A study\n\nTen minutes each.\n\n**Not measured yet**: mcn.\n" in page
