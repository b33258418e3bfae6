"""Import of pretrained sentence models: a folder of another toolkit becomes a run folder.

The run has all files of a trained run except the log, and import.json with its origin and the result of the
self-test. The self-test compares token ids and logits with those of `transformers`, which reads the weights
from the folder again. Its sources and targets are random subwords, whatever the language.
"""

import random
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cotext.data.batch import Source
from cotext.data.tokenizer import LanguageChoice
from cotext.interchange.bart import open_fairseq, open_marian
from cotext.interchange.foreign import NO_ROW, ForeignModel, Settings, read_model
from cotext.models.build import count_parameters
from cotext.models.checkpoint import LoadedModel, save_model
from cotext.models.describe import describe_model
from cotext.models.interface import Model, TranslationModel
from cotext.models.run_folder import IMPORT, write_config
from cotext.runtime import CotextError, __version__, shown
from cotext.runtime.files import checksum, new_folder, require_new, sealed

OPENERS: dict[str, Callable[[Path, LanguageChoice], ForeignModel]] = {
    "marian": open_marian,
    "m2m_100": partial(open_fairseq, learned=False),
    "mbart": partial(open_fairseq, learned=True),
}
LANGUAGES_SHOWN = 12


# --- The self-test.


TOLERANCE = 1e-3  # of logits, relative to the largest; half-precision weights cause differences of this size
SENTENCES = 8
PIECES = 12  # subwords of a source
WRITTEN = 9  # subwords of a target
SEED = 17


@dataclass(frozen=True, slots=True)
class SelfTest:
    """The results of the comparison; `skipped`: the reason why nothing was compared."""

    skipped: str = ""
    against: str = ""
    sentences: int = 0
    equal_ids: int = 0
    largest_difference: float = 0.0  # of logits
    largest_logit: float = 0.0

    def render(self) -> str:
        if self.skipped:
            return f"none: {self.skipped}"
        return (
            f"against {self.against}: ids of {self.equal_ids} of {self.sentences} sentences equal; logits "
            f"(up to {self.largest_logit:.1f}) differ by at most {self.largest_difference:.1e}"
        )


def run_self_test(folder: Path, foreign: ForeignModel, model: Model) -> SelfTest:
    """Compare an imported model with the model of `transformers`; raise CotextError if they differ."""
    if find_spec("transformers") is None:
        return SelfTest("transformers is not installed (pip install 'cotext[pretrained]')")
    own = LoadedModel(model, foreign.config, foreign.tokenizer, [0]).left_to_right("the self-test")
    try:
        with torch.no_grad():
            other = _theirs(folder, foreign.kind, dtype=torch.float32).eval()
            result = _compared(foreign, own, other, _theirs(folder, "AutoTokenizer"))
    except Exception as error:  # another program, which may fail in any way
        reason = str(error).partition("\n")[0]
        return SelfTest(f"transformers {version('transformers')} fails on this folder: {reason}")
    if not result.largest_difference <= TOLERANCE * max(1.0, result.largest_logit):
        raise CotextError(
            f"{folder}: the self-test failed, nothing was written: {result.render()}; the model has "
            "a property that is not supported"
        )
    return result


def _theirs(folder: Path, kind: str, **options: Any) -> Any:
    """Load an object of the class `kind` with transformers, without network and code of the folder."""
    import transformers

    messages: Any = transformers.logging
    messages.set_verbosity_error()
    messages.disable_progress_bar()
    given = {"local_files_only": True, "trust_remote_code": False, **options}
    return getattr(transformers, kind).from_pretrained(folder, **given)


def _compared(foreign: ForeignModel, model: TranslationModel, other: Any, other_tokenizer: Any) -> SelfTest:
    own, rows = foreign.tokenizer, foreign.symbol_rows
    source = foreign.parts.get("embedding.source_weight")
    source_rows = rows if source is None or source.rows is None else source.rows
    equal_ids, difference, largest = 0, 0.0, 0.0
    # Padding is never predicted; a bias may suppress it, which would dominate the comparison.
    compared = [i for i in range(len(rows)) if i not in (*foreign.absent, own.pad)]
    pieces = range(own.unk + 1, own.pieces)
    sources, targets = random.Random(SEED), random.Random(SEED)
    for _ in range(SENTENCES):
        text = own.decode(sources.choices(pieces, k=PIECES), "source")
        ids = [*own.source_prefix, *own.encode(text), own.eos]
        mapped = [source_rows[i] for i in ids]
        equal_ids += _their_ids(foreign, other_tokenizer, text) == mapped
        target = targets.choices([i for i in pieces if rows[i] != NO_ROW], k=WRITTEN)
        inputs = [own.bos, *own.target_prefix, *target]
        logits = _logits(model, ids, inputs)[:, compared]
        given = torch.tensor([[rows[i] for i in inputs]])
        output = other(input_ids=torch.tensor([mapped]), decoder_input_ids=given)
        their_logits = output.logits[0][:, [rows[i] for i in compared]]
        difference = max(difference, float((logits - their_logits).abs().max()))
        largest = max(largest, float(their_logits.abs().max()))
    return SelfTest("", f"transformers {version('transformers')}", SENTENCES, equal_ids, difference, largest)


def _their_ids(foreign: ForeignModel, tokenizer: Any, text: str) -> list[int]:
    """Return the ids of a source sequence from the tokenizer of `transformers`, for the chosen languages."""
    own = foreign.tokenizer
    if own.kind == "marian":
        tag = f">>{own.chosen.target}<< " if own.source_prefix else ""
        return list(tokenizer(f"{tag}{text}").input_ids)
    ids = list(tokenizer(text).input_ids)
    # The first id is its default source language: replace it.
    prefix = [foreign.symbol_rows[i] for i in own.source_prefix]
    return [*prefix, *ids[1:]]


def _logits(model: TranslationModel, ids: list[int], inputs: list[int]) -> Tensor:
    """Return the logits of a row for decoder inputs: [T, V]."""
    one = torch.zeros(1, dtype=torch.long)
    tokens = torch.tensor([ids])
    source = Source(tokens, torch.zeros_like(tokens), torch.tensor([[0, 1]]), one, one)
    given = torch.tensor([inputs])
    hidden = model.decode(given, torch.zeros_like(given), model.encode(source))[0]
    logits = hidden @ model.output_weight.T
    return logits if model.output_bias is None else logits + model.output_bias


# --- The import.


@dataclass(frozen=True, slots=True)
class Imported:
    """The report of an import."""

    kind: str
    system: str
    parameters: int
    pieces: int
    self_test: SelfTest
    languages: tuple[str, ...]  # those of the tokenizer, if none was chosen

    def render(self) -> str:
        lines = [
            f"{self.kind}: {self.system}, {self.parameters:,} parameters, {self.pieces:,} pieces",
            f"  self-test: {self.self_test.render()}",
        ]
        if self.languages:
            more = ", ..." if len(self.languages) > LANGUAGES_SHOWN else ""
            listed = ", ".join(self.languages[:LANGUAGES_SHOWN])
            lines.append(
                f"  the model is multilingual ({listed}{more}), and no language was chosen: give "
                "--target-language (and --source-language, of models that name both) here or to `prepare`"
            )
        return "\n".join(lines)


def open_foreign(folder: Path, languages: LanguageChoice) -> ForeignModel:
    """Open the model in a folder, by its type; raise CotextError if it is not supported."""
    if not folder.is_dir():
        raise CotextError(f"{folder}: {'no folder' if folder.exists() else 'no such folder'}")
    config = folder / "config.json"
    if not config.exists():
        raise CotextError(f"{folder}: has no config.json of Hugging Face; pass the folder of a model")
    kind = Settings.read(config).content.get("model_type")
    if not isinstance(kind, str) or kind not in OPENERS:
        raise CotextError(f"{config}: model_type = {shown(kind)}: these are read: {', '.join(OPENERS)}")
    return OPENERS[kind](folder, languages)


def import_model(folder: Path, out: Path, languages: LanguageChoice, licence: str = "") -> Imported:
    """Make a run folder of a pretrained model; raise CotextError if the self-test fails."""
    require_new(out)
    foreign = open_foreign(folder, languages)
    tokenizer, config = foreign.tokenizer, foreign.config
    model = read_model(foreign)
    tested = run_self_test(folder, foreign, model)
    note = {
        "format": "cotext-import",
        "version": 1,
        "class": foreign.kind,
        "folder": folder.resolve().name,
        "files": {
            path.name: {"sha256": checksum(path), "bytes": path.stat().st_size} for path in foreign.files
        },
        "languages": {"source": tokenizer.chosen.source, "target": tokenizer.chosen.target},
        "licence": licence,
        "cotext": __version__,
        "self_test": asdict(tested),
    }
    account = Imported(
        foreign.kind,
        describe_model(config.model),
        count_parameters(model),
        tokenizer.pieces,
        tested,
        () if tokenizer.source_prefix or tokenizer.target_prefix else tuple(tokenizer.languages),
    )
    del foreign  # frees the memory of its mapped files before the model is written
    out.resolve().parent.mkdir(parents=True, exist_ok=True)
    with new_folder(out) as temporary:
        tokenizer.save(temporary / "tokenizer")
        write_config(temporary, config)
        (temporary / IMPORT).write_text(f"{sealed(note)}\n", encoding="utf-8")
        weights = model.state_dict()
        save_model(temporary / "model.safetensors", weights, config, tokenizer.fingerprint, [0])
    return account
