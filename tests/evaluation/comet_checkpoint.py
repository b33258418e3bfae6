"""Run by the interpreter of an environment with COMET: write a tiny checkpoint with random weights to FOLDER.

    python comet_checkpoint.py FOLDER

A COMET regression model over a two-layer XLM-R whose words are w0 to w39, so that nothing needs a network.
"""

import sys
from pathlib import Path

import pytorch_lightning
import torch
import yaml
from comet.models import RegressionMetric
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import XLMRobertaConfig, XLMRobertaModel, XLMRobertaTokenizerFast

MAX_POSITIONS = 24  # of which two are kept for padding, and two for COMET's own caution


def build(folder: Path) -> None:
    specials = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    words = [*specials, *(f"w{number}" for number in range(40))]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[(word, words.index(word)) for word in ("<s>", "</s>")],
    )
    torch.manual_seed(1)
    encoder = XLMRobertaConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=MAX_POSITIONS,
        type_vocab_size=1,
        initializer_range=0.5,
    )
    XLMRobertaTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder / "encoder")
    XLMRobertaModel(encoder, add_pooling_layer=False).save_pretrained(folder / "encoder")
    model = RegressionMetric(pretrained_model=str(folder / "encoder"), hidden_sizes=[8])
    trainer = pytorch_lightning.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    trainer.strategy.connect(model)
    (folder / "checkpoints").mkdir()
    trainer.save_checkpoint(folder / "checkpoints" / "model.ckpt", weights_only=True)
    (folder / "hparams.yaml").write_text(yaml.safe_dump(dict(model.hparams)))


if __name__ == "__main__":
    build(Path(sys.argv[1]))
