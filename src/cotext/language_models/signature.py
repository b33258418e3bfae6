"""Signatures of translations by language models: model, settings, prompt and dates."""

import hashlib
import json
from urllib.parse import urlsplit

from cotext.language_models.client import Client
from cotext.language_models.numbered import one_line
from cotext.language_models.prompts import Prompt
from cotext.runtime.version import __version__


def translation_signature(client: Client, prompt: Prompt, instructed: int = 0) -> str:
    """Return the signature of translations; the dates are those of all their responses.

    `instructed`: number of documents with their own instructions.
    """
    endpoint = client.endpoint
    entries = [f"endpoint:{urlsplit(endpoint.endpoint).netloc}", f"model:{endpoint.model}"]
    # These names come from the server: remove line breaks and terminal commands.
    names = {one_line(name).replace("|", "/") for name in client.counts.models}
    if others := sorted(names - {endpoint.model, ""}):
        entries.append(f"answered_by:{','.join(others)}")
    temperature = "default" if endpoint.temperature is None else f"{endpoint.temperature:g}"
    entries.append(f"temperature:{temperature}")
    if endpoint.max_tokens is not None:
        entries.append(f"max_tokens:{endpoint.max_tokens}")
    if endpoint.parameters:
        written = json.dumps(endpoint.parameters, sort_keys=True)
        entries.append(f"parameters:{hashlib.sha256(written.encode()).hexdigest()[:8]}")
    pair = "-".join(name.replace("-", "_") for name in endpoint.language_names)
    size = f"-{endpoint.piece_sentences}" if endpoint.mode == "chunk" else ""
    entries += [f"languages:{str(endpoint.languages) or pair}", f"mode:{endpoint.mode}{size}"]
    if endpoint.context_sentences:
        entries.append(f"context:{endpoint.context_sentences}")
    entries += [f"prompt:{prompt.digest}", f"repeats:{endpoint.repeats}"]
    if instructed:
        entries.append(f"instructions:{instructed}")
    if client.counts.period:
        entries.append(f"answered:{client.counts.period}")
    return "|".join([*entries, f"version:{__version__}"])
