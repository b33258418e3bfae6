"""Run by the interpreter of an environment with COMET: builds a tiny checkpoint and scores by hand.

    python comet_checkpoint.py FOLDER

Writes a COMET regression model with random weights over a random two-layer XLM-R whose words are w0 to w39
(so that nothing needs a network), and in `expected.json` the scores of the rows of `rows.json`: each row has
texts as lists of words' numbers, context sentences first. The scores come from the encoder, one row at a time
and without padding: the mean of <s>, the current sentence and its </s>, the context sentences left out.
"""

import json
import sys
from pathlib import Path

import pytorch_lightning
import torch
import yaml
from comet.models import RegressionMetric
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import XLMRobertaConfig, XLMRobertaModel, XLMRobertaTokenizerFast

BEGIN, PAD, END = 0, 1, 2
FIRST_WORD = 5
MAX_POSITIONS = 24  # of which two are kept for padding, and two for COMET's own caution


def build(folder: Path) -> RegressionMetric:
    specials = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    words = [*specials, *(f"w{number}" for number in range(40))]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", BEGIN), ("</s>", END)],
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
    return model


def embed(model: RegressionMetric, sentences: list[list[int]]) -> torch.Tensor:
    """The mean over <s> and the last sentence, the others being read before it."""
    ids = [BEGIN]
    for sentence in sentences:
        start = len(ids)
        ids += [*(FIRST_WORD + word for word in sentence), END]
    tokens = torch.tensor([ids])
    mask = torch.ones_like(tokens)
    layers = model.encoder(tokens, mask)["all_layers"]
    states = model.layerwise_attention(layers, mask)[0]
    return states[[0, *range(start, len(ids))]].mean(dim=0, keepdim=True)


def main(folder: Path) -> None:
    model = build(folder).eval()
    rows = json.loads((folder / "rows.json").read_text())
    with torch.inference_mode():
        scores = [
            model.estimate(*(embed(model, row[side]) for side in ("src", "mt", "ref"))).score.item()
            for row in rows
        ]
    (folder / "expected.json").write_text(json.dumps(scores))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
