"""The controlled corpus: generated English-German documents for measuring the use of context.

Its contrastive suites cannot be solved without context. Examples are in groups. A group is one planned
document in which a clue determines exactly one choice. The members of a group differ only in the clue, so in
each member a different candidate is correct. All members have the same candidates for the choice, in the same
order. So a model without context is right for exactly one member of each group, which is chance
accuracy.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite
from cotext.data.controlled import lexicon
from cotext.data.controlled.discourse import ContextChoice, Draw, Phenomenon, Plan, Planner, Sentence
from cotext.data.controlled.lexicon import WordOrder as WordOrder
from cotext.data.documents import ParallelDocument

# --- Disjoint splits: the text of a source determines the only split to which it can belong.

# Increase this version if the text generated for a seed changes.
VERSION: Final = 3
# Training documents.
SIZES: Final = {"small": 10_000, "medium": 100_000, "large": 1_000_000}
HELD_OUT: Final = {"development": 200, "test": 400}

Split = Literal["training", "development", "test", "contrastive"]
# Sixteen buckets of documents: 12 for training, 2 for contrastive suites (which need several documents at
# once), and 1 each for development and test.
_SPLIT_OF_BUCKET: Final[tuple[Split, ...]] = (
    *("contrastive", "contrastive", "development", "test"),
    *("training",) * 12,
)


def split_of(source: Sequence[str]) -> Split:
    """Return the only split in which this source document can occur, for all seeds."""
    return _SPLIT_OF_BUCKET[zlib.crc32("\n".join(source).encode()) & 15]


def _documents(
    split: Split, documents: int, seed: int, order: WordOrder, mentions: int | None = None
) -> Iterator[ParallelDocument]:
    for index in range(documents):
        draw = Draw(split, seed, index)
        plan = Planner(draw, mentions).plan()
        while split_of(plan.source()) != split:
            plan = Planner(draw, mentions).plan()
        yield ParallelDocument(f"{split}-{seed}-{index}", plan.source(), plan.target(order))


def training_documents(
    documents: int, seed: int, order: WordOrder = "verb-second", mentions: int | None = None
) -> Iterator[ParallelDocument]:
    """Yield the training documents. Document i depends only on (seed, i).

    With ``mentions``, every document has a hero who is mentioned this number of times, if there is room. This
    gives more choices of the phenomenon cohesion. It does not change the other splits.
    """
    return _documents("training", documents, seed, order, mentions)


def held_out_documents(
    split: Literal["development", "test"], seed: int, order: WordOrder = "verb-second"
) -> Iterator[ParallelDocument]:
    """Yield the documents of a split, none of which can occur in another split or the contrastive suites."""
    return _documents(split, HELD_OUT[split], seed, order)


class _Kind(NamedTuple):
    """The distances of a phenomenon, its number of candidates, and the slots of the clue and the choice."""

    distances: tuple[int, ...]
    candidates: int
    clue_slot: str
    choice_slot: str


_KINDS: Final[Mapping[Phenomenon, _Kind]] = {
    "pronoun": _Kind((0, 1, 2, 3, 4, 5), 3, "t", "o"),
    "register": _Kind((1, 2, 3, 4, 5, 6), 2, "l", "y"),
    "ellipsis": _Kind((1, 2, 3), 3, "v", "w"),
    "cohesion": _Kind((1, 2, 3, 4), 2, "p", "p"),
    "cataphora": _Kind((-1,), 3, "t", "o"),
}

# A word in the slot of the clue, the word that it requires in the slot of the choice, the candidate's label.
Alternative = tuple[object, object, str]


def contrastive_suites(seed: int, examples: int, order: WordOrder = "verb-second") -> list[ContrastiveSuite]:
    """Return one suite per phenomenon with at least ``examples`` examples.

    The number is rounded up, so every distance has the same number of complete groups. Ids consist of
    phenomenon, group and member.
    """
    suites = []
    for phenomenon, (distances, candidates, *_) in _KINDS.items():
        rounds = -(-examples // (len(distances) * candidates))
        members: list[ContrastiveExample] = []
        for group in range(rounds * len(distances)):
            draw = Draw(f"contrastive {phenomenon}", seed, group)
            members += _group(draw, phenomenon, distances[group % len(distances)], group, order)
        suites.append(ContrastiveSuite(f"controlled/{phenomenon}", "en", "de", tuple(members)))
    return suites


def _group(
    draw: Draw, phenomenon: Phenomenon, distance: int, group: int, order: WordOrder
) -> list[ContrastiveExample]:
    """Draw documents until a document has a suitable choice, and create a group from it."""
    while True:
        plan = Planner(draw).plan()
        choices = [choice for choice in _lone_choices(plan, phenomenon) if choice.distance == distance]
        if not choices:
            continue
        choice = draw.choose(choices)
        alternatives = _alternatives(draw, plan, choice)
        if alternatives is not None:
            return _members(plan, choice, draw.shuffled(alternatives), group, order)


def _lone_choices(plan: Plan, phenomenon: Phenomenon) -> list[ContextChoice]:
    """Return the choices whose clue determines no other choice; another choice would reveal the answer."""
    kind = [choice for choice in plan.choices if choice.phenomenon == phenomenon]
    _, _, *slots = _KINDS[phenomenon]
    clues = [choice.clue for choice in plan.choices if [*_KINDS[choice.phenomenon][2:]] == slots]
    return [choice for choice in kind if clues.count(choice.clue) == 1]


def _alternatives(draw: Draw, plan: Plan, choice: ContextChoice) -> list[Alternative] | None:
    """Return for each candidate an alternative whose document is "contrastive"; None if one is missing."""
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


def _pools(draw: Draw, plan: Plan, choice: ContextChoice) -> list[list[Alternative]]:
    """Return the possible alternatives of each candidate, in random order."""
    match choice.phenomenon:
        case "pronoun" | "cataphora":
            things = [draw.shuffled(of_gender) for of_gender in lexicon.THINGS_BY_GENDER.values()]
            return [[(thing, thing, thing.er) for thing in of_gender] for of_gender in things]
        case "register":
            speaker = plan.sentences[choice.clue].words["s"]
            assert isinstance(speaker, lexicon.Person)
            listeners = [draw.shuffled(table) for table in lexicon.LISTENERS[speaker.he]]
            return [[(person, person.address, person.address.du) for person in table] for table in listeners]
        case "ellipsis":
            activities = draw.shuffled(lexicon.ACTIVITIES)
            pool: list[Alternative] = [(verb, verb, verb.participle) for verb in activities]
            return [pool] * _KINDS["ellipsis"].candidates
        case "cohesion":
            hero = plan.sentences[choice.clue].words["p"]
            pair = next(renderings for renderings in lexicon.HEROES if hero in renderings)
            return [[(rendering, rendering, rendering.nom)] for rendering in pair]


def _with_clue(plan: Plan, choice: ContextChoice, alternative: Alternative) -> Plan:
    """Return the plan with another clue, and the choice that it requires."""
    _, _, clue_slot, choice_slot = _KINDS[choice.phenomenon]
    sentences = list(plan.sentences)
    sentences[choice.clue] = sentences[choice.clue].with_word(clue_slot, alternative[0])
    sentences[choice.index] = sentences[choice.index].with_word(choice_slot, alternative[1])
    return Plan(tuple(sentences), plan.choices)


def _members(
    plan: Plan, choice: ContextChoice, alternatives: Sequence[Alternative], group: int, order: WordOrder
) -> list[ContrastiveExample]:
    """Return one example per alternative, in which it is correct. Candidates keep their order."""
    choice_slot = _KINDS[choice.phenomenon].choice_slot
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
    """Return tags by which results can be grouped; they have few values."""
    if phenomenon == "cohesion":
        return {"mention": "profession" if " " in label else "name"}
    if phenomenon in ("register", "ellipsis"):
        return {"register" if phenomenon == "register" else "verb": label}
    return {"pronoun": label, "case": "accusative" if "{o.ihn}" in current.frame.german else "nominative"}
