"""Keys of configurations as runs of 0.1.0's previews wrote them, in today's words.

A run keeps the configuration that it was trained with; its keys are renamed when it is loaded. To be removed
with the release after 0.1.0.
"""

from collections.abc import Mapping
from typing import Any

SECTIONS = (
    "p_transformer",
    "g_transformer",
    "flat_transformer",
    "docflat",
    "batch_embedding",
    "datapoints",
    "mcn",
    "casa",
)


def renamed(content: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration, or part of one, with today's keys; one that has them already comes back as it is."""
    found = {
        name: dict(section) if isinstance(section, Mapping) else section for name, section in content.items()
    }
    decode, model, train = found.get("decode"), found.get("model"), found.get("train")
    if isinstance(train, dict):
        train.pop("validate_documents", None)  # documents; today's key counts sentences
    if isinstance(decode, dict):
        if "neighbours" in decode:
            decode["group_windows"] = decode.pop("neighbours")
        if decode.get("schedule") == "parallel":
            decode["schedule"] = "simultaneous"
    if isinstance(model, dict) and isinstance(model.get("name"), str):
        name = model.pop("name")
        settings = {section: model.pop(section, None) or {} for section in SECTIONS}
        slots = slots_of(name, settings.get(name, {}), model)
        if name == "flat_transformer" and model.get("segments") == "learned":
            model["segments"] = "current"
        found["model"] = {**model, **slots}
    return found


def slots_of(name: str, given: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    """The slots that a former model filled; `given` are its own switches, `model` the section around them."""
    if name == "p_transformer":
        return _p_transformer(given)
    if name == "g_transformer":
        layers = given.get("global_layers", 2)
        top = {"top": {"layers": layers, "span": "row", "mix": "gated"}} if layers else {}
        return {"attention": {"span": "sentence", **top}}
    if name == "flat_transformer":
        layers = given.get("current_layers", 1)
        if not layers:
            return {"cross": {"span": "current"}}
        return {"encoder": {"top": {"layers": layers, "span": "current"}}}
    if name in ("docflat", "batch_embedding", "datapoints"):
        kind = {"docflat": "flat", "batch_embedding": "mean", "datapoints": "datapoints"}[name]
        batch = {"target": False, **given} if name == "datapoints" else dict(given)
        batch = {key: value for key, value in batch.items() if (key, value) != ("target", True)}
        return {"batch_context": kind, **({"batch": batch} if batch else {})}
    if name == "mcn":
        return _mcn(given, model)
    if name == "casa":
        return _casa(given, model)
    return {}


def _p_transformer(given: Mapping[str, Any]) -> dict[str, Any]:
    on = {key: given.get(key, True) for key in ("self_source", "self_target", "cross", "relative")}
    if all(on.values()):
        return {"attention": {"score": "positions"}}
    scores = {(True, True): "positions", (True, False): "absolute", (False, True): "relative"}
    encoder, decoder = (
        scores.get((on[side], on["relative"]), "content") for side in ("self_source", "self_target")
    )
    cross = "absolute" if on["cross"] else "content"
    return {"encoder": {"score": encoder}, "decoder": {"score": decoder}, "cross": {"score": cross}}


def _mcn(given: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    slots: dict[str, Any] = {}
    if model.get("segments", "none") != "none":
        slots["target_segments"] = "none"
    context = given.get("context")
    if context is not None:
        slots["source_sentences"] = context
    if given.get("local", True):
        slots["encoder"] = {"span": "sentence"}
        if context != 0:
            slots["document_layer"] = "segment_gate"
            document = {key: given[key] for key in ("relative", "gate", "feed_forward") if key in given}
            slots |= {"document": document} if document else {}
    elif given.get("relative", True):
        slots["encoder"] = {"score": "segment_distance"}
    if given.get("xl", True):
        slots["target_positions"] = "none"
        slots["decoder"] = {"span": "memory", "score": "transformer_xl"}
        if "memory_sentences" in given:
            slots["decoder"]["memory_sentences"] = given["memory_sentences"]
    else:
        slots["target_positions"] = "reset"
        slots["decoder"] = {"span": "sentence"}
    if not given.get("cross_context", False):
        slots["cross"] = {"span": "sentence"}
    return slots


def _casa(given: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    slots: dict[str, Any] = {"writes": "non_autoregressive"}
    keys = ("path", "soft_copy", "latent", "codes", "code_mixing", "code_weight", "length_offsets")
    nat = {key: given[key] for key in keys if key in given}
    base = "sentence" if given.get("local", True) else "row"
    layers = given.get("context_layers", 2)
    nodes = "nodes" if given.get("context_nodes", "keys") == "keys" else "node_queries"
    attention: dict[str, Any] = {} if base == "row" else {"span": base}
    source, target = given.get("source_context", True), given.get("target_context", True)

    def top(stack: str, context: bool) -> dict[str, Any]:
        depth = model.get("encoder_layers" if stack == "encoder" else "decoder_layers", 6)
        return {"top": {"layers": min(layers, depth), "span": nodes if context else "sentence"}}

    if layers:
        sides = {"encoder": source, "decoder": target, "cross": source}
        tops = {stack: top(stack, context) for stack, context in sides.items()}
        if all(each == tops["encoder"] for each in tops.values()):
            attention |= tops["encoder"]
        else:
            slots |= {stack: each for stack, each in tops.items() if each["top"]["span"] != base}
    return slots | ({"attention": attention} if attention else {}) | ({"nat": nat} if nat else {})
