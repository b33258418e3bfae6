"""How far a system sees: the sentences on which what it writes for a sentence can depend, by its slots.

Layers add up: a decoder of L layers with a memory of m sentences knows its own translation L m sentences
back, and source sentences (L - 1) m back, because its first layer reads the source after it has read the
memory. It is what the model computes with, not what it makes use of; lengths of other sentences, which
positions tell, are left out.
"""

from cotext.config.model import ModelConfig, StackName
from cotext.config.recipe import Config
from cotext.models.interface import ALL, BEFORE, OWN, Reach
from cotext.models.parts import document_layer, document_settings


def source_reach(config: Config) -> Reach:
    """The source sentences that the translation of a sentence depends on."""
    model = config.model
    layers = range(model.decoder_layers)
    on_top = _document_layer(model) if model.document.target else OWN
    written = ALL if model.writes == "non_autoregressive" else _target_row(config)
    found = OWN
    for layer in layers:
        above = sum((_layer(config, "decoder", later) for later in layers[layer + 1 :]), on_top)
        found |= _layer(config, "cross", layer) + (above & written)
    for layer in range(model.encoder_layers):
        found += _layer(config, "encoder", layer)
    if model.document.source:
        found += _document_layer(model)
    return (found & _source_row(config)) | (
        ALL if model.batch_context != "none" and model.batch.source else OWN
    )


def target_reach(config: Config) -> Reach:
    """The target sentences that its probability depends on.

    Where all tokens are predicted at once these are none if every sentence has a path of its own, and all if
    one path is that of the row.
    """
    model = config.model
    if model.writes == "non_autoregressive":
        return OWN if model.nat.path == "sentences" else _target_row(config) | _source_row(config)
    found = _document_layer(model) if model.document.target else OWN
    for layer in range(model.decoder_layers):
        found += _layer(config, "decoder", layer)
    others = model.batch_context not in ("none", "mean") and model.batch.target
    return (found & _target_row(config)) | (BEFORE if others else OWN)


def _layer(config: Config, stack: StackName, layer: int) -> Reach:
    found = OWN
    for span in config.model.layer_spans(stack, layer):
        found |= _span(config, stack, span)
    return found


def _span(config: Config, stack: StackName, span: str) -> Reach:
    model = config.model
    if span == "sentence":
        return OWN
    if span == "memory":
        return Reach(model.stack(stack).memory_sentences)
    if stack == "decoder":
        return ALL if model.writes == "non_autoregressive" else BEFORE
    if span == "current":
        return OWN if config.view.kind == "window" else ALL
    return _limited(model) if span == "row" else ALL


def _limited(model: ModelConfig) -> Reach:
    """Attention over whole source rows."""
    return ALL if model.source_sentences is None else Reach(model.source_sentences, model.source_sentences)


def _document_layer(model: ModelConfig) -> Reach:
    """What a sentence sees of its row through the layer on top of a stack."""
    if model.document_layer == "none":
        return OWN
    return document_layer(model.document_layer).reach(document_settings(model), _limited(model))


def _source_row(config: Config) -> Reach:
    """What stands in a row beside the sentence that is translated."""
    view = config.view
    if view.kind == "window":
        return Reach(view.before, view.after)
    longest = Reach(view.max_sentences - 1, view.max_sentences - 1) if view.max_sentences else ALL
    return {"sentence": OWN, "cumulative": BEFORE, "document": ALL}[view.kind] & longest


def _target_row(config: Config) -> Reach:
    view = config.view
    if view.kind == "window":
        return Reach(view.target_context)
    return _source_row(config) & BEFORE if view.kind == "document" else OWN
