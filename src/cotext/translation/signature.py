"""Signatures of models and of decoding in reports: `key:value|key:value`.

`cotext.models` makes the part for the model, `DecodingPlan.signature` the part for decoding.
"""

from collections.abc import Iterable
from typing import Any

from cotext.data.shortlist import identity_of
from cotext.runtime.files import checksum
from cotext.translation.open import OpenedRun

# Entries that identify the model and its engine.
OF_MODEL = ("model", "updates", "engine", "quantization", "precision")
# Decoding entries that change scores of given translations.
OF_SCORES = ("view", "path", "group_windows", "language_model")


def signature_entries(signature: str) -> dict[str, str]:
    """Return the values of a signature by key."""
    return {key: value for key, _, value in (part.partition(":") for part in signature.split("|"))}


def translation_entries(opened: OpenedRun) -> dict[str, str]:
    """Return the signature entries of translations: the model, and the decoding settings."""
    return {**_selected(opened.loaded.signature, OF_MODEL), **signature_entries(opened.translator.signature)}


def scoring_entries(opened: OpenedRun) -> dict[str, str]:
    """Return the signature entries of scores: the model, and the context that it uses."""
    model, context = opened.loaded.signature, opened.translator.signature
    return {**_selected(model, OF_MODEL), **_selected(context, OF_SCORES)}


def scoring_signature(opened: OpenedRun) -> str:
    """Return the signature of scores of given translations."""
    context = _selected(opened.translator.signature, OF_SCORES)
    entries = [f"{key}:{value}" for key, value in context.items()]
    return "|".join([opened.loaded.signature, *entries, "subwords:of-text", "unit:nats"])


def systems_of(opened: OpenedRun) -> dict[str, Any]:
    """Identify a run and its further runs, by checksums of their models and their configurations."""
    return {**_system(opened), **{name: _system(run) for name, run in opened.further_runs().items()}}


def _system(opened: OpenedRun) -> dict[str, Any]:
    engine = opened.translator.engine
    name = opened.loaded.engine if engine is None else engine.name
    return {
        **({"engine": name} if name else {}),
        "model": checksum(opened.weights),
        "tokenizer": opened.loaded.tokenizer.fingerprint,
        "config": opened.config.model_dump(mode="json"),
        **identity_of(opened.translator.shortlist),
    }


def _selected(signature: str, keys: Iterable[str]) -> dict[str, str]:
    entries = signature_entries(signature)
    return {key: entries[key] for key in keys if key in entries}
