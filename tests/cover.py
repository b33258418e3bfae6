"""Pairwise cover of the slots of autoregressive models: any two compatible options are together in a system.

    python -m tests.cover        (from the repository root) updates `cover.json`

A test checks that the cover is complete, so that a new option is tested together with all others.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

from cotext.models.checks import check
from cotext.runtime import CotextError
from tests.tiny import tiny_config, window

COVER = Path(__file__).with_suffix(".json")
GATED = {"span": "sentence", "top": {"layers": 1, "span": "row", "mix": "gated"}}
BIASED = {**GATED, "others": "gated"}  # a bias by distance in attention over rows
SCORES = ("content", "absolute", "relative", "positions", "rotary", "alibi")
# factor -> value -> keys of the section `model`; the first value of each is the default
FACTORS: dict[str, dict[str, dict[str, Any]]] = {
    "encoder span": {
        "row": {},
        "row, others gated": {"encoder": {"others": "gated"}},
        "row, others projected": {"encoder": {"others": "projected"}},
        "sentence": {"encoder": {"span": "sentence"}},
        "gated": {"encoder": GATED},
        "current on top": {"encoder": {"top": {"layers": 1, "span": "current"}}},
        "nodes": {"encoder": {"span": "nodes"}},
    },
    "encoder score": {
        "content": {},
        **{score: {"encoder": {"score": score}} for score in (*SCORES[1:], "segment_distance")},
    },
    "decoder span": {
        "row": {},
        "row, others gated": {"decoder": {"others": "gated"}},
        "row, others projected": {"decoder": {"others": "projected"}},
        "sentence": {"decoder": {"span": "sentence"}},
        "gated": {"decoder": BIASED},
        "memory of one": {"decoder": {"span": "memory", "score": "transformer_xl"}},
        "memory of two": {"decoder": {"span": "memory", "memory_sentences": 2, "score": "transformer_xl"}},
        "no memory": {"decoder": {"span": "memory", "memory_sentences": 0, "score": "transformer_xl"}},
    },
    "decoder score": {"content": {}, **{score: {"decoder": {"score": score}} for score in SCORES[1:]}},
    "cross span": {
        "row": {},
        "row, others gated": {"cross": {"others": "gated"}},
        "row, others projected": {"cross": {"others": "projected"}},
        "sentence": {"cross": {"span": "sentence"}},
        "gated": {"cross": BIASED},
        "current": {"cross": {"span": "current"}},
    },
    "cross score": {"content": {}, **{score: {"cross": {"score": score}} for score in ("absolute", "alibi")}},
    "batch context": {
        "none": {},
        "flat": {"batch_context": "flat"},
        "flat, discrete, source": {"batch_context": "flat", "batch": {"gate": "discrete", "target": False}},
        "flat, identity, target": {"batch_context": "flat", "batch": {"gate": "identity", "source": False}},
        "datapoints": {"batch_context": "datapoints"},
        "mean": {"batch_context": "mean"},
    },
    "context encoder": {
        "none": {},
        "separate": {"context_encoder": "separate"},
        "shared": {"context_encoder": "shared"},
    },
    "document layer": {
        "none": {},
        "segment gate": {"document_layer": "segment_gate"},
        "segment sum": {
            "document_layer": "segment_gate",
            "document": {"gate": False, "relative": False, "feed_forward": False},
        },
        "hierarchical": {"document_layer": "hierarchical", "document": {"target": True}},
        "selective, target": {"document_layer": "selective", "document": {"source": False, "target": True}},
        "hierarchical, one sentence, target": {
            "document_layer": "hierarchical",
            "document": {"source": False, "target": True, "sentences": 1},
        },
        "selective": {"document_layer": "selective", "document": {"target": True}},
        "selective, sparse words, earlier": {
            "document_layer": "selective",
            "document": {"target": True, "word_weights": "sparsemax", "later": False},
        },
        **{
            f"selective, {level}": {
                "document_layer": "selective",
                "document": {"target": True, "level": level},
            }
            for level in ("sentences", "words")
        },
    },
    "positions": {
        "absolute": {},
        "reset": {"positions": "reset"},
        "shift 5": {"positions": "shifted", "shift": 5},
        "shift sequence": {"positions": "shifted", "shift": "sequence"},
        "none": {"positions": "none"},
        "none on the target": {"target_positions": "none"},
    },
    "segments": {
        "none": {},
        **{kind: {"segments": kind} for kind in ("learned", "sinusoidal", "current")},
        "learned on the source": {"segments": "learned", "target_segments": "none"},
    },
    "source sentences": {"all": {}, "one": {"source_sentences": 1}},
    "norm": {"post": {}, "pre": {"pre_norm": True}},
    "activation": {"relu": {}, **{kind: {"activation": kind} for kind in ("swish", "gelu", "gelu_sigmoid")}},
    "encoding": {
        "half_minus_one": {},
        "half": {"wavelengths": "half"},
        "from 2": {"first_position": 2},
        # Fewer than the tokens of a row.
        "learned": {"position_encoding": "learned", "learned_positions": 9, "first_position": 2},
    },
    "embeddings": {
        "one": {},
        "separate": {"separate_embeddings": True},
        "normalised": {"embedding_norm": True},
    },
    "output": {"plain": {}, "biased": {"output_bias": True}},
}
Choice = tuple[str, str]  # factor, value


def overlaid(choices: Mapping[str, str]) -> dict[str, Any]:
    """Return the section `model` for the chosen values."""
    model: dict[str, Any] = {"encoder_layers": 2}
    for factor, value in choices.items():
        for key, part in FACTORS[factor][value].items():
            model[key] = {**model.get(key, {}), **part} if isinstance(part, dict) else part
    return model


def goes_together(choices: Mapping[str, str]) -> bool:
    given = [part for factor, value in choices.items() for part in FACTORS[factor][value].items()]
    scores = [key for key, part in given if isinstance(part, dict) and "score" in part]
    if len(scores) > len(set(scores)):  # the span `memory` needs its own score
        return False
    try:
        check(tiny_config(model=overlaid(choices), view=window(2, after=1)))
    except CotextError:
        return False
    return True


def choices() -> Iterator[Choice]:
    return ((factor, value) for factor, values in FACTORS.items() for value in values)


@cache
def wanted_pairs() -> frozenset[frozenset[Choice]]:
    """Return all pairs of values that are compatible, with defaults for all other factors."""
    pairs = (pair for pair in combinations(choices(), 2) if pair[0][0] != pair[1][0])
    return frozenset(frozenset(pair) for pair in pairs if goes_together(dict(pair)))


def cover() -> dict[str, dict[str, Any]]:
    """Return the systems of the cover as overrides of `model`, named by their options."""
    return {_name(chosen): overlaid(chosen) for chosen in json.loads(COVER.read_text(encoding="utf-8"))}


@cache
def each_filling() -> dict[str, dict[str, Any]]:
    """Return few systems that contain every option, for tests in which combinations do not matter."""
    systems = {_name(chosen): set(chosen.items()) for chosen in json.loads(COVER.read_text(encoding="utf-8"))}
    found: list[str] = []
    left = set(choices())
    left &= set().union(*systems.values())
    while left:
        found.append(max(systems, key=lambda name: len(systems[name] & left)))
        left -= systems[found[-1]]
    return {name: cover()[name] for name in found}


def uncovered(chosen: Iterable[Mapping[str, str]]) -> set[frozenset[Choice]]:
    """Return the compatible pairs of values that occur in none of the given choices."""
    return set(wanted_pairs()) - {
        frozenset(pair) for each in chosen for pair in combinations(each.items(), 2)
    }


def _made() -> list[dict[str, str]]:
    """Return the systems that can still be built, and further ones, each of which adds the most pairs."""
    first = {factor: next(iter(values)) for factor, values in FACTORS.items()}
    known = [{**first, **chosen} for chosen in json.loads(COVER.read_text(encoding="utf-8"))]
    systems = [chosen for chosen in known if chosen.items() <= set(choices()) and goes_together(chosen)]
    left = uncovered(systems)
    while left:
        chosen = dict(sorted(max(left, key=sorted)))
        for factor, values in FACTORS.items():
            if factor in chosen:
                continue
            gains = {
                v: sum(frozenset((held, (factor, v))) in left for held in chosen.items()) for v in values
            }
            for value in sorted(values, key=gains.__getitem__, reverse=True):
                if goes_together({**chosen, factor: value}):
                    chosen[factor] = value
                    break
        systems.append({**first, **chosen})
        left -= set(map(frozenset, combinations(chosen.items(), 2)))
    return systems


def _name(chosen: Mapping[str, str]) -> str:
    """Return the values that are not the defaults."""
    told = [
        f"{factor} {chosen[factor]}"
        for factor, values in FACTORS.items()
        if chosen.get(factor, next(iter(values))) != next(iter(values))
    ]
    return ", ".join(told)


if __name__ == "__main__":
    COVER.write_text(json.dumps(_made(), indent=0), encoding="utf-8")
