"""Who may look at whom, found out by changing one token; and where tokens stand, by hand."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from cotext.data.batch import Instance, Source, SpecialSymbols, make_batch
from cotext.data.views import Window
from cotext.layers.embedding import EmbeddingKind, InputKind, SentenceEmbedding, Side
from cotext.layers.positions import (
    MAX_ROWS,
    Kind,
    LearnedPositions,
    PositionTable,
    causal,
    closed_sentence,
    mean_sentence_length,
    position_of,
    ranks,
    sinusoidal,
    visible,
)
from cotext.models.build import build_model
from cotext.models.slots import RowEmbedder
from cotext.models.transformer import Transformer
from cotext.runtime import CotextError
from tests.loops import loop_over
from tests.tiny import tiny_config, window

# Two rows of unequal lengths: sentences of 3, 2 and 1 tokens; a first sentence of 2 and one of 1.
SENTENCE = torch.tensor([[0, 0, 0, 1, 1, 2], [0, 0, 1, -1, -1, -1]])
T = torch.arange(6).expand(2, 6)
VOCABULARY = 24


def table(rows: list[str]) -> Tensor:
    return torch.tensor([[cell == "T" for cell in row.split()] for row in rows])


def test_visible_hides_padding_keys_alone() -> None:
    mask = visible(SENTENCE)
    assert mask is not None
    assert mask.shape == (2, 1, 1, 6)
    assert torch.equal(mask[:, 0, 0], table(["T T T T T T", "T T T F F F"]))
    assert visible(SENTENCE[:1]) is None


def test_causal_aligns_the_last_query_with_the_last_key() -> None:
    device = SENTENCE.device
    assert torch.equal(causal(3, 3, device), table(["T F F", "T T F", "T T T"]))
    assert torch.equal(causal(2, 4, device), table(["T T T F", "T T T T"]))


def test_positions_by_hand() -> None:
    rank = ranks(SENTENCE)

    def row(kind: str, number: int, shift: Tensor | int = 0) -> list[int]:
        length = int((SENTENCE[number] >= 0).sum())
        return position_of(kind, T, rank, SENTENCE, shift)[number, :length].tolist()  # type: ignore[arg-type]

    assert row("absolute", 0) == [0, 1, 2, 3, 4, 5]
    assert row("reset", 0) == [0, 1, 2, 0, 1, 0]
    # t + k * shift with k = 1 for the first sentence.
    assert row("shifted", 0, 10) == [10, 11, 12, 23, 24, 35]
    assert row("shifted", 1, 10) == [10, 11, 22]
    per_row = torch.tensor([1, 100])
    assert row("shifted", 0, per_row) == [1, 2, 3, 5, 6, 8]
    assert row("shifted", 1, per_row) == [100, 101, 202]
    assert row("shifted", 0, 0) == row("absolute", 0)


def test_a_separator_has_the_position_of_the_sentence_that_it_closes_on_both_sides() -> None:
    """Lupo et al. 2022, section 3.2: what comes after `<S>` is shifted, not `<S>` itself."""
    symbols = SpecialSymbols(pad=20, bos=21, eos=22, separators=(23,))
    sentences = [[1, 2], [3], [4, 5]]
    batch = make_batch([Instance(0, Window(range(3), range(3), range(3)), sentences, sentences)], symbols)

    def positions(sentence: Tensor) -> list[int]:
        t = torch.arange(sentence.size(1))[None]
        return position_of("shifted", t, ranks(sentence), sentence, 7)[0].tolist()

    # 1 2 <S> | 3 <S> | 4 5 eos              t + 7 | t + 14 | t + 21
    assert positions(batch.source.sentence) == [7, 8, 9, 17, 18, 26, 27, 28]
    # bos 1 2 | <S> 3 | <S> 4 5: every <S> is still where it is on the source side
    closed = closed_sentence(batch.input_sentence, None)
    assert batch.input_sentence.tolist() == [[0, 0, 0, 1, 1, 2, 2, 2]]
    assert closed.tolist() == [[0, 0, 0, 0, 1, 1, 2, 2]]
    assert positions(closed) == [7, 8, 9, 10, 18, 19, 27, 28]
    # Going on after the fourth input.
    rest = closed_sentence(batch.input_sentence[:, 4:], batch.input_sentence[:, 3:4])
    assert rest.tolist() == closed[:, 4:].tolist()


def embedding_of(kind: InputKind, **settings: Any) -> SentenceEmbedding:
    """The same kind of positions and segments on both sides."""
    return SentenceEmbedding(VOCABULARY, 8, 0.0, kind, kind, EmbeddingKind(**settings))


def embed(embedding: SentenceEmbedding, tokens: Tensor, shift: Tensor | int = 0) -> Tensor:
    return embedding.placed(embedding.bare(tokens, "target"), "target", SENTENCE, T, ranks(SENTENCE), shift)


@pytest.mark.parametrize("kind", [InputKind("shifted"), InputKind(segments="learned")])
def test_which_input_the_shift_and_segments_reach(kind: InputKind) -> None:
    """Changing what sentence 1 adds moves its words and its own separator, not the one that opens it."""
    embedding = embedding_of(kind, max_segments=3, from_first=False).double()
    if embedding.segment is not None:
        torch.nn.init.normal_(embedding.segment.data)
    source, tokens, sentence = source_and_target()

    def embedded(shift: int) -> Tensor:
        return RowEmbedder(embedding, shift, 3 * shift).target(tokens, sentence, source)

    before = embedded(0)
    if embedding.segment is None:
        shift, reached = 3, closed_sentence(sentence, None) > 0
    else:
        embedding.segment.data[1] += 1.0
        shift, reached = 0, closed_sentence(sentence, None) == 1
    moved = (embedded(shift) != before).any(dim=-1)
    assert torch.equal(moved & (sentence >= 0), reached & (sentence >= 0))
    opens = torch.zeros_like(reached)
    opens[:, 1:] = sentence[:, 1:] > sentence[:, :-1]
    assert bool((opens & (sentence == 1)).any())
    assert not bool(moved[opens & (sentence == 1)].any())


def test_shift_and_segments_that_leave_the_first_sentence_alone() -> None:
    first = SENTENCE == 0
    for kind, shift in ((InputKind("shifted"), 5), (InputKind(segments="sinusoidal"), 0)):
        embedding = embedding_of(kind, from_first=False)
        plain = embedding_of(InputKind())
        plain.load_state_dict(embedding.state_dict())
        tokens = torch.ones_like(SENTENCE)
        same = (embed(embedding, tokens, shift) == embed(plain, tokens)).all(dim=-1)
        assert torch.equal(same & (SENTENCE >= 0), first)


def test_mean_sentence_length_by_hand() -> None:
    """The ceiling of tokens by sentences, closing symbols included, as in Lupo et al.'s code."""
    # Sentences of 3, 2 and 1 tokens, of 2 and 1: 6 / 3 and 3 / 2.
    assert mean_sentence_length(SENTENCE).tolist() == [2, 2]
    # 12 / 2 and 11 / 2, of sentences of 4 and 8 or 7 tokens; 13 / 3.
    rows = [[0] * 4 + [1] * 8 + [-1], [0] * 4 + [1] * 7 + [-1] * 2, [2] * 5 + [3] * 7 + [4]]
    assert mean_sentence_length(torch.tensor(rows)).tolist() == [6, 6, 5]


def test_wavelengths_and_the_first_position_by_hand() -> None:
    """Rates are 10,000^(-i / (half - 1)), those of Marian 10,000^(-i / half); fairseq counts from 2."""
    kinds: list[tuple[tuple[Any, ...], float]] = [((), 2 / 10_000), (("half",), 2 / 10_000**0.5)]
    for wavelengths, slow in kinds:
        expected = torch.tensor(
            [[0.0, 0.0, 1.0, 1.0], [math.sin(2), math.sin(slow), math.cos(2), math.cos(slow)]]
        )
        torch.testing.assert_close(sinusoidal(torch.tensor([0, 2]), 4, *wavelengths), expected)
    assert sinusoidal(torch.tensor([3]), 5).shape == (1, 5)
    table = PositionTable(4, length=3, wavelengths="half", first=2)
    positions = torch.tensor([[0, 1, 2, 9, MAX_ROWS + 5]])
    for upto in (1, 3, 4, 5):  # in the table, beyond it, beyond what it may become
        at = positions[:, :upto]
        torch.testing.assert_close(table(at), sinusoidal(at + 2, 4, "half"))


def test_learned_positions_begin_at_the_first_and_end_with_the_last() -> None:
    table = LearnedPositions(5, 8, first=2)
    assert torch.equal(table(torch.tensor([[0, 2, 3, 700]])), table.weight[torch.tensor([[2, 4, 4, 4]])])


def test_sides_with_embeddings_positions_and_norms_of_their_own() -> None:
    torch.manual_seed(0)
    embedding = embedding_of(InputKind(), first_position=1, learned=9, norm=True, source_vocabulary=30)
    assert embedding.source_positions is not None
    assert embedding.target_positions is not None
    tokens = torch.tensor([[1, 2, 3, 4, 5, 6], [7, 8, 9, 0, 0, 0]])
    sides: list[Side] = ["source", "target"]
    for side in sides:
        if side == "source":
            tokens, weight, table = tokens + 20, embedding.source_weight, embedding.source_positions
        else:
            tokens, weight, table = tokens - 20, embedding.weight, embedding.target_positions
        assert weight is not None
        sums = weight[tokens] * 8**0.5 + table.weight[T + 1]
        expected = torch.nn.functional.layer_norm(sums, (8,))
        found = embedding.placed(embedding.bare(tokens, side), side, SENTENCE, T, ranks(SENTENCE))
        torch.testing.assert_close(found, expected)


TOKENS = torch.tensor([[1, 2, 3, 4, 5, 6], [7, 8, 9, 0, 0, 0]])


@pytest.mark.parametrize("positions", ["absolute", "reset", "shifted"])
def test_training_moves_all_positions_of_a_row_alike(positions: Kind) -> None:
    """What is left without the tokens is the sinusoid of a place, from 0 to 3 behind that of the token."""
    embedding = embedding_of(InputKind(positions), offset=3)
    plain = embedding_of(InputKind(positions))
    at = position_of(positions, T, ranks(SENTENCE), SENTENCE, 2)

    def placed(embedding: SentenceEmbedding, side: Side) -> Tensor:
        x = torch.zeros(2, 6, 8)
        return embedding.placed(x, side, SENTENCE, T, ranks(SENTENCE), 2, below=24)

    drawn = set()
    for _ in range(40):
        offsets = []
        for side in ("source", "target"):
            found = placed(embedding, side)
            for row in range(2):
                fits = [
                    k for k in range(5) if torch.allclose(found[row], sinusoidal(at[row] + k, 8), atol=1e-5)
                ]
                offsets += fits
        assert len(offsets) == 4
        drawn.add(tuple(offsets))
    assert {offset for offsets in drawn for offset in offsets} == {0, 1, 2, 3}
    assert any(s0 != s1 and s0 != t0 for s0, s1, t0, _ in drawn)
    embedding.eval()
    assert torch.equal(placed(embedding, "source"), placed(plain, "source"))


@loop_over(
    "model", [{"positions": "none"}, {"position_encoding": "learned"}, {"cross": {"score": "absolute"}}]
)
def test_positions_that_cannot_be_moved_are_refused(model: dict[str, Any]) -> None:
    with pytest.raises(CotextError, match=r"train\.position_offset = 8 moves only sinusoidal positions"):
        build_model(tiny_config(model=model, train={"position_offset": 8}), VOCABULARY)


@pytest.mark.parametrize("segments", ["learned", "sinusoidal", "current"])
def test_segments_add_one_vector_per_sentence(segments: str) -> None:
    torch.manual_seed(0)
    embedding = embedding_of(InputKind(segments=segments), max_segments=2)  # type: ignore[arg-type]
    plain = embedding_of(InputKind())
    plain.weight = embedding.weight
    if embedding.segment is not None:
        torch.nn.init.normal_(embedding.segment)
        # The third sentence shares the last of two learned segments. Without context, all are current.
        vectors = embedding.segment[torch.tensor([0, 1, 1]) * (segments == "learned")]
    else:
        vectors = sinusoidal(torch.arange(3), 8)
    added = embed(embedding, TOKENS) - embed(plain, TOKENS)
    real = SENTENCE >= 0
    torch.testing.assert_close(added[real], vectors[SENTENCE[real]])


def source_and_target() -> tuple[Source, Tensor, Tensor]:
    symbols = SpecialSymbols(pad=20, bos=21, eos=22, separators=(23,))
    rows = [([[1, 2, 3], [4], [5, 6]], [[7], [8, 9], [1, 2, 3]]), ([[3, 4], [5]], [[6, 7, 8, 9], [2]])]
    instances = []
    for source, target in rows:
        window = Window(*(range(len(source)) for _ in range(3)))
        instances.append(Instance(0, window, source, target))
    batch = make_batch(instances, symbols)
    return batch.source, batch.target_input, batch.input_sentence


def transformer(**model: Any) -> Transformer:
    torch.manual_seed(1)
    size = {"dimension": 8, "feed_forward": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 2}
    built = build_model(tiny_config(model=size | {"shift": 0} | model, view=window(2)), VOCABULARY)
    assert isinstance(built, Transformer)
    return built.double().eval()


def test_the_sequence_shift_is_the_mean_source_length_of_the_row_on_both_sides() -> None:
    model = transformer(positions="shifted", shift="sequence")
    source, tokens, sentence = source_and_target()
    state = model.encode(source)
    together = model.decode(tokens, sentence, state)
    # Source tokens with closing symbols: (4 + 2 + 3) / 3 = 3, (3 + 2) / 2 = 2.5, rounded up.
    for row, shift in enumerate((3, 3)):
        model.shift = shift
        one = source.select(torch.tensor([row]))
        real = one.sentence[0] >= 0
        one.tokens, one.sentence = one.tokens[:, real], one.sentence[:, real]
        written = sentence[row] >= 0
        own = model.decode(
            tokens[row : row + 1, written], sentence[row : row + 1, written], model.encode(one)
        )
        torch.testing.assert_close(own[0], together[row, written])
