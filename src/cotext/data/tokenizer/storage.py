"""Storage of tokenizers: tokenizer.json, which describes the files of the model in the same folder."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cotext.data.tokenizer.protocol import Tokenizer
from cotext.runtime.files import replacing

FORMAT_VERSION = 1


def fingerprint_of(kind: str, model: bytes) -> str:
    """SHA-256 over everything that decides how a kind of tokenizer encodes text."""
    return hashlib.sha256(f"{FORMAT_VERSION} {kind}\n".encode() + model).hexdigest()


def fingerprint_of_files(kind: str, files: Mapping[str, bytes]) -> str:
    """As `fingerprint_of`, of a tokenizer in several files; which languages are chosen is no part of it."""
    digest = hashlib.sha256(f"{FORMAT_VERSION} {kind}\n".encode())
    for name, content in sorted(files.items()):
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def description_of(
    tokenizer: Tokenizer, kind: str, model: str | list[str], languages: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The content of tokenizer.json; `model` names the file or files, `languages` are those chosen."""
    return {
        "version": FORMAT_VERSION,
        "kind": kind,
        "model": model,
        **({} if languages is None else {"languages": dict(languages)}),
        "fingerprint": tokenizer.fingerprint,
        "pieces": tokenizer.pieces,
        "special": {"pad": tokenizer.pad, "bos": tokenizer.bos, "eos": tokenizer.eos, "sep": tokenizer.sep},
    }


def save(folder: Path, tokenizer: Tokenizer, kind: str, model_name: str, model: bytes) -> None:
    """Write tokenizer.json and the model file into the folder, which is made if absent."""
    _write(folder, {model_name: model}, description_of(tokenizer, kind, model_name))


def save_files(
    folder: Path, tokenizer: Tokenizer, kind: str, files: Mapping[str, bytes], languages: Mapping[str, str]
) -> None:
    """As `save`, of a tokenizer in several files, whose languages are chosen."""
    _write(folder, files, description_of(tokenizer, kind, list(files), languages))


def _write(folder: Path, files: Mapping[str, bytes], description: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (
        *files.items(),
        ("tokenizer.json", json.dumps(description, indent=2, ensure_ascii=False).encode()),
    ):
        with replacing(folder / name) as temporary:
            temporary.write_bytes(content)
