"""M2M-100, NLLB-200 and mBART-50 models of Hugging Face: models of fairseq with one symbol per language.

All models are pre-norm, with a norm at the top of both stacks, and count positions from 2. M2M-100 and
NLLB-200 have sinusoids. mBART-50 has learned positions, norms of embeddings on both sides, and a zero bias of
the output layer. The decoder starts with `</s>`.
"""

from collections.abc import Mapping
from pathlib import Path

from cotext.data.tokenizer import (
    M2M100_LANGUAGES,
    MBART50_LANGUAGES,
    FairseqTokenizer,
    LanguageChoice,
    language_symbols,
)
from cotext.interchange import bart
from cotext.interchange.foreign import (
    ForeignModel,
    Part,
    Settings,
    VocabularyRows,
    language_pair,
    make_config,
    read_files,
)
from cotext.interchange.tensors import open_folder

MODEL, VOCABULARY = "sentencepiece.bpe.model", "vocab.json"
DESCRIPTIONS = ("tokenizer.json", "added_tokens.json", "special_tokens_map.json")
FIRST_POSITION = 2


def open_m2m100(folder: Path, languages: LanguageChoice) -> ForeignModel:
    """Open an M2M-100 or NLLB-200 model in a folder; raise CotextError if it is not supported."""
    return _opened("M2M100ForConditionalGeneration", folder, {}, languages)


def open_mbart(folder: Path, languages: LanguageChoice) -> ForeignModel:
    """Open an mBART-50 model in a folder; raise CotextError if it is not supported."""
    return _opened("MBartForConditionalGeneration", folder, mbart_parts(), languages)


def mbart_parts() -> dict[str, Part]:
    """Return the parts of mBART outside the stacks: learned positions and norms of embeddings."""
    parts: dict[str, Part] = {}
    for side, own in (("encoder", "source"), ("decoder", "target")):
        parts[f"embedding.{own}_positions.weight"] = Part((f"model.{side}.embed_positions.weight",))
        parts |= bart.module(f"embedding.{own}_norm", f"model.{side}.layernorm_embedding")
    return parts


def _opened(kind: str, folder: Path, parts: Mapping[str, Part], languages: LanguageChoice) -> ForeignModel:
    """Open a model of a class with the given `parts` outside the stacks."""
    settings, learned = Settings.read(folder / bart.CONFIG), bool(parts)
    scaled = "embeddings are scaled by the root of their width here"
    settings.require("scale_embedding", True, not learned, scaled)
    tensors = open_folder(folder)
    settings.require("tie_word_embeddings", True, True, "the target's embedding is the output layer here")
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
    end, start = settings.whole("eos_token_id", 2), bart.start_symbol(folder, settings)
    target = VocabularyRows.of(tokenizer, tokenizer.rows, count, start, end, settings.where)
    matrix, copies = bart.matrix_parts(tensors.shapes, target)
    model = {**bart.sizes(settings), "pre_norm": True, "first_position": FIRST_POSITION}
    if learned:
        rows = settings.whole("max_position_embeddings", 1024) + FIRST_POSITION
        model |= {"position_encoding": "learned", "learned_positions": rows, "embedding_norm": True}
    else:
        copies |= frozenset((*bart.TABLES, "model.encoder.embed_positions.weights"))
    layers = bart.layer_parts(model["encoder_layers"], model["decoder_layers"], final_norm=True)
    config = make_config(model, bart.decoding(folder, settings), language_pair(languages), settings.where)
    return ForeignModel(
        kind,
        config,
        tokenizer,
        tensors,
        {**matrix, **parts, **layers},
        target.part(bart.BIAS) if bart.BIAS in tensors.shapes else None,
        target.absent(tokenizer),
        copies,
        (folder / bart.CONFIG, *(folder / name for name in files), *tensors.files),
    )
