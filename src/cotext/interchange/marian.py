"""MarianMT models of Hugging Face (OPUS-MT): config.json, weights, two sentencepiece models, vocab.json.

Post-norm, sinusoids with the wavelengths of Vaswani et al. 2017, a bias of the output layer. The decoder
starts with `<pad>`, whose vector is zero.
"""

from pathlib import Path

import torch

from cotext.data.tokenizer import LanguageChoice, MarianTokenizer
from cotext.interchange import bart
from cotext.interchange.foreign import (
    NO_ROW,
    ForeignModel,
    Settings,
    VocabularyRows,
    language_pair,
    make_config,
    read_files,
)
from cotext.interchange.tensors import Tensors, open_folder
from cotext.layers.positions import sinusoidal
from cotext.runtime.errors import CotextError

MOST_POSITIONS = 1 << 16
TABLE_TOLERANCE = 0.01  # for tables in half precision
# Settings with their only supported values in the class of Hugging Face.
FIXED = {
    "normalize_before": (False, "this class normalises after its layers"),
    "normalize_embedding": (False, "this class has no norm of embeddings"),
    "add_final_layer_norm": (False, "this class has no norm at the top"),
    "static_position_embeddings": (True, "this class has sinusoids alone"),
    "tie_word_embeddings": (True, "the target's embedding is the output layer here"),
    "scale_embedding": (True, "embeddings are scaled by the root of their width here"),
}


def _require_sinusoids(tensors: Tensors) -> None:
    """Raise CotextError if the position tables of a file, if any, are not the expected sinusoids."""
    for name in bart.TABLES:
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
    settings = Settings.read(folder / bart.CONFIG)
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
    end, start = settings.whole("eos_token_id", 0), bart.start_symbol(folder, settings)
    target = VocabularyRows.of(tokenizer, tokenizer.rows, target_rows, start, end, settings.where)
    source = None
    if separate:
        source = VocabularyRows.of(tokenizer, tokenizer.source_rows, rows, NO_ROW, end, settings.where)
    parts, copies = bart.matrix_parts(tensors.shapes, target, source)
    model = bart.sizes(settings)
    parts |= bart.layer_parts(model["encoder_layers"], model["decoder_layers"], final_norm=False)
    config = make_config(
        {**model, "wavelengths": "half", "separate_embeddings": separate},
        bart.decoding(folder, settings),
        language_pair(languages, files.get("tokenizer_config.json")),
        settings.where,
    )
    return ForeignModel(
        "MarianMTModel",
        config,
        tokenizer,
        tensors,
        parts,
        target.part(bart.BIAS) if bart.BIAS in tensors.shapes else None,
        target.absent(tokenizer),
        copies | frozenset(bart.TABLES),
        (folder / bart.CONFIG, *(folder / name for name in files), *tensors.files),
    )
