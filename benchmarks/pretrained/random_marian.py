"""A random MarianMT model of base size, as transformers makes one, that ends its output after a length.

    python -m benchmarks.pretrained.random_marian --tokenizer FOLDER --out FOLDER
        [--rows 58101] [--length 25]

For measurements of speed, which depend on sizes and lengths alone. The tokenizer is that of an OPUS-MT
folder, its vocabulary filled up to the rows of a published model. `</s>` is made alike the position at which
it is to come: of random weights of this size, positions are still seen in the last layer.
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
from transformers import MarianConfig, MarianMTModel

TOKENIZER = ("source.spm", "target.spm", "tokenizer_config.json")
# Frequencies that tell a position from those some tokens away, but not from its neighbours alone.
SLOWEST, FASTEST = 0.05, 0.6
END = 3.0  # how strongly a position calls for `</s>`
NEVER = -100.0  # the bias of `</s>` at all other places


def random_marian(tokenizer: Path, out: Path, rows: int, length: int) -> None:
    """Write the folder of a model."""
    names = json.loads((tokenizer / "vocab.json").read_text())
    pad = names.pop("<pad>")
    named = dict(zip((name for name in names), range(len(names)), strict=True))
    named |= {f"▁filler{row}": row for row in range(len(named), rows - 1)} | {"<pad>": rows - 1}
    assert pad == len(names)
    torch.manual_seed(1)
    model = MarianMTModel(
        MarianConfig(
            vocab_size=rows,
            decoder_vocab_size=rows,
            d_model=512,
            encoder_layers=6,
            decoder_layers=6,
            encoder_attention_heads=8,
            decoder_attention_heads=8,
            encoder_ffn_dim=2048,
            decoder_ffn_dim=2048,
            activation_function="swish",
            scale_embedding=True,
            max_position_embeddings=512,
            pad_token_id=rows - 1,
            decoder_start_token_id=rows - 1,
            eos_token_id=named["</s>"],
            forced_eos_token_id=named["</s>"],
            bad_words_ids=[[rows - 1]],
        )
    )
    with torch.no_grad():
        model.model.shared.weight[named["</s>"]] = END * _position(model, length)
        model.final_logits_bias[0, named["</s>"]] = NEVER
    model.save_pretrained(out)
    for name in TOKENIZER:
        shutil.copyfile(tokenizer / name, out / name)
    (out / "vocab.json").write_text(json.dumps(named, ensure_ascii=False))


def _position(model: MarianMTModel, place: int) -> torch.Tensor:
    """The vector of a position, of some frequencies alone: [D]."""
    table = model.model.decoder.embed_positions.weight
    half = table.shape[1] // 2
    frequency = 10000 ** (-torch.arange(half) / half)
    chosen = ((frequency >= SLOWEST) & (frequency <= FASTEST)).repeat(2)
    return torch.where(chosen, table[place], 0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of an OPUS-MT model")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=58_101)
    parser.add_argument("--length", type=int, default=25, help="tokens of every output")
    options = parser.parse_args()
    random_marian(options.tokenizer, options.out, options.rows, options.length)


if __name__ == "__main__":
    main()
