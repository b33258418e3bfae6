"""A training run on prepared data: `cotext train`.

The trainer knows nothing of translation: the function that scores the development set by BLEU is handed to
it here.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import sacrebleu
import torch

from cotext.config.recipe import Config
from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import read_parallel
from cotext.models.interface import Model
from cotext.runtime.devices import slow_precision
from cotext.runtime.locks import working_in
from cotext.training.callbacks import TrainingCallbacks
from cotext.training.prepared_data import PreparedData, note_data, other_languages
from cotext.training.resume import TrainingProgress, require_resumable
from cotext.training.run_folder import keep_shortlist, note_seeds, open_run
from cotext.training.setup import TrainingSetup, set_up
from cotext.training.start_loss import start_loss
from cotext.training.warm_start import WarmStart
from cotext.translation.translator import DocumentTranslator


def development_bleu(
    config: Config,
    data: PreparedData,
    device: torch.device,
    on_stage: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Callable[[Model], float]:
    """Return a function that translates the first development sentences greedily and computes s-BLEU.

    `on_stage` as in `TrainingCallbacks`.
    """
    documents = _first_sentences(data.folder / "dev.jsonl", config.train.validate_sentences)
    # Greedy and in one pass: the figure is for comparing checkpoints of one run, many times a run.
    alone = {"beam": 1, "nbest": 1, "schedule": "sequential", "first_pass": "", "shortlist": 0}
    decode = config.decode.model_copy(update=alone)
    fast = config.model_copy(update={"decode": decode})
    references = [sentence for d in documents for sentence in d.target]
    total = sum(map(len, documents))

    def score(model: Model) -> float:
        done = 0

        def on_sentences(count: int) -> None:
            nonlocal done
            done += count
            on_stage("translating the development set, sentences", done, total)

        translator = DocumentTranslator(model, fast, data.tokenizer, device)
        found = dict(translator.translate((Document(d.id, d.source) for d in documents), on_sentences))
        hypotheses = [sentence for i in range(len(documents)) for sentence in found[i].document.sentences]
        return float(sacrebleu.BLEU(force=True).corpus_score(hypotheses, [references]).score)

    return score


def _first_sentences(path: Path, count: int) -> list[ParallelDocument]:
    """Read the first sentences of a corpus in their documents; the last document may be cut."""
    documents: list[ParallelDocument] = []
    for document in read_parallel(path, None):
        kept = ParallelDocument(document.id, document.source[:count], document.target[:count])
        documents.append(kept)
        count -= len(kept)
        if count == 0:
            break
    return documents


def train(
    config: Config,
    data_folder: Path,
    run: Path,
    callbacks: TrainingCallbacks,
    recipe: str = "this recipe",
    device: str | None = None,
    seeds: Sequence[int] = (),
) -> TrainingProgress:
    """Train the configured system on a prepared folder; goes on where an earlier call was interrupted.

    `recipe` is what messages call the configuration; `device` as in `make_accelerator`. `seeds`: those among
    which the run is trained, if it is one of several.

    Raises:
        CotextError: settings that do not fit together, to the data or to this machine, before there is a run
            folder; another run in the folder; else as `Trainer.train`.
    """
    setup = set_up(config, data_folder, run, recipe, device)
    config, data, start, accelerator = setup.config, setup.data, setup.start, setup.accelerator
    with ExitStack() as stack:
        lock, shortlist = None, None
        if accelerator.is_main_process:
            shortlist = data.shortlist()
            lock = stack.enter_context(working_in(run))
            require_resumable(run, setup.corpus.checksums)
        bleu = None
        if config.train.validate_bleu:
            bleu = development_bleu(config, data, accelerator.device, callbacks.on_stage)
        trainer = setup.trainer(run, callbacks, bleu, lock)
        # From here on the run is written to: whatever can be refused has been.
        if accelerator.is_main_process:
            _tell_slow_precision(config, accelerator.device, callbacks)
            open_run(run, config, data.tokenizer)
            if shortlist is not None:
                keep_shortlist(run, shortlist)
            note_data(run, data, setup.corpus.checksums)
            if seeds:
                note_seeds(run, seeds)
            if start is not None:
                _note_start(setup, start, run, callbacks)
        accelerator.wait_for_everyone()
        # Dropout must differ between processes, the initial weights must not.
        torch.manual_seed(config.train.seed + 1000 * accelerator.process_index)
        progress = trainer.train()
        return progress


def _note_start(setup: TrainingSetup, start: WarmStart, run: Path, callbacks: TrainingCallbacks) -> None:
    """Say, and write into the run, what training starts from, and what that costs."""
    config, data = setup.config, setup.data
    callbacks.on_message(start.render())
    if message := other_languages(start.run, data):
        callbacks.on_message(message)
    measured = None
    if not config.train.shard_model:  # of which this process has a part
        device = setup.accelerator.device
        measured = start_loss(start.run, setup.model, config, data.dev, data.tokenizer, device)
    start.write(run / "init.json", {} if measured is None else asdict(measured))
    if measured is not None:
        callbacks.on_message(measured.render())


def _tell_slow_precision(config: Config, device: torch.device, callbacks: TrainingCallbacks) -> None:
    if config.train.precision == "bf16" and (slow := slow_precision("train.precision = bf16", device)):
        callbacks.on_message(slow)
