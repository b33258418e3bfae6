"""Development loss of a model before its first update, and of the run whose weights it starts from.

On single sentences the two are equal as far as what is new in the model starts at settings that change
nothing; the loss on instances of its own view is given too.
"""

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from cotext.config.recipe import Config
from cotext.data.build import build_view, special_symbols
from cotext.data.sampling import ordered_batches
from cotext.data.store import TokenDocument, TokenStore
from cotext.data.tokenizer import Tokenizer, TrimmedTokenizer
from cotext.data.views import SentenceView, View
from cotext.layers.start import NewSymbols
from cotext.losses.cross_entropy import CrossEntropy
from cotext.models.checkpoint import LoadedModel, load_run
from cotext.models.interface import Model, TranslationModel
from cotext.runtime.files import replacing
from cotext.runtime.integrity import sealed, sealed_lines, unsealed
from cotext.training.start_settings import blended
from cotext.training.warm_start import read_account

SAMPLE_SENTENCES = 400  # in whole documents, from the first on: two passes over them take seconds


@dataclass(frozen=True, slots=True)
class StartLoss:
    """Mean negative log-likelihood per current label, in nats, over the same documents.

    Of the other run and of the model that starts from it on single sentences, and of the latter on the
    instances of its own view: both as the first update finds it. `sentences_blended`: on single sentences
    with all in force that is blended in over the first updates, where anything is (`train.blend`).
    """

    sentences_there: float
    sentences_here: float
    instances_here: float
    sentences_blended: float | None = None

    def render(self) -> str:
        """The figures for a person."""
        note = ""
        if self.sentences_blended is not None:
            note = f"; without blending, single sentences would cost {self.sentences_blended:.3f}"
        return (
            f"  development loss at the start, nats per token: single sentences {self.sentences_here:.3f} "
            f"({self.sentences_there:.3f} there), instances of this recipe {self.instances_here:.3f}{note}"
        )


def note_recovery(run: Path, blend_updates: int) -> str:
    """Write into `init.json` how the development loss went while something was blended in; says it, too.

    `recovery` there holds the update of the first validation, of the first one after blending, and of the
    first at which current sentences cost no more than single sentences cost the other run, each with its
    loss; null where there was none.

    Raises:
        CotextError: `init.json` is missing or damaged.
    """
    path = run / "init.json"
    account = read_account(path)
    before = account.get("loss", {}).get("sentences_there", math.inf)
    seen = list(_validated(run / "metrics.jsonl"))
    account["recovery"] = found = {
        "first": next(iter(seen), None),
        "blended": next((each for each in seen if each[0] >= blend_updates), None),
        "recovered": next((each for each in seen if each[1] <= before), None),
    }
    with replacing(path) as temporary:
        temporary.write_text(f"{sealed(account)}\n", encoding="utf-8")
    words = {
        "first": "first validation",
        "blended": f"blended in ({blend_updates:,} updates)",
        "recovered": f"no worse than the other run ({before:.3f})",
    }
    told = (
        f"{words[name]}: " + ("not yet" if each is None else f"{each[1]:.3f} at update {each[0]:,}")
        for name, each in found.items()
    )
    return f"development loss while blending: {'; '.join(told)}"


def _validated(path: Path) -> Iterator[tuple[int, float]]:
    """Updates and development losses of current sentences in a metrics log, damaged lines left out."""
    for line in sealed_lines(path):
        with suppress(ValueError, KeyError, TypeError):
            entry = unsealed(line)
            if entry["kind"] == "validation":
                yield int(entry["update"]), float(entry["nll_current"])


def start_loss(
    run: Path, model: Model, config: Config, dev: TokenStore, tokenizer: Tokenizer, device: torch.device
) -> StartLoss | None:
    """Measure a model that has just been filled from `run`; None where either is non-autoregressive.

    Raises:
        CotextError: the run cannot be loaded.
    """
    here, there = LoadedModel(model, config, tokenizer, []), load_run(run)
    if not (here.writes_left_to_right and there.writes_left_to_right):
        return None
    own, trained = (each.left_to_right("the loss at the start").to(device) for each in (here, there))
    documents: list[TokenDocument] = []
    count = 0
    while len(documents) < len(dev) and count < SAMPLE_SENTENCES:
        documents.append(dev[len(documents)])
        count += len(documents[-1].source)
    here_mode, blend = own.training, config.train.blend or ()

    documents_there = _as_there(documents, tokenizer, there)

    def measured(each: TranslationModel, settings: Config, view: View) -> float:
        if each is own:
            return _mean_nll(each, settings, documents, view, tokenizer, device)
        return _mean_nll(each, settings, documents_there, view, there.tokenizer, device)

    sentences = SentenceView()
    if "separators" in blend:  # which the other run has never seen, and does not answer for
        sep = there.tokenizer.sep
        trained.new_symbols.append(NewSymbols("separators", range(sep, sep + 1)))
        trained.blend(0.0, blend, everywhere=True)
    sentences_there = measured(trained, there.config, sentences)
    own.blend(blended(config.train, 0), blend, everywhere=True)
    sentences_here, instances_here = (
        measured(own, config, view) for view in (sentences, build_view(config.view))
    )
    own.blend(1.0, blend)
    sentences_blended = measured(own, config, sentences) if blend else None
    own.train(here_mode)
    return StartLoss(sentences_there, sentences_here, instances_here, sentences_blended)


def _as_there(
    documents: list[TokenDocument], tokenizer: Tokenizer, there: LoadedModel
) -> list[TokenDocument]:
    """The documents in the ids of the other run, where its tokenizer was trimmed for this one."""
    if not isinstance(tokenizer, TrimmedTokenizer) or there.tokenizer.fingerprint == tokenizer.fingerprint:
        return documents
    return [
        replace(
            document,
            source=[np.array(tokenizer.whole_ids(sentence), np.int32) for sentence in document.source],
            target=[np.array(tokenizer.whole_ids(sentence), np.int32) for sentence in document.target],
        )
        for document in documents
    ]


@torch.no_grad()
def _mean_nll(
    model: TranslationModel,
    config: Config,
    documents: list[TokenDocument],
    view: View,
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
