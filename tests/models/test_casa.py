"""CASA: who sees whom, what is copied where, and that nothing depends on padding or on other documents."""

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cotext.config.recipe import Config
from cotext.data.batch import Batch, Instance, Source, make_batch, source_batch
from cotext.data.views import Window
from cotext.layers.embedding import glanced, soft_copy, stretched
from cotext.layers.kernels.sdpa import TokenIndices, watch_weights
from cotext.models.build import build_model
from cotext.models.build_views import special_symbols
from cotext.models.interface import Draft, NonAutoregressiveModel
from cotext.models.nat import DECAY, Codebook, CodeGate, NonAutoregressiveTransformer
from tests.refusals import must_raise
from tests.tiny import PlainWordTokenizer, shake, tiny_config

TOKENIZER = PlainWordTokenizer(["the", "cat", "sat", "on", "a", "mat", "it", "saw", "again"])
SOURCES = [
    [[4, 5, 6], [7], [8, 9, 4, 5, 7, 12], [5, 5]],
    [[10]],
    [[11, 12, 4, 4], [6, 7, 8, 9, 10, 11, 12, 4, 5]],
]
TARGETS = [[[9], [8, 7, 6], [10, 11, 11], [4]], [[4, 5]], [[10, 11], [12]]]


def nodes(layers: int) -> dict[str, Any]:
    """So many top layers with context; below them, and without any, sentences by themselves."""
    return {"span": "sentence", "top": {"layers": layers, "span": "nodes"}}


LOCAL = {"attention": nodes(0)}
CONTEXT = {"attention": nodes(2)}
SYSTEMS: dict[str, dict[str, Any]] = {
    "CASA": CONTEXT,
    "CASA-Latent": {**CONTEXT, "nat": {"latent": True, "codes": 5}},
    "GLAT+CTC": {"nat": {"path": "row", "soft_copy": "row"}},
    "GLAT": {"nat": {"path": "length", "soft_copy": "row"}},
    "Latent-GLAT": {"nat": {"path": "length", "soft_copy": "row", "latent": True}},
    "without SA": {**CONTEXT, "nat": {"path": "row"}},
    "without local attention": {"attention": {"top": {"layers": 1, "span": "nodes"}}},
    "without source context": {"attention": {"span": "sentence"}, "decoder": {"top": nodes(1)["top"]}},
    "without target context": {"attention": nodes(1), "decoder": {"top": {"layers": 0}}},
    "CASA with positions": {"attention": {**nodes(1), "score": "absolute"}},
    "relative positions in the row": {"nat": {"soft_copy": "row"}, "attention": {"score": "positions"}},
    "relative positions in sentences": {"attention": {"span": "sentence", "score": "positions"}},
    "context of the decoder gated": {"attention": {**nodes(1), "top": {**nodes(1)["top"], "mix": "gated"}}},
}
systems = pytest.mark.parametrize("name", SYSTEMS)


def config_of(slots: dict[str, Any], **model: Any) -> Config:
    return tiny_config(
        model={"writes": "non_autoregressive", "encoder_layers": 2, **slots, **model},
        view={"kind": "document", "separators": "bracket"},
        loss={"name": "glancing"},
        decode={"beam": 1, "max_ratio": 2.0, "max_extra": 20},
    )


SYMBOLS = special_symbols(TOKENIZER, config_of({}).view)


def model_of(slots: dict[str, Any], seed: int = 0, **model: Any) -> NonAutoregressiveTransformer:
    """Random in every part, in double precision, in eval mode."""
    torch.manual_seed(seed)
    built = build_model(config_of(slots, **model), TOKENIZER.vocabulary_size)
    assert isinstance(built, NonAutoregressiveTransformer)
    shake(built)
    return built.double().eval()


def instances() -> list[Instance]:
    rows = []
    for number, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        whole = range(len(source))
        rows.append(Instance(number, Window(whole, whole, whole), source, target))
    return rows


def batch_of(*rows: Instance) -> Batch:
    return make_batch(rows or instances(), SYMBOLS)


@torch.no_grad()
def hidden(
    model: NonAutoregressiveModel, source: Source, lengths: Tensor | None = None
) -> tuple[Tensor, Draft]:
    draft = model.encode(source, lengths)
    return model.decode(draft), draft


def test_positions_belong_to_the_sentences_of_their_tokens() -> None:
    sentence = torch.tensor([[0, 0, 0, 1, 1, -1], [0, 0, 1, 1, 2, 2]])
    assert stretched(sentence, torch.tensor([10, 12])).tolist() == [
        [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, -1, -1],
        [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2],
    ]
    assert stretched(sentence, torch.tensor([2, 4])).tolist() == [[0, 0, -1, -1], [0, 0, 1, 2]]


@pytest.mark.parametrize("aligned", [True, False])
def test_soft_copy_by_hand(aligned: bool) -> None:
    """The weights of the paper's equation, made one by one."""
    sentence = torch.tensor([[0] * 3 + [1] * 9 + [-1] * 2, [0] * 14])
    positions = stretched(sentence, torch.tensor([24, 20]))
    source, target = (sentence, positions) if aligned else (sentence.clamp(max=0), positions.clamp(max=0))
    x = torch.randn(2, 14, 3, dtype=torch.float64)
    found = soft_copy(x, source, target, int(source.max()) + 1)
    for b in range(2):
        for text in range(int(source[b].max()) + 1):
            own = x[b][source[b] == text]
            at = (target[b] == text).nonzero()[:, 0]
            s, t = len(own), len(at)
            for i, position in enumerate(at.tolist()):
                weight = torch.tensor([math.exp(-((j - i * s / t) ** 2)) for j in range(s)]).double()
                expected = (weight / weight.sum()) @ own
                torch.testing.assert_close(found[b, position], expected, rtol=1e-7, atol=1e-7)
    assert not found[target < 0].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_soft_copy_in_half_precision_finds_the_same_tokens(dtype: torch.dtype) -> None:
    """Far into a long text too, where half precision has no numbers for neighbouring tokens.

    States that are small whole numbers are exact in every precision: what is left is the rounding of means.
    """
    source = torch.zeros(1, 700, dtype=torch.long)
    positions = stretched(source, torch.tensor([1400]))
    x = torch.arange(700).remainder(16).view(1, -1, 1).float()
    found = soft_copy(x.to(dtype), source, positions, 1)
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), soft_copy(x, source, positions, 1), rtol=0, atol=0.1)


def attention_inputs() -> dict[str, set[tuple[int, int]]]:
    """The pairs of query and key that every attention of CASA lets meet, of the first row alone."""
    model = model_of({"attention": nodes(1)})
    pairs: list[set[tuple[int, int]]] = []

    def note(weights: Tensor, real: Tensor, tokens: TokenIndices | None) -> None:
        assert tokens is not None
        found = pairs[-1]
        for g in range(weights.size(0)):
            for i, q in enumerate(tokens.query[g].tolist()):
                for j, k in enumerate(tokens.key[g].tolist()):
                    if q >= 0 and float(weights[g, 0, i, j]) > 0:
                        assert k >= 0
                        assert (q, k) not in found, "a key is seen twice"
                        found.add((q, k))

    names = []

    def before(module: torch.nn.Module, arguments: Any, name: str) -> None:
        names.append(name)
        pairs.append(set())

    for part, module in model.named_modules():
        if part.endswith((".attention", ".cross")):
            module.register_forward_pre_hook(lambda m, a, part=part: before(m, a, part))
    with watch_weights(note):
        hidden(model, source_batch(instances()[:1], SYMBOLS))
    return dict(zip(names, pairs, strict=True))


def test_masks_by_hand() -> None:
    """Sentences of 5, 3, 8 and 4 tokens with brackets: what each attention of each layer may see."""
    lengths = [5, 3, 8, 4]
    k = [number for number, length in enumerate(lengths) for _ in range(length)]
    ends = {0, 4, 5, 7, 8, 15, 16, 19}
    k2 = [number for number in k for _ in range(2)]
    ends2 = {0, 9, 10, 15, 16, 31, 32, 39}

    def local(queries: list[int], keys: list[int]) -> set[tuple[int, int]]:
        return {(q, s) for q in range(len(queries)) for s in range(len(keys)) if queries[q] == keys[s]}

    def context(queries: list[int], keys: list[int], nodes: set[int]) -> set[tuple[int, int]]:
        return local(queries, keys) | {(q, s) for q in range(len(queries)) for s in nodes}

    assert attention_inputs() == {
        "encoder.0.attention": local(k, k),
        "encoder.1.attention": context(k, k, ends),
        "decoder.0.attention": local(k2, k2),
        "decoder.0.cross": local(k2, k),
        "decoder.1.attention": context(k2, k2, ends2),
        "decoder.1.cross": context(k2, k, ends),
    }


@pytest.mark.parametrize(
    ("name", "pre_norm"), list(zip(SYSTEMS, itertools.cycle((False, True)), strict=False))
)
def test_a_row_does_not_depend_on_the_batch_around_it(name: str, pre_norm: bool) -> None:
    model = model_of(SYSTEMS[name], pre_norm=pre_norm)
    lengths = torch.tensor([17, 6, 21]) if "GLAT" in name and name != "GLAT+CTC" else None
    together, draft = hidden(model, source_batch(instances(), SYMBOLS), lengths)
    for i, row in enumerate(instances()):
        own = None if lengths is None else lengths[i : i + 1]
        single, alone = hidden(model, source_batch([row], SYMBOLS), own)
        length = single.size(1)
        assert torch.equal(alone.sentence[0], draft.sentence[i, :length])
        assert bool((draft.sentence[i, length:] == -1).all())
        torch.testing.assert_close(single[0], together[i, :length], rtol=1e-9, atol=1e-9)


def test_a_row_of_one_sentence_has_no_context() -> None:
    """Its nodes are its own: context attention is local attention there, and both are the whole."""
    source = source_batch(instances()[1:2], SYMBOLS)
    plain = model_of({})
    expected, _ = hidden(plain, source)
    for model in (model_of(LOCAL), model_of(CONTEXT)):
        model.load_state_dict(plain.state_dict())
        torch.testing.assert_close(hidden(model, source)[0], expected, rtol=1e-9, atol=1e-9)


def test_revealed_tokens_are_read() -> None:
    """At the position itself and, within the sentence, by all others."""
    model = model_of(LOCAL)
    with torch.no_grad():
        draft = model.encode(source_batch(instances()[:1], SYMBOLS))
        before = model.decode(draft)
        assert torch.equal(model.decode(draft, torch.full_like(draft.sentence, -1)), before)
        revealed = torch.full_like(draft.sentence, -1)
        revealed[0, 12] = 6
        moved = (model.decode(draft, revealed) - before).abs().amax(dim=2)[0] > 1e-9
    assert torch.equal(moved, draft.sentence[0] == 1)


@given(st.data())
@settings(max_examples=50)
def test_as_many_are_revealed_as_the_ratio_says(data: st.DataObject) -> None:
    rows, width = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 9))
    flags = st.lists(st.booleans(), min_size=rows * width, max_size=rows * width)
    eligible = torch.tensor(data.draw(flags)).view(rows, width)
    wrong = torch.tensor(data.draw(flags)).view(rows, width) & eligible
    ratio = data.draw(st.sampled_from([0.0, 0.3, 0.5, 1.0]))
    shown = glanced(wrong, eligible, ratio)
    assert not bool((shown & ~eligible).any())
    expected = [round(ratio * count) for count in wrong.sum(dim=1).tolist()]
    assert shown.sum(dim=1).tolist() == pytest.approx(expected, abs=0 if ratio != 0.3 else 1)


def test_codes_follow_their_words() -> None:
    book, unused = Codebook(3, 2), torch.tensor([90.0, 90.0])
    book.vectors = torch.stack((torch.tensor([0.0, 0.0]), torch.tensor([4.0, 0.0]), unused))
    book.total = book.vectors.clone()
    words = torch.tensor([[1.0, 1.0], [3.0, 0.0], [5.0, 2.0]])
    code = book.nearest(words)
    assert code.tolist() == [0, 1, 1]
    book.follow(words, code, torch.ones_like(code, dtype=torch.bool))
    rest = 1 - DECAY
    first = rest * torch.tensor([1.0, 1.0]) / 1.0
    second = (DECAY * torch.tensor([4.0, 0.0]) + rest * torch.tensor([8.0, 2.0])) / (DECAY + 2 * rest)
    torch.testing.assert_close(book.vectors, torch.stack((first, second, unused)))


def test_the_gate_mixes() -> None:
    gate = CodeGate(4)
    x, z = torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    with torch.no_grad():
        gate.gate.weight.zero_()
        for bias, expected in ((-100.0, x), (100.0, z), (0.0, (x + z) / 2)):
            gate.gate.bias.fill_(bias)
            torch.testing.assert_close(gate(x, z), expected)


def test_decoding_reads_the_codes_that_were_foretold() -> None:
    model = model_of(SYSTEMS["CASA-Latent"])
    with torch.no_grad():
        draft = model.encode(source_batch(instances(), SYMBOLS))
        first = model.decode(draft)
        codes = draft.memory.codes
        assert codes.shape == draft.sentence.shape
        assert torch.equal(model.decode(draft), first)
        draft.memory.codes = (codes + 1) % 5
        assert not torch.allclose(model.decode(draft), first)


def draft_of(model: NonAutoregressiveTransformer, token: int) -> tuple[Draft, Tensor, int]:
    """Written once, with one token in every row that has a best path; its code."""
    draft = model.encode(source_batch(instances(), SYMBOLS))
    with torch.no_grad():
        model.decode(draft)
    tokens = torch.full_like(draft.sentence, -1)
    tokens[:, 3] = token
    assert model.latent is not None
    word = model.embedding.bare(torch.tensor(token), "target")
    return draft, tokens, int(model.latent.codebook.nearest(word))


def test_right_codes_are_read_after_they_were_learnt() -> None:
    model = model_of({**CONTEXT, "nat": {"latent": True, "codes": 5, "code_mixing": "all"}})
    draft, tokens, right = draft_of(model, 8)
    before = draft.memory.codes.clone()
    told = model.auxiliary_loss(draft, tokens, 0.0)
    assert told is not None
    assert told.loss.shape == (3,)
    assert bool((told.loss > 0).all())
    assert bool((draft.memory.codes[:, 3] == right).all())
    rest = torch.arange(tokens.size(1)) != 3
    assert torch.equal(draft.memory.codes[:, rest], before[:, rest])


def test_the_loss_of_codes_has_its_weight() -> None:
    found = []
    for weight in (0.5, 1.0):
        model = model_of({**CONTEXT, "nat": {"latent": True, "codes": 5, "code_weight": weight}})
        draft, tokens, _ = draft_of(model, 8)
        told = model.auxiliary_loss(draft, tokens, 0.0)
        assert told is not None
        found.append(told.loss)
    torch.testing.assert_close(2 * found[0], found[1])


def test_some_right_codes_are_read_and_elsewhere_the_own_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bao et al. 2022, `--vq-mix-diff`: half of the wrong positions, drawn apart from the predictor's."""
    model = model_of(SYSTEMS["CASA-Latent"])
    draft, _, _ = draft_of(model, 8)
    asked: list[tuple[Tensor, float]] = []
    third = draft.sentence.new_zeros(draft.sentence.shape, dtype=torch.bool)
    third[:, 2] = True

    def noted(wrong: Tensor, eligible: Tensor, ratio: float) -> Tensor:
        asked.append((wrong, ratio))
        return third if len(asked) == 2 else torch.zeros_like(wrong)

    monkeypatch.setattr("cotext.models.nat.glanced", noted)
    assert model.latent is not None
    before, tokens = draft.memory.codes.clone(), torch.full_like(draft.sentence, 8)
    right = int(model.latent.codebook.nearest(model.embedding.bare(torch.tensor(8), "target")))
    assert model.auxiliary_loss(draft, tokens.masked_fill(draft.sentence < 0, -1), 0.3) is not None
    assert [ratio for _, ratio in asked] == [0.3, 0.5]
    for wrong, _ in asked:
        assert torch.equal(wrong, (before != right) & (draft.sentence >= 0))
    assert torch.equal(draft.memory.codes, torch.where(third, right, -1))

    read: list[tuple[Tensor, Tensor]] = []
    monkeypatch.setattr(model.latent.gate, "forward", lambda x, z: read.append((x, z)) or x)
    model.decode(draft, tokens.masked_fill(~third, -1))
    (x, z), vector = read[0], model.latent.codebook.vectors[torch.tensor(right)]
    assert torch.equal(x[:, 2], model.embedding.bare(tokens[:, 2], "target"))
    assert torch.equal(z[:, 2], vector.to(z.dtype).expand(3, -1))
    rest = torch.arange(tokens.size(1)) != 2
    assert torch.equal(z[:, rest], draft.copied[:, rest])


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"loss": {"name": "cross_entropy"}}, "requires loss.name = glancing"),
        ({"train": {"best_by": "undiscounted"}}, "train.best_by = undiscounted: loss.name = glancing"),
        ({"view": {"separators": "plain"}}, "choose bracket"),
        ({"view": {"kind": "window", "before": 1}}, "choose document or sentence"),
        ({"model": {"nat": {"path": "length"}}}, "soft_copy = row"),
        ({"model": {"batch_context": "flat"}}, "model.batch_context = flat cannot be combined"),
        ({"model": {"decoder": {"span": "memory"}}}, "choose transformer_xl"),
        ({"model": {"attention": {"span": "nodes", "score": "positions"}}}, "choose content or absolute"),
        ({"model": {"writes": "left_to_right"}}, "requires loss.name = cross_entropy"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused(sections: dict[str, dict[str, Any]], message: str) -> None:
    base: dict[str, dict[str, Any]] = {
        "model": {"writes": "non_autoregressive"},
        "view": {"kind": "document", "separators": "bracket"},
        "loss": {"name": "glancing"},
        "train": {},
    }
    merged = {name: {**values, **sections.get(name, {})} for name, values in base.items()}
    must_raise(message, build_model, tiny_config(**merged), TOKENIZER.vocabulary_size)
