"""What the models of Hugging Face's BART family have in common: names of tensors, sizes, ids."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cotext.interchange.foreign import Part, Settings, VocabularyRows
from cotext.runtime.errors import CotextError

CONFIG, GENERATION = "config.json", "generation_config.json"
BIAS = "final_logits_bias"
ACTIVATIONS = {"relu": "relu", "swish": "swish", "silu": "swish", "gelu": "gelu"}
# Copies that a file may hold of its one matrix, and tables of sinusoids.
TIED = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
TABLES = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
SHARED = "model.shared.weight"


def sizes(settings: Settings) -> dict[str, Any]:
    """Keys of the section `model` that say how large it is.

    Raises:
        CotextError: a missing or foreign value, or stacks of different widths.
    """
    for key in ("attention_heads", "ffn_dim"):
        decoder = settings.whole(f"decoder_{key}")
        settings.require(f"encoder_{key}", decoder, decoder, "both stacks are of one width here")
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
    """Keys of the section `decode`: beam and length penalty, as the folder recommends."""
    given = generation(folder)
    beam = given.whole("num_beams", settings.whole("num_beams", 4))
    penalty = given.number("length_penalty", settings.number("length_penalty", 1.0))
    return {"beam": beam, "length_penalty": penalty}


def generation(folder: Path) -> Settings:
    """What the folder says of decoding; nothing where it does not."""
    path = folder / GENERATION
    return Settings.read(path) if path.exists() else Settings({}, str(path))


def start_symbol(folder: Path, settings: Settings) -> int:
    """The row with which the decoder starts.

    Raises:
        CotextError: the folder does not tell.
    """
    for each in (settings, generation(folder)):
        if each.content.get("decoder_start_token_id") is not None:
            start = each.whole("decoder_start_token_id")
            if start < 0:
                raise CotextError(f"{each.where}: decoder_start_token_id is {start}; it must be a row")
            return start
    raise CotextError(
        f"{settings.where}: decoder_start_token_id is not given: a decoder that starts with the language is "
        "not known here"
    )


def matrix_parts(
    tensors: Mapping[str, Any], target: VocabularyRows, source: VocabularyRows | None = None
) -> tuple[dict[str, Part], frozenset[str]]:
    """The embeddings, and the names of their copies; `source` where that side has its own."""
    if source is None:
        name = next((each for each in (SHARED, *reversed(TIED)) if each in tensors), SHARED)
        return {"embedding.weight": target.part(name)}, frozenset({SHARED, *TIED} - {name})
    encoder, decoder, head = TIED
    name = decoder if decoder in tensors else head
    parts = {"embedding.weight": target.part(name), "embedding.source_weight": source.part(encoder)}
    return parts, frozenset({SHARED, *TIED} - {name, encoder})


def layer_parts(encoder_layers: int, decoder_layers: int, final_norm: bool) -> dict[str, Part]:
    """All parameters of both stacks."""
    found: dict[str, Part] = {}
    for side, layers in (("encoder", encoder_layers), ("decoder", decoder_layers)):
        for i in range(layers):
            own, there = f"{side}.{i}", f"model.{side}.layers.{i}"
            found |= _attention(f"{own}.attention", f"{there}.self_attn", fused=("qkv", "qkv"))
            found |= module(f"{own}.after_attention.norm", f"{there}.self_attn_layer_norm")
            if side == "decoder":
                found |= _attention(f"{own}.cross", f"{there}.encoder_attn", fused=("query", "q"))
                keys = tuple(f"{there}.encoder_attn.{letter}_proj" for letter in "kv")
                found |= module(f"{own}.cross.key_value", *keys)
                found |= module(f"{own}.after_cross.norm", f"{there}.encoder_attn_layer_norm")
            found |= module(f"{own}.feed_forward.widen", f"{there}.fc1")
            found |= module(f"{own}.feed_forward.narrow", f"{there}.fc2")
            found |= module(f"{own}.after_feed_forward.norm", f"{there}.final_layer_norm")
        if final_norm:
            found |= module(f"{side}_norm", f"model.{side}.layer_norm")
    return found


def _attention(own: str, there: str, fused: tuple[str, str]) -> Iterator[tuple[str, Part]]:
    name, letters = fused
    yield from module(f"{own}.{name}", *(f"{there}.{letter}_proj" for letter in letters)).items()
    yield from module(f"{own}.out", f"{there}.out_proj").items()


def module(own: str, *there: str) -> dict[str, Part]:
    """Weight and bias of a module, out of modules one below the other."""
    return {f"{own}.{kind}": Part(tuple(f"{name}.{kind}" for name in there)) for kind in ("weight", "bias")}
