"""Models by name: which folder a run, an installed model or a repository of the Hugging Face hub lies in.

    a file, or the folder of a run     itself
    the name of an installed model     the folder of its package, by the entry point group `cotext.models`
    `owner/name`                       its copy in the cache, which is fetched from the hub if it is not there

The first that applies counts. The cache is `$XDG_CACHE_HOME/cotext/models/owner/name`, and a fetched model
stays in it: later uses need no network.
"""

import re
from collections.abc import Iterator
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from cotext.interchange.hub_download import fetch
from cotext.interchange.named_model import NamedModel
from cotext.models.run_folder import is_engine, seeds_in
from cotext.runtime.errors import CotextError, nearest_known
from cotext.runtime.files import standard_folder

GROUP: Final = "cotext.models"

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}")
_REPOSITORY = re.compile(f"{_NAME.pattern}/{_NAME.pattern}")


def known_models() -> dict[str, NamedModel]:
    """The models on this machine by name: those that are installed, then those in the cache."""
    found: dict[str, NamedModel] = {}
    for point in entry_points(group=GROUP):
        spec = find_spec(point.module)  # which finds the package without running it
        if spec is not None and spec.submodule_search_locations and point.dist is not None:
            folder = Path(spec.submodule_search_locations[0])
            found.setdefault(point.name, NamedModel(point.name, folder, point.dist.name))
    return found | {model.name: model for model in _cached()}


def _cached() -> Iterator[NamedModel]:
    cache = _cache()
    for folder in sorted(cache.glob("[!.]*/[!.]*")):
        if _is_run(folder):
            yield NamedModel(folder.relative_to(cache).as_posix(), folder)


def _cache() -> Path:
    return standard_folder("XDG_CACHE_HOME", ".cache") / "models"


def resolve_run(name: str | Path) -> Path:
    """The folder of a run by its path or its name; a path that is no name comes back as it is.

    A repository that is not in the cache is fetched: see `fetch`.

    Raises:
        CotextError: a name that nothing has, with the nearest one that something has; as `fetch`.
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
    beside = (str(each) for each in path.parent.iterdir() if _is_run(each))
    near = nearest_known(text, [*known, *beside]) or "; `cotext models` lists those that are here"
    raise CotextError(f"{text}: no such run folder, and no installed model of this name{near}")


def _is_run(path: Path) -> bool:
    """Whether a folder holds a run, begun or finished, runs of several seeds, or an engine."""
    is_one = is_engine(path) or any((path / each).is_file() for each in ("config.yaml", "model.safetensors"))
    return is_one or bool(seeds_in(path))
