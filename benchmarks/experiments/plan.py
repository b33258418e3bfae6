"""Experiments as closed, typed models, read from YAML: data, rows, measures, tables.

`${name}` stands for a variable of the file, which `--set name=value` changes. In the arguments of measures
`{run}` is the run folder of the row, `{data}` its data, `{out}` the file for figures, `{measures}` the folder
of it and of all others of the row, `{runs[ROW]}` the run folder of another row, `{data[NAME]}` other data.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator

from benchmarks.experiments.plan_data import Data, Name, Settings, require_one
from benchmarks.experiments.plan_told import Curves, Table
from cotext.config.fields import Closed, PositiveInt, Seed
from cotext.config.recipe import Config, load_config
from cotext.models.unused import refuse_unused
from cotext.runtime.errors import CotextError, nearest, shown
from cotext.runtime.reading import parse_yaml, read_text

OTHER_RUN = re.compile(r"\{runs\[([^\]]*)\]\}")
OTHER_DATA = re.compile(r"\{data\[([^\]]*)\]\}")
PLACEHOLDERS = re.compile(r"\{(run|data|out|measures|(?:runs|data)\[[^\]]*\])\}")


class Contrastive(Closed):
    """Accuracy on contrastive suites."""

    suites: tuple[str, ...] = ("{data}/contrastive",)
    """Files, and folders of which all JSON files are taken."""
    controls: bool = False
    """Without context and in foreign context, too."""
    context: str = "true"
    """Context of the candidates, as of `cotext contrastive --context`."""
    settings: Settings = Field(default={})
    """Of scoring, as in `group_windows: 4`."""
    checkpoints: bool = False
    """Of every checkpoint that is left, too: figures end in `.at.UPDATE`. `SUITE.since` is the first update
    with at least 90 % one to three sentences back."""


class Translation(Closed):
    """BLEU and other scores of translated documents."""

    source: str
    """Documents."""
    reference: str
    """Their translation."""
    protocols: tuple[str, ...] = ("s-bleu", "d-bleu")
    """As in docs/metrics.md."""
    target_language: str = ""
    """For the tokens of a score, as `zh`; needed where sentences have no spaces."""
    discourse: str = ""
    """File of marked words, for figures `tc`, `cp`, `pt` and `tcp`."""
    comet: str = ""
    """COMET model, for a figure `comet`; none where there is no name, or no environment that runs it, which
    the page of tables says."""
    documents: PositiveInt | None = None
    """So many from the beginning; all of them if not given."""
    single_sentences: bool = False
    """Every sentence as a document of its own."""
    settings: Settings = Field(default={})
    """Of decoding, as in `beam: 1`."""
    checkpoints: bool = False
    """Of every checkpoint that is left, too: figures end in `.at.UPDATE`."""


class Cxmi(Closed):
    """What context adds to the log-probability of the reference: true, shuffled and of other documents."""

    source: str
    """Documents."""
    reference: str
    """Their translation."""
    documents: PositiveInt | None = None
    """So many from the beginning; all of them if not given."""


class Measure(Closed):
    """What is measured of a trained row: exactly one of the keys."""

    training: bool | None = None
    """Losses, BLEU and speed as training has written them; figures as `bleu` and `bleu.at.250`."""
    contrastive: Contrastive | None = None
    """Figures as `pronoun`, `pronoun.1`, `pronoun.elsewhere`, and `elsewhere` over all suites."""
    translation: Translation | None = None
    """Figures by protocol, as `d-bleu`; with `align: free`, `recovered`: whole pieces, in per cent."""
    cxmi: Cxmi | None = None
    """Figures as `true.per_token` and `random.share_above`, in nats; of systems that have context."""
    cotext: tuple[str, ...] | None = None
    """Any other command; figures are the numbers in `{out}`, where it writes JSON there, by dotted keys."""
    python: tuple[str, ...] | None = None
    """A module with its arguments, likewise."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        require_one(self)
        return self

    def other_rows(self) -> set[str]:
        """Rows whose runs it takes beside the measured one."""
        return set(OTHER_RUN.findall(self.model_dump_json()))

    def other_data(self) -> set[str]:
        """Names of data that it takes beside that of the measured row."""
        return set(OTHER_DATA.findall(self.model_dump_json()))


class Row(Closed):
    """A system: trained (`recipe`), or another row with settings changed that have no weights (`changed`)."""

    recipe: str | None = None
    """A shipped recipe, or a YAML file."""
    changed: str | None = None
    """Row, whose weights are taken."""
    size: str | None = None
    """That of the experiment if not given."""
    settings: Settings = Field(default={})
    """Laid over those of the experiment."""
    init: str | None = None
    """Row that training starts from."""
    data: str | None = None
    """The first of the experiment if not given."""
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] | None = None
    """Those of the experiment if not given."""
    measures: tuple[str, ...] | None = None
    """All of the experiment if not given."""
    value: float = 0.0
    """Rows of a higher value come first, but never before a row that they need."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.recipe is None) == (self.changed is None):
            raise ValueError("give either recipe or changed")
        if self.changed is not None and self.init is not None:
            raise ValueError("init is for a row that is trained; changed has the weights of its row")
        return self


class Experiment(Closed):
    """What is trained, measured and told."""

    title: str
    """Of the page of tables."""
    about: str = ""
    """Under the title: what is asked, and what is the same for all."""
    variables: Settings = Field(default={})
    """By name; `${name}` in the rest of the file stands for the value."""
    size: str | None = None
    """Of all recipes; none: as they are written."""
    settings: Settings = Field(default={})
    """Of every training."""
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (1,)
    """Every row is trained with each."""
    data: Annotated[dict[Name, Data], Field(min_length=1)]
    """By name."""
    rows: Annotated[dict[Name, Row], Field(min_length=1)]
    """By name."""
    measures: dict[Name, Measure] = Field(default={})
    """By name."""
    tables: tuple[Table, ...] = ()
    """Written after every row."""
    figures: tuple[Curves, ...] = ()
    """Drawn after every row, of what is there."""

    @model_validator(mode="after")
    def _known(self) -> Self:
        for name, row in self.rows.items():
            named: tuple[tuple[str, str | None, Iterable[str]], ...] = (
                ("init", row.init, self.rows),
                ("changed", row.changed, self.rows),
                ("data", row.data, self.data),
                *(("measures", each, self.measures) for each in row.measures or ()),
                *(("measures", each, self.rows) for each in self.other_rows(name)),
                *(("measures", each, self.data) for each in self.all_data(name)),
            )
            for key, value, known in named:
                require_known(f"rows.{name}.{key}", value, known)
        for name, data in self.data.items():
            if data.distilled is not None:
                require_known(f"data.{name}.distilled.teacher", data.distilled.teacher, self.rows)
            require_known(f"data.{name}", data.other, self.data)
        for name in self.data:
            self._require_made(name, ())
        for table in self.tables:
            for row_name in table.rows or ():
                require_known(f"tables, {table.title}", row_name, self.rows)
            for figure in table.columns.values():
                require_known(f"tables, {table.title}", figure.split(".")[0], self.measures)
        for curves in self.figures:
            for row_name in sorted(curves.rows()):
                require_known(f"figures, {curves.title}", row_name, self.rows)
            for figure in curves.panels.values():
                require_known(f"figures, {curves.title}", figure.split(".")[0], self.measures)
        for name in self.rows:
            self._require_end(name, ())
        return self

    def _require_end(self, name: str, behind: tuple[str, ...]) -> None:
        if name in behind:
            raise ValueError(f"rows wait for each other: {' -> '.join([*behind, name])}")
        for other in self.needs(name):
            self._require_end(other, (*behind, name))

    def _require_made(self, name: str, behind: tuple[str, ...]) -> None:
        if name in behind:
            raise ValueError(f"data wait for each other: {' -> '.join([*behind, name])}")
        if (other := self.data[name].other) is not None:
            self._require_made(other, (*behind, name))

    def data_of(self, name: str) -> str:
        """Name of the data of a row."""
        row = self.rows[name]
        if row.changed is not None and row.data is None:
            return self.data_of(row.changed)
        return row.data or next(iter(self.data))

    def measures_of(self, name: str) -> dict[str, Measure]:
        """What is measured of a row."""
        chosen = self.rows[name].measures
        return {key: self.measures[key] for key in (self.measures if chosen is None else chosen)}

    def other_rows(self, name: str) -> set[str]:
        """Rows whose runs the measures of a row take."""
        return set().union(*(measure.other_rows() for measure in self._measured(name))) - {name}

    def all_data(self, name: str) -> set[str]:
        """Names of the data that a row learns from, and of those that its measures take."""
        return {self.data_of(name)}.union(*(measure.other_data() for measure in self._measured(name)))

    def _measured(self, name: str) -> list[Measure]:
        asked = self.rows[name].measures
        return [measure for key, measure in self.measures.items() if asked is None or key in asked]

    def needs(self, name: str) -> set[str]:
        """Rows that must be trained before a row can be trained and measured."""
        row = self.rows[name]
        found = {each for each in (row.init, row.changed) if each is not None} | self.other_rows(name)
        for other in self.all_data(name) if name not in found else ():
            data: Data | None = self.data[other]
            while data is not None:
                found |= set() if data.distilled is None else {data.distilled.teacher}
                data = None if data.other is None else self.data[data.other]
        return found

    def settings_of(self, name: str, seed: int) -> list[str]:
        """Overrides of a row, as the command line takes them."""
        row = self.rows[name]
        laid = dict(row.settings) if row.changed is not None else {**self.settings, **row.settings}
        if row.recipe is not None:
            laid["train.seed"] = seed
        return [f"{key}={json.dumps(value)}" for key, value in laid.items()]

    def seeds_of(self, name: str) -> tuple[int, ...]:
        """Seeds of a row."""
        row = self.rows[name]
        if row.seeds is None and row.changed is not None:
            return self.seeds_of(row.changed)
        return row.seeds or self.seeds

    def seed_of(self, name: str, seed: int) -> int:
        """The seed whose run of a row goes with a seed of another: the same, or else the row's first."""
        seeds = self.seeds_of(name)
        return seed if seed in seeds else seeds[0]

    def in_order(self, chosen: Sequence[str] = ()) -> list[tuple[str, int]]:
        """Rows and seeds, the most valuable first; with those that they need, which come before them."""
        units = [(name, seed) for name in chosen or self.rows for seed in self.seeds_of(name)]
        units.sort(key=lambda unit: (-self.rows[unit[0]].value, self.seeds_of(unit[0]).index(unit[1])))
        ordered: list[tuple[str, int]] = []
        for unit in units:
            self._after_needed(unit, ordered)
        return ordered

    def _after_needed(self, unit: tuple[str, int], ordered: list[tuple[str, int]]) -> None:
        for other in self.needed_units(unit):
            self._after_needed(other, ordered)
        if unit not in ordered:
            ordered.append(unit)

    def needed_units(self, unit: tuple[str, int]) -> list[tuple[str, int]]:
        """Rows with their seeds that a row with its seed has to wait for."""
        return [(other, self.seed_of(other, unit[1])) for other in sorted(self.needs(unit[0]))]

    def config(self, name: str) -> Config:
        """The configuration that a trained row has with its first seed; raises CotextError."""
        row = self.rows[name]
        assert row.recipe is not None
        overrides = self.settings_of(name, self.seeds_of(name)[0])
        found = load_config(row.recipe, row.size or self.size, overrides)
        refuse_unused(found, row.recipe, overrides)
        return found


def require_known(where: str, value: str | None, known: Iterable[str]) -> None:
    """Raise ValueError for a name that nothing has."""
    names = list(known)
    if value is not None and value not in names:
        near = nearest(value, names)
        raise ValueError(f"{where}: no '{value}'{f'; did you mean {near[0]}?' if near else ''}")


def read_experiment(path: Path, changes: Sequence[str] = (), seeds: Sequence[str] = ()) -> Experiment:
    """Read an experiment; `changes` are variables, or with a dot in the key settings of every row.

    `seeds` are those of rows, as in `sentence=1,2,3`.

    Raises:
        CotextError: unreadable, an unknown key or name, a value that does not fit.
    """
    text = read_text(path)
    content = parse_yaml(text, str(path))
    if not isinstance(content, dict):
        raise CotextError(f"{path}: expected a mapping of keys to values")
    variables, settings = _changed(path, content.get("variables") or {}, changes)
    try:
        written = Template(text).substitute({key: _written(value) for key, value in variables.items()})
    except (KeyError, ValueError) as error:
        raise CotextError(f"{path}: ${{...}} stands for a variable of the file: {error}") from None
    content = {**parse_yaml(written, str(path)), "variables": variables}
    for section in (content, *_sections(content.get("rows"))):
        if settings and "changed" not in section:
            section["settings"] = {**(section.get("settings") or {}), **settings}
    for each in seeds:
        name, _, numbers = each.partition("=")
        require_known("--seeds", name, content.get("rows") or {})
        content["rows"][name]["seeds"] = parse_yaml(f"[{numbers}]", f"--seeds {shown(each)}")
    try:
        experiment = Experiment.model_validate(content)
    except ValidationError as error:
        raise CotextError("\n".join(_explain(error, path))) from None
    return experiment


def _changed(
    path: Path, variables: Mapping[str, Any], changes: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Variables and settings with what the command line changes."""
    variables, settings = dict(variables), dict[str, Any]()
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or not key:
            raise CotextError(f"--set {shown(change)}: write key=value, as in updates=100")
        if "." not in key and key not in variables:
            there = ", ".join(variables) or "none"
            raise CotextError(
                f"--set {shown(change)}: {path} has no variable {key} (there are: {there}); settings of "
                "training have a dot in their key, as in train.max_updates=100"
            )
        (settings if "." in key else variables)[key] = parse_yaml(value, f"--set {shown(change)}")
    return variables, settings


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _sections(rows: object) -> Iterator[dict[str, Any]]:
    yield from (row for row in rows.values() if isinstance(row, dict)) if isinstance(rows, dict) else ()


def _explain(error: ValidationError, path: Path) -> Iterator[str]:
    for problem in error.errors(include_url=False):
        key = ".".join(map(str, problem["loc"]))
        if problem["type"] == "extra_forbidden":
            yield f"{path}: unknown key {shown(key)}"
        else:
            yield f"{path}: {f'{key}: ' if key else ''}{problem['msg'].removeprefix('Value error, ')}"


def require_recipes(experiment: Experiment, rows: Sequence[str] = ()) -> None:
    """Raise CotextError where rows, all if none are named, or what they need have no valid configuration."""
    problems = []
    for name in dict.fromkeys(name for name, _ in experiment.in_order(rows)):
        if experiment.rows[name].recipe is not None:
            try:
                experiment.config(name)
            except CotextError as error:
                problems.append(f"rows.{name}: {error}")
    if problems:
        raise CotextError("\n".join(problems))
