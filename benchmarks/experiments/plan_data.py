"""The data of an experiment: the section `data` of its file."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from cotext.data.controlled import WordOrder
from cotext.runtime.sections import Closed, PositiveInt, Seed

Value = bool | int | float | str | list[float] | list[str] | None
Settings = dict[str, Value]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9+_.-]*$")]


class Controlled(Closed):
    """The controlled corpus."""

    documents: int | str = "small"
    """Number of training documents, or small, medium or large."""
    seed: Seed = 1
    """Seed of all draws."""
    examples: PositiveInt = 600
    """Smallest number of examples of a contrastive suite."""
    joined: PositiveInt = 1
    """Number of documents that are joined to a long one; suites keep single documents."""
    word_order: WordOrder = "verb-second"
    """Word order of the target."""
    mentions: Annotated[int, Field(ge=2)] | None = None
    """Number of mentions of the hero in a training document; default: as the corpus has them."""


class Distilled(Closed):
    """Data whose training targets are translations of a teacher."""

    teacher: str
    """Row; the run of its first seed translates."""
    data: str
    """Name of the data to translate."""
    settings: Settings = Field(default={})
    """Settings of decoding, such as `beam: 4`."""


class Sampled(Closed):
    """A contrastive suite, or a random part of it."""

    suite: str
    """File of the suite."""
    documents: PositiveInt | None = None
    """Number of documents to draw, with all their examples; default: all."""
    detokenise: bool | None = None
    """Whether to detokenise the text."""


class Parts(Closed):
    """Documents of a corpus, chosen by id. Its files: SPLIT.LANGUAGE.xz and SPLIT.docids.xz."""

    corpus: Path
    """Folder with the splits train, dev and test."""
    further: tuple[Path, ...] = ()
    """Further such folders; their documents are appended to each split."""
    source: str = "en"
    target: str = "de"
    prefixes: tuple[str, ...] = ()
    """Prefixes of the ids of chosen documents, such as `lohelp:`; default: all documents."""
    documents: PositiveInt | None = None
    """The first ones of each split only; default: all."""
    repeated: dict[str, PositiveInt] = Field(default={})
    """How often training documents are repeated, by the prefix of their ids."""
    held_out: PositiveInt | None = None
    """Number of training documents, drawn at random, that become the split `held` for suites."""
    tokenizer: str | None = None
    """Data whose tokenizer is used; default: a new one."""
    prepare: Settings = Field(default={})
    """Further options of `cotext prepare`, such as `vocabulary: 8000`."""
    choices: dict[Name, tuple[str, str]] = Field(default={})
    """Suites of choices that need context (docs/real-choices.md), written to `suites/NAME/` of the data. Each
    has the files of source and target, or twice the name of a split, as in `[test, test]`."""
    sampled: dict[Name, Sampled] = Field(default={})
    """Further suites, written to `suites/NAME.json` of the data."""
    grouped: dict[Name, tuple[str, str, str]] = Field(default={})
    """Further texts, written to NAME.LANGUAGE: files of source, of target, and of the number of sentences of
    each document, one per line."""


class Data(Closed):
    """Prepared data; exactly one of the keys is given."""

    controlled: Controlled | None = None
    """The controlled corpus."""
    prepare: dict[str, Value | list[str]] | None = None
    """Options of `cotext prepare`, such as `dev-source: FILE`."""
    parts: Parts | None = None
    """Documents of a corpus, chosen by id."""
    folder: Path | None = None
    """A folder of prepared data that exists."""
    distilled: Distilled | None = None
    """Distilled data: translations of a row of the experiment."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        require_one(self)
        return self

    @property
    def other(self) -> str | None:
        """Name of the data from which this is made."""
        if self.distilled is not None:
            return self.distilled.data
        return None if self.parts is None else self.parts.tokenizer


def require_one(section: Closed) -> None:
    """Raise ValueError unless exactly one key has a value."""
    given = [key for key, value in section if value is not None and value is not False]
    if len(given) != 1:
        raise ValueError(f"give exactly one of {', '.join(type(section).model_fields)}")
