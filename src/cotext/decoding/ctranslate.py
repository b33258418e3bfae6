"""CTranslate2 as another engine for plain sentence Transformers, to tell the speed of decoding against.

The weights of a run are written as a model of that engine (float32 or int8), into a folder that need not
last. It is an optional package (`pip install 'cotext[benchmarks]'`), of which nothing else here depends.
"""

import copy
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import nn

from cotext.config.model import ModelConfig
from cotext.config.recipe import Config
from cotext.data.batch import SpecialSymbols
from cotext.data.build import special_symbols
from cotext.data.tokenizer import Tokenizer

INSTALL = "pip install 'cotext[benchmarks]'"
# What has no part in what a trained plain Transformer computes for a sentence alone.
FREE = (
    *("dimension", "feed_forward", "heads", "encoder_layers", "decoder_layers", "pre_norm"),
    *("dropout", "activation_dropout", "attention_dropout", "initialisation", "from_first"),
)


def installed() -> bool:
    """Whether the engine is there."""
    return find_spec("ctranslate2") is not None


def is_plain(config: Config) -> bool:
    """Whether a system is the plain Transformer on single sentences, which alone is converted."""
    same = ModelConfig.model_validate({key: getattr(config.model, key) for key in FREE})
    return config.view.kind == "sentence" and config.model == same


def write_model(model: nn.Module, symbols: SpecialSymbols, unk: int, kind: str, folder: Path) -> None:
    """Write the weights of a plain Transformer, `float32` or `int8`, into a new folder.

    Tokens are named by their ids. Projections are fused in the engine as they are here.
    """
    from ctranslate2.specs import TransformerSpec

    given: Any = copy.deepcopy(model).cpu()  # the conversion works on the weights where they lie
    encoder, decoder, embedding = given.encoder, given.decoder, given.embedding

    def put(to: Any, module: nn.Module, names: tuple[str, str] = ("weight", "bias")) -> None:
        for name, own in zip(names, ("weight", "bias"), strict=True):
            setattr(to, name, module.get_parameter(own).detach().numpy())

    norm, pre_norm = ("gamma", "beta"), encoder[0].after_attention.pre_norm
    spec = TransformerSpec.from_config(
        (len(encoder), len(decoder)), encoder[0].attention.heads, pre_norm=pre_norm
    )
    for side, blocks in ((spec.encoder, encoder), (spec.decoder, decoder)):
        for layer, block in zip(side.layer, blocks, strict=True):
            put(layer.self_attention.linear[0], block.attention.qkv)
            put(layer.self_attention.linear[1], block.attention.out)
            put(layer.self_attention.layer_norm, block.after_attention.norm, norm)
            put(layer.ffn.linear_0, block.feed_forward.widen)
            put(layer.ffn.linear_1, block.feed_forward.narrow)
            put(layer.ffn.layer_norm, block.after_feed_forward.norm, norm)
            if side is spec.decoder:
                of_cross = (block.cross.query, block.cross.key_value, block.cross.out)
                for to, module in zip(layer.attention.linear, of_cross, strict=True):
                    put(to, module)
                put(layer.attention.layer_norm, block.after_cross.norm, norm)
        if pre_norm:
            put(side.layer_norm, given.encoder_norm if side is spec.encoder else given.decoder_norm, norm)
        side.position_encodings.encodings = embedding.table.table.numpy()
        words = side.embeddings if side is spec.decoder else side.embeddings[0]
        words.weight = embedding.weight.detach().numpy()
    spec.decoder.projection.weight = embedding.weight.detach().numpy()
    names = [str(i) for i in range(embedding.weight.size(0))]
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.bos_token = spec.config.decoder_start_token = str(symbols.bos)
    spec.config.eos_token, spec.config.unk_token = str(symbols.eos), str(unk)
    spec.config.add_source_bos, spec.config.add_source_eos = symbols.bracket, True
    spec.validate()
    spec.optimize(quantization=None if kind == "float32" else kind)
    folder.mkdir()
    spec.save(str(folder))


class Engine:
    """A plain Transformer in CTranslate2, on one processor; `folder` is one that does not yet exist."""

    def __init__(
        self, model: nn.Module, config: Config, tokenizer: Tokenizer, kind: str, folder: Path, threads: int
    ) -> None:
        import ctranslate2

        symbols = special_symbols(tokenizer, config.view)
        write_model(model, symbols, tokenizer.unk, kind, folder)
        self.decode, self.tokenizer = config.decode, tokenizer
        self._engine = ctranslate2.Translator(
            str(folder), device="cpu", compute_type=kind, intra_threads=threads, inter_threads=1
        )
        special = {symbols.pad, symbols.bos, tokenizer.sep, *symbols.separators, *symbols.numbers}
        self._never = [[str(i)] for i in sorted(special - {symbols.eos})]

    def translate(self, sentences: Sequence[str], beam: int) -> list[list[int]]:
        """Subwords of translated sentences, one batch, none longer than `decode` allows for the longest."""
        ids = self.tokenizer.encode_batch(sentences)
        # The symbol that closes a sentence is not counted.
        longest = int(self.decode.max_ratio * max(map(len, ids), default=0)) + self.decode.max_extra - 1
        found = self._engine.translate_batch(
            [[str(i) for i in sentence] for sentence in ids],
            beam_size=beam,
            length_penalty=self.decode.length_penalty,
            max_decoding_length=max(1, longest),
            suppress_sequences=self._never,
            disable_unk=True,
            max_input_length=0,
        )
        return [[int(token) for token in result.hypotheses[0]] for result in found]
