"""Contrastive suites whose current sentence says nothing about the right candidate.

Examples come in groups. A group is one planned document in which one clue has exactly one dependent choice.
Its members differ in the clue alone, each making another candidate right, and all of them list the same
candidates for the current sentence in the same order. So whatever a scorer does with the current sentence, it
is right for exactly one member of each group: chance, exactly.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite
from cotext.data.controlled import lexicon
from cotext.data.controlled.discourse import CandidateSet, Draw, Phenomenon, Plan, Sentence, plan_document
from cotext.data.controlled.lexicon import WordOrder
from cotext.data.documents import ParallelDocument
from cotext.runtime.errors import CotextError

# --- Streams of documents that can't overlap: the text of a source decides to which split it may belong.

# Changes whenever the text generated for a seed changes.
VERSION: Final = 3
# Training documents.
SIZES: Final = {"small": 10_000, "medium": 100_000, "large": 1_000_000}
DEVELOPMENT_DOCUMENTS: Final = 200
TEST_DOCUMENTS: Final = 400

Split = Literal["training", "development", "test", "contrastive"]
# Sixteen buckets of documents: training gets 12, the contrastive suites 2 (they need several documents of
# one kind at once), development and test 1 each.
_SPLIT_OF_BUCKET: Final[tuple[Split, ...]] = (
    *("contrastive", "contrastive"),
    *("development", "test"),
    *("training",) * 12,
)


def split_of(source: Sequence[str]) -> Split:
    """The only split in which this source document may occur, whatever the seeds."""
    return _SPLIT_OF_BUCKET[zlib.crc32("\n".join(source).encode()) & 15]


def _documents(
    split: Split, documents: int, seed: int, order: WordOrder, mentions: int | None = None
) -> Iterator[ParallelDocument]:
    if documents < 0:
        raise CotextError(f"controlled corpus: {documents} documents asked for; give a number from 0 up")
    for name, plan in planned_documents(split, documents, seed, mentions):
        yield ParallelDocument(name, plan.source(), plan.target(order))


def planned_documents(
    split: Split, documents: int, seed: int, mentions: int | None = None
) -> Iterator[tuple[str, Plan]]:
    """The names and plans of the first documents of a split; `mentions`: see `training_documents`."""
    for index in range(documents):
        draw = Draw(split, seed, index)
        plan = plan_document(draw, mentions)
        source = plan.source()
        while split_of(source) != split:
            plan = plan_document(draw, mentions)
            source = plan.source()
        yield f"{split}-{seed}-{index}", plan


def training_documents(
    documents: int, seed: int, order: WordOrder = "verb-second", mentions: int | None = None
) -> Iterator[ParallelDocument]:
    """Stream the training documents; document i depends on (seed, i) alone, so a longer stream begins alike.

    With ``mentions`` every document has a hero, who is mentioned so often, as far as there is room: more
    choices of cohesion than the other splits have, which are the same whatever it is.

    Raises CotextError where ``mentions`` is less than 2, and where ``documents`` is negative, at the first
    document.
    """
    if mentions is not None and mentions < 2:
        raise CotextError(f"controlled corpus: {mentions} mentions of a hero; give a number from 2 up")
    return _documents("training", documents, seed, order, mentions)


def development_documents(seed: int, order: WordOrder = "verb-second") -> Iterator[ParallelDocument]:
    """Stream 200 documents, none of which can occur in training, test or the contrastive suites."""
    return _documents("development", DEVELOPMENT_DOCUMENTS, seed, order)


def test_documents(
    seed: int,
    order: WordOrder = "verb-second",  # noqa: PT028 (no test, whatever its name)
) -> Iterator[ParallelDocument]:
    """Stream 400 documents, none of which can occur in training, development or the contrastive suites."""
    return _documents("test", TEST_DOCUMENTS, seed, order)


DISTANCES: Final[Mapping[Phenomenon, tuple[int, ...]]] = {
    "pronoun": (0, 1, 2, 3, 4, 5),
    "register": (1, 2, 3, 4, 5, 6),
    "ellipsis": (1, 2, 3),
    "cohesion": (1, 2, 3, 4),
    "cataphora": (-1,),
}
# Candidates in each example; chance is one over it.
CANDIDATES: Final[Mapping[Phenomenon, int]] = {
    "pronoun": 3,
    "register": 2,
    "ellipsis": 3,
    "cohesion": 2,
    "cataphora": 3,
}
# The slot of the clue and the slot of the choice.
_SLOTS: Final[Mapping[Phenomenon, tuple[str, str]]] = {
    "pronoun": ("t", "o"),
    "register": ("l", "y"),
    "ellipsis": ("v", "w"),
    "cohesion": ("p", "p"),
    "cataphora": ("t", "o"),
}

# A word in the clue's slot, the word it asks for in the choice's slot, the label of the candidate.
Alternative = tuple[object, object, str]


def contrastive_suites(seed: int, examples: int, order: WordOrder = "verb-second") -> list[ContrastiveSuite]:
    """One suite for each phenomenon, with at least ``examples`` examples each.

    The number is rounded up until every distance has as many whole groups as the others. An id is made of
    phenomenon, group and member. Raises CotextError where ``examples`` is not positive.
    """
    if examples < 1:
        raise CotextError(f"contrastive suites: {examples} examples asked for; give a number from 1 up")
    return [_suite(phenomenon, seed, examples, order) for phenomenon in DISTANCES]


def _suite(phenomenon: Phenomenon, seed: int, examples: int, order: WordOrder) -> ContrastiveSuite:
    distances = DISTANCES[phenomenon]
    rounds = -(-examples // (len(distances) * CANDIDATES[phenomenon]))
    members: list[ContrastiveExample] = []
    for group in range(rounds * len(distances)):
        draw = Draw(f"contrastive {phenomenon}", seed, group)
        members += _group(draw, phenomenon, distances[group % len(distances)], group, order)
    return ContrastiveSuite(f"controlled/{phenomenon}", "en", "de", tuple(members))


def _group(
    draw: Draw, phenomenon: Phenomenon, distance: int, group: int, order: WordOrder
) -> list[ContrastiveExample]:
    """Draw documents until one has what is asked for, and make a group of it."""
    while True:
        plan = plan_document(draw)
        choices = [choice for choice in _lone_choices(plan, phenomenon) if choice.distance == distance]
        if not choices:
            continue
        choice = draw.choose(choices)
        alternatives = _alternatives(draw, plan, choice)
        if alternatives is not None:
            return _members(plan, choice, draw.shuffled(alternatives), group, order)


def _lone_choices(plan: Plan, phenomenon: Phenomenon) -> list[CandidateSet]:
    """The choices whose clue no other choice depends on: no other sentence may give the answer away."""
    kind = [choice for choice in plan.choices if choice.phenomenon == phenomenon]
    clues = [choice.clue for choice in plan.choices if _SLOTS[choice.phenomenon] == _SLOTS[phenomenon]]
    return [choice for choice in kind if clues.count(choice.clue) == 1]


def _alternatives(draw: Draw, plan: Plan, choice: CandidateSet) -> list[Alternative] | None:
    """One alternative for each candidate, such that each document belongs to the contrastive split."""
    chosen: list[Alternative] = []
    for pool in _pools(draw, plan, choice):
        taken = {label for _, _, label in chosen}
        for alternative in pool:
            if (
                alternative[2] not in taken
                and split_of(_with_clue(plan, choice, alternative).source()) == "contrastive"
            ):
                chosen.append(alternative)
                break
        else:
            return None
    return chosen


def _pools(draw: Draw, plan: Plan, choice: CandidateSet) -> list[list[Alternative]]:
    """For each candidate the alternatives that would do, in random order."""
    match choice.phenomenon:
        case "pronoun" | "cataphora":
            things = [draw.shuffled(lexicon.THINGS_BY_GENDER[gender]) for gender in lexicon.GENDERS]
            return [[(thing, thing, thing.er) for thing in of_gender] for of_gender in things]
        case "register":
            speaker = plan.sentences[choice.clue].words["s"]
            assert isinstance(speaker, lexicon.Person)
            tables = (lexicon.FAMILIAR_LISTENERS[speaker.he], lexicon.FORMAL_LISTENERS[speaker.he])
            listeners = [draw.shuffled(table) for table in tables]
            return [[(each, each.address, each.address.du) for each in table] for table in listeners]
        case "ellipsis":
            activities = draw.shuffled(lexicon.ACTIVITIES)
            pool: list[Alternative] = [(verb, verb, verb.participle) for verb in activities]
            return [pool] * CANDIDATES["ellipsis"]
        case "cohesion":
            hero = plan.sentences[choice.clue].words["p"]
            pair = next(each.renderings for each in lexicon.HEROES if hero in each.renderings)
            return [[(rendering, rendering, rendering.nom)] for rendering in pair]


def _with_clue(plan: Plan, choice: CandidateSet, alternative: Alternative) -> Plan:
    """The plan with another clue, and the choice that it asks for."""
    clue_slot, choice_slot = _SLOTS[choice.phenomenon]
    sentences = list(plan.sentences)
    sentences[choice.clue] = sentences[choice.clue].with_word(clue_slot, alternative[0])
    sentences[choice.index] = sentences[choice.index].with_word(choice_slot, alternative[1])
    return Plan(tuple(sentences), plan.choices)


def _members(
    plan: Plan, choice: CandidateSet, alternatives: Sequence[Alternative], group: int, order: WordOrder
) -> list[ContrastiveExample]:
    """One example for each alternative, which is the right candidate there; the order is the same in all."""
    choice_slot = _SLOTS[choice.phenomenon][1]
    members = []
    for correct, alternative in enumerate(alternatives):
        right = _with_clue(plan, choice, alternative)
        target = right.target(order)
        current: Sentence = right.sentences[choice.index]
        renderings = [current.with_word(choice_slot, other[1]).german(order) for other in alternatives]
        members.append(
            ContrastiveExample(
                id=f"{choice.phenomenon}-{group}-{correct}",
                phenomenon=choice.phenomenon,
                distance=choice.distance,
                source=right.source(),
                candidates=tuple(
                    (*target[: choice.index], rendering, *target[choice.index + 1 :])
                    for rendering in renderings
                ),
                correct=correct,
                tags=_tags(current, choice.phenomenon, alternative[2]),
                document=f"{choice.phenomenon}-{group}",
            )
        )
    return members


def _tags(current: Sentence, phenomenon: Phenomenon, label: str) -> dict[str, str]:
    """What results are worth grouping by: few values each, the same for all phenomena of a kind."""
    match phenomenon:
        case "pronoun" | "cataphora":
            case = "accusative" if "{o.ihn}" in current.frame.german else "nominative"
            return {"pronoun": label, "case": case}
        case "register":
            return {"register": label}
        case "ellipsis":
            return {"verb": label}
        case "cohesion":
            return {"mention": "profession" if " " in label else "name"}
