"""Flat-Transformer: context reaches the current sentence through the lower encoder layers alone."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from cotext.config.recipe import Config
from cotext.data.batch import Batch, Instance
from cotext.data.build import build_view, special_symbols
from cotext.data.collate import make_batch
from cotext.losses.cross_entropy import CrossEntropy
from cotext.models.build import build_model
from cotext.models.transformer import Transformer
from cotext.runtime.errors import CotextError
from tests.layers.layouts import layout
from tests.layers.test_state import PREFIXES, Rows, source, system
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


# --- the baseline


@pytest.mark.parametrize("pre_norm", [False, True])
@pytest.mark.parametrize(
    ("view", "current_layers"),
    [({"kind": "sentence"}, 1), ({"kind": "sentence"}, 2), ({"kind": "document", "parts": 2}, 0)],
)
def test_without_context_it_is_the_baseline(
    view: dict[str, object], current_layers: int, pre_norm: bool
) -> None:
    """Whatever the segment of contexts is; that of the current sentences, added to all of a row, is zero."""
    config = config_of(view, current_layers, pre_norm=pre_norm)
    plain = tiny_config(model={"positions": "absolute", "encoder_layers": 2, "pre_norm": pre_norm}, view=view)
    baseline = random_model(plain, TOKENIZER)
    system = random_model(config, TOKENIZER, seed=1)
    with torch.no_grad():
        system.embedding.segment[0] = 0  # type: ignore[index]
    segments = {"embedding.segment": system.state_dict()["embedding.segment"]}
    system.load_state_dict({**baseline.state_dict(), **segments})
    batch = batch_of(config)
    assert torch.equal(full(system, batch)[batch.is_label], full(baseline, batch)[batch.is_label])


@pytest.mark.parametrize("view", [DOC_TO_SENT, DOC_TO_DOC])
def test_with_context_it_is_not_the_baseline(view: dict[str, object]) -> None:
    config = config_of(view, 0, segments="none")
    system = random_model(config, TOKENIZER)
    baseline = random_model(tiny_config(model={"positions": "absolute", "encoder_layers": 2}), TOKENIZER, 1)
    baseline.load_state_dict(system.state_dict())
    batch = batch_of(config)
    assert float((full(system, batch) - full(baseline, batch)).abs().max()) > 1e-3


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


@pytest.mark.parametrize("view", [DOC_TO_SENT, DOC_TO_DOC])
def test_the_decoder_sees_the_current_sentence_alone(view: dict[str, object]) -> None:
    config = config_of(view)
    batch = batch_of(config)
    state = random_model(config, TOKENIZER).encode(batch.source)
    assert state.source.mask is not None
    assert state.source.mask[:, 0, 0].sum(dim=1).tolist() == [len(s) + 1 for s in DOCUMENT]
    assert state.source.keys_values[0][0].size(2) == max(len(s) + 1 for s in DOCUMENT)


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


def test_segments_are_of_context_and_current() -> None:
    config = config_of(DOC_TO_SENT)
    model, batch = random_model(config, TOKENIZER), batch_of(config)
    assert model.embedding.segment is not None
    assert model.embedding.segment.size(0) == 2
    before = full(model, batch)
    with torch.no_grad():
        model.embedding.segment[1] += 1
    apart = (full(model, batch) - before).abs().amax(dim=(1, 2)) > 1e-9
    assert bool(apart.all())  # every window has a context here
    alone = batch_of(config_of({"kind": "sentence"}))
    before = full(model, alone)
    with torch.no_grad():
        model.embedding.segment[1] += 1
    assert torch.equal(full(model, alone)[alone.is_label], before[alone.is_label])


# --- decoding, batches, gradients


@pytest.mark.parametrize("beam", [1, 3])
@torch.no_grad()
def test_every_step_equals_the_full_pass(beam: int) -> None:
    """Of rows alone: so that neither padding nor other rows matter."""
    model = system(encoder_layers=2, segments="current", **current_top(1))
    torch.nn.init.normal_(model.embedding.segment)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(beam)
    given = source([7, 3, 9, 4])
    given.current = torch.tensor([[1, 3], [0, 1], [2, 3], [0, 1]])
    rows = Rows(model, given, PREFIXES, slots=40)
    rows.widen(beam)
    for step in range(20):
        rows.step(rows.random_tokens(generator))
        rows.reorder(rows.random_origin(generator))
        if step == 8:
            rows.select([0, 3, 2])


def test_gradients_reach_every_parameter_with_dropout() -> None:
    config = config_of(DOC_TO_SENT, dropout=0.2, attention_dropout=0.2)
    torch.manual_seed(0)
    system = build_model(config, TOKENIZER.vocabulary_size)
    CrossEntropy(0.1, 1.0)(system, batch_of(config)).loss.backward()
    for name, parameter in system.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.isfinite().all()), name
        assert float(parameter.grad.abs().sum()) > 0, name


def test_more_current_layers_than_layers() -> None:
    with pytest.raises(CotextError, match=r"model.encoder.top.layers = 3, but this stack has 2 layers"):
        build_model(config_of(DOC_TO_SENT, 3), TOKENIZER.vocabulary_size)
