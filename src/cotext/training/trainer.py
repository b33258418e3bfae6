"""The training loop of all systems. Losses are sums over labels, together with the number of labels.

An update is `accumulate` batches on each process. The gradients of summed losses are added over batches and
processes and divided by the global number of labels. So an update depends neither on the number of processes
nor on the split into batches.
"""

import itertools
import math
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.optim import AdamW
from torch.utils.tensorboard import SummaryWriter

from cotext.config.recipe import BEST_BY, Config, TrainConfig
from cotext.data.batch import Batch, copy_hidden, hide_current_source, hide_words
from cotext.data.sampling import Cursor, read_ahead
from cotext.models import checkpoint as ckpt
from cotext.models.interface import Model, System
from cotext.models.run_folder import checkpoint_folder, describe_file
from cotext.runtime import CotextError
from cotext.runtime.devices import pinned
from cotext.runtime.files import Lock, sealed, sealed_lines, unsealed, write_text
from cotext.runtime.signals import stop_on_signals
from cotext.training.inputs import Corpus
from cotext.training.losses import Loss, LossParts, build_loss
from cotext.training.resume import ProcessState, RunCheckpoints, TrainingProgress, full_tensor, shard
from cotext.training.validation import INFINITE, IntervalSums, Validator, add_over_processes, means


@dataclass(slots=True)
class TrainingCallbacks:
    """Functions that training calls on the main process.

    `on_update` and `on_validation` receive the metrics of `metrics.jsonl` as flat dictionaries, `on_message`
    a line of text. `on_start` receives the number of updates that earlier processes of the run have done.
    `on_stage` receives the name of an operation between two updates, its completed steps, and their total.
    `score_development` translates the development documents with the current model and returns BLEU.
    """

    on_update: Callable[[dict[str, float]], None] = lambda figures: None
    on_validation: Callable[[dict[str, float]], None] = lambda figures: None
    on_message: Callable[[str], None] = lambda text: None
    on_start: Callable[[int], None] = lambda update: None
    on_stage: Callable[[str, int, int], None] = lambda stage, done, total: None
    score_development: Callable[[Model], float] | None = None


class MetricsLog:
    """The reports of a run: lines of JSON, each with a checksum; also written as TensorBoard curves."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._curves: SummaryWriter | None = None
        self._forgotten_from: int | None = None

    def write(self, kind: str, figures: Mapping[str, float]) -> None:
        """Append a line with the time (UTC) and a point per curve; raises CotextError for storage errors."""
        time = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"{sealed({'kind': kind, 'time': time, **figures})}\n")
            if self._curves is None:
                folder = str(self.path.parent / "tensorboard")
                self._curves = SummaryWriter(folder, purge_step=self._forgotten_from)
            for name, value in figures.items():
                if name != "update":
                    self._curves.add_scalar(f"{kind}/{name}", value, int(figures["update"]))
            self._curves.flush()
        except OSError as error:
            raise CotextError(f"{self.path}: cannot be written: {error}") from None

    def forget_after(self, update: int) -> tuple[int, set[int]]:
        """Remove damaged lines, lines after `update`, and the metrics of the final model.

        Must be called before `write`. Returns the number of damaged lines, and the updates with a validation.
        The last line does not count as damaged, because an interruption may have cut it short.
        """
        self._forgotten_from = update + 1
        *lines, cut_short = sealed_lines(self.path)
        if not lines and not cut_short:
            return 0, set()
        kept: list[str] = []
        damaged, validated = 0, set[int]()
        for line in lines:
            try:
                entry = unsealed(line)
                is_kept = entry["update"] <= update and entry["kind"] != "final"
            except (ValueError, KeyError, TypeError):
                damaged += 1
                continue
            if is_kept:
                kept.append(f"{line}\n")
                if entry["kind"] == "validation":
                    validated.add(int(entry["update"]))
        write_text(self.path, "".join(kept))
        return damaged, validated


class Objective(nn.Module):
    """Model and loss in one module, so that data-parallel wrappers have a single forward pass."""

    def __init__(self, model: Model, loss: Loss) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, batch: Batch, done: float = 0.0) -> LossParts:
        """Return the summed loss of a batch; `done` is the completed share of training, from 0 to 1."""
        parts = self.loss(self.model, batch, done)
        if self.training and not parts.loss.requires_grad:
            # Rows without context may use frozen parameters only. Trainable parameters get zero gradients,
            # because all processes must make a backward pass.
            learned = [parameter.sum() for parameter in self.parameters() if parameter.requires_grad]
            parts = replace(parts, loss=parts.loss + 0 * torch.stack(learned).sum())
        return parts


class Adam(AdamW):
    """Adam that skips an update if `found_inf` is 1; the fused kernel checks this on the device.

    With fp16, the gradient scaler sets and deletes this attribute instead.
    """

    found_inf: Tensor | None = None


def learning_rate(config: TrainConfig, update: int) -> float:
    """Return the learning rate: linear warm-up, then inverse square root.

    This is Vaswani et al. 2017, equation 3, scaled so that its peak is `config.learning_rate`.
    """
    warmup = max(config.warmup_updates, 1)
    return config.learning_rate * min(update / warmup, math.sqrt(warmup / update))


def make_optimizer(
    model: nn.Module, config: TrainConfig, fresh: Collection[str] = ()
) -> tuple[Adam, list[str]]:
    """Return Adam with decoupled weight decay, and the names of its parameters in order.

    `fresh`: the names of parameters that the run from which training starts does not have. Their learning
    rate is multiplied by `config.fresh_rate`, unless the model has a factor for them (`rates`).
    """
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    rates = model.rates() if isinstance(model, System) else {}
    groups: dict[float, list[str]] = {}
    for name in named:
        factor = rates.get(name, config.fresh_rate if name in fresh else 1.0)
        groups.setdefault(factor, []).append(name)
    optimizer = Adam(
        [{"params": [named[name] for name in names], "factor": factor} for factor, names in groups.items()],
        lr=config.learning_rate,
        betas=config.adam_betas,
        eps=config.adam_epsilon,
        weight_decay=config.weight_decay,
        fused=True,
    )
    return optimizer, [name for names in groups.values() for name in names]


class Trainer:
    """The training of one model in one run folder; `train` resumes where an earlier process stopped.

    `fresh`: see `make_optimizer`. `lock`: the lock of the run in the main process, otherwise None.
    """

    def __init__(
        self,
        config: Config,
        model: Model,
        corpus: Corpus,
        run: Path,
        callbacks: TrainingCallbacks,
        accelerator: Accelerator,
        fresh: Collection[str] = (),
        lock: Lock | None = None,
    ) -> None:
        if config.train.best_by == "bleu" and callbacks.score_development is None:
            raise CotextError("train.best_by = bleu needs train.validate_bleu = true")
        self.config = config
        self.corpus = corpus
        self.run = run
        self.callbacks = callbacks
        self.model, self.loss = model, build_loss(config.loss)
        self.accelerator = accelerator
        objective = Objective(model, self.loss)
        if config.train.shard_model:
            shard(objective, self.accelerator.device, self.accelerator.num_processes)
        self.adam, names = make_optimizer(model, config.train, fresh)
        # A sharded model must not be wrapped in DDP, which needs the full model on every process.
        self.objective = self.accelerator.prepare_model(objective, evaluation_mode=config.train.shard_model)
        self.optimizer = self.accelerator.prepare(self.adam)
        self.sampler = corpus.sampler(
            config.train,
            config.train.max_tokens,
            self.accelerator.process_index,
            self.accelerator.num_processes,
        )
        self.validator = Validator(
            config,
            corpus,
            model,
            self.loss,
            self.objective,
            self.accelerator,
            callbacks.on_stage,
            callbacks.score_development,
        )
        self.checkpoints = RunCheckpoints(
            run, config, corpus.checksums["tokenizer"], model, self.optimizer, names, self.accelerator, lock
        )
        self.progress = TrainingProgress(processes=self.accelerator.num_processes, corpus=corpus.checksums)
        self.cursor = Cursor()
        self.interval = IntervalSums(time.perf_counter(), self.accelerator.device)
        self.journal = MetricsLog(run / "metrics.jsonl")
        self.stopping, self.has_warned = False, False
        self.counted_until = time.process_time()

    def require_batches(self) -> None:
        """Raise CotextError if no sentence of the training or the development corpus is short enough."""
        self.sampler.require_instances()
        self.validator.require_batches()

    def rehearse(self, updates: int) -> Iterator[tuple[list[Batch], float]]:
        """Make the first updates without writing anything; yield the batches and the seconds of each."""
        with closing(self._updates()) as groups:
            for batches, _ in itertools.islice(groups, updates):
                begun = time.perf_counter()
                self._update(batches, False)
                self.interval.read()  # waits for the device
                yield batches, time.perf_counter() - begun

    def train(self) -> TrainingProgress:
        """Train until a limit of the section `train`, early stopping, or a signal.

        Raises CotextError if no data are usable, the loss is not finite, or a checkpoint cannot be resumed or
        written.
        """
        self._resume()
        if self.progress.finished and self._is_over() and self._is_averaged():
            return self.progress
        self.progress.finished = False
        if self.accelerator.is_main_process:
            ckpt.sweep(self.run)
            # All lines of a run that was killed before its first checkpoint are removed.
            reached = self.progress.update if self.progress.validated else self.progress.update or -1
            damaged, logged = self.journal.forget_after(reached)
            if damaged:
                self.callbacks.on_message(f"{self.journal.path}: damaged lines were removed: {damaged}")
            # Validations are logged before their checkpoints are written, so the log has the last validation.
            elif self.progress.validated and self.progress.validated[-1] not in logged:
                self.callbacks.on_message(f"{self.journal.path}: missing or truncated; its reports are lost")
            if self.progress.update:
                self.callbacks.on_message(f"going on from update {self.progress.update} of {self.run}")
            self.callbacks.on_start(self.progress.update)
        # The best model may be that of `train.init`, or the last one if a limit was lowered.
        begins = self.config.train.init and not self.progress.validated
        if begins or (self._is_over() and self.progress.update not in self.progress.validated):
            self._validate_and_save()
        self.interval.since = time.perf_counter()
        self.counted_until = time.process_time()
        if not self._is_over():
            with closing(self._updates()) as updates:
                self._train(updates)
        if self._is_over():
            self._finish()
        elif self.accelerator.is_main_process:
            self.callbacks.on_message(
                f"stopped at update {self.progress.update}; the same command resumes from there"
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
                    self._report_left_out()
                last = self._limit_reached()
                if last or update % config.log_every == 0:
                    self._report()
                before, spent = time.perf_counter(), time.process_time()
                if last or validates:
                    self._validate_and_save()
                elif self.stopping:
                    self._save_checkpoint()
                self.interval.since += time.perf_counter() - before
                self.counted_until += time.process_time() - spent
                if self.stopping or self._is_over():
                    return

    def _is_over(self) -> bool:
        stops_early = 0 < self.config.train.patience <= self.progress.validations_without_best
        return self._limit_reached() or stops_early

    def _is_averaged(self) -> bool:
        """Return whether the final model was made with the current settings of averaging."""
        path, now = self.run / "model.safetensors", self.config.train
        made = describe_file(path).config.train if path.exists() else None
        return made is not None and (made.average, made.average_by) == (now.average, now.average_by)

    def _limit_reached(self) -> bool:
        config, progress = self.config.train, self.progress
        over = progress.update >= config.max_updates or 0 < config.max_epochs <= progress.epoch
        return over or 0 < 60 * config.max_cpu_minutes <= progress.cpu_seconds

    def _updates(self) -> Generator[tuple[list[Batch], float]]:
        """Yield groups of `accumulate` batches with the seconds spent waiting for them."""
        group: list[Batch] = []
        waiting = 0.0
        stream = read_ahead(self._laid_out_batches(), depth=8, clock=time.perf_counter)
        with closing(stream):
            for (batch, after), waited in stream:
                group.append(batch.to(self.accelerator.device))
                waiting += waited
                self.cursor = after
                if len(group) == self.config.train.accumulate:
                    yield group, waiting
                    group, waiting = [], 0.0

    def _laid_out_batches(self) -> Iterator[tuple[Batch, Cursor]]:
        """Yield batches with their layouts, each with the cursor of the next batch."""
        pins = self.accelerator.device.type == "cuda"
        for batch, after in self.sampler.batches(self.cursor):
            laid_out = self.loss.laid_out(self.model, batch, training=True)
            yield pinned(laid_out) if pins else laid_out, after

    def _update(self, batches: list[Batch], stop_requested: bool) -> None:
        """Make one optimizer step on the batches of this process, and agree on whether to stop."""
        self.objective.train()
        update = self.progress.update + 1
        rate = learning_rate(self.config.train, update)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["factor"]
        self.model.blend(self.config.train.blended(self.progress.update), self.config.train.blend or ())
        done = self.progress.update / self.config.train.max_updates
        count = torch.zeros((), dtype=torch.float64, device=self.accelerator.device)
        for number, batch in enumerate(batches):
            last = number + 1 == len(batches)
            with nullcontext() if last else self.accelerator.no_sync(self.objective):
                outcome = self.objective(self._with_word_dropout(batch), done)
                self.accelerator.backward(outcome.loss)
            count += outcome.count
            self.interval.add_of_update(outcome, batch.labels.count)
        count = self.accelerator.reduce(count, "sum")
        gradients = [p.grad for p in self.objective.parameters() if p.grad is not None]
        # DDP averages gradients over processes. Multiplying by their number gives the sum, which is then
        # divided by the global number of labels.
        torch._foreach_mul_(gradients, self.accelerator.num_processes / count)
        limit = self.config.train.clip_norm or math.inf
        norm = full_tensor(self.accelerator.clip_grad_norm_(self.objective.parameters(), limit))
        guarded = self.accelerator.scaler is None  # a gradient scaler skips such updates itself
        self.interval.add_norm(norm, update, guarded)
        if guarded:
            # From the first update that is not finite, no update is applied. The host reads this flag only
            # with the next report, so that no update waits for the device.
            self.adam.found_inf = self.interval.stopped
        self.optimizer.step()
        self.optimizer.zero_grad()
        self._agree(update, stop_requested)

    def _agree(self, update: int, stop_requested: bool) -> None:
        """Count an update, its processor time and completed epochs, over all processes; set `stopping`."""
        stops, epochs, processes = int(stop_requested), self.sampler.epochs(self.cursor), 1
        microseconds = 0
        if self.config.train.max_cpu_minutes:
            now = time.process_time()
            microseconds = round(1e6 * (now - self.counted_until))
            self.counted_until = now
        if self.accelerator.num_processes > 1:
            # A signal may reach the processes at different updates, and epochs may end at different updates.
            # If one process has received a signal to stop, all processes stop at this update.
            shared = torch.tensor([stops, epochs, microseconds], device=self.accelerator.device)
            stops, epochs, microseconds = self.accelerator.reduce(shared, "sum").tolist()
            processes = self.accelerator.num_processes
        self.progress.update, self.progress.epoch = update, epochs // processes
        self.progress.cpu_seconds += microseconds / 1e6
        self.stopping = bool(stops)

    def _with_word_dropout(self, batch: Batch) -> Batch:
        """Return a training batch after word dropout and CoWord dropout."""
        config, symbols, unknown = self.config.train, self.corpus.symbols, self.corpus.unknown
        hidden = batch
        if config.coword_dropout:
            hidden = hide_current_source(hidden, config.coword_dropout, symbols, unknown)
        over = 0 < config.word_dropout_epochs <= self.cursor.epoch
        if config.word_dropout and not over:
            hidden = hide_words(hidden, config.word_dropout, symbols, unknown)
        return copy_hidden(batch, hidden, symbols)

    def _require_finite(self, figure: float, update: int) -> None:
        if not math.isfinite(figure):
            raise CotextError(
                f"the loss or its gradient is not finite at update {update}: lower train.learning_rate, "
                f"raise train.warmup_updates, or train without mixed precision; {self.run} keeps its "
                "checkpoints"
            )

    def _require_applied(self) -> None:
        """Raise CotextError if an update since the last report was not finite."""
        if stopped_at := int(self.interval.stopped_at):
            self._require_finite(math.nan, stopped_at)

    def _report(self) -> None:
        """Report the updates since the last report."""
        interval, now = self.interval, time.perf_counter()
        self._require_applied()
        seconds = now - interval.since
        seen = {
            "labels": (float(interval.labels), 0.0),
            "skipped": (float(self.cursor.skipped), 0.0),
            "shed": (float(self.cursor.shed), 0.0),
        }
        totals = add_over_processes({**interval.read(), **seen})
        labels, skipped, shed = (totals.pop(name)[0] for name in seen)
        figures = {
            "update": float(self.progress.update),
            "epoch": float(self.cursor.epoch),
            **means(totals),
            "learning_rate": learning_rate(self.config.train, self.progress.update),
            "grad_norm": float(interval.grad_norm),
            "tokens_per_second": labels / seconds,
            "waiting_share": interval.waited_seconds / seconds,
            "skipped_instances": skipped,
            "shed_instances": shed,
        }
        if self.config.train.max_cpu_minutes:
            figures["cpu_minutes"] = self.progress.cpu_seconds / 60
        self.interval = IntervalSums(now, self.accelerator.device)
        if self.accelerator.is_main_process:
            self.journal.write("train", figures)
            if batches := figures.get(INFINITE):
                self.callbacks.on_message(
                    f"up to update {figures['update']:.0f}: the loss of {batches:,.0f} batch"
                    f"{'es' if batches > 1 else ''} was not finite, and is excluded from the reports; "
                    "gradients were used where they were finite"
                )
            self.callbacks.on_update(figures)

    def _report_left_out(self) -> None:
        """Report how many instances lost context, or were skipped, because of `view.max_tokens`."""
        shed, skipped = add_over_processes({"": (float(self.cursor.shed), float(self.cursor.skipped))})[""]
        if self.accelerator.is_main_process and shed + skipped:
            most = self.corpus.max_row_tokens
            self.callbacks.on_message(
                f"in the first epoch, {shed:,.0f} instances lost some of their context and {skipped:,.0f} "
                f"were skipped, because of view.max_tokens = {most}: raise it to keep them whole"
            )

    def validate(self, updates: Sequence[int]) -> dict[str, float]:
        """Validate the model, which has the mean weights of `updates`; add the current update and epoch."""
        ckpt.set_blend(self.model, self.config.train, updates)
        position = {"update": float(self.progress.update), "epoch": float(self.progress.epoch)}
        return position | self.validator.figures()

    def _validate_and_save(self) -> None:
        self._require_applied()
        progress, main = self.progress, self.accelerator.is_main_process
        figures = self.validate([progress.update])
        value = self._quality(figures)
        self._require_finite(value, progress.update)
        progress.validated.append(progress.update)
        improved = progress.best is None or value > progress.best
        if improved:
            progress.best, progress.best_update = value, progress.update
        # Early stopping and averaging ignore the validation before the first update.
        if progress.best_trained is not None and value <= progress.best_trained:
            progress.validations_without_best += 1
        elif progress.update:
            progress.best_trained, progress.best_trained_update = value, progress.update
            progress.validations_without_best = 0
        if main:
            self.checkpoints.require_run()
            self.journal.write("validation", figures)
            self.callbacks.on_validation({**figures, "best": float(improved)})
        # This precedes the checkpoint, so a process killed in between repeats both.
        if improved:
            self.checkpoints.save_model(self.run / "model.safetensors", [progress.update])
        self._save_checkpoint()

    def _quality(self, figures: dict[str, float]) -> float:
        """Return the value by which models are compared; higher is better."""
        by = self.config.train.best_by
        return figures["bleu"] if by == "bleu" else -figures[BEST_BY[by]]

    def _save_checkpoint(self) -> None:
        self._require_applied()
        state = ProcessState(self.cursor, self.interval.on_cpu())
        undeleted = self.checkpoints.save(self.progress, state)
        if undeleted and not self.has_warned:
            self.has_warned = True  # only once, because the files remain at every further checkpoint
            self.callbacks.on_message(f"{undeleted[0]}: is no longer needed, but cannot be deleted")

    def _resume(self) -> None:
        """Restore the last checkpoint, if there is one."""
        if (saved := self.checkpoints.resume()) is None:
            return
        progress, state = saved
        epochs = torch.tensor(self.sampler.epochs(state.cursor), device=self.accelerator.device)
        if int(self.accelerator.reduce(epochs, "sum")) // progress.processes != progress.epoch:
            folder = checkpoint_folder(self.run, progress.update)
            raise CotextError(
                f"{folder}: its position in the data is not in epoch {progress.epoch}; delete {folder}, and "
                "run the same command again"
            )
        if not progress.best_trained_update:  # a checkpoint before the first update, or of version 0.1.0
            progress.best_trained = progress.best if progress.best_update else None
            progress.best_trained_update = progress.best_update
        self.progress, self.cursor = progress, state.cursor
        self.interval.restore(state.sums)

    def _finish(self) -> None:
        """Write the final model: the mean of some checkpoints, or the best checkpoint if it is better."""
        progress, main = self.progress, self.accelerator.is_main_process
        self.accelerator.wait_for_everyone()  # until the last checkpoint is in place
        candidates, center = self.checkpoints.candidates(progress), progress.best_trained_update
        chosen = ckpt.averaged(candidates, center, self.config.train)
        figures = self._validate_mean(chosen)
        made_of = f"mean of the checkpoints {', '.join(map(str, chosen))}"
        mean, best = self._quality(figures), -math.inf if progress.best is None else progress.best
        if mean < best:
            made_of = f"the best checkpoint; the {made_of} is worse ({abs(mean):.4g} against {abs(best):.4g})"
            chosen = [progress.best_update]
            figures = self._validate_mean(chosen)
        progress.finished = True
        self.checkpoints.save_model(self.run / "model.safetensors", chosen)
        if main:
            self.callbacks.on_message(f"model.safetensors: {made_of}; best at update {progress.best_update}")
            if chosen == [0]:
                self.callbacks.on_message(
                    f"nothing was learned: on the development set, no checkpoint is better than the start "
                    f"from {self.config.train.init}; use that model"
                )
            self.journal.write("final", figures)
            self.callbacks.on_validation({**figures, "final": 1.0})
            # This comes last: if the process is killed earlier, the whole method is repeated.
            self.checkpoints.save_progress(progress)

    def _validate_mean(self, updates: list[int]) -> dict[str, float]:
        """Load the mean of some checkpoints into the model, and validate it."""
        self.checkpoints.fill(updates)
        return self.validate(updates)
