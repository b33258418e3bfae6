"""Losses in which sentences have weights, beside sums of the losses of sentences made one by one."""

from dataclasses import replace

import pytest
import torch
from test_casa import CONTEXT, SYSTEMS, instances, model_of
from test_casa import SYMBOLS as NAT_SYMBOLS
from tiny import tiny_config

from cotext.data.batch import Batch, Instance, SpecialSymbols
from cotext.data.collate import make_batch
from cotext.data.views import Window
from cotext.losses.cross_entropy import CrossEntropy
from cotext.losses.glancing import Glancing
from cotext.models.build import build_model
from cotext.models.interface import Model
from cotext.models.transformer import Transformer
from cotext.runtime.errors import CotextError

SYMBOLS = SpecialSymbols(pad=20, bos=21, eos=22, separators=(23,))
WEIGHTS = ([0.25, 3.0, 1.5], [2.0], [0.0, 0.5])


def windows(weights: bool) -> list[Instance]:
    """Rows of three, one and two sentences, the last of each current; the second has no target context."""
    shapes = [
        (Window(range(3), range(3), range(2, 3)), [[1, 2], [3], [4, 5]], [[6], [7, 8], [9]]),
        (Window(range(1), range(1), range(1)), [[1]], [[2, 3, 4]]),
        (Window(range(1, 4), range(2, 4), range(3, 4)), [[5], [6], [7, 8]], [[9, 9], [1, 2, 3]]),
    ]
    return [Instance(n, *shape, weights=WEIGHTS[n] if weights else None) for n, shape in enumerate(shapes)]


def gradients(loss: torch.Tensor, model: Model) -> list[torch.Tensor]:
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return [g for g in found if g is not None]


def translation_model() -> Transformer:
    torch.manual_seed(0)
    model = build_model(tiny_config(), 24)
    assert isinstance(model, Transformer)
    return model.double().eval()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_every_label_counts_by_weight_and_discount(smoothing: float) -> None:
    """The loss as a sum over single labels, each weighted by hand; what is counted stays."""
    model, loss = translation_model(), CrossEntropy(smoothing, 0.25)
    batch = make_batch(windows(weights=True), SYMBOLS)
    found = loss(model, batch)
    plain = loss(model, make_batch(windows(weights=False), SYMBOLS))
    state = model.encode(batch.source)
    hidden = model.decode(batch.target_input, batch.input_sentence, state)
    each = torch.nn.functional.cross_entropy(
        (hidden @ model.output_weight.T).transpose(1, 2),
        batch.target_label.clamp(max=23),
        label_smoothing=smoothing,
        reduction="none",
    )
    # Sentence by sentence: a label and its end; of the third row, the target begins with sentence 1.
    factors = torch.zeros_like(each)
    factors[0, :7] = torch.tensor([0.0625, 0.0625, 0.75, 0.75, 0.75, 1.5, 1.5])
    factors[1, :4] = 2.0
    factors[2, :7] = torch.tensor([0.0, 0.0, 0.0, 0.5, 0.5, 0.5, 0.5])
    torch.testing.assert_close(found.loss, (factors * each).sum())
    assert int(found.count) == int(plain.count) == 18
    for name, (total, _) in plain.parts.items():
        torch.testing.assert_close(found.parts[name][0], total)
    got, want = (gradients(x / 7, model) for x in (found.loss, (factors * each).sum()))
    torch.testing.assert_close(got, want)


def weighted(rows: list[Instance]) -> list[Instance]:
    return [
        replace(row, weights=[0.5 + n + 2 * j for j in range(len(row.target))]) for n, row in enumerate(rows)
    ]


def test_each_path_counts_by_the_weight_of_its_sentence() -> None:
    """The loss of a batch is linear in its weights; with all but one at 0, that sentence's path is left."""
    model, loss = model_of(CONTEXT), Glancing((0.0, 0.0), 0.0)

    def loss_with(weights: list[list[float]]) -> torch.Tensor:
        rows = [replace(row, weights=w) for row, w in zip(instances(), weights, strict=True)]
        return loss(model, make_batch(rows, NAT_SYMBOLS)).loss

    sizes = [len(row.target) for row in instances()]
    given = [[0.5 + n + 2 * j for j in range(size)] for n, size in enumerate(sizes)]
    total = loss_with(given)
    single = []
    for n, size in enumerate(sizes):
        for j in range(size):
            one = [[float((n, j) == (m, i)) for i in range(other)] for m, other in enumerate(sizes)]
            single.append(loss_with(one))
    assert all(float(x.detach()) > 0 for x in single)
    flat = [weight for row in given for weight in row]
    expected = sum(weight * x for weight, x in zip(flat, single, strict=True))
    torch.testing.assert_close(total, expected)
    torch.testing.assert_close(gradients(total, model), gradients(expected, model))
    ones = loss_with([[1.0] * size for size in sizes])
    torch.testing.assert_close(ones, loss(model, make_batch(instances(), NAT_SYMBOLS)).loss)


def test_frames_of_one_token_each_count_by_their_sentences() -> None:
    model, loss = model_of(SYSTEMS["GLAT"]), Glancing((0.0, 0.0), 0.1)
    rows = instances()
    zero = [replace(row, weights=[0.0] * len(row.target)) for row in rows]
    zero[-1] = replace(rows[-1], weights=[2.0] * len(rows[-1].target))
    with torch.no_grad():
        found = loss(model, make_batch(zero, NAT_SYMBOLS))
        alone = loss(model, make_batch([rows[-1]], NAT_SYMBOLS))
        plain = loss(model, make_batch(rows, NAT_SYMBOLS))
    torch.testing.assert_close(found.loss, 2 * alone.loss)
    assert int(found.count) == int(plain.count)
    torch.testing.assert_close(found.parts["nll_current"][0], plain.parts["nll_current"][0])


def test_a_path_of_a_whole_row_has_no_weights() -> None:
    model = model_of(SYSTEMS["GLAT+CTC"])
    with pytest.raises(CotextError, match=r"train.weight_by: with model.nat.path = row"):
        Glancing((0.5, 0.3), 0.0)(model, make_batch(weighted(instances()), NAT_SYMBOLS))


def test_what_the_indices_say_moves_along() -> None:
    """Found beforehand, as in training, or when it is asked for."""
    model, loss = model_of(CONTEXT), Glancing((0.0, 0.0), 0.0)
    batch: Batch = make_batch(weighted(instances()), NAT_SYMBOLS)
    with torch.no_grad():
        before = loss(model, loss.laid_out(model, batch, training=False))
        asked = loss(model, batch)
    torch.testing.assert_close(before.loss, asked.loss)
