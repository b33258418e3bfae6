"""Random models of other toolkits in folders as they are published, tiny ones."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor, nn

from tests.pretrained_folders import NLLB_LANGUAGES, TAGS, m2m100_files, marian_files, pieces, written

SIZES: dict[str, Any] = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 64,
    "num_beams": 4,
    "dropout": 0.1,
}


def _stirred(model: nn.Module, seed: int) -> None:
    """No weight neutral: norms and biases are random too; tables of sinusoids stay what they are."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)


def marian_model(
    folder: Path,
    activation: str = "swish",
    separate: bool = False,
    tags: bool = False,
    pickled: bool = False,
    **settings: Any,
) -> Path:
    """A MarianMTModel; `pickled`: in half precision in pytorch_model.bin, as OPUS-MT has it."""
    from transformers import MarianConfig, MarianMTModel

    files = marian_files(TAGS if tags else (), separate)
    source, target = (
        json.loads(files.get(name, files["vocab.json"])) for name in ("vocab.json", "target_vocab.json")
    )
    torch.manual_seed(0)
    model = MarianMTModel(
        MarianConfig(
            **{
                **SIZES,
                "vocab_size": len(source),
                "decoder_vocab_size": len(target),
                "activation_function": activation,
                "scale_embedding": True,
                "static_position_embeddings": True,
                "normalize_before": False,
                "share_encoder_decoder_embeddings": not separate,
                "pad_token_id": min(source["<pad>"], target["<pad>"]),
                "eos_token_id": 0,
                "decoder_start_token_id": target["<pad>"],
                "forced_eos_token_id": 0,
                **settings,
            }
        )
    )
    _stirred(model, 1)
    with torch.no_grad():
        for embedding, pad in (
            (model.model.encoder.embed_tokens, source["<pad>"]),
            (model.model.decoder.embed_tokens, target["<pad>"]),
        ):
            embedding.weight[pad] = 0
        model.final_logits_bias.normal_()
        model.final_logits_bias[0, 0] = 5.0  # texts end
    written(folder, files)
    model.save_pretrained(folder)
    if pickled:
        torch.save(model.half().state_dict(), folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()
    return folder


def m2m100_model(folder: Path, nllb: bool = False, activation: str = "relu") -> Path:
    """An M2M-100 model, or one of the same class as NLLB-200 is kept."""
    from transformers import M2M100Config, M2M100ForConditionalGeneration

    files = m2m100_files()
    count = len(json.loads(files["vocab.json"])) + 100
    if nllb:
        del files["vocab.json"]
        first = len(pieces(files["sentencepiece.bpe.model"])) + 4
        added = {str(first + i): {"content": name} for i, name in enumerate(NLLB_LANGUAGES)}
        told = {"tokenizer_class": "NllbTokenizer", "added_tokens_decoder": added}
        files["tokenizer_config.json"] = json.dumps(told).encode()
        count = first + len(NLLB_LANGUAGES)
    torch.manual_seed(0)
    model = M2M100ForConditionalGeneration(
        M2M100Config(**SIZES, vocab_size=count + 1, activation_function=activation)
    )
    _stirred(model, 2)
    _ending(model, 4.0)
    written(folder, files)
    model.save_pretrained(folder)
    return folder


def mbart_model(folder: Path) -> Path:
    """An mBART-50 model."""
    from transformers import MBartConfig, MBartForConditionalGeneration

    files = m2m100_files()
    del files["vocab.json"]
    files["tokenizer_config.json"] = b'{"tokenizer_class": "MBart50Tokenizer"}'
    count = len(pieces(files["sentencepiece.bpe.model"])) + 4 + 52
    torch.manual_seed(0)
    config = MBartConfig(**SIZES, vocab_size=count + 1, scale_embedding=True, decoder_start_token_id=2)
    model = MBartForConditionalGeneration(config)
    _stirred(model, 3)
    _ending(model, 5.0)
    written(folder, files)
    model.save_pretrained(folder)
    return folder


def _ending(model: Any, strength: float) -> None:
    """Make `</s>` probable, where there is no bias to do it with: texts end."""
    with torch.no_grad():
        end = model.model.shared.weight[2]
        model.model.decoder.layer_norm.bias.add_(strength * end / end.norm())


FOLDERS: dict[str, Callable[[Path], Path]] = {
    "swish": marian_model,
    "relu": lambda folder: marian_model(folder, "relu"),
    "gelu": lambda folder: marian_model(folder, "gelu"),
    "half precision": lambda folder: marian_model(folder, pickled=True),
    "tags": lambda folder: marian_model(folder, tags=True),
    "two vocabularies": lambda folder: marian_model(folder, separate=True, tags=True),
    "m2m-100": m2m100_model,
    "nllb": lambda folder: m2m100_model(folder, nllb=True),
    "mbart-50": mbart_model,
}
LANGUAGES = {
    "tags": ("", "deu"),
    "two vocabularies": ("", "deu"),
    "m2m-100": ("en", "de"),
    "nllb": ("eng_Latn", "deu_Latn"),
    "mbart-50": ("en_XX", "de_DE"),
}

OPTIONS: dict[str, Any] = {
    "type": "transformer",
    "dim-emb": 16,
    "transformer-dim-ffn": 24,
    "transformer-heads": 2,
    "enc-depth": 2,
    "dec-depth": 1,
    "transformer-ffn-activation": "swish",
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": "",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-no-projection": False,
    "transformer-guided-alignment-layer": "last",
    "transformer-ffn-depth": 2,
    "tied-embeddings-all": True,
}


def marian_arrays(seed: int, rows: dict[str, int], **options: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Arrays of a random model in Marian's own layout; `rows`: of each matrix of embeddings."""
    options = {**OPTIONS, **options}
    generator = np.random.default_rng(seed)
    pre = "n" in options["transformer-preprocess"]
    width, inner = options["dim-emb"], options["transformer-dim-ffn"]

    def random(*shape: int) -> np.ndarray[Any, Any]:
        return generator.normal(0, 0.4, shape).astype(np.float32)

    found = {name: random(count, width) for name, count in rows.items()}

    def norm(name: str, suffix: str) -> None:
        found[f"{name}_ln_scale{suffix}"] = 1 + random(1, width)
        found[f"{name}_ln_bias{suffix}"] = random(1, width)

    for side, depth in (("encoder", options["enc-depth"]), ("decoder", options["dec-depth"])):
        for i in range(1, depth + 1):
            kinds = ("self",) if side == "encoder" else ("self", "context")
            for kind in kinds:
                name = f"{side}_l{i}_{kind}"
                for letter in "qkvo":
                    found[f"{name}_W{letter}"], found[f"{name}_b{letter}"] = (
                        random(width, width),
                        random(1, width),
                    )
                norm(f"{name}_Wo", "_pre" * pre)
            name = f"{side}_l{i}_ffn"
            found[f"{name}_W1"], found[f"{name}_b1"] = random(width, inner), random(1, inner)
            found[f"{name}_W2"], found[f"{name}_b2"] = random(inner, width), random(1, width)
            norm(f"{name}_ffn", "_pre" * pre)
        if pre:
            norm(f"{side}_top", "")
        if "n" in options["transformer-postprocess-emb"]:
            norm(f"{side}_emb", "_pre")
    found["decoder_ff_logit_out_b"] = random(1, rows.get("decoder_Wemb", rows.get("Wemb", 0)))
    found["special:model.yml"] = np.frombuffer(yaml.safe_dump(options).encode() + b"\0", dtype=np.int8)
    return found


def marian_npz(folder: Path, separate: bool = False, **options: Any) -> Path:
    """A folder as a release of Marian has it."""
    files = marian_files(separate=separate)
    names = [
        [name for name in json.loads(files[key]) if name != "<pad>"]
        for key in ("vocab.json", "target_vocab.json")
        if key in files
    ]
    written(folder, {name: files[name] for name in ("source.spm", "target.spm")})
    listed = []
    for i, side in enumerate(names):
        listed.append(f"model.{i}.vocab.yml")
        lines = (f"{json.dumps(name, ensure_ascii=False)}: {row}\n" for row, name in enumerate(side))
        (folder / listed[-1]).write_text("".join(lines), encoding="utf-8")
    decoder = {"models": ["model.npz"], "vocabs": [listed[0], listed[-1]], "beam-size": 6}
    (folder / "decoder.yml").write_text(yaml.safe_dump(decoder), encoding="utf-8")
    rows = {"Wemb": len(names[0])}
    if separate:
        rows = {"encoder_Wemb": len(names[0]), "decoder_Wemb": len(names[1])}
    np.savez(folder / "model.npz", **marian_arrays(5, rows, **options))  # type: ignore[arg-type]
    return folder


def as_marian(tensors: dict[str, Tensor], options: dict[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """The weights of a MarianMTModel without its padding in Marian's layout."""
    found = {"Wemb": tensors["model.shared.weight"][:-1]}
    for side, depth in (("encoder", options["enc-depth"]), ("decoder", options["dec-depth"])):
        for i in range(depth):
            there, own = f"model.{side}.layers.{i}", f"{side}_l{i + 1}"
            kinds = (
                {"self": "self_attn"}
                if side == "encoder"
                else {"self": "self_attn", "context": "encoder_attn"}
            )
            for kind, module in kinds.items():
                for letter, name in zip("qkvo", ("q_proj", "k_proj", "v_proj", "out_proj"), strict=True):
                    found[f"{own}_{kind}_W{letter}"] = tensors[f"{there}.{module}.{name}.weight"].T
                    found[f"{own}_{kind}_b{letter}"] = tensors[f"{there}.{module}.{name}.bias"][None]
                found[f"{own}_{kind}_Wo_ln_scale"] = tensors[f"{there}.{module}_layer_norm.weight"][None]
                found[f"{own}_{kind}_Wo_ln_bias"] = tensors[f"{there}.{module}_layer_norm.bias"][None]
            for number in "12":
                found[f"{own}_ffn_W{number}"] = tensors[f"{there}.fc{number}.weight"].T
                found[f"{own}_ffn_b{number}"] = tensors[f"{there}.fc{number}.bias"][None]
            found[f"{own}_ffn_ffn_ln_scale"] = tensors[f"{there}.final_layer_norm.weight"][None]
            found[f"{own}_ffn_ffn_ln_bias"] = tensors[f"{there}.final_layer_norm.bias"][None]
    found["decoder_ff_logit_out_b"] = tensors["final_logits_bias"][:, :-1]
    arrays = {name: tensor.detach().numpy().copy() for name, tensor in found.items()}
    content = yaml.safe_dump({**OPTIONS, **options}).encode() + b"\0"
    return {**arrays, "special:model.yml": np.frombuffer(content, dtype=np.int8)}
