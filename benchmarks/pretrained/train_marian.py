"""Train a small MarianMTModel with transformers, on sentences: a stand-in for a published OPUS-MT model.

    python -m benchmarks.pretrained.train_marian --out FOLDER [--controlled 8000] [--source train.en --target
        train.de] [--updates 2000] [--tokens 2000] [--dimension 256] [--layers 3] [--pieces 4000]

Nothing of Cotext takes part but the documents of the controlled corpus and the reading of files: model, loss,
search and tokenizer are those of transformers. The folder is as one from the hub: config.json,
model.safetensors, source.spm, target.spm, vocab.json. It is written every 200 updates, and the same command
goes on from what is there (the moments of Adam begin anew, and the warm-up with them).
"""

import argparse
import io
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from transformers import MarianConfig, MarianMTModel, MarianTokenizer

from cotext.data.controlled import training_documents
from cotext.data.formats import read_parallel

SAVE_EVERY = 200
LONGEST = 120  # pieces of a sentence


def sentence_pairs(arguments: argparse.Namespace) -> list[tuple[str, str]]:
    """All pairs of sentences to train on, in no order."""
    documents = list(training_documents(arguments.controlled, seed=1)) if arguments.controlled else []
    if arguments.source:
        documents += read_parallel(arguments.source, arguments.target)
    pairs = [pair for d in documents for pair in zip(d.source, d.target, strict=True) if all(pair)]
    random.Random(1).shuffle(pairs)
    return pairs


def write_tokenizer(pairs: list[tuple[str, str]], pieces: int, out: Path) -> None:
    """Two sentencepiece models and the vocabulary that they share, as Marian's models have them."""
    vocabulary = ["</s>", "<unk>"]
    for side, name in enumerate(("source", "target")):
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(pair[side] for pair in pairs[:200_000]),
            model_writer=model,
            vocab_size=pieces,
            hard_vocab_limit=False,
            character_coverage=1.0,
            minloglevel=2,
        )
        (out / f"{name}.spm").write_bytes(model.getvalue())
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        vocabulary += [processor.id_to_piece(i) for i in range(3, processor.get_piece_size())]
    names = [*dict.fromkeys(vocabulary), "<pad>"]
    (out / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}), encoding="utf-8")
    settings = {"source_lang": "en", "target_lang": "de"}
    (out / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def new_model(arguments: argparse.Namespace, vocabulary: int) -> MarianMTModel:
    """A model with the settings of OPUS-MT's, but smaller."""
    torch.manual_seed(1)
    heads = arguments.dimension // 64
    return MarianMTModel(
        MarianConfig(
            vocab_size=vocabulary,
            d_model=arguments.dimension,
            encoder_layers=arguments.layers,
            decoder_layers=arguments.layers,
            encoder_attention_heads=heads,
            decoder_attention_heads=heads,
            encoder_ffn_dim=4 * arguments.dimension,
            decoder_ffn_dim=4 * arguments.dimension,
            activation_function="swish",
            scale_embedding=True,
            static_position_embeddings=True,
            max_position_embeddings=512,
            pad_token_id=vocabulary - 1,
            decoder_start_token_id=vocabulary - 1,
            eos_token_id=0,
            forced_eos_token_id=0,
            init_std=arguments.dimension**-0.5,
            dropout=0.1,
        )
    )


def batches(
    pairs: list[tuple[str, str]], tokenizer: Any, tokens: int, seed: int
) -> Iterator[dict[str, torch.Tensor]]:
    """Batches of sentences of about one length, without end, none of more than `tokens` places."""
    generator = random.Random(seed)
    while True:
        drawn = sorted(generator.sample(pairs, min(len(pairs), 4000)), key=lambda pair: len(pair[0]))
        found: list[list[tuple[str, str]]] = [[]]
        for pair in drawn:
            longest = max(len(text) for p in (*found[-1], pair) for text in p) / 2.5  # characters of a piece
            if found[-1] and longest * (len(found[-1]) + 1) > tokens:
                found.append([])
            found[-1].append(pair)
        generator.shuffle(found)
        for batch in found:
            sources, targets = zip(*batch, strict=True)
            yield tokenizer(
                list(sources),
                text_target=list(targets),
                padding=True,
                truncation=True,
                max_length=LONGEST,
                return_tensors="pt",
            )


def train(arguments: argparse.Namespace) -> None:
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    pairs = sentence_pairs(arguments)
    done_file = out / "updates.json"
    done = json.loads(done_file.read_text()) if done_file.exists() else 0
    if not done:
        write_tokenizer(pairs, arguments.pieces, out)
    tokenizer = MarianTokenizer.from_pretrained(out)
    model = MarianMTModel.from_pretrained(out) if done else new_model(arguments, len(tokenizer))
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0, betas=(0.9, 0.98), weight_decay=0.0)
    warm_up, started, seen = 200, time.process_time(), 0
    pad = tokenizer.pad_token_id
    for update, batch in enumerate(batches(pairs, tokenizer, arguments.tokens, seed=done), done + 1):
        since = update - done
        rate = arguments.learning_rate * min(since / warm_up, (warm_up / max(update, warm_up)) ** 0.5)
        labels = batch.pop("labels")
        decoder = torch.cat((torch.full_like(labels[:, :1], pad), labels[:, :-1]), dim=1)
        logits = model(**batch, decoder_input_ids=decoder).logits
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=pad, label_smoothing=0.1
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        seen += int((labels != pad).sum())
        if update % 50 == 0:
            speed = seen / (time.process_time() - started)
            print(
                f"update {update}: loss {float(loss.detach()):.3f}, {speed:,.0f} target pieces a second",
                flush=True,
            )
        if update % SAVE_EVERY == 0 or update >= arguments.updates:
            model.save_pretrained(out)
            done_file.write_text(json.dumps(update))
        if update >= arguments.updates:
            return


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--controlled", type=int, default=0, help="documents of the controlled corpus")
    parser.add_argument("--source", type=Path)
    parser.add_argument("--target", type=Path)
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--dimension", type=int, default=256)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--pieces", type=int, default=4000)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    torch.set_num_threads(1)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
