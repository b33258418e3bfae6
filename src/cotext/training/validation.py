"""Validation: the loss on the development set and, if a function that translates it is given, BLEU."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn
from torch.nn.utils import parametrize

from cotext.config.recipe import Config
from cotext.data.batch import Batch
from cotext.data.sampling import ordered_batches
from cotext.models.interface import Model
from cotext.runtime import CotextError
from cotext.training.inputs import Corpus
from cotext.training.losses import Loss, LossParts
from cotext.training.resume import full_tensor

Sums = dict[str, tuple[float, float]]  # name -> sum and count
INFINITE: Final = "infinite_losses"  # number of batches that are excluded from all other sums


class IntervalSums:
    """Sums of this process since the last report, which was made at the time `since` (seconds).

    The sums stay on the device until they are read, so that no update waits for the device. `labels` is the
    number of labels of all batches, including labels that a loss ignores. `stopped` (float, 0 or 1) is 1 from
    the first update whose gradient was not finite; `stopped_at` is this update, 0 if there is none.
    """

    def __init__(self, since: float, device: torch.device) -> None:
        self.since = since
        self.labels = 0
        self.waited_seconds = 0.0
        self.stopped = torch.zeros((), device=device)
        self.stopped_at = torch.zeros((), dtype=torch.long, device=device)
        self.grad_norm = torch.zeros((), device=device)
        self.sums: dict[str, Tensor] = {}  # pairs of a sum and its count, float64 [2]

    def add(self, outcome: LossParts) -> None:
        self._add(_pairs(outcome))

    def add_of_update(self, outcome: LossParts, labels: int) -> None:
        """Add the losses of one training batch if all are finite; otherwise count it as `INFINITE`.

        One infinite loss would make the sum infinite, also after resumption, although the gradient may be
        finite and the weights undamaged.
        """
        self.labels += labels
        pairs = _pairs(outcome)
        finite = torch.stack(list(pairs.values())).isfinite().all()
        kept = {name: torch.where(finite, pair, 0.0) for name, pair in pairs.items()}
        lost = torch.stack((~finite, torch.zeros_like(finite))).double()
        self._add({**kept, INFINITE: lost})

    def _add(self, pairs: Mapping[str, Tensor]) -> None:
        for name, pair in pairs.items():
            self.sums[name] = self.sums[name] + pair if name in self.sums else pair

    def add_norm(self, norm: Tensor, update: int, guarded: bool) -> None:
        """Record the gradient norm of an update; `guarded`: training stops if it is not finite."""
        self.grad_norm = norm.detach()
        if guarded:
            first = ~norm.isfinite() & (self.stopped == 0)
            self.stopped_at = torch.where(first, update, self.stopped_at)
            self.stopped = torch.where(first, 1.0, self.stopped)

    def read(self) -> Sums:
        """Wait for the device and return the sums."""
        return {name: (float(pair[0]), float(pair[1])) for name, pair in self.on_cpu().items()}

    def on_cpu(self) -> dict[str, Tensor]:
        """Return the sums with their counts, for `restore`."""
        return {name: pair.cpu() for name, pair in self.sums.items()}

    def restore(self, sums: Mapping[str, Tensor]) -> None:
        """Set the sums to those of a checkpoint."""
        self.sums = {name: pair.to(self.stopped.device) for name, pair in sums.items()}


def _pairs(outcome: LossParts) -> dict[str, Tensor]:
    """Return the losses of a batch, each with its count, float64 [2]."""
    losses = {"loss": (outcome.loss, outcome.count), **outcome.parts}
    return {name: torch.stack((total.detach(), count)).double() for name, (total, count) in losses.items()}


def means(sums: Sums) -> dict[str, float]:
    """Return sums divided by their counts, without sums of count 0, and `INFINITE` if it is not 0."""
    infinite = sums.get(INFINITE, (0.0, 0.0))[0]
    quotients = {name: total / count for name, (total, count) in sums.items() if count}
    return {**quotients, INFINITE: infinite} if infinite else quotients


def add_over_processes(sums: Sums) -> Sums:
    """Return sums and counts over all processes; every process must call this."""
    total: Sums = {}
    # Sums are added in the order of the processes, so rounding is the same on all of them.
    for part in gather_object([sums]):
        for name, (value, count) in part.items():
            before = total.get(name, (0.0, 0.0))
            total[name] = before[0] + value, before[1] + count
    return total


@dataclass(frozen=True, slots=True)
class Validator:
    """The evaluation of one model on the development set, divided among the processes.

    `objective` maps a batch to `LossParts`. `score_development` translates the development documents with
    the current model and returns BLEU; it is called only on the main process. `on_stage` is as in
    `TrainingCallbacks`.
    """

    config: Config
    corpus: Corpus
    model: Model
    loss: Loss
    objective: nn.Module
    accelerator: Accelerator
    on_stage: Callable[[str, int, int], None]
    score_development: Callable[[Model], float] | None

    def batches(self) -> Iterator[Batch]:
        corpus = self.corpus
        return ordered_batches(
            corpus.dev,
            corpus.view,
            corpus.symbols,
            self.config.train.max_tokens,
            corpus.max_row_tokens,
            # Rows that attend to each other are grouped as in translation, because groups change the loss.
            group_windows=self.config.decode.group_windows if self.model.sees_other_rows else None,
        )

    def require_batches(self) -> None:
        """Raise CotextError if no sentence of the development set is short enough for the view."""
        if next(self.batches(), None) is None:
            raise CotextError(
                f"{self.corpus.dev.path}: no sentence of the development set fits into "
                f"{self.corpus.max_row_tokens} tokens; raise view.max_tokens"
            )

    @torch.no_grad()
    def figures(self) -> dict[str, float]:
        """Return `loss` and its named parts per label, in nats, and `bleu` if `score_development` is given.

        `gates.NAME`: mean opening of the gates of an attention to other sentences, from 0 to 1.
        """
        self.objective.eval()
        main, process = self.accelerator.is_main_process, self.accelerator.process_index
        device = self.accelerator.device
        interval = IntervalSums(0.0, device)
        totals, done = self.corpus.dev.totals, 0
        batches = self.batches()
        while group := list(islice(batches, self.accelerator.num_processes)):
            # All processes make the same number of passes, because a sharded model needs every process. In
            # the last group there may be fewer batches than processes; surplus passes are not counted.
            batch = group[process if process < len(group) else 0]
            laid_out = self.loss.laid_out(self.model, batch, training=False)
            outcome: LossParts = self.objective(laid_out.to(device))
            if process < len(group):
                interval.add(outcome)
            if main:
                done += sum(int(b.is_current.sum()) for b in group)
                self.on_stage("validating, tokens", done, totals.target_tokens + totals.sentences)
        figures = means(add_over_processes(interval.read()))
        for name, heads in self.model.open_gates().items():
            figures[f"gates.{name}"] = float(full_tensor(heads).abs().mean())
        if self.score_development is not None:
            with parametrize.cached():  # parametrised weights are computed once, not at every step
                bleu = self.score_development(self.model) if main else 0.0
            figures["bleu"] = gather_object([bleu])[0]
        return figures
