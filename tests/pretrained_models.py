"""Random models of other toolkits in folders as they are published, tiny ones."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.pretrained_folders import NLLB_LANGUAGES, TAGS, m2m100_files, marian_files, pieces, written

SIZES: dict[str, Any] = {
    **{"d_model": 16, "encoder_layers": 2, "decoder_layers": 1, "num_beams": 4, "dropout": 0.1},
    **{"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 64},
    **{"encoder_ffn_dim": 24, "decoder_ffn_dim": 24},
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
        M2M100Config(**SIZES, vocab_size=count + 1, activation_function=activation, pad_token_id=int(nllb))
    )
    _stirred(model, 2)
    _ending(model, 4.5)
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
