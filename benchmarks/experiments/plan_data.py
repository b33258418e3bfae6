"""The data of an experiment, as closed, typed models."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from cotext.config.fields import Closed, PositiveInt, Seed
from cotext.data.controlled import WordOrder

Value = bool | int | float | str | list[float] | list[str] | None
Settings = dict[str, Value]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9+_.-]*$")]


class Controlled(Closed):
    """The controlled corpus."""

    documents: int | str = "small"
    """A number of training documents, or small, medium, large."""
    seed: Seed = 1
    """Of all that is drawn."""
    examples: PositiveInt = 600
    """Of a contrastive suite, at least."""
    joined: PositiveInt = 1
    """Documents that are joined to a long one; those of the suites stay single."""
    word_order: WordOrder = "verb-second"
    """Of the target."""
    mentions: Annotated[int, Field(ge=2)] | None = None
    """Of the hero in every training document; as the corpus has them if not given."""


class Distilled(Closed):
    """Data whose training targets a teacher has translated."""

    teacher: str
    """Row, of which the first seed teaches."""
    data: str
    """Name of the data that it translates."""
    settings: Settings = Field(default={})
    """Of decoding, as in `beam: 4`."""


class Sampled(Closed):
    """A contrastive suite, or so many of its documents, drawn."""

    suite: str
    """File."""
    documents: PositiveInt | None = None
    """So many, with all their examples; all of them if not given."""
    seed: Seed = 1
    """Of the draw."""
    detokenise: bool | None = None
    """Whether its text is tokenised, and joined to that of people."""


class Parts(Closed):
    """Whole documents of chosen parts of a corpus: SPLIT.LANGUAGE.xz and SPLIT.docids.xz for every split."""

    corpus: Path
    """Folder with train, dev and test."""
    further: tuple[Path, ...] = ()
    """More such folders, whose documents follow those of `corpus` in each split."""
    source: str = "en"
    """Language."""
    target: str = "de"
    """Language."""
    prefixes: tuple[str, ...] = ()
    """How ids of documents begin, as in `lohelp:`; all documents if none are given."""
    documents: PositiveInt | None = None
    """So many of each split from the beginning; all of them if not given."""
    held_out: PositiveInt | None = None
    """So many training documents, drawn, are set aside as a split `held` for suites."""
    tokenizer: str | None = None
    """Data whose tokenizer it has; one of its own if not given."""
    prepare: Settings = Field(default={})
    """Other options of `cotext prepare`, as in `vocabulary: 8000`."""
    choices: dict[Name, tuple[str, str]] = Field(default={})
    """Suites of choices that need context, `suites/NAME/` in the data (docs/real-choices.md): files of source
    and target, or a split of the parts twice, as in `[test, test]`."""
    sampled: dict[Name, Sampled] = Field(default={})
    """Suites, `suites/NAME.json`, of which a part is measured, or that are measured as other text."""
    grouped: dict[Name, tuple[str, str, str]] = Field(default={})
    """Texts beside those of the parts, NAME.LANGUAGE: of files of source, target, and sentences of documents,
    a number a line."""


class Data(Closed):
    """Prepared data: exactly one of the keys."""

    controlled: Controlled | None = None
    """Generated."""
    prepare: dict[str, Value | list[str]] | None = None
    """Made of corpora: options of `cotext prepare`, as in `dev-source: FILE`."""
    parts: Parts | None = None
    """Chosen out of a corpus by document."""
    folder: Path | None = None
    """There already."""
    distilled: Distilled | None = None
    """Translated by a row of the experiment."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        require_one(self)
        return self

    @property
    def other(self) -> str | None:
        """Data that it is made from."""
        if self.distilled is not None:
            return self.distilled.data
        return None if self.parts is None else self.parts.tokenizer


def require_one(section: Closed) -> None:
    """Raise ValueError unless exactly one key has a value."""
    given = [key for key, value in section if value is not None and value is not False]
    if len(given) != 1:
        raise ValueError(f"give exactly one of {', '.join(type(section).model_fields)}")
