"""Search against exhaustive enumeration, a plain beam written with lists, and the model's own scores."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cotext.data.batch import Source
from cotext.errors import CotextError
from cotext.layers.blocks import SentenceEmbedding, Size
from cotext.models.transformer import Transformer
from cotext.search import Hypothesis, Request, SearchOptions, SearchSymbols, search

PAD, BOS, UNK, EOS, SEP, BLANK, A, B = range(8)
SYMBOLS = SearchSymbols(PAD, BOS, EOS, SEP, UNK, blank=(BLANK, PAD))
NEVER = {PAD, BOS, UNK}


class Table:
    """A model whose next-token distribution is looked up by what it has read so far, sentences included."""

    def __init__(self, seed: int, sharpness: float = 2.0, entries: int = 997) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.logits = torch.randn(entries, 8, generator=generator, dtype=torch.float64) * sharpness
        self.calls = 0

    @property
    def output_weight(self) -> Tensor:
        return torch.eye(8, dtype=torch.float64)

    def encode(self, source: Source) -> "TableState":
        return TableState(source.tokens[:, 0])

    def decode(self, tokens: Tensor, sentence: Tensor, state: "TableState") -> Tensor:
        self.calls += 1
        hidden = []
        for token, k in zip(tokens.T, sentence.T, strict=True):
            read = self.read(state.history, token, k)
            state.history = torch.where(k >= 0, read, state.history)
            hidden.append(self.logits[state.history])
        return torch.stack(hidden, dim=1)

    def read(self, history: Tensor, token: Tensor, sentence: Tensor) -> Tensor:
        return (history * 31 + token * 7 + sentence + 1) % len(self.logits)


@dataclass
class TableState:
    history: Tensor

    def open(self, places: int) -> None:
        self.places = places

    def widen(self, beam: int) -> None:
        self.history = self.history.repeat_interleave(beam)

    def reorder(self, origin: Tensor) -> None:
        self.history = self.history[origin]

    def select(self, entries: Tensor, beam: int) -> None:
        self.history = self.history.view(-1, beam)[entries].flatten()


def table_source(keys: Sequence[int]) -> Source:
    n = len(keys)
    zeros = torch.zeros(n, dtype=torch.long)
    return Source(
        torch.tensor(keys)[:, None], zeros[:, None], torch.tensor([[0, 1]] * n), zeros, zeros.bool()
    )


class Plain:
    """What search promises, for one row, in the words of the contract: sequences, one at a time."""

    def __init__(self, model: Table, key: int, request: Request) -> None:
        self.model, self.key, self.request = model, key, request

    def next_log_probabilities(self, new: Sequence[int]) -> list[float]:
        history, k = torch.tensor([self.key]), self.request.first_sentence
        for token in (BOS, *self.request.prefix, *new):
            k += token == SEP
            history = self.model.read(history, torch.tensor([token]), torch.tensor([k]))
        row: list[float] = self.model.logits[history[0]].log_softmax(dim=0).tolist()
        return row

    def sentences(self, new: Sequence[int]) -> list[list[int]]:
        """The sentences begun so far, the first with what the prefix holds of it."""
        prefix = list(self.request.prefix)
        begun = prefix[len(prefix) - prefix[::-1].index(SEP) :] if SEP in prefix else prefix
        split: list[list[int]] = [begun]
        for token in new:
            if token == SEP:
                split.append([])
            else:
                split[-1] = [*split[-1], token]
        return split

    def is_translation(self, new: Sequence[int]) -> bool:
        """Whether `new`, without its `eos`, is what was asked for."""
        split = self.sentences(new)
        worded = all(any(token in (A, B) for token in s) for s in split)
        return worded and len(split) == self.request.sentences and len(new) < self.request.max_tokens

    def may_become_translation(self, new: Sequence[int]) -> bool:
        split = self.sentences(new)
        if len(split) > self.request.sentences or not all(set(s) & {A, B} for s in split[:-1]):
            return False
        must = 2 * (self.request.sentences - len(split) + 1) - bool(set(split[-1]) & {A, B})
        return len(new) + must <= self.request.max_tokens

    def all_translations(self) -> list[tuple[list[int], float]]:
        """Every translation there is, with its log-probability."""
        found = []
        going: list[tuple[list[int], float]] = [([], 0.0)]
        while going:
            new, total = going.pop()
            row = self.next_log_probabilities(new)
            if self.is_translation(new):
                found.append((new, total + row[EOS]))
            for token in (SEP, BLANK, A, B):
                if self.may_become_translation([*new, token]):
                    going.append(([*new, token], total + row[token]))
        return found

    def beam_search(self, options: SearchOptions) -> tuple[list[int], float]:
        """A beam without any shortcut: it goes on until the length limit."""
        live: list[tuple[list[int], float]] = [([], 0.0)]
        best: tuple[float, list[int]] = (-math.inf, [])
        while live:
            candidates = []
            for new, total in live:
                row = self.next_log_probabilities(new)
                if self.is_translation(new):
                    candidates.append(([*new, EOS], total + row[EOS]))
                for token in (SEP, BLANK, A, B):
                    if self.may_become_translation([*new, token]):
                        candidates.append(([*new, token], total + row[token]))
            candidates.sort(key=lambda c: -c[1])
            candidates = candidates[: 2 * options.beam]
            for new, total in candidates:
                score = total / len(new) ** options.length_penalty
                if new[-1] == EOS and score > best[0]:
                    best = score, new[:-1]
            live = [c for c in candidates if c[0][-1] != EOS][: options.beam]
        return best[1], best[0]


def search_table(
    model: Table, keys: Sequence[int], requests: Sequence[Request], options: SearchOptions
) -> list[Hypothesis]:
    return search(model, table_source(keys), requests, SYMBOLS, options)


REQUESTS = [
    Request(prefix=(), first_sentence=0, sentences=2, max_tokens=6),
    Request(prefix=(A, B, SEP, B, SEP), first_sentence=1, sentences=1, max_tokens=5),
    Request(prefix=(A, SEP, BLANK), first_sentence=0, sentences=2, max_tokens=5),
    Request(prefix=(B, A), first_sentence=2, sentences=3, max_tokens=7),
]


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(5))
def test_a_beam_wide_enough_finds_the_best_of_all_translations(seed: int, length_penalty: float) -> None:
    model = Table(seed)
    keys = [3, 5, 7, 11]
    found = search_table(model, keys, REQUESTS, SearchOptions(1500, length_penalty))
    for key, request, hypothesis in zip(keys, REQUESTS, found, strict=True):
        scored = [
            (log_probability / (len(new) + 1) ** length_penalty, new, log_probability)
            for new, log_probability in Plain(model, key, request).all_translations()
        ]
        assert len(scored) > 20
        score, new, log_probability = max(scored)
        assert hypothesis.tokens == new
        assert hypothesis.score == pytest.approx(score, abs=1e-12)
        assert hypothesis.log_probability == pytest.approx(log_probability, abs=1e-12)
        assert hypothesis.complete == (len(new) + 1 < request.max_tokens)


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("beam", [2, 3, 5])
def test_a_narrow_beam_keeps_what_a_plain_beam_keeps(beam: int, length_penalty: float) -> None:
    # The plain one never stops early and never prunes: so stopping and pruning lose nothing here. (Pruning
    # may only ever gain: it gives room to hypotheses that can still win.)
    options = SearchOptions(beam, length_penalty)
    requests = [Request(r.prefix, r.first_sentence, r.sentences, r.max_tokens + 6) for r in REQUESTS]
    for seed in range(6):
        model = Table(seed)
        keys = [2, 4, 6, 8]
        for key, request, got in zip(
            keys, requests, search_table(model, keys, requests, options), strict=True
        ):
            new, score = Plain(model, key, request).beam_search(options)
            assert got.score >= score - 1e-12
            if got.score <= score + 1e-12:
                assert got.tokens == new


def greedy(
    next_log_probabilities: Callable[[list[int]], list[float]], plain: Plain
) -> tuple[list[int], float]:
    new: list[int] = []
    total = 0.0
    while True:
        row = next_log_probabilities(new)
        allowed = [t for t in (SEP, BLANK, A, B) if plain.may_become_translation([*new, t])]
        allowed += [EOS] if plain.is_translation(new) else []
        token = max(allowed, key=lambda t: row[t])
        total += row[token]
        if token == EOS:
            return new, total
        new.append(token)


@pytest.mark.parametrize("seed", range(5))
def test_a_beam_of_one_is_greedy(seed: int) -> None:
    model = Table(seed)
    keys = [1, 2, 3, 4]
    requests = [Request(r.prefix, r.first_sentence, r.sentences, r.max_tokens + seed) for r in REQUESTS]
    found = search_table(model, keys, requests, SearchOptions(beam=1))
    for key, request, hypothesis in zip(keys, requests, found, strict=True):
        plain = Plain(model, key, request)
        new, total = greedy(plain.next_log_probabilities, plain)
        assert (hypothesis.tokens, hypothesis.log_probability) == (new, pytest.approx(total, abs=1e-12))


def test_a_score_worked_by_hand() -> None:
    # Every row the same: a .5, b .25, eos .25. Greedy never closes before the limit of 3: a a eos.
    model = Table(0)
    model.logits = torch.full((1, 8), -1e4, dtype=torch.float64)
    model.logits[0, A], model.logits[0, B], model.logits[0, EOS] = (
        math.log(0.5),
        math.log(0.25),
        math.log(0.25),
    )
    request = Request((), 0, 1, 3)
    [hypothesis] = search_table(model, [0], [request], SearchOptions(1, 1.0))
    assert hypothesis.tokens == [A, A]
    assert hypothesis.log_probability == pytest.approx(math.log(1 / 16))
    assert hypothesis.score == pytest.approx(math.log(1 / 16) / 3)
    assert not hypothesis.complete
    # Per token, `a eos` is log(1/8)/2 = -1.04 and `a a eos` log(1/16)/3 = -0.92; in all, -2.08 and -2.77.
    [short] = search_table(model, [0], [request], SearchOptions(2, 0.0))
    assert (short.tokens, short.complete) == ([A], True)
    [long] = search_table(model, [0], [request], SearchOptions(2, 1.0))
    assert (long.tokens, long.complete) == ([A, A], False)


def test_search_stops_when_nothing_can_win_any_more() -> None:
    # `a eos` scores (-4.02 - 0.02) / 2 ** 0.6 = -2.67. Going on costs 4.02 a token; at the limit -2.67 would
    # take a log-probability above -2.67 * 1000 ** 0.6 = -168: lost after 168 / 4.02 = 42 tokens.
    model = Table(0, entries=1)
    model.logits[0] = torch.tensor([0, 0, 0, 9.0, 0, 0, 5, 4])
    search_table(model, [0], [Request((), 0, 1, 1000)], SearchOptions(4, 0.6))
    assert model.calls == 42


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_sentences_asked_for_come_out_and_none_is_empty(data: st.DataObject) -> None:
    draw = data.draw
    prefixes = st.lists(st.sampled_from([SEP, BLANK, A, B]), max_size=5)
    requests = []
    for _ in range(draw(st.integers(1, 4))):
        sentences = draw(st.integers(1, 4))
        limit = 2 * sentences + draw(st.integers(0, 8))
        requests.append(Request(draw(prefixes), draw(st.integers(0, 3)), sentences, limit))
    model = Table(draw(st.integers(0, 50)), sharpness=draw(st.sampled_from([0.5, 5.0])))
    options = SearchOptions(draw(st.integers(1, 5)), draw(st.sampled_from([0.0, 0.6, 1.5])))
    keys = list(range(len(requests)))
    for key, request, hypothesis in zip(
        keys, requests, search_table(model, keys, requests, options), strict=True
    ):
        assert Plain(model, key, request).is_translation(hypothesis.tokens)
        assert not NEVER & set(hypothesis.tokens)
        alone = search_table(model, [key], [request], options)[0]
        assert alone.tokens == hypothesis.tokens


def test_equal_scores_are_settled_the_same_way_every_time() -> None:
    model = Table(0, sharpness=0.0)
    first = search_table(model, [1, 2, 3], REQUESTS[:3], SearchOptions(3))
    assert search_table(model, [1, 2, 3], REQUESTS[:3], SearchOptions(3)) == first
    [greedy_one] = search_table(model, [1], [Request((), 0, 1, 4)], SearchOptions(1))
    assert greedy_one.tokens == sorted(greedy_one.tokens)


def transformer(seed: int) -> tuple[Transformer, SearchSymbols]:
    torch.manual_seed(seed)
    embedding = SentenceEmbedding(14, 16, 0.0, "shifted", segments="learned", max_segments=3)
    model = Transformer(Size(16, 32, 2, 1, 2), embedding, shift="sequence").double().eval()
    torch.nn.init.normal_(embedding.segment)
    embedding.weight.data *= 2  # peaked enough that hypotheses close at different times
    return model, SearchSymbols(pad=13, bos=12, eos=11, sep=10, unk=0, blank=(1,))


def rows_source(lengths: Sequence[int]) -> Source:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.full((len(lengths), max(lengths)), 13)
    sentence = torch.full_like(tokens, -1)
    for i, length in enumerate(lengths):
        tokens[i, :length] = torch.randint(0, 12, (length,), generator=generator)
        sentence[i, :length] = torch.arange(length) // 3
    n = len(lengths)
    return Source(tokens, sentence, torch.tensor([[0, 1]] * n), torch.zeros(n).long(), torch.zeros(n).bool())


def one_row(source: Source, row: int) -> Source:
    own = source.select(torch.tensor([row]))
    length = int((own.sentence >= 0).sum())
    return Source(own.tokens[:, :length], own.sentence[:, :length], own.current, own.document, own.continues)


ROWS = [
    Request([], 0, 2, 40),
    Request([3, 10, 4, 5, 10], 0, 1, 25),
    Request([3, 4, 5, 6, 7, 8, 9, 2, 10, 2], 1, 2, 9),
    Request([6, 10], 0, 3, 60),
    Request([2], 0, 1, 2),
]


@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("seed", range(3))
def test_a_batch_gives_what_its_rows_give_alone(seed: int, beam: int) -> None:
    model, symbols = transformer(seed)
    source = rows_source([8, 5, 11, 3, 6])
    together = search(model, source, ROWS, symbols, SearchOptions(beam))
    for i, hypothesis in enumerate(together):
        [alone] = search(model, one_row(source, i), ROWS[i : i + 1], symbols, SearchOptions(beam))
        assert (alone.tokens, alone.complete) == (hypothesis.tokens, hypothesis.complete)
        assert alone.score == pytest.approx(hypothesis.score, abs=1e-9)


@pytest.mark.parametrize("beam", [1, 4])
@torch.no_grad()
def test_the_reported_log_probability_is_the_models_own(beam: int) -> None:
    model, symbols = transformer(7)
    source = rows_source([8, 5, 11, 3, 6])
    found = search(model, source, ROWS, symbols, SearchOptions(beam, 0.6))
    for i, (request, hypothesis) in enumerate(zip(ROWS, found, strict=True)):
        labels = torch.tensor([*request.prefix, *hypothesis.tokens, symbols.eos])
        inputs = torch.cat((torch.tensor([symbols.bos]), labels[:-1]))
        sentence = request.first_sentence + (inputs == symbols.sep).cumsum(dim=0)
        hidden = model.decode(inputs[None], sentence[None], model.encode(one_row(source, i)))[0]
        rows = (hidden @ model.output_weight.T).log_softmax(dim=1).gather(1, labels[:, None])[:, 0]
        total = float(rows[len(request.prefix) :].sum())
        assert hypothesis.log_probability == pytest.approx(total, abs=1e-9)
        assert hypothesis.score == pytest.approx(total / (len(hypothesis.tokens) + 1) ** 0.6, abs=1e-9)


@torch.no_grad()
def test_greedy_is_the_argmax_of_full_passes() -> None:
    model, symbols = transformer(5)
    source = rows_source([9])
    [hypothesis] = search(model, source, [Request([4, 10], 0, 1, 12)], symbols, SearchOptions(1))
    tokens = [symbols.bos, 4, 10]
    never = {symbols.pad, symbols.bos, symbols.sep, symbols.unk}
    for step in itertools.count(1):
        inputs = torch.tensor([tokens])
        hidden = model.decode(inputs, (inputs == 10).cumsum(dim=1), model.encode(source))[0, -1]
        logits = hidden @ model.output_weight.T
        worded = bool(set(tokens[3:]) - {1})
        banned = never if worded else never | {symbols.eos}
        logits[list(banned)] = -torch.inf
        token = symbols.eos if step == 12 else int(logits.argmax())
        if token == symbols.eos:
            break
        tokens.append(token)
    assert hypothesis.tokens == tokens[3:]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request((), 0, 0, 5), "0 sentences"),
        (Request((), 0, 3, 5), "at least 6 tokens"),
        (Request((A,), 0, 3, 4), "at least 5 tokens"),
        (Request((A, SEP, BLANK), 0, 1, 1), "at least 2 tokens"),
    ],
)
def test_a_request_that_cannot_be_met_is_refused(request_: Request, message: str) -> None:
    with pytest.raises(CotextError, match=message):
        search_table(Table(0), [0], [request_], SearchOptions())


def test_the_shortest_limit_leaves_one_way_to_write() -> None:
    for beam in (1, 3):
        [hypothesis] = search_table(Table(1), [0], [Request((A, SEP, B), 0, 2, 3)], SearchOptions(beam))
        assert hypothesis.tokens[0] == SEP
        assert hypothesis.tokens[1] in (A, B)
        assert not hypothesis.complete


@pytest.mark.parametrize("beam", [1, 3])
def test_an_output_that_is_not_a_number_is_reported(beam: int) -> None:
    model = Table(0)
    model.logits[:] = torch.nan
    with pytest.raises(CotextError, match="request 0: no allowed token"):
        search_table(model, [0], [Request((), 0, 1, 6)], SearchOptions(beam))


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(CotextError, match="beam is 0"):
        SearchOptions(beam=0)
    with pytest.raises(CotextError, match="length_penalty is -1"):
        SearchOptions(length_penalty=-1)
    with pytest.raises(CotextError, match="1 requests for 2 source rows"):
        search_table(Table(0), [0, 1], REQUESTS[:1], SearchOptions())
