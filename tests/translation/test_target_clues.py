"""Which systems see a clue that stands in the target alone, from how far: cohesion in the controlled corpus.

Two examples of a group differ in how a name was rendered earlier, and in nothing else that stands before the
choice. A system whose scores of the candidates are the same in both does not see the clue; one that sees it,
and has random weights, gives other scores.
"""

import pytest
import torch

from cotext.config.recipe import load_config
from cotext.data.contrastive_suites import ContrastiveExample
from cotext.data.controlled import contrastive_suites
from cotext.models.build import build_model
from cotext.translation.candidate_scoring import CandidateSet, score_candidates
from cotext.translation.translator import DocumentTranslator
from tests.tiny import TINY_DECODE, TINY_MODEL, PlainWordTokenizer, random_model

SMALL = [
    "view.numbers=100",
    'train.init=""',
    *(f"model.{key}={value}" for key, value in TINY_MODEL.items()),
    *(f"decode.{key}={value}" for key, value in TINY_DECODE.items()),
    "model.encoder_layers=2",
    "model.decoder_layers=2",
]
COHESION = next(suite for suite in contrastive_suites(1, 8) if suite.name == "controlled/cohesion")
TEXTS = [text for e in COHESION.examples for side in (e.source, *e.candidates) for text in side]
TOKENIZER = PlainWordTokenizer(sorted({word for text in TEXTS for word in text.split()}))


def seen_from(recipe: str, *overrides: str) -> set[int]:
    """Distances in sentences from which the clue is seen."""
    config = load_config(recipe, "tiny", [*SMALL, *overrides])
    if config.model.writes == "left_to_right":
        model = random_model(config, TOKENIZER)
    else:
        torch.manual_seed(0)
        model = build_model(config, TOKENIZER.vocabulary_size).double().eval()
    scorer = DocumentTranslator(model, config, TOKENIZER, torch.device("cpu"))

    def scores(example: ContrastiveExample) -> list[float]:
        chosen = CandidateSet(example.source, example.candidates, example.differing_sentences)
        return [score.log_probability for score in score_candidates(scorer, [chosen])[0]]

    members = COHESION.examples
    return {
        one.distance
        for one, other in zip(members[::2], members[1::2], strict=True)
        if scores(one) != pytest.approx(scores(other), abs=1e-9)
    }


@pytest.mark.parametrize(
    ("recipe", "overrides", "distances"),
    [
        ("focused-concatenation/base", [], set()),
        ("focused-concatenation/s2to2", [], {1}),
        ("focused-concatenation/s4to4-shift-cd", [], {1, 2, 3}),
        ("p-transformer/ctx", [], set()),  # context on the source side alone
        ("p-transformer/doc", [], {1, 2, 3, 4}),
        ("g-transformer/randinit", [], {1, 2, 3, 4}),
        ("docflat/doc2doc", [], {1, 2, 3}),
        ("docflat/docflat-c", [], {1, 2, 3, 4}),
        ("docflat/docflat-c-target", ["view.before=0"], {1, 2, 3, 4}),
        ("docflat/docflat-c-source", ["view.before=0"], set()),
        ("docflat/abd", ["view.before=0"], set()),
        ("mcn/doc2sent", [], set()),
        ("mcn/final", [], {1, 2}),  # a memory of one sentence in each of two layers
        ("mcn/final", ["model.decoder.memory_sentences=2"], {1, 2, 3, 4}),
        ("han/source", [], set()),
        ("han/target", [], {1, 2, 3}),
        ("casa/casa", [], set()),
        ("casa/latent", [], set()),
    ],
)
def test_a_clue_in_the_target_is_seen_as_far_as_the_system_reaches(
    recipe: str, overrides: list[str], distances: set[int]
) -> None:
    assert seen_from(recipe, *overrides) == distances
