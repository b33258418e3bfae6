"""What is asked of a job, and what is told of it."""

import json
from dataclasses import asdict, dataclass, field
from typing import Final, Literal, Protocol, get_args

from cotext.data.splitting import Splitting
from cotext.serving.glossary_store import wishes_of
from cotext.translation.wishes import Wishes

State = Literal["queued", "translating", "done", "error", "cancelled"]
STATES: Final[tuple[State, ...]] = get_args(State)
FINISHED: Final[frozenset[State]] = frozenset({"done", "error", "cancelled"})


class Asker(Protocol):
    """Who asks, by a name that is theirs alone: a client of the server."""

    @property
    def name(self) -> str:
        """The name."""
        ...


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose a job is, as the table of jobs knows."""

    name: str


@dataclass(frozen=True, slots=True)
class JobOptions:
    """How a file is translated.

    `glossary_entries`: terms with their translations; several of one term are alternatives. `output_name`: of
    the result; empty: that of the file with the target language in it. `fast`: greedy search instead of the
    run's. `splitting`: None: lines and paragraphs stay as they are, several sentences as one.
    """

    glossary_entries: tuple[tuple[str, str], ...] = ()
    output_name: str = ""
    fast: bool = False
    splitting: Splitting | None = field(default_factory=Splitting)

    @property
    def wishes(self) -> Wishes:
        """What is asked of the translation.

        Raises:
            CotextError: an empty term, or an empty translation.
        """
        return wishes_of(self.glossary_entries)

    def to_json(self) -> str:
        """As it is kept on disk."""
        content = asdict(self)
        if self.splitting is not None:
            content["splitting"]["abbreviations"] = sorted(self.splitting.abbreviations)
        return json.dumps(content)

    @classmethod
    def from_json(cls, text: str) -> "JobOptions":
        """Undo `to_json`."""
        content = json.loads(text)
        entries = tuple((source, target) for source, target in content["glossary_entries"])
        cutting = content["splitting"]
        splitting = cutting and Splitting(frozenset(cutting["abbreviations"]), cutting["by"])
        return cls(entries, content["output_name"], content["fast"], splitting)


@dataclass(frozen=True, slots=True)
class JobTicket:
    """What a client gets for a file: the name of its job, and a key that shows that the job is theirs."""

    id: str
    key: str


@dataclass(frozen=True, slots=True)
class JobStatus:
    """How far a job is.

    `sentences`: 0 until the file has been read. `seconds_remaining`: estimated from the speed so far; None
    where it is not known. `message`: what went wrong, for the client; `messages`: what there is to know of
    the file and of its translation, as text that could not be translated. `file_name`: of the result.
    `billed_characters`: of its source sentences. `submitted`: seconds since 1970.
    """

    id: str
    state: State
    system: str
    file_name: str
    sentences: int = 0
    sentences_done: int = 0
    seconds_remaining: float | None = None
    billed_characters: int = 0
    message: str = ""
    messages: tuple[str, ...] = ()
    submitted: float = 0.0

    @property
    def finished(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in FINISHED
