"""Sizes: settings that replace the settings of a recipe, which is written for base size.

A size scales the model and preserves the idea of the recipe:

    encoder and decoder of equal depth    have the depth of the size: 6 + 6 layers become 4 + 4 (small), 2 + 2
                                          (tiny)
    of unequal depth                      keep their proportion: 10 + 2 become 7 + 1 (small) and 5 + 1 (tiny)
    top layers with another span          keep their number, at most half of the shorter stack
    learning rates                        are set by the size. The (lower) rate of a recipe that starts
                                          from another run is multiplied by rate of the size / rate of base
    initial weights                       are those of `fairseq` (small, tiny), which depend on the width
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from cotext.runtime import CotextError

SIZES: dict[str, dict[str, dict[str, Any]]] = {
    # For the controlled corpus and for experiments of minutes on one core.
    "tiny": {
        "model": {
            "dimension": 128,
            "feed_forward": 512,
            "heads": 4,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "dropout": 0.0,
            "pre_norm": True,
            "initialisation": "fairseq",
        },
        "train": {
            "learning_rate": 4e-3,
            "warmup_updates": 200,
            "max_tokens": 2500,
            "accumulate": 1,
            "max_updates": 1000,
            "validate_every": 250,
            "log_every": 50,
        },
    },
    "small": {
        "model": {
            "dimension": 256,
            "feed_forward": 1024,
            "heads": 4,
            "encoder_layers": 4,
            "decoder_layers": 4,
            "dropout": 0.1,
            "initialisation": "fairseq",
        },
        "train": {
            "learning_rate": 1e-3,
            "warmup_updates": 1000,
            "max_tokens": 8000,
            "accumulate": 1,
            "max_updates": 20_000,
        },
    },
    # The model of Zheng et al. 2020 for TED Zh-En; the recipes `mcn/...` set the learning-rate schedule.
    "ted": {
        "model": {
            "dimension": 256,
            "feed_forward": 512,
            "heads": 4,
            "encoder_layers": 4,
            "decoder_layers": 4,
        },
        "train": {"learning_rate": 7e-4},
    },
    "base": {},
}
# Factors for unequal depths. With 1/3, as for equal depths, tiny 10 + 2 and 8 + 4 would be the same.
PROPORTIONS = {"tiny": Fraction(1, 2), "small": Fraction(2, 3), "ted": Fraction(2, 3)}
DEPTHS = ("encoder_layers", "decoder_layers")
# Sections of `model` that may have top layers with another span.
STACKS = ("attention", "encoder", "decoder", "cross")
BASE_RATE = 7e-4  # from scratch at base size: the peak of Vaswani et al. 2017, equation 3


def size_settings(recipe: Mapping[str, Any], size: str) -> dict[str, Any]:
    """Return the settings of a size that replace those of a recipe (`recipe`, including defaults).

    Raises CotextError: unknown size.
    """
    if size not in SIZES:
        raise CotextError(f"unknown size '{size}': choose one of {', '.join(SIZES)}")
    model, train = recipe["model"], recipe["train"]
    changes = {section: dict(values) for section, values in SIZES[size].items()}
    if changes:
        depths = [changes["model"][key] for key in DEPTHS]
        if model["encoder_layers"] != model["decoder_layers"]:
            half = Fraction(1, 2)  # rounds to the nearest integer
            depths = [max(1, int(PROPORTIONS[size] * model[key] + half)) for key in DEPTHS]
        changes["model"] |= zip(DEPTHS, depths, strict=True)
        most = max(1, min(depths) // 2)
        for stack in STACKS:
            top = model[stack]["top"]
            if top and (top["layers"] or 0) > most:
                changes["model"][stack] = {"top": {"layers": most}}
        if train["init"]:
            rate = train["learning_rate"] * changes["train"]["learning_rate"] / BASE_RATE
            changes["train"]["learning_rate"] = float(f"{rate:.2g}")
    return changes
