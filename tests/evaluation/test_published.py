"""The papers' tables as data: transcribed without slips, complete, linked to the recipes they stand for."""

import re
from collections.abc import Iterator

import pytest

from cotext.config.recipe import load_config, recipe_names
from cotext.evaluation.published import Paper, published_papers, published_values
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
