"""Development loss of a model before its first update, and of the run that it starts from.

On single sentences, the two are equal if all new parts of the model start without effect. The loss on
instances of the view of the model is computed, too.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from cotext.config.recipe import Config
from cotext.data.build import build_view, special_symbols
from cotext.data.sampling import ordered_batches
from cotext.data.store import TokenDocument, TokenStore
from cotext.data.tokenizer import Tokenizer
from cotext.data.views import SentenceView, View
from cotext.layers.start import NewSymbols
from cotext.losses.cross_entropy import CrossEntropy
from cotext.models.checkpoint import LoadedModel, load_run
from cotext.models.interface import Model, TranslationModel
from cotext.training.start_settings import blended

SAMPLE_SENTENCES = 400  # at the beginning of the corpus, in complete documents; this takes seconds


@dataclass(frozen=True, slots=True)
class StartLoss:
    """Mean negative log-likelihood per current label, in nats, over the same documents.

    `sentences_there`: loss of the other run on single sentences. `sentences_here`, `instances_here`: loss of
    the model before its first update, on single sentences and on instances of its view.
    """

    sentences_there: float
    sentences_here: float
    instances_here: float

    def render(self) -> str:
        return (
            f"  development loss at the start, nats per token: single sentences {self.sentences_here:.3f} "
            f"({self.sentences_there:.3f} there), instances of this recipe {self.instances_here:.3f}"
        )


def start_loss(
    run: Path, model: Model, config: Config, dev: TokenStore, tokenizer: Tokenizer, device: torch.device
) -> StartLoss | None:
    """Measure a model that was initialised from `run`; return None if either is non-autoregressive."""
    here, there = LoadedModel(model, config, tokenizer, []), load_run(run)
    if not (here.writes_left_to_right and there.writes_left_to_right):
        return None
    new_model, old_model = (run.left_to_right("the loss at the start").to(device) for run in (here, there))
    documents: list[TokenDocument] = []
    count = 0
    while len(documents) < len(dev) and count < SAMPLE_SENTENCES:
        documents.append(dev[len(documents)])
        count += len(documents[-1].source)
    here_mode, blend = new_model.training, config.train.blend or ()

    measured = partial(_mean_nll, documents=documents, tokenizer=tokenizer, device=device)
    sentences = SentenceView()
    if "separators" in blend:  # the other run was not trained to predict these symbols
        sep = there.tokenizer.sep
        old_model.new_symbols.append(NewSymbols("separators", range(sep, sep + 1)))
        old_model.blend(0.0, blend, everywhere=True)
    sentences_there = measured(old_model, there.config, sentences)
    new_model.blend(blended(config.train, 0), blend, everywhere=True)
    sentences_here, instances_here = (
        measured(new_model, config, view) for view in (sentences, build_view(config.view))
    )
    new_model.blend(1.0, blend)
    new_model.train(here_mode)
    return StartLoss(sentences_there, sentences_here, instances_here)


@torch.no_grad()
def _mean_nll(
    model: TranslationModel,
    config: Config,
    view: View,
    documents: list[TokenDocument],
    tokenizer: Tokenizer,
    device: torch.device,
) -> float:
    batches = ordered_batches(
        documents,
        view,
        special_symbols(tokenizer, config.view),
        config.train.max_tokens,
        config.view.max_tokens,
        group_windows=config.decode.group_windows if model.sees_other_rows else None,
    )
    loss, total, count = CrossEntropy(0.0, 1.0), 0.0, 0
    for batch in batches:
        nll, labels = loss(model.eval(), batch.to(device)).parts["nll_current"]
        total, count = total + float(nll), count + int(labels)
    return total / max(count, 1)
