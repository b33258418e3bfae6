"""Runs by the name of a repository of the Hugging Face hub: fetched as files, of which none is ever run."""

import re
from pathlib import Path
from typing import Final

from cotext.models.run_folder import ENGINE, IMPORT
from cotext.runtime.errors import CotextError

INSTALL: Final = "pip install 'cotext[pretrained]'"
# What a run or an engine consists of; other files of a repository stay where they are.
ALLOWED: Final = (
    *("config.yaml", "model.safetensors", "tokenizer/*", "data.json", IMPORT, "README.md"),
    *(ENGINE, "model.bin", "config.json"),
    *("shared_vocabulary.json", "source_vocabulary.json", "target_vocabulary.json"),
)
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")


def local_folder(run: str | Path) -> Path:
    """The folder of a run: itself, or where `owner/name` is no folder here, a copy from the hub.

    Raises:
        CotextError: the hub has no such repository or cannot be reached, huggingface_hub is not installed.
    """
    path = Path(run)
    if path.exists() or not _NAME.fullmatch(str(run)):
        return path
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise CotextError(f"{run}: no such run folder; to load it from the hub: {INSTALL}") from None
    try:
        return Path(snapshot_download(repo_id=str(run), allow_patterns=list(ALLOWED)))
    except Exception as error:  # of several libraries, whichever the hub's own is built on
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise CotextError(
            f"{run}: no such run folder, and not to be had from the hub: {reason[0][:200]}"
        ) from None
