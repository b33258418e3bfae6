"""Files beside the weights of a foreign model: tokenizers and what describes them."""

from collections.abc import Iterable
from pathlib import Path

from cotext.runtime.errors import CotextError
from cotext.runtime.reading import read_bytes

MAX_BYTES = 1 << 26  # of a sentencepiece model or a vocabulary; the largest in use have 20 MB


def read_files(folder: Path, required: Iterable[str], optional: Iterable[str] = ()) -> dict[str, bytes]:
    """Contents of files by name, of the optional ones those that are there.

    Raises:
        CotextError: a missing file, or one that cannot be read.
    """
    found = {}
    for name in required:
        if not (folder / name).exists():
            raise CotextError(f"{folder}: {name} is missing; it is a part of such a model")
        found[name] = read_bytes(folder / name, MAX_BYTES)
    for name in (*optional, "tokenizer_config.json"):
        if (folder / name).exists():
            found[name] = read_bytes(folder / name, MAX_BYTES)
    return found
