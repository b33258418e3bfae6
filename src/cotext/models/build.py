"""Build models from the section `model`, with tables of all parts except document layers (`config/parts.py`).

A published system is a recipe that sets slots; a new part is a line in one of the tables.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, Literal

import torch
from torch import nn

from cotext.config.model import AttentionConfig, BatchConfig, ModelConfig, StackName
from cotext.config.parts import is_own
from cotext.config.recipe import Config
from cotext.data.tokenizer import SPECIAL_SYMBOLS
from cotext.layers.blocks import Size, Stack, Stacks, TransformerBlock
from cotext.layers.embedding import EmbeddingKind, InputKind, SentenceEmbedding
from cotext.layers.linear import Int8Linear
from cotext.layers.multi_head import AttentionSize, CrossAttention, RowSpan, Score, SelfAttention
from cotext.layers.scores import AlibiScore, RotaryScore, SegmentDistanceScore
from cotext.layers.spans import BiasedOthersSpan, GatedOthersSpan, NodeSpan, ProjectedOthersSpan, SentenceSpan
from cotext.layers.start import NewSymbols
from cotext.layers.transformer_xl import MemorySpan, TransformerXLScore
from cotext.models.abd import Datapoints
from cotext.models.build_views import build_mixture, further_symbols
from cotext.models.checks import check, document_layer, own_part
from cotext.models.docflat import FlatBatch
from cotext.models.doct import SeparateContext
from cotext.models.flat_transformer import CurrentSpan
from cotext.models.g_transformer import GatedAttention
from cotext.models.interface import DocumentLayer, Model
from cotext.models.mbe import BatchMean
from cotext.models.nat import LatentCodes, NonAutoregressiveTransformer
from cotext.models.p_transformer import AbsoluteScore, PositionScore, RelativeScore, relative_table
from cotext.models.reach import cached_sentences
from cotext.models.slots import BatchContext, ContextEncoder
from cotext.models.transformer import Parts, Transformer
from cotext.models.voita_2018 import SharedContext
from cotext.runtime import CotextError

OTHERS: dict[str, Callable[[AttentionConfig, AttentionSize], RowSpan]] = {  # variants of the span `row`
    "joint": lambda config, size: RowSpan(),
    "gated": lambda config, size: GatedOthersSpan(size.heads, config.gate_rate),
    "projected": lambda config, size: ProjectedOthersSpan(size.dimension),
}
SPANS: dict[str, Callable[[AttentionConfig, AttentionSize], RowSpan]] = {
    "row": lambda config, size: OTHERS[config.others](config, size),
    "sentence": lambda config, size: SentenceSpan(),
    "memory": lambda config, size: MemorySpan(config.memory_sentences),
    "nodes": lambda config, size: NodeSpan(),
    "current": lambda config, size: CurrentSpan(),
}
SCORES: dict[str, type[Score]] = {
    "content": Score,
    "absolute": AbsoluteScore,
    "relative": RelativeScore,
    "positions": PositionScore,
    "transformer_xl": TransformerXLScore,
    "segment_distance": SegmentDistanceScore,
    "rotary": RotaryScore,
    "alibi": AlibiScore,
}
# Scores of self-attention whose positions have another form, or none, in cross-attention.
CROSS_SCORES = {"positions": "absolute", "relative": "content", "rotary": "content"}
CONTEXT_ENCODERS: dict[str, type[ContextEncoder]] = {"separate": SeparateContext, "shared": SharedContext}
BATCH_CONTEXTS: dict[str, Callable[[AttentionSize, BatchConfig], BatchContext]] = {
    "flat": FlatBatch,
    "datapoints": Datapoints,
    "mean": lambda size, config: BatchMean(config),
}


def build_model(config: Config, vocabulary: int, source_vocabulary: int | None = None) -> Model:
    """Build the model of a configuration, with random weights from torch's global generator.

    `vocabulary` counts the subwords and the special symbols of every recipe (`Tokenizer.vocabulary_size`);
    the symbols of this recipe's separators are added. `source_vocabulary`: vocabulary size of the source, if
    it has its own subwords; None: the same. Raises CotextError for settings that cannot be combined.
    """
    check(config)
    model = config.model
    symbols = vocabulary + further_symbols(config.view)
    sentences = max(view.sentences for view, _ in build_mixture(config.view).parts)
    embedding = SentenceEmbedding(
        symbols,
        model.dimension,
        model.dropout,
        InputKind(model.positions, model.segments),
        InputKind(model.target_positions or model.positions, model.target_segments or model.segments),
        EmbeddingKind(
            max_segments=sentences,
            bracketed=config.view.bracketed,
            from_first=model.from_first is not False,
            wavelengths=model.wavelengths,
            first_position=model.first_position,
            learned=model.learned_positions if model.position_encoding == "learned" else None,
            offset=config.train.position_offset,
            norm=model.embedding_norm,
            from_current=model.segments_from == "current",
            source_vocabulary=_source_symbols(config, vocabulary, source_vocabulary),
        ),
    )
    build = _autoregressive if model.writes == "left_to_right" else _non_autoregressive
    built = build(model, embedding)
    initialise(built, model.initialisation)
    blend = config.train.blend or ()
    if "separators" in blend:
        separator = range(vocabulary - 1, vocabulary)  # the last of the special symbols
        built.new_symbols.append(NewSymbols("separators", separator))
    if "symbols" in blend:
        built.new_symbols.append(NewSymbols("symbols", range(vocabulary, symbols)))
    return built


def _source_symbols(config: Config, vocabulary: int, source_vocabulary: int | None) -> int | None:
    """Return the size of a separate source embedding, or None."""
    further = further_symbols(config.view)
    if source_vocabulary in (None, vocabulary):
        return vocabulary + further if config.model.separate_embeddings else None
    if not config.model.separate_embeddings:
        raise CotextError(
            "model.separate_embeddings = false: the tokenizer has separate vocabularies; choose true"
        )
    if further:
        raise CotextError(
            f"view.separators = {config.view.separators}: with separate vocabularies, the ids of its symbols "
            "are also ids of source subwords; choose plain or bracket"
        )
    return source_vocabulary


def _autoregressive(model: ModelConfig, embedding: SentenceEmbedding) -> Transformer:
    size = _size(model)
    batch_context = BATCH_CONTEXTS.get(model.batch_context)
    shift = model.shift if model.positions == "shifted" else 0
    if shift == "corpus":
        raise CotextError("model.shift = corpus is not a number yet; set a number before a model is built")
    stacks = _stacks(model, size)
    parts = Parts(
        context_encoder=_context_encoder(model, size, stacks),
        source_document=_document_layer(model, size) if model.document.source else None,
        target_document=_document_layer(model, size) if model.document.target else None,
        batch_context=batch_context(size.attention, model.batch) if batch_context else None,
        relative=_relative(model, size),
        shift=shift,
        source_sentences=model.source_sentences,
        cached_sentences=cached_sentences(model),
        output_bias=nn.Parameter(torch.zeros(len(embedding.weight))) if model.output_bias else None,
    )
    return Transformer(embedding, stacks, parts)


def _non_autoregressive(model: ModelConfig, embedding: SentenceEmbedding) -> NonAutoregressiveTransformer:
    size, nat = _size(model), model.nat
    latent = None
    stacks = _stacks(model, size)
    if nat.latent:
        latent = LatentCodes(size.dimension, nat, _decoder(model, size), size.norm())
    # Brackets add no symbols: the tokenizer's symbols are last. Padding, the first of them, is the blank.
    blank = embedding.weight.size(0) - SPECIAL_SYMBOLS
    return NonAutoregressiveTransformer(embedding, stacks, nat, blank, latent, _relative(model, size))


def _document_layer(model: ModelConfig, size: Size) -> DocumentLayer | None:
    if model.document_layer == "none":
        return None
    return document_layer(model.document_layer)(size, model.document.resolved)


def _context_encoder(model: ModelConfig, size: Size, stacks: Stacks) -> ContextEncoder | None:
    """Return the context encoder, whose own layers are like the lowest of the encoder."""
    if model.context_encoder == "none":
        return None
    layers = [
        TransformerBlock(size, _attention(SelfAttention, model, "encoder", size, 0))
        for _ in range(model.context_layers)
    ]
    return CONTEXT_ENCODERS[model.context_encoder](size, layers, stacks)


def _size(model: ModelConfig) -> Size:
    sizes: dict[str, Any] = {field.name: getattr(model, field.name) for field in fields(Size)}
    return Size(**sizes | {"neutral_start": model.neutral_start is True})


def _relative(model: ModelConfig, size: Size) -> nn.Parameter | None:
    """Return the table of relative positions, which all self-attentions share."""
    sides: tuple[StackName, ...] = ("encoder", "decoder") if model.reads_source else ("decoder",)
    scores = {model.stack(side).score for side in sides}
    if scores.isdisjoint({"relative", "positions"}):
        return None
    return relative_table(size.attention, model.relative_span)


def _stacks(model: ModelConfig, size: Size) -> Stacks:
    encoder = Stack(
        TransformerBlock(size, _attention(SelfAttention, model, "encoder", size, i))
        for i in range(size.encoder_layers if model.reads_source else 0)
    )
    encoder_norm = size.norm() if model.reads_source else nn.Identity()
    return Stacks(encoder, _decoder(model, size), encoder_norm, size.norm())


def _decoder(model: ModelConfig, size: Size) -> Stack:
    return Stack(
        TransformerBlock(
            size,
            _attention(SelfAttention, model, "decoder", size, i),
            _attention(CrossAttention, model, "cross", size, i) if model.reads_source else None,
        )
        for i in range(size.decoder_layers)
    )


def _spans(model: ModelConfig, side: StackName, size: Size, layer: int) -> Iterator[RowSpan]:
    """Yield the spans of a layer. A second span is gated, so it needs no gate for other sentences."""
    config = model.stack(side)
    first, *second = model.layer_spans(side, layer)
    yield SPANS[first](config, size.attention)
    for span in second:
        if span == "row" and config.others == "gated":
            yield BiasedOthersSpan(size.heads, config.gate_rate)
        else:
            yield SPANS[span](config.model_copy(update={"others": "joint"}), size.attention)


def _attention(
    kind: type[SelfAttention] | type[CrossAttention],
    model: ModelConfig,
    side: StackName,
    size: Size,
    layer: int,
) -> nn.Module:
    """Return an attention, or two that are mixed by a gate if the layer has two spans."""
    name = model.stack(side).score
    score = CROSS_SCORES.get(name, name) if side == "cross" else name
    make_score = own_part(score, Score) if is_own(score) else SCORES[score]
    spans = _spans(model, side, size, layer)
    local, *wide = (kind(size.attention, span, make_score(size.attention)) for span in spans)
    return GatedAttention(size.dimension, local, wide[0], size.neutral_start) if wide else local


# --- Numbers of parameters: counts and upper bounds.


def count_parameters(model: nn.Module) -> int:
    """Return the number of parameters, including the parameters of matrices in int8."""
    int8_sizes = (
        layer.in_features * layer.out_features
        for name, layer in model.named_modules()
        if isinstance(layer, Int8Linear) and name != "int8_output"  # counted with the embedding
    )
    return sum(p.numel() for p in model.parameters()) + sum(int8_sizes)


def parameters_at_most(config: Config, vocabulary: int) -> int:
    """Return an upper bound of the parameters of any system, from its sizes; most have less than 1/4 of it.

    Some sizes are counted slightly too large, to include biases, norms and vectors of positions.
    """
    model, view = config.model, config.view
    width, inner = model.dimension + 8, model.feed_forward + 8
    blocks = model.encoder_layers + 2 * model.decoder_layers + 1  # a latent system has two decoders
    rows = vocabulary + further_symbols(view)
    if model.separate_embeddings:
        rows *= 2
    if model.position_encoding == "learned":
        rows += 2 * model.learned_positions
    if model.segments == "learned":
        rows += max(view.sentences for view, _ in build_mixture(config.view).parts)
    if model.writes == "non_autoregressive":
        rows += 3 * model.nat.codes + 2 * model.nat.length_offsets + 1
    distances = 0
    if {model.stack("encoder").score, model.stack("decoder").score} & {"relative", "positions"}:
        distances = (2 * model.relative_span + 1) * (width // model.heads + 1)
    return blocks * (16 * width * width + 3 * width * inner) + rows * width + distances


def parameters_asked(config: Config, vocabulary: int, source_vocabulary: int | None = None) -> int:
    """Return the number of parameters of the model of a configuration, without allocating them.

    This imports torch, which takes seconds. Raises the same errors as `build_model`.
    """
    with torch.device("meta"):
        return count_parameters(build_model(config, vocabulary, source_vocabulary))


# --- Initial weights of linear layers and embeddings.
#
#                        xavier               fairseq                        normal
#     query, key, value  Xavier, zero bias    Xavier / sqrt(2), default bias N(0, 0.02), zero bias
#     attention output   Xavier, zero bias    Xavier, zero bias              N(0, 0.02), zero bias
#     feed-forward       Xavier, zero bias    default                        N(0, 0.02), zero bias
#     gates and others   Xavier, zero bias    Xavier, zero bias              N(0, 0.02), zero bias
#     embedding [V, D]   N(0, 1 / sqrt(D))    N(0, 1 / sqrt(D))              N(0, 0.02)
#
# `N(m, s)` is the normal distribution with standard deviation s. Xavier is the uniform distribution of Glorot
# and Bengio 2010, for each square part of a fused projection. `default` is the default of torch: uniform
# within 1 / sqrt(fan-in), also for biases. `fairseq` is the initialisation of that toolkit since version
# 0.10, which the authors of G-Transformer used. `normal` is the initialisation of Marian models in Hugging
# Face's transformers. Learned positions are drawn like embeddings. Vectors that must have no effect at first
# are zero in all three. These are segment embeddings, relative positions, biases of relative attention and of
# the output layer.


Initialisation = Literal["xavier", "fairseq", "normal"]

STANDARD_DEVIATION = 0.02  # of `normal`
# Names of the modules that project to queries, keys, values.
ATTENTION_INPUTS = ("qkv", "query", "key_value", "place")
FEED_FORWARD = ("widen", "narrow")
EMBEDDINGS = (
    "embedding.weight",
    "embedding.source_weight",
    "embedding.source_positions.weight",
    "embedding.target_positions.weight",
)


def initialise(model: nn.Module, kind: Initialisation) -> None:
    """Draw all linear layers from torch's global generator; for `normal`, also the embeddings."""
    if all(parameter.is_meta for parameter in model.parameters()):
        return  # only shapes are needed
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            _initialise_linear(module, name.rpartition(".")[2], kind)
    if kind == "normal":
        for name, parameter in model.named_parameters():
            if name in EMBEDDINGS:
                nn.init.normal_(parameter, std=STANDARD_DEVIATION)


def _initialise_linear(linear: nn.Linear, role: str, kind: Initialisation) -> None:
    if kind == "fairseq" and role in FEED_FORWARD:
        linear.reset_parameters()
        return
    if kind == "normal":
        nn.init.normal_(linear.weight, std=STANDARD_DEVIATION)
    else:
        gain = math.sqrt(0.5) if kind == "fairseq" and role in ATTENTION_INPUTS else 1.0
        # A fused projection is drawn part by part, as separate square matrices.
        parts = linear.weight.size(0) // linear.weight.size(1) if role in ATTENTION_INPUTS else 1
        for part in linear.weight.chunk(parts):
            nn.init.xavier_uniform_(part, gain)
    if linear.bias is None:
        return
    if kind == "fairseq" and role in ATTENTION_INPUTS:
        bound = linear.in_features**-0.5
        nn.init.uniform_(linear.bias, -bound, bound)
    else:
        nn.init.zeros_(linear.bias)
