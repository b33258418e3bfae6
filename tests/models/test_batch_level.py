"""DocFlat and its baselines that see the batch: mini-batch embedding, and attention between datapoints."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from cotext.config.recipe import Config
from cotext.data.batch import Batch, extra_rows, source_batch
from cotext.layers.kernels.sdpa import TokenIndices, watch_weights
from cotext.layers.multi_head import AttentionSize
from cotext.layers.state import SourceSide
from cotext.models.abd import DatapointAttention
from cotext.models.build_views import special_symbols
from cotext.models.mbe import BatchMean
from cotext.models.transformer import Transformer
from tests.layers.layouts import layout
from tests.models.test_docflat import (
    TOKENIZER,
    SentenceHypothesis,
    alone,
    batch_of,
    begun_of,
    close,
    config_of,
    decoded,
    instances,
    joined,
    meeting,
    product,
)
from tests.tiny import full, random_model, tiny_config, window

SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "mean": ("mean", {}),
    "mean on the source": ("mean", {"target": False}),
    "mean on the target": ("mean", {"source": False}),
    "mean of all": ("mean", {"cross_document": True}),
    "rows of the source": ("datapoints", {"target": False}),
    "rows of the target": ("datapoints", {"source": False}),
    "rows": ("datapoints", {}),
    "rows of all": ("datapoints", {"cross_document": True}),
    "flat": ("flat", {}),
    "flat, discrete": ("flat", {"gate": "discrete"}),
    "flat, without a gate": ("flat", {"gate": "identity"}),
    "flat on the source": ("flat", {"target": False}),
    "flat on the target": ("flat", {"source": False}),
    "flat of all": ("flat", {"cross_document": True}),
}
systems = pytest.mark.parametrize("system", SYSTEMS)
ROWS = {"at once": [3, 4, 0, 2, 5, 6, 1], "beside extra_rows": [2, 5, 6], "both": [3, 1, 4]}


def named(system: str, view: dict[str, Any] | None = None) -> Config:
    kind, settings = SYSTEMS[system]
    return config_of(view, kind, **settings)


def built(system: str) -> Any:
    return meeting(named(system))


def crosses(system: str) -> bool:
    return bool(SYSTEMS[system][1].get("cross_document"))


@systems
def test_a_row_is_the_same_with_its_companions_alone_or_in_another_order(system: str) -> None:
    config = named(system)
    model, batch = built(system), batch_of(config)
    hidden = full(model, batch)
    moved = 0.0
    for i in range(len(hidden)):
        row = alone(batch, i, same_document=not crosses(system))
        close(full(model, row)[0], hidden[i, : row.target_input.size(1)])
        if row.source.extra_rows is not None:
            row.source.extra_rows = None
            moved = max(
                moved, float((full(model, row)[0] - hidden[i, : row.target_input.size(1)]).abs().max())
            )
    assert moved > 1e-3
    shuffled = [4, 6, 2, 5, 0, 3, 1]
    close(full(model, batch_of(config, shuffled)), hidden[shuffled])


@pytest.mark.parametrize("system", ["mean", "mean on the source", "mean on the target"])
def test_rows_beside_extra_rows_get_the_mean_of_their_own_document(system: str) -> None:
    config = named(system)
    model = built(system)
    hidden = full(model, batch_of(config))
    for chosen in ROWS.values():
        close(full(model, joined(batch_of(config), chosen)), hidden[chosen])


@pytest.mark.parametrize("positions", ["absolute", "none"])
@torch.no_grad()
def test_the_mean_of_all_words_of_the_document_stands_before_every_row(positions: Any) -> None:
    """By hand: rows of one token more, at positions of their own."""
    config = config_of(None, "mean")
    model, batch = random_model(config, TOKENIZER), batch_of(config, [0, 4, 1])
    assert isinstance(model, Transformer)
    assert isinstance(model.batch_context, BatchMean)
    source, scale = batch.source, math.sqrt(16)
    model.embedding.target = replace(model.embedding.target, positions=positions)
    words = [
        model.embedding.weight[t[k >= 0]] * scale for t, k in zip(source.tokens, source.sentence, strict=True)
    ]
    hidden = full(model, batch)
    for i, belonging in enumerate(([0, 2], [1], [0, 2])):
        mean = torch.cat([words[j] for j in belonging]).mean(dim=0)
        length = len(words[i])
        k = source.sentence[i, :length]
        x = torch.cat((mean[None], words[i])) + model.embedding.table(torch.arange(length + 1))
        rows = layout(torch.cat((k[:1], k))[None], 16)
        memory = x[None]
        for block in model.encoder:
            memory = block(memory, rows)
        memory = model.encoder_norm(memory)
        side = SourceSide([block.cross.project(memory, rows) for block in model.decoder], rows.sentence)
        length = int(batch.is_label[i].sum())
        k = batch.input_sentence[i, :length]
        y = torch.cat((mean[None], model.embedding.weight[batch.target_input[i, :length]] * scale))
        y = y + model.embedding.table(torch.arange(length + 1)) * (positions != "none")
        expected = decoded(model, y[None], torch.cat((k[:1], k))[None], side)
        close(hidden[i, :length], expected[0, 1:])


@torch.no_grad()
def test_equation_11_by_hand() -> None:
    """A document of two rows, the second padded, and a row of another document."""
    torch.manual_seed(0)
    rows = DatapointAttention(AttentionSize(8, 2, 0.0)).double()
    torch.nn.init.normal_(rows.norm.weight)
    x = torch.randn(3, 3, 8, dtype=torch.float64)
    means = torch.stack(((x[0, 0] + x[0, 1] + x[0, 2]) / 3, (x[1, 0] + x[1, 1]) / 2, x[2, 0]))
    sees = torch.tensor([[True, True, False], [True, True, False], [False, False, True]])
    current = torch.tensor([[False, True, True], [True, True, False], [True, False, False]])
    shown: list[TokenIndices | None] = []
    with watch_weights(lambda weights, real, tokens: shown.append(tokens)):
        out = rows(x, means, sees, current)
    for i, keys in enumerate((means[:2], means[:2], means[2:])):
        for t in range(3):
            close(out[i, t], rows.norm(x[i, t] + product(rows, means[i], keys)))
    [tokens] = shown
    assert tokens is not None
    assert tokens.query.tolist() == tokens.key.tolist() == [[1, 3, 6]]


class WrittenMeans(SentenceHypothesis):
    """Rows show the mean of their current tokens; these see it, from that of their own past."""

    def shown(self, tokens: list[int], sentence: list[int], current: Tensor) -> Tensor:
        own = super().shown(tokens, sentence, current)
        return own.mean(dim=0, keepdim=True) if len(own) else own

    def seeing(self, h: Tensor, current: Tensor, others: list[Tensor]) -> Tensor:
        if not current[-1]:
            return h[-1]
        mean = h[current].mean(dim=0, keepdim=True)
        rows = self.context.target_rows
        x: Tensor = rows.norm(h[-1] + product(rows, mean[0], torch.cat([mean, *others])))
        return x


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("chosen", ROWS)
@pytest.mark.parametrize("system", ["rows", "rows of all"])
@pytest.mark.parametrize("whole_windows", [False, True])
@torch.no_grad()
def test_every_step_sees_means_of_its_moment(
    system: str, chosen: str, beam: int, whole_windows: bool
) -> None:
    config = named(system)
    model = built(system)
    batch: Batch = joined(batch_of(config), ROWS[chosen])
    written = WrittenMeans(model, batch, begun_of(batch, whole_windows), slots=80)
    written.search(beam, {4: [0, 1], 12: [0]})


@torch.no_grad()
def test_extra_rows_of_long_sentences_stand_beside_rows_of_short_ones() -> None:
    """Positions of extra rows are shifted by their own mean length, and the table of positions holds them."""
    shifted = {"positions": "shifted", "shift": "sequence", "batch_context": "flat"}
    config = tiny_config(model=shifted, view=window(1))
    model, symbols = random_model(config, TOKENIZER), special_symbols(TOKENIZER, config.view)
    rows, long = instances(config), [[4] * 1400, [5] * 1400]
    extra = extra_rows([replace(rows[1], source=long, document=0)], symbols)
    seen = model.encode(replace(source_batch(rows[:1], symbols), extra_rows=extra)).source
    assert all(bool(side.isfinite().all()) for pair in seen.keys_values for side in pair)
