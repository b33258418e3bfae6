"""Storage of tokenizers: tokenizer.json, which describes the model file in the same folder."""

import hashlib
import json
from pathlib import Path
from typing import Any

from cotext.data.tokenizer.protocol import Tokenizer
from cotext.runtime.files import replacing

FORMAT_VERSION = 1


def fingerprint_of(kind: str, model: bytes) -> str:
    """SHA-256 over everything that decides how a kind of tokenizer encodes text."""
    return hashlib.sha256(f"{FORMAT_VERSION} {kind}\n".encode() + model).hexdigest()


def description_of(tokenizer: Tokenizer, kind: str, model_name: str) -> dict[str, Any]:
    """The content of tokenizer.json."""
    return {
        "version": FORMAT_VERSION,
        "kind": kind,
        "model": model_name,
        "fingerprint": tokenizer.fingerprint,
        "pieces": tokenizer.pieces,
        "special": {"pad": tokenizer.pad, "bos": tokenizer.bos, "eos": tokenizer.eos, "sep": tokenizer.sep},
    }


def save(folder: Path, tokenizer: Tokenizer, kind: str, model_name: str, model: bytes) -> None:
    """Write tokenizer.json and the model file into the folder, which is made if absent."""
    description = description_of(tokenizer, kind, model_name)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (
        (model_name, model),
        ("tokenizer.json", json.dumps(description, indent=2).encode()),
    ):
        with replacing(folder / name) as temporary:
            temporary.write_bytes(content)
