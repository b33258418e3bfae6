"""Which context decided a word, asked of a server."""

from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import pytest

from cotext.data.documents import Document, ParallelDocument
from cotext.data.words import token_words, words_of
from cotext.evaluation.studies.context.context_use import influences
from cotext.serving.own_api import explanations
from cotext.serving.record import RequestError
from tests.loops import loop_over
from tests.noting import calls_of

if TYPE_CHECKING:
    from cotext.serving.systems import Systems

SOURCES = ["The cat sees a dog.", "It runs.", "It sings!", "A red bird eats."]
TARGETS = ["Die Katze sieht den Hund", "Sie rennt", "Er singt laut", "Der Vogel frisst"]


def asked(**changes: Any) -> dict[str, Any]:
    word = {"sentence": 2, "characters": [3, 8]}
    return {"system": "window", "sources": SOURCES, "targets": TARGETS, **word, **changes}


def explained(server: httpx.Client, **changes: Any) -> Any:
    answer = server.post("/api/explain", json=asked(**changes))
    assert answer.status_code == 200, answer.text
    return answer.json()


def near(value: float) -> Any:
    return pytest.approx(value, abs=2e-4)


@pytest.mark.parametrize("name", ["window", "document"])
def test_figures_are_those_of_a_document(server: httpx.Client, systems: "Systems", name: str) -> None:
    translator = systems.named(name).opened.translator
    document = ParallelDocument("1", tuple(SOURCES), tuple(TARGETS))
    sentence = influences(translator, document)[2]
    found = explained(server, system=name)
    assert found["word"] == {"text": "singt", "first": 3, "stop": 8}
    assert [word["text"] for word in found["words"]] == ["Er", "singt", "laut"]
    words = token_words(translator.tokenizer, TARGETS[2], "target")
    assert [word["change"] for word in found["words"]] == [near(word.total(sentence.cxmi)) for word in words]
    changes = {each["number"]: each["change"] for each in found["contexts"]}
    assert changes == {each.number: near(words[1].total(each.tokens)) for each in sentence.influences}
    assert set(changes) == ({0, 1} if name == "window" else {0, 1, 3})
    for context in found["contexts"]:
        assert (context["side"], context["text"]) == ("both", SOURCES[context["number"]])
        assert context["meant"] == (abs(context["change"]) >= 0.5)


def test_others_get_the_model_between_two_steps(
    server: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = explained(server)
    scored = calls_of(monkeypatch, explanations, "score_excerpts", lambda scorer, found: len(found))
    monkeypatch.setattr(explanations, "STEP_CHARACTERS", 100)
    targets = [*TARGETS[:3], "Er frisst nicht"]  # which the sentence does not see
    apart = explained(server, targets=targets)
    assert len(scored) > 1
    assert max(scored) <= 2
    for one, other in zip(apart["contexts"], at_once["contexts"], strict=True):
        assert one == {**other, "change": near(other["change"])}


def test_the_decisive_sentence_is_clear_of_noise(
    server: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {each["number"]: each["change"] for each in explained(server)["contexts"]}
    most = max(changes, key=lambda number: changes[number])
    for limit, decisive in ((changes[most] - 0.01, most), (changes[most] + 0.01, None)):
        monkeypatch.setattr(explanations, "STRONG_NATS", limit)
        assert explained(server)["decisive"] == decisive


def test_a_second_click_asks_no_model(server: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    targets = [*TARGETS[:3], "Ein Vogel frisst"]
    first = explained(server, targets=targets)

    def refuse(*_: Any) -> None:
        raise RequestError(400, "asked the model")

    monkeypatch.setattr(explanations, "score_excerpts", refuse)
    again = explained(server, targets=targets, characters=[0, 0])
    assert again["word"]["text"] == "Er"
    assert again["words"] == first["words"]
    for changes in ({"targets": [*TARGETS[:3], "Mein Vogel"]}, {"system": "document"}, {"sentence": 1}):
        answer = server.post("/api/explain", json=asked(**{"targets": targets, **changes}))
        assert answer.json() == {"message": "asked the model"}


@pytest.mark.parametrize("name", ["window", "document"])
def test_what_would_stand_there_without_the_decisive_sentence(
    server: httpx.Client, systems: "Systems", monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(explanations, "STRONG_NATS", -100.0)
    targets = ["Ja", "Nein", "Doch", "Vielleicht"]
    found = explained(server, system=name, targets=targets, characters=[0, 4])
    seen = 3 if name == "window" else 4
    left = [j for j in range(seen) if j != found["decisive"]]
    given = {place: targets[j] for place, j in enumerate(left) if j != 2}
    document = Document("", tuple(SOURCES[j] for j in left))
    [(_, translation)] = systems.named(name).opened.translator.translate([document], taken={0: given})
    other = words_of(translation.document.sentences[left.index(2)])
    assert found["alternative"] == (other[0].text if len(other) == 1 else None)
    same = explained(server, system=name, targets=targets, characters=[0, 4])
    assert same == found


def test_a_word_of_a_script_without_spaces(server: httpx.Client) -> None:
    targets = [*TARGETS[:2], "北京很大, Zoë", TARGETS[3]]
    found = explained(server, targets=targets, characters=[1, 2])
    assert found["word"] == {"text": "京", "first": 1, "stop": 2}
    assert [word["text"] for word in found["words"]] == ["北", "京", "很", "大", ",", "Zoë"]
    two = explained(server, targets=targets, characters=[0, 2])
    assert two["word"] == {"text": "北京", "first": 0, "stop": 2}
    singly = [explained(server, targets=targets, characters=[place, place]) for place in (0, 1)]
    for both, one, other in zip(two["contexts"], *(each["contexts"] for each in singly), strict=True):
        assert both["change"] == near(one["change"] + other["change"])


@loop_over(
    ("changes", "said"),
    [
        ({"system": "sentence"}, "each sentence alone"),
        ({"sentence": 4}, "sentence 4 of 4"),
        ({"sentence": -1}, "sentence -1 of 4"),
        ({"targets": TARGETS[:3]}, "a target for every source"),
        ({"characters": [2, 3]}, "no word"),
        ({"characters": [2, 2]}, "no word"),
        ({"characters": [50, 60]}, "no word"),
        ({"characters": [3]}, "characters"),
        ({"targets": [*TARGETS[:2], " ", TARGETS[3]]}, "no words"),
        ({"sources": ["was " * 2000, *SOURCES[1:]]}, "tokens"),
        ({"sources": [], "targets": []}, "sentence"),
    ],
)
def test_what_cannot_be_explained(server: httpx.Client, changes: dict[str, Any], said: str) -> None:
    answer = server.post("/api/explain", json=asked(**changes))
    assert answer.status_code == 400
    assert said in answer.json()["message"]


def test_what_is_remembered_is_bounded(server: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explanations, "MAX_FIGURES", 1)
    assert explained(server, sentence=1, characters=[0, 1])["word"]["text"] == "Sie"
