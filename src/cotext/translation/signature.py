"""Signatures of models and of decoding in reports: `key:value|key:value`.

The part on the model is made by `cotext.models`, that on decoding by `DecodingPlan.signature`.
"""

from typing import Any

from cotext.data.shortlist import identity_of
from cotext.runtime.files import checksum
from cotext.translation.open import OpenedRun

# Of the model, what says which it is, and in which engine it runs.
OF_MODEL = ("model", "updates", "engine", "quantization", "precision")
# Of the decoding, what changes scores of given translations.
OF_SCORES = ("view", "path", "group_windows")


def signature_entries(signature: str) -> dict[str, str]:
    """The values of a signature by their keys."""
    return {key: value for key, _, value in (part.partition(":") for part in signature.split("|"))}


def translation_entries(opened: OpenedRun) -> dict[str, str]:
    """Entries of what a run translates: its model, and how it decodes."""
    return {**_of_model(opened), **signature_entries(opened.translator.signature)}


def scoring_entries(opened: OpenedRun) -> dict[str, str]:
    """Entries of what a run scores: its model, and the context that it sees."""
    return {**_of_model(opened), **_of_context(opened)}


def scoring_signature(opened: OpenedRun) -> str:
    """The signature of scores of given translations."""
    seen = [f"{key}:{value}" for key, value in _of_context(opened).items()]
    return "|".join([opened.loaded.signature, *seen, "subwords:of-text", "unit:nats"])


def systems_of(opened: OpenedRun) -> dict[str, Any]:
    """A run and that of its first pass, by checksums of their models and their whole configurations."""
    before = {} if opened.first_pass is None else {"first_pass": _system(opened.first_pass)}
    return {**_system(opened), **before}


def _system(opened: OpenedRun) -> dict[str, Any]:
    engine = {"engine": opened.loaded.engine} if opened.loaded.engine else {}
    return {
        **engine,
        "model": checksum(opened.weights),
        "tokenizer": opened.loaded.tokenizer.fingerprint,
        "config": opened.config.model_dump(mode="json"),
        **identity_of(opened.translator.shortlist),
    }


def _of_model(opened: OpenedRun) -> dict[str, str]:
    entries = signature_entries(opened.loaded.signature)
    return {key: entries[key] for key in OF_MODEL if key in entries}


def _of_context(opened: OpenedRun) -> dict[str, str]:
    entries = signature_entries(opened.translator.signature)
    return {key: entries[key] for key in OF_SCORES if key in entries}
