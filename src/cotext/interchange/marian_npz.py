"""Models in Marian's own format: `.npz` with the configuration inside, two sentencepiece models, vocabulary.

Matrices multiply from the right, and are therefore transposed; biases are rows. The start of the decoder is a
zero vector without a symbol, and there is no padding.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cotext.data.tokenizer import MarianTokenizer
from cotext.interchange.foreign import (
    MAX_BYTES,
    NO_ROW,
    ForeignModel,
    LanguagePair,
    Part,
    Settings,
    VocabularyRows,
    make_config,
    read_files,
)
from cotext.interchange.tensors import Tensors, open_npz
from cotext.runtime.errors import CotextError, shown
from cotext.runtime.reading import parse_yaml, read_bytes

INSIDE = "special:model.yml"
# Option -> its only supported value, which is also its default.
FIXED: Mapping[str, Any] = {
    "type": "transformer",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-no-projection": False,
    "transformer-no-bias": False,
    "transformer-no-affine": False,
    "transformer-rnn-projection": False,
    "transformer-train-position-embeddings": False,
    "transformer-ffn-depth": 2,
    "transformer-decoder-ffn-depth": 0,
    "transformer-decoder-dim-ffn": 0,
    "transformer-tied-layers": [],
    "lemma-dim-emb": 0,
    "lemma-dependency": "",
    "factors-combine": "sum",
    "ulr": False,
    "output-omit-bias": False,
}
ACTIVATIONS = {"relu": "relu", "swish": "swish", "gelu": "gelu_sigmoid"}
END = "</s>"


def is_marian(path: Path) -> bool:
    """Return whether this is an `.npz` file, or a folder with an `.npz` file and without config.json."""
    return path.suffix == ".npz" or (
        path.is_dir() and not (path / "config.json").exists() and any(path.glob("*.npz"))
    )


def open_marian_npz(path: Path, languages: LanguagePair) -> ForeignModel:
    """Open a model of Marian (`.npz`, or its folder); raise CotextError if it is not supported."""
    file = _model_file(path)
    folder, tensors = file.parent, open_npz(file)
    options = _options(tensors)
    model, pre_norm = _sizes(options)
    names, separate = tensors.shapes, "Wemb" not in tensors.shapes
    vocabularies = _vocabularies(folder)
    contents = [_vocabulary(file) for file in vocabularies]
    files = read_files(folder, ("source.spm", "target.spm"))
    tokenizer = MarianTokenizer.from_files(
        files["source.spm"],
        files["target.spm"],
        contents[0],
        contents[-1] if separate and contents[-1] != contents[0] else None,
        target_language=languages.tag,
    )
    matrix = "decoder_Wemb" if separate else "Wemb"
    target = _rows(tokenizer, tokenizer.rows, tensors, matrix, contents[-1])
    parts = {"embedding.weight": target.part(matrix), **_layers(model, pre_norm)}
    if separate:
        matrix = "encoder_Wemb"
        source = _rows(tokenizer, tokenizer.source_rows, tensors, matrix, contents[0])
        parts["embedding.source_weight"] = source.part(matrix)
    if model["embedding_norm"]:
        parts |= _norm("embedding.source_norm", "encoder_emb", "_pre")
        parts |= _norm("embedding.target_norm", "decoder_emb", "_pre")
    bias = "decoder_ff_logit_out_b"
    if not {"decoder_ff_logit_out_W", "decoder_ff_logit_out_Wt"}.isdisjoint(names):
        raise CotextError(
            f"{tensors.where}: tied-embeddings = False: the target's embedding is the output layer here; "
            "models with tied-embeddings or tied-embeddings-all are read"
        )
    config = make_config(
        {**model, "wavelengths": "half", "separate_embeddings": separate},
        {"beam": 6, "length_penalty": 1.0},
        languages.of_tokenizer(None),
        tensors.where,
    )
    return ForeignModel(
        "Marian",
        config,
        tokenizer,
        tensors,
        parts,
        target.part(bias) if bias in names else None,
        target.absent(tokenizer),
        frozenset({INSIDE}),
        (file, *(folder / name for name in files), *dict.fromkeys(vocabularies)),
    )


def _rows(
    tokenizer: MarianTokenizer, pieces: Sequence[int], tensors: Tensors, matrix: str, vocabulary: bytes
) -> VocabularyRows:
    """Return the rows of an embedding matrix; the decoder starts with none of them."""
    if matrix not in tensors.shapes:
        raise CotextError(f"{tensors.where}: {matrix} is missing")
    end = json.loads(vocabulary).get(END, NO_ROW)
    count = tensors.shapes[matrix][0]
    return VocabularyRows.of(tokenizer, pieces, count, NO_ROW, end, f"{tensors.where}: {matrix}")


def _model_file(path: Path) -> Path:
    if not path.is_dir():
        return path
    files = sorted(path.glob("*.npz"))
    plain = [file for file in files if ".best-" not in file.name and ".optimizer" not in file.name]
    if len(plain) != 1:
        listed = ", ".join(file.name for file in files)
        raise CotextError(f"{path}: contains several models ({listed}); pass the path of one model")
    return plain[0]


def _options(tensors: Tensors) -> Settings:
    """Return the configuration inside the file."""
    if INSIDE not in tensors.shapes:
        raise CotextError(f"{tensors.where}: no model of Marian: it has no {INSIDE}")
    content = tensors.read(INSIDE).numpy().tobytes().rstrip(b"\0").decode("utf-8", "replace")
    options = parse_yaml(content, f"{tensors.where}: {INSIDE}")
    if not isinstance(options, dict):
        raise CotextError(f"{tensors.where}: {INSIDE} is damaged: it contains no options")
    return Settings(options, f"{tensors.where}: {INSIDE}")


def _sizes(options: Settings) -> tuple[dict[str, Any], bool]:
    """Return the keys of the section `model`, and whether layers are pre-norm; d (dropout) is ignored."""
    for option, value in FIXED.items():
        options.require(option, value, value, "this kind of model is not supported")
    steps = {
        name: options.text(f"transformer-{name}").replace("d", "")
        for name in ("preprocess", "postprocess", "postprocess-emb", "postprocess-top")
    }
    pre_norm = steps["preprocess"] == "n"
    expected = ("n", "a", "n") if pre_norm else ("", "an", "")
    required = dict(zip(("preprocess", "postprocess", "postprocess-top"), expected, strict=True))
    required["postprocess-emb"] = "n" if steps["postprocess-emb"] == "n" else ""
    for name, value in required.items():
        if steps[name] != value:
            option = f"transformer-{name}"
            raise CotextError(
                f"{options.where}: {option} = {shown(options.text(option))}: known are post-norm (preprocess "
                "'', postprocess dan, postprocess-top ''), pre-norm (n, da, n), and of embeddings d and nd"
            )
    model = {
        "dimension": options.whole("dim-emb"),
        "feed_forward": options.whole("transformer-dim-ffn"),
        "heads": options.whole("transformer-heads"),
        "encoder_layers": options.whole("enc-depth"),
        "decoder_layers": options.whole("dec-depth"),
        "activation": options.choice("transformer-ffn-activation", ACTIVATIONS),
        "dropout": options.number("transformer-dropout", 0.1),
        "pre_norm": pre_norm,
        "embedding_norm": steps["postprocess-emb"] == "n",
    }
    return model, pre_norm


def _layers(model: Mapping[str, Any], pre_norm: bool) -> dict[str, Part]:
    """Return all parameters of both stacks."""
    parts: dict[str, Part] = {}
    suffix = "_pre" if pre_norm else ""
    for side in ("encoder", "decoder"):
        for i in range(model[f"{side}_layers"]):
            own, foreign = f"{side}.{i}", f"{side}_l{i + 1}"
            parts |= _linear(f"{own}.attention.qkv", *(f"{foreign}_self_*{letter}" for letter in "qkv"))
            parts |= _linear(f"{own}.attention.out", f"{foreign}_self_*o")
            parts |= _norm(f"{own}.after_attention.norm", f"{foreign}_self_Wo", suffix)
            if side == "decoder":
                parts |= _linear(f"{own}.cross.query", f"{foreign}_context_*q")
                parts |= _linear(f"{own}.cross.key_value", f"{foreign}_context_*k", f"{foreign}_context_*v")
                parts |= _linear(f"{own}.cross.out", f"{foreign}_context_*o")
                parts |= _norm(f"{own}.after_cross.norm", f"{foreign}_context_Wo", suffix)
            parts |= _linear(f"{own}.feed_forward.widen", f"{foreign}_ffn_*1")
            parts |= _linear(f"{own}.feed_forward.narrow", f"{foreign}_ffn_*2")
            parts |= _norm(f"{own}.after_feed_forward.norm", f"{foreign}_ffn_ffn", suffix)
        if pre_norm:
            parts |= _norm(f"{side}_norm", f"{side}_top", "")
    return parts


def _linear(own: str, *there: str) -> dict[str, Part]:
    """Return a projection concatenated from foreign projections; * stands for W and b."""
    return {
        f"{own}.weight": Part(tuple(name.replace("*", "W") for name in there), transposed=True),
        f"{own}.bias": Part(tuple(name.replace("*", "b") for name in there)),
    }


def _norm(own: str, there: str, suffix: str) -> dict[str, Part]:
    return {
        f"{own}.weight": Part((f"{there}_ln_scale{suffix}",)),
        f"{own}.bias": Part((f"{there}_ln_bias{suffix}",)),
    }


def _vocabularies(folder: Path) -> tuple[Path, ...]:
    """Return the vocabulary files, source first: the files in decoder.yml, or the only files."""
    decoder = folder / "decoder.yml"
    if decoder.exists():
        content = parse_yaml(read_bytes(decoder).decode("utf-8", "replace"), str(decoder))
        listed = content.get("vocabs") if isinstance(content, dict) else None
        if isinstance(listed, list) and listed and all(isinstance(name, str) for name in listed):
            files = [folder / Path(name).name for name in listed]
            return (files[0], files[-1]) if files[0] != files[-1] else (files[0],)
    files = sorted({*folder.glob("*vocab*.yml"), *folder.glob("vocab*.yaml")})
    if len(files) != 1:
        listed = ", ".join(name.name for name in files) or "none"
        raise CotextError(
            f"{folder}: which are the vocabularies? There are: {listed}; name them in decoder.yml (vocabs), "
            "source first"
        )
    return (files[0],)


def _vocabulary(path: Path) -> bytes:
    """Return the vocabulary in the format of vocab.json; raise CotextError for invalid lines."""
    text = read_bytes(path, MAX_BYTES).decode("utf-8", "replace")
    rows: dict[str, int] = {}
    for number, name, row in _entries(text):
        if name is None or name in rows:
            raise CotextError(f"{path}, line {number}: not an entry of a vocabulary, or a duplicate")
        rows[name] = row
    return json.dumps(rows, ensure_ascii=False).encode()


def _entries(text: str) -> Iterator[tuple[int, str | None, int]]:
    """Yield line number, subword and row of every entry; subword None for an invalid line.

    The row of `? subword` is on the next line.
    """
    pending: str | None = None
    for number, line in enumerate(text.split("\n"), start=1):
        if pending is None and line.startswith("? "):
            pending = line[2:]
        elif pending is not None:
            row = re.fullmatch(r": *([0-9]{1,9})\s*", line)
            yield number, _unquoted(pending) if row else None, int(row[1]) if row else 0
            pending = None
        elif line.strip():
            whole = re.fullmatch(r"(.+): *([0-9]{1,9})\s*", line)
            yield number, _unquoted(whole[1]) if whole else None, int(whole[2]) if whole else 0


def _unquoted(name: str) -> str | None:
    """Return the text of a YAML key; None if it is damaged."""
    if name[:1] == "'" and name[-1:] == "'" and len(name) > 1:
        return name[1:-1].replace("''", "'")
    if name[:1] != '"':
        return name
    escapes = re.sub(r"\\x([0-9A-Fa-f]{2})", r"\\u00\1", name)
    try:
        text = json.loads(escapes)
    except ValueError:
        return None
    return text if isinstance(text, str) else None
