"""The YAML file of an experiment: data, rows, measures and tables as typed models.

`${name}` is replaced by a variable of the file, which `--set name=value` changes. Arguments of measures have
these placeholders:

    {run}         run folder of the row             {runs[ROW]}   run folder of another row
    {data}        its prepared data                 {data[NAME]}  other data
    {out}         output file of the measure        {measures}    folder of the output files of the row
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator

from benchmarks.experiments.plan_data import Data, Name, Settings, require_one
from benchmarks.experiments.plan_output import Curves, Table
from cotext.config.recipe import Config, load_config
from cotext.models.checks import refuse_unused
from cotext.runtime import CotextError, nearest, parse_yaml, read_text, shown
from cotext.runtime.sections import Closed, PositiveInt, Seed

OTHER_RUN = re.compile(r"\{runs\[([^\]]*)\]\}")
OTHER_DATA = re.compile(r"\{data\[([^\]]*)\]\}")
PLACEHOLDERS = re.compile(r"\{(run|data|out|measures|(?:runs|data)\[[^\]]*\])\}")


class Contrastive(Closed):
    """Accuracy on contrastive suites: `cotext contrastive`."""

    suites: tuple[str, ...] = ("{data}/contrastive",)
    """Files, or folders of JSON files."""
    controls: bool = False
    """Also score without context and with foreign context."""
    context: str = "true"
    """The option `--context`."""
    settings: Settings = Field(default={})
    """Settings of decoding, such as `group_windows: 4`."""
    checkpoints: bool = False
    """Also measure each checkpoint: figures end in `.at.UPDATE`. `SUITE.since` is the first update with an
    accuracy of at least 90 % one to three sentences back."""


class Translation(Closed):
    """Scores of translated documents: `cotext translate` and `cotext evaluate`."""

    source: str
    reference: str
    protocols: tuple[str, ...] = ("s-bleu", "d-bleu")
    """See docs/metrics.md."""
    target_language: str = ""
    """Code for the tokenisation of scores; needed for languages without spaces, such as `zh`."""
    discourse: str = ""
    """File of marked words for the figures `tc`, `cp`, `pt` and `tcp`."""
    comet: str = ""
    """COMET model for the figure `comet`. If it cannot run here, the figure is missing and the page of tables
    says why."""
    documents: PositiveInt | None = None
    """The first ones only; default: all."""
    single_sentences: bool = False
    """Translate each sentence as a document of its own."""
    settings: Settings = Field(default={})
    """Settings of decoding, such as `beam: 1`."""
    checkpoints: bool = False
    """Also measure each checkpoint: figures end in `.at.UPDATE`."""


class Cxmi(Closed):
    """CXMI with true, shuffled and foreign context: `cotext cxmi`."""

    source: str
    reference: str
    documents: PositiveInt | None = None
    """The first ones only; default: all."""


class Measure(Closed):
    """A measure of a trained row; exactly one of the keys is given."""

    training: bool | None = None
    """Losses, BLEU and speed of `metrics.jsonl`; figures such as `bleu` and `bleu.at.250`."""
    contrastive: Contrastive | None = None
    """Figures such as `pronoun`, `pronoun.1` and `pronoun.elsewhere`, and `elsewhere` over all suites."""
    translation: Translation | None = None
    """Figures by protocol, such as `d-bleu`; with `align: free` also `recovered`, in per cent of chunks."""
    cxmi: Cxmi | None = None
    """Figures such as `true.per_token` and `random.share_above`, in nats; only for systems with context."""
    cotext: tuple[str, ...] | None = None
    """Another command of Cotext; its figures are the numbers of the JSON file `{out}`, by dotted keys."""
    python: tuple[str, ...] | None = None
    """A Python module and its arguments; figures as of `cotext`."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        require_one(self)
        return self

    def other_rows(self) -> set[str]:
        """Return other rows whose runs the measure reads."""
        return set(OTHER_RUN.findall(self.model_dump_json()))

    def other_data(self) -> set[str]:
        """Return the names of other data that the measure reads."""
        return set(OTHER_DATA.findall(self.model_dump_json()))


class Row(Closed):
    """A system: trained from a `recipe`, or another row with `changed` settings that have no weights."""

    recipe: str | None = None
    """Name of a recipe, or a YAML file."""
    changed: str | None = None
    """Row whose weights are used."""
    size: str | None = None
    """Default: the size of the experiment."""
    settings: Settings = Field(default={})
    """Override those of the experiment."""
    init: str | None = None
    """Row from which training starts."""
    init_model: str | None = None
    """Name of a model, or a run folder, from which training starts."""
    data: str | None = None
    """Default: the first data of the experiment."""
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] | None = None
    """Default: the seeds of the experiment."""
    measures: tuple[str, ...] | None = None
    """Default: all measures of the experiment."""
    value: float = 0.0
    """Rows with a higher value come first, after the rows that they need."""

    @property
    def start(self) -> str | None:
        """The row or the model from which training starts."""
        return self.init or self.init_model

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.recipe is None) == (self.changed is None):
            raise ValueError("give either recipe or changed")
        if self.changed is not None and self.init is not None:
            raise ValueError("init: only for a row with a recipe; a changed row has the weights of its row")
        if self.init_model is not None and (self.recipe is None or self.init is not None):
            raise ValueError("init_model: only for a row with a recipe and without init")
        return self


class Experiment(Closed):
    """The file of an experiment."""

    title: str
    """Title of the page of tables."""
    about: str = ""
    """Text below the title: the question, and the conditions that all rows share."""
    variables: Settings = Field(default={})
    """Values of `${name}` in the rest of the file."""
    size: str | None = None
    """Size of all recipes; default: as they are written."""
    settings: Settings = Field(default={})
    """Settings of every training."""
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (1,)
    """Each row is trained once with each seed."""
    data: Annotated[dict[Name, Data], Field(min_length=1)]
    rows: Annotated[dict[Name, Row], Field(min_length=1)]
    measures: dict[Name, Measure] = Field(default={})
    tables: tuple[Table, ...] = ()
    """Written to `tables.md` after every row."""
    figures: tuple[Curves, ...] = ()
    """Drawn after every row."""

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
            raise ValueError(f"rows need each other: {' -> '.join([*behind, name])}")
        for other in self.needs(name):
            self._require_end(other, (*behind, name))

    def _require_made(self, name: str, behind: tuple[str, ...]) -> None:
        if name in behind:
            raise ValueError(f"data need each other: {' -> '.join([*behind, name])}")
        if (other := self.data[name].other) is not None:
            self._require_made(other, (*behind, name))

    def data_of(self, name: str) -> str:
        """Return the name of the data of a row."""
        row = self.rows[name]
        if row.changed is not None and row.data is None:
            return self.data_of(row.changed)
        return row.data or next(iter(self.data))

    def measures_of(self, name: str) -> dict[str, Measure]:
        """Return the measures of a row by name."""
        chosen = self.rows[name].measures
        return {key: self.measures[key] for key in (self.measures if chosen is None else chosen)}

    def other_rows(self, name: str) -> set[str]:
        """Return other rows whose runs the measures of a row read."""
        return set().union(*(measure.other_rows() for measure in self._measured(name))) - {name}

    def all_data(self, name: str) -> set[str]:
        """Return the names of all data that a row and its measures read."""
        return {self.data_of(name)}.union(*(measure.other_data() for measure in self._measured(name)))

    def _measured(self, name: str) -> list[Measure]:
        asked = self.rows[name].measures
        return [measure for key, measure in self.measures.items() if asked is None or key in asked]

    def needs(self, name: str) -> set[str]:
        """Return the rows that must be trained before a row."""
        row = self.rows[name]
        found = {each for each in (row.init, row.changed) if each is not None} | self.other_rows(name)
        for other in self.all_data(name) if name not in found else ():
            data: Data | None = self.data[other]
            while data is not None:
                found |= set() if data.distilled is None else {data.distilled.teacher}
                data = None if data.other is None else self.data[data.other]
        return found

    def settings_of(self, name: str, seed: int) -> list[str]:
        """Return the settings of a row in the form of the command line."""
        row = self.rows[name]
        laid = dict(row.settings) if row.changed is not None else {**self.settings, **row.settings}
        if row.recipe is not None:
            laid["train.seed"] = seed
        return [f"{key}={json.dumps(value)}" for key, value in laid.items()]

    def seeds_of(self, name: str) -> tuple[int, ...]:
        """Return the seeds of a row."""
        row = self.rows[name]
        if row.seeds is None and row.changed is not None:
            return self.seeds_of(row.changed)
        return row.seeds or self.seeds

    def seed_of(self, name: str, seed: int) -> int:
        """Return the seed of a row that another row with `seed` uses: the same, or else the first."""
        seeds = self.seeds_of(name)
        return seed if seed in seeds else seeds[0]

    def in_order(self, chosen: Sequence[str] = ()) -> list[tuple[str, int]]:
        """Return rows with their seeds by descending value, each after the rows that it needs."""
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
        """Return the rows with their seeds that must be trained before a row with its seed."""
        return [(other, self.seed_of(other, unit[1])) for other in sorted(self.needs(unit[0]))]

    def config(self, name: str) -> Config:
        """Return the configuration of a row with a recipe, for its first seed; refuse unused settings."""
        row = self.rows[name]
        assert row.recipe is not None
        overrides = self.settings_of(name, self.seeds_of(name)[0])
        found = load_config(row.recipe, row.size or self.size, overrides)
        refuse_unused(found, row.recipe, overrides)
        return found


def require_known(where: str, value: str | None, known: Iterable[str]) -> None:
    """Raise ValueError for an unknown name."""
    names = list(known)
    if value is not None and value not in names:
        near = nearest(value, names)
        raise ValueError(f"{where}: no '{value}'{f'; did you mean {near[0]}?' if near else ''}")


def read_experiment(path: Path, changes: Sequence[str] = (), seeds: Sequence[str] = ()) -> Experiment:
    """Read the YAML file of an experiment.

    `changes`: `key=value` of variables, or of settings of every row if the key has a dot. `seeds`: seeds of
    rows, such as `sentence=1,2,3`.
    """
    text = read_text(path)
    content = parse_yaml(text, str(path))
    if not isinstance(content, dict):
        raise CotextError(f"{path}: expected a mapping of keys to values")
    variables, settings = _changed(path, content.get("variables") or {}, changes)
    try:
        written = Template(text).substitute({key: _written(value) for key, value in variables.items()})
    except (KeyError, ValueError) as error:
        raise CotextError(f"{path}: ${{...}}: no such variable in the file: {error}") from None
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
    """Return variables and settings with the changes of the command line."""
    variables, settings = dict(variables), dict[str, Any]()
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or not key:
            raise CotextError(f"--set {shown(change)}: write key=value, for example updates=100")
        if "." not in key and key not in variables:
            there = ", ".join(variables) or "none"
            raise CotextError(
                f"--set {shown(change)}: {path} has no variable {key} (its variables: {there}); keys of "
                "settings have a dot, for example train.max_updates=100"
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
    """Raise CotextError if a row, or a row that it needs, has an invalid configuration; default: all rows."""
    problems = []
    for name in dict.fromkeys(name for name, _ in experiment.in_order(rows)):
        if experiment.rows[name].recipe is not None:
            try:
                experiment.config(name)
            except CotextError as error:
                problems.append(f"rows.{name}: {error}")
    if problems:
        raise CotextError("\n".join(problems))
