"""Word links of the controlled corpus: which German words stand for which English ones, by rule.

The generator knows what fills a slot on both sides, and a short table says the rest. As in gold alignments
made by people (Och and Ney 2003, section 5), a link is *sure* or, where a phrase stands for a phrase or a
word for an auxiliary, *possible*; every sure link is possible, too. Known for the word order of German main
clauses alone.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from string import Formatter
from typing import Final, Literal

from cotext.data.controlled.contrast import planned_documents
from cotext.data.controlled.discourse import Sentence
from cotext.data.documents import ParallelDocument

Span = tuple[int, int]

# German words of frames and what they stand for: sure ones, then behind ~ possible ones.
_WORDS: Final = """
war was~there | waren were,was | sehr very | wieder again | nie never | heute today | warum why | so so
noch still | vielleicht perhaps | aber but | nicht not~did | weil because | und and | als than | für for
alles everything | neu new | die the | alle everyone | niemand nobody | stolz proud
auf ~of,for,at | leider unfortunately | wirklich really | zu too~late,visible | später later
zuerst first~at | kaum barely | sehen visible | jahrelang years~for | vergessen forgotten
den ~at,first,glance | ersten first | blick glance | von of,from | weitem afar | sogar even | im in~the
dunkeln dark | bis until | dahin then | hatte had | bemerkt noticed | dann then | direkt right
vor front~in,of | schließlich finally | gestern yesterday | mit with,to | auch too,so | spricht talking~is
reist travelling~is | sitzt sitting~is | neben next~to | trinkt drinking~is | tee tea | helfen help
warten wait | suchte looking~was,for | kann can | wo where | ist is | viel much | deutsch german | zeit time
was about~what | betrifft ~about | recht right | immer always | spät late
"""
# The same of what fills a slot, by slot and form, and what is linked to words of the frame.
_FORMS: Final = """
t.der the | t.den the | t.ein a,an | t.einen a,an | p.er he,she | o.er it | o.ihn it | w.aux did
w.aux_plural did | w.participle ~did | y.du you | y.dich you~for | y.dir you | y.dein your | y.deine your
y.bist are | y.kennst know~do | y.kannst can | y.musst must | y.hast have~do | y.hattest were
y.kommst are | y.arbeitest work | y.wohnst live~do | y.sprichst speak~do | y.lachst laughing~are
y.hältst think~do
"""
_TOKEN: Final = re.compile(r"\w+|[^\w\s]")


def _table(text: str) -> dict[str, tuple[list[str], list[str]]]:
    rows = (entry.split() for line in text.strip().splitlines() for entry in line.split("|"))
    found = {}
    for name, words in rows:
        sure, _, possible = words.partition("~")
        found[name] = ([w for w in sure.split(",") if w], [w for w in possible.split(",") if w])
    return found


_OF_WORD: Final = _table(_WORDS)
_OF_FORM: Final = _table(_FORMS)


@dataclass(frozen=True, slots=True)
class WordLinks:
    """The words and marks of a sentence on both sides, and the pairs of them (source, target) that belong.

    `sure` is a part of `possible`, `content` the source words of the lexicon; numbers count words.
    """

    source: tuple[Span, ...]
    target: tuple[Span, ...]
    sure: frozenset[tuple[int, int]]
    possible: frozenset[tuple[int, int]]
    content: frozenset[int]


@dataclass(frozen=True, slots=True)
class _Word:
    text: str  # in small letters
    span: Span
    slot: str = ""  # and its form, as in "p.nom"; empty: a word of the frame
    last: bool = True  # of what fills the slot


def _words(template: str, sentence: Sentence) -> list[_Word]:
    """The words of a side; parts that are written together are one word, of the slot of the first."""
    text, slots = "", []
    for literal, field, _, _ in Formatter().parse(template):
        text += literal
        if field:
            slot, form = field.split(".")
            start = len(text)
            text += getattr(sentence.words[slot], form)
            slots.append((start, len(text), field))
    found = []
    for match in _TOKEN.finditer(text):
        filled = next((s for s in slots if s[0] <= match.start() < s[1]), (0, 0, ""))
        rest = text[match.end() : filled[1]].strip()
        found.append(_Word(match[0].lower(), match.span(), filled[2], not rest))
    return found


def word_links(sentence: Sentence) -> WordLinks:
    """The links of a sentence and its translation."""
    english, german = _words(sentence.frame.english, sentence), _words(sentence.frame.german, sentence)
    sure: set[tuple[int, int]] = set()
    possible: set[tuple[int, int]] = set()
    for j, word in enumerate(german):
        for i, is_sure in _partners(english, german, j):
            possible.add((i, j))
            if is_sure:
                sure.add((i, j))
        if not word.text.isalnum():
            sure.update((i, j) for i, other in enumerate(english) if other.text == word.text)
    return WordLinks(
        tuple(word.span for word in english),
        tuple(word.span for word in german),
        frozenset(sure),
        frozenset(sure | possible),
        frozenset(i for i, word in enumerate(english) if word.slot and word.last),
    )


def _partners(english: list[_Word], german: list[_Word], j: int) -> Iterator[tuple[int, bool]]:
    """The source words that a target word stands for, and whether that is sure."""
    word = german[j]
    named = _OF_FORM.get(word.slot) or (None if word.slot else _OF_WORD.get(word.text))
    if named is not None:
        # The how manyth of its kind it is decides where the source has several.
        rank = sum(_same(other, word) for other in german[:j])
        for is_sure, names in ((True, named[0]), (False, named[1])):
            found = [i for i, other in enumerate(english) if other.text in names and _free(other, word)]
            if found:
                near = [found[min(rank, len(found) - 1)]] if is_sure else found
                yield from ((i, is_sure) for i in near)
        return
    if not word.slot:
        return
    letter, form = word.slot.split(".")
    own = [i for i, other in enumerate(english) if other.slot in (f"{letter}.en", f"{letter}.a_en")]
    if form == "aux":  # of the perfect: the verb has it in its form
        yield from ((i, False) for i in own)
        return
    own = [i for i in own if english[i].text not in ("a", "an") or not english[i].slot.endswith("a_en")]
    length = sum(other.slot == word.slot for other in german)
    place = [i for i, other in enumerate(german) if other.slot == word.slot].index(j)
    for k, i in enumerate(own):
        if length != len(own) or letter not in "pqsl":
            yield i, word.last and english[i].last
        elif k == place:  # article and noun of both
            yield i, True


def _same(one: _Word, other: _Word) -> bool:
    return (one.slot == other.slot) if one.slot else (one.text == other.text and not other.slot)


def _free(source: _Word, word: _Word) -> bool:
    """Whether a source word is of the frame, or an article that its slot brings along."""
    return not source.slot or source.slot.endswith(("a_en", ".he"))


def linked_documents(
    split: Literal["development", "test"], documents: int, seed: int
) -> Iterator[tuple[ParallelDocument, tuple[WordLinks, ...]]]:
    """The first documents of a split with the gold alignment of each of their sentences."""
    for name, plan in planned_documents(split, documents, seed):
        document = ParallelDocument(name, plan.source(), plan.target("verb-second"))
        yield document, tuple(word_links(sentence) for sentence in plan.sentences)
