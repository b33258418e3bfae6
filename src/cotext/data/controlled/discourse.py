"""The discourse planner: it plans the sentences of a document, and the clue of each choice.

A *choice* is a sentence whose translation depends on the *clue*, usually an earlier sentence. The planner
adds sentences from left to right, and reserves later sentences for choices. No sentence between clue and
choice may change the interpretation. The choices are:

    choice    its translation depends on                                 clue
    it        the gender of the thing mentioned last or, if there is     the sentence with this thing
              none, of the thing in the next sentence
    did too   the verb of the last event                                 the sentence with this event
    you       the person addressed in the document                       the sentence that says who this is
    hero      the earlier translation of the name of this person,        the first mention of this person
              which has two German forms
"""

import hashlib
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeVar

from cotext.data.controlled import lexicon
from cotext.data.controlled.lexicon import WordOrder, ordered

# --- Sentences, and the frames from which they are made. The frames are in frames.txt.


@dataclass(frozen=True, slots=True)
class Frame:
    """A sentence template in both languages."""

    english: str
    german: str
    slots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sentence:
    """A frame with all its slots filled."""

    frame: Frame
    words: Mapping[str, object]

    def english(self) -> str:
        text = self.frame.english.format_map(self.words)
        return text[0].upper() + text[1:]

    def german(self, order: WordOrder) -> str:
        text = ordered(self.frame.german, order).format_map(self.words)
        return text[0].upper() + text[1:]

    def with_word(self, slot: str, word: object) -> "Sentence":
        return Sentence(self.frame, {**self.words, slot: word})


Phenomenon = Literal["pronoun", "register", "ellipsis", "cohesion", "cataphora"]
T = TypeVar("T")

MIN_SENTENCES: Final = 4
MAX_SENTENCES: Final = 12
_MAX_PRONOUN_DISTANCE: Final = 6
_MAX_ELLIPSIS_DISTANCE: Final = 4
_MAX_COHESION_DISTANCE: Final = 6


class Draw:
    """Random decisions for one document.

    Only ``Random.random`` is used, whose sequence for a seed is the same in all versions of Python.
    """

    __slots__ = ("_random",)

    def __init__(self, stream: str, seed: int, index: int):
        digest = hashlib.blake2b(f"{stream} {seed} {index}".encode(), digest_size=8).digest()
        self._random = random.Random(int.from_bytes(digest, "big")).random

    def choose(self, items: Sequence[T]) -> T:
        """Return an item, drawn with equal probabilities."""
        return items[int(self._random() * len(items))]

    def chance(self, probability: float) -> bool:
        """Return True with the given probability."""
        return self._random() < probability

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Return a list of ``items`` in random order."""
        return [
            item for _, _, item in sorted((self._random(), index, item) for index, item in enumerate(items))
        ]


@dataclass(frozen=True, slots=True)
class ContextChoice:
    """A sentence whose translation depends on the sentence ``clue`` (indices into the plan)."""

    phenomenon: Phenomenon
    clue: int
    index: int

    @property
    def distance(self) -> int:
        """Number of sentences from clue to choice; negative if the clue comes after the choice."""
        return self.index - self.clue


@dataclass(frozen=True, slots=True)
class Plan:
    """The sentences of a document with their choices."""

    sentences: tuple[Sentence, ...]
    choices: tuple[ContextChoice, ...]

    def source(self) -> tuple[str, ...]:
        return tuple([sentence.english() for sentence in self.sentences])

    def target(self, order: WordOrder) -> tuple[str, ...]:
        return tuple([sentence.german(order) for sentence in self.sentences])


def _read_frames() -> dict[str, tuple[list[Frame], list[Frame]]]:
    """Return the frames of each kind: all of them, and those that are not events."""
    by_kind: dict[str, tuple[list[Frame], list[Frame]]] = {}
    kind = ""
    text = Path(__file__).with_name("frames.txt").read_text(encoding="utf-8")
    for line in filter(None, text.splitlines()):
        if line[0] == "[":
            kind = line[1:].partition("]")[0]
        elif line[0] != "#":
            english, _, german = line[2:].partition(" = ")
            frame = Frame(english, german, tuple(dict.fromkeys(re.findall(r"{(\w)", line))))
            frames, calm = by_kind.setdefault(kind, ([], []))
            frames.append(frame)
            if line[0] != "*":
                calm.append(frame)
    return by_kind


_FRAMES: Final = _read_frames()
# Kinds of unreserved sentences, with weights.
_OPEN_KINDS: Final = (
    *["thing"] * 6,
    *["thing and pronoun"] * 2,
    *["activity"] * 5,
    *["another pronoun"] * 1,
    *["person"] * 3,
    *["scene"] * 2,
)
_YOU_COUNTS: Final = (1, 1, 1, 2, 2, 3)


class Planner:
    """The state of one document of 4 to 12 sentences while it is planned.

    `mentions`: number of sentences that mention the hero (the main person); fewer if not enough are free.
    """

    def __init__(self, draw: Draw, mentions: int | None = None):
        self.draw = draw
        self.mentions = mentions
        self.length = draw.choose(range(MIN_SENTENCES, MAX_SENTENCES + 1))
        self.reserved: list[str | None] = [None] * self.length
        self.sentences: list[Sentence] = []
        self.choices: list[ContextChoice] = []
        self.speaker: lexicon.Person | None = None
        self.listener: lexicon.Listener | None = None
        self.statement_at = 0
        self.hero: lexicon.Person | None = None
        self.hero_at = -1
        self.thing: lexicon.Thing | None = None
        self.thing_at = -1
        self.activity: lexicon.Activity | None = None
        self.activity_at = -1
        self.actors: list[lexicon.Person] = []
        self.things_closed_until = 0  # no thing may be mentioned before this index
        self.events_closed_until = 0  # no event may occur before this index

    def free_indices(self, start: int, stop: int) -> list[int]:
        return [index for index in range(start, min(stop, self.length)) if self.reserved[index] is None]

    def later(self, indices: Sequence[int]) -> int:
        """Draw one of ``indices``, preferring large ones; otherwise long distances would be rare."""
        index = self.draw.choose(indices)
        return max(index, self.draw.choose(indices)) if self.draw.chance(0.5) else index

    def reserve_register(self) -> None:
        self.reserved[0 if self.draw.chance(0.75) else 1] = "statement"
        self.statement_at = self.reserved.index("statement")
        for _ in range(self.draw.choose(_YOU_COUNTS)):
            indices = self.free_indices(self.statement_at + 1, self.length)
            if indices:
                self.reserved[self.draw.choose(indices)] = "you"

    def reserve_cataphora(self) -> None:
        indices = [
            index
            for index in range(min(4, self.length - 1))
            if self.reserved[index] is None and self.reserved[index + 1] is None
        ]
        if indices:
            index = self.draw.choose(indices)
            self.reserved[index] = "cataphora"
            self.reserved[index + 1] = "cataphora noun"
            self.things_closed_until = index + 1

    def reserve_hero(self) -> None:
        if self.mentions:
            for index in self.draw.shuffled(self.free_indices(0, self.length))[: self.mentions]:
                self.reserved[index] = "hero"
            return
        # The first mention can be in any sentence but the last; two or three are reserved if there is room.
        indices = self.free_indices(0, self.length - 1)
        for mention in range(3 if self.draw.chance(0.25) else 2):
            if indices:
                index = self.later(indices) if mention else self.draw.choose(indices)
                self.reserved[index] = "hero"
                indices = self.free_indices(index + 1, index + 1 + _MAX_COHESION_DISTANCE)

    def say(self, kind: str, bound: Mapping[str, object], avoid: Sequence[object] = ()) -> Sentence:
        """Add a sentence of a kind; ``bound`` has some of its words; the rest is drawn without repetition."""
        draw = self.draw
        frames = _FRAMES[kind][len(self.sentences) < self.events_closed_until]
        frame = draw.choose(frames)
        words = dict(bound)
        for slot in frame.slots:
            if slot not in words:
                word = draw.choose(lexicon.TABLES[slot])
                while word is self.speaker or word in avoid or word in words.values():
                    word = draw.choose(lexicon.TABLES[slot])
                words[slot] = word
        sentence = Sentence(frame, words)
        self.sentences.append(sentence)
        return sentence

    def said(self, index: int) -> tuple[object, ...]:
        """Return the words of an earlier sentence, which must be neither repeated nor contradicted."""
        return tuple(self.sentences[index].words.values())

    def note(self, phenomenon: Phenomenon, clue: int) -> None:
        """Record that the last sentence depends on the sentence ``clue``."""
        self.choices.append(ContextChoice(phenomenon, clue, len(self.sentences) - 1))

    def say_statement(self) -> None:
        draw = self.draw
        self.speaker = draw.choose(lexicon.PEOPLE)
        familiar, formal = lexicon.LISTENERS[self.speaker.he]
        self.listener = draw.choose(familiar if draw.chance(0.5) else formal)
        self.say("statement", {"s": self.speaker, "l": self.listener})

    def say_you(self) -> None:
        assert self.listener is not None
        self.say("you", {"y": self.listener.address})
        self.note("register", self.statement_at)

    def say_hero(self) -> None:
        if self.hero is None:
            self.hero = self.draw.choose(self.draw.choose(lexicon.HEROES))
            self.hero_at = len(self.sentences)
            self.say("person", {"p": self.hero})
        else:
            self.say("person", {"p": self.hero}, avoid=self.said(self.hero_at))
            self.note("cohesion", self.hero_at)

    def mention(self, thing: lexicon.Thing, index: int) -> None:
        """Record the last mentioned thing, and perhaps reserve a sentence with "it"."""
        self.thing, self.thing_at = thing, index
        indices = self.free_indices(index + 1, index + 1 + _MAX_PRONOUN_DISTANCE)
        if indices and self.draw.chance(0.85):
            later = self.later(indices)
            self.reserved[later] = "pronoun"
            self.things_closed_until = later

    def say_thing(self) -> None:
        thing = self.draw.choose(lexicon.THINGS)
        self.say("thing", {"t": thing})
        self.mention(thing, len(self.sentences) - 1)

    def say_thing_and_pronoun(self) -> None:
        thing = self.draw.choose(lexicon.THINGS)
        self.say("thing and pronoun", {"t": thing, "o": thing})
        index = len(self.sentences) - 1
        self.note("pronoun", index)
        # In half of the cases, no later sentence is reserved for "it", so that distance 0 also occurs alone.
        if self.draw.chance(0.5):
            self.mention(thing, index)
        else:
            self.thing, self.thing_at = thing, index

    def say_pronoun(self) -> None:
        assert self.thing is not None
        self.say("pronoun", {"o": self.thing}, avoid=self.said(self.thing_at))
        self.note("pronoun", self.thing_at)

    def say_cataphora(self) -> None:
        # The thing is drawn now, and named in the next sentence.
        self.thing = self.draw.choose(lexicon.THINGS)
        self.thing_at = len(self.sentences) + 1
        self.say("cataphora", {"o": self.thing})
        self.note("cataphora", self.thing_at)

    def say_cataphora_noun(self) -> None:
        assert self.thing is not None
        self.say("cataphora noun", {"t": self.thing})
        if self.draw.chance(0.5):
            self.mention(self.thing, self.thing_at)

    def say_activity(self) -> None:
        self.activity = self.draw.choose(lexicon.ACTIVITIES)
        self.activity_at = len(self.sentences)
        sentence = self.say("activity", {"v": self.activity})
        self.actors = [word for word in sentence.words.values() if isinstance(word, lexicon.Person)]
        indices = self.free_indices(self.activity_at + 1, self.activity_at + 1 + _MAX_ELLIPSIS_DISTANCE)
        if indices and self.draw.chance(0.9):
            later = self.later(indices)
            self.reserved[later] = "ellipsis"
            self.events_closed_until = later

    def say_ellipsis(self) -> None:
        assert self.activity is not None
        self.say("ellipsis", {"w": self.activity}, avoid=self.actors)
        self.note("ellipsis", self.activity_at)

    def say_open(self) -> None:
        """Add an unreserved sentence."""
        index = len(self.sentences)
        kind = self.draw.choose(_OPEN_KINDS)
        if kind == "activity" and index >= self.events_closed_until:
            self.say_activity()
        elif kind == "thing" and index >= self.things_closed_until:
            self.say_thing()
        elif kind == "thing and pronoun" and index >= self.things_closed_until:
            self.say_thing_and_pronoun()
        elif kind == "another pronoun" and 0 <= self.thing_at < index and index >= self.things_closed_until:
            self.say_pronoun()
        else:
            self.say("person" if kind == "person" else "scene", {})

    def plan(self) -> Plan:
        if self.draw.chance(0.6):
            self.reserve_register()
        if self.draw.chance(0.3):
            self.reserve_cataphora()
        if self.mentions or self.draw.chance(0.6):
            self.reserve_hero()
        say = {
            None: self.say_open,
            "statement": self.say_statement,
            "you": self.say_you,
            "hero": self.say_hero,
            "pronoun": self.say_pronoun,
            "cataphora": self.say_cataphora,
            "cataphora noun": self.say_cataphora_noun,
            "ellipsis": self.say_ellipsis,
        }
        while len(self.sentences) < self.length:
            say[self.reserved[len(self.sentences)]]()
        return Plan(tuple(self.sentences), tuple(self.choices))
