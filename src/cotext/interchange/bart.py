"""Models of Hugging Face's BART family: Marian (OPUS-MT), M2M-100, NLLB-200 and mBART-50.

Marian: post-norm, sinusoids with the wavelengths of Vaswani et al. 2017, a bias of the output layer. The
decoder starts with `<pad>`, whose vector is zero.

The others are models of fairseq with one symbol per language: pre-norm, with a norm at the top of both
stacks, and positions from 2. M2M-100 and NLLB-200 have sinusoids. mBART-50 has learned positions, norms of
embeddings on both sides, and a zero bias of the output layer. The decoder starts with `</s>`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from cotext.data.tokenizer import (
    M2M100_LANGUAGES,
    MBART50_LANGUAGES,
    FairseqTokenizer,
    LanguageChoice,
    MarianTokenizer,
    language_symbols,
)
from cotext.interchange.foreign import (
    NO_ROW,
    ForeignModel,
    Part,
    Settings,
    Tensors,
    VocabularyRows,
    language_pair,
    make_config,
    open_folder,
    read_files,
)
from cotext.layers.positions import sinusoidal
from cotext.runtime import CotextError

CONFIG, GENERATION = "config.json", "generation_config.json"
BIAS = "final_logits_bias"
# Why a setting has only one supported value.
OUTPUT_IS_TIED = "the target's embedding is the output layer here"
IS_SCALED = "embeddings are scaled by the root of their width here"
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
            parts |= module(f"{own}.attention.qkv", *(f"{foreign}.self_attn.{x}_proj" for x in "qkv"))
            parts |= module(f"{own}.attention.out", f"{foreign}.self_attn.out_proj")
            parts |= module(f"{own}.after_attention.norm", f"{foreign}.self_attn_layer_norm")
            if side == "decoder":
                parts |= module(f"{own}.cross.query", f"{foreign}.encoder_attn.q_proj")
                parts |= module(f"{own}.cross.key_value", *(f"{foreign}.encoder_attn.{x}_proj" for x in "kv"))
                parts |= module(f"{own}.cross.out", f"{foreign}.encoder_attn.out_proj")
                parts |= module(f"{own}.after_cross.norm", f"{foreign}.encoder_attn_layer_norm")
            parts |= module(f"{own}.feed_forward.widen", f"{foreign}.fc1")
            parts |= module(f"{own}.feed_forward.narrow", f"{foreign}.fc2")
            parts |= module(f"{own}.after_feed_forward.norm", f"{foreign}.final_layer_norm")
        if final_norm:
            parts |= module(f"{side}_norm", f"model.{side}.layer_norm")
    return parts


def module(own: str, *there: str) -> dict[str, Part]:
    """Return weight and bias of a module, concatenated from the modules `there`."""
    return {f"{own}.{kind}": Part(tuple(f"{name}.{kind}" for name in there)) for kind in ("weight", "bias")}


# --- Marian.


MOST_POSITIONS = 1 << 16
TABLE_TOLERANCE = 0.01  # for tables in half precision
# Settings with their only supported values in the class of Hugging Face.
FIXED = {
    "normalize_before": (False, "this class normalises after its layers"),
    "normalize_embedding": (False, "this class has no norm of embeddings"),
    "add_final_layer_norm": (False, "this class has no norm at the top"),
    "static_position_embeddings": (True, "this class has only sinusoids"),
    "tie_word_embeddings": (True, OUTPUT_IS_TIED),
    "scale_embedding": (True, IS_SCALED),
}


def _require_sinusoids(tensors: Tensors) -> None:
    """Raise CotextError if the position tables of a file, if any, are not the expected sinusoids."""
    for name in TABLES:
        if len(shape := tensors.shapes.get(name, ())) != 2:
            continue
        if shape[0] > MOST_POSITIONS:
            raise CotextError(f"{tensors.where}: {name} has {shape[0]:,} rows, more than positions can be")
        difference = (tensors.read(name).float() - sinusoidal(torch.arange(shape[0]), shape[1], "half")).abs()
        if not bool((difference < TABLE_TOLERANCE).all()):
            raise CotextError(
                f"{tensors.where}: {name} does not contain sinusoids, the only positions of this class"
            )


def open_marian(folder: Path, languages: LanguageChoice) -> ForeignModel:
    """Open a MarianMTModel in a folder; raise CotextError if it is not supported."""
    settings = Settings.read(folder / CONFIG)
    for key, (value, why) in FIXED.items():
        settings.require(key, value, False if key == "scale_embedding" else value, why)
    tensors = open_folder(folder)
    _require_sinusoids(tensors)
    separate = not settings.flag("share_encoder_decoder_embeddings", True)
    files = read_files(folder, MarianTokenizer.required, MarianTokenizer.optional)
    rows = settings.whole("vocab_size")
    target_rows = settings.whole("decoder_vocab_size", rows)
    two = "target_vocab.json" in files
    if two and not separate:
        settings.require("share_encoder_decoder_embeddings", False, True, "there is a target_vocab.json")
    tokenizer = MarianTokenizer.from_files(
        files["source.spm"],
        files["target.spm"],
        files["vocab.json"],
        files.get("target_vocab.json"),
        rows=rows,
        target_rows=target_rows if two else None,
        target_language=languages.target,
    )
    end, start = settings.whole("eos_token_id", 0), start_symbol(folder, settings)
    target = VocabularyRows.of(tokenizer, tokenizer.rows, target_rows, start, end, settings.where)
    source = None
    if separate:
        source = VocabularyRows.of(tokenizer, tokenizer.source_rows, rows, NO_ROW, end, settings.where)
    parts, copies = matrix_parts(tensors.shapes, target, source)
    model = sizes(settings)
    parts |= layer_parts(model["encoder_layers"], model["decoder_layers"], final_norm=False)
    config = make_config(
        {**model, "wavelengths": "half", "separate_embeddings": separate},
        decoding(folder, settings),
        language_pair(languages, files.get("tokenizer_config.json")),
        settings.where,
    )
    return ForeignModel(
        "MarianMTModel",
        config,
        tokenizer,
        tensors,
        parts,
        target.part(BIAS) if BIAS in tensors.shapes else None,
        target.absent(tokenizer),
        copies | frozenset(TABLES),
        (folder / CONFIG, *(folder / name for name in files), *tensors.files),
    )


# --- M2M-100, NLLB-200 and mBART-50.


MODEL, VOCABULARY = "sentencepiece.bpe.model", "vocab.json"
DESCRIPTIONS = ("tokenizer.json", "added_tokens.json", "special_tokens_map.json")
FIRST_POSITION = 2


def mbart_parts() -> dict[str, Part]:
    """Return the parts of mBART outside the stacks: learned positions and norms of embeddings."""
    parts: dict[str, Part] = {}
    for side, own in (("encoder", "source"), ("decoder", "target")):
        parts[f"embedding.{own}_positions.weight"] = Part((f"model.{side}.embed_positions.weight",))
        parts |= module(f"embedding.{own}_norm", f"model.{side}.layernorm_embedding")
    return parts


def open_fairseq(folder: Path, languages: LanguageChoice, learned: bool) -> ForeignModel:
    """Open an mBART-50 model, which has `learned` positions, or an M2M-100 or NLLB-200 model.

    Raises:
        CotextError: the model is not supported.
    """
    settings = Settings.read(folder / CONFIG)
    kind = f"{'MBart' if learned else 'M2M100'}ForConditionalGeneration"
    parts = mbart_parts() if learned else {}
    settings.require("scale_embedding", True, not learned, IS_SCALED)
    tensors = open_folder(folder)
    settings.require("tie_word_embeddings", True, True, OUTPUT_IS_TIED)
    files = read_files(folder, (MODEL,), (VOCABULARY, *DESCRIPTIONS))
    count = settings.whole("vocab_size")
    fallback = MBART50_LANGUAGES if learned else M2M100_LANGUAGES if VOCABULARY in files else ()
    described = {name: files[name] for name in (*DESCRIPTIONS, "tokenizer_config.json") if name in files}
    tokenizer = FairseqTokenizer.from_files(
        files[MODEL],
        languages=language_symbols(described) or fallback,
        vocabulary=files.get(VOCABULARY),
        rows=count,
        source_language=languages.source,
        target_language=languages.target,
    )
    end, start = settings.whole("eos_token_id", 2), start_symbol(folder, settings)
    target = VocabularyRows.of(tokenizer, tokenizer.rows, count, start, end, settings.where)
    matrix, copies = matrix_parts(tensors.shapes, target)
    model = {**sizes(settings), "pre_norm": True, "first_position": FIRST_POSITION}
    if learned:
        rows = settings.whole("max_position_embeddings", 1024) + FIRST_POSITION
        model |= {"position_encoding": "learned", "learned_positions": rows, "embedding_norm": True}
    else:
        copies |= frozenset((*TABLES, "model.encoder.embed_positions.weights"))
    layers = layer_parts(model["encoder_layers"], model["decoder_layers"], final_norm=True)
    config = make_config(model, decoding(folder, settings), language_pair(languages), settings.where)
    return ForeignModel(
        kind,
        config,
        tokenizer,
        tensors,
        {**matrix, **parts, **layers},
        target.part(BIAS) if BIAS in tensors.shapes else None,
        target.absent(tokenizer),
        copies,
        (folder / CONFIG, *(folder / name for name in files), *tensors.files),
    )
