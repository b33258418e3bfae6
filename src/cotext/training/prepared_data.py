"""Training data of a run: opening a folder made by `cotext prepare`, and recording it in the run."""

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cotext.config.recipe import Config, TrainConfig
from cotext.data.batch import SpecialSymbols
from cotext.data.build import build_mixture, build_view, special_symbols
from cotext.data.documents import Languages, ParallelDocument
from cotext.data.prepared import REPORT, TRAIN, checked_digests, read_report
from cotext.data.sampling import Arrangement, Sampler
from cotext.data.store import TokenStore
from cotext.data.tokenizer import Tokenizer, chosen_languages, load_tokenizer
from cotext.data.views import Mixture, View
from cotext.models.run_folder import noted_data
from cotext.runtime import CotextError
from cotext.runtime.files import sealed, write_text


@dataclass(frozen=True)
class PreparedData:
    """An opened folder made by `cotext prepare`."""

    folder: Path
    tokenizer: Tokenizer
    train: TokenStore
    dev: TokenStore

    @property
    def files_read(self) -> list[str]:
        """The names of the files that training reads."""
        return [self.train.path.name, self.dev.path.name, "dev.jsonl"]

    @cached_property
    def report(self) -> dict[str, Any]:
        """The content of the report; raises the errors of `read_report`."""
        return read_report(self.folder)

    @property
    def languages(self) -> Languages:
        """The language pair; empty if it was not known when the data were prepared."""
        try:
            languages = self.report["languages"]
            return Languages(str(languages["source"]), str(languages["target"]))
        except (KeyError, TypeError):
            return Languages()

    @property
    def controlled(self) -> bool:
        """Whether this is the controlled corpus, or data distilled from it."""
        report = self.report
        while isinstance(before := report.get("prepared"), dict):
            report = before
        command = report.get("command")
        return isinstance(command, dict) and "controlled" in command

    @property
    def mean_sentence_tokens(self) -> int:
        """Mean sentence length over both sides of the training corpus, rounded (`model.shift: corpus`)."""
        totals = self.train.totals
        return round((totals.source_tokens + totals.target_tokens) / (2 * max(totals.sentences, 1)))

    def texts(self, index: int) -> ParallelDocument:
        document = self.train[index]
        source = tuple(self.tokenizer.decode(tokens.tolist(), "source") for tokens in document.source)
        target = tuple(self.tokenizer.decode(tokens.tolist(), "target") for tokens in document.target)
        return ParallelDocument(document.id, source, target)

    def most_sentences(self) -> int:
        """Return the number of sentences of the longest training document, without empty pairs; 1 or more."""
        lengths = map(self.train.lengths, range(len(self.train)))
        return max((int(np.count_nonzero(source + target)) for source, target in lengths), default=0) or 1


def open_data(folder: Path) -> PreparedData:
    """Open a prepared folder; raise CotextError if it is none, or has parts of different tokenizers."""
    if not (folder / TRAIN).is_file() or not (folder / REPORT).is_file():
        where = f"{folder}" if folder.is_dir() or not folder.exists() else "FOLDER"
        raise CotextError(
            f"{folder}: no prepared data there; make it with `cotext prepare ... --out {where}`"
        )
    tokenizer = load_tokenizer(folder / "tokenizer")
    train = TokenStore(folder / TRAIN)
    dev = TokenStore(folder / "dev.arrow")
    for store in (train, dev):
        store.require_tokenizer(tokenizer)
    return PreparedData(folder, tokenizer, train, dev)


def note_data(run: Path, data: PreparedData, checksums: dict[str, str]) -> None:
    """Write `data.json` to a run folder, which describes the training data."""
    totals = {"train": asdict(data.train.totals), "dev": asdict(data.dev.totals)}
    content = {
        "folder": str(data.folder.resolve()),
        **totals,
        "checksums": checksums,
        **({"controlled": True} if data.controlled else {}),
    }
    if noted_data(run) != content:
        write_text(run / "data.json", f"{sealed(content)}\n")


def other_languages(run: Path, data: PreparedData) -> str:
    """Return a message if the run to start from uses different language symbols, else an empty string."""
    there = chosen_languages(load_tokenizer(run / "tokenizer"))
    here = chosen_languages(data.tokenizer)
    if not there or there == here:
        return ""
    return (
        f"{data.folder}: the language symbols are {here or 'none'}, but those of {run} are {there}; the "
        "system will learn another language"
    )


@dataclass(frozen=True, slots=True)
class Corpus:
    """Training and development data of a run, with the views that split them."""

    train: TokenStore
    dev: TokenStore
    view: View  # of validation and translation
    mixture: Mixture  # of training
    symbols: SpecialSymbols
    unknown: int  # id of the unknown token, which replaces words in word dropout
    max_row_tokens: int
    checksums: dict[str, str]  # digests of the files, the tokenizer and the chosen languages
    adds_foreign: bool = False  # whether training batches have their sentences in foreign context too

    def sampler(self, train: TrainConfig, max_tokens: int, shard: int = 0, shards: int = 1) -> Sampler:
        """Return the sampler of the training batches of process `shard` out of `shards`."""
        arrangement = Arrangement(
            max_tokens,
            self.max_row_tokens,
            train.pool_tokens,
            train.seed,
            train.order,
            train.context,
            self.adds_foreign,
        )
        return Sampler(self.train, self.mixture, self.symbols, arrangement, shard, shards)


def corpus_of(config: Config, data: PreparedData) -> Corpus:
    """Return the corpus of a configuration; raise CotextError if a file differs from its digest."""
    checksums = {**checked_digests(data.folder, data.files_read), "tokenizer": data.tokenizer.fingerprint}
    if languages := chosen_languages(data.tokenizer):
        checksums["choice of languages"] = languages
    return Corpus(
        train=data.train,
        dev=data.dev,
        view=build_view(config.view),
        mixture=build_mixture(config.view),
        symbols=special_symbols(data.tokenizer, config.view),
        unknown=data.tokenizer.unk,
        max_row_tokens=config.view.max_tokens,
        checksums=checksums,
        adds_foreign=config.loss.foreign_weight > 0,
    )
