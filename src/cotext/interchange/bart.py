"""Common properties of the models of Hugging Face's BART family: names of tensors, sizes, ids."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cotext.interchange.foreign import Part, Settings, VocabularyRows
from cotext.runtime.errors import CotextError

CONFIG, GENERATION = "config.json", "generation_config.json"
BIAS = "final_logits_bias"
ACTIVATIONS = {"relu": "relu", "swish": "swish", "silu": "swish", "gelu": "gelu"}
# Copies of the shared embedding that a file may contain, and tables of sinusoids.
TIED = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
TABLES = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
SHARED = "model.shared.weight"


def sizes(settings: Settings) -> dict[str, Any]:
    """Return the keys of `model` that define sizes; raise CotextError for missing or different widths."""
    for key in ("attention_heads", "ffn_dim"):
        decoder = settings.whole(f"decoder_{key}")
        settings.require(f"encoder_{key}", decoder, decoder, "encoder and decoder must have the same width")
    return {
        "dimension": settings.whole("d_model"),
        "feed_forward": settings.whole("decoder_ffn_dim"),
        "heads": settings.whole("decoder_attention_heads"),
        "encoder_layers": settings.whole("encoder_layers"),
        "decoder_layers": settings.whole("decoder_layers"),
        "dropout": settings.number("dropout", 0.1),
        "attention_dropout": settings.number("attention_dropout", 0.0),
        "activation_dropout": settings.number("activation_dropout", 0.0),
        "activation": settings.choice("activation_function", ACTIVATIONS),
    }


def decoding(folder: Path, settings: Settings) -> dict[str, Any]:
    """Return the keys of the section `decode`: beam and length penalty that the folder recommends."""
    given = generation(folder)
    beam = given.whole("num_beams", settings.whole("num_beams", 4))
    penalty = given.number("length_penalty", settings.number("length_penalty", 1.0))
    return {"beam": beam, "length_penalty": penalty}


def generation(folder: Path) -> Settings:
    """Return the decoding settings of the folder; an empty dict if it has none."""
    path = folder / GENERATION
    return Settings.read(path) if path.exists() else Settings({}, str(path))


def start_symbol(folder: Path, settings: Settings) -> int:
    """Return the row with which the decoder starts; raise CotextError if the folder does not define it."""
    for source in (settings, generation(folder)):
        if source.content.get("decoder_start_token_id") is not None:
            start = source.whole("decoder_start_token_id")
            if start < 0:
                raise CotextError(f"{source.where}: decoder_start_token_id is {start}; it must be a row")
            return start
    raise CotextError(
        f"{settings.where}: decoder_start_token_id is missing: decoders that start with the language are "
        "not supported"
    )


def matrix_parts(
    tensors: Mapping[str, Any], target: VocabularyRows, source: VocabularyRows | None = None
) -> tuple[dict[str, Part], frozenset[str]]:
    """Return the embeddings and the names of their copies; `source` if that side has its own."""
    if source is None:
        name = next((copy for copy in (SHARED, *reversed(TIED)) if copy in tensors), SHARED)
        return {"embedding.weight": target.part(name)}, frozenset({SHARED, *TIED} - {name})
    encoder, decoder, head = TIED
    name = decoder if decoder in tensors else head
    parts = {"embedding.weight": target.part(name), "embedding.source_weight": source.part(encoder)}
    return parts, frozenset({SHARED, *TIED} - {name, encoder})


def layer_parts(encoder_layers: int, decoder_layers: int, final_norm: bool) -> dict[str, Part]:
    """Return all parameters of both stacks."""
    parts: dict[str, Part] = {}
    for side, layers in (("encoder", encoder_layers), ("decoder", decoder_layers)):
        for i in range(layers):
            own, foreign = f"{side}.{i}", f"model.{side}.layers.{i}"
            parts |= _attention(f"{own}.attention", f"{foreign}.self_attn", fused=("qkv", "qkv"))
            parts |= module(f"{own}.after_attention.norm", f"{foreign}.self_attn_layer_norm")
            if side == "decoder":
                parts |= _attention(f"{own}.cross", f"{foreign}.encoder_attn", fused=("query", "q"))
                keys = tuple(f"{foreign}.encoder_attn.{letter}_proj" for letter in "kv")
                parts |= module(f"{own}.cross.key_value", *keys)
                parts |= module(f"{own}.after_cross.norm", f"{foreign}.encoder_attn_layer_norm")
            parts |= module(f"{own}.feed_forward.widen", f"{foreign}.fc1")
            parts |= module(f"{own}.feed_forward.narrow", f"{foreign}.fc2")
            parts |= module(f"{own}.after_feed_forward.norm", f"{foreign}.final_layer_norm")
        if final_norm:
            parts |= module(f"{side}_norm", f"model.{side}.layer_norm")
    return parts


def _attention(own: str, foreign: str, fused: tuple[str, str]) -> Iterator[tuple[str, Part]]:
    name, letters = fused
    yield from module(f"{own}.{name}", *(f"{foreign}.{letter}_proj" for letter in letters)).items()
    yield from module(f"{own}.out", f"{foreign}.out_proj").items()


def module(own: str, *there: str) -> dict[str, Part]:
    """Return weight and bias of a module, concatenated from the modules `there`."""
    return {f"{own}.{kind}": Part(tuple(f"{name}.{kind}" for name in there)) for kind in ("weight", "bias")}
