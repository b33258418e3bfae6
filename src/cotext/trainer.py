"""Training: one loop that asks one question of every system, a loss summed over labels and their count.

An update is `accumulate` batches on each process. Gradients of summed losses are added up over batches and
processes and divided by the global count, so that neither the number of processes nor the split into batches
changes what an update is.
"""

import json
import math
import os
import shutil
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from accelerate import Accelerator
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from cotext import checkpoint as ckpt
from cotext.config import Config, TrainConfig
from cotext.data.batch import Batch, SpecialSymbols
from cotext.data.sampling import Cursor, Sampler, ordered_batches, read_ahead
from cotext.data.store import TokenStore
from cotext.data.views import View
from cotext.errors import CotextError
from cotext.losses.cross_entropy import LossParts
from cotext.models.transformer import Transformer
from cotext.systems import Loss

Sums = dict[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Corpus:
    """What a run trains and validates on, cut by one view."""

    train: TokenStore
    dev: TokenStore
    view: View
    symbols: SpecialSymbols
    max_row_tokens: int


@dataclass(slots=True)
class Reports:
    """Where a run tells of itself; each call gets a flat dictionary of figures."""

    on_update: Callable[[dict[str, float]], None]
    on_validation: Callable[[dict[str, float]], None]
    on_message: Callable[[str], None]


class Objective(nn.Module):
    """Model and loss as one module, so that data-parallel wrappers see a single forward pass."""

    def __init__(self, model: Transformer, loss: Loss) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, batch: Batch) -> LossParts:
        """The summed loss of a batch."""
        return self.loss(self.model, batch)


def learning_rate(config: TrainConfig, update: int) -> float:
    """Linear warm-up, then inverse square root (Vaswani et al. 2017, equation 3, scaled to its peak)."""
    warmup = max(config.warmup_updates, 1)
    return config.learning_rate * min(update / warmup, math.sqrt(warmup / update))


@dataclass(slots=True)
class _Window:
    """Sums since the last report."""

    since: float
    waited: float = 0.0
    tokens: float = 0.0
    labels: float = 0.0
    grad_norm: float = 0.0
    sums: defaultdict[str, Tensor] = field(default_factory=lambda: defaultdict(lambda: torch.zeros(2)))


class Trainer:
    """Trains one model in one run folder; `train` goes on where an earlier process stopped.

    `score_development` translates the development documents with the model as it stands and returns BLEU;
    it is called on the main process alone.
    """

    def __init__(
        self,
        config: Config,
        model: Transformer,
        loss: Loss,
        corpus: Corpus,
        run: Path,
        fingerprint: str,
        reports: Reports,
        score_development: Callable[[Transformer], float] | None = None,
        accelerator: Accelerator | None = None,
    ) -> None:
        self.config = config
        self.corpus = corpus
        self.run = run
        self.fingerprint = fingerprint
        self.reports = reports
        self.score_development = score_development
        self.accelerator = accelerator or Accelerator(mixed_precision=config.train.mixed_precision)
        self.model = model
        self.names = [name for name, _ in model.named_parameters()]
        train = config.train
        optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=train.learning_rate,
            betas=train.adam_betas,
            eps=1e-9,
            weight_decay=train.weight_decay,
            fused=True,
        )
        self.objective, self.optimizer = self.accelerator.prepare(Objective(model, loss), optimizer)
        self.sampler = Sampler(
            corpus.train,
            corpus.view,
            corpus.symbols,
            max_tokens=train.max_tokens,
            max_row_tokens=corpus.max_row_tokens,
            pool_tokens=train.pool_tokens,
            seed=train.seed,
            shard=self.accelerator.process_index,
            shards=self.accelerator.num_processes,
        )
        self.progress = ckpt.Progress(processes=self.accelerator.num_processes)
        self.cursor = Cursor()
        self._stop_requested = False

    def train(self) -> ckpt.Progress:
        """Train until `max_updates`, until patience runs out, or until a signal asks to stop.

        Raises:
            CotextError: no usable data, a loss that is not finite, a checkpoint that cannot be resumed.
        """
        self._resume()
        config = self.config.train
        if self.progress.finished and self.progress.update >= config.max_updates:
            return self.progress
        with _signals(self._request_stop):
            window = _Window(time.perf_counter())
            for batches, waited in self._updates():
                self._update(batches, window)
                window.waited += waited
                update = self.progress.update
                if update % config.log_every == 0 or update == config.max_updates:
                    self._report(window)
                    window = _Window(time.perf_counter())
                if (
                    update % config.validate_every == 0
                    or update >= config.max_updates
                    or self._stop_requested
                ):
                    before = time.perf_counter()
                    self._validate_and_save()
                    window.since += time.perf_counter() - before
                if update >= config.max_updates or self._stop_requested or self._patience_is_over():
                    break
        if not self._stop_requested:
            self._finish()
        return self.progress

    def _updates(self) -> Iterator[tuple[list[Batch], float]]:
        """Groups of `accumulate` batches with the seconds spent waiting for them."""
        group: list[Batch] = []
        waiting = 0.0
        stream = read_ahead(self.sampler.batches(self.cursor), depth=8, clock=time.perf_counter)
        for (batch, after), waited in stream:
            group.append(batch.to(self.accelerator.device))
            waiting += waited
            self.cursor = after
            if len(group) == self.config.train.accumulate:
                yield group, waiting
                group, waiting = [], 0.0

    def _update(self, batches: list[Batch], window: _Window) -> None:
        """One optimizer step on the given batches of this process."""
        self.objective.train()
        update = self.progress.update + 1
        rate = learning_rate(self.config.train, update)
        for settings in self.optimizer.param_groups:
            settings["lr"] = rate
        device = self.accelerator.device
        count = torch.zeros((), device=device)
        for number, batch in enumerate(batches):
            last = number + 1 == len(batches)
            with nullcontext() if last else self.accelerator.no_sync(self.objective):
                outcome = self.objective(batch)
                self.accelerator.backward(outcome.loss)
            count += outcome.count
            window.sums["loss"] += torch.stack((outcome.loss.detach(), outcome.count)).float().cpu()
            for name, (total, labels) in outcome.parts.items():
                window.sums[name] += torch.stack((total.detach(), labels)).float().cpu()
            window.tokens += float(outcome.count)
        count = self.accelerator.reduce(count, "sum")
        gradients = [p.grad for p in self.objective.parameters() if p.grad is not None]
        # Data-parallel wrappers average over processes; the sum is what is divided by the global count.
        torch._foreach_mul_(gradients, self.accelerator.num_processes / float(count))
        limit = self.config.train.clip_norm or math.inf
        norm = self.accelerator.clip_grad_norm_(self.objective.parameters(), limit)
        window.grad_norm = float(norm) if norm is not None else 0.0
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.progress.update = update

    def _report(self, window: _Window) -> None:
        seconds = time.perf_counter() - window.since
        sums = self._reduce({name: (float(pair[0]), float(pair[1])) for name, pair in window.sums.items()})
        loss, labels = sums.pop("loss")
        if not math.isfinite(loss):
            raise CotextError(
                f"the loss is not finite at update {self.progress.update}: lower train.learning_rate, raise "
                f"train.warmup_updates, or train without mixed precision; {self.run} keeps its checkpoints"
            )
        figures = {
            "update": float(self.progress.update),
            "epoch": float(self.cursor.epoch),
            "loss": loss / labels,
            **{f"nll_{name}": total / count for name, (total, count) in sums.items() if count},
            "learning_rate": learning_rate(self.config.train, self.progress.update),
            "grad_norm": window.grad_norm,
            "tokens_per_second": labels / seconds,
            "waiting_share": window.waited / seconds,
            "skipped_instances": float(self.sampler.skipped),
        }
        if self.accelerator.is_main_process:
            self._write_metrics("train", figures)
            self.reports.on_update(figures)

    def _reduce(self, sums: Sums) -> Sums:
        """Add sums and counts up over processes."""
        names = sorted(sums)
        flat = torch.tensor([sums[n] for n in names], dtype=torch.float64, device=self.accelerator.device)
        added = self.accelerator.reduce(flat, "sum").tolist()
        return {name: (pair[0], pair[1]) for name, pair in zip(names, added, strict=True)}

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Figures on the development set: loss, `nll_current`, `nll_context` per label, BLEU if asked for."""
        self.objective.eval()
        config, corpus = self.config.train, self.corpus
        batches = ordered_batches(
            corpus.dev, corpus.view, corpus.symbols, config.max_tokens, corpus.max_row_tokens
        )
        sums: dict[str, tuple[float, float]] = dict.fromkeys(("loss", "current", "context"), (0.0, 0.0))
        for number, batch in enumerate(batches):
            if number % self.accelerator.num_processes != self.accelerator.process_index:
                continue
            outcome = self.objective(batch.to(self.accelerator.device))
            for name, (total, count) in {"loss": (outcome.loss, outcome.count), **outcome.parts}.items():
                sums[name] = sums[name][0] + float(total), sums[name][1] + float(count)
        reduced = self._reduce(sums)
        loss, labels = reduced.pop("loss")
        if not labels:
            raise CotextError("no sentence of the development set fits view.max_tokens")
        figures = {"update": float(self.progress.update), "loss": loss / labels}
        figures |= {f"nll_{name}": total / count for name, (total, count) in reduced.items() if count}
        if self.score_development is not None and self.accelerator.is_main_process:
            figures["bleu"] = self.score_development(self.model)
        self.accelerator.wait_for_everyone()
        return figures

    def _validate_and_save(self) -> None:
        figures = self.validate()
        # By what the current sentences cost: comparable between context discounts.
        value = -figures["nll_current"] if self.config.train.best_by == "loss" else figures.get("bleu", 0.0)
        flag = torch.tensor([value], dtype=torch.float64, device=self.accelerator.device)
        value = float(self.accelerator.gather(flag)[0])  # the main process alone knows BLEU
        progress = self.progress
        improved = progress.best is None or value > progress.best
        if improved:
            progress.best, progress.best_update, progress.validations_without_best = value, progress.update, 0
        else:
            progress.validations_without_best += 1
        if self.accelerator.is_main_process:
            self._write_metrics("validation", figures)
            self.reports.on_validation({**figures, "best": float(improved)})
        self._save_checkpoint()
        if improved and self.accelerator.is_main_process:
            weights = dict(self.model.state_dict())
            ckpt.save_model(
                self.run / "model.safetensors", weights, self.config, self.fingerprint, [progress.update]
            )

    def _save_checkpoint(self) -> None:
        """Write everything that is needed to go on, in a folder that appears under its name when complete."""
        final = ckpt.checkpoint_folder(self.run, self.progress.update)
        temporary = final.with_name(f".{final.name}")
        main = self.accelerator.is_main_process
        try:
            if main:
                shutil.rmtree(temporary, ignore_errors=True)
                temporary.mkdir(parents=True)
            self.accelerator.wait_for_everyone()
            ckpt.save_process_state(temporary, self.accelerator.process_index, self.cursor)
            if main:
                weights = dict(self.model.state_dict())
                ckpt.save_model(
                    temporary / "model.safetensors",
                    weights,
                    self.config,
                    self.fingerprint,
                    [self.progress.update],
                )
                moments = ckpt.optimizer_tensors(self.optimizer, self.names)
                save_file(moments, temporary / "optimizer.safetensors")
                ckpt.save_progress(temporary, self.progress)
            self.accelerator.wait_for_everyone()
            if main:
                shutil.rmtree(final, ignore_errors=True)
                os.replace(temporary, final)
                self._prune()
        except OSError as error:
            raise CotextError(f"{final}: the checkpoint cannot be written: {error}") from None

    def _prune(self) -> None:
        config, saved = self.config.train, ckpt.checkpoints(self.run)
        closest = _closest(saved, self.progress.best_update, config.average)
        recent = saved[-max(config.keep, config.average) :]
        ckpt.prune(self.run, {*closest, *recent}, set(saved[-2:]))

    def _resume(self) -> None:
        saved = ckpt.checkpoints(self.run)
        if not saved:
            return
        folder = ckpt.checkpoint_folder(self.run, saved[-1])
        self.progress = ckpt.load_progress(folder)
        processes = self.accelerator.num_processes
        if self.progress.processes != processes:
            raise CotextError(
                f"{folder}: trained by {self.progress.processes} processes; {processes} cannot go on with it"
            )
        ckpt.fill(self.model, ckpt.load_weights(folder / "model.safetensors"), folder)
        try:
            ckpt.fill_optimizer(self.optimizer, load_file(folder / "optimizer.safetensors"), self.names)
            self.cursor = ckpt.load_process_state(folder, self.accelerator.process_index)
        except (OSError, KeyError, ValueError) as error:
            raise CotextError(f"{folder}: the training state is damaged: {error}") from None
        if self.accelerator.is_main_process:
            _drop_metrics_after(self.run / "metrics.jsonl", self.progress.update)
            self.reports.on_message(f"going on from update {self.progress.update} of {self.run}")

    def _finish(self) -> None:
        """Average the chosen checkpoints into the model of the run."""
        progress, config = self.progress, self.config.train
        progress.finished = True
        if self.accelerator.is_main_process:
            saved = ckpt.checkpoints(self.run)
            chosen = (
                _closest(saved, progress.best_update, config.average)
                if config.average_by == "best"
                else saved[-config.average :]
            )
            files = [ckpt.checkpoint_folder(self.run, u) / "model.safetensors" for u in chosen]
            weights = ckpt.average(files)
            ckpt.save_model(self.run / "model.safetensors", weights, self.config, self.fingerprint, chosen)
            ckpt.save_progress(ckpt.checkpoint_folder(self.run, saved[-1]), progress)
            self.reports.on_message(
                f"model.safetensors: mean of the checkpoints {', '.join(map(str, chosen))}; "
                f"best at update {progress.best_update}"
            )
        self.accelerator.wait_for_everyone()
        path = self.run / "model.safetensors"
        ckpt.fill(self.model, ckpt.load_weights(path), path)
        figures = self.validate()
        if self.accelerator.is_main_process:
            self._write_metrics("final", figures)
            self.reports.on_validation({**figures, "final": 1.0})

    def _patience_is_over(self) -> bool:
        patience = self.config.train.patience
        return bool(patience) and self.progress.validations_without_best >= patience

    def _request_stop(self) -> None:
        self._stop_requested = True
        self.reports.on_message("stopping after this update; the same command goes on from there")

    def _write_metrics(self, kind: str, figures: dict[str, float]) -> None:
        with (self.run / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, **figures}) + "\n")


def _closest(saved: list[int], best: int, count: int) -> list[int]:
    """The `count` saved updates closest to the best one, itself included, ascending."""
    return sorted(sorted(saved, key=lambda u: (abs(u - best), u))[:count])


def _drop_metrics_after(path: Path, update: int) -> None:
    """Forget what was reported after the checkpoint that training resumes from."""
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line.endswith("}") and json.loads(line)["update"] <= update]
    temporary = path.with_name(f".{path.name}")
    temporary.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    os.replace(temporary, path)


class _signals:  # noqa: N801
    """While inside, SIGINT and SIGTERM call `request` once; a second SIGINT interrupts at once."""

    def __init__(self, request: Callable[[], None]) -> None:
        self.request = request
        self.before: dict[int, Any] = {}

    def __enter__(self) -> None:
        def handle(number: int, frame: FrameType | None) -> None:
            signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)
            self.request()

        try:
            self.before = {n: signal.signal(n, handle) for n in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # not in the main thread: whoever runs us there handles signals
            self.before = {}

    def __exit__(self, *exc: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
