"""Search against exhaustive enumeration, a plain beam written with lists, and the model's own scores."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cotext.config.recipe import Align, LengthPenaltyForm
from cotext.data.batch import Source, SpecialSymbols
from cotext.layers.layout import Layouts
from cotext.models.interface import TranslationModel
from cotext.models.output_layer import best_column, best_columns
from cotext.runtime import CotextError
from cotext.search.beam_search import search
from cotext.search.constraints import SearchRequest, SearchSymbols
from cotext.search.hypotheses import Hypothesis, SearchOptions
from tests.loops import loop_over
from tests.tables import Table, TableState, table_source

PAD, BOS, UNK, EOS, SEP, BLANK, A, B, SEP2 = range(9)
NEVER = {PAD, BOS, UNK}
# Of the indexed separators there are fewer than sentences, so that the last one serves several.
KINDS = {
    "plain": SpecialSymbols(PAD, BOS, EOS, (SEP,)),
    "indexed": SpecialSymbols(PAD, BOS, EOS, (SEP, SEP2)),
    "bracket": SpecialSymbols(PAD, BOS, EOS, (EOS,), bracket=True),
}
# What can be searched for, in every way in which it can be.
WAYS: list[tuple[str, Align]] = [
    ("plain", "constrained"),
    ("indexed", "constrained"),
    ("bracket", "constrained"),
    ("plain", "free"),
    ("indexed", "free"),
]
ways = pytest.mark.parametrize(("kind", "align"), WAYS)
kinds = pytest.mark.parametrize("kind", KINDS)
LENGTH_PENALTIES: list[tuple[float, LengthPenaltyForm]] = [
    (0.0, "power"),
    (0.6, "power"),
    (2.0, "power"),
    (0.6, "gnmt"),
    (2.0, "gnmt"),
]


def penalised(log_probability: float, length: int, exponent: float, form: LengthPenaltyForm) -> float:
    """A score, by the definitions of fairseq and of Wu et al. 2016, equation 14."""
    if form == "power":
        return log_probability / length**exponent
    return log_probability * (5 + 1) ** exponent / (5 + length) ** exponent


class Plain:
    """What search promises, for one row, in the words of the contract: sequences, one at a time."""

    def __init__(self, model: Table, key: int, request: SearchRequest, kind: str, align: Align) -> None:
        self.model, self.key, self.request, self.free = model, key, request, align == "free"
        self.symbols = KINDS[kind]

    def inputs(self, new: Sequence[int]) -> list[tuple[int, int]]:
        """Decoder inputs, each with its sentence."""
        k = self.request.first_sentence
        read = [(BOS, k)]
        for token in (*self.request.prefix, *new):
            k += token in self.symbols.separators
            opens = self.symbols.bracket and token == EOS
            read.append((BOS if opens else token, k))
        return read

    def next_log_probabilities(self, new: Sequence[int]) -> list[float]:
        history = torch.tensor([self.key])
        for token, k in self.inputs(new):
            history = self.model.read(history, torch.tensor([token]), torch.tensor([k]))
        row: list[float] = self.model.logits[history[0]].log_softmax(dim=0).tolist()
        return row

    def sentences(self, new: Sequence[int]) -> tuple[list[list[int]], list[int]]:
        """The sentences begun so far and the labels that closed all but the last."""
        split: list[list[int]] = [[]]
        closers = []
        for token in new:
            if token in self.symbols.separators:
                closers.append(token)
                split.append([])
            else:
                split[-1].append(token)
        return split, closers

    def begun(self) -> list[int]:
        """What the prefix holds of the first sentence to be produced."""
        begun: list[int] = []
        for token in self.request.prefix:
            begun = [] if token in self.symbols.separators else [*begun, token]
        return begun

    def is_sound(self, new: Sequence[int], complete: bool) -> bool:
        """Whether `new`, without its last `eos`, is what was asked for, or may still become it."""
        limits = self.request.max_tokens
        if self.free:
            return len(new) + 1 <= sum(limits)
        split, closers = self.sentences(new)
        first = self.request.first_sentence + sum(t in self.symbols.separators for t in self.request.prefix)
        if len(split) > len(limits) or (complete and len(split) < len(limits)):
            return False
        if closers != [self.symbols.separator(first + i) for i in range(len(closers))]:
            return False
        for i, (sentence, limit) in enumerate(zip(split, limits, strict=False)):
            has_content_token = bool({A, B} & {*sentence, *(self.begun() if i == 0 else [])})
            closed = complete or i < len(split) - 1
            if (closed and not has_content_token) or len(sentence) + 2 - has_content_token > limit:
                return False
        return True

    def is_translation(self, new: Sequence[int]) -> bool:
        return self.is_sound(new, complete=True)

    def choices(self, new: Sequence[int]) -> list[tuple[int, bool]]:
        """The tokens that may follow, and whether they end it all."""
        found = []
        for token in {BLANK, A, B, EOS, *self.symbols.separators}:
            if token == EOS and self.is_translation(new):
                found.append((token, True))
            elif (token != EOS or self.symbols.bracket) and self.is_sound([*new, token], complete=False):
                found.append((token, False))
        return found

    def all_translations(self) -> list[tuple[list[int], float]]:
        """Every translation there is, with its log-probability."""
        found = []
        going: list[tuple[list[int], float]] = [([], 0.0)]
        while going:
            new, total = going.pop()
            row = self.next_log_probabilities(new)
            for token, ends in self.choices(new):
                (found if ends else going).append((new if ends else [*new, token], total + row[token]))
        return found

    def beam_search(self, options: SearchOptions) -> tuple[list[int], float]:
        """A beam without any shortcut: it goes on until the length limit."""
        live: list[tuple[list[int], float]] = [([], 0.0)]
        best: tuple[float, list[int]] = (-math.inf, [])
        while live:
            candidates = []
            for new, total in live:
                row = self.next_log_probabilities(new)
                candidates += [([*new, t], total + row[t], ends) for t, ends in self.choices(new)]
            candidates.sort(key=lambda c: -c[1])
            candidates = candidates[: 2 * options.beam]
            for new, total, ends in candidates:
                score = penalised(total, len(new), options.length_penalty, options.length_penalty_form)
                if ends and score > best[0]:
                    best = score, new[:-1]
            live = [(new, total) for new, total, ends in candidates if not ends][: options.beam]
        return best[1], best[0]

    def truncated(self, new: Sequence[int]) -> list[int]:
        """The sentences that are as long as they may be."""
        split, _ = self.sentences(new)
        if self.free:
            return [len(split) - 1] if len(new) + 1 == sum(self.request.max_tokens) else []
        limits = self.request.max_tokens
        return [i for i, (s, limit) in enumerate(zip(split, limits, strict=True)) if len(s) + 1 == limit]

    def truncated_of(self, hypothesis: Hypothesis) -> list[int]:
        """The sentences whose closing symbols a hypothesis says a limit has put there."""
        labels = [*hypothesis.tokens, EOS]
        closing = {*self.symbols.separators, EOS}
        assert all(labels[place] in closing for place in hypothesis.truncated)
        return [sum(label in closing for label in labels[:place]) for place in hypothesis.truncated]


@cache
def all_translations(
    seed: int, key: int, request: SearchRequest, kind: str, align: Align
) -> tuple[Plain, list[tuple[list[int], float]]]:
    plain = Plain(Table(seed), key, request, kind, align)
    return plain, plain.all_translations()


def search_table(
    model: Table,
    keys: Sequence[int],
    requests: Sequence[SearchRequest],
    options: SearchOptions,
    kind: str = "plain",
) -> list[Hypothesis]:
    unused = tuple({SEP, SEP2} - {*KINDS[kind].separators})
    symbols = SearchSymbols(KINDS[kind], UNK, blank=(BLANK, PAD), unused=unused)
    return search(model, table_source(keys), requests, symbols, options)


def prefix(kind: str, first: int, closed: Sequence[Sequence[int]], begun: Sequence[int] = ()) -> list[int]:
    """Labels of whole sentences, and of one that is begun."""
    symbols = KINDS[kind]
    labels = [label for k, s in enumerate(closed, start=first) for label in (*s, symbols.separator(k))]
    return [*labels, *begun]


def requests_of(kind: str, longer: int = 0) -> list[SearchRequest]:
    """From the beginning, after whole sentences, within one that is begun by a blank or by words."""
    found = [
        SearchRequest((), 0, (2, 4)),
        SearchRequest(prefix(kind, 1, [[A, B], [B]]), 1, (5,)),
        SearchRequest(prefix(kind, 0, [[A]], [BLANK]), 0, (2, 3)),
        SearchRequest(prefix(kind, 2, [], [B, A]), 2, (1, 3, 3)),
    ]
    return [
        SearchRequest(tuple(r.prefix), r.first_sentence, tuple(n + longer for n in r.max_tokens))
        for r in found
    ]


REQUESTS = requests_of("plain")


@ways
def test_a_beam_wide_enough_finds_the_best_of_all_translations(kind: str, align: Align) -> None:
    keys = [3, 5, 7, 11]
    requests = requests_of(kind)
    if align == "free":
        requests = [r for r in requests if sum(r.max_tokens) < 6]  # of longer ones there are too many
    for number, (length_penalty, form) in enumerate(LENGTH_PENALTIES):
        seed = number % 3
        options = SearchOptions(1500, length_penalty, align, length_penalty_form=form)
        found = search_table(Table(seed), keys[: len(requests)], requests, options, kind)
        for key, request, hypothesis in zip(keys, requests, found, strict=False):
            plain, every = all_translations(seed, key, request, kind, align)
            scored = [
                (penalised(log_probability, len(new) + 1, length_penalty, form), new, log_probability)
                for new, log_probability in every
            ]
            assert len(scored) > 15
            score, new, log_probability = max(scored)
            assert hypothesis.tokens == new, (length_penalty, form, key)
            assert hypothesis.score == pytest.approx(score, abs=1e-12)
            assert hypothesis.log_probability == pytest.approx(log_probability, abs=1e-12)
            assert plain.truncated_of(hypothesis) == plain.truncated(new)


@ways
@pytest.mark.parametrize(("length_penalty", "form"), LENGTH_PENALTIES)
def test_a_narrow_beam_keeps_what_a_plain_beam_keeps(
    kind: str, align: Align, length_penalty: float, form: LengthPenaltyForm
) -> None:
    # The plain one never stops early and never prunes: so stopping and pruning lose nothing here. (Pruning
    # may only ever gain: it gives room to hypotheses that can still win.)
    requests = requests_of(kind, longer=3)
    for seed, beam in enumerate((2, 5, 2, 5)):
        options = SearchOptions(beam, length_penalty, align, length_penalty_form=form)
        model = Table(seed)
        keys = [2, 4, 6, 8]
        for key, request, got in zip(
            keys, requests, search_table(model, keys, requests, options, kind), strict=True
        ):
            new, score = Plain(model, key, request, kind, align).beam_search(options)
            assert got.score >= score - 1e-12
            if got.score <= score + 1e-12:
                assert got.tokens == new


def greedy(plain: Plain) -> tuple[list[int], list[float]]:
    new: list[int] = []
    log_probabilities = []
    while True:
        row = plain.next_log_probabilities(new)
        token, ends = max(plain.choices(new), key=lambda choice: row[choice[0]])
        log_probabilities.append(row[token])
        if ends:
            return new, log_probabilities
        new.append(token)


@ways
@pytest.mark.parametrize("seed", range(5))
def test_a_beam_of_one_is_greedy(kind: str, align: Align, seed: int) -> None:
    model = Table(seed)
    keys = [1, 2, 3, 4]
    requests = requests_of(kind, longer=seed)
    found = search_table(model, keys, requests, SearchOptions(1, align=align), kind)
    for key, request, hypothesis in zip(keys, requests, found, strict=True):
        new, log_probabilities = greedy(Plain(model, key, request, kind, align))
        assert hypothesis.tokens == new
        assert hypothesis.token_log_probabilities == pytest.approx(log_probabilities, abs=1e-12)


@kinds
@pytest.mark.parametrize("beam", [1, 3])
def test_a_sentence_that_will_not_end_takes_nothing_from_those_after_it(kind: str, beam: int) -> None:
    """All but certain to write `a` for ever, but for sentence 2, which is `b`."""
    model = Table(0, sharpness=0.0)

    def read(history: Tensor, token: Tensor, sentence: Tensor) -> Tensor:
        return sentence

    model.read = read  # type: ignore[method-assign]
    closing = list({EOS, *KINDS[kind].separators})
    model.logits[:, A] = 30.0
    model.logits[2, closing], model.logits[2, B] = 60.0, 50.0
    request = SearchRequest((), 0, (3, 5, 9, 2))
    [found] = search_table(model, [0], [request], SearchOptions(beam, 1.0), kind)
    plain = Plain(model, 0, request, kind, "constrained")
    assert plain.sentences(found.tokens)[0] == [[A] * 2, [A] * 4, [B], [A]]
    assert plain.truncated_of(found) == [0, 1, 3]


def test_free_search_may_leave_everything_out_or_never_stop() -> None:
    model = Table(0, sharpness=0.0)
    model.logits[:, EOS] = 9.0
    for beam in (1, 2):
        options = SearchOptions(beam, 0.6, "free")
        [nothing] = search_table(model, [0], [SearchRequest((), 0, (4, 4))], options)
        assert (nothing.tokens, nothing.truncated) == ([], ())
        assert nothing.token_log_probabilities == [pytest.approx(nothing.log_probability)]
    model.logits[:, SEP] = 99.0
    [separators] = search_table(model, [0], [SearchRequest((), 0, (4, 4))], SearchOptions(1, 0.6, "free"))
    assert (separators.tokens, separators.truncated) == ([SEP] * 7, (7,))


def test_a_score_worked_by_hand() -> None:
    # Every row the same: a .5, b .25, eos .25. Greedy never closes before the limit of 3: a a eos.
    model = Table(0)
    model.logits = torch.full((1, 9), -1e4, dtype=torch.float64)
    model.logits[0, A], model.logits[0, B], model.logits[0, EOS] = (
        math.log(0.5),
        math.log(0.25),
        math.log(0.25),
    )
    request = SearchRequest((), 0, (3,))
    [hypothesis] = search_table(model, [0], [request], SearchOptions(1, 1.0))
    assert hypothesis.tokens == [A, A]
    assert hypothesis.log_probability == pytest.approx(math.log(1 / 16))
    assert hypothesis.score == pytest.approx(math.log(1 / 16) / 3)
    assert hypothesis.truncated == (2,)
    # Per token, `a eos` is log(1/8)/2 = -1.04 and `a a eos` log(1/16)/3 = -0.92; in all, -2.08 and -2.77.
    [short] = search_table(model, [0], [request], SearchOptions(2, 0.0))
    assert (short.tokens, short.truncated) == ([A], ())
    assert short.token_log_probabilities == pytest.approx([math.log(0.5), math.log(0.25)])
    [long] = search_table(model, [0], [request], SearchOptions(2, 1.0))
    assert (long.tokens, long.truncated) == ([A, A], (2,))
    # By ((5 + n) / 6), `a eos` is -2.08 * 6 / 7 = -1.78 and `a a eos` -2.77 * 6 / 8 = -2.08.
    [short] = search_table(model, [0], [request], SearchOptions(2, 1.0, length_penalty_form="gnmt"))
    assert short.tokens == [A]
    assert short.score == pytest.approx(math.log(1 / 8) * 6 / 7)


@pytest.mark.parametrize(("form", "calls"), [("power", 42), ("gnmt", 20)])
def test_search_stops_when_nothing_can_win_any_more(form: LengthPenaltyForm, calls: int) -> None:
    # `a eos` scores (-4.02 - 0.02) / 2 ** 0.6 = -2.67. Going on costs 4.02 a token; at the limit -2.67 would
    # take a log-probability above -2.67 * 1000 ** 0.6 = -168: lost after 168 / 4.02 = 42 tokens. By the other
    # form: -4.04 / (7 / 6) ** 0.6 = -3.68, and -3.68 * (1005 / 6) ** 0.6 = -79.6: lost after 20.
    model = Table(0, entries=1)
    model.logits[0] = torch.tensor([0, 0, 0, 9.0, 0, 0, 5, 4, -1e9])
    options = SearchOptions(4, 0.6, length_penalty_form=form)
    search_table(model, [0], [SearchRequest((), 0, (1000,))], options)
    assert model.calls == calls


class Listening(TranslationModel):
    """A table whose rows are told what others have written."""

    sees_other_rows = True

    def __init__(self, table: Table) -> None:
        super().__init__()
        self.table = table
        self.told: dict[int, list[tuple[int, int]]] = {}

    def layouts(
        self, source: Source, input_sentence: Tensor | None = None, training: bool = False
    ) -> Layouts:
        raise NotImplementedError

    @property
    def output_weight(self) -> Tensor:
        return self.table.output_weight

    def encode(self, source: Source) -> "ListeningState":
        return ListeningState(source.tokens[:, 0], source.document, self.told)

    def decode(self, tokens: Tensor, sentence: Tensor, state: "ListeningState") -> Tensor:
        return self.table.decode(tokens, sentence, state)


@dataclass
class ListeningState(TableState):
    entry: Tensor
    told: dict[int, list[tuple[int, int]]]

    def finish(self, entries: Tensor, tokens: Tensor, sentence: Tensor) -> None:
        for entry, *row in zip(self.entry[entries].tolist(), tokens.tolist(), sentence.tolist(), strict=True):
            pairs = list(zip(*row, strict=True))
            length = sum(k >= 0 for _, k in pairs)
            assert set(pairs[length:]) <= {(PAD, -1)}
            assert entry not in self.told
            self.told[entry] = pairs[:length]

    def select(self, entries: Tensor, beam: int) -> None:
        TableState.select(self, entries, beam)
        assert not set(self.entry[entries].tolist()) & self.told.keys()
        self.entry = self.entry[entries]


NUMBERED = SpecialSymbols(PAD, BOS, EOS, (EOS,), bracket=True, numbers=(SEP, SEP2))


@pytest.mark.parametrize(
    ("special", "align"),
    [*((KINDS[kind], align) for kind, align in WAYS), (NUMBERED, "constrained")],
    ids=[*map("-".join, WAYS), "numbered"],
)
@pytest.mark.parametrize(("seed", "beam"), [(0, 1), (1, 3), (2, 1), (3, 3)])
def test_what_has_ended_is_told_first(special: SpecialSymbols, align: Align, beam: int, seed: int) -> None:
    """Of all but those that end last: the decoder inputs of what is found in the end, prefixes included."""
    closer = special.separators[0]
    requests = [
        SearchRequest((), 0, (9,)),
        SearchRequest((A, B, closer), 0, (3, 6), sentence_offset=1),
        SearchRequest((B, special.separator(1), A), 1, (2,)),
        SearchRequest((), 2, (3, 3, 3), sentence_offset=4),
    ]
    keys = list(range(len(requests)))
    source = table_source(keys)
    source.document = torch.tensor(keys)
    model = Listening(Table(seed))
    unused = tuple({SEP, SEP2} - {*special.separators})
    found = search(
        model,
        source,
        requests,
        SearchSymbols(special, UNK, (BLANK,), unused),
        SearchOptions(beam, 0.6, align),
    )
    assert 0 < len(model.told) < len(requests)
    for entry, told in model.told.items():
        request = requests[entry]
        k = request.first_sentence
        read = [(special.opening(request.sentence_offset + k), k)]
        for label in (*request.prefix, *found[entry].tokens):
            closes = label in special.separators
            k += closes
            read.append(
                (special.opening(request.sentence_offset + k) if special.bracket and closes else label, k)
            )
        assert told == read


@ways
@settings(max_examples=30)
@given(data=st.data())
def test_the_sentences_asked_for_come_out_and_not_empty(kind: str, align: Align, data: st.DataObject) -> None:
    draw = data.draw
    words = st.lists(st.sampled_from([BLANK, A, B]), max_size=3)
    requests = []
    for _ in range(draw(st.integers(1, 4))):
        first = draw(st.integers(0, 3))
        given_ = prefix(kind, first, draw(st.lists(words, max_size=2)), draw(words))
        limits = draw(st.lists(st.integers(2, 6), min_size=1, max_size=4))
        requests.append(SearchRequest(given_, first, tuple(limits)))
    model = Table(draw(st.integers(0, 50)), sharpness=draw(st.sampled_from([0.5, 5.0])))
    options = SearchOptions(draw(st.integers(1, 5)), draw(st.sampled_from([0.0, 0.6, 1.5])), align)
    keys = list(range(len(requests)))
    found = search_table(model, keys, requests, options, kind)
    for key, request, hypothesis in zip(keys, requests, found, strict=True):
        plain = Plain(model, key, request, kind, align)
        assert plain.is_translation(hypothesis.tokens)
        assert not NEVER & set(hypothesis.tokens)
        assert plain.truncated_of(hypothesis) == plain.truncated(hypothesis.tokens)
        own = [
            plain.next_log_probabilities(hypothesis.tokens[:i])[label]
            for i, label in enumerate([*hypothesis.tokens, EOS])
        ]
        assert hypothesis.token_log_probabilities == pytest.approx(own, abs=1e-12)
        assert hypothesis.log_probability == pytest.approx(sum(own), abs=1e-12)
        alone = search_table(model, [key], [request], options, kind)[0]
        assert alone.tokens == hypothesis.tokens


def test_equal_scores_are_settled_the_same_way_every_time() -> None:
    model = Table(0, sharpness=0.0)
    first = search_table(model, [1, 2, 3], REQUESTS[:3], SearchOptions(3))
    assert search_table(model, [1, 2, 3], REQUESTS[:3], SearchOptions(3)) == first
    [greedy_one] = search_table(model, [1], [SearchRequest((), 0, (4,))], SearchOptions(1))
    assert greedy_one.tokens == sorted(greedy_one.tokens)


def test_the_shortest_limit_leaves_one_way_to_write() -> None:
    for beam in (1, 3):
        [hypothesis] = search_table(
            Table(1), [0], [SearchRequest((A, SEP, B), 0, (1, 2))], SearchOptions(beam)
        )
        assert hypothesis.tokens[0] == SEP
        assert hypothesis.tokens[1] in (A, B)
        assert hypothesis.truncated == (0, 2)


@pytest.mark.parametrize("beam", [1, 3])
def test_an_output_that_is_not_a_number_is_reported(beam: int) -> None:
    model = Table(0)
    model.logits[:] = torch.nan
    with pytest.raises(CotextError, match="request 0: no allowed token"):
        search_table(model, [0], [SearchRequest((), 0, (6,))], SearchOptions(beam))


@loop_over("vocabulary", [64, 1_000, 4 * 8 * 64, 4 * 8 * 64 + 1, 4_133])
@loop_over("count", [2, 8])
def test_best_columns_are_those_of_topk(vocabulary: int, count: int) -> None:
    """Of small vocabularies and large ones, whose size no block divides; impossible tokens among them."""
    values = torch.randn(5, vocabulary)
    values[1, 3:] = -torch.inf
    values[2, : vocabulary - 1] = -torch.inf  # the best one stands behind the last block
    values[3, 7:40] += 100  # all of the best in one block
    values[4, ::70] += 100  # each in another
    found, tokens = best_columns(values, count)
    assert torch.equal(found, values.topk(count, dim=1).values)
    assert torch.equal(values.gather(1, tokens), found)
    assert all(len(set(row)) == count for row in tokens.tolist())


@loop_over("vocabulary", [3, 64, 200 * 64, 200 * 64 + 1, 10_007])
def test_best_column_is_that_of_max(vocabulary: int) -> None:
    """And the first of equal ones, in one block, in several, and behind the last."""
    values = torch.randn(7, vocabulary)
    values[1] = -torch.inf
    values[2, : vocabulary - 1] = -torch.inf  # the best one stands behind the last block
    values[3, ::2] = 100
    values[4, vocabulary // 2 :: 70] = 100
    values[5, -2:] = 100
    values[6, vocabulary // 3] = torch.nan
    found, column = best_column(values)
    best, first = values.max(dim=1)
    assert torch.equal(found[:6, 0], best[:6])
    assert bool(found[6].isnan())
    assert column[:, 0].tolist() == first.tolist()
    assert column[3].item() == 0
    assert column[4].item() == vocabulary // 2
    assert column[5].item() == max(vocabulary - 2, 0)
