"""Work that is told while a batch is searched: never two passes of the model without a word."""

from typing import Any

import pytest
import torch
from tiny import WordTokenizer, pieces, tiny_config, window

from cotext.data.documents import Document
from cotext.decoding import non_autoregressive
from cotext.decoding.translator import DocumentTranslator
from cotext.models.build import build_model

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


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_pass_of_the_model_is_followed_by_a_word(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is told adds up to the sentences, however many batches there are."""
    monkeypatch.setattr(non_autoregressive, "PASS_TOKENS", 50)
    config = tiny_config(**SYSTEMS[name])
    torch.manual_seed(0)
    model = build_model(config, TOKENIZER.vocabulary_size).eval()
    events: list[int | None] = []
    decode = model.decode

    def noted(*inputs: Any) -> Any:
        events.append(None)
        return decode(*inputs)

    monkeypatch.setattr(model, "decode", noted)
    documents = [
        Document(str(n), tuple(" ".join(WORDS[: 2 + (n + k) % 7]) for k in range(5))) for n in range(8)
    ]
    translator = DocumentTranslator(model, config, TOKENIZER, torch.device("cpu"))
    found = dict(translator.translate(documents, events.append))
    told = [count for count in events if count is not None]
    assert sum(told) == sum(len(found[n].document) for n in range(8)) == 40
    assert all(count >= 0 for count in told)
    passes = longest = 0
    for event in events:
        passes = passes + 1 if event is None else 0
        longest = max(longest, passes)
    # The prefixes of a batch are read in a pass of their own.
    assert longest <= 2
    assert events.count(None) > 4
