"""The spread of attention, against weights worked out by hand."""

import math

import pytest
import torch
from torch import Tensor

from cotext.analysis.attention import attention_spread
from cotext.config import load_config
from cotext.data.batch import Batch, Instance, SpecialSymbols, make_batch
from cotext.data.views import Window
from cotext.layers.attend import attend, watch_weights
from cotext.layers.relative import attend_relative
from cotext.models.base import TranslationModel
from cotext.systems import build_model

SYMBOLS = SpecialSymbols(pad=20, bos=21, eos=22, separators=(23,))
SMALL = ["model.dimension=16", "model.feed_forward=32", "model.heads=2"]
SMALL += ["model.encoder_layers=2", "model.decoder_layers=1"]


def batch(rows: int = 2) -> Batch:
    """5 source tokens and 4 labels; beside it, 2 and 2 with padding."""
    both = [
        Instance(0, Window(range(2), range(2), range(2)), [[1, 2], [3]], [[11], [12]]),
        Instance(1, Window(range(1), range(1), range(1)), [[7]], [[15]]),
    ]
    return make_batch(both[:rows], SYMBOLS)


def model(name: str = "transformer") -> TranslationModel:
    torch.manual_seed(0)
    return build_model(load_config("p-transformer/doc", None, [*SMALL, f"model.name={name}"]), 24).eval()


def test_even_weights_have_the_entropy_of_the_keys_there_are() -> None:
    """With queries of zero every visible key has the same weight, whatever padding stands beside."""
    even = model()
    with torch.no_grad():
        even.decoder[0].cross.query.weight.zero_()
        even.decoder[0].cross.query.bias[0] = 1e-30  # not a query of padding
        even.encoder[1].attention.qkv.weight[:16].zero_()
        even.encoder[1].attention.qkv.bias[0] = 1e-30
    found = attention_spread(even, [batch()])
    assert list(found) == [
        "encoder.0.attention",
        "encoder.1.attention",
        "decoder.0.attention",
        "decoder.0.cross",
    ]
    # 4 target tokens see 5 source tokens and 2 see 2, in both heads.
    assert found["decoder.0.cross"].queries == 12
    assert found["decoder.0.cross"].nats == pytest.approx((4 * math.log(5) + 2 * math.log(2)) / 6)
    assert found["encoder.1.attention"].nats == pytest.approx((5 * math.log(5) + 2 * math.log(2)) / 7)
    assert found["decoder.0.cross"].evenness == pytest.approx(1)
    assert found["encoder.0.attention"].evenness < 0.999
    # The first token of a row has no choice: log 1 = 0.
    assert found["decoder.0.attention"].uniform == pytest.approx(2 * (math.log(24) + math.log(2)))


@pytest.mark.parametrize("name", ["transformer", "p_transformer"])
def test_rows_together_are_the_rows_alone(name: str) -> None:
    watched = model(name)
    one, other = (
        batch(),
        make_batch([Instance(1, Window(range(1), range(1), range(1)), [[7]], [[15]])], SYMBOLS),
    )
    together, apart = attention_spread(watched, [one]), attention_spread(watched, [batch(1), other])
    assert together.keys() == apart.keys()
    for key in together:
        assert together[key].entropy == pytest.approx(apart[key].entropy, rel=1e-5)
        assert together[key].queries == apart[key].queries


def test_nothing_is_left_behind() -> None:
    watched = model()
    made = batch()
    before = watched.decode(made.target_input, made.input_sentence, watched.encode(made.source))
    attention_spread(watched, [made])
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in watched.modules())
    after = watched.decode(made.target_input, made.input_sentence, watched.encode(made.source))
    assert torch.equal(before, after)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("relative", [False, True])
def test_the_weights_shown_are_those_that_mix_the_values(causal: bool, relative: bool) -> None:
    q, k, v = (torch.randn(2, 3, 5, 4, generator=torch.Generator().manual_seed(s)) for s in range(3))
    table = torch.randn(7, 4, generator=torch.Generator().manual_seed(3))
    mask = None if causal else torch.tensor([True, True, False, True, True]).view(1, 1, 1, 5)
    shown: list[Tensor] = []
    with watch_weights(lambda weights, real, places: shown.append(weights)):
        out = (
            attend_relative(q, k, v, table, mask, causal, 0) if relative else attend(q, k, v, mask, causal, 0)
        )
    assert len(shown) == 1
    weights = shown[0].float()
    torch.testing.assert_close(weights @ v, out)
    assert torch.allclose(weights.sum(dim=-1), torch.ones(()))
