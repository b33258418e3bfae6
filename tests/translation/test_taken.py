"""Given translations: copied to the output, and target context of later sentences."""

from typing import Any

import pytest

from cotext.data.documents import Document
from cotext.translation.translator import DocumentTranslator
from cotext.translation.window_search import WindowSearch
from tests.tiny import PlainWordTokenizer, pieces, random_translator, tiny_config, window

TOKENIZER = PlainWordTokenizer(["a", "b", "c", "d", "e", "f", "g", "h"])
DOCUMENTS = [Document("0", ("a b", "c", "d e f", "g", "h a")), Document("1", ("b c", "d"))]
VIEWS: dict[str, dict[str, Any]] = {"sentence": {}, "window": window(2), "document": pieces()}


def translator(view: dict[str, Any], **decode: Any) -> DocumentTranslator:
    return random_translator(tiny_config(view=view, decode=decode), TOKENIZER)


@pytest.mark.parametrize("view", VIEWS)
def test_given_sentences_are_taken_and_all_others_translated(view: str) -> None:
    system = translator(VIEWS[view])
    counts: list[int] = []
    taken = {0: {1: "h h", 3: "unheard of"}}
    found = dict(system.translate(DOCUMENTS, counts.append, taken=taken))
    assert found[0].document.sentences[1] == "h h"
    assert found[0].document.sentences[3] == "unheard of"
    assert found[0].tokens[1] == 0  # nothing was written, so that there is no probability
    assert all(found[0].document.sentences)
    assert found[0].tokens[0] > 0
    assert sum(counts) == 7
    plain = dict(system.translate(DOCUMENTS))
    assert found[1].document == plain[1].document


def test_given_sentences_are_context_as_if_they_had_been_written() -> None:
    """Its own translations given back change nothing; another one changes what stands behind it."""
    system = translator(window(2))
    plain = dict(system.translate(DOCUMENTS))
    own = {0: {j: plain[0].document.sentences[j] for j in (0, 2)}}
    found = dict(system.translate(DOCUMENTS, taken=own))
    assert found[0].document == plain[0].document
    assert found[0].log_probabilities[1] == pytest.approx(plain[0].log_probabilities[1])
    other = dict(system.translate(DOCUMENTS, taken={0: {0: "e e e e"}}))
    assert other[0].log_probabilities[1] != pytest.approx(plain[0].log_probabilities[1])


def test_a_document_of_given_sentences_alone_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    system = translator(window(1))
    monkeypatch.setattr(WindowSearch, "_search", lambda *_: pytest.fail("searched"))
    taken = {0: dict(enumerate("abcde"))}
    [(_, found)] = list(system.translate(DOCUMENTS[:1], taken=taken))
    assert found.document.sentences == tuple("abcde")


@pytest.mark.parametrize("length", [12, 100])
def test_given_sentences_at_the_beginning_of_a_piece_are_its_prefix(length: int) -> None:
    """In pieces that are searched whole, what stands behind given sentences is what search writes there."""
    system = translator(pieces(max_tokens=length), beam=1)
    plain = dict(system.translate(DOCUMENTS))[0]
    for count in range(1, 5):
        own = {0: dict(enumerate(plain.document.sentences[:count]))}
        found = dict(system.translate(DOCUMENTS, taken=own))[0]
        assert found.document == plain.document
        assert found.log_probabilities[count:] == pytest.approx(plain.log_probabilities[count:])
    [(_, other)] = system.translate(DOCUMENTS[:1], taken={0: {0: "e e e e"}})
    assert other.document.sentences[0] == "e e e e"
    assert other.log_probabilities[1] != pytest.approx(plain.log_probabilities[1])
    [(_, apart)] = system.translate(DOCUMENTS[:1], taken={0: {1: "e e e e"}})
    assert apart.log_probabilities[0] == pytest.approx(plain.log_probabilities[0])
