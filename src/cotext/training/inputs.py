"""What training starts from: prepared data, and settings that depend on them or on another run."""

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cotext.config.recipe import Blended, Config, TrainConfig, parse_config
from cotext.data.batch import SpecialSymbols
from cotext.data.documents import Languages, check_pair
from cotext.data.prepared import REPORT, TRAIN, checked_digests, read_report
from cotext.data.sampling import Arrangement, Sampler
from cotext.data.store import TokenStore
from cotext.data.tokenizer import Tokenizer, chosen_languages, load_tokenizer
from cotext.data.views import Mixture, View
from cotext.models.build_views import (
    build_mixture,
    build_view,
    further_symbols,
    has_multi_sentence_rows,
    has_multi_sentence_targets,
    has_separators,
    special_symbols,
)
from cotext.models.checks import keeps_current
from cotext.models.run_folder import IMPORT, Description, describe_file, model_file, noted_data
from cotext.runtime import CotextError, parse_yaml, read_text
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

    def most_sentences(self) -> int:
        """Return the number of sentences of the longest training document, without empty pairs; 1 or more."""
        lengths = map(self.train.lengths, range(len(self.train)))
        return max((int(np.count_nonzero(source + target)) for source, target in lengths), default=0) or 1


def open_data(folder: Path) -> PreparedData:
    """Open a prepared folder; raise CotextError if it is not prepared, or a file has another tokenizer."""
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
    """Write `data.json`, a description of the training data, to a run folder."""
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
    """Return a message if the run to start from has other language symbols than the data; otherwise ""."""
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
    adds_foreign: bool = False  # whether batches repeat sentences in context of other documents

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


# --- Settings that depend on the data, or on the run from which training starts (`train.init`).
#
# Training from an imported model uses its architecture, and new parts start without effect
# (`model.neutral_start`). This also holds for runs that descend from an import. When training resumes, these
# settings are read from the run folder.


# Keys of `model` that belong to the weights: with other values, the same weights compute another function.
ARCHITECTURE = (
    *("dimension", "feed_forward", "heads", "encoder_layers", "decoder_layers", "pre_norm", "activation"),
    *("position_encoding", "learned_positions", "wavelengths", "first_position"),
    *("embedding_norm", "separate_embeddings", "output_bias"),
)
OF_DECODER = {"decoder_layers", "output_bias"}
# Scores that depend on positions, so that no positions need to be added to the input.
IN_PLACE_OF_POSITIONS = ("rotary", "alibi")
# Keys that are None until they are derived from the run to start from.
DERIVED = (
    ("model", "neutral_start"),
    ("model", "from_first"),
    ("view", "open_source"),
    ("train", "blend"),
    ("train", "blend_updates"),
)


def settle_by_start(config: Config, run: Path) -> Config:
    """Complete the settings of architecture, neutral start and blending, for a run in the folder `run`.

    Blending mixes a new part in gradually (`train.blend`). Raises CotextError if the run to start from cannot
    be read, or `train.blend` names parts that are not new.
    """
    if not config.train.init:
        return config
    path = run / "config.yaml"
    if path.is_file():
        return _as_before(config, written_config(path))
    init = Path(config.train.init)
    there, imported = describe_file(model_file(init)), (init / IMPORT).is_file()
    config = _with_architecture(config, there.config, imported)
    config = _with_neutral_start(config, there.config, imported)
    return _with_first_sentence(_with_blending(config, there), there.config)


def _as_before(config: Config, before: Config) -> Config:
    if config.train.init_architecture == "auto":
        config = _laid_over(config, "train", init_architecture=before.train.init_architecture)
    if config.train.init_architecture == "run":
        config = _laid_over(config, "model", **architecture(config, before))
    for section, key in DERIVED:
        if getattr(getattr(config, section), key) is None:
            config = _laid_over(config, section, **{key: getattr(getattr(before, section), key)})
    if config.model.neutral_start and before.model.attention.others == "gated":
        config = _with_gated_others(config)
    return config


def _with_architecture(config: Config, there: Config, imported: bool) -> Config:
    kind = config.train.init_architecture
    if kind == "auto" and (imported or there.train.init_architecture == "run"):
        kind = "run"
    if kind != "run":
        return config
    config = _laid_over(config, "train", init_architecture=kind)
    return _laid_over(config, "model", **architecture(config, there))


def architecture(config: Config, there: Config) -> dict[str, Any]:
    """Return the keys of `model` that belong to the weights taken from another run."""
    left_out = OF_DECODER if config.train.init_parts == "encoder" else set()
    return {key: getattr(there.model, key) for key in ARCHITECTURE if key not in left_out}


def _with_neutral_start(config: Config, there: Config, imported: bool) -> Config:
    if config.model.neutral_start is None and (imported or there.model.neutral_start):
        config = _laid_over(config, "model", neutral_start=True)
    known = there.view.bracketed and there.view.open_source is not False
    separate = not has_multi_sentence_rows(there.view) or there.model.attention.others == "gated"
    if config.model.neutral_start and has_multi_sentence_rows(config.view) and separate:
        config = _with_gated_others(config)
    if config.model.neutral_start and config.view.open_source is None and config.view.bracketed and not known:
        config = _laid_over(config, "view", open_source=False)
    return config


def _with_gated_others(config: Config) -> Config:
    """Set separators, positions and attention so that each sentence of a sequence is encoded separately.

    Every sentence has the begin and end symbols of a sentence model, and its own positions. Attention to
    other sentences passes gates that start closed.
    """
    model, view = config.model, config.view
    if not view.bracketed:
        config = _laid_over(config, "view", separators="bracket")
    settled: dict[str, Any] = {"attention": model.attention.model_copy(update={"others": "gated"})}
    alone = {"decoder": not has_multi_sentence_targets(view), "cross": keeps_current(model)}
    settled |= {
        side: getattr(model, side).model_copy(update={"others": "joint"})
        for side, is_alone in alone.items()
        if is_alone
    }
    settled |= {
        key: "reset" for key in ("positions", "target_positions") if getattr(model, key) == "absolute"
    }
    return _laid_over(config, "model", **settled)


def _with_blending(config: Config, there: Description) -> Config:
    new = replacements(there, config)
    requested = config.train.blend
    if unchanged := [kind for kind in requested or () if kind not in new]:
        raise CotextError(
            f"train.blend = {unchanged[0]}: this is not new: {config.train.init} has it, too; remove it"
            + (f", or choose from {', '.join(new)}" if new else "")
        )
    if requested is None and config.model.neutral_start and new:
        config = _laid_over(config, "train", blend=tuple(new))
    if config.train.blend and config.train.blend_updates is None:
        config = _laid_over(config, "train", blend_updates=config.train.warmup_updates)
    return config


def replacements(there: Description, here: Config) -> list[Blended]:
    """Return the parts that are new, compared with another model, and cannot start without effect."""
    train = there.config.train
    # Weights of update 0 do not use blended parts yet.
    absent = train.blend or () if there.updates == [0] and train.blended(0) < 1 else ()
    known = [kind for kind in _replacing(there.config) if kind not in absent]
    return [kind for kind in _replacing(here) if kind not in known]


def _replacing(config: Config) -> list[Blended]:
    model, parts = config.model, list[Blended]()
    kinds = {model.positions, model.target_positions or model.positions}
    sinusoidal = "sinusoidal" in (model.segments, model.target_segments)
    if "none" in kinds or (has_multi_sentence_rows(config.view) and ("shifted" in kinds or sinusoidal)):
        parts.append("positions")
    if any(model.stack(side).score in IN_PLACE_OF_POSITIONS for side in ("encoder", "decoder", "cross")):
        parts.append("score")
    if model.batch_context == "mean":
        parts.append("mean")
    if has_separators(config.view):
        parts.append("separators")
    if further_symbols(config.view):
        parts.append("symbols")
    return parts


def _with_first_sentence(config: Config, there: Config) -> Config:
    """Set `model.from_first`, so that first sentences are encoded as in a run without shift and segments."""
    model = config.model
    if model.from_first is None and (model.positions == "shifted" or model.segments == "sinusoidal"):
        known = (there.model.positions, there.model.segments) == (model.positions, model.segments)
        return _laid_over(config, "model", from_first=there.model.from_first if known else False)
    return config


def _laid_over(config: Config, section: str, **values: Any) -> Config:
    changed = getattr(config, section).model_copy(update=values)
    return config.model_copy(update={section: changed})


def written_config(path: Path) -> Config:
    """Read the file `config.yaml` of a run; raises the errors of `parse_config`."""
    return parse_config(parse_yaml(read_text(path), str(path)), str(path))


REQUIRED = "required"  # `train.init` of a recipe that cannot start from fresh weights


def resolve(config: Config, data: PreparedData) -> Config:
    """Set the values that depend on the corpus: languages, `model.shift`, and `view.numbers`.

    Raises CotextError if the languages of the configuration and of the data differ.
    """
    view, model = config.view, config.model
    configured = Languages.parse(config.languages)
    check_pair(data.languages, configured, "the configuration (languages)", f"{data.folder} is")
    if model.positions == "shifted" and model.shift == "corpus":
        model = model.model_copy(update={"shift": data.mean_sentence_tokens})
    if view.separators == "numbered":
        most = data.most_sentences()
        numbers = most if view.numbers == "corpus" else min(view.numbers, most)
        view = view.model_copy(update={"numbers": numbers})
    languages = config.languages or str(data.languages)
    return config.model_copy(update={"view": view, "model": model, "languages": languages})


def settle(config: Config, data: PreparedData, run: Path, recipe: str) -> Config:
    """Complete a configuration, given the data, the run to start from, and the run folder.

    `train.init` need not be given again to resume an existing run. Raises CotextError if the recipe requires
    a run to start from, and none is given; also the errors of `resolve` and `settle_by_start`.
    """
    init, path = config.train.init, run / "config.yaml"
    if path.is_file():
        before = written_config(path).train.init
        if init in ("", REQUIRED) or (before and Path(init).resolve() == Path(before).resolve()):
            init = before
    if init == REQUIRED:
        raise CotextError(f"{recipe} starts from a trained model: give --init RUN")
    return settle_by_start(_laid_over(resolve(config, data), "train", init=init), run)
