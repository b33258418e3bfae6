"""What one update does, by hand, and what the trainer makes of validations."""

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from accelerate.state import AcceleratorState, GradientState, PartialState
from safetensors.torch import load_file

from cotext.config.recipe import Config, TrainConfig
from cotext.data.batch import Batch, in_both_contexts, make_batch
from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import write_parallel
from cotext.data.sampling import Cursor, instances_of, one_in_context_of, ordered_batches
from cotext.data.store import store_writer
from cotext.data.tokenizer import load_tokenizer
from cotext.data.views import Limit
from cotext.models import checkpoint as ckpt
from cotext.models.build import build_model
from cotext.runtime import CotextError, devices
from cotext.training import resume as training_state
from cotext.training import run as training_run
from cotext.training import validation
from cotext.training.inputs import corpus_of, open_data, resolve
from cotext.training.losses import LossParts, build_loss
from cotext.training.run import make_accelerator, set_up
from cotext.training.trainer import Trainer, learning_rate, make_optimizer
from cotext.training.validation import IntervalSums
from tests.noting import calls_of
from tests.refusals import must_raise
from tests.tiny_runs import (
    assert_same_file,
    journal,
    prepare_toy,
    run_config,
    silent,
    told_in_training,
    train_here,
    training_is_refused,
    with_section,
    without_dropout,
)


@pytest.fixture(autouse=True)
def fresh_accelerator() -> Iterator[None]:
    """Accelerate remembers the precision of the first trainer of a process."""
    yield
    for state in (AcceleratorState, PartialState, GradientState):
        state._reset_state()


def make_trainer(config: Config, data_folder: Path, run: Path, bleu: Any = None) -> Trainer:
    data = open_data(data_folder)
    torch.manual_seed(config.train.seed)
    corpus = corpus_of(config, data)
    model = build_model(config, data.tokenizer.vocabulary_size)
    callbacks = replace(silent(), score_development=bleu)
    return Trainer(config, model, corpus, run, callbacks, make_accelerator(config.train))


class TestLearningRate:
    def test_equation_3_of_the_paper(self) -> None:
        """d ** -0.5 * min(n ** -0.5, n * w ** -1.5), scaled so that its peak is the rate asked for."""
        config = TrainConfig(learning_rate=512**-0.5 * 4000**-0.5, warmup_updates=4000)
        for n in (1, 10, 3999, 4000, 4001, 100_000):
            expected = 512**-0.5 * min(n**-0.5, n * 4000**-1.5)
            assert learning_rate(config, n) == pytest.approx(expected, rel=1e-12)
        assert learning_rate(TrainConfig(learning_rate=0.5, warmup_updates=0), 1) == 0.5

    def test_it_is_what_training_uses(self, data: Path, tmp_path: Path) -> None:
        config = run_config(max_updates=6, log_every=1)
        train_here(config, data, tmp_path / "run")
        rates = [e["learning_rate"] for e in journal(tmp_path / "run") if e["kind"] == "train"]
        assert rates == [learning_rate(config.train, n) for n in range(1, 7)]

    def test_parameters_that_are_new_have_their_own(self) -> None:
        """Five times the rate of the others, as in the authors' runs of G-Transformer (Bao et al. 2021)."""
        model = torch.nn.Linear(2, 1)
        config = TrainConfig(fresh_rate=5.0, adam_epsilon=1e-6)
        optimizer, names = make_optimizer(model, config, ["bias", "no parameter"])
        assert names == ["weight", "bias"]
        assert [group["factor"] for group in optimizer.param_groups] == [1.0, 5.0]
        assert {group["eps"] for group in optimizer.param_groups} == {1e-6}
        optimizer, names = make_optimizer(model, TrainConfig(), ["bias"])
        assert (names, len(optimizer.param_groups)) == (["weight", "bias"], 1)


def parts_of(data: Path, config: Config) -> tuple[Batch, list[Batch]]:
    """All development instances as one batch, and the same in two of different sizes."""
    corpus = corpus_of(config, open_data(data))
    instances = [i for document in corpus.dev for i in instances_of(document, corpus.view)]
    cut, random, limit = len(instances) // 3, np.random.default_rng(0), Limit(60)
    stranger = next(document for document in corpus.train if len(document.source) > 2)
    foreign = [one_in_context_of(stranger, instance, limit, random) for instance in instances]

    def batch_of(part: slice) -> Batch:
        if config.loss.foreign_weight:
            return in_both_contexts(instances[part], foreign[part], corpus.symbols)
        return make_batch(instances[part], corpus.symbols)

    return batch_of(slice(None)), [batch_of(slice(cut)), batch_of(slice(cut, None))]


class TestUpdates:
    def gradients(self, data: Path, config: Config, batches: list[Batch]) -> dict[str, torch.Tensor]:
        """Gradients of an update, in double precision, as the optimizer would see them."""
        trainer = make_trainer(config, data, Path("never written"))
        trainer.model.double()
        seen: dict[str, torch.Tensor] = {}
        trainer.optimizer.step = lambda: seen.update(  # type: ignore[method-assign]
            {name: p.grad.clone() for name, p in trainer.model.named_parameters()}
        )
        trainer._update(batches, stop_requested=False)
        return seen

    def test_the_gradient_is_that_of_the_mean_over_labels(self, data: Path) -> None:
        """Written out with the library's own cross-entropy; of one large batch, and of two smaller ones."""
        config = without_dropout(run_config(clip_norm=0.0))
        batch, parts = parts_of(data, config)
        assert len(parts[0].target_label) != len(parts[1].target_label)
        whole, accumulated = (self.gradients(data, config, batches) for batches in ([batch], parts))
        model = make_trainer(config, data, Path("never written")).model.double()
        hidden = model.decode(batch.target_input, batch.input_sentence, model.encode(batch.source))
        loss = torch.nn.functional.cross_entropy(
            (hidden @ model.output_weight.T)[batch.is_label],
            batch.target_label[batch.is_label],
            label_smoothing=config.loss.label_smoothing,
            reduction="none",
        )
        weight = torch.where(batch.is_current[batch.is_label], 1.0, config.loss.context_discount)
        ((loss * weight).sum() / len(loss)).backward()
        for name, parameter in model.named_parameters():
            assert float(whole[name].abs().max()) > 0
            # The loss itself sums in single precision, whatever the model is in.
            torch.testing.assert_close(whole[name], parameter.grad, rtol=1e-4, atol=1e-7)
            torch.testing.assert_close(accumulated[name], whole[name], rtol=1e-4, atol=1e-8)

    def test_accumulation_of_a_loss_on_foreign_context(self, data: Path) -> None:
        config, plain = (
            with_section(without_dropout(run_config(clip_norm=0.0)), "loss", foreign_weight=weight)
            for weight in (0.5, 0.0)
        )
        batch, parts = parts_of(data, config)
        whole, accumulated = (self.gradients(data, config, batches) for batches in ([batch], parts))
        other = self.gradients(data, plain, [parts_of(data, plain)[0]])
        for name, gradient in whole.items():
            torch.testing.assert_close(accumulated[name], gradient, rtol=1e-4, atol=1e-8)
            assert float((gradient - other[name]).abs().max()) > 1e-4

    def test_clipping(self, data: Path) -> None:
        config = without_dropout(run_config(clip_norm=0.0))
        batch, _ = parts_of(data, config)
        free = self.gradients(data, config, [batch])
        norm = math.sqrt(sum(float((g**2).sum()) for g in free.values()))
        clipped = self.gradients(data, without_dropout(run_config(clip_norm=norm / 4)), [batch])
        for name, gradient in free.items():
            torch.testing.assert_close(clipped[name], gradient / 4, rtol=1e-4, atol=1e-9)
        unclipped = self.gradients(data, without_dropout(run_config(clip_norm=norm * 4)), [batch])
        for name, gradient in free.items():
            torch.testing.assert_close(unclipped[name], gradient)

    def test_gradients_that_are_not_finite_stop_before_the_weights(self, data: Path, tmp_path: Path) -> None:
        """They are noticed at the next report, and neither they nor what follows is applied until then."""
        run, weights = tmp_path / "run", []

        class Exploding(Trainer):
            def _update(self, batches: list[Batch], stop_requested: bool) -> None:
                weights.append([p.detach().clone() for p in self.model.parameters()])
                exploding = next(self.model.parameters())
                hook = exploding.register_hook(lambda g: g * math.nan if self.progress.update == 4 else g)
                super()._update(batches, stop_requested)
                hook.remove()
                state = self.adam.state[exploding]
                assert float(state["step"]) == min(self.progress.update, 4)
                assert state["exp_avg"].isfinite().all()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(training_run, "Trainer", Exploding)
            training_is_refused(run_config(), data, run, r"not finite at update 5: lower train.learning_rate")
        assert not any(map(torch.equal, weights[3], weights[4]))
        assert len(weights) == 6  # the report is at the sixth update
        assert all(map(torch.equal, weights[4], weights[5]))
        assert ckpt.checkpoints(run) == [4]
        for tensor in load_file(ckpt.checkpoint_folder(run, 4) / "model.safetensors").values():
            assert tensor.isfinite().all()

    def test_bfloat16_trains_and_resumes_exactly(self, data: Path, tmp_path: Path) -> None:
        for name, updates in (("parts", 4), ("parts", 8), ("whole", 8)):
            config = run_config(precision="bf16", max_updates=updates)
            train_here(with_section(config, "loss", foreign_weight=0.1), data, tmp_path / name)
        entries = journal(tmp_path / "whole")
        assert all(math.isfinite(entry["loss"]) for entry in entries)
        trained = [entry for entry in entries if entry["kind"] == "train"]
        assert trained[-1]["loss"] < trained[0]["loss"]
        assert all(0 < abs(entry["true_minus_foreign"]) < 1 for entry in trained)
        parts, whole = (load_file(tmp_path / name / "model.safetensors") for name in ("parts", "whole"))
        for name, tensor in whole.items():
            assert tensor.dtype == torch.float32
            assert torch.equal(tensor, parts[name])

    def test_slow_bfloat16_is_told(self, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(devices, "multiplies_bfloat16", lambda: False)
        messages = told_in_training(run_config(precision="bf16", max_updates=1), data, tmp_path / "run")
        assert any("train.precision = bf16: this CPU has no instructions" in text for text in messages)

    def test_half_precision_without_a_gpu_is_a_message(self) -> None:
        with pytest.raises(CotextError, match=r"train.precision = fp16 needs a GPU; on the CPU use bf16"):
            make_accelerator(TrainConfig(precision="fp16"))


class TestReports:
    def test_figures_by_hand(self, data: Path, tmp_path: Path) -> None:
        """A report's loss is the sum over the labels of its updates, divided by their number."""
        sums: list[tuple[float, float]] = []

        class Noting(Trainer):
            def _update(self, batches: list[Batch], stop_requested: bool) -> None:
                interval, self.interval = self.interval, IntervalSums(0.0, torch.device("cpu"))
                super()._update(batches, stop_requested)
                sums.append((float(self.interval.sums["loss"][0]), float(self.interval.sums["loss"][1])))
                for name, pair in self.interval.sums.items():
                    interval.sums[name] = interval.sums.get(name, torch.zeros(2)) + pair
                interval.grad_norm, self.interval = self.interval.grad_norm, interval

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(training_run, "Trainer", Noting)
            train_here(run_config(max_updates=6, log_every=3, accumulate=2), data, tmp_path / "run")
        reports = [e for e in journal(tmp_path / "run") if e["kind"] == "train"]
        assert [e["update"] for e in reports] == [3, 6]
        for report, part in zip(reports, (sums[:3], sums[3:]), strict=True):
            expected = sum(total for total, _ in part) / sum(count for _, count in part)
            assert report["loss"] == pytest.approx(expected, rel=1e-6)

    def test_skipped_instances_are_counted(self, data: Path, tmp_path: Path) -> None:
        config = with_section(run_config(pool_tokens=10**6), "view", kind="sentence", before=0, max_tokens=6)
        train_here(config, data, tmp_path / "run")
        opened = open_data(data)
        too_long = sum(
            max(s, t) + 1 > 6
            for i in range(len(opened.train))
            for s, t in zip(*opened.train.lengths(i), strict=True)
        )
        assert too_long > 5
        for entry in journal(tmp_path / "run"):
            if entry["kind"] == "train":
                assert entry["skipped_instances"] / too_long in (entry["epoch"], entry["epoch"] + 1)

    def test_shed_context_is_counted_and_told(self, data: Path, tmp_path: Path) -> None:
        """Windows of four sentences that do not fit; where they do, there is nothing to tell."""
        messages: list[str] = []
        for limit in (12, 60):
            view = {"kind": "window", "before": 3, "max_tokens": limit}
            config = with_section(run_config(max_updates=24, log_every=1), "view", **view)
            messages += told_in_training(config, data, tmp_path / str(limit))
        of_an_epoch = [m for m in messages if "first epoch" in m]
        assert len(of_an_epoch) == 1
        told = re.match(r"in the first epoch, (\d+) instances lost some of their context", of_an_epoch[0])
        assert told
        assert "view.max_tokens = 12" in of_an_epoch[0]
        counts = [e["shed_instances"] for e in journal(tmp_path / "12") if e["kind"] == "train"]
        assert int(told[1]) in counts
        assert sorted(counts) == counts
        assert {e["shed_instances"] for e in journal(tmp_path / "60") if e["kind"] == "train"} == {0}

    def test_sums_are_exact_beyond_what_single_precision_counts(self) -> None:
        interval = IntervalSums(0.0, torch.device("cpu"))
        outcome = LossParts(torch.tensor(1.0), torch.tensor(2**24), {})
        for count in (2**24, 1, 1):
            interval.add(LossParts(outcome.loss, torch.tensor(count), {}))
        assert float(interval.sums["loss"][1]) == 2**24 + 2


class TestValidation:
    def test_by_hand(self, data: Path, tmp_path: Path) -> None:
        """The same figures whatever the batches, without dropout, and leaving the model in training mode."""
        config = run_config(max_tokens=100)
        trainer = make_trainer(config, data, tmp_path)
        corpus = trainer.corpus
        figures = trainer.validate([0])
        loss = build_loss(config.loss)
        (batch,) = ordered_batches(corpus.dev, corpus.view, corpus.symbols, 10**6, corpus.max_row_tokens)
        with torch.no_grad():
            outcome = loss(trainer.model.eval(), batch)
        assert figures["loss"] == pytest.approx(float(outcome.loss / outcome.count), rel=1e-5)
        for name, (total, count) in outcome.parts.items():
            assert figures[name] == pytest.approx(float(total / count), rel=1e-5)

    def test_does_not_change_what_is_trained(self, data: Path, tmp_path: Path) -> None:
        for name, every in (("often", 1), ("seldom", 12)):
            train_here(run_config(validate_every=every, average=1), data, tmp_path / name)
        weights = [
            load_file(ckpt.checkpoint_folder(tmp_path / name, 12) / "model.safetensors")
            for name in ("often", "seldom")
        ]
        assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())

    def test_nothing_fits(self, data: Path, tmp_path: Path) -> None:
        folder = prepare_toy(tmp_path / "data")
        tokenizer = load_tokenizer(folder / "tokenizer")
        with store_writer(folder / "dev.arrow", tokenizer.fingerprint) as writer:
            writer.add("long", [[1] * 99], [[1] * 99])
        training_is_refused(
            run_config(), folder, tmp_path / "run", r"no sentence of the development set fits into 60 tokens"
        )


class TestBatchLevelContext:
    """Training in document order, with numbers, and what a run keeps of it."""

    def config(self, **settings: Any) -> Config:
        config = run_config(order="documents", max_updates=8, **settings)
        return with_section(config, "view", separators="numbered")

    def test_as_many_numbers_as_the_longest_document_has_sentences(self, data: Path, tmp_path: Path) -> None:
        opened = open_data(data)
        assert opened.most_sentences() == max(len(document.source) for document in opened.train) == 6
        train_here(self.config(), data, tmp_path / "run")
        loaded = ckpt.load_run(tmp_path / "run")
        assert loaded.config.view.numbers == 6
        assert len(loaded.model.output_weight) == loaded.tokenizer.vocabulary_size + 6
        assert resolve(loaded.config, opened) == loaded.config
        for asked, numbers in ((4, 4), (50, 6)):
            limited = with_section(self.config(), "view", numbers=asked)
            assert resolve(limited, opened).view.numbers == numbers

    def test_pairs_without_a_token_have_no_number(self, tmp_path: Path) -> None:
        folder = prepare_toy(tmp_path / "data")
        fingerprint = load_tokenizer(folder / "tokenizer").fingerprint
        with store_writer(folder / "train.arrow", fingerprint) as writer:
            writer.add("gaps", [[], [1], [], [2], []], [[], [1], [3], [], []])
            writer.add("two", [[1], [1]], [[1], [1]])
        assert open_data(folder).most_sentences() == 3
        with store_writer(folder / "train.arrow", fingerprint) as writer:
            writer.add("nothing", [[]], [[]])
        assert open_data(folder).most_sentences() == 1

    @pytest.mark.parametrize(("sees", "expected"), [(False, None), (True, 3)])
    def test_validation_groups_what_sees_each_other(
        self, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sees: bool, expected: int | None
    ) -> None:
        asked = calls_of(monkeypatch, validation, "ordered_batches", lambda *_, group_windows: group_windows)
        made = make_trainer(with_section(run_config(), "decode", group_windows=3), data, tmp_path)
        before = made.validate([1])
        made.model.sees_other_rows = sees
        after = made.validate([1])
        assert asked == [None, expected]
        assert after == pytest.approx(before, rel=1e-5)

    def ends_of_epochs(self, config: Config, data: Path) -> list[int]:
        """The updates, each of `accumulate` batches, with which an epoch is over."""
        made = make_trainer(config, data, Path("never written"))
        each = config.train.accumulate
        batches = islice(made.sampler.batches(Cursor()), config.train.max_updates * each)
        epochs = [after.epoch for _, after in batches]  # a cursor moves on with the first batch of an epoch
        ends = (n for n, (one, other) in enumerate(pairwise(epochs), start=1) if other > one)
        return [-(-n // each) for n in ends]

    @pytest.mark.parametrize("accumulate", [1, 2])
    def test_after_every_epoch(self, data: Path, tmp_path: Path, accumulate: int) -> None:
        config = run_config(validate_every="epoch", max_updates=30, log_every=5, accumulate=accumulate)
        expected = self.ends_of_epochs(config, data)
        assert len(expected) >= 5
        progress = train_here(config, data, tmp_path / "run")
        assert progress.validated == sorted({*expected, 30})
        reported = [e["update"] for e in journal(tmp_path / "run") if e["kind"] == "validation"]
        assert reported == progress.validated

    def test_a_limit_in_epochs_ends_training_and_a_resumed_one(self, data: Path, tmp_path: Path) -> None:
        config = run_config(max_epochs=2, max_updates=60, validate_every=4)
        done = train_here(config, data, tmp_path / "run")
        assert done.finished
        assert done.epoch == 2
        assert done.validated[-1] == done.update < 60
        again = train_here(config, data, tmp_path / "run")
        assert (again.update, again.epoch) == (done.update, 2)
        longer = train_here(with_section(config, "train", max_epochs=3), data, tmp_path / "run")
        assert longer.epoch == 3

    def test_a_limit_in_processor_time_ends_training_and_a_resumed_one(
        self, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By a clock on which a second passes whenever it is read: one in the first update, two in others."""
        seconds = itertools.count(1)
        monkeypatch.setattr("time.process_time", lambda: float(next(seconds)))
        config = run_config(max_cpu_minutes=10 / 60, max_updates=60, validate_every=4)
        done = train_here(config, data, tmp_path / "run")
        assert (done.finished, done.update, done.cpu_seconds) == (True, 6, 11.0)
        assert done.validated == [4, 6]  # the last one is validated, too
        records = journal(tmp_path / "run")
        assert records[-1]["kind"] == "final"
        assert [r["cpu_minutes"] for r in records if r["kind"] == "train"][-1] == 11 / 60
        assert train_here(config, data, tmp_path / "run").update == 6
        longer = with_section(config, "train", max_cpu_minutes=13 / 60)
        assert train_here(longer, data, tmp_path / "run").cpu_seconds == 14.0  # 1 and 2 more

    def test_patience_in_epochs(self, data: Path, tmp_path: Path) -> None:
        """Four epochs, two of them in vain, the last two."""
        settings = {"validate_every": "epoch", "patience": 2, "max_updates": 99}
        progress = train_scripted(data, tmp_path / "run", [3, 2, 4, 4, 1], **settings)
        expected = self.ends_of_epochs(run_config(max_updates=99), data)
        assert (progress.epoch, progress.update, progress.finished) == (4, expected[3], True)


class ScriptedTrainer(Trainer):
    """Its validations say what a script says."""

    scripts: dict[str, list[float]]

    def validate(self, updates: Sequence[int]) -> dict[str, float]:
        figures = {"update": float(self.progress.update), "loss": 9.0, "nll_current": 9.0, "bleu": 1.0}
        for figure, script in self.scripts.items():
            figures[figure] = script[min(len(self.progress.validated), len(script) - 1)]
        return figures


def train_scripted(
    data: Path, run: Path, script: list[float], figure: str = "nll_current", **settings: Any
) -> training_state.TrainingProgress:
    best_by = "bleu" if figure == "bleu" else "loss"
    return train_by_scripts(data, run, {figure: script}, **{"best_by": best_by, **settings})


def train_by_scripts(
    data: Path, run: Path, scripts: dict[str, list[float]], **settings: Any
) -> training_state.TrainingProgress:
    trainer = type("Scripted", (ScriptedTrainer,), {"scripts": scripts})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_run, "Trainer", trainer)
        usual = {"max_updates": max(map(len, scripts.values())), "validate_every": 1, "validate_bleu": True}
        return train_here(run_config(**{**usual, "average": 1, "keep": 1, **settings}), data, run)


@pytest.mark.parametrize(("language", "written"), [("zh", "今天天气很好我们去"), ("ja", "かれはきのう本を")])
def test_bleu_of_languages_without_spaces_counts_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language: str, written: str
) -> None:
    """With 13a, every sentence is one word: one wrong character in each would make BLEU 0."""
    pair = ParallelDocument("1", ("a source",), (written + "。",))
    write_parallel(tmp_path / "dev.jsonl", None, [pair], "jsonl")

    class Translator:
        def translate(self, documents: Any, on_sentences: Any) -> list[Any]:
            return [(0, SimpleNamespace(document=Document("1", (written + "！",))))]

    monkeypatch.setattr(training_run, "DocumentTranslator", lambda *arguments: Translator())
    data: Any = SimpleNamespace(folder=tmp_path, tokenizer=None)
    config = run_config().model_copy(update={"languages": f"en-{language}"})
    model: Any = None
    assert 80 < training_run.development_bleu(config, data, torch.device("cpu"))(model) < 100


class TestBest:
    @pytest.mark.parametrize(
        ("figure", "script", "update", "value"),
        [("nll_current", [3.0, 2.0, 1.5, 1.5, 2.5], 3, -1.5), ("bleu", [3.0, 20.0, 1.5, 20.0, 2.5], 2, 20.0)],
    )
    def test_an_equal_validation_is_no_better(
        self, data: Path, tmp_path: Path, figure: str, script: list[float], update: int, value: float
    ) -> None:
        progress = train_scripted(data, tmp_path / "run", script, figure)
        assert (progress.best_update, progress.best) == (update, value)
        assert ckpt.load_run(tmp_path / "run").updates == [update]

    @pytest.mark.parametrize(
        ("by", "best", "stops_at", "mean_of"),
        [("loss", 2, 4, [1, 2, 3]), ("objective", 4, 6, [3, 4, 5]), ("undiscounted", 5, 7, [4, 5, 6])],
    )
    def test_three_losses_that_disagree(
        self, data: Path, tmp_path: Path, by: str, best: int, stops_at: int, mean_of: list[int]
    ) -> None:
        """The best checkpoint, the end of patience and the checkpoints averaged follow the one chosen.

        The last validation, of the mean, is the best by every figure.
        """
        scripts = {
            "nll_current": [5.0, 2.0, 3.0, 3.0, 1.0, 1.0, 1.0, 1.0],
            "loss": [8.0, 7.0, 6.0, 3.0, 4.0, 4.0, 3.0, 3.0],
            "undiscounted": [9.0, 8.0, 7.0, 6.0, 4.0, 5.0, 5.0, 4.0],
        }
        settings = {"best_by": by, "patience": 2, "average": 3}
        short = {name: [*script[:stops_at], 0.5] for name, script in scripts.items()}
        progress = train_by_scripts(data, tmp_path / "run", short, **settings, max_updates=8)
        assert (progress.best_update, progress.update) == (best, stops_at)
        assert ckpt.load_run(tmp_path / "run").updates == mean_of

    def test_the_three_losses_of_one_pass(self, data: Path, tmp_path: Path) -> None:
        """Beside those of the same weights under settings in which each is the training objective."""

        def figures(**loss: float) -> dict[str, float]:
            config = with_section(run_config(), "loss", **loss)
            torch.manual_seed(1)
            return make_trainer(config, data, tmp_path).validate([0])

        discounted = figures(context_discount=0.25, label_smoothing=0.1)
        whole = figures(context_discount=1.0, label_smoothing=0.1)
        current = figures(context_discount=0.25, label_smoothing=0.0)
        assert discounted["undiscounted"] == pytest.approx(whole["loss"], rel=1e-6)
        assert discounted["undiscounted"] > 1.1 * discounted["loss"]
        assert discounted["nll_current"] == pytest.approx(current["nll_current"], rel=1e-6)
        assert whole["undiscounted"] == pytest.approx(whole["loss"], rel=1e-6)
        assert current["undiscounted"] != pytest.approx(discounted["undiscounted"], rel=1e-5)

    def test_bleu_that_nobody_computes(self, data: Path, tmp_path: Path) -> None:
        config = run_config(best_by="bleu", validate_bleu=False)
        training_is_refused(config, data, tmp_path / "run", "best_by = bleu needs train.validate_bleu = true")

    def test_validations_that_are_not_finite(self, data: Path, tmp_path: Path) -> None:
        must_raise("not finite at update 2", train_scripted, data, tmp_path / "run", [3.0, math.nan, 1.0])
        assert ckpt.checkpoints(tmp_path / "run") == [1]

    @pytest.mark.parametrize(
        ("script", "patience", "stops_at"),
        [
            ([1, 2, 3, 4, 5, 6], 2, 3),
            ([3, 4, 2, 3, 3, 1, 1], 2, 5),
            ([3, 4, 2, 3, 1, 1], 2, 6),
            ([1, 2, 3, 4, 5, 6], 0, 6),  # never
            ([1, 2, 3, 4, 5, 6], 99, 6),
        ],
    )
    def test_patience(
        self, data: Path, tmp_path: Path, script: list[float], patience: int, stops_at: int
    ) -> None:
        progress = train_scripted(data, tmp_path / "run", script, patience=patience)
        assert (progress.update, progress.finished) == (stops_at, True)

    def test_average_of_those_closest_to_the_best(self, data: Path, tmp_path: Path) -> None:
        script = [5.0, 4.0, 1.0, 2.0, 3.0, 4.0, 5.0, 0.9]
        train_scripted(data, tmp_path / "best", script, average=3, max_updates=7)
        assert ckpt.load_run(tmp_path / "best").updates == [2, 3, 4]
        train_scripted(data, tmp_path / "last", script, average=3, average_by="last", max_updates=7)
        assert ckpt.load_run(tmp_path / "last").updates == [5, 6, 7]

    def test_a_mean_that_is_worse_than_the_best_checkpoint(self, data: Path, tmp_path: Path) -> None:
        """Of the two, the model of the run is the one that the development set prefers, and says so."""
        script = [5.0, 4.0, 1.0, 2.0, 3.0, 4.0, 5.0, 1.1]
        messages: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tests.tiny_runs.silent", lambda: replace(silent(), on_message=messages.append))
            train_scripted(data, tmp_path / "run", script, average=3, average_by="last", max_updates=7)
        assert ckpt.load_run(tmp_path / "run").updates == [3]
        best = ckpt.checkpoint_folder(tmp_path / "run", 3)
        assert_same_file(tmp_path / "run" / "model.safetensors", best / "model.safetensors")
        assert messages == [
            "model.safetensors: the best checkpoint; the mean of the checkpoints 5, 6, 7 is worse "
            "(1.1 against 1); best at update 3"
        ]

    def test_until_the_end_the_model_is_the_best_so_far(self, data: Path, tmp_path: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ScriptedTrainer, "_finish", lambda self: None)
            train_scripted(data, tmp_path / "run", [3.0, 1.0, 2.0], average=3)
        assert ckpt.load_run(tmp_path / "run").updates == [2]
        best = ckpt.checkpoint_folder(tmp_path / "run", 2)
        assert_same_file(tmp_path / "run" / "model.safetensors", best / "model.safetensors")


def config_of(recomputed: bool) -> Config:
    return run_config(
        max_updates=2, validate_every=2, average=1, log_every=1, checkpoint_activations=recomputed
    )


def test_recomputed_activations_give_the_same_weights(data: Path, tmp_path: Path) -> None:
    """With dropout: random numbers are the same ones."""
    for name, recomputed in (("kept", False), ("again", True)):
        train_here(config_of(recomputed), data, tmp_path / name)
    assert_same_file(*(tmp_path / name / "model.safetensors" for name in ("kept", "again")))


def bytes_kept(recomputed: bool, data: Path) -> int:
    """Bytes that the forward pass of a batch keeps for the backward pass."""
    setup = set_up(config_of(recomputed), data, Path("nowhere"), "test", "cpu")
    batch, _ = next(setup.corpus.sampler(setup.config.train, 2000).batches(Cursor()))
    loss = build_loss(setup.config.loss)
    kept: dict[int, int] = {}

    def keep(x: torch.Tensor) -> torch.Tensor:
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        loss(setup.model.train(), loss.laid_out(setup.model, batch, training=True), 0.0)
    return sum(kept.values())


def test_recomputed_activations_take_less_memory(data: Path) -> None:
    assert bytes_kept(False, data) > 1.5 * bytes_kept(True, data)
