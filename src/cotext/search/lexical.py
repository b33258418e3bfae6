"""Lexical constraints of a sentence as an automaton over its tokens.

The text written so far is compared character by character (`spelling.py`), so that a phrase counts in any
segmentation into subwords. Occurrences are whole words. If they overlap, the leftmost counts, and the longest
of those that begin together, as in a lexer: "New York" within the term "New York Times" does not count.

    text       the new New York T|imes          tail: "New York T", which may become a phrase
    counts     occurrences per unit: a group of alternatives, or a copied text

A token is rejected if it completes a forbidden phrase, or most of its last word (which would remain as a
stump). It is also rejected if it completes a copied text more often than required. An exception is a longer
unmet phrase that begins in the same way. A copied text that is complete is not begun again. Tokens of unmet
phrases are offered to search (`lexical_search.py`), which rejects tokens that leave no room for them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from cotext.data.words import is_boundary, is_letter
from cotext.search.guide import SentenceConstraints
from cotext.search.spelling import Spelling

# After these characters, a phrase may begin without a space.
_OPENING: Final = "([{<\"'„“‚‘«‹¿¡/=-–—"


class Written(NamedTuple):
    """The state of a sentence with respect to its constraints.

    `counts`: occurrences of the units. `tail`: text that may become a phrase. `before`: the character before
    it. `joined`: the next token continues the last word.
    """

    counts: tuple[int, ...]
    before: str = ""
    tail: str = ""
    joined: bool = False


class Standing(NamedTuple):
    """How many requirements of a sentence are met.

    `begun`: an unmet phrase has been begun. `need`: the fewest tokens that meet the remaining requirements.
    `tokens_missing`: `need` without the phrase that has been begun.
    """

    met: int
    begun: bool
    need: int
    tokens_missing: int

    @property
    def bank(self) -> int:
        """Twice the number of requirements met, plus one inside a further phrase."""
        return 2 * self.met + self.begun


@dataclass(frozen=True, slots=True)
class _Unit:
    """A text to copy exactly `need` times, or alternatives that must occur at least `need` times in total."""

    phrases: tuple[str, ...]
    need: int
    exact: bool
    tokens: int  # of its shortest phrase


class SentenceAutomaton:
    """The constraints of one sentence, over the tokens of a spelling.

    Phrases that the tokenizer cannot write are dropped, and so are requirements without any other phrase.
    """

    def __init__(self, constraints: SentenceConstraints, spelling: Spelling) -> None:
        self.constraints = constraints
        self._spelling = spelling
        self._paths: dict[str, list[int]] = {}
        units = []
        for text, need in Counter(constraints.copied).items():
            units += self._unit((text,), need, exact=True)
        for phrases, need in Counter(constraints.required).items():
            units += self._unit(phrases, need, exact=False)
        # An occurrence counts for the unit with the fewest alternatives.
        self._units = sorted(units, key=lambda unit: len(unit.phrases))
        self._units_of: dict[str, list[int]] = {}
        for i, unit in enumerate(self._units):
            for phrase in unit.phrases:
                self._units_of.setdefault(phrase, []).append(i)
        # A phrase that is required elsewhere in the sentence cannot be forbidden.
        forbidden = filter(None, map(self._spelled, constraints.forbidden))
        self._forbidden = set(forbidden) - self._units_of.keys()
        self._phrases = sorted({*self._units_of, *self._forbidden}, key=len, reverse=True)
        # All prefixes of phrases, to decide whether a tail may still become one.
        self._beginnings = {phrase[:n] for phrase in self._phrases for n in range(1, len(phrase) + 1)}
        self._rests = {phrase: self._cut(phrase) for phrase in self._units_of}
        # Not functools.cache: a cached bound method is a cycle, which keeps the automaton in memory for long.
        self._steps: dict[tuple[Written, int], Written | None] = {}
        self._offered: dict[Written, tuple[int, ...]] = {}
        self._standings: dict[Written, Standing] = {}
        self.start = Written((0,) * len(self._units))
        self.size = sum(unit.need for unit in self._units)

    def _unit(self, phrases: tuple[str, ...], need: int, exact: bool) -> list[_Unit]:
        spelled = tuple(dict.fromkeys(filter(None, map(self._spelled, phrases))))
        if not spelled:
            return []
        return [_Unit(spelled, need, exact, min(len(self._paths[phrase]) for phrase in spelled))]

    def _spelled(self, phrase: str) -> str:
        """Return a phrase as its tokens spell it; empty if the tokenizer cannot write it."""
        tokens = self._spelling.encoded(phrase)
        if tokens is None:
            return ""
        spelled = " ".join(self._spelling.text(tokens).split())
        self._paths[spelled] = tokens
        return spelled

    def _cut(self, phrase: str) -> dict[int, Sequence[int]]:
        """Return the remaining tokens for each place in a phrase at which a token ends."""
        path = self._paths[phrase]
        places = (len(self._spelling.text(path[:i]).lstrip()) for i in range(1, len(path)))
        # Place 0: the first token is only the space.
        return {place: path[i:] for i, place in enumerate(places, start=1)}

    @property
    def vocabulary(self) -> set[int]:
        """The tokens of all phrases, both after a space and within a word."""
        within = (self._spelling.encoded_within(phrase, "(") or () for phrase in self._units_of)
        return {token for path in (*self._paths.values(), *within) for token in path}

    @property
    def room(self) -> int:
        """The number of tokens that constraints may add to a sentence."""
        return sum(u.need * max(len(self._paths[p]) for p in u.phrases) for u in self._units) + 2

    def replay(self, tokens: Iterable[int]) -> Written | None:
        """Return the state after the tokens of a sentence; None: one of them is rejected."""
        written: Written | None = self.start
        for token in tokens:
            if written is not None:
                written = self.step(written, token)
        return written

    def may_close(self, written: Written) -> bool:
        return self.standing(written).met == self.size and self._resolved(written, ended=True) is not None

    def step(self, written: Written, token: int) -> Written | None:
        """Return the state after one more token; None: the token is rejected."""
        key = written, token
        if key not in self._steps:
            self._steps[key] = self._step(written, token)
        return self._steps[key]

    def offers(self, written: Written) -> tuple[int, ...]:
        """Return the tokens that begin or continue an unmet phrase, each once."""
        if written not in self._offered:
            self._offered[written] = self._offers(written)
        return self._offered[written]

    def standing(self, written: Written) -> Standing:
        """Return what a state has met, and what it needs."""
        if written not in self._standings:
            self._standings[written] = self._standing(written)
        return self._standings[written]

    def _step(self, written: Written, token: int) -> Written | None:
        added, joins = self._spelling.of(token)
        if written.joined:
            added = added.removeprefix(" ")
        state: Written | None = written
        for character in added:
            assert state is not None
            if character == " " and (state.tail or state.before)[-1:] == " ":
                continue
            state = self._resolved(state._replace(tail=state.tail + character))
            if state is None:
                return None
        assert state is not None
        return None if self._is_blocked(state) else state._replace(joined=joins)

    def _resolved(self, written: Written, ended: bool = False) -> Written | None:
        """Count the phrases in the tail that cannot change any more; None: one of them is rejected."""
        counts, before, tail, joined = written
        while tail:
            # The tail may still become a phrase, or a longer one: wait for the next character.
            if not ended and tail in self._beginnings and is_boundary(before, tail[0]):
                break
            phrase = self._leading(before, tail, ended)
            if not phrase:
                before, tail = tail[0], tail[1:]
                continue
            counted = self._counted(counts, phrase)
            if counted is None:
                return None
            counts, before, tail = counted, phrase[-1], tail[len(phrase) :]
        return Written(counts, before, tail, joined)

    def _leading(self, before: str, tail: str, ended: bool) -> str:
        """Return the longest phrase at the start of the tail, as whole words."""
        for phrase in self._phrases:
            if not tail.startswith(phrase) or not is_boundary(before, phrase[0]):
                continue
            after = tail[len(phrase) : len(phrase) + 1]
            # A conversion such as %d may be followed by letters, often a unit.
            if (after or ended) and (phrase[0] == "%" or is_boundary(phrase[-1], after)):
                return phrase
        return ""

    def _counted(self, counts: tuple[int, ...], phrase: str) -> tuple[int, ...] | None:
        """Return the counts after one more occurrence; None: it must not occur."""
        units = self._units_of.get(phrase, [])
        for i in units:
            if counts[i] < self._units[i].need:
                return (*counts[:i], counts[i] + 1, *counts[i + 1 :])
        return None if all(self._units[i].exact for i in units) else counts

    def _unmet(self, counts: tuple[int, ...]) -> list[tuple[_Unit, int]]:
        """Return the units with missing occurrences, and the number of these."""
        pairs = zip(self._units, counts, strict=True)
        return [(unit, unit.need - count) for unit, count in pairs if count < unit.need]

    def _is_blocked(self, written: Written) -> bool:
        """Whether the tail is, or begins to repeat, a text that must not be written."""
        counts, before, tail, _ = written
        if not tail or not is_boundary(before, tail[0]):
            return False
        if any(
            phrase.startswith(tail) and (len(phrase) > len(tail) or missing)
            for unit, missing in self._unmet(counts)
            for phrase in unit.phrases
        ):
            return False
        if any(_is_most_of(tail, phrase) for phrase in self._forbidden):
            return True
        # A copied text that is complete must not begin again, if its start cannot be another word.
        distinct = not all(map(is_letter, tail)) and (len(tail) > 1 or tail in "{<")
        return any(
            tail == phrase or (distinct and phrase.startswith(tail))
            for unit in self._units
            if unit.exact
            for phrase in unit.phrases
        )

    def _standing(self, written: Written) -> Standing:
        unmet = self._unmet(self._ended(written))
        missing = sum(count for _, count in unmet)
        need = sum(unit.tokens * count for unit, count in unmet)
        saved = []
        for unit, phrase in self._begun(written):
            rest = self._rest(phrase, len(written.tail))
            # A phrase that is begun needs fewer tokens than a new one.
            saved.append(unit.tokens - len(rest) if rest else 0)
        # An unfinished word must end before another phrase begins.
        least = min([need + written.joined, *(need - tokens for tokens in saved)])
        return Standing(self.size - missing, bool(saved), least, need)

    def _ended(self, written: Written) -> tuple[int, ...]:
        """Return the counts if the sentence ended here."""
        ended = self._resolved(written, ended=True)
        return written.counts if ended is None else ended.counts

    def _begun(self, written: Written) -> list[tuple[_Unit, str]]:
        """Return the unmet phrases that begin with the tail, or with a space that is a separate token."""
        tail, before = written.tail, written.before
        if (tail and not is_boundary(before, tail[0])) or (not tail and before != " "):
            return []
        return [
            (unit, phrase)
            for unit, _ in self._unmet(self._ended(written))
            for phrase in unit.phrases
            if len(phrase) > len(tail) and phrase.startswith(tail) and (tail or 0 in self._rests[phrase])
        ]

    def _offers(self, written: Written) -> tuple[int, ...]:
        place = len(written.tail)
        tokens: list[int] = []
        for _, phrase in self._begun(written):
            tokens += self._rest(phrase, place)[:1]
        last = written.tail[-1:] or written.before
        for unit, _ in self._unmet(self._ended(written)):
            for phrase in unit.phrases:
                tokens += self._openings(phrase, last, written.joined)
        return tuple(dict.fromkeys(tokens))

    def _openings(self, phrase: str, last: str, joined: bool) -> Sequence[int]:
        """Return the tokens with which a phrase may begin after the character `last`."""
        if joined and not is_boundary(last, phrase[0]):
            return []
        spaced = self._paths[phrase]
        if last == " ":
            return spaced[1:2] if self._spelling.of(spaced[0])[0] == " " else spaced[:1]
        unspaced = last.isalnum() and not is_letter(last)
        if not last or not (last in _OPENING or unspaced):
            return spaced[:1]
        within = (self._spelling.encoded_within(phrase, last) or [])[:1]
        return within if unspaced and not is_letter(phrase[0]) and within else [*spaced[:1], *within]

    def _rest(self, phrase: str, place: int) -> Sequence[int]:
        """Return the tokens that complete a phrase after `place` characters; empty: unknown."""
        rests = self._rests[phrase]
        if place not in rests:
            rest, spelling = phrase[place:], self._spelling
            within = not rest.startswith(" ")
            tokens = spelling.encoded_within(rest, phrase[place - 1]) if within else spelling.encoded(rest)
            rests[place] = tokens or ()
        return rests[place]


def _is_most_of(tail: str, phrase: str) -> bool:
    """Whether a text is a complete phrase, or covers most of its last word: 2/3 and at least 3 letters."""
    if not phrase.startswith(tail):
        return False
    last = len(phrase) - phrase.rfind(" ") - 1
    written = last - (len(phrase) - len(tail))
    return written == last or written >= max(3, 2 * last / 3)
