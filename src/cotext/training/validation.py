"""Validation: the loss on the development set, and BLEU where a function that translates it is given."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import nn
from torch.nn.utils import parametrize

from cotext.config.recipe import Config
from cotext.data.batch import Batch
from cotext.data.sampling import ordered_batches
from cotext.losses.build import Loss
from cotext.losses.cross_entropy import LossParts
from cotext.models.interface import Model
from cotext.runtime.errors import CotextError
from cotext.training.corpus import Corpus
from cotext.training.sharding import whole
from cotext.training.sums import IntervalSums, add_over_processes, means


@dataclass(frozen=True, slots=True)
class Validator:
    """The evaluation of one model on the development set, shared among the processes.

    `objective` maps a batch to `LossParts`. `score_development` translates the development documents with
    the model as it stands and returns BLEU; it is called on the main process alone. `on_stage` as in
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
        """The development set in batches, in the order of its documents."""
        corpus = self.corpus
        return ordered_batches(
            corpus.dev,
            corpus.view,
            corpus.symbols,
            self.config.train.batch_tokens,
            corpus.max_row_tokens,
            # As in translation: the figures are those of what it will do.
            group_windows=self.config.decode.group_windows if self.model.sees_other_rows else None,
        )

    def require_batches(self) -> None:
        """Refuse a view by which nothing can be validated.

        Raises:
            CotextError: no sentence of the development set fits into a row.
        """
        if next(self.batches(), None) is None:
            raise CotextError(
                f"{self.corpus.dev.path}: no sentence of the development set fits into "
                f"{self.corpus.max_row_tokens} tokens; raise view.max_tokens"
            )

    @torch.no_grad()
    def figures(self) -> dict[str, float]:
        """Return `loss` and its named parts per label, in nats, from one pass, and `bleu` if asked for.

        `gates.NAME`: how far the gates of an attention to other sentences are open, from 0 to 1.
        """
        self.objective.eval()
        main, process = self.accelerator.is_main_process, self.accelerator.process_index
        device = self.accelerator.device
        interval = IntervalSums(0.0, device)
        totals, done = self.corpus.dev.totals, 0
        batches = self.batches()
        while group := list(islice(batches, self.accelerator.num_processes)):
            # Every process makes as many passes, which a divided model needs all of them for: of the last
            # batches there may be fewer than processes.
            batch = group[process if process < len(group) else 0]
            laid_out = self.loss.laid_out(self.model, batch, training=False)
            outcome: LossParts = self.objective(laid_out.to(device))
            if process < len(group):
                interval.add(outcome)
            if main:
                done += sum(int(each.is_current.sum()) for each in group)
                self.on_stage("validating, tokens", done, totals.target_tokens + totals.sentences)
        figures = means(add_over_processes(interval.read().sums))
        for name, heads in self.model.open_gates().items():
            figures[f"gates.{name}"] = float(whole(heads).abs().mean())
        if self.score_development is not None:
            with parametrize.cached():  # corrected weights are added up once, not at every step
                own = self.score_development(self.model) if main else 0.0
            figures["bleu"] = gather_object([own])[0]
        return figures
