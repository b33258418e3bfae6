"""Published results of the papers: every value with table, row, corpus and measurement.

One YAML file per paper, with facts only. A column is a name with the values of `Column`, in their order;
without values, the name consists of test and measure, as in "TED s-BLEU". A *row* has its name in the paper
if that is unambiguous. `recipes` lists our recipes for the same system, and `setting` the changed settings.
Values that a paper omits, or reports as a failed training without a number, are null.
"""

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Annotated, Literal

import yaml
from pydantic import BeforeValidator, Field

from cotext.runtime.sections import Closed

Text = Annotated[str, Field(min_length=1)]
Number = Annotated[float, Field(allow_inf_nan=False)]


class TestSet(Closed):
    """A test set or suite, and how to recognise it."""

    direction: Annotated[str, Field(pattern=r"^([a-z]{2}-[a-z]{2}|all)$")]
    corpus: Text
    documents: Annotated[int, Field(ge=0)] = 0
    """Number of documents of the released test set; 0 if not given. The same holds for `sentences`."""
    sentences: Annotated[int, Field(ge=0)] = 0
    suites: tuple[Text, ...] = ()
    """For results over the complete test set: names of the contrastive suites that it consists of."""


class Measure(Closed):
    """A measurement, as far as the paper describes it."""

    title: Text
    protocol: Text
    here: str = ""
    """The closest measurement of Cotext. Either a protocol of `cotext evaluate`; or `accuracy`; or
    `mean-accuracy`, the mean over suites (over distances if there is one suite). Empty: none."""
    better: Literal["higher", "lower"] = "higher"


class Column(Closed):
    """A column of a table."""

    name: Text
    test: str
    measure: str
    phenomenon: str = ""
    """For an accuracy: the group of examples that it covers, by its name in the suite."""
    distance: str = ""
    """For an accuracy: the distance, in sentences, of the word that decides (the clue). `context`: any
    earlier sentence; `any`: all known distances."""
    tag: str = ""
    """A tag and its value, such as pronoun=er."""


def _columns(written: dict[str, list[str] | None]) -> list[dict[str, str]]:
    _, *keys = Column.model_fields
    given = ((name, values or name.lower().split()) for name, values in written.items())
    return [{"name": name, **dict(zip(keys, values, strict=False))} for name, values in given]


class TableRow(Closed):
    """A row of a table; one value per column."""

    row: Text
    values: tuple[Number | None, ...]
    recipes: tuple[str, ...] = ()
    setting: str = ""


class Table(Closed):
    """A table, or only its columns with results."""

    table: Annotated[str, Field(pattern=r"^([0-9]+|[IVX]+)$")]
    note: str = ""
    columns: Annotated[tuple[Column, ...], BeforeValidator(_columns)]
    rows: tuple[TableRow, ...]


class Paper(Closed):
    """All tables of a paper; `links` maps names of rows to recipes."""

    paper: Annotated[str, Field(pattern=r"^\w+ et al\. [0-9]{4}$")]
    title: Text
    tests: dict[str, TestSet]
    measures: dict[str, Measure]
    links: dict[str, tuple[str, ...]]
    tables: tuple[Table, ...]


@dataclass(frozen=True, slots=True)
class Published:
    """One value of a table, with everything that is known about it."""

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
        """Return the table, for example "Lupo et al. 2022, table 2"."""
        return f"{self.paper}, table {self.table}"


@cache
def published_papers() -> tuple[Paper, ...]:
    """Return all recorded papers, in the order of their file names; a test checks their content."""
    root = resources.files("cotext.evaluation") / "published"
    names = sorted(item.name for item in root.iterdir() if item.name.endswith(".yaml"))
    contents = (yaml.safe_load((root / name).read_text(encoding="utf-8")) for name in names)
    return tuple(Paper.model_validate(content) for content in contents)


def published_values() -> tuple[Published, ...]:
    """Return every value of every table, including null for failed training."""
    return tuple(
        Published(
            paper=paper.paper,
            table=table.table,
            row=row.row,
            column=column.name,
            recipes=row.recipes or paper.links.get(row.row, ()),
            setting=row.setting,
            test=paper.tests[column.test],
            measure=paper.measures[column.measure],
            phenomenon=column.phenomenon,
            distance=column.distance,
            tag=column.tag,
            value=value,
        )
        for paper in published_papers()
        for table in paper.tables
        for row in table.rows
        for column, value in zip(table.columns, row.values, strict=True)
    )
