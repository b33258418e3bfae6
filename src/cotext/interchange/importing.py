"""Import of pretrained sentence models: a folder of another toolkit becomes a run folder.

The run has the files that translation needs, and import.json with its origin and the result of the self-test.
The self-test compares token ids and logits of random subwords with those of `transformers`, which reads the
weights from the folder again.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from cotext.data.batch import Source
from cotext.data.documents import Languages
from cotext.data.tokenizer import (
    M2M100_LANGUAGES,
    MBART50_LANGUAGES,
    FairseqTokenizer,
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
    read_model,
)
from cotext.layers.positions import sinusoidal
from cotext.models.build import count_parameters
from cotext.models.checkpoint import LoadedModel, save_model
from cotext.models.describe import describe_model
from cotext.models.interface import Model, TranslationModel
from cotext.models.output_layer import output_logits
from cotext.models.run_folder import IMPORT, write_config
from cotext.runtime import CotextError, __version__, shown
from cotext.runtime.files import checksum, new_folder, require_new, sealed

# --- Models of Hugging Face's BART family: Marian (OPUS-MT), M2M-100, NLLB-200 and mBART-50.
#
# Marian: post-norm, sinusoids with the wavelengths of Vaswani et al. 2017, a bias of the output layer. The
# decoder starts with `<pad>`, whose vector is zero.
#
# The others are models of fairseq with one symbol per language: pre-norm, with a norm at the top of both
# stacks, and positions from 2. M2M-100 and NLLB-200 have sinusoids. mBART-50 has learned positions, norms of
# embeddings on both sides, and a zero bias of the output layer. The decoder starts with `</s>`.


CONFIG, GENERATION = "config.json", "generation_config.json"
BIAS = "final_logits_bias"
# Why a setting has only one supported value.
OUTPUT_IS_TIED = "in Cotext, the output layer is the target embedding"
IS_SCALED = "in Cotext, embeddings are scaled by the root of their width"
ACTIVATIONS = {"relu": "relu", "swish": "swish", "silu": "swish", "gelu": "gelu"}
# Copies of the shared embedding that a file may contain, and tables of sinusoids.
TIED = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
TABLES = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
SHARED = "model.shared.weight"


def sizes(settings: Settings) -> dict[str, Any]:
    """Return the keys of `model` that define sizes; raise CotextError for missing or different sizes."""
    for key in ("attention_heads", "ffn_dim"):
        decoder = settings.whole(f"decoder_{key}")
        settings.require(f"encoder_{key}", decoder, decoder, "encoder and decoder must have equal sizes")
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
    """Return the decoding settings of the folder, empty if it has none."""
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
    """Return embeddings, output bias, and names of copies; `source`: rows of a separate source embedding."""
    parts = {"output_bias": target.part(BIAS)} if BIAS in tensors else {}
    encoder, decoder, head = TIED
    if source is None:
        name = next((copy for copy in (SHARED, *reversed(TIED)) if copy in tensors), SHARED)
        copies = {SHARED, *TIED} - {name}
    else:
        name = decoder if decoder in tensors else head
        copies = {SHARED, *TIED} - {name, encoder}
        parts["embedding.source_weight"] = source.part(encoder)
    return {"embedding.weight": target.part(name), **parts}, frozenset(copies)


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
            raise CotextError(f"{tensors.where}: {name} has {shape[0]:,} rows, too many positions")
        difference = (tensors.read(name).float() - sinusoidal(torch.arange(shape[0]), shape[1], "half")).abs()
        if not bool((difference < TABLE_TOLERANCE).all()):
            raise CotextError(
                f"{tensors.where}: {name} does not contain sinusoids, the only positions of this class"
            )


def open_marian(folder: Path, languages: Languages) -> ForeignModel:
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
    config = make_config(
        {**sizes(settings), "wavelengths": "half", "separate_embeddings": separate},
        decoding(folder, settings),
        language_pair(languages, files.get("tokenizer_config.json")),
        settings.where,
    )
    parts |= layer_parts(config.model.encoder_layers, config.model.decoder_layers, final_norm=False)
    return ForeignModel(
        "MarianMTModel",
        config,
        tokenizer,
        tensors,
        parts,
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


def open_fairseq(folder: Path, languages: Languages, learned: bool) -> ForeignModel:
    """Open an mBART-50 model, which has `learned` positions, or an M2M-100 or NLLB-200 model.

    Raises CotextError: the model is not supported.
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
    # M2M-100 counts positions from its padding, mBART from 2.
    first = FIRST_POSITION if learned else settings.whole("pad_token_id", 1) + 1
    model = {**sizes(settings), "pre_norm": True, "first_position": first}
    if learned:
        rows = settings.whole("max_position_embeddings", 1024) + FIRST_POSITION
        model |= {"position_encoding": "learned", "learned_positions": rows, "embedding_norm": True}
    else:
        copies |= frozenset((*TABLES, "model.encoder.embed_positions.weights"))
    config = make_config(model, decoding(folder, settings), language_pair(languages), settings.where)
    layers = layer_parts(config.model.encoder_layers, config.model.decoder_layers, final_norm=True)
    return ForeignModel(
        kind,
        config,
        tokenizer,
        tensors,
        {**matrix, **parts, **layers},
        target.absent(tokenizer),
        copies,
        (folder / CONFIG, *(folder / name for name in files), *tensors.files),
    )


OPENERS: dict[str, Callable[[Path, Languages], ForeignModel]] = {
    "marian": open_marian,
    "m2m_100": partial(open_fairseq, learned=False),
    "mbart": partial(open_fairseq, learned=True),
}
LANGUAGES_SHOWN = 12


# --- The self-test.


TOLERANCE = 1e-3  # of logits, relative to the largest; half-precision weights cause differences of this size
SENTENCES = 8
PIECES = 12  # subwords of a source
WRITTEN = 9  # subwords of a target
SEED = 17


@dataclass(frozen=True, slots=True)
class SelfTest:
    """The results of the comparison; `skipped`: the reason why nothing was compared."""

    skipped: str = ""
    against: str = ""
    sentences: int = 0
    equal_ids: int = 0
    largest_difference: float = 0.0  # of logits
    largest_logit: float = 0.0

    def render(self) -> str:
        if self.skipped:
            return f"none: {self.skipped}"
        return (
            f"against {self.against}: ids of {self.equal_ids} of {self.sentences} sentences equal; logits "
            f"(up to {self.largest_logit:.1f}) differ by at most {self.largest_difference:.1e}"
        )


def run_self_test(folder: Path, foreign: ForeignModel, model: Model) -> SelfTest:
    """Compare an imported model with the model of `transformers`; raise CotextError if logits differ."""
    if find_spec("transformers") is None:
        return SelfTest("transformers is not installed (pip install '.[pretrained]' in Cotext's repository)")
    own = LoadedModel(model, foreign.config, foreign.tokenizer, [0]).left_to_right("the self-test")
    try:
        with torch.no_grad():
            other = _theirs(folder, foreign.kind, dtype=torch.float32).eval()
            result = _compare(foreign, own, other, _theirs(folder, "AutoTokenizer"))
    except Exception as error:  # another program, which may fail in any way
        reason = str(error).partition("\n")[0]
        return SelfTest(f"transformers {version('transformers')} fails on this folder: {reason}")
    if not result.largest_difference <= TOLERANCE * max(1.0, result.largest_logit):
        raise CotextError(
            f"{folder}: the self-test failed, nothing was written: {result.render()}; the model has "
            "a property that is not supported"
        )
    return result


def _theirs(folder: Path, kind: str, **options: Any) -> Any:
    """Load an object of the class `kind` with transformers; do not use the network or code of the folder."""
    import transformers

    messages: Any = transformers.logging
    messages.set_verbosity_error()
    messages.disable_progress_bar()
    given = {"local_files_only": True, "trust_remote_code": False, **options}
    return getattr(transformers, kind).from_pretrained(folder, **given)


def _compare(foreign: ForeignModel, model: TranslationModel, other: Any, other_tokenizer: Any) -> SelfTest:
    own, rows = foreign.tokenizer, foreign.symbol_rows
    source = foreign.parts.get("embedding.source_weight")
    source_rows = rows if source is None or source.rows is None else source.rows
    equal_ids, difference, largest = 0, 0.0, 0.0
    # Padding is never predicted; a bias may suppress it, which would dominate the comparison.
    compared = [i for i in range(len(rows)) if i not in (*foreign.absent, own.pad)]
    pieces = range(own.unk + 1, own.pieces)
    sources, targets, one = random.Random(SEED), random.Random(SEED), torch.zeros(1, dtype=torch.long)
    for _ in range(SENTENCES):
        text = own.decode(sources.choices(pieces, k=PIECES), "source")
        ids = [*own.source_prefix, *own.encode(text), own.eos]
        mapped = [source_rows[i] for i in ids]
        equal_ids += _their_ids(foreign, other_tokenizer, text) == mapped
        target = targets.choices([i for i in pieces if rows[i] != NO_ROW], k=WRITTEN)
        inputs = [own.bos, *own.target_prefix, *target]
        tokens, read = torch.tensor([ids]), torch.tensor([inputs])
        row = Source(tokens, torch.zeros_like(tokens), torch.tensor([[0, 1]]), one, one)
        hidden = model.decode(read, torch.zeros_like(read), model.encode(row))[0]
        logits = output_logits(model, hidden)[:, compared]
        given = torch.tensor([[rows[i] for i in inputs]])
        output = other(input_ids=torch.tensor([mapped]), decoder_input_ids=given)
        their_logits = output.logits[0][:, [rows[i] for i in compared]]
        difference = max(difference, float((logits - their_logits).abs().max()))
        largest = max(largest, float(their_logits.abs().max()))
    return SelfTest("", f"transformers {version('transformers')}", SENTENCES, equal_ids, difference, largest)


def _their_ids(foreign: ForeignModel, tokenizer: Any, text: str) -> list[int]:
    """Return the ids of a source sequence from the tokenizer of `transformers`, for the chosen languages."""
    own = foreign.tokenizer
    if own.kind == "marian":
        tag = f">>{own.chosen.target}<< " if own.source_prefix else ""
        return list(tokenizer(f"{tag}{text}").input_ids)
    ids = list(tokenizer(text).input_ids)
    # The first id is the default source language of the tokenizer: replace it.
    prefix = [foreign.symbol_rows[i] for i in own.source_prefix]
    return [*prefix, *ids[1:]]


# --- The import.


@dataclass(frozen=True, slots=True)
class Imported:
    """The report of an import."""

    kind: str
    system: str
    parameters: int
    pieces: int
    self_test: SelfTest
    languages: tuple[str, ...]  # those of the tokenizer, if none was chosen

    def render(self) -> str:
        lines = [
            f"{self.kind}: {self.system}, {self.parameters:,} parameters, {self.pieces:,} pieces",
            f"  self-test: {self.self_test.render()}",
        ]
        if self.languages:
            more = ", ..." if len(self.languages) > LANGUAGES_SHOWN else ""
            listed = ", ".join(self.languages[:LANGUAGES_SHOWN])
            lines.append(
                f"  the model is multilingual ({listed}{more}), and no language was chosen: give "
                "--target-language (and --source-language, if the model needs it) to `import` or `prepare`"
            )
        return "\n".join(lines)


def open_foreign(folder: Path, languages: Languages) -> ForeignModel:
    """Open the model in a folder, by its type; raise CotextError if it is not supported."""
    if not folder.is_dir():
        raise CotextError(f"{folder}: {'not a folder' if folder.exists() else 'no such folder'}")
    config = folder / "config.json"
    if not config.exists():
        raise CotextError(f"{folder}: has no config.json of Hugging Face; pass the folder of a model")
    kind = Settings.read(config).content.get("model_type")
    if not isinstance(kind, str) or kind not in OPENERS:
        raise CotextError(f"{config}: model_type = {shown(kind)}: supported are {', '.join(OPENERS)}")
    return OPENERS[kind](folder, languages)


def import_model(folder: Path, out: Path, languages: Languages, licence: str = "") -> Imported:
    """Make a run folder of a pretrained model; raise CotextError if the self-test fails."""
    require_new(out)
    foreign = open_foreign(folder, languages)
    tokenizer, config = foreign.tokenizer, foreign.config
    model = read_model(foreign)
    tested = run_self_test(folder, foreign, model)
    note = {
        "format": "cotext-import",
        "version": 1,
        "class": foreign.kind,
        "folder": folder.resolve().name,
        "files": {
            path.name: {"sha256": checksum(path), "bytes": path.stat().st_size} for path in foreign.files
        },
        "languages": {"source": tokenizer.chosen.source, "target": tokenizer.chosen.target},
        "licence": licence,
        "cotext": __version__,
        "self_test": asdict(tested),
    }
    account = Imported(
        foreign.kind,
        describe_model(config.model),
        count_parameters(model),
        tokenizer.pieces,
        tested,
        () if tokenizer.source_prefix or tokenizer.target_prefix else tuple(tokenizer.languages),
    )
    del foreign  # frees the memory of its mapped files before the model is written
    out.resolve().parent.mkdir(parents=True, exist_ok=True)
    with new_folder(out) as temporary:
        tokenizer.save(temporary / "tokenizer")
        write_config(temporary, config)
        (temporary / IMPORT).write_text(f"{sealed(note)}\n", encoding="utf-8")
        weights = model.state_dict()
        save_model(temporary / "model.safetensors", weights, config, tokenizer.fingerprint, [0])
    return account
