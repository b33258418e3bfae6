"""Correction of terms: positions, the choice of proposals, and the result in every system."""

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from cotext.config.recipe import load_config
from cotext.data.batch import SpecialSymbols
from cotext.data.documents import Document, ParallelDocument
from cotext.data.shortlist import Shortlist
from cotext.data.tokenizer import MosesBPETokenizer, SentencePieceTokenizer, Tokenizer, TokenizerSettings
from cotext.data.words import occurrences
from cotext.search.beam_search import search
from cotext.search.constraints import SearchRequest, SearchSymbols
from cotext.search.hypotheses import SearchOptions
from cotext.translation import substitution
from cotext.translation.document_state import SentenceHypothesis
from cotext.translation.terms.terms import Glossary, SentenceConstraints, TermGuide, _places
from cotext.translation.terms.word_alignment import SentenceAlignment, renderings
from cotext.translation.translator import DocumentTranslator
from tests.noting import calls_of
from tests.refusals import must_raise
from tests.tables import Table, table_source
from tests.tiny import TINY_DECODE, TINY_MODEL, PlainWordTokenizer, random_model, tiny_config

TEXTS = "the ladder was old", "die Leiter war alt"


def alignment(weights: list[list[float]]) -> SentenceAlignment:
    """One of TEXTS by words."""
    spans = [
        tuple((text.index(word), text.index(word) + len(word)) for word in text.split()) for text in TEXTS
    ]
    return SentenceAlignment(spans[0], spans[1], torch.tensor(weights, dtype=torch.float64))


def test_the_rendering_of_a_word_is_what_is_aligned_with_it() -> None:
    straight = alignment((torch.eye(4) * 0.85 + 0.05).tolist())
    found = renderings(straight, TEXTS, (4, 10))
    assert found[0][1] == (4, 10)
    assert sum(share for share, _ in found) == pytest.approx(1.0)
    assert found == sorted(found, reverse=True)
    # "war alt" for one word of the source: neighbours that are aligned most with it belong to it.
    both = alignment([[0.9, 0.1, 0, 0], [0.1, 0.9, 0, 0], [0, 0, 0.1, 0.9], [0, 0, 0.1, 0.9]])
    assert renderings(both, TEXTS, (15, 18))[0][1] in ((11, 18), (15, 18))
    # Punctuation is no rendering.
    marks = SentenceAlignment(((0, 3),), ((0, 1),), torch.ones(1, 1))
    assert renderings(marks, ("old", "."), (0, 3)) == []


def test_a_phrase_fits_its_place_which_is_not_in_a_token_and_replaces_marks_of_a_placeholder() -> None:
    phrases = ("alte Leiter", "Alte Leiter", "Treppe")
    for opens in (False, True):
        assert substitution._fitting(phrases, opens) == [phrases[opens], "Treppe"]
    edges = [(0, 3), (4, 8), (8, 9)]
    assert [substitution._token_at(edges, place) for place in (0, 4, 6, 8, 9)] == [0, 1, None, 2, 3]
    for text, word, phrase, replaced in (
        ("Hallo %(Name)s, neu", "Name", "%(name)s", "%(Name)s"),
        ("die Variable {{{ }} in der", "Variable", "{{ variable }}", "Variable {{{ }}"),
        ("im {{{ knopf }}}-Feld (neu)", "knopf", "{{ button }}", "{{{ knopf }}}"),
    ):
        start = text.index(word)
        assert text[slice(*substitution._with_marks(text, (start, start + len(word)), phrase))] == replaced


def test_a_proposal_loses_for_a_rendering_beside_its_term_and_for_words_that_are_lacking() -> None:
    free = SentenceHypothesis((), "unten war ein schweres Boot.")
    draft = substitution.Draft(None, [free], at=0)  # type: ignore[arg-type]
    draft.own, draft.phrases = [(0.75, "Boot"), (0.25, "schweres")], ("Auto",)
    stutter, length = substitution.STUTTER, substitution.LENGTH
    assert draft.penalty("unten war ein schweres Auto.") == stutter / 4
    assert draft.penalty("unten war ein schweres Boot. Auto.") == stutter + 2 * length
    assert draft.penalty("unten war Auto.") == 2 * length
    names: Any = SimpleNamespace(requested=lambda _: [0], kept=[0], document=Document("", ("{} at {x}",)))
    names.document, names.number = SimpleNamespace(**vars(names)), 0
    of_marks = substitution.Draft(names, [free], at=0, constraints=SentenceConstraints(copied=("{x}",)))
    assert [of_marks.penalty(text) / stutter for text in ("{} {x}", "{x", "{{{x}}} %", "{y}")] == [0, 0, 2, 0]
    draft.found = [replace(free, text="unten unten unten war ein schweres schweres Boot.")]
    assert draft.penalty("unten war ein schweres Auto.") == stutter / 4


@pytest.mark.parametrize("barred", [(), ((3,), (1, 2))])
@pytest.mark.parametrize("seed", range(3))
def test_a_sentence_is_closed_by_its_separator_and_has_no_barred_sequence(
    seed: int, barred: tuple[tuple[int, ...], ...]
) -> None:
    """Compare with all sequences of four words, of a sentence within a row."""
    words = PlainWordTokenizer(["four"])
    symbols = SearchSymbols(SpecialSymbols(words.pad, words.bos, words.eos, (words.sep,)), words.unk)
    model = Table(seed)
    request = SearchRequest((), 0, (4,), row_continues=True, barred=barred)
    [found] = search(model, table_source([3]), [request], symbols, SearchOptions(200, 0.6))
    scored = []
    for labels in (s for n in (1, 2, 3) for s in itertools.product((1, 2, 3, 4), repeat=n)):
        if any(bar == labels[i : i + len(bar)] for bar in barred for i in range(len(labels))):
            continue
        history, total = torch.tensor([3]), 0.0
        for read, label in zip((words.bos, *labels), (*labels, words.sep), strict=True):
            history = model.read(history, torch.tensor([read]), torch.tensor([0]))
            total += float(model.logits[history[0]].log_softmax(dim=0)[label])
        scored.append((total / (len(labels) + 1) ** 0.6, list(labels)))
    best, labels = max(scored)
    assert (found.tokens, found.score) == (labels, pytest.approx(best, abs=1e-9))


TRAINING = ["der Tisch war neu", "die Tabelle ist alt", "das Handy (neu) und die Tische, alt."] * 9


@pytest.mark.parametrize("kind", ["sentencepiece", "moses-bpe"])
def test_a_phrase_is_tokenised_after_a_space_or_a_bracket(kind: str) -> None:
    tokenizer: Tokenizer
    if kind == "moses-bpe":
        pytest.importorskip("subword_nmt")
        pytest.importorskip("sacremoses")
        settings = TokenizerSettings(kind="moses-bpe", vocabulary=20, language="de")
        tokenizer = MosesBPETokenizer.train(TRAINING, settings)
    else:
        tokenizer = SentencePieceTokenizer.train(TRAINING, TokenizerSettings(byte_fallback=False))
    correction = system("focused-concatenation/base").windows._substitution
    correction._scorer.tokenizer = tokenizer
    for before, text in (("das", "das Handy"), ("das (", "das (Handy")):
        tokens = [*tokenizer.encode(before), *correction._encoded("Handy", before[3:].strip())]
        assert tokenizer.decode(tokens) == text
    assert correction._encoded("Ωmega") == []
    assert correction._spelled("der  Tisch") == "der Tisch"


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
    "p-transformer/doc": ["decode.beam=1", "decode.max_ratio=0.3", "decode.max_extra=1"],
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
# Systems whose windows are scored in the context in which they were searched.
SCORED = (*list(RECIPES)[:2], "p-transformer/doc", "g-transformer/finetune", "docflat/docflat-c")
DOCUMENTS = [
    Document("a", ("the cat sat", "it saw the mat", "", "again it sat on the mat", "the cat")),
    Document("b", ("the mat", "it sat again")),
    Document("c", ("saw it", "cat", "cat on the mat")),
]


def system(name: str, **arguments: object) -> DocumentTranslator:
    config = load_config(name, "tiny", [*SMALL, *RECIPES[name], *(f"{k}={v}" for k, v in arguments.items())])
    return DocumentTranslator(random_model(config, TOKENIZER), config, TOKENIZER, torch.device("cpu"))


def needs(
    *required: tuple[str, ...], forbidden: tuple[str, ...] = (), copied: tuple[str, ...] = ()
) -> SentenceConstraints:
    """Constraints that belong to the first word of a sentence."""
    return SentenceConstraints(required, forbidden, copied, ((0, 3),) * len((*required, *copied)))


class Given:
    """Constraints by document and sentence."""

    def __init__(self, wanted: Mapping[tuple[int, int], SentenceConstraints]) -> None:
        self.wanted = wanted

    def constraints(self, document: int, sentence: int) -> SentenceConstraints:
        return self.wanted.get((document, sentence), needs())


WANTED = {
    (0, 0): needs(("again",), ("mat", "on mat")),
    (0, 3): needs(copied=("saw it", "cat"), forbidden=("the",)),
    (1, 1): needs(forbidden=("cat", "the", "it", "mat")),
    (2, 0): needs(copied=("two", "two")),
    (2, 2): needs(("it",)),
}


def assert_met(wanted: SentenceConstraints, text: str) -> None:
    """Compare with separate counts."""
    phrases = {*itertools.chain.from_iterable(wanted.required), *wanted.copied}
    found = Counter(phrase for _, phrase in occurrences(text, [*phrases, *wanted.forbidden]))
    assert all(found[copy] == need for copy, need in Counter(wanted.copied).items()), text
    for alternatives, need in Counter(wanted.required).items():
        assert sum(found[phrase] for phrase in alternatives) >= need, text
    assert not any(found[phrase] for phrase in wanted.forbidden if phrase not in phrases), text


@pytest.mark.parametrize("name", RECIPES)
def test_every_system_meets_constraints_in_their_sentences_alone(name: str) -> None:
    """Scores are those of the text, and the document alone decides its translation."""
    translator = system(name)
    together = dict(translator.translate(DOCUMENTS, guide=Given(WANTED)))
    for (document, sentence), wanted in WANTED.items():
        assert_met(wanted, together[document].document.sentences[sentence])
    for index, document in enumerate(DOCUMENTS):
        own = Given({(0, s): wanted for (d, s), wanted in WANTED.items() if d == index})
        [(_, alone)] = translator.translate([document], guide=own)
        found = together[index]
        assert (alone.document, alone.truncated) == (found.document, found.truncated)
        sentences = alone.document.sentences
        assert list(map(bool, sentences)) == list(map(bool, document.sentences))
        if name in SCORED and not found.resegmented:
            scores = translator.score([ParallelDocument(document.id, document.sentences, sentences)])[0]
            assert [s.log_probability for s in scores] == pytest.approx(found.log_probabilities, abs=1e-4)
            assert [s.tokens for s in scores] == list(found.tokens)
    assert dict(translator.translate(DOCUMENTS)) == dict(translator.translate(DOCUMENTS, guide=Given({})))


@pytest.mark.parametrize("name", ["focused-concatenation/base", "docflat/docflat-c"])
def test_constraints_are_met_without_their_words_in_the_shortlist(name: str) -> None:
    plain, nothing = system(name), np.full((TOKENIZER.pieces, 1), -1, np.int32)
    decode = plain.config.decode.model_copy(update={"shortlist": 1})
    config = plain.config.model_copy(update={"decode": decode})
    words = np.arange(TOKENIZER.pieces - 6, TOKENIZER.pieces, dtype=np.int32)
    listed = Shortlist("words", nothing, words)
    translator = DocumentTranslator(plain.model, config, TOKENIZER, torch.device("cpu"), shortlist=listed)
    found = dict(translator.translate(DOCUMENTS, guide=Given(WANTED)))
    for (document, sentence), wanted in WANTED.items():
        assert_met(wanted, found[document].document.sentences[sentence])


def test_defects_count_the_longest_copied_text_and_no_forbidden_word_within_it() -> None:
    copies = needs(copied=("git", "git commit"))
    assert copies.defects("Nutze git und git commit.").total == 0
    assert [phrases for phrases, _ in copies.defects("Nutze git commit.").missing] == [("git",)]
    assert copies.defects("git git git commit").surplus == ["git"]
    terms = needs(("Datei-Manager",), ("Datei",), ("Datei", "Dokument"))
    assert len(terms.defects("Der Datei-Manager öffnet die Datei.").missing) == 1
    assert terms.defects("Der Datei-Manager öffnet das Dokument, eine Datei.").total == 0
    link = needs(copied=("https://x/Leiter",), forbidden=("Leiter",))
    assert link.defects("siehe https://x/Leiter").total == 0
    assert link.defects("Leiter: https://x/Leiter").forbidden == [(0, "Leiter")]


def test_many_phrases_are_corrected_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the time grows with the cube of their number."""
    words = tuple(f"w{number}" for number in range(40))
    monkeypatch.setattr(
        "tests.translation.test_substitution.TOKENIZER", PlainWordTokenizer([*VOCABULARY, *words])
    )
    made = substitution.Substitution
    counts = calls_of(monkeypatch, made, "_complete", lambda correction, proposals: len(proposals))
    translator = system("focused-concatenation/base")
    guide = Given({(0, 0): needs(copied=words)})
    [(_, found)] = translator.translate([Document("a", ("the cat " * 30,))], guide=guide)
    assert all(found.document.sentences[0].split().count(word) == 1 for word in words)
    assert sum(counts) <= substitution.MOST_DEFECTS * 100


def test_every_copied_text_has_a_place_of_its_own() -> None:
    for text, copied, expected in (
        ("Set config.yaml, config", ("config", "config.yaml"), [(17, 23), (4, 15)]),
        ("A1 1", ("1", "1"), [(1, 2), (3, 4)]),
        ("foo barbar bar", ("bar", "bar", "bar"), [(4, 7), (7, 10), (11, 14)]),
    ):
        assert list(_places(text, copied)) == expected


def test_a_text_that_cannot_be_written_replaces_no_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(substitution, "MOST_DEFECTS", 0)
    encoded = substitution.Substitution._encoded

    def words_alone(self: substitution.Substitution, phrase: str, before: str = "") -> list[int]:
        return [] if " " in phrase else encoded(self, phrase, before)

    monkeypatch.setattr(substitution.Substitution, "_encoded", words_alone)
    translator = system("focused-concatenation/base")
    written = dict(translator.translate(DOCUMENTS))
    counts = {
        (d, s): Counter(sentence.split()).most_common(1)[0]
        for d, found in written.items()
        for s, sentence in enumerate(found.document.sentences)
        if sentence
    }
    (document, sentence), (word, count) = max(counts.items(), key=lambda item: item[1][1])
    assert count > 2
    guide = Given({(document, sentence): needs(copied=(word,))})
    found = dict(translator.translate(DOCUMENTS, guide=guide))
    assert found[document].document.sentences[sentence]


def test_a_copied_text_too_many_is_deleted_and_forbidden_words_give_up_in_the_end() -> None:
    translator = system("focused-concatenation/base")
    [(_, plain)] = translator.translate(DOCUMENTS[1:2])
    words = plain.document.sentences[0].split()
    assert len(words) > 1
    copied = Given({(0, 0): needs(copied=(words[0],))})
    [(_, found)] = translator.translate(DOCUMENTS[1:2], guide=copied)
    assert found.document.sentences[0].split().count(words[0]) == 1
    every = Given({(0, 0): needs(forbidden=tuple(VOCABULARY))})
    [(_, found)] = translator.translate(DOCUMENTS[1:2], guide=every)
    assert found.document.sentences[0]


def test_unchanged_sentences_are_those_that_meet_their_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = system("focused-concatenation/base")
    [(_, plain)] = translator.translate(DOCUMENTS[1:2])
    pairs = zip(DOCUMENTS[1].sentences, plain.document.sentences, strict=True)
    terms = TermGuide([DOCUMENTS[1].sentences], Glossary.of({s: t.split()[0] for s, t in pairs}))
    monkeypatch.setattr(substitution.Substitution, "_insert", lambda self, drafts: pytest.fail("changed"))
    monkeypatch.setattr(substitution.Substitution, "_avoid", lambda self, drafts: None)
    [(_, found)] = translator.translate(DOCUMENTS[1:2], guide=terms)
    assert found == plain


def test_later_windows_of_a_group_are_searched_after_a_corrected_or_given_sentence() -> None:
    """As if the windows were searched one after the other, with this sentence given."""
    name, guide = "docflat/docflat-i", Given({(0, 0): WANTED[0, 0]})
    at_once, in_turn = system(name), system(name, **{"decode.schedule": "sequential"})
    [(_, found)] = at_once.translate(DOCUMENTS[:1], guide=guide)
    taken = {0: {0: found.document.sentences[0]}}
    for translator in (in_turn, at_once):
        [(_, expected)] = translator.translate(DOCUMENTS[:1], taken=taken)
        assert found.document == expected.document
        assert found.log_probabilities[1:] == pytest.approx(expected.log_probabilities[1:], abs=1e-6)


def test_free_search_takes_no_guide() -> None:
    config = tiny_config(decode={"align": "free"})
    translator = DocumentTranslator(random_model(config, TOKENIZER), config, TOKENIZER, torch.device("cpu"))
    assert not translator.supports_terms
    must_raise("remove the glossary", translator.translate, DOCUMENTS, guide=Given(WANTED))
