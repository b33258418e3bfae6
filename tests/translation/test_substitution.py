"""Correction of terms: the position of a phrase, the choice of the proposal, and the result."""

import itertools
from dataclasses import replace

import pytest
import torch

from cotext.config.recipe import load_config
from cotext.data.batch import SpecialSymbols
from cotext.data.documents import Document, ParallelDocument
from cotext.data.words import occurrences
from cotext.search.beam_search import SearchOptions, search
from cotext.search.constraints import SearchRequest, SearchSymbols
from cotext.search.guide import SentenceConstraints
from cotext.search.lexical import SentenceAutomaton
from cotext.search.spelling import Spelling
from cotext.translation import substitution
from cotext.translation.document_state import SentenceHypothesis
from cotext.translation.terms.glossary import Glossary
from cotext.translation.terms.terms import TermGuide
from cotext.translation.terms.word_alignment import SentenceAlignment, renderings
from cotext.translation.translator import DocumentTranslator
from tests.tables import Table, table_source
from tests.tiny import TINY_DECODE, TINY_MODEL, PlainWordTokenizer, random_model

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


def test_punctuation_is_no_rendering() -> None:
    marks = SentenceAlignment(((0, 3),), ((0, 1),), torch.ones(1, 1))
    assert renderings(marks, ("old", "."), (0, 3)) == []


def test_of_phrases_in_two_cases_the_one_that_fits_the_place_is_proposed() -> None:
    phrases = ("alte Leiter", "Alte Leiter", "Treppe")
    assert substitution._fitting(phrases, opens=False) == ["alte Leiter", "Treppe"]
    assert substitution._fitting(phrases, opens=True) == ["Alte Leiter", "Treppe"]


def test_positions_inside_a_token_are_not_used() -> None:
    edges = [(0, 3), (4, 8), (8, 9)]
    assert [substitution._token_at(edges, place) for place in (0, 4, 8, 9)] == [0, 1, 2, 3]
    assert substitution._token_at(edges, 6) is None


def test_a_proposal_loses_for_a_rendering_beside_its_term_and_for_words_that_are_lacking() -> None:
    free = SentenceHypothesis((), "unten war ein schweres Boot.")
    draft = substitution.Draft(None, 0, None, None, [free], at=0)  # type: ignore[arg-type]
    assert draft.penalty("was auch immer") == 0.0
    draft.own, draft.phrases = [(0.75, "Boot"), (0.25, "schweres")], ("Auto",)
    stutter, length = substitution.STUTTER, substitution.LENGTH
    assert draft.penalty("unten war ein schweres Auto.") == stutter / 4
    assert draft.penalty("unten war ein schweres Boot. Auto.") == stutter + 2 * length
    assert draft.penalty("unten war Auto.") == 2 * length
    draft.found = [replace(free, text="unten unten unten war ein schweres schweres Boot.")]
    assert draft.penalty("unten war ein schweres Auto.") == stutter / 4


@pytest.mark.parametrize("lexical", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_sentence_within_a_row_is_closed_by_its_separator(seed: int, lexical: bool) -> None:
    """Against all sequences of four words."""
    words = PlainWordTokenizer(["four"])
    symbols = SearchSymbols(SpecialSymbols(words.pad, words.bos, words.eos, (words.sep,)), words.unk)
    wanted = SentenceConstraints(required=(("three",),)) if lexical else SentenceConstraints()
    automata = (SentenceAutomaton(wanted, Spelling(words)),) if lexical else ()
    model = Table(seed)
    request = SearchRequest((), 0, (4,), automata=automata, goes_on=True)
    [found] = search(model, table_source([3]), [request], symbols, SearchOptions(200, 0.6))
    scored = []
    for labels in (s for n in (1, 2, 3) for s in itertools.product((1, 2, 3, 4), repeat=n)):
        if lexical and words.encode("three")[0] not in labels:
            continue
        history, total = torch.tensor([3]), 0.0
        for read, label in zip((words.bos, *labels), (*labels, words.sep), strict=True):
            history = model.read(history, torch.tensor([read]), torch.tensor([0]))
            total += float(model.logits[history[0]].log_softmax(dim=0)[label])
        scored.append((total / (len(labels) + 1) ** 0.6, list(labels)))
    best, labels = max(scored)
    assert (found.tokens, found.score) == (labels, pytest.approx(best, abs=1e-9))


VOCABULARY = ["the", "cat", "sat", "on", "mat", "it", "saw", "again"]
TOKENIZER = PlainWordTokenizer(VOCABULARY)
RECIPES = {
    "focused-concatenation/base": [],
    "focused-concatenation/s4to4-shift-cd": ["decode.beam=1", "model.shift=5"],
    "g-transformer/finetune": [],
    "p-transformer/doc": [],
}
DOCUMENTS = [
    Document("a", ("the cat sat", "it saw the mat", "", "again it sat on the mat", "the cat")),
    Document("b", ("the mat", "it sat again")),
]
TERMS = Glossary.of({"cat": "mat", "mat": ("saw again", "it"), "sat": "two", "again": "the cat"})


def system(name: str) -> DocumentTranslator:
    small = [
        *(f"model.{key}={value}" for key, value in TINY_MODEL.items() if key != "shift"),
        *(f"decode.{key}={value}" for key, value in TINY_DECODE.items()),
    ]
    config = load_config(name, "tiny", [*small, *RECIPES[name]])
    return DocumentTranslator(random_model(config, TOKENIZER), config, TOKENIZER, torch.device("cpu"))


def guide(documents: list[Document]) -> TermGuide:
    copied = [[["it"] if "it" in text.split() else [] for text in d.sentences] for d in documents]
    return TermGuide([d.sentences for d in documents], TERMS, copied=copied)


@pytest.mark.parametrize("name", RECIPES)
def test_corrected_sentences_meet_constraints_and_have_correct_scores(name: str) -> None:
    """Constraints are met, scores are those of the text, and a document alone decides its translation."""
    translator = system(name)
    found = dict(translator.translate(DOCUMENTS, guide=guide(DOCUMENTS)))
    wanted = guide(DOCUMENTS)
    for d, document in enumerate(DOCUMENTS):
        sentences = found[d].document.sentences
        for s, text in enumerate(sentences):
            asked = wanted.constraints(d, s)
            assert all(any(occurrences(text, each)) for each in asked.required), text
            phrases = [phrase for each in asked.required for phrase in each]
            held = [phrase for _, phrase in occurrences(text, ["it", *phrases])]
            assert held.count("it") >= len(asked.copied)
        [(_, alone)] = translator.translate([document], guide=guide([document]))
        assert alone.document == found[d].document
        assert alone.log_probabilities == pytest.approx(found[d].log_probabilities)
        if not found[d].resegmented:
            scores = translator.score([ParallelDocument(document.id, document.sentences, sentences)])[0]
            assert [s.log_probability for s in scores] == pytest.approx(found[d].log_probabilities, abs=1e-4)
            assert [s.tokens for s in scores] == list(found[d].tokens)


def test_copied_text_alone_is_searched_from_the_beginning_too(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bool, bool]] = []
    choose = substitution.Substitution._choose

    def spied(self, drafts, found):  # type: ignore[no-untyped-def]
        for draft in drafts:
            reduced = [p for p, _ in found[id(draft)] if p.automaton is not draft.automaton]
            if reduced:
                seen.append((draft.phrases == ("it",), any(not p.begun for p in reduced)))
        choose(self, drafts, found)

    monkeypatch.setattr(substitution.Substitution, "_choose", spied)
    list(system("focused-concatenation/base").translate(DOCUMENTS, guide=guide(DOCUMENTS)))
    assert {copies for copies, _ in seen} == {False, True}
    assert all(copies == searched for copies, searched in seen)


def test_sentences_that_keep_their_terms_freely_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = system("focused-concatenation/base")
    [(_, plain)] = translator.translate(DOCUMENTS[1:])
    own = {
        source: text.split()[0]
        for source, text in zip(DOCUMENTS[1].sentences, plain.document.sentences, strict=True)
    }
    terms = TermGuide([DOCUMENTS[1].sentences], Glossary.of(own))
    monkeypatch.setattr(substitution.Substitution, "_correct_step", None)
    [(_, found)] = translator.translate(DOCUMENTS[1:], guide=terms)
    assert found == plain
