"""The chunked output loss beside the plain computation, and the context discount."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import grad
from torch.nn.functional import cross_entropy, linear

from cotext.data.batch import Batch, Instance, SpecialSymbols, in_both_contexts, make_batch
from cotext.data.views import Window
from cotext.layers.kernels.output_loss import output_loss
from cotext.models.build import build_model
from cotext.models.transformer import Transformer
from cotext.training.losses import CrossEntropy, LossParts
from tests.loops import loop_over
from tests.tiny import PlainWordTokenizer, random_model, tiny_config

LABELS, DIMENSION, VOCABULARY = 13, 6, 17
SYMBOLS = SpecialSymbols(pad=20, bos=21, eos=22, separators=(23,))


def example(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(LABELS, DIMENSION, dtype=dtype, generator=generator, requires_grad=True)
    weight = torch.randn(VOCABULARY, DIMENSION, dtype=dtype, generator=generator, requires_grad=True)
    label = torch.randint(VOCABULARY, (LABELS,), generator=generator)
    discount = torch.rand(LABELS, dtype=dtype, generator=generator)
    return hidden, weight, label, discount


def plain(
    hidden: Tensor,
    weight: Tensor,
    label: Tensor,
    discount: Tensor,
    smoothing: float,
    bias: Tensor | None = None,
) -> Tensor:
    each = cross_entropy(linear(hidden, weight, bias), label, label_smoothing=smoothing, reduction="none")
    return (discount * each).sum()


@loop_over("bias", [None, torch.linspace(-2, 3, VOCABULARY, dtype=torch.float64, requires_grad=True)])
@loop_over("smoothing", [0.0, 0.1, 1.0])
@loop_over("chunk", [1, 5, 12, 13, 14, 1024])
def test_equals_cross_entropy_at_chunk_boundaries(bias: Tensor | None, smoothing: float, chunk: int) -> None:
    hidden, weight, label, discount = example()
    logits = linear(hidden, weight, bias)
    loss, nll, smoothed = output_loss(hidden, weight, label, discount, smoothing, chunk, bias)
    expected = plain(hidden, weight, label, discount, smoothing, bias)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(nll, cross_entropy(logits, label, reduction="none").detach())
    each = cross_entropy(logits, label, label_smoothing=smoothing, reduction="none")
    torch.testing.assert_close(smoothed, each.detach())
    # Scaled as a trainer scales it, so that a gradient made before the backward pass must follow.
    inputs = [hidden, weight, *([] if bias is None else [bias])]
    torch.testing.assert_close(grad(loss / 7, inputs), grad(expected / 7, inputs))
    if bias is not None:
        rounded = hidden.bfloat16(), weight.float(), label, discount, smoothing, chunk, bias.float()
        halves, *_ = output_loss(*rounded)
        torch.testing.assert_close(halves.double(), loss, rtol=0.02, atol=0.02)
        assert grad(halves, bias)[0].dtype == torch.float64


def test_large_logits_stay_finite() -> None:
    hidden, weight, label, discount = example(torch.float32)
    loss, nll, _ = output_loss(hidden * 1e4, weight, label, discount, 0.1)
    assert bool(nll.isfinite().all())
    assert all(bool(g.isfinite().all()) for g in grad(loss, (hidden, weight)))


def test_half_precision_keeps_gradients_that_the_scale_of_the_loss_would_raise() -> None:
    """Float16 ends at 6e-8 below and 65,504 above; the those of improbable symbols are less, sums more."""
    generator = torch.Generator().manual_seed(7)
    hidden = (torch.randn(600, 8, generator=generator) + 60).half().requires_grad_()
    weight = torch.full((50, 8), -0.02)
    weight[:3] = torch.tensor([[0.01], [0.0], [0.005]])
    weight[3:] += 0.001 * torch.randn(47, 8, generator=generator)
    weight = weight.half().float().requires_grad_()
    label, discount = torch.zeros(600, dtype=torch.long), torch.full((600,), 0.3)
    loss, *_ = output_loss(hidden, weight, label, discount, 0.0, 512)
    exact = plain(hidden.double(), weight.double(), label, discount.double(), 0.0)
    probability = (hidden.double() @ weight.double().T).softmax(dim=1)
    assert float(probability[:, 3:].detach().max()) < 1e-3
    scale = 2.0**10
    (of_hidden, of_weight), (hidden_exact, weight_exact) = (
        grad(x * scale, (hidden, weight)) for x in (loss, exact)
    )
    assert bool(of_hidden.isfinite().all())
    torch.testing.assert_close(of_weight, weight_exact, rtol=0.02, atol=1e-6)
    torch.testing.assert_close(of_hidden, hidden_exact, rtol=0.02, atol=1e-4)
    nothing, *_ = output_loss(hidden[:3], weight, label[:3], torch.zeros(3), 0.0)
    assert not bool(grad(nothing, weight)[0].any())  # nor NaN


def test_automatic_mixed_precision() -> None:
    hidden, weight, label, discount = example(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        loss, nll, _ = output_loss(hidden, weight, label, discount, 0.1)
    assert (loss.dtype, nll.dtype) == (torch.float32, torch.float32)
    torch.testing.assert_close(loss, plain(hidden, weight, label, discount, 0.1), rtol=0.02, atol=0.02)
    assert grad(loss, weight)[0].dtype == torch.float32


def test_without_gradients_the_loss_is_the_same() -> None:
    hidden, weight, label, discount = example()
    expected = output_loss(hidden, weight, label, discount, 0.1)[0].detach()
    with torch.no_grad():
        torch.testing.assert_close(output_loss(hidden, weight, label, discount, 0.1)[0], expected)


def test_backward_twice_over_a_retained_graph() -> None:
    hidden, weight, label, discount = example()
    loss, *_ = output_loss(hidden, weight, label, discount, 0.1)
    first = grad(loss, (hidden, weight), retain_graph=True)
    torch.testing.assert_close(grad(loss, (hidden, weight)), first)


def batch() -> Batch:
    """Two windows whose last sentence is current: three sentences, and one shorter row of two."""
    rows = [([[1, 2, 3], [4], [5, 6]], [[7], [8, 9], [1, 2, 3]]), ([[3, 4], [5]], [[6, 7, 8, 9], [2]])]
    instances = []
    for document, (source, target) in enumerate(rows):
        everything = range(len(source))
        window = Window(everything, everything, range(len(source) - 1, len(source)))
        instances.append(Instance(document, window, source, target))
    return make_batch(instances, SYMBOLS)


def model() -> Transformer:
    torch.manual_seed(5)
    sizes = {"dimension": 8, "feed_forward": 16, "encoder_layers": 1, "decoder_layers": 1}
    model = build_model(tiny_config(model=sizes), 24).double()
    assert isinstance(model, Transformer)
    return model


def expected_loss(transformer: Transformer, example: Batch, discount: float) -> Tensor:
    """The definition, label by label."""
    hidden = transformer.decode(
        example.target_input, example.input_sentence, transformer.encode(example.source)
    )
    logits = hidden @ transformer.output_weight.T
    total = logits.new_zeros(())
    for row, column in example.is_label.nonzero().tolist():
        cost = cross_entropy(logits[row, column], example.target_label[row, column], label_smoothing=0.1)
        total = total + (cost if example.is_current[row, column] else discount * cost)
    return total


@pytest.mark.parametrize("discount", [0.0, 0.3, 1.0])
def test_context_discount_weighs_context_labels(discount: float) -> None:
    transformer, example = model(), batch()
    outcome = CrossEntropy(0.1, discount)(transformer, example)
    torch.testing.assert_close(outcome.loss, expected_loss(transformer, example, discount))
    # Labels: 2 + 3 + 4 in the first row, 5 + 2 in the second; current ones: 4 and 2.
    assert int(outcome.count) == 16
    assert [int(outcome.parts[name][1]) for name in ("nll_current", "nll_context")] == [6, 10]


def test_parts_are_plain_sums_whatever_smoothing_and_discount() -> None:
    def parts(outcome: LossParts) -> list[Tensor]:
        return [outcome.parts[name][0] for name in ("nll_current", "nll_context")]

    transformer, example = model(), batch()
    bare = CrossEntropy(0.0, 1.0)(transformer, example)
    torch.testing.assert_close(sum(parts(bare)), bare.loss.detach())
    torch.testing.assert_close(parts(CrossEntropy(0.1, 0.2)(transformer, example)), parts(bare))


def test_the_undiscounted_loss_is_smoothed_and_of_all_labels_whatever_the_discount_and_weights() -> None:
    transformer, example = model(), batch()
    expected = expected_loss(transformer, example, 1.0).detach()
    example.weights = torch.rand(2, 3, dtype=torch.float64)
    for discount in (0.0, 0.3, 1.0):
        total, count = CrossEntropy(0.1, discount)(transformer, example).parts["undiscounted"]
        torch.testing.assert_close(total, expected)
        assert int(count) == 16


class _Given:
    """A model whose hidden states are those of its decoder input: logits are rows of a table."""

    loss_bias = None

    def __init__(self, logits: Tensor) -> None:
        self.table = logits.clone().requires_grad_()
        self.output_weight = torch.eye(logits.size(1), dtype=logits.dtype)

    def layouts(self, source: object, input_sentence: Tensor, training: bool) -> None:
        return None

    def encode(self, source: object) -> None:
        return None

    def decode(self, tokens: Tensor, sentence: Tensor, state: None) -> Tensor:
        # The sentence before decides, as the first input of a row is its context.
        return self.table[tokens.cumsum(1) % len(self.table)]


def _in_contexts(context: list[int], foreign: list[int], after: list[int]) -> Batch:
    def row(before: list[int], after: list[int]) -> list[Instance]:
        sides = [side for side in (before, [3, 4], after) if side]
        current = range(bool(before), bool(before) + 1)
        return [Instance(0, Window(range(len(sides)), range(len(sides)), current), sides, sides)]

    return in_both_contexts(row(context, after), row(foreign, []), SYMBOLS)


def _terms(weight: float, batch: Batch, model: _Given) -> LossParts:
    loss = CrossEntropy(0.0, 1.0, weight)
    return loss(model, loss.laid_out(model, batch, training=True))  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", [0.1, 3.0])
def test_true_over_foreign_context_by_hand(scale: float) -> None:
    model = _Given(
        scale * torch.randn(50, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    )
    for context, foreign, after in (([1], [2], []), ([2], [1], [7])):
        batch = _in_contexts(context, foreign, after)
        plain, found = _terms(0.0, batch, model), _terms(0.25, batch, model)
        assert batch.foreign is not None
        logs = []
        for side in (batch, batch.foreign):
            log_p = model.decode(side.target_input, side.input_sentence, None).log_softmax(2)
            log_p = log_p.gather(2, side.target_label[..., None])[side.label_sentence == 1]
            logs.append(log_p[: 2 if after else 3].sum())  # the separator and the end differ
        hinge = (1 - (logs[0] - logs[1])).clamp(min=0)
        torch.testing.assert_close(found.loss, plain.loss + 0.25 * hinge)
        gain, rows = found.parts["true_minus_foreign"]
        torch.testing.assert_close(gain, (logs[0] - logs[1]).detach())
        assert int(rows) == 1
        (got,) = grad(found.loss - plain.loss, model.table)
        (want,) = grad(0.25 * hinge, model.table)
        torch.testing.assert_close(got, want)
        with torch.autocast("cpu", torch.bfloat16):
            rounded = _terms(0.25, batch, model)
        assert {rounded.loss.dtype, *(total.dtype for total, _ in rounded.parts.values())} == {torch.float32}
        torch.testing.assert_close(rounded.loss.double(), found.loss, rtol=0.02, atol=0.1)


def test_a_single_sentence_has_no_foreign_term() -> None:
    model = _Given(torch.randn(50, 24, generator=torch.Generator().manual_seed(5)))
    batch = _in_contexts([], [], [])
    plain, found = (_terms(weight, batch, model) for weight in (0.0, 0.25))
    assert float(found.loss.detach()) == float(plain.loss.detach())
    assert int(found.parts["true_minus_foreign"][1]) == 0


@loop_over("model", [{"segments": "current"}, {"encoder": {"top": {"layers": 1, "span": "current"}}}])
def test_where_all_sentences_are_current_rows_differ_in_context_alone(model: dict[str, Any]) -> None:
    """Of a view of whole documents: in a foreign row with the words of the true row, nothing differs."""
    own = [[1, 2], [3, 4], [5]]
    both = [
        [Instance(0, Window(range(3), range(len(target)), current), own, target)]
        for target, current in ((own, range(3)), (own[:2], range(1, 2)))
    ]
    config = tiny_config(model={**model, "encoder_layers": 2}, view={"kind": "document"})
    tiny = random_model(config, PlainWordTokenizer(["word"] * 16))
    found = CrossEntropy(0.0, 1.0, 1.0)(tiny, in_both_contexts(*both, SYMBOLS))
    gain, rows = found.parts["true_minus_foreign"]
    assert (float(gain), int(rows)) == (pytest.approx(0, abs=1e-9), 1)
