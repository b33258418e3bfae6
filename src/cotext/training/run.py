"""A training run from a prepared data folder: what `cotext train` does.

Puts stores, view, model, loss and trainer together; translation of the development set for BLEU comes in
here, because trainer and translate do not know each other.
"""

import os
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator

from cotext.config.recipe import Config, differences, dump_config, parse_config
from cotext.data.build import build_mixture, build_view, special_symbols
from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import read_parallel
from cotext.data.languages import Languages, check_pair
from cotext.data.prepared import REPORT, checked_digests, read_report
from cotext.data.store import TokenStore
from cotext.data.tokenizer import Tokenizer, load_tokenizer
from cotext.decoding.translator import DocumentTranslator
from cotext.losses.build import build_loss
from cotext.metrics.bleu import evaluate
from cotext.models.build import build_model
from cotext.models.interface import Model
from cotext.models.parameters import parameters_asked, parameters_at_most
from cotext.models.run_folder import checkpoints, describe_file, model_file, noted_data
from cotext.runtime.devices import choose_threads
from cotext.runtime.errors import CotextError
from cotext.runtime.files import replacing
from cotext.runtime.integrity import sealed
from cotext.runtime.locks import NAME, Lock, working_in
from cotext.runtime.reading import parse_yaml, read_text
from cotext.training.resume import Progress, require_resumable
from cotext.training.start_loss import start_loss
from cotext.training.trainer import Corpus, Reports, Trainer, make_accelerator
from cotext.training.warm_start import WarmStart, read_new, start_from

READ = ("train.arrow", "dev.arrow", "dev.jsonl")  # what training reads of a prepared folder
REQUIRED = "required"  # `train.init` of a recipe that cannot start from fresh weights

# Keys that may change between an interruption and its continuation: they say how long and how loudly.
MAY_CHANGE = (
    "paper",
    "languages",
    "train.max_updates",
    "train.patience",
    "train.log_every",
    "train.threads",
    "train.average",
    "train.average_by",
    "train.keep",
)


@dataclass(frozen=True)
class Data:
    """A folder that `cotext prepare` made, opened."""

    folder: Path
    tokenizer: Tokenizer
    train: TokenStore
    dev: TokenStore

    @cached_property
    def report(self) -> dict[str, Any]:
        """What its report says; raises CotextError as `read_report`."""
        return read_report(self.folder)

    @property
    def languages(self) -> Languages:
        """What its report says of them; unknown in data prepared without."""
        try:
            languages = self.report["languages"]
            return Languages(str(languages["source"]), str(languages["target"]))
        except (KeyError, TypeError):
            return Languages()

    @property
    def usual_source_tokens(self) -> int:
        """What 99 in 100 source sentences of the training corpus have at most; 0 without a report."""
        try:
            splits = self.report["splits"]
            return int(splits["train"]["sentence_tokens"]["source"]["percentiles"]["99"])
        except (ValueError, KeyError, TypeError):
            return 0

    @property
    def mean_sentence_tokens(self) -> int:
        """Mean sentence length over both sides of the training corpus, rounded: the shift `corpus`."""
        totals = self.train.totals
        return round((totals.source_tokens + totals.target_tokens) / (2 * max(totals.sentences, 1)))

    def most_sentences(self) -> int:
        """Sentences of the longest training document, pairs without a token left out; at least 1."""
        lengths = map(self.train.lengths, range(len(self.train)))
        return max((int(np.count_nonzero(source + target)) for source, target in lengths), default=0) or 1


def open_data(folder: Path) -> Data:
    """Open a prepared folder.

    Raises:
        CotextError: not such a folder, or parts of it made with another tokenizer.
    """
    if not (folder / "train.arrow").is_file() or not (folder / REPORT).is_file():
        raise CotextError(
            f"{folder}: no prepared data there; make it with `cotext prepare ... --out {folder}`"
        )
    tokenizer = load_tokenizer(folder / "tokenizer")
    train, dev = TokenStore(folder / "train.arrow"), TokenStore(folder / "dev.arrow")
    for store in (train, dev):
        store.require_tokenizer(tokenizer)
    return Data(folder, tokenizer, train, dev)


def corpus_of(config: Config, data: Data) -> Corpus:
    """What a configuration trains and validates on, of prepared data.

    Raises:
        CotextError: a file is not what the report of the prepared folder says.
    """
    return Corpus(
        train=data.train,
        dev=data.dev,
        view=build_view(config.view),
        mixture=build_mixture(config.view),
        symbols=special_symbols(data.tokenizer, config.view),
        unknown=data.tokenizer.unk,
        max_row_tokens=config.view.max_tokens,
        checksums={**checked_digests(data.folder, READ), "tokenizer": data.tokenizer.fingerprint},
    )


def note_data(run: Path, data: Data, checksums: dict[str, str]) -> None:
    """Write into a run folder which data it is trained on: `data.json`."""
    totals = {"train": asdict(data.train.totals), "dev": asdict(data.dev.totals)}
    content = {
        "folder": str(data.folder.resolve()),
        **totals,
        "checksums": checksums,
        "usual_source_tokens": data.usual_source_tokens,
    }
    if noted_data(run) != content:
        with replacing(run / "data.json") as temporary:
            temporary.write_text(f"{sealed(content)}\n", encoding="utf-8")


def data_of(run: Path, folder: Path | None) -> Data:
    """Open the data that a run was trained on: `folder`, or if None the one noted in `data.json`.

    Raises:
        CotextError: nothing noted or no longer there, or data of another tokenizer than the run's.
    """
    tokenizer = load_tokenizer(run / "tokenizer")
    data = open_data(folder or _noted_folder(run))
    if data.tokenizer.fingerprint != tokenizer.fingerprint:
        raise CotextError(
            f"{data.folder}: prepared with another tokenizer than that of {run}; give --data FOLDER, the "
            "data that it was trained on"
        )
    return data


def _noted_folder(run: Path) -> Path:
    try:
        folder = Path(noted_data(run)["folder"])
    except KeyError:
        raise CotextError(
            f"{run}: does not say which data it was trained on (data.json is missing or damaged); give "
            "--data FOLDER"
        ) from None
    if not (folder / "train.arrow").is_file():
        raise CotextError(
            f"{folder}: the data that {run} was trained on is no longer there; give --data FOLDER"
        )
    return folder


def resolve(config: Config, data: Data) -> Config:
    """Replace what depends on the corpus: languages, shift `corpus`, and numbers that no sentence has.

    Raises:
        CotextError: the configuration tells other languages than the data.
    """
    view, model = config.view, config.model
    told = Languages.parse(config.languages)
    check_pair(data.languages, told, "the configuration (languages)", f"{data.folder} is")
    if model.positions == "shifted" and model.shift == "corpus":
        model = model.model_copy(update={"shift": data.mean_sentence_tokens})
    if view.separators == "numbered":
        most = data.most_sentences()
        numbers = most if view.numbers == "corpus" else min(view.numbers, most)
        view = view.model_copy(update={"numbers": numbers})
    languages = config.languages or str(data.languages)
    return config.model_copy(update={"view": view, "model": model, "languages": languages})


def settle_start(config: Config, run: Path, recipe: str) -> Config:
    """Settle `train.init`: to go on with a run that is there already, it need not be given again.

    Raises:
        CotextError: the recipe needs a run to start from, and none is named.
    """
    init, path = config.train.init, run / "config.yaml"
    if path.is_file():
        before = _written_config(path).train.init
        if init in ("", REQUIRED) or (before and Path(init).resolve() == Path(before).resolve()):
            init = before
    if init == REQUIRED:
        raise CotextError(f"{recipe} starts from a trained model: give --init RUN")
    return config.model_copy(update={"train": config.train.model_copy(update={"init": init})})


def settle_first_sentence(config: Config, run: Path) -> Config:
    """Settle `model.from_first`: weights that know no shift and no segments keep first sentences as they are.

    Raises:
        CotextError: the run that training starts from cannot be read.
    """
    model, init, path = config.model, config.train.init, run / "config.yaml"
    if not init or model.from_first is not None:
        return config
    if path.is_file():
        from_first = _written_config(path).model.from_first
    elif model.positions == "shifted" or model.segments == "sinusoidal":
        there = describe_file(model_file(Path(init))).config.model
        known = (there.positions, there.segments) == (model.positions, model.segments)
        from_first = there.from_first if known else False
    else:
        return config
    return config.model_copy(update={"model": model.model_copy(update={"from_first": from_first})})


def open_run(run: Path, config: Config, tokenizer: Tokenizer) -> None:
    """Begin a run in a folder, or check that the run in it is the same.

    Raises:
        CotextError: the folder holds another run, or something else, or cannot be written.
    """
    path = run / "config.yaml"
    try:
        if path.exists():
            _require_same(_written_config(path), config, run)
        elif any(not entry.name.startswith((".config.yaml", NAME)) for entry in run.iterdir()):
            raise CotextError(f"{run}: the folder is not empty and holds no run; choose another --out")
        # The configuration comes first: what it stands beside is a run, however early it was cut short.
        with replacing(path) as temporary:
            temporary.write_text(dump_config(config), encoding="utf-8")
        _keep_tokenizer(run, tokenizer)
    except OSError as error:
        raise CotextError(f"{run}: cannot be written: {error.strerror or error}") from None


def _written_config(path: Path) -> Config:
    return parse_config(parse_yaml(read_text(path), str(path)), str(path))


def _keep_tokenizer(run: Path, tokenizer: Tokenizer) -> None:
    """Copy the tokenizer into the run, or check that the copy there is the same."""
    folder = run / "tokenizer"
    if not (run / "checkpoints").exists():
        tokenizer.save(folder)
    elif load_tokenizer(folder).fingerprint != tokenizer.fingerprint:
        raise CotextError(
            f"{folder}: another tokenizer than that of the data; give the data that the run was trained on, "
            "or choose another --out"
        )


def _require_same(before: Config, now: Config, run: Path) -> None:
    changed = [entry for entry in differences(before, now) if entry[0] not in MAY_CHANGE]
    if changed:
        lines = (
            f"  {key}: {'nothing' if there == '' else there} there, {asked} asked for"
            for key, there, asked in changed
        )
        raise CotextError(
            f"{run}: holds a run with another configuration; choose another --out, or give the same settings "
            "to go on with it:\n" + "\n".join(lines)
        )


def development_bleu(
    config: Config,
    data: Data,
    device: torch.device,
    on_stage: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Callable[[Model], float]:
    """A function that translates the first development documents greedily and returns sentence BLEU.

    `on_stage` as in `Reports`.
    """
    documents: list[ParallelDocument] = []
    for document in read_parallel(data.folder / "dev.jsonl", None):
        if len(documents) == config.train.validate_documents:
            break
        documents.append(document)
    # Greedy and in one pass: the figure is for comparing checkpoints of one run, many times a run.
    alone = {"beam": 1, "schedule": "sequential", "first_pass": ""}
    decode = config.decode.model_copy(update=alone)
    fast = config.model_copy(update={"decode": decode})
    references = [Document(d.id, d.target) for d in documents]
    total = sum(map(len, documents))

    def score(model: Model) -> float:
        done = 0

        def on_sentences(count: int) -> None:
            nonlocal done
            done += count
            on_stage("translating the development set, sentences", done, total)

        translator = DocumentTranslator(model, fast, data.tokenizer, device)
        found = dict(translator.translate((Document(d.id, d.source) for d in documents), on_sentences))
        hypotheses = [found[i].document for i in range(len(documents))]
        return float(evaluate(hypotheses, references, ("s-bleu",))[0].value)

    return score


def _require_memory(config: Config, vocabulary: int) -> None:
    """Refuse a model whose weights alone are more than this machine has memory for.

    Raises:
        CotextError: they are.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if 4 * parameters_at_most(config, vocabulary) <= memory:
        return
    weights = 4 * parameters_asked(config, vocabulary)
    if weights > memory:
        raise CotextError(
            f"the model asked for has {weights // 4:,} parameters, {weights / 2**30:,.0f} GiB, and this "
            f"machine has {memory / 2**30:,.0f} GiB of memory; ask for fewer layers or a smaller "
            "model.dimension"
        )


@dataclass(frozen=True, slots=True)
class Setup:
    """What a training needs, ready and checked, with nothing written: see `set_up`."""

    config: Config
    data: Data
    corpus: Corpus
    model: Model
    accelerator: Accelerator
    start: WarmStart | None
    fresh: Collection[str]

    def trainer(
        self,
        run: Path,
        reports: Reports,
        score_development: Callable[[Model], float] | None = None,
        lock: Lock | None = None,
    ) -> Trainer:
        """The trainer of a run; raises CotextError where nothing of the data could be trained on."""
        trainer = Trainer(
            self.config,
            self.model,
            build_loss(self.config.loss),
            self.corpus,
            run,
            reports,
            score_development=score_development,
            accelerator=self.accelerator,
            fresh=self.fresh,
            lock=lock,
        )
        trainer.require_batches()
        return trainer


def set_up(config: Config, data_folder: Path, run: Path, recipe: str, device: str | None) -> Setup:
    """Open the data, settle the configuration and build the model, as for `train`.

    Raises:
        CotextError: settings that do not fit together, to the data or to this machine.
    """
    data = open_data(data_folder)
    config = settle_first_sentence(settle_start(resolve(config, data), run, recipe), run)
    _require_memory(config, data.tokenizer.vocabulary_size)
    torch.manual_seed(config.train.seed)
    model = build_model(config, data.tokenizer.vocabulary_size)
    accelerator = make_accelerator(config.train, model.spares_parameters, device)
    threads = choose_threads(config.model.dimension, config.train.threads)
    if not config.train.threads:
        threads = max(1, threads // accelerator.num_processes)  # which share the cores
    torch.set_num_threads(threads)
    start, new = None, []
    if config.train.init and not checkpoints(run):
        start = start_from(Path(config.train.init), model, config, data.tokenizer)
        new = start.inheritance.new
    elif config.train.init and config.train.fresh_rate != 1:
        new = read_new(run / "init.json")
    return Setup(config, data, corpus_of(config, data), model, accelerator, start, new)


def train(
    config: Config,
    data_folder: Path,
    run: Path,
    reports: Reports,
    recipe: str = "this recipe",
    device: str | None = None,
) -> Progress:
    """Train the configured system on a prepared folder; goes on where an earlier call was interrupted.

    `recipe` is what messages call the configuration; `device` as in `make_accelerator`.

    Raises:
        CotextError: settings that do not fit together, to the data or to this machine, before there is a run
            folder; another run in the folder; else as `Trainer.train`.
    """
    setup = set_up(config, data_folder, run, recipe, device)
    config, data, start, accelerator = setup.config, setup.data, setup.start, setup.accelerator
    with ExitStack() as stack:
        lock = None
        if accelerator.is_main_process:
            lock = stack.enter_context(working_in(run))
            require_resumable(run, setup.corpus.checksums)
        bleu = None
        if config.train.validate_bleu:
            bleu = development_bleu(config, data, accelerator.device, reports.on_stage)
        trainer = setup.trainer(run, reports, bleu, lock)
        # From here on the run is written to: whatever can be refused has been.
        if accelerator.is_main_process:
            open_run(run, config, data.tokenizer)
            note_data(run, data, setup.corpus.checksums)
            if start is not None:
                start.write(run / "init.json")
                reports.on_message(start.render())
                measured = start_loss(
                    start.run, setup.model, config, data.dev, data.tokenizer, accelerator.device
                )
                if measured is not None:
                    reports.on_message(measured.render())
        accelerator.wait_for_everyone()
        # Dropout must differ between processes, the initial weights must not.
        torch.manual_seed(config.train.seed + 1000 * accelerator.process_index)
        return trainer.train()
