"""Word alignment by the removal of source words, against scores of documents that lack them."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from cotext.data.documents import ParallelDocument
from cotext.translation.alignment import align, attention_of, differences
from cotext.translation.translator import DocumentTranslator
from tests.tiny import PlainWordTokenizer, random_translator, tiny_config, window

TOKENIZER = PlainWordTokenizer(["a", "b", "c", "d", "e", "f"])
DOCUMENT = ParallelDocument("0", ("a b c", "d e", "f", "", "a d"), ("c b", "e f d", "a", "", "b"))


def translator(**sections: Any) -> DocumentTranslator:
    return random_translator(tiny_config(view=window(1), **sections), TOKENIZER)


def test_differences_are_losses_of_log_probability_without_a_word() -> None:
    system = translator()
    [found] = differences(system, [(DOCUMENT, [1, 2])])
    assert set(found) == {1, 2}
    assert not found[2].any()  # a single word tells nothing
    [[whole]] = system.score_tokens([(DOCUMENT, [1])])
    columns = []
    for left in ("e", "d"):
        source = (DOCUMENT.source[0], left, *DOCUMENT.source[2:])
        [[less]] = system.score_tokens([(replace(DOCUMENT, source=source), [1])])
        columns.append([max(a - b, 0.0) for a, b in zip(whole[:-1], less[:-1], strict=True)])
    by_hand = torch.tensor(columns, dtype=torch.float64).T
    total = by_hand.sum(dim=1, keepdim=True)
    torch.testing.assert_close(found[1], by_hand / total.clamp(min=1e-300))


@pytest.mark.parametrize("score", ["absolute", "positions", "content"])
def test_attention_with_positions_is_averaged_with_differences(score: str) -> None:
    system = translator(model={"attention": {"score": score}})
    [[found]] = align(system, [DOCUMENT], [[0]])
    [attention] = system.read([(DOCUMENT, [0])], attention_of)
    [removal] = differences(system, [(DOCUMENT, [0])])
    wanted = attention[0] if score == "content" else attention[0] + removal[0]
    torch.testing.assert_close(found.weights, wanted / wanted.sum(dim=1, keepdim=True))


def test_systems_without_attention_are_aligned_by_differences_alone() -> None:
    system = translator()
    [removal] = differences(system, [(DOCUMENT, [0])])
    system.plan = replace(system.plan, kind=replace(system.plan.kind, forced_pass=None))
    [[found]] = align(system, [DOCUMENT], [[0]])
    torch.testing.assert_close(found.weights, removal[0])
