"""Other programs with the weights of our sentence model: Hugging Face's Marian and CTranslate2."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import ctranslate2
import torch
from torch.nn.functional import cross_entropy
from transformers import MarianConfig, MarianMTModel
from transformers.utils import logging

from benchmarks.speed.systems import (
    MARIAN,
    SENTENCE,
    VOCABULARY,
    Numerals,
    Translate,
    config_of,
    random_model,
)
from cotext.config.recipe import Config
from cotext.data.batch import Batch
from cotext.data.documents import Document
from cotext.interchange.export import write_weights
from cotext.interchange.importing import layer_parts
from cotext.models.checkpoint import LoadedModel
from cotext.models.interface import Model

# What Marian fixes: its wavelengths of positions, and norms after each layer.
AS_MARIAN = ("model.wavelengths=half", "model.pre_norm=false")
SHARED = ("lm_head", "model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens")


def sentence_config(size: str, *further: str) -> Config:
    """Return the configuration of the sentence model that all programs run."""
    return config_of(" ".join((SENTENCE, *AS_MARIAN)), size, *further)


def marian(config: Config) -> MarianMTModel:
    """Build Hugging Face's model with the sizes and dropout of a configuration."""
    model = config.model
    return MarianMTModel(
        MarianConfig(
            vocab_size=VOCABULARY,
            d_model=model.dimension,
            encoder_layers=model.encoder_layers,
            decoder_layers=model.decoder_layers,
            encoder_attention_heads=model.heads,
            decoder_attention_heads=model.heads,
            encoder_ffn_dim=model.feed_forward,
            decoder_ffn_dim=model.feed_forward,
            activation_function="relu",
            dropout=model.dropout,
            activation_dropout=model.activation_dropout,
            attention_dropout=model.attention_dropout,
            scale_embedding=True,
            pad_token_id=Numerals.pad,
            eos_token_id=Numerals.eos,
            decoder_start_token_id=Numerals.bos,
            forced_eos_token_id=None,
            attn_implementation="sdpa",
        )
    )


class MarianTrainee:
    """Hugging Face's Marian in training."""

    def __init__(self, config: Config, device: torch.device, precision: str) -> None:
        self.device, self.precision, self.smoothing = device, precision, config.loss.label_smoothing
        self.model = marian(config).train().to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)

    def laid_out(self, batch: Batch) -> Batch:
        """See `Trained`; Marian prepares nothing."""
        return batch

    def update(self, batch: Batch) -> float:
        """See `Trained`."""
        count = float(batch.labels.count)
        batch = batch.to(self.device)
        mask = batch.source.sentence >= 0
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            logits = self.model(
                input_ids=batch.source.tokens,
                # Without padding, no mask: so Marian's attention may take its fastest path, too.
                attention_mask=None if bool(mask.all()) else mask.long(),
                decoder_input_ids=batch.target_input,
                use_cache=False,
            ).logits
            label, smoothing = batch.target_label.flatten(), self.smoothing
            loss = cross_entropy(
                logits.flatten(0, 1), label, ignore_index=Numerals.pad, label_smoothing=smoothing
            )
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return count


def translate_by(name: str, config: Config, threads: int, device: torch.device) -> Translate:
    """Return a function that translates with another program, which has the weights of our model.

    `config` is that of `sentence_config`. Each output has as many tokens as the source; all sentences of a
    call must have the same length.
    """
    model = random_model(config).eval()
    if name == MARIAN:
        return _by_marian(model, config, device)
    return _by_ctranslate2(LoadedModel(model, config, Numerals(), [0]), name, threads, device)


def _by_marian(model: Model, config: Config, device: torch.device) -> Translate:
    theirs = marian(config).eval()
    weights = {f"{name}.weight": model.output_weight for name in SHARED}
    for own, part in layer_parts(config.model.encoder_layers, config.model.decoder_layers, False).items():
        parameter = model.get_parameter(own)
        weights |= zip(part.names, parameter.chunk(len(part.names)), strict=True)
    missing = theirs.load_state_dict(weights, strict=False).missing_keys
    assert all("embed_positions" in each or each == "final_logits_bias" for each in missing), missing
    theirs.to(device)
    logging.set_verbosity_error()

    def translate(documents: Sequence[Document]) -> list[list[str]]:
        rows = torch.tensor([[*map(int, row), Numerals.eos] for row in _rows(documents)], device=device)
        found = theirs.generate(
            input_ids=rows,
            num_beams=config.decode.beam,
            do_sample=False,
            length_penalty=config.decode.length_penalty,
            min_new_tokens=rows.shape[1] - 1,
            max_new_tokens=rows.shape[1] - 1,
        )
        return [[str(token) for token in row[1:]] for row in found.tolist()]

    return translate


def _by_ctranslate2(loaded: LoadedModel, name: str, threads: int, device: torch.device) -> Translate:
    kind = "int8" if name.endswith("int8") else "float32"
    with tempfile.TemporaryDirectory() as folder:
        write_weights(loaded, kind, Path(folder) / "engine")
        engine = ctranslate2.Translator(
            f"{folder}/engine", device=device.type, compute_type=kind, intra_threads=threads, inter_threads=1
        )
    decode = loaded.config.decode

    def translate(documents: Sequence[Document]) -> list[list[str]]:
        rows = _rows(documents)
        found = engine.translate_batch(
            [[*row, str(Numerals.eos)] for row in rows],
            beam_size=decode.beam,
            length_penalty=decode.length_penalty,
            max_decoding_length=len(rows[0]),
            min_decoding_length=len(rows[0]),
            max_input_length=0,
            disable_unk=True,
        )
        return [result.hypotheses[0] for result in found]

    return translate


def _rows(documents: Sequence[Document]) -> list[list[str]]:
    return [sentence.split() for document in documents for sentence in document.sentences]
