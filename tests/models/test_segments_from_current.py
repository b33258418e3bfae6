"""Segments that count back from the current sentence (`model.segments_from = current`)."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from cotext.config.recipe import Config
from cotext.data.batch import Batch, Instance, SpecialSymbols, make_batch
from cotext.layers.positions import sinusoidal
from cotext.models.build import build_model
from cotext.models.build_views import build_view
from cotext.models.slots import RowEmbedder
from cotext.models.transformer import Transformer
from tests.refusals import must_raise
from tests.tiny import tiny_config, window

SYMBOLS = SpecialSymbols(pad=20, bos=21, eos=22, separators=(23,))
VOCABULARY = 24
SOURCE = [[1, 2, 3], [4], [5, 6], [7]]
TARGET = [[7], [8, 9], [1, 2, 3], [4, 4]]
# Rows of one to four sentences: the segments of all source tokens and of all decoder inputs; 1 is that of the
# current sentence. A separator belongs to the sentence that it closes, the begin symbol to the current one.
# Source: the authors' label_segments (lorelupo/focused-concat, eef3280, fairseq/data/sent2doc_dataset.py).
SEGMENTS = [
    ([1] * 4, [1] * 2),
    ([2] * 4 + [1] * 2, [1] + [2] * 2 + [1] * 2),
    ([3] * 4 + [2] * 2 + [1] * 3, [1] + [3] * 2 + [2] * 3 + [1] * 3),
    ([4] * 4 + [3] * 2 + [2] * 3 + [1] * 2, [1] + [4] * 2 + [3] * 3 + [2] * 4 + [1] * 2),
]


def config_of(before: int = 3, **model: Any) -> Config:
    return tiny_config(model={"segments_from": "current", "dimension": 8, **model}, view=window(before))


def transformer(config: Config) -> Transformer:
    torch.manual_seed(1)
    built = build_model(config, VOCABULARY)
    assert isinstance(built, Transformer)
    if built.embedding.segment is not None:
        torch.nn.init.normal_(built.embedding.segment)
    return built.double().eval()


def batch_of(config: Config) -> Batch:
    windows = build_view(config.view).split([len(s) for s in SOURCE], [len(t) for t in TARGET])
    rows = [Instance(0, w, [SOURCE[j] for j in w.source], [TARGET[j] for j in w.target]) for w in windows]
    return make_batch(rows, SYMBOLS)


def added(config: Config) -> tuple[Transformer, Tensor, Tensor]:
    """What segments add to the vectors of source tokens and decoder inputs."""
    model, batch = transformer(config), batch_of(config)
    embed = model._embedder(model.layouts(batch.source, batch.input_sentence))
    seen = [embed.source(batch.source), embed.target(batch.target_input, batch.input_sentence, batch.source)]
    model.embedding.source = replace(model.embedding.source, segments="none")
    model.embedding.target = replace(model.embedding.target, segments="none")
    plain = [embed.source(batch.source), embed.target(batch.target_input, batch.input_sentence, batch.source)]
    of_source, of_target = (one - other for one, other in zip(seen, plain, strict=True))
    return model, of_source, of_target


@pytest.mark.parametrize("segments", ["learned", "sinusoidal", "current"])
def test_rows_of_one_to_four_sentences_by_hand(segments: str) -> None:
    model, of_source, of_target = added(config_of(segments=segments))
    table = model.embedding.segment
    vectors = sinusoidal(torch.arange(1, 5), 8).double() if table is None else table
    for row, expected in enumerate(SEGMENTS):
        for seen, numbers in zip((of_source, of_target), expected, strict=True):
            if segments == "current":  # two vectors; a row opens with its first sentence
                numbers = [min(number, 2) for number in (numbers[1], *numbers[1:])]
            wanted = vectors[torch.tensor(numbers) - 1]
            torch.testing.assert_close(seen[row, : len(numbers)], wanted, rtol=1e-6, atol=1e-6)


def test_from_the_first_the_current_sentence_has_another_vector_in_every_row() -> None:
    for origin, expected in (("current", 1), ("first", 4)):
        _, of_source, _ = added(config_of(segments="learned", segments_from=origin))
        last = torch.stack([of_source[row, len(SEGMENTS[row][0]) - 1] for row in range(4)])
        assert len({tuple(vector) for vector in last.round(decimals=9).tolist()}) == expected


@pytest.mark.parametrize("batch_context", ["none", "mean"])
@torch.no_grad()
def test_decoder_inputs_behind_a_mean_that_opens_the_row(
    batch_context: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The begin symbol is found where it stands, not at position 0."""
    config = config_of(segments="learned", batch_context=batch_context)
    model, batch, seen = transformer(config), batch_of(config), []
    plain = RowEmbedder._segment

    def watched(embed: RowEmbedder, *given: Any) -> Tensor | None:
        seen.append(plain(embed, *given))
        return seen[-1]

    monkeypatch.setattr(RowEmbedder, "_segment", watched)
    model.decode(batch.target_input, batch.input_sentence, model.encode(batch.source))
    for row, (_, numbers) in enumerate(SEGMENTS):
        assert (seen[-1][row, : len(numbers)] + 1).tolist() == numbers


def test_one_side_alone() -> None:
    _, of_source, of_target = added(config_of(segments="learned", target_segments="none"))
    assert bool(of_source.any())
    assert not bool(of_target.any())


def test_the_first_in_the_count_may_be_left_out() -> None:
    """With `from_first` false the current sentence is what it is without segments."""
    _, of_source, _ = added(config_of(segments="sinusoidal", from_first=False))
    for row, (numbers, _) in enumerate(SEGMENTS):
        zero = ~of_source[row, : len(numbers)].any(dim=1)
        assert zero.tolist() == [number == 1 for number in numbers]


def test_larger_windows_than_in_training_share_the_farthest_learned_segment() -> None:
    model = transformer(config_of(before=1, segments="learned"))
    batch = batch_of(config_of())
    embed = model._embedder(model.layouts(batch.source, batch.input_sentence))
    segments = model.embedding.segment
    assert segments is not None
    assert len(segments) == 2
    before = embed.source(batch.source)[3]
    segments.data[1] += 1
    moved = (embed.source(batch.source)[3] != before).any(dim=1)
    assert moved.tolist() == [number > 1 for number in SEGMENTS[3][0]]


@pytest.mark.parametrize(
    ("view", "words"),
    [
        ({"kind": "document"}, "view.kind = document"),
        (window(1, after=1), "view.after = 1"),
        (window(1) | {"mixed_with": [{"kind": "document"}]}, "view.kind = document"),
        (window(1) | {"mixed_with": [{"kind": "window", "before": 1, "after": 2}]}, "view.after = 2"),
    ],
)
def test_views_without_a_single_last_current_sentence_are_refused(view: dict[str, Any], words: str) -> None:
    config = tiny_config(model={"segments": "learned", "segments_from": "current"}, view=view)
    must_raise(f"model.segments_from = current: {words}", build_model, config, VOCABULARY)


@pytest.mark.parametrize("kind", ["sentence", "cumulative"])
def test_views_of_one_current_sentence_are_not(kind: str) -> None:
    model = {"segments": "learned", "segments_from": "current"}
    build_model(tiny_config(model=model, view={"kind": kind}), VOCABULARY)
