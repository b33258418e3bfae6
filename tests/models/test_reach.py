"""The context range is exact: every sentence within it affects predictions, and no other sentence does."""

from typing import Any

import pytest
import torch

from cotext.config.recipe import Config
from cotext.data.documents import ParallelDocument
from cotext.models.interface import Reach
from cotext.models.reach import source_reach, target_reach
from cotext.translation.translator import DocumentTranslator
from tests.refusals import must_raise
from tests.test_leaks import SYSTEMS, model_of, papers, recipes_of
from tests.tiny import PlainWordTokenizer, pieces, tiny_config, window

TOKENIZER = PlainWordTokenizer([f"w{i}" for i in range(4, 40)])
SENTENCES = range(9)
TEXT = [[f"w{4 + 2 * j + side}" for j in SENTENCES] for side in (0, 1)]
MEMORY = {"span": "memory", "memory_sentences": 2, "score": "transformer_xl"}
VIEWS: dict[str, dict[str, Any]] = {
    "sentence": {"kind": "sentence"},
    "window": window(2, after=1),
    "one before in the target": window(3) | {"target_before": 1},
    "source context": window(2) | {"target_before": 0},
    "document": pieces(),
    "pieces of three": pieces() | {"max_sentences": 3},
    "cumulative": pieces(kind="cumulative"),
}


def within(layer: str, **document: Any) -> dict[str, Any]:
    """Attention inside sentences, below a document layer."""
    return {"attention": {"span": "sentence"}, "document_layer": layer, "document": document}


ALONE = {"attention": {"span": "sentence"}, "target_positions": "none"}
FURTHER: dict[str, dict[str, Any]] = {
    "memory alone": ALONE | {"decoder": MEMORY | {"memory_sentences": 1}},
    "one layer, memory of two": ALONE | {"decoder": MEMORY, "decoder_layers": 1},
    "source two sentences away": within("segment_gate") | {"source_sentences": 2},
    "near source sentences": {"source_sentences": 1},
    "near current sentences": {"source_sentences": 1, "encoder": {"top": {"layers": 1, "span": "current"}}},
    "near source sentences behind a gate": {"source_sentences": 0, "attention": {"others": "gated"}},
    "all layers of current sentences alone": {"encoder": {"top": {"layers": 2, "span": "current"}}},
    "hierarchical over sentences": within("hierarchical", target=True, sentences=2),
    "selective over sentences": within("selective", level="sentences"),
    "selective on the target": within("selective", source=False, target=True, level="words"),
    "mean on the target": {"batch_context": "mean", "batch": {"source": False}},
    "hierarchical on the source": within("hierarchical", sentences=2),
}


def moved_by(config: Config) -> dict[str, set[int]]:
    """Return by side the distances of the sentences whose words change the probability of a sentence."""
    model = model_of(config)
    translator = DocumentTranslator(model, config, TOKENIZER, torch.device("cpu"))
    versions = [TEXT]
    for side in (0, 1):
        for j in SENTENCES:
            changed = [list(sentences) for sentences in TEXT]
            changed[side][j] = "w30"
            versions.append(changed)
    scored = translator.score(
        [
            ParallelDocument(f"d{n}", tuple(source), tuple(target))
            for n, (source, target) in enumerate(versions)
        ]
    )
    scores = torch.tensor(
        [[each.log_probability for each in document] for document in scored], dtype=torch.float64
    )
    moves = ((scores[1:] - scores[0]).abs() > 1e-9).view(2, len(SENTENCES), len(SENTENCES))
    return {
        name: {j - i for j in SENTENCES for i in SENTENCES if moves[side, j, i] and (side == 0 or i != j)}
        for side, name in enumerate(("source", "target"))
    }


def distances(reach: Reach, farthest: int = SENTENCES[-1]) -> set[int]:
    return {d for d in range(-farthest, farthest + 1) if -reach.before <= d <= reach.after}


def check(config: Config, what: object) -> None:
    """Check that exactly the sentences in the range of `models/reach.py` affect a sentence."""
    found = moved_by(config)
    wrong = f"{what}: models/reach.py is wrong about the sentences that affect a sentence"
    # A language model does not read the source.
    reads = config.model.reads_source
    assert found["source"] == (distances(source_reach(config)) if reads else set()), wrong
    assert found["target"] == distances(target_reach(config)) - {0}, wrong


@papers
def test_recipes(paper: str) -> None:
    for recipe, config in recipes_of(paper).items():
        decode = config.decode.model_copy(update={"group_windows": len(SENTENCES)})
        check(config.model_copy(update={"decode": decode}), recipe)


@pytest.mark.parametrize("system", [*SYSTEMS, *FURTHER])
def test_slots(system: str) -> None:
    for view in VIEWS.values():
        check(
            tiny_config(
                model={"encoder_layers": 2, **(SYSTEMS | FURTHER)[system]},
                view={"separators": "bracket", **view},
                decode={"group_windows": len(SENTENCES)},
            ),
            f"{system} in {view}",
        )


def test_of_a_layer_that_is_not_known_nothing_is_said() -> None:
    """Otherwise, its range would be wrong: no other sentence."""
    config = tiny_config()
    model = config.model.model_copy(update={"document_layer": "of a new paper"})
    must_raise("of a new paper", source_reach, config.model_copy(update={"model": model}))


def test_a_document_layer_receives_the_default_number_of_sentences() -> None:
    document = Config().model.document
    assert (document.sentences, document.resolved.sentences) == (None, 3)
    assert document.model_copy(update={"sentences": 2}).resolved.sentences == 2
