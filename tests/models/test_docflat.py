"""DocFlat: who sees whom across the rows of a batch, and that every way of decoding computes the same."""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cotext.config.recipe import Config
from cotext.data.batch import Batch, ExtraRows, Instance, make_batch
from cotext.layers.flat_batch import ExtraKeys, FlatContext, FlatLayout, NeuralContextGate, RowOrder
from cotext.layers.kernels.sdpa import TokenIndices, watch_weights
from cotext.layers.multi_head import AttentionSize
from cotext.layers.positions import is_current, ranks
from cotext.layers.state import STEPS_BETWEEN_COLLECTIONS, SourceSide
from cotext.models.build_views import build_view, special_symbols
from cotext.models.docflat import FlatBatch
from cotext.models.transformer import Transformer
from tests.layers.layouts import attended, layout
from tests.tiny import PlainWordTokenizer, random_model, tiny_config, window

TOKENIZER = PlainWordTokenizer(["the", "cat", "sat", "on", "a", "mat", "it", "saw", "again"])
DOCUMENTS = [
    ([[4, 5, 6], [7], [8, 9, 4, 5, 7, 12], [5, 5]], [[9], [8, 7, 6, 5, 4], [10], [11, 12, 4]]),
    ([[10, 4], [6, 6, 7]], [[4, 5, 6, 7], [8]]),
    ([[11]], [[12, 11]]),
]


def config_of(view: dict[str, Any] | None = None, kind: str = "flat", **batch: object) -> Config:
    numbered = {"separators": "numbered", "numbers": 3}
    return tiny_config(model={"batch_context": kind, "batch": batch}, view=(view or window(1)) | numbered)


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


def meeting(config: Config) -> Any:
    """A model without dropout, in training where that lets rows of different documents meet."""
    return random_model(config, TOKENIZER).train(config.model.batch.cross_document)


def docflat(config: Config) -> Transformer:
    model = meeting(config)
    assert isinstance(model, Transformer)
    assert isinstance(model.batch_context, FlatBatch)
    return model


def embedded(model: Any, tokens: Tensor, sentence: Tensor) -> Tensor:
    """Complete decoder inputs [B, T] with positions and segments: [B, T, D]."""
    t = torch.arange(tokens.size(1)).expand_as(tokens)
    embedding = model.embedding
    found: Tensor = embedding.placed(embedding.bare(tokens, "target"), "target", sentence, t, ranks(sentence))
    return found


def decoded(model: Any, x: Tensor, sentence: Tensor, source: SourceSide) -> Tensor:
    """Complete rows through the blocks of a decoder: [B, T, D] -> [B, T, D]."""
    rows = layout(sentence, x.size(-1), causal=True, source=source)
    h = rows.pack(x)
    for block in model.decoder:
        h = block(h, rows)
    return rows.unpack(model.decoder_norm(h))


def source_of(side: SourceSide, entry: int) -> SourceSide:
    """One entry of an encoded source."""
    at = slice(entry, entry + 1)
    return SourceSide([(k[at], v[at]) for k, v in side.keys_values], side.sentence[at])


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


# Three rows of three tokens, `x` context, `.` padding: document 0 has two, the later sentence first.
#
#   row 0   x a a   document 0, second sentence     tokens 0 1 2
#   row 1   d d .   document 1, first sentence             3 4 5
#   row 2   b . .   document 0, first sentence             6 7 8
SENTENCE = torch.tensor([[0, 1, 1], [0, 0, -1], [0, -1, -1]])
CURRENT = torch.tensor([[1, 2], [0, 1], [0, 1]])
DOCUMENT, FIRST = torch.tensor([0, 1, 0]), torch.tensor([0, 0, 0])
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
    context = FlatContext(AttentionSize(8, 2, 0.0), gate, 0.5)
    for parameter in context.parameters():
        nn.init.normal_(parameter)
    return context.double()


def mixed(
    context: FlatContext,
    x: Tensor,
    current: Tensor,
    rows: RowOrder,
    beside: ExtraKeys | None = None,
    causal: bool = False,
) -> Tensor:
    """Rows [B, T, D] and what their current tokens see."""
    extra = None if beside is None else beside.order
    out: Tensor = context(x, FlatLayout(current, rows, causal, extra), beside)
    return out


@pytest.mark.parametrize(("side", "cross_document"), SEES)
@pytest.mark.parametrize("gate", ["continuous", "discrete", "identity"])
def test_what_is_seen_is_attention_over_exactly_that(side: str, cross_document: bool, gate: str) -> None:
    """Token by token: softmax over the keys listed above, the gate, the norm; else nothing changes."""
    context, x = flat_context(gate), torch.randn(3, 3, 8, dtype=torch.float64)
    assert (context.gate is None) == (gate == "identity")
    rows = RowOrder.of(DOCUMENT, FIRST, CURRENT, cross_document)
    out = mixed(context, x, is_current(SENTENCE, CURRENT), rows, causal=side == "target").flatten(0, 1)
    flat = x.flatten(0, 1)
    for token, keys in SEES[side, cross_document].items():
        if token in (0, 5, 7, 8):
            assert torch.equal(out[token], flat[token])
        else:
            close(out[token], by_hand(context, flat[token], flat[[int(k) for k in keys]]))


def product(attention: Any, query: Tensor, keys: Tensor) -> Tensor:
    """Multi-head attention of one vector [D] to several [S, D], projected."""
    q, _, _ = attention.qkv(query).chunk(3)
    _, k, v = attention.qkv(keys).chunk(3, dim=1)
    out: Tensor = attention.out(attended(q, k, v, attention.heads))
    return out


def by_hand(context: FlatContext, query: Tensor, keys: Tensor) -> Tensor:
    """One token [D] that sees some [S, D]."""
    mixed = product(context.attention, query, keys)
    if context.gate is None:
        identity: Tensor = context.norm(query + mixed)
        return identity
    g = (context.gate.linear.weight @ mixed + context.gate.linear.bias).sigmoid()
    if context.gate.discrete:
        g = (g >= context.gate.threshold).double()
    out: Tensor = context.norm((1 - g) * query + g * mixed)
    return out


def test_rows_that_hold_the_same_sentence_show_each_other_nothing_of_it() -> None:
    """As mixed views have them, and windows that are drawn twice.

    row 0   a b b   both sentences are current      tokens 0 1 2
    row 1   x b b   the second                             3 4 5
    row 2   x b b   the second, once more                  6 7 8
    row 3   x x c   the third                              9 10 11
    """
    sentence = torch.tensor([[0, 1, 1], [0, 1, 1], [0, 1, 1], [0, 1, 2]])
    current = torch.tensor([[0, 2], [1, 2], [1, 2], [2, 3]])
    zeros = torch.zeros(4, dtype=torch.long)
    rows, chosen = RowOrder.of(zeros, zeros, current, False), is_current(sentence, current)
    assert not rows.apart
    assert rows.take(torch.tensor([3, 1])).apart
    context, x = flat_context(), torch.randn(4, 3, 8, dtype=torch.float64)
    out = mixed(context, x, chosen, rows, causal=True)
    sees = {0: [0], 1: [0, 1], 2: [0, 1, 2], 4: [4], 5: [4, 5], 7: [7], 8: [7, 8]}
    for token, keys in (sees | {11: [0, 1, 2, 4, 5, 7, 8, 11]}).items():
        close(out.flatten(0, 1)[token], by_hand(context, x.flatten(0, 1)[token], x.flatten(0, 1)[keys]))
    for i in range(4):
        others = chosen & (torch.arange(4) != i)[:, None]
        beside = ExtraKeys(x[others], rows.take(others.nonzero()[:, 0]))
        own = torch.tensor([i])
        shown: list[TokenIndices | None] = []
        with watch_weights(lambda weights, real, tokens, shown=shown: shown.append(tokens)):
            single = mixed(context, x[own], chosen[own], rows.take(own), beside, causal=True)
        close(single[0], out[i])
        [tokens] = shown
        assert tokens is not None
        # Who watches is told which tokens are of the row; others are -1.
        here = chosen[i].nonzero()[:, 0].tolist()
        assert tokens.query.tolist() == [here]
        assert sorted(tokens.key[0].tolist()) == [-1] * int(others.sum()) + here


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


def alone(batch: Batch, i: int, same_document: bool = True, trim: bool = True) -> Batch:
    """Row i with the other rows as extra rows, of which those before it have their target."""
    source = batch.source
    order = source.first_sentence + source.current[:, 0]
    others = torch.tensor([j for j in range(len(order)) if j != i], dtype=torch.long)
    if same_document:
        others = others[source.document[others] == source.document[i]]
    own = torch.tensor([i])

    def at(document: Tensor, sentence: Tensor) -> Tensor:
        return document * 1000 + sentence

    before = at(source.document, order)[others] < at(source.document, order)[i]
    written = batch.input_sentence[others].where(before[:, None], torch.tensor(-1))
    beside = None
    if len(others):
        beside = ExtraRows(source.select(others), batch.target_input[others], written)
    length = int(batch.is_label[i].sum()) if trim else batch.target_input.size(1)
    sides = (
        x[own, :length]
        for x in (batch.target_input, batch.input_sentence, batch.target_label, batch.label_sentence)
    )
    return Batch(replace(source.select(own), extra_rows=beside), *sides)


class SentenceHypothesis:
    """An open state beside plain lists of what stands in it: what each token sees is looked up there.

    Rows of one document that are written at once see what was on the others' first beam at that moment, so
    that what a token saw is kept with it.
    """

    def __init__(self, model: Any, batch: Batch, begun: list[int], slots: int) -> None:
        self.model, self.source = model, batch.source
        self.context = model.batch_context
        self.rows = self.context.order_of(batch.source, model.training)
        self.entries, self.beam = list(range(len(begun))), 1
        self.tokens: list[list[int]] = [[] for _ in begun]
        self.sentence: list[list[int]] = [[] for _ in begun]
        self.x: list[list[Tensor]] = [[] for _ in begun]
        self.done: list[tuple[Tensor, int, int]] = []  # what complete rows show, their group and end
        self._extra_rows()
        self.state = model.encode(batch.source)
        self.whole = model.encode(batch.source).source
        self.state.open(slots)
        self.step(
            [batch.target_input[i, :n].tolist() for i, n in enumerate(begun)],
            [batch.input_sentence[i, :n].tolist() for i, n in enumerate(begun)],
        )

    def _extra_rows(self) -> None:
        beside = self.source.extra_rows
        if beside is None:
            return
        other = beside.source
        rows = self.context.order_of(other, self.context.training)
        for i, (tokens, sentence) in enumerate(
            zip(beside.target_input.tolist(), beside.input_sentence.tolist(), strict=True)
        ):
            length = sum(k >= 0 for k in sentence)
            if length:
                shown = self.shown(tokens[:length], sentence[:length], other.current[i])
                self.done.append((shown, int(rows.group[i]), int(rows.end[i])))

    def embedded(self, tokens: list[int], sentence: list[int]) -> Tensor:
        return embedded(self.model, torch.tensor([tokens]), torch.tensor([sentence]))[0]

    def shown(self, tokens: list[int], sentence: list[int], current: Tensor) -> Tensor:
        """What other rows see of a row."""
        return self.embedded(tokens, sentence)[is_current(torch.tensor([sentence]), current[None])[0]]

    def seeing(self, h: Tensor, current: Tensor, others: list[Tensor]) -> Tensor:
        """The last token of a row [T, D], after it saw its past and what others show."""
        if not current[-1]:
            return h[-1]
        return by_hand(self.context.target_context, h[-1], torch.cat([h[current], *others]))

    def step(self, tokens: list[list[int]], sentence: list[list[int]]) -> None:
        """Decode, and compare with what follows from the lists."""
        count = max(map(len, tokens))
        for row in range(len(tokens)):
            self.tokens[row] += tokens[row]
            self.sentence[row] += sentence[row]
        padded = torch.tensor([row + [0] * (count - len(row)) for row in tokens])
        k = torch.tensor([row + [-1] * (count - len(row)) for row in sentence])
        hidden = self.model.decode(padded, k, self.state)
        live = [
            self.shown(self.tokens[i * self.beam], self.sentence[i * self.beam], self.source.current[e])
            for i, e in enumerate(self.entries)
        ]
        for row in range(len(tokens)):
            self._see(row, live)
            source = source_of(self.whole, self.entries[row // self.beam])
            x, sentence_of = torch.stack(self.x[row])[None], torch.tensor([self.sentence[row]])
            expected = decoded(self.model, x, sentence_of, source)[0]
            close(hidden[row, : len(tokens[row])], expected[len(expected) - len(tokens[row]) :])

    def _see(self, row: int, live: list[Tensor]) -> None:
        entry = self.entries[row // self.beam]
        group, begin = int(self.rows.group[entry]), int(self.rows.begin[entry])
        others = [x for x, g, end in self.done if g == group and end <= begin] + [
            x
            for x, e in zip(live, self.entries, strict=True)
            if self.rows.group[e] == group and self.rows.end[e] <= begin
        ]
        h = self.embedded(self.tokens[row], self.sentence[row])
        current = is_current(torch.tensor([self.sentence[row]]), self.source.current[entry][None])[0]
        for t in range(len(self.x[row]), len(h)):
            self.x[row].append(self.seeing(h[: t + 1], current[: t + 1], others))

    def search(self, beam: int, stay: Mapping[int, list[int]]) -> None:
        """Random steps, now and then of two words; after some of them only the entries of `stay` go on."""
        generator = torch.Generator().manual_seed(beam)
        self.widen(beam)
        for step in range(2 * STEPS_BETWEEN_COLLECTIONS + 4):
            self.next(generator, 1 if step % 5 else 2)
            self.reorder(generator)
            if step in stay:
                self.keep(stay[step])

    def next(self, generator: torch.Generator, count: int = 1) -> None:
        """Random words; a row whose last sentence is context may begin the next."""
        tokens = torch.randint(4, 13, (len(self.tokens), count), generator=generator).tolist()
        sentence: list[list[int]] = []
        for row in range(len(tokens)):
            k, last = self.sentence[row][-1], int(self.source.current[self.entries[row // self.beam], 1]) - 1
            sentence.append([])
            for _ in range(count):
                k = min(last, k + int(torch.randint(0, 2, (1,), generator=generator)))
                sentence[-1].append(k)
        self.step(tokens, sentence)

    def widen(self, beam: int) -> None:
        self.state.widen(beam)
        self.beam = beam
        for name in ("tokens", "sentence", "x"):
            setattr(self, name, [list(row) for row in getattr(self, name) for _ in range(beam)])

    def reorder(self, generator: torch.Generator) -> None:
        within = torch.randint(0, self.beam, (len(self.tokens),), generator=generator).tolist()
        origin = [row // self.beam * self.beam + w for row, w in enumerate(within)]
        self.state.reorder(torch.tensor(origin))
        for name in ("tokens", "sentence", "x"):
            setattr(self, name, [list(getattr(self, name)[i]) for i in origin])

    def keep(self, stay: list[int]) -> None:
        """The others end, with what is on their second beam, if they have one."""
        ended = [i for i in range(len(self.entries)) if i not in stay]
        best = [i * self.beam + min(1, self.beam - 1) for i in ended]
        longest = max(len(self.tokens[row]) for row in best)
        tokens = torch.tensor([self.tokens[r] + [0] * (longest - len(self.tokens[r])) for r in best])
        sentence = torch.tensor([self.sentence[r] + [-1] * (longest - len(self.tokens[r])) for r in best])
        self.state.finish(torch.tensor(ended), tokens, sentence)
        for i, row in zip(ended, best, strict=True):
            e = self.entries[i]
            shown = self.shown(self.tokens[row], self.sentence[row], self.source.current[e])
            self.done.append((shown, int(self.rows.group[e]), int(self.rows.end[e])))
        self.state.select(torch.tensor(stay), self.beam)
        self.entries = [self.entries[i] for i in stay]
        rows = [i * self.beam + w for i in stay for w in range(self.beam)]
        for name in ("tokens", "sentence", "x"):
            setattr(self, name, [list(getattr(self, name)[i]) for i in rows])


def joined(batch: Batch, rows: list[int]) -> Batch:
    """Some rows of a batch, with all others of their documents as extra rows: earlier ones have a target."""
    own = torch.tensor(rows)
    source, order = batch.source, batch.source.first_sentence + batch.source.current[:, 0]
    others, written = [], []
    for j in range(len(order)):
        asked = [i for i in rows if source.document[i] == source.document[j]]
        if j not in rows and asked:
            others.append(j)
            written.append(bool(order[j] < order[asked].max()))
    beside = None
    if others:
        index = torch.tensor(others)
        sentence = batch.input_sentence[index].where(torch.tensor(written)[:, None], torch.tensor(-1))
        beside = ExtraRows(source.select(index), batch.target_input[index], sentence)
    sides = (batch.target_input, batch.input_sentence, batch.target_label, batch.label_sentence)
    return Batch(replace(source.select(own), extra_rows=beside), *(x[own] for x in sides))


VIEWS = {"local context": window(1), "longer": window(2, after=1), "sentences": {"kind": "sentence"}}
PAIRS = {
    ("local context", False, 3),
    ("local context", True, 1),
    ("longer", False, 1),
    ("longer", True, 3),
    ("sentences", False, 3),
    ("sentences", True, 1),
}
# A view, a switch and a beam: quick are cases that hold every pair of values, the others are for every week.
EVERY_PAIR = [
    pytest.param(*case, marks=[] if case in PAIRS else [pytest.mark.slow])
    for case in itertools.product(VIEWS, (False, True), (1, 3))
]


@pytest.mark.parametrize(("view", "whole_windows", "beam"), EVERY_PAIR)
@torch.no_grad()
def test_every_step_of_rows_of_different_documents(view: str, beam: int, whole_windows: bool) -> None:
    """One row a document, and its extra rows: as in sequential decoding."""
    config = config_of(VIEWS[view])
    model = docflat(config)
    batch = joined(batch_of(config), [2, 5, 6])
    written = SentenceHypothesis(model, batch, begun_of(batch, whole_windows), slots=80)
    written.search(beam, {8: [0, 1], 20: [1]})


@pytest.mark.parametrize(("view", "cross_document", "beam"), EVERY_PAIR)
@torch.no_grad()
def test_every_step_of_rows_that_are_written_at_once(view: str, cross_document: bool, beam: int) -> None:
    """Rows of the same documents, out of order; they end one after the other."""
    config = config_of(VIEWS[view], cross_document=cross_document)
    model = docflat(config)
    batch = batch_of(config, [3, 4, 0, 2, 5, 6, 1])
    written = SentenceHypothesis(model, batch, begun_of(batch, view == "longer"), slots=80)
    # At first, the first sentence of a document ends, and a document of its own.
    written.search(beam, {4: [0, 1, 6, 3, 4], 9: [0, 2, 1], 20: [1]})


def begun_of(batch: Batch, whole_windows: bool) -> list[int]:
    """The target context and what opens the current sentence; or nothing but what opens the row."""
    if whole_windows:
        return [1] * len(batch.target_input)
    return [int(row.byte().argmax()) + 1 for row in is_current(batch.input_sentence, batch.source.current)]
