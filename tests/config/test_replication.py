"""docs/replication.md is what the recipes say, and nothing of the papers is left out of it."""

import re
import runpy
from pathlib import Path
from typing import Any

from cotext.config.recipe import Config, load_config, recipe_names
from cotext.evaluation.published import Paper, published_papers
from tests.loops import loop_over

ROOT = Path(__file__).resolve().parents[2]
MAKER = runpy.run_path(str(ROOT / "docs" / "make_replication.py"))
FACTS: dict[str, Any] = MAKER["facts"]()
TOLD = re.compile(
    r"((sub)?section|appendix|table|figure|equation)s? \w+.*"
    r"|authors' (scripts|configurations|code)\b.*"
    r"|default of the authors' toolkit"
    r"|[A-Z][\w-]*( et al\.| and [\w-]+) 20\d\d\b.*"
    r"|ours: .+"
)


def results(paper: str = "") -> list[dict[str, Any]]:
    return [r for p in FACTS["papers"] if paper in ("", p["paper"]) for r in p["results"]]


def configured(text: str) -> Config:
    recipe, *settings = text.split()
    return load_config(recipe, None, settings)


def source_of(recipe: str) -> dict[str, Any]:
    found = [source for source in FACTS["sources"] if recipe in MAKER["chosen"](source)]
    assert len(found) == 1, f"{recipe} stands below one of the `sources` in docs/replication.yaml"
    return found[0]


def test_the_page_is_up_to_date() -> None:
    page = ROOT / "docs" / "replication.md"
    assert page.read_text(encoding="utf-8") == MAKER["page"](), "run `make docs`"


@loop_over("recipe", recipe_names())
def test_every_value_of_a_recipe_says_where_it_is_told(recipe: str) -> None:
    settings = [*MAKER["inherited"](recipe), *MAKER["written"](recipe)]
    assert settings
    for each in settings:
        wanted = "a comment as `# section 3.2`, `# Bao et al. 2021` or `# ours: why`"
        assert TOLD.fullmatch(each.told), f"{each.key}: {each.told!r} is not {wanted}"


@loop_over("recipe", recipe_names())
def test_of_every_default_it_is_known_whether_it_is_told(recipe: str) -> None:
    source = source_of(recipe)
    if "defaults" not in source:
        return
    told = [key for keys in source["defaults"].values() for key in keys]
    assert len(told) == len(set(told))
    own = {each.key for each in (*MAKER["inherited"](recipe), *MAKER["written"](recipe))}
    needless = {"train.average"} & own  # the best alone
    missing = set(MAKER["asked"](load_config(recipe))) - own - set(told) - needless
    assert not missing


@loop_over("key", MAKER["HELD"])
@loop_over("recipe", recipe_names())
def test_a_recipe_is_what_the_table_of_protocols_says(recipe: str, key: str) -> None:
    """The tokens of an update and the like, where anything is known of the paper's settings."""
    if "defaults" in source_of(recipe):
        [row] = (row for row in FACTS["protocols"] if recipe in MAKER["chosen"](row))
        assert MAKER["HELD"][key][1](load_config(recipe)) == row[key]


@loop_over("paper", published_papers())
def test_bleu_is_of_the_same_protocols_everywhere(paper: Paper) -> None:
    """In the table of protocols, beside published values, among the commands, and on the page of metrics."""
    rows = [row for row in FACTS["protocols"] if row["paper"].startswith(paper.paper)]
    wanted = {protocol for row in rows for protocol in row["bleu"]}
    assert {each.here for each in paper.measures.values() if "bleu" in each.here} == wanted
    commands = " ".join(r.get("run", "") for r in results(paper.paper) if r.get("tables"))
    assert set(re.findall(r"--protocol (\S+bleu[\w-]*)", commands)) == wanted
    assert wanted == _protocols_of_metrics(paper.paper) - OTHER_READINGS.get(paper.paper, set())


# Where a paper does not tell whether its text is tokenised, the page names the protocol for such text, too.
OTHER_READINGS = {"Li et al. 2022": {"s-bleu-tok", "d-bleu-512-tok"}}


def _protocols_of_metrics(paper: str) -> set[str]:
    """Those of the rows that begin with a paper, or go on with it, in the table of docs/metrics.md."""
    found, name = set(), ""
    for line in (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8").splitlines():
        cells = line.split(" | ")
        if len(cells) == 4 and line.startswith("|"):
            name = cells[0].removeprefix("|").strip() or name
            if name.startswith(paper):
                found |= set(re.findall(r"`(\w-bleu[\w-]*)`", cells[2]))
    return found


def test_a_baseline_is_scored_as_the_page_of_metrics_says() -> None:
    (row,) = (row for row in FACTS["protocols"] if row["paper"] == "Bao et al. 2021")
    assert set(row["bleu"]) == _protocols_of_metrics("Bao et al. 2021")


def test_what_is_ours_has_its_reason_among_the_differences() -> None:
    differs = (each for each in FACTS["differs"] if "keys" in each)
    explained = {(source_of(each["recipe"])["source"], key) for each in differs for key in each["keys"]}
    explains = "an entry of `differs` in docs/replication.yaml with a recipe of its source"
    for recipe in recipe_names():
        for each in (each for each in MAKER["written"](recipe) if "ours" in each.told):
            key = (source_of(recipe)["source"], each.key)
            assert key in explained, f"{each.key} wants {explains}: {recipe}"


@loop_over("paper", [paper["paper"] for paper in FACTS["papers"]])
@loop_over("kind", ["tables", "figures"])
def test_every_table_and_figure_has_its_place(paper: str, kind: str) -> None:
    known = next(p[kind] for p in FACTS["papers"] if p["paper"] == paper)
    assert {number for r in results(paper) for number in r.get(kind, ())} == set(known)


def test_every_recipe_stands_for_something() -> None:
    placed = {each.split()[0] for r in results() for each in r.get("recipes", ())}
    wanted = "below a table of `papers` in docs/replication.yaml, or of a source with `no_table: true`"
    assert placed ^ MAKER["of_no_table"]() == set(recipe_names()), wanted


def test_rows_that_are_on_record_stand_in_their_tables() -> None:
    checked = 0
    for paper in published_papers():
        for table in paper.tables:
            told = [r for r in results(paper.paper) if table.table in r.get("tables", ())]
            here = [configured(each) for r in told for each in r.get("recipes", ())]
            for row in table.rows:
                for recipe in row.recipes or paper.links.get(row.row, ())[:1]:
                    wanted = configured(f"{recipe} {row.setting}" if "=" in row.setting else recipe)
                    # The large corpora of a paper have another batch size.
                    assert any(_alike(wanted, each) for each in here), (paper.paper, table.table, row.row)
                    checked += 1
    assert checked > 150


def _alike(one: Config, other: Config) -> bool:
    train = one.train.model_copy(update={"max_tokens": other.train.max_tokens})
    return one.model_copy(update={"train": train}) == other


@loop_over("paper", published_papers())
def test_every_row_of_a_table_has_a_recipe_or_a_reason(paper: Paper) -> None:
    """By its link, by a line of the page that begins with its name, or among the rows without a recipe."""
    others = next(p.get("others", ()) for p in FACTS["papers"] if p["paper"] == paper.paper)
    used = set()
    for table in paper.tables:
        with_reason = {each["row"]: each for each in others if table.table in each["tables"]}
        with_recipe = [r["what"] for r in results(paper.paper) if table.table in r.get("tables", ())]
        for row in table.rows:
            name = _system(row.row)
            reasons = [each for each in with_reason if row.row == each or name == _system(each)]
            places = [
                bool(row.recipes or row.row in paper.links),
                any(re.match(rf"{re.escape(name)}\b", what) for what in with_recipe),
                len(reasons) == 1,
            ]
            assert sum(places) == 1, (table.table, row.row, places)
            used |= {(table.table, each) for each in reasons}
    assert used == {(table, each["row"]) for each in others for table in each["tables"]}


def _system(row: str) -> str:
    """A row of another paper by that paper alone, as in "Kang et al. 2020 (CADec + DCS-pf)"."""
    paper = re.match(r"[^(]+ \d{4}\b", row)
    return paper[0] if paper else row
