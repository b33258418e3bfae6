"""Context range (receptive field): the sentences on which the translation of a sentence can depend.

The ranges of layers add up. A decoder of L layers with a memory of m sentences depends on its own translation
L m sentences back. It depends on source sentences (L - 1) m back, because its first layer reads the source
after the memory. The range is the context that the computation can reach, even if a model does not use it.
Lengths of other sentences, which positions reveal, are not counted.
"""

from cotext.config.model import ModelConfig, StackName
from cotext.config.recipe import Config
from cotext.models.checks import document_layer
from cotext.models.interface import ALL, BEFORE, OWN, Reach


def source_reach(config: Config) -> Reach:
    """Return the source sentences that the translation of a sentence depends on."""
    model = config.model
    # A sentence model reads its sentence alone, also if a language model reads earlier translations.
    if not model.reads_source or config.decode.language_model:
        return OWN
    layers = range(model.decoder_layers)
    on_top = _document_layer(model) if model.document.target else OWN
    written = ALL if model.writes == "non_autoregressive" else _target_row(config)
    spans, reach = model.stack("encoder").spans | model.stack("cross").spans, OWN
    # In windows with the span `current`, the decoder attends only to the states of current source sentences.
    if config.view.kind == "document" or "current" not in spans:
        for layer in layers:
            # Layers above attend to other target sentences, which depend on this cross-attention, too.
            above = sum((_layer(config, "decoder", later) for later in layers[layer + 1 :]), on_top)
            reach |= _layer(config, "cross", layer) + (above & written)
    for layer in range(model.encoder_layers):
        reach += _layer(config, "encoder", layer)
    if model.document.source:
        reach += _document_layer(model)
    if model.context_encoder != "none" and config.view.kind in ("window", "cumulative"):
        reach |= ALL
    # The mean of MBE is over source words, on both sides.
    others = {"none": False, "mean": True}.get(model.batch_context, model.batch.source)
    return (reach & _source_row(config)) | (ALL if others else OWN)


def target_reach(config: Config) -> Reach:
    """Return the target sentences that the probability of a sentence depends on.

    If all tokens are predicted at once, it depends on no other sentence with one path per sentence, otherwise
    on its whole row.
    """
    model = config.model
    if model.writes == "non_autoregressive":
        return OWN if model.nat.path == "sentences" else _target_row(config) | _source_row(config)
    reach = _document_layer(model) if model.document.target else OWN
    for layer in range(model.decoder_layers):
        reach += _layer(config, "decoder", layer)
    others = model.batch_context not in ("none", "mean") and model.batch.target
    return (reach & _target_row(config)) | (BEFORE if others else OWN)


def cached_sentences(model: ModelConfig) -> float:
    """Return how many earlier target sentences one layer of the decoder attends to at most; `inf`: all."""
    reach = _document_layer(model) if model.document.target else OWN
    for layer in range(model.decoder_layers):
        for span in model.layer_spans("decoder", layer):
            reach |= _own_or_memory(model, "decoder", span) or BEFORE
    return reach.before


def _own_or_memory(model: ModelConfig, stack: StackName, span: str) -> Reach | None:
    """Return the range of spans that do not cover the row; None for others."""
    return {"sentence": OWN, "memory": Reach(model.stack(stack).memory_sentences)}.get(span)


def _layer(config: Config, stack: StackName, layer: int) -> Reach:
    reach = OWN
    for span in config.model.layer_spans(stack, layer):
        reach |= _span(config, stack, span)
    return reach


def _span(config: Config, stack: StackName, span: str) -> Reach:
    model = config.model
    if (near := _own_or_memory(model, stack, span)) is not None:
        return near
    if stack == "decoder":
        return ALL if model.writes == "non_autoregressive" else BEFORE
    if span == "current" and config.view.kind != "document":
        return OWN
    return ALL if span == "nodes" else _limited(model)


def _limited(model: ModelConfig) -> Reach:
    """Return the range of attention over whole source rows."""
    return ALL if model.source_sentences is None else Reach(model.source_sentences, model.source_sentences)


def _document_layer(model: ModelConfig) -> Reach:
    """Return the range of the layer on top of a stack."""
    if model.document_layer == "none":
        return OWN
    return document_layer(model.document_layer).reach(model.document.resolved, _limited(model))


def _source_row(config: Config) -> Reach:
    """Return the range of a source row around the sentence that is translated."""
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
