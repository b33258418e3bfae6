"""The folder of a run: begun, or found to hold the same run."""

from collections.abc import Sequence
from pathlib import Path
from shutil import copyfile

from cotext.config.recipe import Config, differences
from cotext.data.shortlist import SHORTLIST
from cotext.data.tokenizer import Tokenizer, load_tokenizer
from cotext.models.run_folder import SEEDS, is_int8, noted_seeds, write_config
from cotext.runtime.errors import CotextError
from cotext.runtime.files import replacing
from cotext.runtime.integrity import sealed
from cotext.runtime.locks import NAME
from cotext.training.start_settings import written_config

# Keys that may change between an interruption and its continuation: they say how long and how loudly, and
# where a file lies that is known by its digest.
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
    """Begin a run in a folder, or check that the run in it is the same.

    Raises:
        CotextError: the folder holds another run, or something else, or cannot be written.
    """
    try:
        require_own(run, config)
        # The configuration comes first: what it stands beside is a run, however early it was cut short.
        write_config(run, config)
        _keep_tokenizer(run, tokenizer)
    except OSError as error:
        raise CotextError(f"{run}: cannot be written: {error.strerror or error}") from None


def require_own(run: Path, config: Config) -> None:
    """Check that a folder that is there is empty, or holds the same run.

    Raises:
        CotextError: it holds another run, or something else.
        OSError: it cannot be read.
    """
    path = run / "config.yaml"
    if path.exists():
        if is_int8(run / "model.safetensors"):
            raise CotextError(
                f"{run}: is a run in int8, which translates and scores, and is not trained; choose another "
                "--out, or go on with the run that it was exported from"
            )
        _require_same(written_config(path), config, run)
    elif any(not entry.name.startswith((".config.yaml", NAME)) for entry in run.iterdir()):
        raise CotextError(f"{run}: the folder is not empty and holds no run; choose another --out")


def note_seeds(run: Path, seeds: Sequence[int]) -> None:
    """Write into a run folder among which seeds it is trained: `seeds.json`."""
    if noted_seeds(run) != list(seeds):
        with replacing(run / SEEDS) as temporary:
            temporary.write_text(f"{sealed({'seeds': list(seeds)})}\n", encoding="utf-8")


def keep_shortlist(run: Path, given: Path) -> None:
    """Copy the shortlist of the data into a run that has none."""
    if not (run / SHORTLIST).exists():
        with replacing(run / SHORTLIST) as temporary:
            copyfile(given, temporary)


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
