"""Published results of the papers: every value with table, row, corpus and measurement.

One YAML file a paper, facts alone. A *row* is named as in the paper as far as that is unambiguous; `recipes`
names ours for the same system, `setting` what has to be changed in it. Values that a paper leaves out, or
reports as a failed training without a number, are null.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Annotated, Literal

import yaml
from pydantic import Field

from cotext.config.fields import Closed

Text = Annotated[str, Field(min_length=1)]
Number = Annotated[float, Field(allow_inf_nan=False)]


class TestSet(Closed):
    """A test set or suite, and how to recognise it."""

    direction: Annotated[str, Field(pattern=r"^([a-z]{2}-[a-z]{2}|all)$")]
    corpus: Text
    documents: Annotated[int, Field(ge=0)] = 0
    """Of a test set, as it is released; 0: not given, here as below."""
    sentences: Annotated[int, Field(ge=0)] = 0
    suites: tuple[Text, ...] = ()
    """Contrastive suites by the names that they are read under, all that figures over the whole are of."""


class Measure(Closed):
    """A measurement, as far as the paper describes it."""

    title: Text
    protocol: Text
    here: str = ""
    """What comes closest among ours: a protocol of `cotext evaluate`, `accuracy`, or `mean-accuracy`: every
    suite, or of one every distance, counts the same; empty: nothing."""
    better: Literal["higher", "lower"] = "higher"


class Column(Closed):
    """A column of a table."""

    name: Text
    test: str
    measure: str
    phenomenon: str = ""
    """Of an accuracy: the group that it is of, as suites name it."""
    distance: str = ""
    """The bucket of the distance; `context`: all where the clue is in an earlier sentence; `any`: all, if
    they are known."""
    tag: str = ""
    """As in pronoun=er."""


class TableRow(Closed):
    """A row of a table; one value a column."""

    row: Text
    values: tuple[Number | None, ...]
    recipes: tuple[str, ...] = ()
    setting: str = ""


class Table(Closed):
    """A table, or the columns of it that hold figures."""

    table: Annotated[str, Field(pattern=r"^([0-9]+|[IVX]+)$")]
    note: str = ""
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]


class Paper(Closed):
    """All tables of a paper; `links` names the recipes of rows wherever they occur."""

    paper: Annotated[str, Field(pattern=r"^\w+ et al\. [0-9]{4}$")]
    title: Text
    tests: dict[str, TestSet]
    measures: dict[str, Measure]
    links: dict[str, tuple[str, ...]]
    tables: tuple[Table, ...]


@dataclass(frozen=True, slots=True)
class Published:
    """One value of a table, with all that is known of it."""

    paper: str
    table: str
    row: str
    column: str
    recipes: tuple[str, ...]
    setting: str
    test: TestSet
    measure: Measure
    phenomenon: str
    distance: str
    tag: str
    value: float | None

    @property
    def table_title(self) -> str:
        """The table, as in "Lupo et al. 2022, table 2"."""
        return f"{self.paper}, table {self.table}"


@cache
def published_papers() -> tuple[Paper, ...]:
    """All papers that are on record, by name of their files; a test checks their content."""
    root = resources.files("cotext.evaluation") / "published"
    names = sorted(item.name for item in root.iterdir() if item.name.endswith(".yaml"))
    contents = (yaml.safe_load((root / name).read_text(encoding="utf-8")) for name in names)
    return tuple(Paper.model_validate(content) for content in contents)


def published_values() -> tuple[Published, ...]:
    """Every value of every table, null ones included: a failed training is a fact too."""
    return tuple(value for paper in published_papers() for value in _values(paper))


def _values(paper: Paper) -> Iterable[Published]:
    for table in paper.tables:
        for row in table.rows:
            recipes = row.recipes or paper.links.get(row.row, ())
            for column, value in zip(table.columns, row.values, strict=True):
                yield Published(
                    paper=paper.paper,
                    table=table.table,
                    row=row.row,
                    column=column.name,
                    recipes=recipes,
                    setting=row.setting,
                    test=paper.tests[column.test],
                    measure=paper.measures[column.measure],
                    phenomenon=column.phenomenon,
                    distance=column.distance,
                    tag=column.tag,
                    value=value,
                )
