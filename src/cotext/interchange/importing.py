"""Import of pretrained sentence models: a folder of another toolkit becomes a run folder.

The run has all files of a trained run except the log, and import.json with its origin and the result of the
self-test.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cotext.data.tokenizer import LanguageChoice
from cotext.interchange.fairseq import open_m2m100, open_mbart
from cotext.interchange.foreign import ForeignModel, Settings, read_model
from cotext.interchange.marian import open_marian
from cotext.interchange.self_test import SelfTest, run_self_test
from cotext.models.checkpoint import save_model
from cotext.models.describe import describe_model
from cotext.models.parameters import count_parameters
from cotext.models.run_folder import IMPORT, write_config
from cotext.runtime.errors import CotextError, shown
from cotext.runtime.files import checksum
from cotext.runtime.integrity import is_occupied, new_or_same, sealed
from cotext.runtime.version import __version__

OPENERS = {"marian": open_marian, "m2m_100": open_m2m100, "mbart": open_mbart}
LANGUAGES_SHOWN = 12


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
    is_occupied(out)
    foreign = open_foreign(folder, languages)
    tokenizer, config = foreign.tokenizer, foreign.config
    model = read_model(foreign)
    tested = run_self_test(folder, foreign, model)
    note = _note(folder, foreign, tested, licence)
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
    with new_or_same(out) as temporary:
        tokenizer.save(temporary / "tokenizer")
        write_config(temporary, config)
        (temporary / IMPORT).write_text(f"{sealed(note)}\n", encoding="utf-8")
        weights = model.state_dict()
        save_model(temporary / "model.safetensors", weights, config, tokenizer.fingerprint, [0])
    return account


def _note(folder: Path, foreign: ForeignModel, tested: SelfTest, licence: str) -> dict[str, Any]:
    chosen = foreign.tokenizer.chosen
    return {
        "format": "cotext-import",
        "version": 1,
        "class": foreign.kind,
        "folder": folder.resolve().name,
        "files": {
            path.name: {"sha256": checksum(path), "bytes": path.stat().st_size} for path in foreign.files
        },
        "languages": {"source": chosen.source, "target": chosen.target},
        "licence": licence,
        "cotext": __version__,
        "self_test": tested.as_dict(),
    }
