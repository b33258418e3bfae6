"""Dropout, packing, attention and blocks, each beside its plain definition."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import layer_norm, linear

from cotext.layers.blocks import Residual
from cotext.layers.kernels.common import Dropout, Packing, dropout, keep_mask
from cotext.layers.kernels.sdpa import attend
from cotext.layers.multi_head import Activation, AttentionSize, FeedForward, RowSpan, Score, SelfAttention
from cotext.layers.scores import AlibiScore
from cotext.models.build import build_model
from cotext.models.interface import Model
from tests.layers.layouts import doubles, layout, sentences
from tests.tiny import tiny_config

# Activations


@pytest.mark.parametrize(
    ("activation", "by_hand"),
    [
        ("relu", lambda x: x * (x > 0)),
        ("swish", lambda x: x / (1 + (-x).exp())),
        ("gelu", lambda x: x * torch.distributions.Normal(0, 1).cdf(x)),
        ("gelu_sigmoid", lambda x: x / (1 + (-1.702 * x).exp())),
    ],
)
def test_activations_by_hand(activation: Activation, by_hand: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    layer = FeedForward(6, 12, 0.0, activation).double()
    x = torch.randn(4, 6, dtype=torch.float64)
    torch.testing.assert_close(layer(x), layer.narrow(by_hand(layer.widen(x))))
    dropping = FeedForward(6, 1000, 0.4, activation).double()
    wide: list[Tensor] = []
    dropping.narrow.register_forward_hook(lambda module, inputs, out: wide.append(inputs[0]))
    dropping(x)
    kept, expected = wide[0], by_hand(dropping.widen(x)) / 0.6
    assert 0.3 < float((kept == 0).double().mean()) < 0.8
    torch.testing.assert_close(kept[kept != 0], expected[kept != 0], rtol=1e-4, atol=1e-6)


# Dropout


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_keep_mask_keeps_at_its_rate_and_independently(rate: float) -> None:
    torch.manual_seed(0)
    keep = keep_mask(torch.empty(400_003), rate).double()
    assert keep.mean().item() == pytest.approx(1 - rate, abs=0.004)
    # Four neighbours come from one random number: none may say anything about another.
    for distance in (1, 2, 3, 4):
        together = (keep[:-distance] * keep[distance:]).mean().item()
        assert together == pytest.approx((1 - rate) ** 2, abs=0.005)
    for first in range(4):
        assert keep[first::4].mean().item() == pytest.approx(1 - rate, abs=0.008)


@given(st.integers(0, 9), st.integers(1, 9))
@settings(max_examples=30)
def test_keep_mask_has_the_shape_of_any_tensor(rows: int, columns: int) -> None:
    x = torch.empty(columns, rows).T
    assert keep_mask(x, 0.5).shape == x.shape


def test_dropout_zeroes_or_scales_and_passes_gradients_where_it_kept() -> None:
    x = (doubles(7, 9) + 10).requires_grad_()
    out = Dropout(0.4)(x)
    kept = out != 0
    assert 0 < int(kept.sum()) < kept.numel()
    torch.testing.assert_close(out[kept], x[kept] / 0.6)
    (gradient,) = torch.autograd.grad((out * 3).sum(), x)
    torch.testing.assert_close(gradient, kept.double() / 0.6 * 3)


def test_dropout_in_bfloat16_drops_and_scales_the_same() -> None:
    x = doubles(60, 5).bfloat16()
    outcomes = []
    for dtype in (torch.bfloat16, torch.float32):
        torch.manual_seed(1)
        given = x.to(dtype).requires_grad_()
        out = dropout(given, 0.3, True)
        assert out.dtype == dtype
        (gradient,) = torch.autograd.grad(out.float().square().sum(), given)
        outcomes.append((out.float(), gradient.float()))
    torch.testing.assert_close(*outcomes, rtol=0.01, atol=0)


def test_no_dropout_in_evaluation_nor_at_rate_zero() -> None:
    x = doubles(50)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)
    assert Dropout(1.0)(x).abs().max() == 0


# Packing


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5))
@settings(max_examples=40)
def test_unpacking_undoes_packing_but_for_padding(lengths: list[int]) -> None:
    sentence = sentences([[n] for n in lengths])
    packing = Packing.of(sentence)
    assert (packing is None) == (len(set(lengths)) == 1)
    if packing is None:
        return
    x = doubles(*sentence.shape, 3)
    packed = packing.pack(x)
    torch.testing.assert_close(packed, torch.cat([row[:n] for row, n in zip(x, lengths, strict=True)]))
    torch.testing.assert_close(packing.unpack(packed), x * (sentence >= 0)[..., None])


# Attention


@pytest.mark.parametrize("rate", [0.0, 0.25])
def test_attention_to_bfloat16_computes_in_single_precision(rate: float) -> None:
    q, k, v = (doubles(2, 2, 40, 8, seed=seed).bfloat16() for seed in range(3))
    outcomes = []
    for inputs in ((q, k, v), tuple(x.float() for x in (q, k, v))):
        torch.manual_seed(2)
        leaves = [x.clone().requires_grad_() for x in inputs]
        with torch.autocast("cpu", torch.bfloat16, enabled=leaves[0].dtype == torch.bfloat16):
            out = attend(*leaves, None, True, rate)
        assert out.dtype == leaves[0].dtype
        outcomes.append((out, *torch.autograd.grad(out.float().sum(), leaves)))
    for rounded, single in zip(*outcomes, strict=True):
        assert torch.equal(rounded, single.bfloat16())


@pytest.mark.parametrize(("score", "slopes"), [(Score, (0, 0)), (AlibiScore, (1 / 16, 1 / 256))])
def test_fused_projections_are_the_three_of_the_paper(
    score: type[Score], slopes: tuple[float, float]
) -> None:
    """With ALiBi, a distance costs 2^(-8 h / H) of head h = 1 ... H."""
    size = AttentionSize(6, 2, 0.0)
    attention = SelfAttention(size, RowSpan(), score(size)).double()
    x, place = doubles(2, 5, 6), torch.arange(5)
    heads = []
    for head, slope in enumerate(slopes):
        rows = slice(3 * head, 3 * head + 3)
        q, k, v = (
            linear(x, weight[rows], bias[rows])
            for weight, bias in zip(attention.qkv.weight.chunk(3), attention.qkv.bias.chunk(3), strict=True)
        )
        scores = q @ k.transpose(1, 2) / 3**0.5 - slope * (place[:, None] - place).abs()
        heads.append(scores.softmax(dim=-1) @ v)
    expected = linear(torch.cat(heads, dim=-1), attention.out.weight, attention.out.bias)
    torch.testing.assert_close(attention(x, layout(torch.zeros(2, 5, dtype=torch.long), 6)), expected)


# Blocks


def test_residual_orders() -> None:
    x = doubles(2, 3, 8)
    after, before = (Residual(8, 0.0, pre_norm).double() for pre_norm in (False, True))
    torch.testing.assert_close(after(x, torch.sin), layer_norm(x + x.sin(), [8]))
    torch.testing.assert_close(before(x, torch.sin), x + layer_norm(x, [8]).sin())


DEFAULT_BIAS = ("qkv", "query", "key_value", "widen", "narrow")


class TestInitialisation:
    """Spreads of what is drawn, by hand: D = 64, F = 256, V = 500."""

    def model(self, kind: str) -> Model:
        torch.manual_seed(0)
        size = {"dimension": 64, "feed_forward": 256, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
        attention = {"span": "sentence", "top": {"layers": 1, "mix": "gated"}}
        model = {"initialisation": kind, "attention": attention, **size}
        return build_model(tiny_config(model=model, view={"separators": "bracket"}), 500)

    @pytest.mark.parametrize(
        ("kind", "expected"),
        [
            # A uniform distribution within a has the standard deviation a / sqrt(3); Xavier's a is
            # sqrt(6 / (64 + 64)) for square parts, sqrt(6 / (64 + 256)) for feed-forward layers.
            ("xavier", (1 / 8, 1 / 8, 160**-0.5, 160**-0.5, 96**-0.5, 1 / 8)),
            # Of the inputs of attention 1 / sqrt(2) of it; torch's default a is 1 / sqrt(inputs).
            ("fairseq", (128**-0.5, 1 / 8, 192**-0.5, 768**-0.5, 96**-0.5, 1 / 8)),
            ("normal", (0.02,) * 6),
        ],
    )
    def test_weights(self, kind: str, expected: tuple[float, ...]) -> None:
        parameters = dict(self.model(kind).named_parameters())
        names = (
            "decoder.0.cross.wide.key_value.weight",
            "encoder.0.attention.local.out.weight",
            "encoder.0.feed_forward.widen.weight",
            "decoder.0.feed_forward.narrow.weight",
            "encoder.0.attention.gate.weight",
            "embedding.weight",
        )
        for name, spread in zip(names, expected, strict=True):
            assert float(parameters[name].detach().std()) == pytest.approx(spread, rel=0.05), name

    @pytest.mark.parametrize("kind", ["xavier", "fairseq", "normal"])
    def test_biases(self, kind: str) -> None:
        """Zero, but for torch's default where the toolkit leaves it."""
        for name, parameter in self.model(kind).named_parameters():
            if name.endswith("bias"):
                default = kind == "fairseq" and any(part in name for part in DEFAULT_BIAS)
                assert bool(parameter.any()) == default, name
                assert float(parameter.detach().abs().max()) <= 1 / 8

    def test_a_fused_projection_is_drawn_part_by_part(self) -> None:
        """As squares of 64 x 64, not as one matrix of 192 x 64, whose bound is smaller."""
        qkv = dict(self.model("xavier").named_parameters())["encoder.0.attention.local.qkv.weight"]
        assert float(qkv.detach().abs().max()) > (6 / (64 + 192)) ** 0.5 * 1.2
