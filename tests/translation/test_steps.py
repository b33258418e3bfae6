"""Progress during a search: no two model passes without a report."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from cotext.data.documents import Document
from cotext.models.build import build_model
from cotext.search import non_autoregressive
from cotext.translation.translator import DocumentTranslator
from tests.tiny import WordTokenizer, pieces, tiny_config, window

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "it"]
TOKENIZER = WordTokenizer(WORDS)
CASA = {
    "model": {
        "writes": "non_autoregressive",
        "attention": {"span": "sentence", "top": {"layers": 1, "span": "nodes"}},
    },
    "view": pieces(24) | {"separators": "bracket"},
    "loss": {"name": "glancing"},
    "decode": {"beam": 1},
}
SYSTEMS: dict[str, dict[str, dict[str, Any]]] = {
    "sentences": {},
    "windows": {"view": window(2)},
    "documents": {"view": pieces(20)},
    "CASA": CASA,
}


def noted(work: Callable[..., Any], events: list[int | None]) -> Callable[..., Any]:
    """Work that is noted among the events, as None, when it is done."""

    def both(*inputs: Any) -> Any:
        result = work(*inputs)
        events.append(None)
        return result

    return both


def system(
    name: str,
    events: list[int | None],
    patch: pytest.MonkeyPatch,
    first_pass: DocumentTranslator | None = None,
) -> DocumentTranslator:
    """A system that notes every pass of its model among the events, as None."""
    config = tiny_config(**SYSTEMS[name])
    torch.manual_seed(0)
    model = build_model(config, TOKENIZER.vocabulary_size).eval()
    for name_of_pass in ("encode", "decode"):
        patch.setattr(model, name_of_pass, noted(getattr(model, name_of_pass), events))
    return DocumentTranslator(model, config, TOKENIZER, torch.device("cpu"), first_pass=first_pass)


@pytest.mark.parametrize(
    ("name", "first_pass"), [*((name, "") for name in SYSTEMS), ("windows", "sentences")]
)
def test_every_model_pass_is_reported(name: str, first_pass: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is told adds up to the sentences, however many batches there are, with a first pass too."""
    monkeypatch.setattr(non_autoregressive, "PASS_TOKENS", 50)
    events: list[int | None] = []
    before = system(first_pass, events, monkeypatch) if first_pass else None
    translator = system(name, events, monkeypatch, before)
    documents = [
        Document(str(n), tuple(" ".join(WORDS[: 2 + (n + k) % 7]) for k in range(5))) for n in range(8)
    ]
    found = dict(translator.translate(documents, events.append))
    told = [count for count in events if count is not None]
    assert sum(told) == sum(len(found[n].document) for n in range(8)) == 40
    assert all(count >= 0 for count in told)
    passes = longest = 0
    for event in events:
        passes = passes + 1 if event is None else 0
        longest = max(longest, passes)
    # What is written at once is read and written between two words.
    assert longest <= (2 if name == "CASA" else 1)
    assert events.count(None) > 4
