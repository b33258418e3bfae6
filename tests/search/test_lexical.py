"""Lexical constraints: against all sequences of a small vocabulary, in every system, in any subwords."""

import gc
import itertools
import random
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytest
import torch

from cotext.config.recipe import load_config
from cotext.data.batch import SpecialSymbols
from cotext.data.documents import Document
from cotext.data.shortlist import Shortlist
from cotext.data.tokenizer import MosesBPETokenizer, SentencePieceTokenizer, TokenizerSettings
from cotext.data.words import occurrences
from cotext.runtime.errors import CotextError
from cotext.search.beam_search import SearchOptions, search
from cotext.search.constraints import SearchRequest, SearchSymbols
from cotext.search.guide import SentenceConstraints
from cotext.search.lexical import SentenceAutomaton, Written
from cotext.search.lexical_search import search_width
from cotext.search.spelling import Spelling
from cotext.translation.translator import DocumentTranslator
from tests.tables import Table, table_source
from tests.tiny import TINY_DECODE, TINY_MODEL, PlainWordTokenizer, random_model, tiny_config

CPU = torch.device("cpu")
# Ids: 0 unknown, 1 to 4 the words, then pad, bos, eos and sep.
WORDS = PlainWordTokenizer(["four"])
SPELLING = Spelling(WORDS)
SYMBOLS = SearchSymbols(SpecialSymbols(WORDS.pad, WORDS.bos, WORDS.eos, (WORDS.sep,)), WORDS.unk)
C = SentenceConstraints


def holds(text: str, wanted: SentenceConstraints) -> bool:
    """Whether a text keeps constraints, counted as they say."""
    phrases = {*itertools.chain.from_iterable(wanted.required), *wanted.copied}
    found = Counter(phrase for _, phrase in occurrences(text, [*phrases, *wanted.forbidden]))
    exact = all(found[text] == need for text, need in Counter(wanted.copied).items())
    some = all(
        sum(found[each] for each in alternatives) >= need
        for alternatives, need in Counter(wanted.required).items()
    )
    return exact and some and not any(found[text] for text in wanted.forbidden if text not in phrases)


CASES: dict[str, tuple[SentenceConstraints, ...]] = {
    "a word": (C(required=(("three",),)),),
    "twice": (C(required=(("two",), ("two",))),),
    "a phrase": (C(required=(("two one",),)),),
    "alternatives": (C(required=(("three one", "four"),)),),
    "copied once": (C(copied=("one",)),),
    "copied twice, no phrase": (C(copied=("one", "one"), forbidden=("one one",)),),
    "forbidden": (C(forbidden=("one", "two two", "four three")),),
    "a forbidden word in a required phrase": (C(required=(("one two",),), forbidden=("one",)),),
    "a copied word that begins a required phrase": (C(required=(("one two",),), copied=("one",)),),
    "two sentences": (C(required=(("four",),), forbidden=("one",)), C(copied=("one",), forbidden=("four",))),
    "the second alone": (C(), C(required=(("one two",),))),
}


def automata(constraints: Sequence[SentenceConstraints]) -> tuple[SentenceAutomaton | None, ...]:
    return tuple(SentenceAutomaton(each, SPELLING) if each else None for each in constraints)


def all_sentences(limit: int) -> list[list[int]]:
    return [list(s) for n in range(1, limit) for s in itertools.product((1, 2, 3, 4), repeat=n)]


def log_probability(model: Table, key: int, tokens: Sequence[int]) -> float:
    """Of labels and the final `eos`."""
    history, sentence, total = torch.tensor([key]), 0, 0.0
    for read, label in zip((WORDS.bos, *tokens), (*tokens, WORDS.eos), strict=True):
        sentence += read == WORDS.sep
        history = model.read(history, torch.tensor([read]), torch.tensor([sentence]))
        total += float(model.logits[history[0]].log_softmax(dim=0)[label])
    return total


@pytest.mark.parametrize(("name", "seed"), list(zip(CASES, itertools.cycle(range(2)), strict=False)))
def test_a_wide_beam_finds_the_best_of_all_that_keep_the_constraints(name: str, seed: int) -> None:
    constraints = CASES[name]
    model, limits = Table(seed), (5,) if len(constraints) == 1 else (3, 4)
    request = SearchRequest((), 0, limits, automata=automata(constraints))
    width = 400 if len(constraints) == 1 else 2000
    [found] = search(model, table_source([3]), [request], SYMBOLS, SearchOptions(width, 0.6))
    kept = [
        [s for s in all_sentences(limit) if holds(WORDS.decode(s), wanted)]
        for limit, wanted in zip(limits, constraints, strict=True)
    ]
    scored = []
    for sentences in itertools.product(*kept):
        labels = [label for s in sentences for label in (*s, WORDS.sep)][:-1]
        total = log_probability(model, 3, labels)
        scored.append((total / (len(labels) + 1) ** 0.6, labels))
    assert len(scored) > 5
    best, labels = max(scored)
    assert found.tokens == labels
    assert found.score == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize(("beam", "seed"), [(1, 0), (2, 1), (5, 2), (2, 3)])
def test_every_beam_keeps_the_constraints_whatever_the_model_prefers(beam: int, seed: int) -> None:
    """At the shortest limits too, and each row as it is found alone."""
    generator = random.Random(seed)
    words = ["one", "two", "three", "four", "one two", "four three one"]
    requests, wanted = [], []
    for _ in range(8):
        row = []
        for _ in range(generator.choice([1, 3])):
            chosen = generator.sample(words, 5)
            row.append(
                generator.choice(
                    [
                        C(),
                        C(required=((chosen[0],), (chosen[1], chosen[2]))),
                        C(copied=tuple(chosen[:2]), forbidden=(chosen[2],)),
                        C(
                            copied=("one", "one"),
                            required=(("two",), ("two",), ("three",)),
                            forbidden=("four",),
                        ),
                    ]
                )
            )
        made = automata(row)
        extra = generator.choice([2, 6])
        limits = tuple(extra + (a.room if a is not None else 0) for a in made)
        requests.append(SearchRequest((), 0, limits, automata=made))
        wanted.append(row)
    model, options = Table(seed, sharpness=5.0), SearchOptions(beam)
    # Rows of one width, as the translator makes batches of them.
    widths = [search_width(beam, request.automata) for request in requests]
    for width in set(widths):
        rows = [i for i, own in enumerate(widths) if own == width]
        found = search(model, table_source(rows), [requests[i] for i in rows], SYMBOLS, options)
        for i, hypothesis in zip(rows, found, strict=True):
            text = " ".join(
                "/" if token == WORDS.sep else WORDS.decode([token]) for token in hypothesis.tokens
            )
            for sentence, constraints in zip(text.split("/"), wanted[i], strict=True):
                assert holds(sentence.strip(), constraints), (sentence, constraints)
            [alone] = search(model, table_source([i]), [requests[i]], SYMBOLS, options)
            assert alone.tokens == hypothesis.tokens


def test_what_no_sentence_can_keep_is_given_up() -> None:
    """Every token follows a required one into a forbidden phrase: the sentence comes out all the same."""
    words = ("one", "two", "three", "four")
    forbidden = tuple(f"one {word}" for word in words)
    wanted = C(required=(("one",), ("one",)), forbidden=(*forbidden, *(f"{w} one" for w in words)))
    made = automata([wanted])
    assert made[0] is not None
    request = SearchRequest((), 0, (3 + made[0].room,), automata=made)
    [found] = search(Table(0), table_source([0]), [request], SYMBOLS, SearchOptions(4))
    assert found.tokens


# --- in any subwords

TEXTS = [
    "der Tisch war neu",
    "die Tabelle ist alt",
    "das Handy und die Tische",
    "Han dy tisch lampe neuer",
] * 5
SUBWORDS = SentencePieceTokenizer.train(
    [*TEXTS, "siehe (Tisch) {0} %d https://a.b/c-d"], TokenizerSettings(byte_fallback=False)
)
SPELLED = Spelling(SUBWORDS)


def after(automaton: SentenceAutomaton, tokens: Sequence[int]) -> Written | None:
    written: Written | None = automaton.start
    for token in tokens:
        if written is not None:
            written = automaton.step(written, token)
    return written


def splits(text: str) -> Iterator[list[int]]:
    """All ways to write a text in subwords."""
    names = {SUBWORDS._processor.id_to_piece(i): i for i in range(SUBWORDS.pieces) if i != SUBWORDS.unk}
    spelled = "▁" + text.replace(" ", "▁")

    def ways(rest: str) -> Iterator[list[int]]:
        if not rest:
            yield []
        for n in range(1, len(rest) + 1):
            if rest[:n] in names:
                yield from ([names[rest[:n]], *way] for way in ways(rest[n:]))

    return ways(spelled)


def test_spellings_are_the_text() -> None:
    for text in TEXTS:
        for tokens in itertools.islice(splits(text), 20):
            assert " ".join(SPELLED.text(tokens).split()) == SUBWORDS.decode(tokens) == text


def test_a_phrase_counts_in_whatever_subwords_it_was_written() -> None:
    required = SentenceAutomaton(C(required=(("Tisch",),)), SPELLED)
    forbidden = SentenceAutomaton(C(forbidden=("Handy",)), SPELLED)
    ways = 0
    for tokens in itertools.islice(splits("der Tisch"), 30):
        written = after(required, tokens)
        assert written is not None
        assert required.may_close(written)
        ways += 1
    assert ways > 5
    for tokens in itertools.islice(splits("das Handy"), 30):
        assert after(forbidden, tokens) is None
    for text in ("die Tische", "tisch", "neuTisch"):  # other words
        for tokens in itertools.islice(splits(text), 10):
            written = after(required, tokens)
            assert written is not None
            assert not required.may_close(written)
    for text in ("(Tisch)", "Tisch-Lampe"):
        tokens = SUBWORDS.encode(text)
        if SUBWORDS.unk not in tokens:
            written = after(required, tokens)
            assert written is not None
            assert required.may_close(written)


def test_an_automaton_is_freed_without_a_full_collection() -> None:
    """A server hardly ever collects cycles."""
    automaton = SentenceAutomaton(C(required=(("Tisch",),)), Spelling(SUBWORDS))
    written = automaton.step(automaton.start, automaton.offers(automaton.start)[0])
    assert written is not None
    assert automaton.standing(written).need >= 0
    freed = weakref.ref(automaton), weakref.ref(automaton._spelling)
    gc.disable()
    try:
        del automaton
        assert [each() for each in freed] == [None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize("text", ["{0}", "%d", "https://a.b/c-d"])
def test_copied_text_is_written_once_and_never_begun_again(text: str) -> None:
    automaton = SentenceAutomaton(C(copied=(text,)), SPELLED)
    once = after(automaton, SUBWORDS.encode(f"siehe {text} neu"))
    assert once is not None
    assert automaton.may_close(once)
    assert automaton.standing(once).need == 0
    assert automaton.offers(once) == ()
    assert after(automaton, SUBWORDS.encode(f"siehe {text} neu {text}")) is None
    # Offered tokens alone write it.
    written: Written | None = automaton.start
    for _ in range(automaton.room):
        assert written is not None
        if automaton.may_close(written):
            break
        written = automaton.step(written, automaton.offers(written)[0])
    assert written is not None
    assert automaton.may_close(written)


@pytest.mark.parametrize("phrase", ["Tisch", "Handy", "%d"])
def test_what_is_offered_after_a_bracket_is_of_the_vocabulary(phrase: str) -> None:
    """A shortlist takes the vocabulary in: else a phrase could only follow a bracket with a space before."""
    automaton = SentenceAutomaton(C(required=((phrase,),)), SPELLED)
    for text in ("das", "(", "neu ("):
        tokens = SUBWORDS.encode(text)
        assert SUBWORDS.unk not in tokens
        written = after(automaton, tokens)
        assert written is not None
        assert automaton.vocabulary.issuperset(automaton.offers(written))


def test_words_that_go_on_in_the_next_token() -> None:
    pytest.importorskip("subword_nmt")
    pytest.importorskip("sacremoses")
    settings = TokenizerSettings(kind="moses-bpe", vocabulary=20, language="de")
    tokenizer = MosesBPETokenizer.train([*TEXTS, "das (neu), alt."], settings)
    spelling = Spelling(tokenizer)
    tokens = tokenizer.encode("das Handy (neu), der Tisch.")
    assert spelling.text(tokens).strip() == "das Handy (neu), der Tisch."
    automaton = SentenceAutomaton(C(required=(("Handy",),)), spelling)
    written, needs = automaton.start, []
    while not automaton.may_close(written):
        needs.append(automaton.standing(written).need)
        following = automaton.step(written, automaton.offers(written)[0])
        assert following is not None
        written = following
    assert needs == list(range(len(needs), 0, -1))
    assert len(needs) > 1
    for text, held in (("das Handy.", True), ("Handys", False), ("altHandy", False), ("(Handy)", True)):
        written = automaton.start
        for token in tokenizer.encode(text):
            following = automaton.step(written, token)
            assert following is not None
            written = following
        assert automaton.may_close(written) == held


def test_requirements_that_the_tokenizer_cannot_write_are_dropped() -> None:
    assert SentenceAutomaton(C(required=(("Ωmega",), ("Ω", "Tisch"))), SPELLED).size == 1


# --- in every system

VOCABULARY = ["the", "cat", "sat", "on", "mat", "it", "saw", "again"]
TOKENIZER = PlainWordTokenizer(VOCABULARY)
SMALL = [
    *(f"model.{key}={value}" for key, value in TINY_MODEL.items() if key != "shift"),
    *(f"decode.{key}={value}" for key, value in {**TINY_DECODE, "group_windows": 3}.items()),
]
RECIPES = {
    "focused-concatenation/base": [],
    "focused-concatenation/s4to4-shift-cd": ["decode.beam=1", "model.shift=5"],
    "focused-concatenation/s4to4-regenerate": [],
    "p-transformer/doc": [],
    "p-transformer/ctx": [],
    "g-transformer/finetune": [],
    "mixtures/g-transformer-cd": ["decode.beam_per=sentence"],
    "docflat/docflat-c": ["view.numbers=8"],
    "docflat/docflat-i": ["view.numbers=8", "decode.schedule=simultaneous", "view.before=0"],
    "docflat/mbe": ["view.numbers=8"],
    "mcn/final": [],
    "mr/doc2doc": [],
    "han/joint": [],
    "flat-transformer/flat": [],
}
SYSTEMS = {name: load_config(name, "tiny", [*SMALL, *more]) for name, more in RECIPES.items()}


class Given:
    """Constraints by document and sentence."""

    def __init__(self, wanted: Mapping[tuple[int, int], SentenceConstraints]) -> None:
        self.wanted = wanted

    def constraints(self, document: int, sentence: int) -> SentenceConstraints:
        return self.wanted.get((document, sentence), C())


DOCUMENTS = [
    Document("a", ("the cat sat", "it saw the mat", "", "again it sat on the mat", "the cat")),
    Document("b", ("the mat", "it sat again")),
    Document("c", ("saw it", "cat", "cat on the mat")),
]
WANTED = {
    (0, 0): C(required=(("again",), ("mat", "on mat"))),
    (0, 3): C(copied=("saw it", "cat"), forbidden=("the",)),
    (1, 1): C(forbidden=("cat", "the", "it", "mat")),
    (2, 0): C(copied=("two", "two")),
}


def system(name: str) -> DocumentTranslator:
    return DocumentTranslator(random_model(SYSTEMS[name], TOKENIZER), SYSTEMS[name], TOKENIZER, CPU)


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_keeps_constraints_in_their_sentences_alone(name: str) -> None:
    translator = system(name)
    together = dict(translator.translate(DOCUMENTS, guide=Given(WANTED)))
    for (document, sentence), wanted in WANTED.items():
        text = together[document].document.sentences[sentence]
        assert holds(text, wanted), text
    for index, document in enumerate(DOCUMENTS):
        own = Given({(0, s): wanted for (d, s), wanted in WANTED.items() if d == index})
        [(_, alone)] = translator.translate([document], guide=own)
        assert alone.document == together[index].document
        assert all(
            bool(t) == bool(s) for s, t in zip(document.sentences, alone.document.sentences, strict=True)
        )
    plain = dict(translator.translate(DOCUMENTS))
    guided = dict(translator.translate(DOCUMENTS, guide=Given({})))
    assert plain == guided
    [(_, other)] = translator.translate(DOCUMENTS[1:2], guide=Given({}))
    assert other.document == plain[1].document


@pytest.mark.parametrize("name", SYSTEMS)
def test_constraints_are_kept_that_no_shortlist_holds(name: str) -> None:
    plain, nothing = system(name), np.full((TOKENIZER.pieces, 1), -1, np.int32)
    decode = plain.config.decode.model_copy(update={"shortlist": 1})
    config = plain.config.model_copy(update={"decode": decode})
    listed = Shortlist("words", nothing, np.array([TOKENIZER.pieces - 1], np.int32))
    translator = DocumentTranslator(plain.model, config, TOKENIZER, CPU, shortlist=listed)
    found = dict(translator.translate(DOCUMENTS, guide=Given(WANTED)))
    for (document, sentence), wanted in WANTED.items():
        text = found[document].document.sentences[sentence]
        assert holds(text, wanted), text


def test_free_search_takes_no_guide() -> None:
    config = tiny_config(decode={"align": "free"})
    translator = DocumentTranslator(random_model(config, TOKENIZER), config, TOKENIZER, CPU)
    assert not translator.takes_guides
    with pytest.raises(CotextError, match="remove the glossary"):
        next(translator.translate(DOCUMENTS, guide=Given(WANTED)))
