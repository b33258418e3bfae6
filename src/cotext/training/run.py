"""Training on prepared data: `cotext train`, with one seed or several.

The trainer does not import translation. It receives the function that computes BLEU on the development set
from here.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import asdict, replace
from pathlib import Path

import sacrebleu
import torch

from cotext.config.recipe import Config, differences
from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import read_parallel
from cotext.data.tokenizer import Tokenizer
from cotext.models.interface import Model
from cotext.models.run_folder import SEEDS, is_int8, noted_seeds, seed_folder, seeds_in, write_config
from cotext.runtime.devices import slow_precision
from cotext.runtime.errors import CotextError
from cotext.runtime.files import is_first_process, write_text
from cotext.runtime.integrity import sealed
from cotext.runtime.locks import NAME, require_free, working_in
from cotext.training.prepared_data import PreparedData, corpus_of, note_data, open_data, other_languages
from cotext.training.resume import TrainingProgress, require_resumable
from cotext.training.setup import TrainingSetup, set_up
from cotext.training.start_settings import settle, written_config
from cotext.training.trainer import TrainingCallbacks
from cotext.training.warm_start import WarmStart, start_loss
from cotext.translation.translator import DocumentTranslator

# Keys that may change when training resumes: limits, output, and settings that do not change the result.
MAY_CHANGE = (
    "paper",
    "languages",
    "train.max_updates",
    "train.max_epochs",
    "train.max_cpu_minutes",
    "train.patience",
    "train.log_every",
    "train.threads",
    "train.shard_model",
    "train.checkpoint_activations",
    "train.average",
    "train.average_by",
    "train.keep",
)


def open_run(run: Path, config: Config, tokenizer: Tokenizer) -> None:
    """Create a run in a folder; raise CotextError if it contains another run or other files."""
    try:
        require_own(run, config)
        # The configuration is written first, because its presence identifies the folder as a run.
        write_config(run, config)
        if not (run / "checkpoints").exists():
            tokenizer.save(run / "tokenizer")
    except OSError as error:
        raise CotextError(f"{run}: cannot be written: {error.strerror or error}") from None


def require_own(run: Path, config: Config) -> None:
    """Raise CotextError if an existing folder contains another run or other files."""
    path = run / "config.yaml"
    if path.exists():
        if is_int8(run / "model.safetensors"):
            raise CotextError(
                f"{run}: is a run in int8, which translates and scores, and is not trained; choose another "
                "--out, or go on with the run that it was exported from"
            )
        changed = [e for e in differences(written_config(path), config) if e[0] not in MAY_CHANGE]
        if changed:
            lines = (
                f"  {key}: {'nothing' if there == '' else there} there, {here} asked for"
                for key, there, here in changed
            )
            raise CotextError(
                f"{run}: contains a run with another configuration; choose another --out, or the same "
                "settings to go on with it:\n" + "\n".join(lines)
            )
    elif any(not entry.name.startswith((".config.yaml", NAME)) for entry in run.iterdir()):
        raise CotextError(f"{run}: the folder is not empty and contains no run; choose another --out")


def development_bleu(
    config: Config,
    data: PreparedData,
    device: torch.device,
    on_stage: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Callable[[Model], float]:
    """Return a function that translates the first development sentences greedily and computes s-BLEU.

    For `on_stage`, see `TrainingCallbacks`.
    """
    documents = _first_sentences(data.folder / "dev.jsonl", config.train.validate_sentences)
    # Search is greedy and in one pass: BLEU only compares checkpoints of one run, and is computed often.
    greedy = {
        "beam": 1,
        "nbest": 1,
        "sampling": None,
        "schedule": "sequential",
        "first_pass": "",
        "language_model": "",
        "shortlist": 0,
    }
    fast = config.model_copy(update={"decode": config.decode.model_copy(update=greedy)})
    references = [sentence for d in documents for sentence in d.target]
    total = sum(map(len, documents))

    def score(model: Model) -> float:
        done = 0

        def on_sentences(count: int) -> None:
            nonlocal done
            done += count
            on_stage("translating the development set, sentences", done, total)

        translator = DocumentTranslator(model, fast, data.tokenizer, device)
        results = dict(translator.translate((Document(d.id, d.source) for d in documents), on_sentences))
        hypotheses = [sentence for i in range(len(documents)) for sentence in results[i].document.sentences]
        return float(sacrebleu.BLEU(force=True).corpus_score(hypotheses, [references]).score)

    return score


def _first_sentences(path: Path, count: int) -> list[ParallelDocument]:
    """Read the first `count` sentences of a corpus in their documents; the last document may be cut."""
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
    """Train the configured system on a prepared folder; resume where an earlier call was interrupted.

    `recipe` is the name of the configuration in messages. For `device`, see `make_accelerator`. `seeds`: the
    seeds of all runs that are trained together, if there are several. Raises CotextError if settings
    contradict each other, the data or this machine (before the run folder is created), or the folder contains
    another run; also the errors of `Trainer.train`.
    """
    setup = set_up(config, data_folder, run, recipe, device)
    config, data, start, accelerator = setup.config, setup.data, setup.start, setup.accelerator
    with ExitStack() as stack:
        lock = None
        if accelerator.is_main_process:
            lock = stack.enter_context(working_in(run))
            require_resumable(run, setup.corpus.checksums)
        if config.train.validate_bleu and config.model.reads_source:
            bleu = development_bleu(config, data, accelerator.device, callbacks.on_stage)
            callbacks = replace(callbacks, score_development=bleu)
        trainer = setup.trainer(run, callbacks, lock)
        # All checks are done; from here on the run folder is written.
        if accelerator.is_main_process:
            is_bf16 = config.train.precision == "bf16"
            if is_bf16 and (slow := slow_precision("train.precision = bf16", accelerator.device)):
                callbacks.on_message(slow)
            open_run(run, config, data.tokenizer)
            note_data(run, data, setup.corpus.checksums)
            if seeds and noted_seeds(run) != list(seeds):
                write_text(run / SEEDS, f"{sealed({'seeds': list(seeds)})}\n")
            if start is not None:
                _note_start(setup, start, run, callbacks)
        accelerator.wait_for_everyone()
        # Dropout must differ between processes; the initial weights, made before this, must not.
        torch.manual_seed(config.train.seed + 1000 * accelerator.process_index)
        return trainer.train()


def _note_start(setup: TrainingSetup, start: WarmStart, run: Path, callbacks: TrainingCallbacks) -> None:
    """Report and record the run that training starts from, and the initial losses."""
    config, data = setup.config, setup.data
    callbacks.on_message(start.render())
    if message := other_languages(start.run, data):
        callbacks.on_message(message)
    measured = None
    if not config.train.shard_model:  # this process has only a part of a sharded model
        device = setup.accelerator.device
        measured = start_loss(start.run, setup.model, config, data.dev, data.tokenizer, device)
    start.write(run / "init.json", {} if measured is None else asdict(measured))
    if measured is not None:
        callbacks.on_message(measured.render())


# --- Runs that differ only in their seed, each equal bit for bit to a run trained separately.


def train_seeds(
    configs: Mapping[int, Config],
    data_folder: Path,
    folder: Path,
    watched: Callable[[int], AbstractContextManager[TrainingCallbacks]],
    recipe: str = "this recipe",
    device: str | None = None,
) -> dict[int, TrainingProgress]:
    """Train a run for each seed, one after the other; resume where an earlier call was interrupted.

    `configs` contains the configuration of every seed. `watched` returns the callbacks for the training of a
    seed. Returns the progress of each run. If a run is stopped by a signal, later runs are not begun.
    Raises the errors of `train`; problems with the folder of a seed, before the first training.
    """
    # In distributed training, only the first process checks: it may begin to write before the others check.
    if is_first_process():
        require_seeds(configs, data_folder, folder, recipe)
    progress: dict[int, TrainingProgress] = {}
    was_there = folder.exists()
    try:
        for seed, config in configs.items():
            run = seed_folder(folder, seed)
            with watched(seed) as callbacks:
                progress[seed] = train(config, data_folder, run, callbacks, recipe, device, list(configs))
            if not progress[seed].finished:
                break
    except CotextError:
        if not was_there:
            with suppress(OSError):  # not empty: a run was begun
                folder.rmdir()
        raise
    return progress


def require_seeds(configs: Mapping[int, Config], data_folder: Path, folder: Path, recipe: str) -> None:
    """Raise CotextError unless the folder is new, or contains the same runs, undamaged and unused."""
    data = open_data(data_folder)
    if not folder.exists():
        return
    if not folder.is_dir():
        raise CotextError(f"{folder}: is a file; choose another --out")
    if (folder / "config.yaml").exists():
        raise CotextError(
            f"{folder}: contains a run; choose another --out for the runs of several seeds, or remove "
            "--seeds to continue that run"
        )
    if not seeds_in(folder) and any(folder.iterdir()):
        raise CotextError(f"{folder}: the folder is not empty and contains no runs; choose another --out")
    for seed, config in configs.items():
        run = seed_folder(folder, seed)
        if run.exists():
            try:
                settled = settle(config, data, run, recipe)
                require_own(run, settled)
                require_free(run / NAME, str(run))
                require_resumable(run, corpus_of(settled, data).checksums)
            except OSError as error:
                raise CotextError(f"{run}: cannot be read: {error.strerror or error}") from None
