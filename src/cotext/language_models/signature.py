"""Signatures of what language models answered: the model, how it was asked, and when."""

import hashlib
import json
from urllib.parse import urlsplit

from cotext.language_models.client import Client
from cotext.language_models.numbered import one_line
from cotext.language_models.prompts import Prompt
from cotext.runtime.version import __version__


def model_entries(client: Client) -> list[str]:
    """Entries of the model: who serves it, its name, what it calls itself, and the settings of requests."""
    endpoint = client.endpoint
    entries = [f"endpoint:{urlsplit(endpoint.endpoint).netloc}", f"model:{endpoint.model}"]
    # The server names them: no line end or command of a terminal may stand in a signature.
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
    return entries


def translation_signature(client: Client, prompt: Prompt, instructed: int = 0) -> str:
    """The signature of translations; the days are those of all answers that they are made of.

    `instructed`: documents with instructions of their own, which were handed on.
    """
    endpoint = client.endpoint
    pair = endpoint.languages
    named = str(pair) or "-".join(name.replace("-", "_") for name in endpoint.language_names)
    size = {"chunk": f"-{endpoint.piece_sentences}"}.get(endpoint.mode, "")
    entries = [*model_entries(client), f"languages:{named}", f"mode:{endpoint.mode}{size}"]
    if endpoint.context_sentences:
        entries.append(f"context:{endpoint.context_sentences}")
    entries += [f"prompt:{prompt.digest}", f"repeats:{endpoint.repeats}"]
    if instructed:
        entries.append(f"instructions:{instructed}")
    if client.counts.period:
        entries.append(f"answered:{client.counts.period}")
    return "|".join([*entries, f"version:{__version__}"])
