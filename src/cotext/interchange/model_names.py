"""Models by name: resolution of paths and names to the folder of a model.

    a file, or the folder of a run     itself
    the name of an installed model     the folder of its package, by the entry point group `cotext.models`
    `owner/name`                       its copy in the cache, downloaded from the hub if it is missing

The first rule that applies is used. The cache is `$XDG_CACHE_HOME/cotext/models/owner/name`. A downloaded
model is kept there, so that later uses need no network. The hub is the Hugging Face hub.
"""

import re
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

    A repository that is not in the cache is downloaded: see `fetch`.

    Raises:
        CotextError: the name is unknown; the message contains the nearest known name. Also the errors of
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


def _is_run(path: Path) -> bool:
    """Return whether a folder contains a begun or finished run, runs of several seeds, or an engine."""
    is_one = is_engine(path) or any((path / file).is_file() for file in ("config.yaml", "model.safetensors"))
    return is_one or bool(seeds_in(path))
