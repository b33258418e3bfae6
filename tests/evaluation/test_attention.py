"""Maps of attention between sentences, and its spread, against weights worked out by hand."""

import json
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cotext.config.recipe import load_config
from cotext.data.batch import Batch, Instance, SpecialSymbols, make_batch
from cotext.data.documents import ParallelDocument
from cotext.data.views import WindowView
from cotext.evaluation.studies.attention.report import document_attention
from cotext.layers.kernels.relative import attend_relative
from cotext.layers.kernels.sdpa import attend, watch_weights
from cotext.layers.layout import Layout
from cotext.layers.spans import GatedOthersSpan
from cotext.models.build import build_model
from cotext.models.sentence_maps import GateOpenness, average_by_kind, sentence_maps
from cotext.models.transformer import Transformer
from cotext.translation.translator import DocumentTranslator
from tests.loops import loop_over
from tests.refusals import must_raise
from tests.tiny import TINY_MODEL, PlainWordTokenizer, random_model, tiny_config, window

SYMBOLS = SpecialSymbols(pad=20, bos=21, eos=22, separators=(23,))
SMALL = ["model.dimension=16", "model.feed_forward=32", "model.heads=2", "model.initialisation=xavier"]
SMALL += ["model.encoder_layers=2", "model.decoder_layers=1"]
FILLED = {
    "nothing": ["model.attention.score=content"],
    "current on top": ["model.attention.score=content", "model.encoder.top={layers: 1, span: current}"],
    "flat": ["model.attention.score=content", "model.batch_context=flat"],
    **{
        f"others, {score}": [
            f"model.attention={{score: {score}, others: gated}}",
            f"model.positions={'none' if score == 'alibi' else 'reset'}",
        ]
        for score in ("content", "relative", "alibi")
    },
}


def model(name: str = "nothing") -> Transformer:
    torch.manual_seed(0)
    built = build_model(load_config("p-transformer/doc", None, [*SMALL, *FILLED[name]]), 24).eval()
    return built


@loop_over("causal", [False, True])
@loop_over("relative", [False, True])
def test_the_weights_shown_are_those_that_mix_the_values(causal: bool, relative: bool) -> None:
    q, k, v = (torch.randn(2, 3, 5, 4, generator=torch.Generator().manual_seed(s)) for s in range(3))
    table = torch.randn(7, 4, generator=torch.Generator().manual_seed(3))
    mask = None if causal else torch.tensor([True, True, False, True, True]).view(1, 1, 1, 5)
    shown: list[Tensor] = []
    with watch_weights(lambda weights, real, tokens: shown.append(weights)):
        out = (
            attend_relative(q, k, v, table, mask, causal, 0) if relative else attend(q, k, v, mask, causal, 0)
        )
    assert len(shown) == 1
    weights = shown[0].float()
    torch.testing.assert_close(weights @ v, out)
    assert torch.allclose(weights.sum(dim=-1), torch.ones(()))


def document(before: int = 1, batches: int = 1, target_before: int | None = None) -> list[Batch]:
    """Sentences of 2, 1 and 3 source words and 1, 1 and 2 target words, in windows, in so many batches.

    With the symbol that closes each: 3, 2 and 4 source tokens, 2, 2 and 3 target tokens.
    """
    source, target = [[1, 2], [3], [4, 5, 6]], [[11], [12], [13, 14]]
    windows = WindowView(before, target_before=target_before).split([2, 1, 3], [1, 1, 2])
    rows = [Instance(0, w, [source[j] for j in w.source], [target[j] for j in w.target]) for w in windows]
    return [make_batch(rows[i::batches], SYMBOLS) for i in range(batches)]


def even(name: str = "nothing") -> Transformer:
    """Every query is the same but for a trace, and all keys that it may see have the same weight."""
    made = model(name)
    with torch.no_grad():
        for block in (*made.encoder, *made.decoder):
            block.attention.qkv.weight[:16].zero_()
            block.attention.qkv.bias[0] = 1e-30
        for block in made.decoder:
            block.cross.query.weight.zero_()
            block.cross.query.bias[0] = 1e-30
    return made


@pytest.mark.parametrize("batches", [1, 2, 3])
def test_even_weights_give_shares_that_count_tokens(batches: int) -> None:
    watched = even()
    found = sentence_maps(watched, document(batches=batches), 3)
    maps = found.maps
    assert found.gates == found.head_gates == {}
    assert {name: each.kind for name, each in maps.items()} == {
        "encoder.0.attention": "encoder",
        "encoder.1.attention": "encoder",
        "decoder.0.attention": "decoder",
        "decoder.0.cross": "cross",
    }
    nan = math.nan
    of_source = (
        [[1, nan, nan], [3 / 5, 2 / 5, nan], [nan, 2 / 6, 4 / 6]],
        [[1 / 3, nan, nan], [1 / 5, 1 / 5, nan], [nan, 1 / 6, 1 / 6]],
    )
    expected = {
        "encoder.1.attention": of_source,
        "decoder.0.cross": of_source,
        # Two queries see 3 and 4 tokens, two of them of the sentence before; three see 3, 4 and 5.
        "decoder.0.attention": (
            [
                [1, nan, nan],
                [(2 / 3 + 2 / 4) / 2, (1 / 3 + 2 / 4) / 2, nan],
                [nan, (2 / 3 + 2 / 4 + 2 / 5) / 3, (1 / 3 + 2 / 4 + 3 / 5) / 3],
            ],
            [
                [(1 + 1 / 2 + 1 / 2) / 4, nan, nan],
                [(2 / 3 + 2 / 4) / 4, (1 / 3 + 2 / 4) / 4, nan],
                [nan, (2 / 3 + 2 / 4 + 2 / 5) / 6, (1 / 3 + 2 / 4 + 3 / 5) / 9],
            ],
        ),
    }
    for name, (share, mean) in expected.items():
        for found, right in ((maps[name].share, share), (maps[name].mean, mean)):
            torch.testing.assert_close(found, torch.tensor(right).double(), equal_nan=True, atol=1e-6, rtol=0)
        assert maps[name].beside.abs().max() < 1e-12
    # Of current queries alone, 3 + 2 + 4 of them, that see 3, 5 and 6 tokens.
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in watched.modules())
    top = maps["encoder.1.attention"]
    assert top.nats == pytest.approx((3 * math.log(3) + 2 * math.log(5) + 4 * math.log(6)) / 9)
    assert top.normalised_entropy == pytest.approx(1)


MEMORY = {"span": "memory", "score": "transformer_xl"}
MCN = {
    "encoder": {"span": "sentence"},
    "cross": {"span": "sentence"},
    "document_layer": "segment_gate",
    "target_positions": "none",
}
EARLIER = {"encoder-document": (-2, -1), "decoder-document": (-2, -1)}
# Slots; by kind of attention, how many sentences before and after its own it sees, if not the row.
WATCHED: dict[str, tuple[dict[str, Any], dict[str, tuple[int, int]]]] = {
    "nothing": ({}, {}),
    **{
        score: ({"attention": {"score": score}}, {})
        for score in ("absolute", "relative", "positions", "rotary", "alibi")
    },
    "sentences": ({"attention": {"span": "sentence"}}, {}),
    "gated": ({"attention": {"span": "sentence", "top": {"layers": 1, "mix": "gated"}}}, {}),
    "current on top": (
        {"encoder_layers": 2, "encoder": {"top": {"layers": 1, "span": "current"}}},
        {"cross": (0, 0)},
    ),
    "cross-attention to current sentences": ({"cross": {"span": "current"}}, {"cross": (0, 0)}),
    "segment distance": ({"encoder": {"score": "segment_distance"}}, {}),
    "others": ({"attention": {"others": "gated"}, "positions": "reset"}, {}),
    **{
        f"memory of {m}": (MCN | {"decoder": MEMORY | {"memory_sentences": m}}, {"decoder": (-m, 0)})
        for m in (0, 1, 2)
    },
    "ordinary decoder, context of one": (
        MCN | {"decoder": {"span": "sentence"}, "target_positions": "reset", "source_sentences": 1},
        {"encoder-document": (-1, 1)},
    ),
    **{
        f"flat, {gate}": ({"batch_context": "flat", "batch": {"gate": gate}}, {})
        for gate in ("continuous", "discrete", "identity")
    },
    **{
        f"{kind}, {'both sides' if target else 'source'}": (
            {"batch_context": kind, "batch": {"target": target}},
            {},
        )
        for kind in ("mean", "datapoints")
        for target in (False, True)
    },
    "hierarchical": ({"document_layer": "hierarchical", "document": {"target": True}}, EARLIER),
    "selective": ({"document_layer": "selective", "document": {"target": True, "later": False}}, EARLIER),
}
MEAN = {"batch_context": "mean", "batch": {"target": True}}
for filled in ("sentences", "cross-attention to current sentences", "selective"):
    WATCHED[f"{filled}, mean"] = (WATCHED[filled][0] | MEAN, WATCHED[filled][1])


@loop_over("name", WATCHED)
def test_shares_of_every_system(name: str) -> None:
    """They sum to one, within a window whose sentences come from the right places of the document."""
    slots, spans = WATCHED[name]
    batch_level = "batch_context" in slots
    view = window(2, after=1) | ({"separators": "numbered", "numbers": 3} if batch_level else {})
    config = tiny_config(model={**TINY_MODEL, **slots}, view=view)
    tokenizer = PlainWordTokenizer(["the", "cat", "sat", "on", "a", "mat"])
    watched = random_model(config, tokenizer).float()
    translator = DocumentTranslator(watched, config, tokenizer, torch.device("cpu"))
    source = ("the cat", "sat", "", "on a mat the", "cat", "sat on", "a cat")
    target = ("sat", "on a", "", "mat the cat", "a", "the the", "mat")
    found = document_attention(translator, ParallelDocument("d", source, target), "", own=False)
    assert found.numbers == (1, 2, 4, 5, 6, 7)
    assert [t for t, _ in found.tokens] == [2, 1, 4, 1, 2, 2]
    for each in (*found.maps.values(), *found.kinds):
        sums = (each.share.nansum(dim=1) + each.beside).nan_to_num(1.0)  # NaN without a query
        torch.testing.assert_close(sums, torch.ones(6).double(), atol=1e-6, rtol=0)
    for each in found.maps.values():
        if each.kind.startswith("batch"):
            lower, upper = -5, 5
        else:
            lower, upper = spans.get(each.kind, (0, 0) if each.kind.endswith("local") else (-2, 1))
        inside = torch.ones(6, 6).triu(lower).tril(min(upper, 0) if "decoder" in each.kind else upper)
        if each.kind == "batch-target":
            inside = inside.tril(0)
        if name == "current on top" and each.kind == "encoder":  # below the row, above one sentence
            top = next(iter(each_map for each_map in found.maps if each_map.endswith("1.attention")))
            inside = torch.eye(6) if each is found.maps[top] else inside
        assert torch.equal(each.seen, inside.bool()), each.kind
    json.dumps(found.as_dict(), allow_nan=False)
    alone = document_attention(translator, ParallelDocument("d", source[:1], target[:1]), "", own=False)
    assert set(alone.maps) <= set(found.maps)
    headers = [line for line in found.render().splitlines() if line.startswith("gates to other sentences")]
    assert [line.split()[-6:] for line in headers] == (
        [["1", "back", "2", "back", "1", "ahead"]] if name == "others" else []
    )


@loop_over("score", ["content", "relative", "alibi"])
@loop_over("factors", [(0.0, 0.0), (0.5, -0.25)])
@loop_over("target_before", [0, 1, 2])
def test_gates_to_other_sentences(score: str, factors: tuple[float, float], target_before: int) -> None:
    """One map of own sentences and others, however scores are computed; what passes is weight times gate."""
    made = model(f"others, {score}")
    with torch.no_grad():
        for module in made.modules():
            if isinstance(module, GatedOthersSpan):
                module.gate.copy_(torch.tensor(factors).atanh())
    found = sentence_maps(made, document(before=2, target_before=target_before), 3)
    assert list(found.head_gates) == list(found.maps)
    for name, gates in found.head_gates.items():
        assert gates.open.tolist() == pytest.approx(factors)
        assert gates.overall == pytest.approx(sum(map(abs, factors)) / 2)
        farthest = target_before if gates.kind == "decoder" else 2
        assert set(gates.by_distance) == set(range(1, farthest + 1))
        if not farthest:  # rows of one sentence
            continue
        # Queries of sentence 1 have nobody two sentences back; those of sentence 2 may choose between two.
        queries = found.maps[name].queries
        both = gates.by_distance[1] * (queries[1] + queries[2]) + gates.by_distance.get(2, 0) * queries[2]
        assert (both / (queries[1] + queries[2])).tolist() == pytest.approx([abs(f) for f in factors])
        share = found.maps[name].share
        assert share[0, 0] == pytest.approx(1)
        assert share[2, :2].nansum() == pytest.approx(sum(abs(f) / (1 + abs(f)) for f in factors) / 2)


def test_averages_over_layers_count_what_is_out_of_sight_as_nothing() -> None:
    maps = sentence_maps(model("current on top"), document(before=1), 3).maps
    both = next(each for each in average_by_kind(maps) if each.kind == "encoder")
    assert both.attentions == ("encoder.0.attention", "encoder.1.attention")
    below, above = (maps[name].share for name in both.attentions)
    assert both.share[1, 0] == below[1, 0] / 2
    assert both.share[1, 1] == (below[1, 1] + above[1, 1]) / 2
    assert both.share[0, 2].isnan()


def test_attention_over_unknown_tokens_is_refused() -> None:
    class Pool(nn.Module):
        current_only = False

        def forward(self, x: Tensor, layout: Layout) -> Tensor:
            q = torch.ones(1, 1, 7, 2)
            attend(q, q, q, None, False, 0.0)
            return x

    made = model()
    made.encoder.insert(0, Pool())
    message = r"rows of \[7\] tokens, but the rows of the batch have \[3, 5, 6\]"
    must_raise(message, sentence_maps, made, document(), 3)


def test_openness_of_sentences() -> None:
    gate = GateOpenness("batch-source", 3)
    gate.add(torch.tensor([[0.0, 0.5], [1.0, 0.5], [0.25, 0.25]]), torch.tensor([0, 0, 1]))
    gate.add(torch.tensor([[1.0, 1.0]]), torch.tensor([2]))
    assert gate.openness.tolist() == [0.5, 0.25, 1.0]
    assert gate.overall == (0.25 + 0.75 + 0.25 + 1) / 4


def test_attention_across_the_batch_and_its_gate() -> None:
    """9 current source tokens see each other; of 7 target ones, the t-th sees t of 2, 2 and 3."""
    made = model("flat")
    with torch.no_grad():
        for context in (made.batch_context.source_context, made.batch_context.target_context):
            context.attention.qkv.weight[:16].zero_()
            context.attention.qkv.bias[0] = 1e-30
            context.gate.linear.weight.zero_()
            context.gate.linear.bias.fill_(math.log(3))  # three quarters open
    found = sentence_maps(made, document(before=1), 3)
    maps, gates = found.maps, found.gates
    even = torch.tensor([3 / 9, 2 / 9, 4 / 9]).double()
    of_source = maps["batch_context.source_context.attention"]
    torch.testing.assert_close(of_source.share, even.expand(3, 3), atol=1e-6, rtol=0)
    ninth = torch.full((3, 3), 1 / 9).double()
    torch.testing.assert_close(of_source.mean, ninth, atol=1e-6, rtol=0)
    nan = math.nan
    causal = [
        [1, nan, nan],
        [(2 / 3 + 2 / 4) / 2, (1 / 3 + 2 / 4) / 2, nan],
        [(2 / 5 + 2 / 6 + 2 / 7) / 3, (2 / 5 + 2 / 6 + 2 / 7) / 3, (1 / 5 + 2 / 6 + 3 / 7) / 3],
    ]
    found = maps["batch_context.target_context.attention"].share
    torch.testing.assert_close(found, torch.tensor(causal).double(), equal_nan=True, atol=1e-6, rtol=0)
    assert {name: gate.kind for name, gate in gates.items()} == {
        "batch_context.source_context.gate": "batch-source",
        "batch_context.target_context.gate": "batch-target",
    }
    for gate in gates.values():
        torch.testing.assert_close(gate.openness, torch.full((3,), 0.75).double())
