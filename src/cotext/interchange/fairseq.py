"""M2M-100, NLLB-200 and mBART-50 as Hugging Face keeps them: models of fairseq, with a symbol per language.

All are pre-norm, with a norm at the top of both stacks, and count positions from 2. M2M-100 and NLLB-200 have
sinusoids; mBART-50 has learned positions, a norm of embeddings on either side, and a bias of the output layer
(zeros). The decoder starts with `</s>`.
"""

from collections.abc import Mapping
from pathlib import Path

from cotext.data.tokenizer import (
    M2M100_LANGUAGES,
    MBART50_LANGUAGES,
    FairseqTokenizer,
    language_symbols,
)
from cotext.interchange import bart
from cotext.interchange.foreign import (
    ForeignModel,
    LanguagePair,
    Part,
    Settings,
    VocabularyRows,
    make_config,
    read_files,
)
from cotext.interchange.tensors import Tensors, open_folder

MODEL, VOCABULARY = "sentencepiece.bpe.model", "vocab.json"
DESCRIPTIONS = ("tokenizer.json", "added_tokens.json", "special_tokens_map.json")
FIRST_POSITION = 2


def open_m2m100(folder: Path, languages: LanguagePair) -> ForeignModel:
    """An M2M100ForConditionalGeneration in a folder: M2M-100 or NLLB-200.

    Raises:
        CotextError: missing or foreign files, and settings that are not known here, by name.
    """
    settings = Settings.read(folder / bart.CONFIG)
    settings.require("scale_embedding", True, True, "embeddings are scaled by the root of their width here")
    tensors = open_folder(folder)
    return _opened("M2M100ForConditionalGeneration", folder, settings, tensors, {}, languages)


def open_mbart(folder: Path, languages: LanguagePair) -> ForeignModel:
    """An MBartForConditionalGeneration in a folder: mBART-50.

    Raises:
        CotextError: as `open_m2m100`.
    """
    settings = Settings.read(folder / bart.CONFIG)
    settings.require("scale_embedding", True, False, "embeddings are scaled by the root of their width here")
    tensors = open_folder(folder)
    return _opened("MBartForConditionalGeneration", folder, settings, tensors, mbart_parts(), languages)


def mbart_parts() -> dict[str, Part]:
    """What mBART has beside the stacks: learned positions and norms of embeddings."""
    parts: dict[str, Part] = {}
    for side, own in (("encoder", "source"), ("decoder", "target")):
        parts[f"embedding.{own}_positions.weight"] = Part((f"model.{side}.embed_positions.weight",))
        parts |= bart.module(f"embedding.{own}_norm", f"model.{side}.layernorm_embedding")
    return parts


def _opened(
    kind: str,
    folder: Path,
    settings: Settings,
    tensors: Tensors,
    parts: Mapping[str, Part],
    languages: LanguagePair,
) -> ForeignModel:
    """The model with the `parts` that its class has beside the stacks."""
    settings.require("tie_word_embeddings", True, True, "the target's embedding is the output layer here")
    files = read_files(folder, (MODEL,), (VOCABULARY, *DESCRIPTIONS))
    count, learned = settings.whole("vocab_size"), bool(parts)
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
    config = make_config(model, bart.decoding(folder, settings), languages.of_tokenizer(None), settings.where)
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
