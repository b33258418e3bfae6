"""Word alignment from cross-attention, for every kind of system."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from cotext.config.recipe import load_config
from cotext.data.batch import Instance, make_batch
from cotext.data.documents import ParallelDocument
from cotext.data.views import Window
from cotext.layers.kernels.sdpa import watch_weights
from cotext.models.attention_weights import attention_of
from cotext.models.build import build_model
from cotext.translation.alignment import align, differences
from cotext.translation.terms.word_alignment import proportional
from cotext.translation.translator import DocumentTranslator
from tests.tiny import PlainWordTokenizer, random_translator, shake, tiny_config, window

TOKENIZER = PlainWordTokenizer(["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"])
DOCUMENTS = [
    ParallelDocument("0", ("a b c", "d e", "f", "", "g h i"), ("c b", "e f d", "g h", "", "a b c d")),
    ParallelDocument("1", ("a a", "a b"), ("c", "c d d")),  # the same words in both sentences
]
RECIPES = (
    *("focused-concatenation/base", "focused-concatenation/s4to4-shift-cd", "docflat/docflat-c"),
    *("docflat/abd", "g-transformer/randinit", "p-transformer/ctx", "mcn/final", "han/joint"),
    *("casa/casa", "casa/glat"),
)


def translator(config: Any, seed: int = 0) -> DocumentTranslator:
    torch.manual_seed(seed)
    model = build_model(config, TOKENIZER.vocabulary_size)
    shake(model, 0.3)
    return DocumentTranslator(model.double().eval(), config, TOKENIZER, torch.device("cpu"))


def of_recipe(name: str) -> DocumentTranslator:
    size = {"dimension": 16, "feed_forward": 32, "heads": 2, "encoder_layers": 2, "decoder_layers": 2}
    overrides = [f"model.{key}={value}" for key, value in size.items()]
    config = load_config(name, overrides=overrides)
    if config.view.numbers == "corpus":
        overrides.append("view.numbers=12")
    if config.model.shift == "corpus":
        overrides.append("model.shift=5")
    return translator(load_config(name, overrides=overrides))


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_system_aligns_its_own_sentences(recipe: str) -> None:
    system = of_recipe(recipe)
    found = align(system, DOCUMENTS)
    assert [len(each) for each in found] == [5, 2]
    for document, of_document in zip(DOCUMENTS, found, strict=True):
        for source, target, each in zip(document.source, document.target, of_document, strict=True):
            words = len(target.split()), len(source.split())
            assert each.weights.shape == words
            assert [target[a:b] for a, b in each.target_spans] == target.split()
            assert [source[a:b] for a, b in each.source_spans] == source.split()
            if all(words):
                torch.testing.assert_close(each.weights.sum(dim=1), torch.ones(words[0]).double())
    if system.plan.kind.path is None:
        assert not torch.equal(found[0][0].weights, proportional("a b c", "c b").weights)


@pytest.mark.parametrize("recipe", ["docflat/docflat-c", "mcn/final", "casa/casa", "casa/glat"])
def test_alignments_do_not_depend_on_the_batch_nor_on_what_else_is_asked(recipe: str) -> None:
    system = of_recipe(recipe)
    together = align(system, DOCUMENTS)
    [alone] = align(system, DOCUMENTS[:1], [[4, 1]])
    torch.testing.assert_close(alone[0].weights, together[0][4].weights)
    torch.testing.assert_close(alone[1].weights, together[0][1].weights)


def test_alignment_is_the_attention_of_the_step_that_writes_a_token() -> None:
    """Against the weights of one row, taken apart by hand."""
    system = translator(tiny_config(view=window(1)))
    document = ParallelDocument("0", ("a b c", "d e"), ("c b", "e f d"))
    shown: list[torch.Tensor] = []
    # Of the second window: source  a b c sep d e eos   input  bos c b sep e f d   label  c b sep e f d eos
    encode = TOKENIZER.encode
    whole = Window(range(2), range(2), range(1, 2))
    row = Instance(0, whole, [encode(s) for s in document.source], [encode(t) for t in document.target])
    batch = make_batch([row], system.plan.symbols)
    with torch.inference_mode():
        state = system.model.encode(batch.source)
        with watch_weights(lambda weights_BHTS, *rest: shown.append(weights_BHTS)):
            system.model.decode(batch.target_input, batch.input_sentence, state)
    crosses = [weights for weights in shown if weights.size(3) == 7 and weights.size(2) == 7][1::2]
    assert len(crosses) == 2
    [[found]] = align(system, [document], [[1]])
    by_hand = sum(weights[0].mean(dim=0)[3:6, 4:6] for weights in crosses)
    torch.testing.assert_close(found.weights, by_hand / by_hand.sum(dim=1, keepdim=True))


def test_attention_by_sentence_after_an_extra_token_is_that_of_rows_of_one_sentence() -> None:
    found = []
    for span in ("row", "sentence"):
        model = {"batch_context": "mean", "batch": {"target": True}, "attention": {"span": span}}
        found.append(align(translator(tiny_config(view=window(0), model=model)), DOCUMENTS)[0])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one.weights, other.weights)


STORY = ParallelDocument("0", ("a b c", "d e", "f", "", "a d"), ("c b", "e f d", "a", "", "b"))


def windows_of_two(**sections: Any) -> DocumentTranslator:
    return random_translator(tiny_config(view=window(1), **sections), TOKENIZER)


def test_differences_are_losses_of_log_probability_without_a_word() -> None:
    system = windows_of_two()
    [found] = differences(system, [(STORY, [1, 2])])
    assert set(found) == {1, 2}
    assert not found[2].any()  # a single word tells nothing
    [[whole]] = system.score_tokens([(STORY, [1])])
    columns = []
    for left in ("e", "d"):
        source = (STORY.source[0], left, *STORY.source[2:])
        [[less]] = system.score_tokens([(replace(STORY, source=source), [1])])
        columns.append([max(a - b, 0.0) for a, b in zip(whole[:-1], less[:-1], strict=True)])
    by_hand = torch.tensor(columns, dtype=torch.float64).T
    total = by_hand.sum(dim=1, keepdim=True)
    torch.testing.assert_close(found[1], by_hand / total.clamp(min=1e-300))


@pytest.mark.parametrize("score", ["absolute", "positions", "content"])
def test_attention_with_positions_is_averaged_with_differences(score: str) -> None:
    system = windows_of_two(model={"attention": {"score": score}})
    [[found]] = align(system, [STORY], [[0]])
    [attention] = system.read([(STORY, [0])], attention_of)
    [removal] = differences(system, [(STORY, [0])])
    wanted = attention[0] if score == "content" else attention[0] + removal[0]
    torch.testing.assert_close(found.weights, wanted / wanted.sum(dim=1, keepdim=True))


def test_systems_without_attention_are_aligned_by_differences_alone() -> None:
    system = windows_of_two()
    [removal] = differences(system, [(STORY, [0])])
    system.plan = replace(system.plan, kind=replace(system.plan.kind, forced_pass=None))
    [[found]] = align(system, [STORY], [[0]])
    torch.testing.assert_close(found.weights, removal[0])
