"""The controlled corpus read by a reader of its own: with the generator's words, not with its grammar."""

import hashlib
import re
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import islice

import pytest

from cotext.data import controlled
from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite, read_suite, write_suite
from cotext.data.controlled import lexicon
from cotext.data.controlled.lexicon import ordered


def words(sentence: str) -> list[str]:
    return re.findall(r"\w+", sentence)


NOUNS = {thing.en: (thing.de, thing.gender) for thing in lexicon.THINGS}
# (gender, case): definite article, indefinite article, ending of an adjective after the latter, pronoun.
FORMS = {
    ("m", "nominative"): ("der", "ein", "er", "er"), ("m", "accusative"): ("den", "einen", "en", "ihn"),
    ("f", "nominative"): ("die", "eine", "e", "sie"), ("f", "accusative"): ("die", "eine", "e", "sie"),
    ("n", "nominative"): ("das", "ein", "es", "es"), ("n", "accusative"): ("das", "ein", "es", "es"),
}  # fmt: skip
ACTIVITIES = {verb.en: f"{verb.aux} {verb.participle}" for verb in lexicon.ACTIVITIES}
OTHER_EVENTS = set(
    words("bought sold found repaired cleaned lost hid needed photographed carried noticed discovered saw")
)
HEROES = {
    one.en.removeprefix("the "): tuple(person.nom.removeprefix("der ") for person in (one, other))
    for one, other in lexicon.HEROES
}
PEOPLE = {person.en for person in lexicon.PEOPLE}
STATEMENT = re.compile(
    r"(\w+) is (?:talking to|travelling with|sitting next to|drinking tea with) (\w+) \w+\."
)
FAMILIAR, FORMAL = ({*address[:5]} for address in (lexicon.FAMILIAR, lexicon.FORMAL))
FAMILIAR_VERBS, FORMAL_VERBS = ({*address[5:]} for address in (lexicon.FAMILIAR, lexicon.FORMAL))
CHANCE = {"pronoun": 3, "register": 2, "ellipsis": 3, "cohesion": 2, "cataphora": 3}
DISTANCES = {
    "pronoun": {0, 1, 2, 3, 4, 5},
    "register": {1, 2, 3, 4, 5, 6},
    "ellipsis": {1, 2, 3},
    "cohesion": {1, 2, 3, 4},
    "cataphora": {-1},
}


def faults(source: tuple[str, ...], target: tuple[str, ...]) -> list[str]:
    """Everything in a document that a reader of both languages would call wrong; empty where all is right."""
    return [
        *noun_phrase_faults(source, target),
        *pronoun_faults(source, target),
        *register_faults(source, target),
        *ellipsis_faults(source, target),
        *cohesion_faults(source, target),
    ]


def noun_phrase_faults(source: tuple[str, ...], target: tuple[str, ...]) -> list[str]:
    found = []
    for english, german in zip(source, target, strict=True):
        things = [word for word in words(english) if word in NOUNS]
        if len(things) > 1:
            found.append(f"two things in one sentence: {english}")
        for thing in things:
            noun, gender = NOUNS[thing]
            phrase = re.search(rf"\b(the|an?) (?:(\w+) )?{thing}\b", english, re.IGNORECASE)
            assert phrase, english
            is_subject = re.search(rf"^There was |\b{thing} was\b", english)
            definite, indefinite, ending, _ = FORMS[gender, "nominative" if is_subject else "accusative"]
            if phrase[1].lower() == "the":
                expected = rf"\b{definite} {noun}\b"
            else:
                expected = rf"\b{indefinite} " + (rf"\w+{ending} " if phrase[2] else "") + rf"{noun}\b"
            if not re.search(expected, german[0].lower() + german[1:]):
                found.append(f"noun phrase: {english} / {german}")
    return found


def pronoun_faults(source: tuple[str, ...], target: tuple[str, ...]) -> list[str]:
    found = []
    last_thing = None
    for index, (english, german) in enumerate(zip(source, target, strict=True)):
        tokens = words(english)
        here = [word for word in tokens if word in NOUNS]
        last_thing = here[-1] if here else last_thing
        if "it" not in (token.lower() for token in tokens):
            continue
        antecedent = last_thing
        if antecedent is None:  # nothing mentioned so far: it announces the thing of the next sentence
            after = [word for text in source[index + 1 : index + 2] for word in words(text) if word in NOUNS]
            if not after:
                found.append(f"it without antecedent: {english}")
                continue
            antecedent = after[0]
        case = "accusative" if english.endswith(" it.") else "nominative"
        pronouns = [token.lower() for token in words(german) if token.lower() in {"er", "sie", "es", "ihn"}]
        if pronouns != [FORMS[NOUNS[antecedent][1], case][3]]:
            found.append(f"pronoun for {antecedent}: {english} / {german}")
    return found


def register_faults(source: tuple[str, ...], target: tuple[str, ...]) -> list[str]:
    found = []
    statements = [(index, match) for index, text in enumerate(source) if (match := STATEMENT.fullmatch(text))]
    if len(statements) > 1 or any(index > 1 for index, _ in statements):
        found.append("the statement is not made once at the beginning")
    for index, (english, german) in enumerate(zip(source, target, strict=True)):
        if not {"you", "your"} & {token.lower() for token in words(english)}:
            continue
        if not statements or statements[0][0] >= index:
            found.append(f"nobody is spoken to: {english}")
            continue
        familiar = statements[0][1][2] in {"her", "his"}
        tokens = words(german)
        lowered = {token.lower() for token in tokens}
        has_familiar = bool(FAMILIAR & lowered) and not FORMAL & set(tokens) and not FORMAL_VERBS & lowered
        has_formal = bool(FORMAL & set(tokens)) and not FAMILIAR & lowered and not FAMILIAR_VERBS & lowered
        if (has_familiar, has_formal) != (familiar, not familiar):
            found.append(f"register: {english} / {german}")
    for index, match in statements:
        if any(match[1] in words(text) for text in source[index + 1 :]):
            found.append(f"the speaker {match[1]} speaks of themselves by name")
    return found


def ellipsis_faults(source: tuple[str, ...], target: tuple[str, ...]) -> list[str]:
    found = []
    last_event = None
    actors: set[str] = set()
    for english, german in zip(source, target, strict=True):
        tokens = words(english)
        verbs = [token for token in tokens if token in ACTIVITIES or token in OTHER_EVENTS]
        if verbs:
            last_event, actors = verbs[0], PEOPLE & set(tokens)
        if "did" not in tokens:
            continue
        if last_event not in ACTIVITIES:
            found.append(f"{english} refers to {last_event}")
            continue
        if actors & set(tokens):
            found.append(f"the same person again: {english}")
        auxiliary, participle = ACTIVITIES[last_event].split()
        if re.search(r" and |^The ", english):
            auxiliary = {"hat": "haben", "ist": "sind"}[auxiliary]
        if not german.endswith(f" {participle}.") or f" {auxiliary} " not in german:
            found.append(f"ellipsis of {last_event}: {english} / {german}")
    return found


def cohesion_faults(source: tuple[str, ...], target: tuple[str, ...]) -> list[str]:
    used = defaultdict(set)
    found = []
    for english, german in zip(source, target, strict=True):
        for hero in set(words(english)) & HEROES.keys():
            renderings = set(HEROES[hero]) & set(words(german))
            if len(renderings) != 1:
                found.append(f"{hero} is missing: {english} / {german}")
            used[hero] |= renderings
    return found + [f"{hero} is {sorted(forms)}" for hero, forms in used.items() if len(forms) > 1]


@pytest.fixture(scope="module")
def training() -> list:
    return list(controlled.training_documents(4000, 0))


@pytest.fixture(scope="module")
def suites() -> list[ContrastiveSuite]:
    return controlled.contrastive_suites(5, 240)


def phenomenon(suite: ContrastiveSuite) -> str:
    return suite.name.removeprefix("controlled/")


def current(example: ContrastiveExample) -> int:
    (index,) = example.differing_sentences
    return index


def test_every_document_is_right_of_four_to_twelve_sentences_and_repeatable(training):
    assert [(d.id, f) for d in training for f in faults(d.source, d.target)] == []
    assert {len(document) for document in training} == set(range(4, 13))
    for document in training:
        assert all(
            text and text[0].isupper() and text[-1] in ".?" for text in (*document.source, *document.target)
        )
        assert not any("  " in text or "{" in text for text in (*document.source, *document.target))
    assert list(controlled.training_documents(7, 0)) == training[:7]
    assert [d.source for d in controlled.training_documents(7, 1)] != [d.source for d in training[:7]]
    assert len({document.id for document in training}) == len(training)
    assert len(list(islice(controlled.training_documents(10**12, 0), 3))) == 3
    assert list(controlled.training_documents(0, 0)) == []


def test_the_reader_notices_what_is_wrong():
    source = ("Anna is talking to her aunt.", "The lamp was old.", "It was heavy.", "Are you ill?")
    target = ("Anna spricht mit ihrer Tante.", "Die Lampe war alt.", "Sie war schwer.", "Bist du krank?")
    assert faults(source, target) == []
    for place, wrong in enumerate(["", "Der Lampe war alt.", "Er war schwer.", "Sind Sie krank?"]):
        if wrong:
            assert len(faults(source, (*target[:place], wrong, *target[place + 1 :]))) == 1
    assert faults(("Tom sang.", "Eve did too."), ("Tom hat gesungen.", "Eva hat auch getanzt."))
    assert faults(("Tom sang.", "Eve sold a hat.", "Paul did too."), ("", "Eva verkaufte einen Hut.", ""))
    assert faults(("Jane was sad.", "Jane was ill."), ("Jane war traurig.", "Johanna war krank."))


def test_the_text_of_a_seed_is_fixed():
    """When this fails on purpose: raise VERSION and take the new digest from the message."""
    digest = hashlib.sha256()
    for document in controlled.training_documents(100, 0):
        digest.update("\n".join((document.id, *document.source, *document.target, "")).encode())
    expected = "577ef9cb802716b106f5575d1f29ca80c7f7313145cc0ca97a91259652089946"
    assert (controlled.VERSION, digest.hexdigest()) == (3, expected)
    digest = hashlib.sha256()
    for suite in controlled.contrastive_suites(0, 20):
        digest.update(repr([(e.id, e.source, e.candidates, e.correct) for e in suite.examples]).encode())
    assert digest.hexdigest() == "344e7e4d08ed8ab80c23c5588dd961a58d1416d8de44119eb749e25e07b3007a"


def test_no_source_document_can_be_in_two_splits(training, suites):
    development = list(controlled.held_out_documents("development", 0))
    test = list(controlled.held_out_documents("test", 0))
    assert (len(development), len(test)) == (200, 400)
    examples = [example for suite in suites for example in suite.examples]
    splits = {"training": training, "development": development, "test": test, "contrastive": examples}
    for split, documents in splits.items():
        assert {controlled.split_of(document.source) for document in documents} == {split}
    assert [f for d in (*development, *test) for f in faults(d.source, d.target)] == []


def test_an_oracle_that_reads_the_whole_document_is_always_right(suites):
    for suite in suites:
        for example in suite.examples:
            right = [
                n for n, candidate in enumerate(example.candidates) if not faults(example.source, candidate)
            ]
            assert right == [example.correct], example.id


def test_the_distance_is_the_way_to_the_only_clue(suites):
    """Every other sentence is the same in all members of a group, and the clue is where the distance says."""
    for suite in suites:
        groups = defaultdict(list)
        for example in suite.examples:
            groups[example.id.rpartition("-")[0]].append(example)
        for members in groups.values():
            assert len(members) == CHANCE[phenomenon(suite)]
            clue = current(members[0]) - members[0].distance
            texts = [tuple(zip(e.source, e.candidates[e.correct], strict=True)) for e in members]
            differing = {i for i, column in enumerate(zip(*texts, strict=True)) if len(set(column)) > 1}
            assert differing == {clue, current(members[0])}


def best_accuracy(examples, visible) -> float:
    """The highest accuracy that any choice made from ``visible(example)`` alone can reach."""
    answers = defaultdict(Counter)
    for example in examples:
        answers[visible(example)][example.correct] += 1
    return sum(max(counts.values()) for counts in answers.values()) / len(examples)


def current_sentence(example):
    place = current(example)
    return example.source[place], tuple(candidate[place] for candidate in example.candidates)


def all_but_the_clue(example):
    clue = current(example) - example.distance
    keep = [place for place in range(len(example.source)) if place != clue]
    return (
        tuple(example.source[place] for place in keep),
        tuple(tuple(candidate[place] for place in keep) for candidate in example.candidates),
    )


def up_to_current(example):
    stop = current(example) + 1
    return example.source[:stop], tuple(candidate[:stop] for candidate in example.candidates)


# What does not help in these.
SEEN = {"cataphora": [up_to_current], "cohesion": [lambda e: (e.source, current_sentence(e))]}


def test_nothing_but_the_clue_gives_more_than_chance(suites):
    """So a window that leaves the clue out, however long it is, can't do better than guess."""
    for suite in suites:
        outside = [e for e in suite.examples if e.distance != 0]
        for visible in (current_sentence, all_but_the_clue, *SEEN.get(phenomenon(suite), ())):
            chance = pytest.approx(1 / CHANCE[phenomenon(suite)], abs=1e-12)
            assert best_accuracy(outside, visible) == chance
        # The same without regard to the order of the candidates: each text is right equally often.
        answers = defaultdict(Counter)
        for example in outside:
            source, candidates = current_sentence(example)
            answers[source, frozenset(candidates)][candidates[example.correct]] += 1
        for (_, candidates), counts in answers.items():
            assert counts.keys() == candidates
            assert len(set(counts.values())) == 1


def test_suites_are_balanced_and_repeatable(suites, tmp_path):
    assert [suite.name for suite in suites] == [f"controlled/{name}" for name in CHANCE]
    for suite in suites:
        name, chance = phenomenon(suite), CHANCE[phenomenon(suite)]
        assert (suite.source_language, suite.target_language) == ("en", "de")
        assert len(suite.examples) >= 240
        assert {(e.phenomenon, len(e.candidates)) for e in suite.examples} == {(name, chance)}
        label = {"pronoun": "pronoun", "cataphora": "pronoun", "register": "register"}.get(name)
        # Equally many of every distance, of every place of the right candidate and of every label.
        kinds = Counter((e.distance, e.correct, label and e.tags[label]) for e in suite.examples)
        assert {distance for distance, _, _ in kinds} == DISTANCES[name]
        for key in ((0,), (0, 1), (0, 2)) if label else ((0,), (0, 1)):
            counts = Counter()
            for kind, count in kinds.items():
                counts[tuple(kind[i] for i in key)] += count
            assert len(counts) == len(DISTANCES[name]) * chance ** (len(key) - 1)
            assert len(set(counts.values())) == 1
    assert {current(e) for suite in suites for e in suite.examples} == set(range(12))
    assert controlled.contrastive_suites(5, 240) == suites
    assert controlled.contrastive_suites(6, 20)[0].examples[0].source != suites[0].examples[0].source
    write_suite(tmp_path / "suite.json", suites[0])
    assert read_suite(tmp_path / "suite.json") == suites[0]


@pytest.mark.parametrize("order", ["verb-final", "reversed"])
def test_another_word_order_moves_target_words_and_nothing_else(training, suites, order):
    moved = 0
    streams = zip(training[:300], controlled.training_documents(300, 0, order), strict=True)
    for usual, other in streams:
        assert (other.id, other.source) == (usual.id, usual.source)
        for here, there in zip(usual.target, other.target, strict=True):
            assert (there[0].isupper(), there[-1]) == (True, here[-1])
            assert sorted(words(here.lower())) == sorted(words(there.lower()))
            moved += here != there
    assert moved > 0.7 * sum(len(document) for document in training[:300])
    for usual, other in zip(suites, controlled.contrastive_suites(5, 240, order), strict=True):
        for here, there in zip(usual.examples, other.examples, strict=True):
            assert replace(there, candidates=here.candidates) == here  # distances, tags, the right one
            assert there.differing_sentences == here.differing_sentences
            assert len(set(there.candidates)) == CHANCE[phenomenon(usual)]


def test_sentences_in_every_order():
    """The examples of docs/controlled-corpus.md."""
    templates = "Später {f.de} {p.nom} {o.ihn}.", "{p.nom} war {a.de}, aber {p.er} war nicht {b.de}."
    names = ("f.de", "p.nom", "o.ihn", "a.de", "p.er", "b.de")
    slots = dict(zip(names, ("verlor", "Peter", "es", "traurig", "er", "krank"), strict=True))
    for order, *expected in (
        ("verb-second", "Später verlor Peter es.", "Peter war traurig, aber er war nicht krank."),
        ("verb-final", "Später Peter es verlor.", "Peter traurig war, aber er nicht krank war."),
        ("reversed", "Es Peter verlor später.", "Krank nicht war er aber, traurig war Peter."),
    ):
        for template, sentence in zip(templates, expected, strict=True):
            text = re.sub(r"{([a-z.]+)}", lambda slot: slots[slot[1]], ordered(template, order))
            assert text[0].upper() + text[1:] == sentence


def test_more_mentions_of_the_hero_are_more_choices_of_cohesion():
    usual, more = [], []
    for counts, mentions in ((usual, None), (more, 5)):
        for document in controlled.training_documents(400, 0, mentions=mentions):
            assert faults(document.source, document.target) == []
            counts.append(sum(len(set(words(text)) & HEROES.keys()) for text in document.source))
    assert max(usual) == 3
    assert max(more) == 5
    assert sum(more) > 3 * sum(usual)
