"""Runs in int8: a fourth of the size, to translate and score with, and not to be trained."""

from pathlib import Path

from cotext.config.recipe import Config
from cotext.interchange.hub import copy_shortlist, write_data
from cotext.models.checkpoint import load_run, save_model
from cotext.models.precision import int8_weights
from cotext.models.run_folder import IMPORT, noted_data, noted_import, write_config
from cotext.runtime.integrity import new_or_same, sealed


def export_int8(run: Path, out: Path, update: int | None = None) -> None:
    """Write a run folder whose large matrices are int8 and whose decode.precision is; see `new_or_same`.

    It translates and scores as the run does with decode.precision = int8, bit for bit.

    Raises:
        CotextError: as `load_run`, or `out` cannot be written.
    """
    loaded = load_run(run, update)
    config = _in_int8(loaded.config)
    weights = int8_weights(loaded.with_states("cotext export"))
    with new_or_same(out) as temporary:
        loaded.tokenizer.save(temporary / "tokenizer")
        write_config(temporary, config)
        fingerprint = loaded.tokenizer.fingerprint
        save_model(temporary / "model.safetensors", weights, config, fingerprint, loaded.updates)
        write_data(temporary, noted_data(run))
        copy_shortlist(run, temporary)
        if imported := noted_import(run):
            (temporary / IMPORT).write_text(f"{sealed(imported)}\n", encoding="utf-8")


def _in_int8(config: Config) -> Config:
    return config.model_copy(update={"decode": config.decode.model_copy(update={"precision": "int8"})})
