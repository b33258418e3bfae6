"""Export of standard Transformers to CTranslate2, in float32 or quantized.

CTranslate2 supports standard attention over the whole sequence and absolute positions. It has no segment
embeddings. Other settings raise an error that names them. In the vocabularies of the export, tokens are
represented by their ids. CTranslate2 is an optional package.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from cotext.config.recipe import Config
from cotext.data.build import special_symbols
from cotext.interchange.bart import layer_parts, mbart_parts
from cotext.interchange.hub import published_config, published_data, write_data
from cotext.models.checkpoint import LoadedModel, load_run
from cotext.models.run_folder import (
    CTRANSLATE2,
    INSTALL,
    EngineDescription,
    describe_file,
    model_file,
    write_description,
)
from cotext.runtime import CotextError
from cotext.runtime.files import new_folder

QUANTIZATIONS: Final = ("float32", "int8", "int8_float32", "int8_float16", "float16")
STEP: Final = 1024  # the number of positions is rounded up to a multiple of this
MOST_EXTRA: Final = 64  # maximum number of sentences for which `decode.max_extra` positions are reserved


def installed() -> bool:
    """Return whether CTranslate2 is installed."""
    return find_spec("ctranslate2") is not None


def obstacles(config: Config) -> Iterator[str]:
    """Yield the settings of a system that CTranslate2 does not support, as key = value."""
    model, view = config.model, config.view
    plain = {
        "writes": ("left_to_right",),
        "reads_source": (True,),
        "batch_context": ("none",),
        "context_encoder": ("none",),
        "document_layer": ("none",),
        "positions": ("absolute", "none"),
        "target_positions": (None, "absolute", "none"),
        "segments": ("none",),
        "target_segments": (None, "none"),
        "source_sentences": (None,),
    }
    for key, expressible in plain.items():
        if (value := getattr(model, key)) not in expressible:
            yield f"model.{key} = {value}"
    for name in ("encoder", "decoder", "cross"):
        stack = model.stack(name)
        section = "attention" if stack == model.attention else name
        if stack.score != "content":
            yield f"model.{section}.score = {stack.score}"
        if stack.others != "joint":
            yield f"model.{section}.others = {stack.others}"
        for span in sorted(stack.spans - {"row"}):
            which = "span" if span == stack.span else "top.span"
            yield f"model.{section}.{which} = {span}"
    if view.separators == "numbered" or (view.separators == "bracket" and view.kind != "sentence"):
        yield f"view.separators = {view.separators}"


def further_parts(config: Config, names: Iterable[str]) -> Iterator[str]:
    """Yield the names of parameters that a standard Transformer does not have."""
    model = config.model
    plain = {"embedding.weight", "embedding.source_weight", "output_bias", *mbart_parts()}
    plain |= layer_parts(model.encoder_layers, model.decoder_layers, model.pre_norm).keys()
    yield from sorted(set(names) - plain)


def export_engine(run: Path, out: Path, quantization: str = "float32", update: int | None = None) -> None:
    """Export a run as an engine folder; raise CotextError if that is impossible, or `out` is not empty."""
    if quantization not in QUANTIZATIONS:
        raise CotextError(f"--quantization {quantization}: choose one of {', '.join(QUANTIZATIONS)}")
    if not installed():
        raise CotextError(f"--to ctranslate2 needs CTranslate2: {INSTALL}")
    config = describe_file(model_file(run, update)).config
    if settings := list(dict.fromkeys(obstacles(config))):
        raise CotextError(
            f"{run}: CTranslate2 does not support {', '.join(settings)}; it supports only standard "
            "Transformers. Export another run, or use --to hub, which supports every system"
        )
    loaded = load_run(run, update)
    if names := list(further_parts(loaded.config, loaded.with_states("cotext export").state_dict())):
        raise CotextError(
            f"{run}: CTranslate2 does not support these parameters of the model: {', '.join(names[:3])}"
        )
    with new_folder(out) as temporary:
        write_engine(loaded, quantization, temporary, published_data(run))


def write_engine(loaded: LoadedModel, quantization: str, folder: Path, data: Mapping[str, Any]) -> None:
    """Write a new engine folder; `data` is the description of the training data, if there is one."""
    write_weights(loaded, quantization, folder)
    loaded.tokenizer.save(folder / "tokenizer")
    write_data(folder, data)
    description = EngineDescription(
        engine=CTRANSLATE2,
        version=version("ctranslate2"),
        quantization=quantization,
        config=_config(loaded.config),
        fingerprint=loaded.tokenizer.fingerprint,
        updates=loaded.updates,
        positions=positions_for(loaded.config),
        parameters=loaded.parameters,
    )
    write_description(folder, description)


def write_weights(loaded: LoadedModel, quantization: str, folder: Path) -> None:
    """Write only the files of the engine into a new folder."""
    spec = _spec(loaded)
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    folder.mkdir()
    spec.save(str(folder))


def positions_for(config: Config) -> int:
    """Return the number of positions for the longest expected source and target sequences."""
    view, decode = config.view, config.decode
    symbols = 2 if view.bracketed else 1
    if view.kind == "sentence":
        sentences = 1
    elif view.kind == "window":
        sentences = view.before + 1 + view.after
    else:
        sentences = view.max_sentences or view.max_tokens // 2
    source = max(view.max_tokens, decode.max_source_tokens + symbols)
    target = int(decode.max_ratio * source) + min(sentences, MOST_EXTRA) * decode.max_extra
    return -(-max(source, target) // STEP) * STEP


def _config(config: Config) -> Config:
    """Return the published configuration in float32 without shortlist, for this engine.

    `first_pass = init` is replaced by the path of that run.
    """
    changed: dict[str, Any] = {"precision": "float32", "shortlist": 0, "engine": "auto"}
    if config.decode.first_pass == "init":
        changed["first_pass"] = config.train.init
    decode = config.decode.model_copy(update=changed)
    return published_config(config).model_copy(update={"decode": decode})


def _spec(loaded: LoadedModel) -> Any:
    """Convert the model to a CTranslate2 spec.

    Cotext and CTranslate2 fuse the same projections (QKV; KV in cross-attention), so weights are copied.
    """
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation

    activations = {
        "relu": Activation.RELU,
        "swish": Activation.SWISH,
        "gelu": Activation.GELU,
        "gelu_sigmoid": Activation.GELUSigmoid,
    }
    config = loaded.config.model
    model: Any = copy.deepcopy(loaded.model)  # the conversion changes weights in place
    encoder, decoder = model.encoder, model.decoder
    spec = TransformerSpec.from_config(
        (len(encoder), len(decoder)),
        config.heads,
        pre_norm=config.pre_norm,
        activation=activations[config.activation],
        layernorm_embedding=config.embedding_norm,
    )
    for side, blocks in ((spec.encoder, encoder), (spec.decoder, decoder)):
        for layer, block in zip(side.layer, blocks, strict=True):
            _put_block(layer, block)
    if config.pre_norm:
        _put_norm(spec.encoder.layer_norm, model.encoder_norm)
        _put_norm(spec.decoder.layer_norm, model.decoder_norm)
    _put_embeddings(spec, model, positions_for(loaded.config))
    _put_symbols(spec, loaded)
    return spec


def _put(to: Any, module: nn.Module) -> None:
    to.weight, to.bias = (module.get_parameter(name).detach().numpy() for name in ("weight", "bias"))


def _put_norm(to: Any, norm: nn.Module) -> None:
    to.gamma, to.beta = (norm.get_parameter(name).detach().numpy() for name in ("weight", "bias"))


def _put_block(to: Any, block: Any) -> None:
    """Set the weights of an encoder block or of a decoder block; only the latter has cross-attention."""
    _put(to.self_attention.linear[0], block.attention.qkv)
    _put(to.self_attention.linear[1], block.attention.out)
    _put_norm(to.self_attention.layer_norm, block.after_attention.norm)
    if block.cross is not None:
        modules = block.cross.query, block.cross.key_value, block.cross.out
        for linear, module in zip(to.attention.linear, modules, strict=True):
            _put(linear, module)
        _put_norm(to.attention.layer_norm, block.after_cross.norm)
    _put(to.ffn.linear_0, block.feed_forward.widen)
    _put(to.ffn.linear_1, block.feed_forward.narrow)
    _put_norm(to.ffn.layer_norm, block.after_feed_forward.norm)


def _put_embeddings(spec: Any, model: Any, rows: int) -> None:
    """Set the embeddings of tokens and positions, which CTranslate2 scales and adds in the same way."""
    embedding = model.embedding
    spec.encoder.embeddings[0].weight = embedding.weight_of("source").detach().numpy()
    spec.decoder.embeddings.weight = spec.decoder.projection.weight = model.output_weight.detach().numpy()
    if model.output_bias is not None:
        spec.decoder.projection.bias = model.output_bias.detach().numpy()
    for side, name in ((spec.encoder, "source"), (spec.decoder, "target")):
        encoded = embedding.encoding(name)(torch.arange(rows)[None])[0].detach().numpy()
        kind = getattr(embedding, name)
        side.position_encodings.encodings = encoded if kind.positions == "absolute" else 0 * encoded
        if (norm := getattr(embedding, f"{name}_norm")) is not None:
            _put_norm(side.layernorm_embedding, norm)


def _put_symbols(spec: Any, loaded: LoadedModel) -> None:
    """Represent tokens by their ids in the vocabularies; CTranslate2 must not add symbols to sequences."""
    spec.register_source_vocabulary([str(i) for i in range(len(spec.encoder.embeddings[0].weight))])
    spec.register_target_vocabulary([str(i) for i in range(len(spec.decoder.embeddings.weight))])
    symbols = special_symbols(loaded.tokenizer, loaded.config.view)
    spec.config.bos_token = spec.config.decoder_start_token = str(symbols.bos)
    spec.config.eos_token, spec.config.unk_token = str(symbols.eos), str(loaded.tokenizer.unk)
    spec.config.add_source_bos = spec.config.add_source_eos = False
