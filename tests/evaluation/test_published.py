"""The papers' tables as data: transcribed without slips, complete, linked to the recipes they stand for."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from cotext.config.recipe import load_config, recipe_names
from cotext.evaluation.published import Paper, Published, published_papers, published_values
from tests.loops import loop_over

ROMAN = ["", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI"]
# What a `paper:` line names beside rows: what training starts from has no value of its own.
# The last two are parts of a system: a language model, and a model that repairs translations.
WITHOUT_VALUES = {"mcn/final-sent", "d-lm/lm", "docrepair/repair"}


def of(paper: str, table: str, row: str) -> dict[str, float | None]:
    return {v.column: v.value for v in published_values() if (v.paper, v.table, v.row) == (paper, table, row)}


def numbers(listed: str) -> Iterator[str]:
    """The tables of a list such as "II to IV, IX and X" or "2, 3 and 5 to 7"."""
    for part in re.split(r", and |, | and ", listed):
        first, _, last = part.partition(" to ")
        if first.isdigit():
            yield from map(str, range(int(first), int(last or first) + 1))
        else:
            yield from ROMAN[ROMAN.index(first) : ROMAN.index(last or first) + 1]


def named_tables(line: str) -> set[str]:
    """The tables that a `paper:` line names, as "Lupo et al. 2022, table 1"; figures are left out."""
    found, paper = set(), ""
    number = r"(?:\d+|[IVX]+)(?: to (?:\d+|[IVX]+))?"
    pattern = rf"(\w+ et al\. \d{{4}})|tables? ({number}(?:(?:, and |, | and ){number})*)"
    for match in re.finditer(pattern, line):
        if match[1]:
            paper = match[1]
        else:
            found |= {f"{paper}, table {each}" for each in numbers(match[2])}
    return found


@loop_over("recipe", recipe_names())
def test_every_recipe_is_linked_with_the_tables_that_it_names(recipe: str) -> None:
    papers = {paper.paper for paper in published_papers()}
    named = {table for table in named_tables(load_config(recipe).paper) if table.partition(",")[0] in papers}
    linked = {v.table_title for v in published_values() if recipe in v.recipes}
    assert linked == (set() if recipe in WITHOUT_VALUES else named)


def test_accuracies_add_up_as_the_paper_says() -> None:
    """Lupo et al. 2022, appendix B.1 and the sample sizes of table 8; four cells of it do not add up."""
    rows = [v.row for v in published_values() if (v.paper, v.table) == ("Lupo et al. 2022", "8")]
    for row in dict.fromkeys(rows):
        cell = of("Lupo et al. 2022", "8", row)
        weights = {"Deixis": 2500, "Lex co.": 1500, "Ell. inf": 500, "Ell. vp": 500}
        groups = {name: cell[name] for name in weights}
        if None not in groups.values():
            total = sum(float(v or 0) * weights[n] for n, v in groups.items()) / 5000
            assert total == pytest.approx(cell["Disc. (ru)"], abs=0.03), row
            # Means of the parts are 43.67 and, of s3to3, 67.50, 70.27 and 69.18; 47.67, 66.45, 67.45 and
            # 68.45 are printed.
            if row != "base" and not row.startswith("s3to3"):
                mean = sum(float(v or 0) for v in groups.values()) / 4
                assert mean == pytest.approx(cell["Disc_avg (ru)"], abs=0.03), row
        weights = {"d=1": 7075, "d=2": 1510, "d=3": 573, "d>3": 442}
        groups = {name: cell[name] for name in weights}
        if None not in groups.values():
            total = sum(float(v or 0) * weights[n] for n, v in groups.items()) / 9600
            assert total == pytest.approx(cell["Disc. (de)"], abs=0.03), row
            every = (total * 9600 + float(cell["d=0"] or 0) * 2400) / 12000
            assert every == pytest.approx(cell["Disc_all-d (de)"], abs=0.03), row


@pytest.mark.parametrize("kind", ["s-BLEU", "d-BLEU"])
def test_means_of_three_corpora(kind: str) -> None:
    for row in ("CASA", "CASA-Latent", "CASA without CA", "CASA without SA", "CASA-Latent without CA"):
        cell = of("Yu et al. 2024", "6", row)
        mean = sum(float(cell[f"{corpus} {kind}"] or 0) for corpus in ("TED", "News", "Europarl")) / 3
        assert mean == pytest.approx(cell[f"Avg. {kind}"], abs=0.011), row


def test_the_same_system_has_the_same_value_in_other_tables() -> None:
    """But for what is printed otherwise: the tables that differ, and in how many values."""
    seen: dict[tuple[Any, ...], Published] = {}
    differ: Counter[tuple[str, str, str, str]] = Counter()
    for v in published_values():
        of_what = v.test.corpus, v.test.direction, v.measure, v.phenomenon, v.distance, v.tag
        other = seen.setdefault((v.paper, v.row, v.setting, *of_what), v)
        if other.value != v.value:
            differ[v.paper, v.row, other.table, v.table] += 1
    ours, shifted, average = "Lupo et al. 2022", "s4to4 + shift + CD", "s4to4 + shift avg-sequence + CD"
    assert differ == {
        # 73.55 and 32.37 in table 1, 73.56 and 32.45 elsewhere.
        (ours, shifted, "1", "4"): 1,
        (ours, shifted, "1", "6"): 2,
        (ours, shifted, "1", "7"): 2,
        (ours, shifted, "1", "8"): 1,
        (ours, average, "7", "8"): 1,
        ("Wu et al. 2023", "Doc2Doc", "2", "3"): 3,
    }


def test_values_read_off_the_papers() -> None:
    assert of("Lupo et al. 2022", "2", "s4to4")["d = 1"] == 68.89
    assert of("Li et al. 2022", "VI", "-cross-attn") == {"TED": 0.70, "News": 0.83, "Europarl": 33.67}
    assert of("Zheng et al. 2020", "3", "Final") == {"BLEU": 12.9, "BLEU_doc": 24.4}
    assert of("Wu et al. 2023", "7", "ABD, decoder alone")["COMET"] == -0.1123
    assert of("Yu et al. 2024", "3", "CASA")["one Avg."] == 46.01
    assert of("Wu et al. 2023", "5", "DocFlat_C, irrelevant global and local context")["BLEU"] is None
    of_row = [v for v in published_values() if (v.table, v.column) == ("VI", "TED")]
    values = {v.setting: v.value for v in of_row if "p-transformer/doc" in v.recipes}
    assert (values[""], values["model.cross.score=content"]) == (27.09, 0.70)


@loop_over("paper", published_papers())
def test_a_paper_does_not_contradict_itself(paper: Paper) -> None:
    """Every column is described, every row has a value for each, and nothing is named twice."""
    rows = {row.row for table in paper.tables for row in table.rows}
    for table in paper.tables:
        columns, names = [c.name for c in table.columns], [row.row for row in table.rows]
        assert (len(set(columns)), len(set(names))) == (len(columns), len(names)), table.table
        assert {c.test for c in table.columns} <= paper.tests.keys()
        assert {c.measure for c in table.columns} <= paper.measures.keys()
        assert {len(row.values) for row in table.rows} == {len(columns)}, table.table
    assert len({table.table for table in paper.tables}) == len(paper.tables)
    assert paper.links.keys() <= rows
    linked = [*paper.links.values(), *(row.recipes for table in paper.tables for row in table.rows)]
    assert {recipe for recipes in linked for recipe in recipes} <= set(recipe_names())
