"""The papers' tables as data, and beside measured values of the same settings, languages and tests."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cotext.config.recipe import load_config, recipe_names
from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite
from cotext.data.documents import Languages
from cotext.evaluation.metrics.interface import Score
from cotext.evaluation.published import Paper, published_papers, published_values
from cotext.evaluation.studies.compare.comparison import (
    PublishedComparison,
    compare_with_papers,
    published_for,
)
from cotext.evaluation.studies.compare.measured import MeasuredSystem
from cotext.evaluation.studies.compare.recipe import MatchedRecipe, recipe_of
from cotext.evaluation.studies.contrastive.decisions import Decisions
from tests.evaluation.test_compare import HALF, SUITE, run
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


UNKNOWN = Languages()
PLAIN = run("run", SUITE, HALF, before=3)
VOITA = ("deixis_test", "lex_cohesion_test", "ellipsis_infl", "ellipsis_vp")


def suite(name: str, kind: str, distances: Sequence[int | None], pair: str = "en-de") -> ContrastiveSuite:
    candidates, tags = (("er",), ("sie",)), {"pronoun": "er"}
    examples = tuple(
        ContrastiveExample(f"{n}", kind, distance, (f"it {n}",), candidates, 0, tags)
        for n, distance in enumerate(distances)
    )
    return ContrastiveSuite(name, *pair.split("-"), examples)


def beside(
    recipe: str,
    *suites: ContrastiveSuite,
    languages: Languages = UNKNOWN,
    scores: Sequence[Score] = (),
    size: tuple[int, int] = (0, 0),
) -> dict[tuple[str, str], PublishedComparison]:
    """What stands beside a run that decides every other example right, by table and column."""
    right = {s.name: {e.id: int(e.id) % 2 == 0 for e in s.examples} for s in suites}
    decisions = {name: Decisions(name, "", each) for name, each in right.items()}
    measured = replace(PLAIN, recipe=MatchedRecipe(recipe, ()), languages=languages, decisions=decisions)
    system = MeasuredSystem("run", (measured,))
    found = compare_with_papers([system], [scores], size, {s.name: s for s in suites})
    return {(each.published.table_title, each.published.column): each for each in found}


def test_contrapro_stands_beside_contrapro() -> None:
    found = beside("focused-concatenation/s4to4", suite("contrapro", "pronoun", [0, 1, 1, 1, 2]))
    table = "Lupo et al. 2022, table 2"
    assert found[table, "d = 1"].measured == pytest.approx(100 / 3)
    # An edition, of which distances are not known in part: what is of all its examples alone.
    edition = suite("contrapro-ctx1", "pronoun", [0, 1, 1, None])
    found = beside("docflat/doc2doc", edition)
    assert found["Wu et al. 2023, table 2", "TED Acc."].measured == 50.0
    assert found["Wu et al. 2023, table 6", "er"].measured == 50.0
    assert found["Wu et al. 2023, table 6", "sie"].measured is None
    found = beside("focused-concatenation/s4to4", edition)
    assert found[table, "d = 1"].measured is None
    # Of another language pair, whatever its name.
    found = beside("focused-concatenation/s4to4", suite("contrapro", "pronoun", [1, 1], "en-fr"))
    assert not found


def test_means_of_distances_and_all_distances() -> None:
    distances = [1, 1, 2, 2, 3, 3, 4, 4, 0, 1]
    found = beside("focused-concatenation/s4to4", suite("contrapro-original-ctx3", "pronoun", distances))
    table = "Lupo et al. 2022, table 8"
    # Every other one is right, but of distance 1 one of three; of distance 0 it is the only one.
    assert found[table, "Disc_avg (de)"].measured == pytest.approx((100 / 3 + 3 * 50) / 4)
    assert found[table, "Disc. (de)"].measured == pytest.approx(400 / 9)
    assert found[table, "Disc_all-d (de)"].measured == 50.0
    missing = suite("contrapro-original-ctx3", "pronoun", [1, 2, 3, 0])
    assert beside("focused-concatenation/s4to4", missing)[table, "Disc_avg (de)"].measured is None
    found = beside("focused-concatenation/s4to4", suite("contrapro-ctx1", "pronoun", [*distances, None]))
    assert found[table, "Disc_avg (de)"].measured is None
    assert found[table, "Disc_all-d (de)"].measured is None


def test_accuracies_over_several_suites_need_all_of_them() -> None:
    suites = [
        suite(f"voita-consistency/{name}", name.removesuffix("_test"), [1, 1], "en-ru") for name in VOITA
    ]
    table = "Lupo et al. 2022, table 1"
    found = beside("focused-concatenation/s4to4", *suites)
    assert (found[table, "Deixis"].measured, found[table, "Disc."].measured) == (50.0, 50.0)
    uneven = [suite(suites[0].name, "deixis", [1, 1, 1], "en-ru"), *suites[1:]]
    found = beside("focused-concatenation/s4to4", *uneven)
    assert found["Lupo et al. 2022, table 8", "Disc. (ru)"].measured == pytest.approx(500 / 9)
    assert found["Lupo et al. 2022, table 8", "Disc_avg (ru)"].measured == pytest.approx((200 / 3 + 150) / 4)
    found = beside("focused-concatenation/s4to4", *suites[:3])
    assert found["Lupo et al. 2022, table 8", "Disc_avg (ru)"].measured is None
    assert (found[table, "Deixis"].measured, found[table, "Disc."].measured) == (50.0, None)


def test_scores_stand_beside_those_of_the_same_test_set() -> None:
    score = Score("s-bleu", "BLEU", 25.0, "", 23, 2271, 0, {})
    column = "Li et al. 2022, table II", "TED s-BLEU"
    same = {"languages": Languages("en", "de"), "scores": [score], "size": (23, 2271)}
    assert beside("p-transformer/doc", **same)[column].measured == 25.0
    assert beside("p-transformer/doc", **same)["Li et al. 2022, table II", "News s-BLEU"].measured is None
    assert beside("p-transformer/doc", **{**same, "size": (23, 2270)})[column].measured is None
    # Unknown languages: everything is listed, and nothing stands beside it.
    unknown = beside("p-transformer/doc", **{**same, "languages": Languages()})
    assert unknown[column].measured is None
    assert ("Li et al. 2022, table II", "PDC s-BLEU") in unknown
    assert column not in beside("p-transformer/doc", **{**same, "languages": Languages("en", "ru")})


def rows(recipe: MatchedRecipe) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for value in published_for(recipe):
        found.setdefault(value.table_title, set()).add(value.row)
    return found


@loop_over("dropout", [0.1, 0.2, 0.3, 0.4, 0.5])
def test_rows_of_a_sweep_of_dropout(dropout: float) -> None:
    """Yu et al. 2024, table 8; the recipe itself has 0.3."""
    config = load_config("casa/latent", overrides=[f"model.dropout={dropout}"])
    found = rows(recipe_of(config))
    assert found["Yu et al. 2024, table 8"] == {f"dropout {dropout}"}
    assert ("Yu et al. 2024, table 2" in found) == (dropout == load_config("casa/latent").model.dropout)


def test_a_score_on_tokenised_text_needs_words() -> None:
    """What a run writes is not tokenised: split at spaces, it has another BLEU than the paper's."""
    table = ("Yu et al. 2024, table 2", "TED s-BLEU")
    plain = Score("s-bleu-tok", "s-BLEU (tok)", 12.0, "protocol:s-bleu-tok", 23, 2271, 0, {})
    split = replace(plain, value=24.0, signature=f"{plain.signature}|words:truecased-tokenised-1")
    for score, value in ((plain, None), (split, 24.0)):
        found = beside("casa/casa", languages=Languages("en", "de"), scores=[score], size=(23, 2271))
        assert found[table].measured == value


def test_a_row_with_two_settings_needs_both() -> None:
    settings = ["model.encoder.score=relative", "model.decoder.score=relative"]
    for chosen, row in ((settings, "-self-src, -self-tgt"), (settings[:1], "-self-src")):
        found = rows(recipe_of(load_config("p-transformer/doc", overrides=chosen)))
        assert found == {"Li et al. 2022, table VI": {row}}
    # What is described in words is no setting of ours.
    assert not MatchedRecipe("p-transformer/doc+sent", ()).fits("sentences as input")


def test_changes_of_a_recipe() -> None:
    changed = load_config("focused-concatenation/s4to4-cd", "tiny", ["loss.context_discount=0.5"])
    assert recipe_of(changed).changes == ("loss.context_discount=0.5",)
    # `corpus` becomes a number once training begins; where a recipe has a number, it is another.
    config = load_config("focused-concatenation/s4to4-shift-cd")
    resolved = config.model_copy(update={"model": config.model.model_copy(update={"shift": 11})})
    assert recipe_of(resolved) == MatchedRecipe("focused-concatenation/s4to4-shift-cd", ())
    other = load_config("focused-concatenation/s4to4-shift-cd-100", overrides=["model.shift=50"])
    assert recipe_of(other).changes == ("model.shift=50",)


@loop_over("name", ["focused-concatenation/s4to4-shift-cd-sequence", "mcn/final", "docflat/doc2doc-two-pass"])
def test_a_recipe_of_ones_own_is_that_which_it_extends(tmp_path: Path, name: str) -> None:
    """Whatever the line `paper` says: it is no name of a shipped recipe."""
    own = tmp_path / "own.yaml"
    for paper, size in (("", None), ("Our idea: relative positions in the encoder", "small")):
        own.write_text(f"extends: [{name}]\npaper: '{paper}'\nmodel: {{encoder: {{score: relative}}}}\n")
        assert recipe_of(load_config(str(own), size)).title == f"{name} with model.encoder.score=relative"
