"""P-Transformer against its equations, and against the baseline that it departs from."""

import math

import torch
from torch.nn.functional import linear

from cotext.config.recipe import Config, load_config
from cotext.data.batch import Batch, Instance, SpecialSymbols, make_batch
from cotext.data.views import Window
from cotext.layers.multi_head import AttentionSize, CrossAttention, RowSpan, SelfAttention
from cotext.layers.positions import sinusoidal
from cotext.models.build import build_model, initialise
from cotext.models.p_transformer import AbsoluteScore, PositionScore
from cotext.models.transformer import Transformer
from cotext.training.warm_start import at_span
from tests.layers.layouts import doubles, layout, source_side
from tests.tiny import full

SYMBOLS = SpecialSymbols(pad=20, bos=21, eos=22, separators=(23,))
SMALL = ["model.dimension=16", "model.feed_forward=32", "model.heads=2", "model.dropout=0"]
SMALL += ["model.encoder_layers=2", "model.decoder_layers=2"]
SPAN = 512


def batch() -> Batch:
    """Two rows of unequal lengths; the first has three sentences."""
    whole = Window(range(3), range(3), range(3))
    rows = [
        Instance(0, whole, [[1, 2], [3], [4, 5, 6]], [[11], [12, 13], [14]]),
        Instance(1, Window(range(1), range(1), range(1)), [[7, 1]], [[15, 16, 17]]),
    ]
    return make_batch(rows, SYMBOLS)


def build(*overrides: str) -> Transformer:
    torch.manual_seed(1)
    model = build_model(load_config("p-transformer/doc", None, [*SMALL, *overrides]), 24).double().eval()
    assert isinstance(model, Transformer)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            parameter.copy_(doubles(*parameter.shape, seed=sum(map(ord, name))) * 0.3)
    return model


def parameters(config: Config) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in build_model(config, 32_000).parameters())


def test_parameters_over_the_baseline_are_those_of_table_v() -> None:
    """1025 vectors of head size 64, and nothing else; none without relative positions."""
    baseline = parameters(load_config("p-transformer/transformer-doc"))
    assert parameters(load_config("p-transformer/doc")) - baseline == 65_600
    assert parameters(load_config("p-transformer/doc", None, ["model.attention.score=absolute"])) == baseline
    longer = load_config("p-transformer/doc", None, ["view.max_tokens=2048", "model.relative_span=2048"])
    assert parameters(longer) - baseline == 4097 * 64
    sentence = parameters(load_config("p-transformer/transformer-sent"))
    assert parameters(load_config("p-transformer/sent")) - sentence == 65_600


def test_self_attention_is_equations_10_and_11() -> None:
    """Queries and keys from H + P, values from H, one relative table for both heads, scaled by sqrt(K)."""
    size = AttentionSize(6, 2, 0.0)
    attention = SelfAttention(size, RowSpan(), PositionScore(size)).double()
    initialise(attention, "xavier")
    h, table = doubles(2, 5, 6), doubles(2 * SPAN + 1, 3, seed=1)
    p = sinusoidal(torch.arange(5), 6).double().expand(2, -1, -1)
    wq, wk, wv = attention.qkv.weight.chunk(3)  # biases are zero
    distance = torch.arange(5) - torch.arange(5)[:, None]
    relative = table[distance + SPAN]  # [I, I, K]
    heads = []
    for head in range(2):
        rows = slice(3 * head, 3 * head + 3)
        q, k, v = linear(h + p, wq[rows]), linear(h + p, wk[rows]), linear(h, wv[rows])
        s_rel = torch.einsum("bik,ijk->bij", q, relative)
        heads.append(((q @ k.transpose(1, 2) + s_rel) / math.sqrt(3)).softmax(dim=-1) @ v)
    expected = linear(torch.cat(heads, dim=-1), attention.out.weight)
    rows = layout(torch.zeros(2, 5, dtype=torch.long), 6, relative=table)
    torch.testing.assert_close(attention(h, rows), expected)


@torch.no_grad()
def test_distances_beyond_the_span_share_its_ends() -> None:
    """The row has 9 source tokens: of a span of 2, all longer distances use the vectors at the ends."""
    whole, short = build("model.relative_span=8"), build("model.relative_span=2")
    assert whole.relative is not None
    assert short.relative is not None
    assert short.relative.size(0) == 5
    whole.load_state_dict(short.state_dict() | {"relative": at_span(short.relative, 8)})
    rows = batch()
    torch.testing.assert_close(full(whole, rows)[rows.is_label], full(short, rows)[rows.is_label])
    whole.relative[0] += 1  # the key 8 tokens before its query
    assert not torch.allclose(full(whole, rows)[rows.is_label], full(short, rows)[rows.is_label])


def test_cross_attention_is_equation_7() -> None:
    size = AttentionSize(6, 1, 0.0)
    attention = CrossAttention(size, RowSpan(), AbsoluteScore(size)).double()
    initialise(attention, "xavier")
    h_s, h_t = doubles(2, 5, 6), doubles(2, 3, 6, seed=1)
    p_s, p_t = (sinusoidal(torch.arange(n), 6).double().expand(2, -1, -1) for n in (5, 3))
    wk, wv = attention.key_value.weight.chunk(2)
    scores = linear(h_t + p_t, attention.query.weight) @ linear(h_s + p_s, wk).transpose(1, 2) / math.sqrt(6)
    expected = linear(scores.softmax(dim=-1) @ linear(h_s, wv), attention.out.weight)
    source = source_side(attention, h_s, torch.zeros(2, 5, dtype=torch.long))
    rows = layout(torch.zeros(2, 3, dtype=torch.long), 6, causal=True, source=source)
    torch.testing.assert_close(attention(h_t, rows), expected)
