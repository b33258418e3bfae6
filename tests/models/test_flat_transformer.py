"""Flat-Transformer: context reaches the current sentence through the lower encoder layers alone."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from cotext.config.recipe import Config
from cotext.data.batch import Batch, Instance
from cotext.data.build import build_view, special_symbols
from cotext.data.collate import make_batch
from cotext.models.transformer import Transformer
from tests.layers.layouts import layout
from tests.tiny import PlainWordTokenizer, random_model, tiny_config, window

TOKENIZER = PlainWordTokenizer(["the", "cat", "sat", "on", "a", "mat", "it", "saw", "again"])
DOCUMENT = [[4, 5, 6], [7], [8, 9, 4, 5, 7, 12], [5, 5]]
TARGETS = [[9], [8, 7, 6, 5, 4], [10], [11, 12, 4]]


def config_of(view: dict[str, object], current_layers: int = 1, **model: object) -> Config:
    return tiny_config(
        model={"encoder_layers": 2, "segments": "current", **current_top(current_layers), **model}, view=view
    )


def current_top(layers: int) -> dict[str, object]:
    """So many encoder layers of current sentences; without any, these are what the decoder sees."""
    if layers == 0:
        return {"cross": {"span": "current"}}
    return {"encoder": {"top": {"layers": layers, "span": "current"}}}


def batch_of(config: Config) -> Batch:
    windows = build_view(config.view).split([len(s) for s in DOCUMENT], [len(t) for t in TARGETS])
    rows = [Instance(0, w, [DOCUMENT[j] for j in w.source], [TARGETS[j] for j in w.target]) for w in windows]
    return make_batch(rows, special_symbols(TOKENIZER, config.view))


def full(model: Transformer, batch: Batch) -> Tensor:
    with torch.no_grad():
        return model.decode(batch.target_input, batch.input_sentence, model.encode(batch.source))


DOC_TO_SENT = {**window(2, after=1), "target_before": 0}
DOC_TO_DOC = window(2, after=1)


# --- who sees whom


def changes(model: Transformer, batch: Batch, row: int, t: int) -> tuple[bool, bool]:
    """Whether the row's memory, and its hidden states, move with one source token; no other row's may."""
    tokens = batch.source.tokens.clone()
    tokens[row, t] = (tokens[row, t] + 1) % 4
    other = replace(batch.source, tokens=tokens)
    with torch.no_grad():
        one, two = model.encode(batch.source), model.encode(other)
        keys = (one.source.keys_values[0][0] - two.source.keys_values[0][0]).abs().amax(dim=(1, 3)) > 1e-9
        hidden = [model.decode(batch.target_input, batch.input_sentence, state) for state in (one, two)]
    apart = (hidden[0] - hidden[1]).abs().amax(dim=2) > 1e-9
    for moved, real in ((keys, _memory_is_real(batch)), (apart, batch.is_label)):
        others = [i for i in range(len(moved)) if i != row]
        assert not bool(moved[others].any())
        assert len(set(moved[row][real[row]].tolist())) == 1
    return bool(keys[row].any()), bool(apart[row].any())


def _memory_is_real(batch: Batch) -> Tensor:
    first, stop = batch.source.current[:, :1], batch.source.current[:, 1:]
    lengths = ((batch.source.sentence >= first) & (batch.source.sentence < stop)).sum(dim=1, keepdim=True)
    return torch.arange(int(lengths.max())) < lengths


@pytest.mark.parametrize("view", [DOC_TO_SENT, DOC_TO_DOC])
@pytest.mark.parametrize("current_layers", [0, 1, 2])
def test_context_matters_through_the_lower_layers_alone(view: dict[str, object], current_layers: int) -> None:
    """With all encoder layers for the current sentence, no context token matters; else every one does."""
    config = config_of(view, current_layers)
    model, batch = random_model(config, TOKENIZER), batch_of(config)
    source = batch.source
    for row, t in (source.sentence >= 0).nonzero().tolist():
        current = source.current[row, 0] <= source.sentence[row, t] < source.current[row, 1]
        reaches = bool(current) or current_layers < 2
        assert changes(model, batch, row, t) == (reaches, reaches)


@torch.no_grad()
def test_top_layers_by_hand() -> None:
    """Row by row: lower block over all, then upper block over the current tokens, at the row's positions."""
    config = config_of(DOC_TO_SENT)
    model, batch = random_model(config, TOKENIZER), batch_of(config)
    source = batch.source
    state = model.encode(source)
    lower, upper = model.encoder
    for i in range(len(DOCUMENT)):
        length = int((source.sentence[i] >= 0).sum())
        sentence = source.sentence[i : i + 1, :length]
        is_current = (sentence[0] >= source.current[i, 0]) & (sentence[0] < source.current[i, 1])
        row, current = layout(sentence, 16), layout(sentence[:, is_current], 16)
        assert model.embedding.segment is not None
        x = model.embedding.bare(source.tokens[i : i + 1, :length], "source")
        x = x + model.embedding.table(row.position)
        x = x + model.embedding.segment[(~is_current).long()]
        x = upper(lower(x, row)[:, is_current], current)
        wanted = model.decoder[0].cross.project(x, current)
        for got, want in zip(state.source.keys_values[0], wanted, strict=True):
            torch.testing.assert_close(got[i : i + 1, :, : x.size(1)], want, rtol=1e-9, atol=1e-9)
