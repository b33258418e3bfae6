"""Golden numbers: what every recipe's model computes, with weights filled in by their names.

    python -m tests.golden > tests/golden.json        (from the repository root, in the state to be kept)

Written before the models were taken apart into slots. `test_golden.py` computes the same numbers again: every
parameter is found under its name of then, with its shape of then, and with the weights of then the losses, in
training too, and the translations are those of then.
"""

import json
import re
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cotext.config.recipe import Config, load_config, recipe_names
from cotext.data.batch import make_batch
from cotext.data.documents import Document
from cotext.data.sampling import instances_of
from cotext.data.store import TokenDocument
from cotext.models.build import build_model
from cotext.models.build_views import build_view, special_symbols
from cotext.training.losses import build_loss
from cotext.translation.translator import DocumentTranslator
from tests.tiny import TINY_DECODE, TINY_MODEL, PlainWordTokenizer

GOLDEN = Path(__file__).with_suffix(".json")
TOKENIZER = PlainWordTokenizer([f"w{i}" for i in range(4, 40)])
SOURCE = [[4, 9, 5], [17, 6], [7, 8, 21, 30, 11], [12], [5, 4, 33, 9]]
TARGET = [[24, 9], [7, 16, 5], [27, 8, 21, 3], [12, 2], [15, 4, 13]]
SETTINGS = [
    "view.numbers=100",
    *(f"model.{key}={value}" for key, value in TINY_MODEL.items()),
    *(f"decode.{key}={value}" for key, value in TINY_DECODE.items()),
    "model.encoder_layers=3",
    "model.decoder_layers=3",
    "decode.group_windows=4",
    "decode.first_pass=''",
    "decode.schedule=sequential",
    "model.segments_from=first",  # as all segments were counted then
]


LAYERS = 3  # of the encoder


def former(name: str) -> str:
    """What a weight was called."""
    before = name.replace("latent.code_predictor.", "latent.foreteller.").replace("batch_context.", "")
    before = before.replace("source_document.", f"encoder.{LAYERS}.")
    before = before.replace(".score.distance_bias", ".place_bias").replace(".score.distance.", ".place.")
    return re.sub(r"\.score\.(content_bias|of_keys|of_values)$", r".\1", before)


def golden_names() -> list[str]:
    """The recipes whose numbers are kept."""
    return list(json.loads(GOLDEN.read_text(encoding="utf-8")))


def fill(model: nn.Module, former: Callable[[str], str]) -> list[str]:
    """Numbers drawn by the name that a parameter had; returns these names, each with its shape."""
    found = []
    for name, tensor in model.state_dict().items():
        name = former(name)
        found.append(f"{name} {list(tensor.shape)}")
        tensor.copy_(_numbers(name, tensor))
    return sorted(found)


def _numbers(name: str, like: Tensor) -> Tensor:
    drawn = torch.randn(
        like.shape, dtype=torch.double, generator=torch.Generator().manual_seed(zlib.crc32(name.encode()))
    )
    if name.endswith("codebook.count"):
        return torch.ones_like(drawn)
    norm = "norm" in name and name.endswith("weight")
    return drawn * 0.2 + norm


def measured(config: Config, model: nn.Module) -> dict[str, Any]:
    """Losses of a document's rows, in validation and in training, and its translation."""
    symbols, view, loss = (
        special_symbols(TOKENIZER, config.view),
        build_view(config.view),
        build_loss(config.loss),
    )
    document = TokenDocument("d", 0, SOURCE, TARGET)
    batch = make_batch(list(instances_of(document, view)), symbols)
    found: dict[str, Any] = {}
    for training in (False, True):
        torch.manual_seed(3)
        parts = loss(model.train(training), batch, 0.25)
        found["training" if training else "validation"] = [
            parts.loss.item(),
            int(parts.count),
            # Without a figure that came later.
            *(float(total) for name, (total, _) in parts.parts.items() if name != "undiscounted"),
        ]
    model.eval()
    translator = DocumentTranslator(model, config, TOKENIZER, torch.device("cpu"))
    sentences = tuple(TOKENIZER.decode(sentence) for sentence in SOURCE)
    [(_, translation)] = translator.translate([Document("d", sentences)])
    found["translation"] = list(translation.document.sentences)
    found["log_probabilities"] = list(translation.log_probabilities)
    return found


def golden(recipe: str, former: Callable[[str], str]) -> dict[str, Any]:
    searched = ["decode.beam=1"] if recipe.startswith("casa/") and "beam" not in recipe else []
    config = load_config(recipe, overrides=[*SETTINGS, *searched])
    torch.manual_seed(0)
    model = build_model(config, TOKENIZER.vocabulary_size).double()
    names = fill(model, former)
    return {"tensors": len(names), "names": zlib.crc32("\n".join(names).encode()), **measured(config, model)}


if __name__ == "__main__":
    json.dump({name: golden(name, str) for name in recipe_names()}, sys.stdout, indent=0)
