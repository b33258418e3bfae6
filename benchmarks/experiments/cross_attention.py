"""The entropy of cross-attention of a trained run, by layer, on the development set.

python -m benchmarks.experiments.cross_attention RUN DATA OUT.json
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from cotext.data.batch import Batch
from cotext.data.build import build_view, special_symbols
from cotext.data.sampling import ordered_batches
from cotext.evaluation.studies.attention.sentence_maps import Spread, calls
from cotext.layers.kernels.sdpa import TokenIndices, watch_weights
from cotext.models.checkpoint import load_run
from cotext.models.interface import TranslationModel
from cotext.training.prepared_data import open_data

MAX_TOKENS = 2100  # of a batch


def attention_spread(model: TranslationModel, batches: Iterable[Batch]) -> dict[str, Spread]:
    """Return the spread of each attention of a model in eval mode over some batches, by module name."""
    found: dict[str, Spread] = {}

    def watcher(weights_BHTS: Tensor, real_BT: Tensor, places: TokenIndices | None) -> None:
        found.setdefault(calling[-1], Spread()).add(weights_BHTS, real_BT)

    with torch.inference_mode(), calls(model) as calling, watch_weights(watcher):
        for batch in batches:
            model.decode(batch.target_input, batch.input_sentence, model.encode(batch.source))
    return found


def main() -> None:
    """Write the entropy of each layer, and the smallest and the largest one."""
    run, data, out = map(Path, sys.argv[1:])
    loaded, opened = load_run(run), open_data(data)
    view = loaded.config.view
    symbols = special_symbols(loaded.tokenizer, view)
    batches = ordered_batches(opened.dev, build_view(view), symbols, MAX_TOKENS, view.max_tokens)
    spread = attention_spread(loaded.left_to_right("the spread of cross-attention"), batches)
    figures = {}
    for name in ("nats", "normalised"):
        layers = {
            layer: each.nats if name == "nats" else each.normalised_entropy
            for layer, each in spread.items()
            if "cross" in layer
        }
        figures[name] = {"least": min(layers.values()), "most": max(layers.values()), "layers": layers}
    out.write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
