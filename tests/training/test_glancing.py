"""The glancing loss: what is to be written, the units of its paths, what is revealed, what is counted."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from cotext.data.batch import Instance, bracketed_targets
from cotext.data.views import Window
from cotext.layers.ctc import units
from cotext.models.nat import NonAutoregressiveTransformer
from cotext.training import losses
from cotext.training.losses import Glancing, build_loss
from tests.layers.test_ctc import ctc_nll
from tests.models.test_casa import (
    CONTEXT,
    LOCAL,
    SYMBOLS,
    SYSTEMS,
    batch_of,
    config_of,
    instances,
    model_of,
    systems,
)
from tests.noting import calls_of

B, E = SYMBOLS.bos, SYMBOLS.eos
LOSS = Glancing((0.5, 0.3), 0.0)


def test_what_is_written_has_its_brackets() -> None:
    tokens, sentence = bracketed_targets(batch_of(*instances()[1:]))
    assert tokens[0, :4].tolist() == [B, 4, 5, E]
    assert sentence[0].tolist() == [0, 0, 0, 0, -1, -1, -1]
    assert tokens[1].tolist() == [B, 10, 11, E, B, 12, E]
    assert sentence[1].tolist() == [0, 0, 0, 0, 1, 1, 1]


def test_a_unit_for_every_sentence() -> None:
    """Two places per source token, one row after the other, empty targets too."""
    source, target = [[4, 5, 6], [7], [8, 9]], [[9], [], [10, 11, 11]]
    row = Instance(0, Window(range(3), range(3), range(3)), source, target)
    batch = batch_of(row, instances()[1])
    tokens, sentence = bracketed_targets(batch)
    with torch.no_grad():
        draft = model_of(CONTEXT).encode(batch.source)
    found = units(True, draft.sentence, tokens, sentence)
    assert found.forced
    assert found.start.tolist() == [0, 10, 16, 24]
    assert found.length.tolist() == [10, 6, 8, 6]
    assert found.target_length.tolist() == [3, 2, 5, 4]
    told = [t[:n].tolist() for t, n in zip(found.target, found.target_length.tolist(), strict=True)]
    assert told == [[B, 9, E], [B, E], [B, 10, 11, 11, E], [B, 4, 5, E]]
    found = units(False, draft.sentence, tokens, sentence)
    assert not found.forced
    assert (found.start.tolist(), found.length.tolist()) == ([0, 24], [24, 6])
    assert found.target[0].tolist() == [B, 9, E, B, E, B, 10, 11, 11, E]


@systems
def test_the_loss_is_summed_over_rows(name: str) -> None:
    """Of a batch as of its rows alone: neither padding nor neighbours count."""
    model = model_of(SYSTEMS[name])
    with torch.no_grad():
        together = LOSS(model, batch_of())
        single = [LOSS(model, batch_of(row)) for row in instances()]
    assert float(together.loss) == pytest.approx(sum(float(each.loss) for each in single), rel=1e-6)
    assert int(together.count) == sum(int(each.count) for each in single)


def test_labels_are_counted_as_elsewhere() -> None:
    """Tokens and what closes each sentence."""
    with torch.no_grad():
        outcome = LOSS(model_of(CONTEXT), batch_of())
    labels = sum(len(sentence) + 1 for row in instances() for sentence in row.target)
    assert int(outcome.count) == int(outcome.parts["nll_current"][1]) == labels
    assert float(outcome.parts["nll_current"][0]) == float(outcome.loss)


def test_sentences_without_a_path_are_skipped_and_reported() -> None:
    long = Instance(0, Window(range(2), range(2), range(2)), [[4], [5]], [[4] * 5, [6]])
    fitting = Instance(1, Window(range(1), range(1), range(1)), [[10]], [[4, 5]])
    model = model_of(LOCAL)
    with torch.no_grad():
        outcome = LOSS(model, batch_of(long, fitting))
        alone = LOSS(model, batch_of(fitting))
        second = LOSS(model, batch_of(Instance(0, fitting.window, [[5]], [[6]])))
    assert [float(x) for x in outcome.parts["without_path"]] == [1.0, 3.0]
    assert int(outcome.count) == 5
    assert float(alone.loss) < float(outcome.loss) < float("inf")
    assert second.loss.isfinite()
    model.train()
    only = LOSS(model, batch_of(Instance(0, fitting.window, [[4]], [[4] * 9])))
    assert (float(only.loss.detach()), int(only.count)) == (0.0, 1)
    only.loss.backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())


def revealed_in(model: NonAutoregressiveTransformer, ratio: float) -> tuple[int, list[Tensor]]:
    seen: list[Tensor] = []
    decode = model.decode

    def listening(draft: Any, revealed: Tensor | None = None) -> Tensor:
        if revealed is not None:
            seen.append(revealed)
        return decode(draft, revealed)

    model.decode = listening  # type: ignore[method-assign]
    outcome = Glancing((ratio, ratio), 0.0)(model.train(), batch_of())
    return int(outcome.parts["revealed"][0]), seen


def test_glancing_reveals_tokens_of_the_best_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a ratio of 1, as many as are wrong, which brackets never are.

    What is shown is of its own sentence's target, or blank.
    """
    noted = calls_of(monkeypatch, losses, "glanced", lambda wrong, eligible, ratio: wrong)
    model = model_of(CONTEXT)
    count, [revealed] = revealed_in(model, 1.0)
    assert count == int((revealed >= 0).sum()) == int(noted[0].sum()) > 0
    draft = model.encode(batch_of().source)
    for row, instance in enumerate(instances()):
        for k, sentence in enumerate(instance.target):
            own = draft.sentence[row] == k
            shown = revealed[row][own & (revealed[row] >= 0)]
            assert set(shown.tolist()) <= {*sentence, B, E, SYMBOLS.pad}
            assert not noted[0][row][own][[0, -1]].any()
        assert bool((revealed[row][draft.sentence[row] < 0] == -1).all())
    none, [nothing] = revealed_in(model_of(CONTEXT), 0.0)
    assert none == 0
    assert bool((nothing == -1).all())


@pytest.mark.parametrize("name", ["CASA-Latent", "Latent-GLAT"])
def test_training_tells_how_many_codes_are_in_use(name: str) -> None:
    """Of the codes of the best path's tokens: how many there are, and how evenly they are used."""
    model = model_of(SYSTEMS[name])
    assert model.latent is not None
    assert not {"code_perplexity", "codes_used"} & LOSS(model, batch_of()).parts.keys()
    noted: list[Tensor] = []
    follow = lambda x, code, counts: noted.append(code[counts])  # noqa: E731
    model.latent.codebook.follow = follow  # type: ignore[method-assign]
    parts = LOSS(model.train(), batch_of()).parts
    often = [int((noted[0] == code).sum()) for code in range(config_of(SYSTEMS[name]).model.nat.codes)]
    share = [count / sum(often) for count in often if count]
    entropy = -sum(p * math.log(p) for p in share)
    found = {name: float(total / count) for name, (total, count) in parts.items()}
    assert found["codes_used"] == len(share)
    assert found["code_perplexity"] == pytest.approx(math.exp(entropy))


@pytest.mark.parametrize(("done", "expected"), [(0.0, 0.5), (0.5, 0.4), (1.0, 0.3)])
def test_the_ratio_falls_with_training(done: float, expected: float, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def noted(wrong: Tensor, eligible: Tensor, ratio: float) -> Tensor:
        asked.append(ratio)
        return torch.zeros_like(wrong)

    monkeypatch.setattr("cotext.training.losses.glanced", noted)
    build_loss(config_of(CONTEXT).loss)(model_of(CONTEXT).train(), batch_of(), done)
    assert asked == [pytest.approx(expected)]


def test_the_loss_is_that_of_the_second_writing() -> None:
    """With nothing revealed and no dropout, training and validation agree."""
    model = model_of(CONTEXT)
    zero = Glancing((0.0, 0.0), 0.0)
    with torch.no_grad():
        assert float(zero(model.train(), batch_of()).loss) == float(zero(model.eval(), batch_of()).loss)
        draft = model.encode(batch_of().source)
        asked = units(True, draft.sentence, *bracketed_targets(batch_of()))
        hidden_ND = model.decode(draft)[draft.sentence >= 0]
        nll = ctc_nll(hidden_ND, model.output_weight.detach(), asked, model.blank)
    assert zero(model, batch_of()).loss.item() == pytest.approx(float(nll.sum()))


def test_glat_by_hand() -> None:
    """Cross-entropy of every place, and the length of the row."""
    model = model_of(SYSTEMS["GLAT"])
    batch = batch_of(instances()[0])
    tokens, sentence = bracketed_targets(batch)
    with torch.no_grad():
        draft = model.encode(batch.source, (sentence >= 0).sum(dim=1))
        logits = model.decode(draft) @ model.output_weight.T
        expected = torch.nn.functional.cross_entropy(logits[0], tokens[0], reduction="sum")
        found = LOSS(model, batch)
        assert float(found.loss) == pytest.approx(float(expected))
        trained = Glancing((0.0, 0.0), 0.0)(model.train(), batch)
        weighed = float(0.1 * model.length_nll(draft)[0]) * tokens.numel()
        assert float(trained.loss) == pytest.approx(float(expected) + weighed)
        assert int(found.count) == int(trained.count) == tokens.numel()


def test_glat_averages_over_the_places_that_were_not_revealed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Qian et al. 2021: of a row of 16 places and one of 4, 3 and 1 are revealed; 16 are left.

    The length is told once a row, weighed by what is left of it.
    """
    model = model_of(SYSTEMS["GLAT"])
    batch = batch_of(*instances()[:2])
    tokens, sentence = bracketed_targets(batch)
    shown = torch.zeros_like(sentence, dtype=torch.bool)
    shown[0, [0, 4, 7]] = shown[1, 2] = True
    monkeypatch.setattr("cotext.training.losses.glanced", lambda wrong, eligible, ratio: shown)
    with torch.no_grad():
        draft = model.encode(batch.source, (sentence >= 0).sum(dim=1))
        logits = model.decode(draft, tokens.masked_fill(~shown, -1)) @ model.output_weight.T
        nll = -logits.log_softmax(dim=2).gather(2, tokens[:, :, None])[:, :, 0]
        places = [[nll[0, t] for t in range(16) if t not in (0, 4, 7)], [nll[1, t] for t in (0, 1, 3)]]
        mean = sum(float(value) for row in places for value in row) / 16
        first, second = model.length_nll(draft).tolist()
        found = LOSS(model.train(), batch)
    assert int(found.count) == 16
    assert float(found.parts["nll_current"][0] / found.parts["nll_current"][1]) == pytest.approx(mean)
    expected = mean + 0.1 * (13 * first + 3 * second) / 16
    assert float(found.loss / found.count) == pytest.approx(expected)


@systems
def test_every_parameter_learns(name: str) -> None:
    model = model_of(SYSTEMS[name]).train()
    torch.manual_seed(0)
    LOSS(model, batch_of()).loss.backward()
    for parameter, value in model.named_parameters():
        assert value.grad is not None, parameter
        assert bool(value.grad.isfinite().all()), parameter
        assert float(value.grad.abs().sum()) > 0, parameter


@systems
def test_mixed_precision_is_close_and_trains(name: str) -> None:
    model = model_of(SYSTEMS[name]).float()
    with torch.no_grad():
        expected = LOSS(model, batch_of())
    with torch.autocast("cpu", torch.bfloat16):
        with torch.no_grad():
            found = LOSS(model, batch_of())
        trained = LOSS(model.train(), batch_of())
    if "atent" not in name:  # whose codes are chosen by the largest of numbers that may be close
        assert float(found.loss) == pytest.approx(float(expected.loss), rel=0.05)
    trained.loss.backward()
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)
