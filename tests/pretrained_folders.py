"""Tokenizers of pretrained models in folders as they are published: tiny ones, trained once for a session."""

import io
import json
import random
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import sentencepiece

_ENGLISH = "the old house was cold and we saw a river near it don't stop ﬁne １２ café"
_GERMAN = "das alte Haus war kalt und wir sahen einen Fluß Straße über schön naïve dort"
ENGLISH, GERMAN = _ENGLISH.split(), _GERMAN.split()
TAGS = (">>deu<<", ">>fra<<", ">>cmn_Hans<<", ">>cmn_Hant<<")
UNKNOWN_LENGTH = 1000000000000000019884624838656  # as transformers writes it: more than 64 bits
NLLB_LANGUAGES = ("deu_Latn", "eng_Latn", "zho_Hans", "zho_Hant")


def sentences(words: list[str], count: int, seed: int) -> list[str]:
    generator = random.Random(seed)
    return [
        " ".join(generator.choices(words, k=generator.randint(1, 12))) + generator.choice(".!?")
        for _ in range(count)
    ]


@cache
def spm(which: str, kind: str = "unigram", byte_fallback: bool = False) -> bytes:
    """A sentencepiece model of "source", "target" or "both" texts, with sentencepiece's own normaliser."""
    texts = {"source": sentences(ENGLISH, 300, 1), "target": sentences(GERMAN, 300, 2)}
    sample = [text for name, of_side in texts.items() if which in (name, "both") for text in of_side]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sample),
        model_writer=model,
        model_type=kind,
        vocab_size=340 if byte_fallback else 80,
        hard_vocab_limit=False,
        byte_fallback=byte_fallback,
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()


def pieces(model: bytes) -> list[str]:
    """All pieces of a model but its three symbols."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(i) for i in range(3, processor.get_piece_size())]


def vocabulary(*models: bytes, tags: Iterable[str] = ()) -> bytes:
    """vocab.json as Marian numbers pieces: by no order of sentencepiece, tags amid them, `<pad>` the last."""
    known = sorted({piece for model in models for piece in pieces(model)}, key=lambda piece: piece[::-1])
    half = len(known) // 2
    names = ["</s>", "<unk>", *known[:half], *tags, *known[half:], "<pad>"]
    return json.dumps({name: row for row, name in enumerate(names)}).encode()


def marian_files(
    tags: Iterable[str] = (), separate: bool = False, byte_fallback: bool = False
) -> dict[str, bytes]:
    """The files of an OPUS-MT model's tokenizer, by name."""
    source, target = spm("source"), spm("target", byte_fallback=byte_fallback)
    both = (source,) if separate else (source, target)
    files = {"source.spm": source, "target.spm": target, "vocab.json": vocabulary(*both, tags=tags)}
    if separate:
        files["target_vocab.json"] = vocabulary(target)
    config: dict[str, Any] = {"source_lang": "en", "target_lang": "de", "separate_vocabs": separate}
    config["model_max_length"] = UNKNOWN_LENGTH
    return {**files, "tokenizer_config.json": json.dumps(config).encode()}


def m2m100_files() -> dict[str, bytes]:
    """The files of an M2M-100 model's tokenizer, by name."""
    model = spm("both", "bpe")
    names = ["<pad>", "<s>", "</s>", "<unk>", *sorted(pieces(model))]  # trained elsewhere: `<pad>` first
    config: dict[str, Any] = {"language_codes": "m2m100", "src_lang": "en", "tgt_lang": "de"}
    config["model_max_length"] = UNKNOWN_LENGTH
    return {
        "sentencepiece.bpe.model": model,
        "vocab.json": json.dumps({name: row for row, name in enumerate(names)}).encode(),
        "tokenizer_config.json": json.dumps(config).encode(),
    }


def written(folder: Path, files: dict[str, bytes]) -> Path:
    """A folder with these files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder
