"""Tables of pages with more columns than a text column holds: they can be scrolled, or are split."""

from collections.abc import Mapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from random import Random

import pytest

from cotext.evaluation.studies.compare.comparison import compare_runs
from cotext.evaluation.studies.compare.measured import MeasuredRun
from cotext.evaluation.studies.compare.recipe import MatchedRecipe
from cotext.evaluation.studies.compare.report import render_comparison
from cotext.evaluation.studies.compare.system import MeasuredSystem
from cotext.evaluation.studies.context import page as context_page
from cotext.evaluation.studies.context.context_of_document import (
    ContextInfluence,
    DocumentContextUse,
    SentenceContextUse,
    WordChange,
)
from tests.command_line import succeed
from tests.evaluation import test_bilingual
from tests.evaluation.test_compare import DRAWS, of_test_set, run, suite

SUITES = [suite(name, {0: 20, 1: 40, 2: 40, 3: 40}) for name in ("controlled/pronoun", "contrapro")]
HALF = {0: 20, 1: 20, 2: 20, 3: 20}
SENTENCES = 24  # the most that the map of `cotext context` has
SYSTEMS = 14


def seeing(title: str, recipe: str, before: int, right: int) -> MeasuredSystem:
    """A system that decides so many examples right where their clue is in context, half of them without."""
    runs: list[MeasuredRun] = []
    for each in SUITES:
        counts = {0: 20, 1: right, 2: right, 3: 20}
        use = of_test_set([1.0 + n / 10 for n in range(8)], [0.0] * 8) if before else None
        matched = MatchedRecipe(recipe, ())
        runs.append(run(title, each, counts, before, use, matched, alone=HALF, foreign=HALF))
    decisions = {name: each for one in runs for name, each in one.decisions.items()}
    return MeasuredSystem(title, runs[0].path, (replace(runs[0], decisions=decisions),))


def compare_page() -> str:
    systems = [
        seeing("focused-concatenation-base", "focused-concatenation/base", 0, 20),
        seeing("s4to4", "focused-concatenation/s4to4", 3, 38),
        seeing("s4to4+shift+CD", "focused-concatenation/s4to4-shift-cd", 3, 39),
        seeing("p-transformer-doc2doc", "p-transformer/doc2doc", 3, 36),
    ]
    suites = {each.name: each for each in SUITES}
    return render_comparison(compare_runs(systems, None, suites, protocols=["s-bleu"], resampling=DRAWS))


def context_page_of_many_sentences() -> str:
    words = tuple(WordChange(text, -1.25) for text in ("Donaudampfschifffahrtsgesellschaft", "war", "alt"))
    numbers = range(1, SENTENCES + 1)
    sentences = (
        SentenceContextUse(
            n, "It was old.", "Sie war alt.", 1.25, words,
            tuple(ContextInfluence(other, 1.25, 12.5, words) for other in numbers if other != n), None,
        )
        for n in numbers
    )  # fmt: skip
    return context_page.render_page(DocumentContextUse("view:window", "d", True, tuple(sentences)))


def bilingual_page() -> str:
    long = {"source": f"See https://example.org/{'x' * 90}.", "terms": ("x" * 90,)}
    return test_bilingual.page_of([test_bilingual.sentence(n, **long) for n in range(3)])[0]


def leaderboard_page(folder: Path) -> str:
    """Of systems that garble more and more words of a reference."""
    random, outputs = Random(1), folder / "systems"
    outputs.mkdir()
    documents = [[[str(random.randrange(50)) for _ in range(8)] for _ in range(3)] for _ in range(12)]

    def write(path: Path, share: float) -> None:
        garbled = [
            "\n".join(
                " ".join("?" if random.random() < share else word for word in each) for each in document
            )
            for document in documents
        ]
        path.write_text("\n\n".join(garbled) + "\n", encoding="utf-8")

    write(folder / "reference.de", 0)
    for number in range(SYSTEMS):
        write(outputs / f"a-long-name-of-a-system-{number}.de", 0.04 * number)
    page = folder / "leaderboard.html"
    succeed(
        "leaderboard", outputs, "--reference", folder / "reference.de", "--out", page, "--samples", "100"
    )  # fmt: skip
    return page.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """A page of each kind, with as many columns as are usual."""
    folder = tmp_path_factory.mktemp("pages")
    return {
        "compare": compare_page(),
        "leaderboard": leaderboard_page(folder),
        "context": context_page_of_many_sentences(),
        "bilingual": bilingual_page(),
    }


class Tables(HTMLParser):
    """For every table the class of the element around it, and how many columns its head has."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.around: list[str] = []
        self.columns: list[int] = []
        self._last, self._in_head = "", False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.around.append(self._last)
            self.columns.append(0)
        self._in_head = tag == "thead" or (self._in_head and tag != "tbody")
        self.columns[-1:] = [count + (self._in_head and tag in ("th", "td")) for count in self.columns[-1:]]
        self._last = dict(attrs).get("class") or tag


def test_every_table_stands_in_a_box_that_can_be_scrolled(pages: Mapping[str, str]) -> None:
    around = {name: Tables(page).around for name, page in pages.items()}
    # The columns of the bilingual page are given, and its words are broken.
    assert len(around.pop("bilingual")) == 1
    assert {name: set(each) for name, each in around.items()} == {name: {"wide"} for name in around}


def test_differences_of_many_systems_are_split_into_tables(pages: Mapping[str, str]) -> None:
    _, _, tests = pages["leaderboard"].partition("<h2>Every difference, tested</h2>")
    tests, _, _ = tests.partition("<h2>")
    assert Tables(tests).columns == [11, 4]
    # One difference for each pair.
    assert tests.count('<span class="interval">p ') == SYSTEMS * (SYSTEMS - 1) // 2
