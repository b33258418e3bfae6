"""Training: one loop that asks one question of every system, a loss summed over labels and their count.

An update is `accumulate` batches on each process. Gradients of summed losses are added up over batches and
processes and divided by the global count, so that neither the number of processes nor the split into batches
changes what an update is.
"""

import itertools
import math
import os
import shutil
import time
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.utils import gather_object
from safetensors import SafetensorError
from torch import Tensor, nn

from cotext.config.recipe import Config
from cotext.config.training import TrainConfig
from cotext.data.batch import Batch, SpecialSymbols, hide_words
from cotext.data.sampling import Arrangement, Cursor, Sampler, ordered_batches, read_ahead
from cotext.data.store import TokenStore
from cotext.data.views import Mixture, View
from cotext.losses.build import Loss
from cotext.losses.cross_entropy import LossParts
from cotext.models import checkpoint as ckpt
from cotext.models.interface import Model
from cotext.models.run_folder import checkpoint_folder, checkpoints
from cotext.runtime.devices import choose_device
from cotext.runtime.errors import CotextError
from cotext.runtime.locks import Lock
from cotext.runtime.signals import stop_on_signals
from cotext.training import resume as training_state
from cotext.training.log import Interval, Journal
from cotext.training.optimizer import make_optimizer, set_rate
from cotext.training.resume import ProcessState, Progress

Sums = dict[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Corpus:
    """What a run trains and validates on, cut by one view."""

    train: TokenStore
    dev: TokenStore
    view: View  # of validation and translation
    mixture: Mixture  # of training
    symbols: SpecialSymbols
    unknown: int  # what hidden words become
    max_row_tokens: int
    checksums: dict[str, str]  # of the files that it was read from, and of the tokenizer


@dataclass(slots=True)
class Reports:
    """Where a run tells of itself, on the main process alone.

    Updates and validations come as flat dictionaries of figures. `on_start` is told the updates done before,
    `on_stage` what goes on between updates, how much of it is done, and of how much.
    """

    on_update: Callable[[dict[str, float]], None]
    on_validation: Callable[[dict[str, float]], None]
    on_message: Callable[[str], None]
    on_start: Callable[[int], None] = lambda update: None
    on_stage: Callable[[str, int, int], None] = lambda stage, done, total: None


class Objective(nn.Module):
    """Model and loss as one module, so that data-parallel wrappers see a single forward pass."""

    def __init__(self, model: Model, loss: Loss) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, batch: Batch, done: float = 0.0) -> LossParts:
        """The summed loss of a batch, when this share of the training is done."""
        return self.loss(self.model, batch, done)


def learning_rate(config: TrainConfig, update: int) -> float:
    """Linear warm-up, then inverse square root (Vaswani et al. 2017, equation 3, scaled to its peak)."""
    warmup = max(config.warmup_updates, 1)
    return config.learning_rate * min(update / warmup, math.sqrt(warmup / update))


def make_accelerator(
    config: TrainConfig, spares_parameters: bool = False, device: str | None = None
) -> Accelerator:
    """The device and the processes to train on; see `System.spares_parameters`.

    `device`: cpu, cuda or, for a single process, one of several, as in cuda:1; if None, what there is.

    Raises:
        CotextError: no such device, or it cannot compute in `precision`.
    """
    place = None if device is None else choose_device(device)
    if place is not None and place.index is not None:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise CotextError(
                f"--device {device}: several processes take a device each; say {place.type} alone, and "
                "choose which by CUDA_VISIBLE_DEVICES"
            )
        torch.get_device_module(place).set_device(place)
    # Buffers are tables that every process computes for itself, as long as its rows need them: they differ
    # in size, and the processes do not make equally many forward passes in validation.
    # Looking for unused parameters takes time, and is warned of where there are none.
    wrapping = DistributedDataParallelKwargs(
        broadcast_buffers=False, find_unused_parameters=spares_parameters
    )
    try:
        mixed = "no" if config.precision == "fp32" else config.precision
        on_cpu = place is not None and place.type == "cpu"
        accelerator = Accelerator(mixed_precision=mixed, cpu=on_cpu, kwargs_handlers=[wrapping])
    except ValueError as error:
        raise CotextError(f"train.precision = {config.precision}: {error}") from None
    if place is not None and accelerator.device.type != place.type:
        raise CotextError(
            f"--device {device}: training takes the {accelerator.device.type} here (ACCELERATE_USE_CPU, or "
            "another kind of device than --device asks for); leave it out"
        )
    # Accelerate would compute in single precision without a word.
    if config.precision == "fp16" and accelerator.device.type == "cpu":
        raise CotextError("train.precision = fp16 needs a GPU; on the CPU use bf16, or fp32")
    return accelerator


class Trainer:
    """Trains one model in one run folder; `train` goes on where an earlier process stopped.

    `score_development` translates the development documents with the model as it stands and returns BLEU;
    it is called on the main process alone. `fresh` names parameters with a learning rate of their own, see
    `make_optimizer`. `lock`, that of the run, is the main process's.
    """

    def __init__(
        self,
        config: Config,
        model: Model,
        loss: Loss,
        corpus: Corpus,
        run: Path,
        reports: Reports,
        score_development: Callable[[Model], float] | None = None,
        accelerator: Accelerator | None = None,
        fresh: Collection[str] = (),
        lock: Lock | None = None,
    ) -> None:
        if config.train.best_by == "bleu" and score_development is None:
            raise CotextError("train.best_by = bleu needs train.validate_bleu = true")
        self.config = config
        self.corpus = corpus
        self.run = run
        self.reports = reports
        self.score_development = score_development
        self.accelerator = accelerator or make_accelerator(config.train, model.spares_parameters)
        self.lock = lock
        self.model = model
        train = config.train
        optimizer, self.names = make_optimizer(model, train, fresh)
        self.objective, self.optimizer = self.accelerator.prepare(Objective(model, loss), optimizer)
        self.sampler = Sampler(
            corpus.train,
            corpus.mixture,
            corpus.symbols,
            max_tokens=train.max_tokens,
            max_row_tokens=corpus.max_row_tokens,
            pool_tokens=train.pool_tokens,
            seed=train.seed,
            shard=self.accelerator.process_index,
            shards=self.accelerator.num_processes,
            arrangement=Arrangement(train.order, train.context),
        )
        self.progress = Progress(processes=self.accelerator.num_processes, corpus=corpus.checksums)
        self.cursor = Cursor()
        self.interval = Interval(time.perf_counter())
        self.journal = Journal(run / "metrics.jsonl")
        self.stopping = False

    def require_batches(self) -> None:
        """Refuse settings by which nothing of the data could be trained or validated on.

        Raises:
            CotextError: no sentence of the training or the development corpus fits into a row.
        """
        self.sampler.require_instances()
        if next(self._development_batches(), None) is None:
            raise CotextError(
                f"{self.corpus.dev.path}: no sentence of the development set fits into "
                f"{self.corpus.max_row_tokens} tokens; raise view.max_tokens"
            )

    def rehearse(self, updates: int) -> Iterator[tuple[list[Batch], float]]:
        """Make the first updates in memory alone: the batches of each, and its seconds."""
        with closing(self._updates()) as groups:
            for batches, _ in itertools.islice(groups, updates):
                begun = time.perf_counter()
                self._update(batches, False)
                float(self.interval.grad_norm)  # is there once the device is done
                yield batches, time.perf_counter() - begun

    def train(self) -> Progress:
        """Train until `max_updates`, until patience runs out, or until a signal asks to stop.

        Raises:
            CotextError: no usable data, a loss that is not finite, a checkpoint that cannot be resumed or
                written.
        """
        self._resume()
        if self.progress.finished and self._is_over():
            return self.progress
        self.progress.finished = False
        if self.accelerator.is_main_process:
            ckpt.sweep(self.run)
            if damaged := self.journal.forget_after(self.progress.update):
                self.reports.on_message(f"{self.journal.path}: damaged lines, left out: {damaged}")
            if self.progress.validated and self.journal.is_empty:
                self.reports.on_message(f"{self.journal.path}: missing or empty; what it held is lost")
            if self.progress.update:
                self.reports.on_message(f"going on from update {self.progress.update} of {self.run}")
            self.reports.on_start(self.progress.update)
        self.interval.since = time.perf_counter()
        if not self._is_over():
            with closing(self._updates()) as updates:
                self._train(updates)
        if self._is_over():
            self._finish()
        elif self.accelerator.is_main_process:
            self.reports.on_message(
                f"stopped at update {self.progress.update}; the same command goes on from there"
            )
        return self.progress

    def _train(self, updates: Iterator[tuple[list[Batch], float]]) -> None:
        config = self.config.train
        with stop_on_signals() as stop:
            for batches, waited_seconds in updates:
                self.interval.waited_seconds += waited_seconds
                epoch = self.progress.epoch
                self._update(batches, stop.requested)
                update, every = self.progress.update, config.validate_every
                validates = self.progress.epoch > epoch if every == "epoch" else update % every == 0
                if self.progress.epoch > epoch == 0:
                    self._tell_of_an_epoch()
                last = update >= config.max_updates
                if last or update % config.log_every == 0:
                    self._report()
                before = time.perf_counter()
                if last or validates:
                    self._validate_and_save()
                elif self.stopping:
                    self._save_checkpoint()
                self.interval.since += time.perf_counter() - before
                if self.stopping or self._is_over():
                    return

    def _is_over(self) -> bool:
        config, progress = self.config.train, self.progress
        patience_is_over = 0 < config.patience <= progress.validations_without_best
        return progress.update >= config.max_updates or patience_is_over

    def _updates(self) -> Generator[tuple[list[Batch], float]]:
        """Groups of `accumulate` batches with the seconds spent waiting for them."""
        group: list[Batch] = []
        waiting = 0.0
        stream = read_ahead(self.sampler.batches(self.cursor), depth=8, clock=time.perf_counter)
        with closing(stream):
            for (batch, after), waited in stream:
                group.append(batch.to(self.accelerator.device))
                waiting += waited
                self.cursor = after
                if len(group) == self.config.train.accumulate:
                    yield group, waiting
                    group, waiting = [], 0.0

    def _update(self, batches: list[Batch], stop_requested: bool) -> None:
        """One optimizer step on the given batches of this process; also agrees on whether to stop."""
        self.objective.train()
        update = self.progress.update + 1
        set_rate(self.optimizer, learning_rate(self.config.train, update))
        done = self.progress.update / self.config.train.max_updates
        # A signal may reach the processes at different moments: one that is asked to stop stops them all. Nor
        # do they end an epoch at the same one.
        epochs = self.sampler.epochs(self.cursor)
        shared = torch.tensor([0, int(stop_requested), epochs], device=self.accelerator.device)
        for number, batch in enumerate(batches):
            last = number + 1 == len(batches)
            with nullcontext() if last else self.accelerator.no_sync(self.objective):
                outcome = self.objective(self._seen(batch), done)
                self.accelerator.backward(outcome.loss)
            shared[0] += outcome.count
            self.interval.add(outcome)
            self.interval.labels += int(batch.is_label.sum())
        count, stops, epochs = self.accelerator.reduce(shared, "sum").tolist()
        gradients = [p.grad for p in self.objective.parameters() if p.grad is not None]
        # Data-parallel wrappers average over processes; the sum is what is divided by the global count.
        torch._foreach_mul_(gradients, self.accelerator.num_processes / count)
        limit = self.config.train.clip_norm or math.inf
        norm = float(self.accelerator.clip_grad_norm_(self.objective.parameters(), limit))
        if self.accelerator.scaler is None:  # which leaves out such an update, and lowers its scale
            self._require_finite(norm, update)
        self.interval.grad_norm = norm
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.progress.update, self.progress.epoch = update, epochs // self.accelerator.num_processes
        self.stopping = bool(stops)

    def _seen(self, batch: Batch) -> Batch:
        """What of a training batch the model is shown."""
        config = self.config.train
        over = 0 < config.word_dropout_epochs <= self.cursor.epoch
        if over or config.word_dropout == 0:
            return batch
        return hide_words(batch, config.word_dropout, self.corpus.symbols, self.corpus.unknown)

    def _require_finite(self, figure: float, update: int) -> None:
        if not math.isfinite(figure):
            raise CotextError(
                f"the loss or its gradient is not finite at update {update}: lower train.learning_rate, "
                f"raise train.warmup_updates, or train without mixed precision; {self.run} keeps its "
                "checkpoints"
            )

    def _report(self) -> None:
        """Tell of the updates since the last report."""
        interval, now = self.interval, time.perf_counter()
        seconds = now - interval.since
        sums = {name: (float(pair[0]), float(pair[1])) for name, pair in interval.sums.items()}
        seen = {
            "labels": (float(interval.labels), 0.0),
            "skipped": (float(self.cursor.skipped), 0.0),
            "shed": (float(self.cursor.shed), 0.0),
        }
        totals = self._reduce({**sums, **seen})
        loss, count = totals.pop("loss")
        labels, skipped, shed = (totals.pop(name)[0] for name in seen)
        self._require_finite(loss, self.progress.update)
        figures = {
            "update": float(self.progress.update),
            "epoch": float(self.cursor.epoch),
            "loss": loss / count,
            **{name: total / count for name, (total, count) in totals.items() if count},
            "learning_rate": learning_rate(self.config.train, self.progress.update),
            "grad_norm": interval.grad_norm,
            "tokens_per_second": labels / seconds,
            "waiting_share": interval.waited_seconds / seconds,
            "skipped_instances": skipped,
            "shed_instances": shed,
        }
        self.interval = Interval(now)
        if self.accelerator.is_main_process:
            self.journal.write("train", figures)
            self.reports.on_update(figures)

    def _tell_of_an_epoch(self) -> None:
        """Say what of the training corpus was not seen as asked for."""
        shed, skipped = self._reduce({"": (float(self.cursor.shed), float(self.cursor.skipped))})[""]
        if self.accelerator.is_main_process and shed + skipped:
            most = self.corpus.max_row_tokens
            self.reports.on_message(
                f"in the first epoch, {shed:,.0f} instances left out some of their context and "
                f"{skipped:,.0f} were left out themselves, to fit into view.max_tokens = {most}: "
                "raise it to keep them whole"
            )

    def _reduce(self, sums: Sums) -> Sums:
        """Add sums and counts up over processes, in one order everywhere."""
        total: Sums = {}
        for part in gather_object([sums]):
            for name, (value, count) in part.items():
                before = total.get(name, (0.0, 0.0))
                total[name] = before[0] + value, before[1] + count
        return total

    def _development_batches(self) -> Iterator[Batch]:
        corpus = self.corpus
        return ordered_batches(
            corpus.dev,
            corpus.view,
            corpus.symbols,
            self.config.train.max_tokens,
            corpus.max_row_tokens,
            # As in translation: the figures are those of what it will do.
            group_windows=self.config.decode.group_windows if self.model.sees_other_rows else None,
        )

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Figures on the development set: loss, `nll_current`, `nll_context` per label, BLEU if asked for."""
        self.objective.eval()
        interval = Interval(0.0)
        totals, done = self.corpus.dev.totals, 0
        for number, batch in enumerate(self._development_batches()):
            if number % self.accelerator.num_processes == self.accelerator.process_index:
                interval.add(self.objective(batch.to(self.accelerator.device)))
            if self.accelerator.is_main_process:
                done += int(batch.is_current.sum())
                self.reports.on_stage("validating, tokens", done, totals.target_tokens + totals.sentences)
        reduced = self._reduce({n: (float(pair[0]), float(pair[1])) for n, pair in interval.sums.items()})
        loss, count = reduced.pop("loss")
        figures = {
            "update": float(self.progress.update),
            "epoch": float(self.progress.epoch),
            "loss": loss / count,
        }
        figures |= {name: total / count for name, (total, count) in reduced.items() if count}
        if self.score_development is not None:
            own = self.score_development(self.model) if self.accelerator.is_main_process else 0.0
            figures["bleu"] = gather_object([own])[0]
        return figures

    def _validate_and_save(self) -> None:
        figures = self.validate()
        value = self._quality(figures)
        progress, main = self.progress, self.accelerator.is_main_process
        self._require_finite(value, progress.update)
        progress.validated.append(progress.update)
        improved = progress.best is None or value > progress.best
        if improved:
            progress.best, progress.best_update, progress.validations_without_best = value, progress.update, 0
        else:
            progress.validations_without_best += 1
        if main:
            self._require_run()
            self.journal.write("validation", figures)
            self.reports.on_validation({**figures, "best": float(improved)})
            # Before the checkpoint: a process killed in between does both again.
            if improved:
                self._save_model(self.run / "model.safetensors", self.model.state_dict(), [progress.update])
        self._save_checkpoint()

    def _quality(self, figures: dict[str, float]) -> float:
        """What makes one model better than another: the higher, the better."""
        # By what the current sentences cost: comparable between context discounts.
        return -figures["nll_current"] if self.config.train.best_by == "loss" else figures["bleu"]

    def _save_model(self, path: Path, weights: dict[str, Tensor], updates: list[int]) -> None:
        ckpt.save_model(path, weights, self.config, self.corpus.checksums["tokenizer"], updates)

    def _save_checkpoint(self) -> None:
        """Write everything that is needed to go on, in a folder that appears under its name when complete."""
        progress, main = self.progress, self.accelerator.is_main_process
        self._require_run()
        final = checkpoint_folder(self.run, progress.update)
        temporary = final.with_name(f".{final.name}")
        try:
            if main:
                shutil.rmtree(temporary, ignore_errors=True)
                temporary.mkdir(parents=True)
            self.accelerator.wait_for_everyone()
            state = ProcessState(self.cursor, self.interval.sums)
            training_state.save_process_state(temporary, self.accelerator.process_index, state)
            if main:
                self._save_model(temporary / "model.safetensors", self.model.state_dict(), [progress.update])
                training_state.save_optimizer(temporary / "optimizer.safetensors", self.optimizer, self.names)
                if self.accelerator.scaler is not None:
                    progress.scaler = self.accelerator.scaler.state_dict()
            self.accelerator.wait_for_everyone()
            if main:
                training_state.save_progress(temporary, progress)
                ckpt.put_in_place(temporary, final)
                saved = checkpoints(self.run)
                models = ckpt.worth_keeping(self._candidates(), progress.best_update, self.config.train)
                ckpt.prune(self.run, {*models, saved[-1]}, set(saved[-2:]))
        except (OSError, SafetensorError, CotextError) as error:
            raise CotextError(
                f"{final}: the checkpoint cannot be written: {error}; earlier ones are whole: make room, "
                "then the same command goes on from the last"
            ) from None
        finally:
            if main:
                shutil.rmtree(temporary, ignore_errors=True)

    def _require_run(self) -> None:
        """Stop where another process has taken the run over."""
        if self.lock is not None:
            self.lock.require()

    def _candidates(self) -> list[int]:
        """The checkpoints that averaging may choose from."""
        return [update for update in checkpoints(self.run) if update in self.progress.validated]

    def _resume(self) -> None:
        """Take up the last checkpoint, if there is one; `require_resumable` has seen it to be whole."""
        saved = checkpoints(self.run)
        if not saved:
            return
        folder = checkpoint_folder(self.run, saved[-1])
        before, now = training_state.load_progress(folder), self.progress
        if before.processes != now.processes:
            raise CotextError(
                f"{folder}: trained by {before.processes} processes; {now.processes} cannot go on with it"
            )
        path = folder / "model.safetensors"
        ckpt.fill(self.model, ckpt.load_weights(path), path)
        training_state.load_optimizer(folder / "optimizer.safetensors", self.optimizer, self.names)
        state = training_state.load_process_state(folder, self.accelerator.process_index)
        epochs = torch.tensor(self.sampler.epochs(state.cursor), device=self.accelerator.device)
        if int(self.accelerator.reduce(epochs, "sum")) // now.processes != before.epoch:
            raise CotextError(
                f"{folder}: its place in the data is not in epoch {before.epoch}; delete {folder}"
            )
        if self.accelerator.scaler is not None and before.scaler:
            self.accelerator.scaler.load_state_dict(before.scaler)
        self.progress, self.cursor = before, state.cursor
        self.interval.sums = dict(state.sums)

    def _finish(self) -> None:
        """Make the model of the run: the mean of some checkpoints, or the best one if that is better."""
        progress, main = self.progress, self.accelerator.is_main_process
        self.accelerator.wait_for_everyone()  # until the last checkpoint has its name
        chosen = ckpt.averaged(self._candidates(), progress.best_update, self.config.train)
        figures = self._validated(chosen)
        told = f"mean of the checkpoints {', '.join(map(str, chosen))}"
        mean, best = self._quality(figures), -math.inf if progress.best is None else progress.best
        if mean < best:
            told = f"the best checkpoint; the {told} is worse ({abs(mean):.4g} against {abs(best):.4g})"
            chosen = [progress.best_update]
            figures = self._validated(chosen)
        progress.finished = True
        if main:
            self._save_model(self.run / "model.safetensors", self.model.state_dict(), chosen)
            self.reports.on_message(f"model.safetensors: {told}; best at update {progress.best_update}")
            self.journal.write("final", figures)
            self.reports.on_validation({**figures, "final": 1.0})
            # Last: a process killed before this does all of it again.
            training_state.save_progress(checkpoint_folder(self.run, checkpoints(self.run)[-1]), progress)

    def _validated(self, updates: list[int]) -> dict[str, float]:
        """Fill the model with the mean of some checkpoints: its figures on the development set."""
        files = [checkpoint_folder(self.run, update) / "model.safetensors" for update in updates]
        ckpt.fill(self.model, ckpt.average(files), files[0])
        return self.validate()
