"""DocFlat: who sees whom across the rows of a batch, and that every way of decoding computes the same."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from tiny import PlainWordTokenizer, random_model, tiny_config, window
from torch import Tensor, nn

from cotext.config import Config
from cotext.data.batch import Batch, Companions, Instance, Source, make_batch
from cotext.layers.attend import Places, watch_weights
from cotext.layers.attention import split_heads
from cotext.layers.flat import (
    Beside,
    FlatBatchAttention,
    FlatContext,
    NeuralContextGate,
    Standing,
    is_current,
)
from cotext.layers.positions import ranks
from cotext.layers.stacks import decode_rows
from cotext.layers.state import STEPS_BETWEEN_COLLECTIONS, DecoderState
from cotext.losses.cross_entropy import CrossEntropy
from cotext.models.docflat import DocFlat, DocFlatState
from cotext.systems import build_model, build_view, special_symbols

TOKENIZER = PlainWordTokenizer(["the", "cat", "sat", "on", "a", "mat", "it", "saw", "again"])
DOCUMENTS = [
    ([[4, 5, 6], [7], [8, 9, 4, 5, 7, 12], [5, 5]], [[9], [8, 7, 6, 5, 4], [10], [11, 12, 4]]),
    ([[10, 4], [6, 6, 7]], [[4, 5, 6, 7], [8]]),
    ([[11]], [[12, 11]]),
]


def config_of(view: dict[str, Any] | None = None, **docflat: object) -> Config:
    numbered = {"separators": "numbered", "numbers": 3}
    return tiny_config(
        model={"name": "docflat", "positions": "absolute", "docflat": docflat},
        view=(view or window(1)) | numbered,
    )


def instances(config: Config) -> list[Instance]:
    rows = []
    for d, (source, target) in enumerate(DOCUMENTS):
        for w in build_view(config.view).split([len(s) for s in source], [len(t) for t in target]):
            rows.append(Instance(d, w, [source[j] for j in w.source], [target[j] for j in w.target]))
    return rows


def batch_of(config: Config, chosen: list[int] | None = None) -> Batch:
    rows = instances(config)
    chosen = list(range(len(rows))) if chosen is None else chosen
    return make_batch([rows[i] for i in chosen], special_symbols(TOKENIZER, config.view))


def docflat(config: Config, seed: int = 0) -> DocFlat:
    model = random_model(config, TOKENIZER, seed)
    assert isinstance(model, DocFlat)
    return model


@torch.no_grad()
def full(model: Any, batch: Batch) -> Tensor:
    hidden: Tensor = model.decode(batch.target_input, batch.input_sentence, model.encode(batch.source))
    return hidden


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


# --- who sees whom, by hand

# Three rows of three places, `x` context, `.` padding: document 0 has two, the later sentence first.
#
#   row 0   x a a   document 0, second sentence     places 0 1 2
#   row 1   d d .   document 1, first sentence             3 4 5
#   row 2   b . .   document 0, first sentence             6 7 8
SENTENCE = torch.tensor([[0, 1, 1], [0, 0, -1], [0, -1, -1]])
CURRENT = torch.tensor([[1, 2], [0, 1], [0, 1]])
DOCUMENT, ORDER = torch.tensor([0, 1, 0]), torch.tensor([1, 0, 0])
SEES = {
    ("source", False): {0: "0", 1: "126", 2: "126", 3: "34", 4: "34", 5: "5", 6: "126", 7: "7", 8: "8"},
    ("target", False): {0: "0", 1: "61", 2: "612", 3: "3", 4: "34", 5: "5", 6: "6", 7: "7", 8: "8"},
    ("source", True): {
        **{0: "0", 1: "12346", 2: "12346", 3: "12346", 4: "12346"},
        **{5: "5", 6: "12346", 7: "7", 8: "8"},
    },
    ("target", True): {0: "0", 1: "61", 2: "612", 3: "6123", 4: "61234", 5: "5", 6: "6", 7: "7", 8: "8"},
}


def flat_context(gate: Any = "continuous") -> FlatContext:
    torch.manual_seed(0)
    context = FlatContext(FlatBatchAttention(8, 2, 0.0), 8, gate, 0.5)
    for parameter in context.parameters():
        nn.init.normal_(parameter)
    return context.double()


def seen(context: FlatContext, x: Tensor, side: str, rows: Standing) -> dict[int, str]:
    """For every place, those whose change moves it."""
    x = x.clone().requires_grad_()
    out = context(x, is_current(SENTENCE, CURRENT), rows, causal=side == "target")
    found = {}
    for place in range(9):
        probe = torch.randn(8, dtype=torch.float64)
        (grad,) = torch.autograd.grad((out.flatten(0, 1)[place] * probe).sum(), x, retain_graph=True)
        found[place] = "".join(str(i) for i in range(9) if float(grad.flatten(0, 1)[i].abs().max()) > 1e-12)
    return found


@pytest.mark.parametrize(("side", "cross_document"), SEES)
def test_who_sees_whom(side: str, cross_document: bool) -> None:
    x = torch.randn(3, 3, 8, dtype=torch.float64)
    rows = Standing.of(DOCUMENT, ORDER, cross_document)
    expected = {place: "".join(sorted(keys)) for place, keys in SEES[side, cross_document].items()}
    assert seen(flat_context(), x, side, rows) == expected


@pytest.mark.parametrize(("side", "cross_document"), SEES)
def test_what_is_seen_is_attention_over_exactly_that(side: str, cross_document: bool) -> None:
    """Place by place: softmax over the keys listed above, the gate, the norm; else nothing changes."""
    context, x = flat_context(), torch.randn(3, 3, 8, dtype=torch.float64)
    rows = Standing.of(DOCUMENT, ORDER, cross_document)
    out = context(x, is_current(SENTENCE, CURRENT), rows, causal=side == "target").flatten(0, 1)
    flat = x.flatten(0, 1)
    for place, keys in SEES[side, cross_document].items():
        if place in (0, 5, 7, 8):
            assert torch.equal(out[place], flat[place])
        else:
            close(out[place], by_hand(context, flat[place], flat[[int(k) for k in keys]]))


def by_hand(context: FlatContext, query: Tensor, keys: Tensor) -> Tensor:
    """One token [D] that sees some [S, D]."""
    attention, size = context.attention, len(query)
    (q,), k, v = (
        (x @ w.T + b).view(len(x), attention.heads, -1)
        for x, w, b in zip(
            (query[None], keys, keys),
            attention.qkv.weight.split(size),
            attention.qkv.bias.split(size),
            strict=True,
        )
    )
    weights = (torch.einsum("hk,shk->hs", q, k) / math.sqrt(q.size(1))).softmax(dim=1)
    mixed = attention.out(torch.einsum("hs,shk->hk", weights, v).flatten())
    if context.gate is None:
        return context.norm(query + mixed)
    g = (context.gate.linear.weight @ mixed + context.gate.linear.bias).sigmoid()
    if context.gate.discrete:
        g = (g >= context.gate.threshold).double()
    out: Tensor = context.norm((1 - g) * query + g * mixed)
    return out


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("cross_document", [False, True])
def test_tokens_beside_the_rows_are_seen_like_those_of_rows(causal: bool, cross_document: bool) -> None:
    """Each row alone, with the current tokens of the others beside it."""
    context, x = flat_context(), torch.randn(3, 3, 8, dtype=torch.float64)
    rows = Standing.of(DOCUMENT, ORDER, cross_document)
    current = is_current(SENTENCE, CURRENT)
    together = context(x, current, rows, causal=causal)
    for i in range(3):
        others = current.clone()
        others[i] = False
        beside = Beside(x[others], rows.take(others.nonzero()[:, 0]))
        own = torch.tensor([i])
        close(context(x[own], current[own], rows.take(own), beside, causal)[0], together[i])


def test_whoever_watches_is_told_who_is_who() -> None:
    context, x = flat_context(), torch.randn(3, 3, 8, dtype=torch.float64)
    shown = []

    def watcher(weights: Tensor, real: Tensor, places: Places | None) -> None:
        shown.append((weights, real, places))

    with watch_weights(watcher):
        context(x, is_current(SENTENCE, CURRENT), Standing(DOCUMENT, ORDER), causal=True)
    [(weights, real, places)] = shown
    assert places is not None
    assert places.query.tolist() == places.key.tolist() == [[6, 1, 2], [3, 4, -1]]
    assert real.tolist() == [[True, True, True], [True, True, False]]
    assert weights.shape == (2, 2, 3, 3)
    assert weights[0, 0].triu(1).abs().max() == 0
    with watch_weights(watcher):
        beside = Beside(torch.randn(2, 8).double(), Standing(torch.tensor([0, 1]), torch.tensor([0, 0])))
        context(x[:1], is_current(SENTENCE[:1], CURRENT[:1]), Standing(DOCUMENT[:1], ORDER[:1]), beside)
    places = shown[-1][2]
    assert places is not None
    assert places.query.tolist() == [[1, 2], [-1, -1]]
    assert places.key.tolist() == [[3, 1, 2], [4, -1, -1]]


# --- the gate


def test_a_discrete_gate_opens_at_the_threshold() -> None:
    gate = NeuralContextGate(2, discrete=True, threshold=0.5)
    with torch.no_grad():
        gate.linear.weight.copy_(torch.eye(2))
    seen = torch.tensor([[-1e-3, 0.0], [1e-3, 4.0]])
    assert gate(seen).tolist() == [[0.0, 1.0], [1.0, 1.0]]  # sigmoid(0) = 0.5 is at the threshold: open


def test_gradients_pass_a_discrete_gate_as_if_it_were_continuous() -> None:
    torch.manual_seed(0)
    discrete, continuous = NeuralContextGate(4, True, 0.6), NeuralContextGate(4, False, 0.6)
    continuous.load_state_dict(discrete.state_dict())
    seen, probe = torch.randn(5, 4), torch.randn(5, 4)
    grads = []
    for gate in (discrete, continuous):
        x = seen.clone().requires_grad_()
        g = gate(x)
        assert set(g.flatten().tolist()) <= {0.0, 1.0} or gate is continuous
        grads.append(torch.autograd.grad((g * probe).sum(), [x, gate.linear.weight]))
    for a, b in zip(*grads, strict=True):
        assert float(a.abs().sum()) > 0
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("gate", ["continuous", "discrete", "identity"])
def test_the_three_gates(gate: str) -> None:
    context, h, mixed = flat_context(gate), torch.randn(6, 8).double(), torch.randn(6, 8).double()
    out = context.combine(h, mixed)
    if gate == "identity":
        assert context.gate is None
        close(out, context.norm(h + mixed))
        return
    assert context.gate is not None
    g = context.gate(mixed)
    assert (g == g.round()).all() == (gate == "discrete")
    close(out, context.norm((1 - g) * h + g * mixed))


# --- the baseline


def test_with_a_closed_gate_it_is_the_baseline() -> None:
    """Up to the norm, which the paper puts behind the gate."""
    config = config_of()
    system = docflat(config)
    baseline = baseline_of(config, system)
    batch = batch_of(config)
    assert float((full(system, batch) - full(baseline, batch)).abs()[batch.is_label].max()) > 1e-2
    for context in (system.source_context, system.target_context):
        assert context is not None and context.gate is not None
        nn.init.constant_(context.gate.linear.bias, -1e9)
        context.norm = nn.Identity()  # type: ignore[assignment]
    close(full(system, batch)[batch.is_label], full(baseline, batch)[batch.is_label])


def baseline_of(config: Config, system: DocFlat) -> nn.Module:
    plain = config.model_copy(update={"model": config.model.model_copy(update={"name": "transformer"})})
    baseline = random_model(plain, TOKENIZER, seed=9)
    own = {k: v for k, v in system.state_dict().items() if k in baseline.state_dict()}
    baseline.load_state_dict(own)
    return baseline


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_side_left_out_has_no_parameters_and_sees_no_other_row(side: str) -> None:
    config = config_of(**{side: False})
    system, batch = docflat(config), batch_of(config)
    assert not any(name.startswith(f"{side}_context") for name in system.state_dict())
    assert any("_context" in name for name in system.state_dict())
    hidden = full(system, batch)
    words = batch.source.tokens if side == "source" else batch.target_input
    words[1] = (words[1] + 1) % 4  # of the second row; rows 0 to 3 are one document
    moved = (full(system, batch) - hidden).abs().amax(dim=2) > 1e-9
    assert moved.any(dim=1).tolist()[:4] == [False, True, False, False]


# --- a batch, its rows, and their companions


def alone(batch: Batch, i: int, same_document: bool = True, trim: bool = True) -> Batch:
    """Row i with the other rows as companions, of which those before it have their target."""
    source = batch.source
    order = source.place + source.current[:, 0]
    others = torch.tensor([j for j in range(len(order)) if j != i], dtype=torch.long)
    if same_document:
        others = others[source.document[others] == source.document[i]]
    own = torch.tensor([i])

    def at(document: Tensor, place: Tensor) -> Tensor:
        return document * 1000 + place

    before = at(source.document, order)[others] < at(source.document, order)[i]
    written = batch.input_sentence[others].where(before[:, None], torch.tensor(-1))
    beside = None
    if len(others):
        beside = Companions(source.select(others), batch.target_input[others], written)
    length = int(batch.is_label[i].sum()) if trim else batch.target_input.size(1)
    sides = (
        x[own, :length]
        for x in (batch.target_input, batch.input_sentence, batch.target_label, batch.label_sentence)
    )
    return Batch(replace(source.select(own), companions=beside), *sides)


LAWS = pytest.mark.parametrize(
    "docflat_settings",
    [
        {},
        {"gate": "discrete"},
        {"gate": "identity"},
        {"source": False},
        {"target": False},
        {"cross_document": True},
    ],
    ids=str,
)


@LAWS
def test_a_row_of_a_batch_is_that_row_with_its_companions(docflat_settings: dict[str, Any]) -> None:
    config = config_of(**docflat_settings)
    model, batch = docflat(config), batch_of(config)
    hidden = full(model, batch)
    crosses = docflat_settings.get("cross_document", False)
    for i in range(len(hidden)):
        row = alone(batch, i, same_document=not crosses)
        close(full(model, row)[0], hidden[i, : row.target_input.size(1)])


@LAWS
def test_the_order_of_rows_in_the_batch_does_not_matter(docflat_settings: dict[str, Any]) -> None:
    config = config_of(**docflat_settings)
    model = docflat(config)
    hidden = full(model, batch_of(config))
    shuffled = [4, 6, 2, 5, 0, 3, 1]
    close(full(model, batch_of(config, shuffled)), hidden[shuffled])


@pytest.mark.parametrize("cross_document", [False, True])
def test_other_documents_change_nothing_unless_they_may(cross_document: bool) -> None:
    config = config_of(cross_document=cross_document)
    model = docflat(config)
    together, first = full(model, batch_of(config)), batch_of(config, [0, 1, 2, 3])
    apart = (full(model, first) - together[:4, : first.target_input.size(1)]).abs()[first.is_label]
    assert (float(apart.max()) > 1e-3) == cross_document
    if not cross_document:
        assert float(apart.max()) < 1e-9


def test_every_current_token_of_a_document_reaches_every_row_of_it() -> None:
    """Source tokens reach all rows; target tokens what follows them in the document; context its own row."""
    config = config_of(window(1))
    model, batch = docflat(config), batch_of(config)
    hidden = full(model, batch)
    order = batch.source.document * 1000 + batch.source.place + batch.source.current[:, 0]
    for side in ("source", "target"):
        sentence = batch.source.sentence if side == "source" else batch.input_sentence
        current = is_current(sentence, batch.source.current)
        for row, t in (sentence >= 0).nonzero().tolist():
            words = batch.source.tokens if side == "source" else batch.target_input
            kept = int(words[row, t])
            words[row, t] = (kept + 1) % 4
            moved = (full(model, batch) - hidden).abs().amax(dim=2) > 1e-9
            words[row, t] = kept
            at = torch.arange(hidden.size(1))
            meets = (batch.source.document == batch.source.document[row]) & bool(current[row, t])
            expected = meets[:, None].expand_as(moved).clone()
            if side == "target":
                expected &= (order > order[row])[:, None]
                # Of later rows, all that follows their first current token.
                begins = is_current(batch.input_sentence, batch.source.current).byte().argmax(dim=1)
                expected &= at >= begins[:, None]
            expected[row] = at >= (t if side == "target" else 0)
            assert torch.equal(moved[batch.is_label], expected[batch.is_label]), (side, row, t)


def test_gradients_reach_every_parameter_with_dropout() -> None:
    for gate in ("continuous", "discrete"):
        config = config_of(gate=gate)
        model = config.model.model_copy(update={"dropout": 0.2, "attention_dropout": 0.2})
        torch.manual_seed(0)
        system = build_model(config.model_copy(update={"model": model}), TOKENIZER.vocabulary_size)
        CrossEntropy(0.1, 1.0)(system, batch_of(config)).loss.backward()
        for name, parameter in system.named_parameters():
            assert parameter.grad is not None, name
            assert bool(parameter.grad.isfinite().all()), name
            assert float(parameter.grad.abs().sum()) > 0, name
