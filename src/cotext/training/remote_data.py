"""Prepared data at an address (`--data s3://bucket/data/x`): fetched as training needs it.

What is small is fetched at once, into a temporary folder that goes with the process: report, manifest,
tokenizer, development set, shortlist, and a training corpus of one file. The shards of a large one are
fetched when one of their documents is read, and take room on the disk only as long as they are open, which
are at most `SHARDS_ON_DISK`. Each process fetches for itself.
"""

import atexit
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cotext.data.prepared import MANIFEST, REPORT, TRAIN, read_report
from cotext.data.sampling import SHARDS_SHUFFLED
from cotext.data.shortlist import SHORTLIST
from cotext.data.store_manifest import Shard
from cotext.runtime.addresses import opened_address
from cotext.runtime.errors import CotextError, shown

SHARDS_ON_DISK: Final = 2 * SHARDS_SHUFFLED  # those shuffled together, and those that come next


def fetch_data(address: str) -> Path:
    """A folder of this machine with what is small of prepared data at an address; it goes with the process.

    Raises:
        CotextError: no prepared data there, it cannot be read, or its report names files elsewhere.
    """
    folder = Path(tempfile.mkdtemp(prefix="cotext-data-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _fetch(f"{address}/{REPORT}", folder / REPORT)
    names = read_report(folder).get("files", {})
    for name in names:
        if not (folder / name).resolve().is_relative_to(folder.resolve()):
            raise CotextError(f"{address}/{REPORT}: names a file outside of the data, {shown(name)}")
        shard = name.startswith(f"{TRAIN}/") and name != f"{TRAIN}/{MANIFEST}"
        if name.startswith(("tokenizer/", "dev.", TRAIN, SHORTLIST)) and not shard:
            _fetch(f"{address}/{name}", folder / name)
    return folder


def fetcher(address: str, folder: Path) -> Callable[[Shard], Path]:
    """What fetches a shard of the training corpus, as `TokenStore` asks for it."""

    def fetch(shard: Shard) -> Path:
        own = folder / TRAIN / shard.name
        _fetch(f"{address}/{TRAIN}/{shard.name}", own)
        return own

    return fetch


def _fetch(address: str, own: Path) -> None:
    own.parent.mkdir(parents=True, exist_ok=True)
    try:
        with opened_address(address) as stream, own.open("wb") as file:
            shutil.copyfileobj(stream, file, 1 << 20)
    except OSError as error:
        raise CotextError(f"{own}: cannot be written: {error.strerror or error}; make room") from None
