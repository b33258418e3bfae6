"""Download of models from the Hugging Face hub, with verified checksums, and import of other models.

An interrupted download resumes where it stopped.
"""

import os
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from glob import escape
from hashlib import sha1
from pathlib import Path
from typing import Any, Final

from cotext.interchange.named_model import CARD, write_checksums
from cotext.models.run_folder import ENGINE, IMPORT
from cotext.runtime.errors import CotextError
from cotext.runtime.files import checksum, remove, replacing
from cotext.runtime.locks import writing
from cotext.runtime.progress import say

INSTALL: Final = "pip install 'cotext[pretrained]'"
# Files of a run or an engine; other files of a repository are not downloaded.
OF_RUN: Final = (
    *("config.yaml", "model.safetensors", "tokenizer/*", "code/*.py", "data.json", IMPORT, CARD),
    *("shortlist.safetensors", ENGINE, "model.bin", "config.json"),
    *("shared_vocabulary.json", "source_vocabulary.json", "target_vocabulary.json"),
)
# Files that `import_model` and its self-test read.
OF_FOREIGN: Final = (
    *("config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"),
    *("vocab.json", "target_vocab.json", "added_tokens.json", "special_tokens_map.json"),
    *("*.spm", "sentencepiece.bpe.model"),
)
WEIGHTS: Final = ("model.safetensors", "model.safetensors.index.json", "model-*.safetensors")
PICKLE: Final = ("pytorch_model.bin",)  # if there are no safetensors


def fetch(name: str, folder: Path) -> None:
    """Download a repository of the hub into a folder. Models other than runs and engines are imported.

    The environment variable HF_ENDPOINT selects another hub. Licence, size and self-test are reported.

    Raises:
        CotextError: huggingface_hub is not installed; the repository does not exist or cannot be reached; or
            a file differs from its checksum at the hub. Also the errors of `import_model`.
    """
    try:
        from huggingface_hub import HfApi
    except ImportError:
        raise CotextError(f"{name}: no such run folder; to load it from the hub: {INSTALL}") from None
    hub = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    # With the name of the model, because an import records the name of its folder.
    download = folder.parent / ".download" / folder.name
    download.parent.mkdir(parents=True, exist_ok=True)
    with writing(folder), replacing(folder) as temporary:
        info = _call_hub(name, lambda: hub.model_info(name, files_metadata=True))
        files = _chosen(name, info.siblings)
        licence = str((info.card_data or {}).get("license") or "")
        size = sum(file.size or 0 for file in files) / 1e6
        say(f"{name}: {size:,.0f} MB, revision {info.sha}, licence: {licence or 'not recorded'}")
        patterns = [escape(file.rfilename) for file in files]
        _call_hub(
            name,
            lambda: hub.snapshot_download(
                name, revision=info.sha, local_dir=download, allow_patterns=patterns
            ),
        )
        for file in files:
            _require_same(download / file.rfilename, file)
        _keep(name, download, temporary, licence)
        write_checksums(temporary)
    remove(download)


def _call_hub(name: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:  # the client raises errors of several libraries
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise CotextError(
            f"{name}: no such run folder, and not available from the hub: {reason[0][:200]}"
        ) from None


def _chosen(name: str, files: Sequence[Any]) -> list[Any]:
    """Return the files of a repository that are needed."""
    names = {file.rfilename for file in files}
    is_own = not names.isdisjoint(("config.yaml", ENGINE))
    weights = PICKLE if names.isdisjoint(WEIGHTS) else WEIGHTS
    patterns = OF_RUN if is_own else (*OF_FOREIGN, *weights)
    if not is_own and "config.json" not in names:
        raise CotextError(
            f"{name}: the repository contains neither a run of Cotext nor a model that can be imported"
        )
    chosen = [file for file in files if any(fnmatchcase(file.rfilename, pattern) for pattern in patterns)]
    return [file for file in chosen if ".." not in Path(file.rfilename).parts]


def _require_same(path: Path, stated: Any) -> None:
    """Compare a file with its SHA-256 or git id at the hub; if they differ, delete it and raise an error."""
    if stated.lfs is not None:
        same = checksum(path) == stated.lfs.sha256
    else:
        content = path.read_bytes()
        same = sha1(b"blob %d\0" % len(content) + content).hexdigest() == stated.blob_id
    if not same:
        remove(path)
        raise CotextError(
            f"{path}: damaged during download: its checksum differs from the checksum at the hub; try again"
        )


def _keep(name: str, download: Path, folder: Path, licence: str) -> None:
    """Make the folder of a downloaded model."""
    if any((download / file).is_file() for file in ("config.yaml", ENGINE)):
        remove(download / ".cache")  # of the client
        os.replace(download, folder)
        return
    from cotext.data.tokenizer import LanguageChoice
    from cotext.interchange.importing import import_model

    try:
        account = import_model(download, folder, LanguageChoice(), licence)
    except CotextError as error:
        raise CotextError(f"{name}: {error}") from None
    for line in account.render().splitlines():
        say(line)
