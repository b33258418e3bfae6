"""Models by name: resolution of paths and names to the folder of a model.

    a file, or the folder of a run     itself
    the name of an installed model     the folder of its package, by the entry point group `cotext.models`
    `owner/name`                       its copy in the cache, downloaded from the hub if it is missing

The first rule that applies is used. The cache is `$XDG_CACHE_HOME/cotext/models/owner/name`. A downloaded
model is kept there, so later uses need no network. The hub is the Hugging Face hub.
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import escape
from hashlib import sha1
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from cotext.models.run_folder import ENGINE, IMPORT, is_engine, noted_import, seeds_in
from cotext.runtime import CotextError, naming, nearest_known, parse_yaml, read_text, shown
from cotext.runtime.files import (
    checksum,
    digests,
    discard,
    remove,
    replacing,
    require_whole,
    standard_folder,
    writing,
)
from cotext.runtime.progress import say

GROUP: Final = "cotext.models"
CHECKSUMS: Final = "SHA256SUMS"  # in the format of `sha256sum`; verify with `sha256sum -c`
CARD: Final = "README.md"
INSTALL: Final = "pip install '.[pretrained]' in Cotext's repository"
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

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}")
_REPOSITORY = re.compile(f"{_NAME.pattern}/{_NAME.pattern}")
_SUM = re.compile(r"([0-9a-f]{64}) [ *](.+)")
_HEAD = re.compile(r"---\n(.*?)\n---\n", re.DOTALL)


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model on this machine with a name.

    `package` is the name of the Python package that contains the model, or empty for a model in the cache.
    """

    name: str
    folder: Path
    package: str = ""

    @property
    def licence(self) -> str:
        """The licence recorded when the model was imported, or given in the model card; empty if unknown."""
        if stated := noted_import(self.folder).get("licence"):
            return str(stated)
        try:
            head = _HEAD.match(read_text(self.folder / CARD))
            content = parse_yaml(head[1], CARD) if head else None
        except CotextError:
            return ""
        return str(content.get("license") or "") if isinstance(content, dict) else ""

    @property
    def size(self) -> int:
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    def verify(self) -> int:
        """Compare the files with their checksums; return the number of files.

        Raises CotextError if a file is damaged, missing, or has no checksum.
        """
        path, sums = self.folder / CHECKSUMS, {}
        for line in read_text(path).splitlines():
            match = _SUM.fullmatch(line)
            if match is None or ".." in Path(match[2]).parts or Path(match[2]).is_absolute():
                raise CotextError(f"{path}: {shown(line)} is not the checksum of a file in this folder")
            sums[match[2]] = match[1]
        remedy = f"install {self.package} again" if self.package else f"`cotext models remove {self.name}`"
        for pattern in OF_RUN:
            for file in self.folder.glob(pattern):
                if (name := file.relative_to(self.folder).as_posix()) not in sums:
                    raise CotextError(f"{path}: damaged: has no checksum of {name}; {remedy}")
        require_whole(self.folder, sums, remedy)
        return len(sums)

    def remove(self) -> None:
        """Delete the model from the cache; raise CotextError for a model of an installed package."""
        if self.package:
            raise CotextError(
                f"{self.name}: is an installed package; remove it with pip uninstall {self.package}"
            )
        discard(self.folder)


def write_checksums(folder: Path) -> None:
    """Write the SHA-256 checksums of all files of a folder into its file SHA256SUMS."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != CHECKSUMS)
    lines = [f"{digest}  {name}\n" for name, digest in digests(folder, files).items()]
    (folder / CHECKSUMS).write_text("".join(lines), encoding="utf-8")


def known_models() -> dict[str, NamedModel]:
    """Return the models on this machine by name: installed models, then models in the cache."""
    models: dict[str, NamedModel] = {}
    for point in entry_points(group=GROUP):
        spec = find_spec(point.module)  # finds the package without running it
        if spec is not None and spec.submodule_search_locations and point.dist is not None:
            folder = Path(spec.submodule_search_locations[0])
            models.setdefault(point.name, NamedModel(point.name, folder, point.dist.name))
    cache = _cache()
    for folder in sorted(filter(_is_run, cache.glob("[!.]*/[!.]*"))):
        name = folder.relative_to(cache).as_posix()
        models[name] = NamedModel(name, folder)
    return models


def _cache() -> Path:
    return standard_folder("XDG_CACHE_HOME", ".cache") / "models"


def resolve_run(name: str | Path) -> Path:
    """Return the folder of a run, given its path or name; a path that is not a name is returned unchanged.

    A repository `owner/name` that is not in the cache is downloaded, unless there is a local folder `owner`.

    Raises CotextError: the name is unknown; the message contains the nearest known name. Also the errors of
    `fetch`.
    """
    path, text = Path(name), str(name)
    if path.is_file() or _is_run(path):
        return path
    known = known_models()
    if text in known:
        return known[text].folder
    is_repository = _REPOSITORY.fullmatch(text) is not None
    if path.exists() or not (is_repository or _NAME.fullmatch(text)):
        return path
    if is_repository and not path.parent.is_dir():
        fetch(text, _cache() / text)
        return _cache() / text
    neighbours = (str(folder) for folder in path.parent.iterdir() if _is_run(folder))
    near = nearest_known(text, [*known, *neighbours]) or "; `cotext models` lists the available models"
    raise CotextError(f"{text}: no such run folder, and no installed model of this name{near}")


def name_of(folder: Path) -> str:
    """Return the name of the model in a folder, if it has one; else the path."""
    return next((model.name for model in known_models().values() if model.folder == folder), str(folder))


def _is_run(path: Path) -> bool:
    """Return whether a folder contains a begun or finished run, runs of several seeds, or an engine."""
    is_one = is_engine(path) or any((path / file).is_file() for file in ("config.yaml", "model.safetensors"))
    return is_one or bool(seeds_in(path))


# --- Download from the Hugging Face hub, with verified checksums, and import of other models. An interrupted
# download resumes where it stopped.


def fetch(name: str, folder: Path) -> None:
    """Download a repository of the hub into a folder. Models other than runs and engines are imported.

    The environment variable HF_ENDPOINT selects another hub. Licence, size and self-test are reported.

    Raises CotextError: huggingface_hub is not installed; the repository does not exist or cannot be reached;
    or a file differs from its checksum at the hub. Also the errors of `import_model`.
    """
    try:
        from huggingface_hub import HfApi
    except ImportError:
        raise CotextError(f"{name}: no such run folder; to load it from the hub: {INSTALL}") from None
    hub = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    # The folder has the name of the model, because an import records it.
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
        # An interrupted download of an earlier revision may have left files that this one does not have.
        known = {download / file.rfilename for file in files}
        for path in download.rglob("*"):
            if path.is_file() and path not in known and ".cache" not in path.relative_to(download).parts:
                path.unlink()
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
        remove(download / ".cache")  # written by huggingface_hub
        os.replace(download, folder)
        return
    from cotext.data.documents import Languages
    from cotext.interchange.importing import import_model

    with naming(name):
        account = import_model(download, folder, Languages(), licence)
    for line in account.render().splitlines():
        say(line)
