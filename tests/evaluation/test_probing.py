"""Probing for positions: on states of which the truth is known, on models, and as a command."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import cotext, succeed
from tiny_runs import prepare_toy, run_config, train_here, with_section
from torch import Tensor, nn

from cotext.data.batch import Source
from cotext.data.store import StoreWriter
from cotext.data.tokenizer import load_tokenizer
from cotext.evaluation.studies.plots import probed_by_distance, probed_by_layer
from cotext.evaluation.studies.probing import probing as classifier
from cotext.evaluation.studies.probing import report as probe_module
from cotext.evaluation.studies.probing.probing import (
    MAX_DISTANCE,
    MIN_PAIRS,
    Split,
    Task,
    TaskSummary,
    Tokens,
    draw_pairs,
    encoder_of,
    fit,
    probe,
    read_states,
    watch,
)
from cotext.layers.blocks import Stack
from cotext.layers.kernels.packing import Packing
from cotext.layers.layout import Layout, Packed
from cotext.layers.layouts import Layouts
from cotext.models.build import build_model
from cotext.models.checkpoint import load_run
from cotext.models.interface import TranslationModel
from cotext.runtime.errors import CotextError

CPU = torch.device("cpu")
VOCABULARY = 12


def rows_of(lengths: list[int], states: Any, seed: int) -> Tokens:
    """Rows of random tokens whose states are made of (token, position, generator), one per layer."""
    generator = torch.Generator().manual_seed(seed)
    position = torch.cat([torch.arange(1, n + 1) for n in lengths])
    row_length = torch.cat([torch.full((n,), n) for n in lengths])
    token = torch.randint(VOCABULARY, (len(position),), generator=generator)
    return Tokens(tuple(make(token, position, generator) for make in states), token, position, row_length)


def split_of(*states: Any, rows: int = 150, longest: int = 9) -> Split:
    def part(count: int, seed: int) -> Tokens:
        lengths = torch.randint(2, longest + 1, (count,), generator=torch.Generator().manual_seed(seed))
        return rows_of([longest, *lengths.tolist()], states, seed)

    return Split(part(rows, 1), part(rows // 5, 2), part(rows, 3))


def one_hot_position(token: Tensor, position: Tensor, generator: torch.Generator) -> Tensor:
    return nn.functional.one_hot(position, 30).float()


def ramp(token: Tensor, position: Tensor, generator: torch.Generator) -> Tensor:
    """Position as a number in one of several noisy features: differences of states are distances."""
    noise = torch.randn(len(token), 3, generator=generator)
    return torch.cat((position[:, None].float(), noise), dim=1)


def noise(token: Tensor, position: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(len(token), 8, generator=generator)


def one_hot_token(token: Tensor, position: Tensor, generator: torch.Generator) -> Tensor:
    return nn.functional.one_hot(token, VOCABULARY).float()


def test_a_classifier_learns_what_is_linear_and_survives_a_constant_feature() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(600, 3, generator=generator)
    x[:, 2] = 7e5
    y = (x @ torch.tensor([[1.0, 0.0, -1.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])).argmax(dim=1)
    found = fit((x[:400], y[:400]), (x[400:500], y[400:500]), 3, generator)
    assert (found.predict(x[500:]) == y[500:]).double().mean() > 0.95
    # Far from one scale and place, the same.
    moved = 1000 * x + 5
    again = fit((moved[:400], y[:400]), (moved[400:500], y[400:500]), 3, generator)
    assert (again.predict(moved[500:]) == y[500:]).double().mean() > 0.95


def test_a_code_of_the_position_gives_all_of_it_and_noise_gives_chance() -> None:
    found = probe("absolute", split_of(one_hot_position, noise), 1)
    code, nothing = found.layers
    assert code.accuracy == 1
    assert code.near == 1
    assert found.classes == 9
    # Every row has positions 1 and 2, hence a little above 1 in 9.
    assert abs(nothing.accuracy - found.chance.accuracy) < 0.06
    assert 0.1 < found.chance.accuracy < 0.25
    assert nothing.near is not None
    assert nothing.near < 0.9


def test_the_chance_of_absolute_positions_by_hand() -> None:
    # Training rows of 5, 5, 5 and 9: 1 to 5 are the most frequent, of which 1 is the first;
    # 4 (and no other so low) lies within 3 of all but 8 and 9.
    one = rows_of([5, 5, 5, 9], [noise], 0)
    test = rows_of([2, 9], [noise], 1)
    chance = probe("absolute", Split(one, one, test), 1).chance
    assert chance.accuracy == pytest.approx(2 / 11)
    assert chance.near == pytest.approx(9 / 11)


def test_a_number_line_gives_order_by_every_layer_alike() -> None:
    found = probe("order", split_of(ramp, noise), 1)
    assert found.layers[0].accuracy > 0.99
    assert found.layers[0].by_distance is not None
    assert set(found.layers[0].by_distance) == {d for d in range(-8, 9) if d}
    assert abs(found.layers[1].accuracy - 0.5) < 0.06
    assert abs(found.chance.accuracy - 0.5) < 0.06
    assert abs(found.token_alone.accuracy - 0.5) < 0.08


def test_distances_on_a_number_line() -> None:
    # Linear in i - j as it is, the class d with the highest d * (i - j) - d * d / 2 is d = i - j.
    found = probe("relative", split_of(ramp, noise, rows=600), 1)
    assert found.classes == 2 * MAX_DISTANCE
    exact, nothing = found.layers
    assert exact.accuracy > 0.9
    assert abs(nothing.accuracy - found.chance.accuracy) < 0.03
    assert sum(found.pairs.values()) == found.test_examples


def test_states_of_the_token_give_what_the_token_gives() -> None:
    """Tokens 0 and 1 stand first and second; the others say nothing of where they stand."""

    def opened(part: Tokens) -> Tokens:
        token = torch.where(part.position <= 2, part.position - 1, 2 + part.token % (VOCABULARY - 2))
        return Tokens((one_hot_token(token, part.position, torch.Generator()),), token, *part_rest(part))

    def part_rest(part: Tokens) -> tuple[Tensor, Tensor]:
        return part.position, part.row_length

    plain = split_of(noise)
    split = Split(opened(plain.train), opened(plain.held_out), opened(plain.test))
    found = probe("absolute", split, 1)
    first_two = float((split.test.position <= 2).double().mean())
    thirds = float((split.test.position == 3).double().mean())
    for figures in (found.layers[0], found.token_alone):
        assert first_two < figures.accuracy <= first_two + thirds + 0.05


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("task", ["absolute", "relative", "order"])
def test_one_seed_gives_one_result(task: Task) -> None:
    split = split_of(ramp, noise, rows=40)
    assert probe(task, split, 1) == probe(task, split, 1)
    # Layers do not disturb each other: what stands above makes no difference.
    alone = Split(*(Tokens(p.layers[:1], p.token, p.position, p.row_length) for p in parts(split)))
    assert probe(task, alone, 1).layers[0] == probe(task, split, 1).layers[0]
    assert probe(task, split, 2).token_alone != probe(task, split, 1).token_alone


def parts(split: Split) -> tuple[Tokens, Tokens, Tokens]:
    return split.train, split.held_out, split.test


def test_pairs_stay_in_their_row_and_within_reach() -> None:
    lengths = [1, 2, 60, 1, 3]
    tokens = rows_of(lengths, [noise], 0)
    row = torch.repeat_interleave(torch.arange(5), torch.tensor(lengths))
    generator = torch.Generator().manual_seed(0)
    seen = []
    for _ in range(200):
        i, j = draw_pairs(tokens, generator)
        assert len(i) == 65  # all but the two that stand alone
        assert torch.equal(row[i], row[j])
        distance = tokens.position[i] - tokens.position[j]
        assert bool((distance != 0).all())
        assert int(distance.abs().max()) <= MAX_DISTANCE
        seen += distance[i == 3 + 29].tolist()  # the 30th token of the long row
    # 40 others are in reach of it, each equally likely: 5 expected, and of either side about half.
    assert len(set(seen)) > 35
    assert 70 < sum(d > 0 for d in seen) < 130
    assert {-MAX_DISTANCE, MAX_DISTANCE} & set(seen)


class Marking(nn.Module):
    """A block that adds 1000 to every state, with or without padding."""

    def forward(self, x: Tensor, layout: Any) -> Tensor:
        return x + 1000


class TokenAndPosition(TranslationModel):
    """A model whose states are (token, position in the row, 0) at the input of its blocks."""

    def __init__(self, states: str, blocks: int = 2) -> None:
        super().__init__()
        self.states = states
        self.encoder = Stack(Marking() for _ in range(blocks))

    def layouts(
        self, source: Source, input_sentence: Tensor | None = None, training: bool = False
    ) -> Layouts:
        raise NotImplementedError

    @property
    def output_weight(self) -> Tensor:
        raise NotImplementedError

    def embed(self, source: Source) -> Tensor:
        position = torch.arange(source.tokens.size(1)).expand_as(source.tokens)
        return torch.stack((source.tokens, position, torch.zeros_like(position)), dim=-1).float()

    def encode(self, source: Source) -> Tensor:
        x = self.embed(source)
        layout = Layout(source.sentence, Packed())
        if self.states == "padded":
            layout.__dict__["packing"] = None
        elif self.states == "longest first":  # in the order of buckets of sentences
            layout = Layout(source.sentence, Packed(by_sentence=True))
        x = layout.pack(x)
        for block in self.encoder:
            x = block(x, layout)
        return x

    def decode(self, tokens: Tensor, sentence: Tensor, state: Any) -> Tensor:
        raise NotImplementedError


def padded_source(lengths: list[int], first: int = 100) -> Source:
    """Tokens count up from `first` over all rows; padding is 7."""
    tokens = torch.full((len(lengths), max(lengths)), 7)
    sentence = torch.full_like(tokens, -1)
    for row, length in enumerate(lengths):
        tokens[row, :length] = torch.arange(first, first + length)
        sentence[row, :length] = 0
        first += length
    rows = len(lengths)
    return Source(tokens, sentence, torch.tensor([[0, 1]] * rows), torch.zeros(rows), torch.zeros(rows))


@pytest.mark.parametrize("states", ["padded", "packed", "longest first"])
def test_states_stand_beside_their_tokens_whatever_the_order(states: str) -> None:
    batches = [padded_source([3, 1, 5]), padded_source([4, 4], first=109)]
    found = read_states(TokenAndPosition(states), batches, CPU)
    assert found.token.tolist() == list(range(100, 117))
    assert found.position.tolist() == [1, 2, 3, 1, 1, 2, 3, 4, 5, 1, 2, 3, 4, 1, 2, 3, 4]
    assert found.row_length.tolist() == [3] * 3 + [1] + [5] * 5 + [4] * 8
    assert (found.rows, found.longest, len(found)) == (5, 5, 17)
    for layer, x in enumerate(found.layers):
        assert x[:, 2].eq(1000 * layer).all()
        assert torch.equal(x[:, 0].long() - 1000 * layer, found.token)
        assert torch.equal(x[:, 1].long() - 1000 * layer + 1, found.position)


def test_hooks_go_and_layer_0_is_what_came_in() -> None:
    class InPlace(nn.Module):
        def forward(self, x: Tensor, layout: Any) -> Tensor:
            return x.add_(1)

    model = TokenAndPosition(states="padded")
    model.encoder = Stack([InPlace(), InPlace()])
    found = read_states(model, [padded_source([2, 3])], CPU)
    assert [int(states[0, 2]) for states in found.layers] == [0, 1, 2]
    real = torch.ones(1, 2, dtype=torch.bool)
    with pytest.raises(ZeroDivisionError), watch(model.encoder, real):
        raise ZeroDivisionError
    for block in model.encoder:
        assert not block._forward_hooks
        assert not block._forward_pre_hooks


class Fewer(nn.Module):
    """A block that lets the first token of every row go."""

    def forward(self, x: Tensor, layout: Any) -> Tensor:
        return x[:, 1:]


class WithoutLayout(TokenAndPosition):
    """Packed, and no block is told where the states stand: they could be in any order."""

    def encode(self, source: Source) -> Tensor:
        x = Packing(source.sentence >= 0).pack(self.embed(source))
        for block in self.encoder:
            x = block(x, ())
        return x


class Pair(nn.Module):
    """A block that gives more than states."""

    def forward(self, x: Tensor, own: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
        return x, x


class Twice(TokenAndPosition):
    def encode(self, source: Source) -> Tensor:
        super().encode(source)
        return super().encode(source)


class Broken(TokenAndPosition):
    def embed(self, source: Source) -> Tensor:
        return super().embed(source) / 0


def test_layers_that_cannot_be_probed_are_named() -> None:
    model = TokenAndPosition(states="padded")
    model.encoder = Stack([Marking(), Fewer()])
    with pytest.raises(CotextError, match=r"layer 2 gives states of shape .* not see every token"):
        read_states(model, [padded_source([3, 5])], CPU)
    with pytest.raises(CotextError, match="layer 0 ran 2 times"):
        read_states(Twice(states="packed"), [padded_source([3, 5])], CPU)
    with pytest.raises(CotextError, match="layer 0 gives states that are not finite"):
        read_states(Broken(states="packed"), [padded_source([3, 5])], CPU)
    with pytest.raises(CotextError, match=r"layer 0 gives .* does not say which they are"):
        read_states(WithoutLayout("packed"), [padded_source([3, 5])], CPU)
    model.encoder = Stack([Marking(), Pair()])
    with pytest.raises(CotextError, match="layer 2 gives a tuple"):
        read_states(model, [padded_source([3, 5])], CPU)
    with pytest.raises(CotextError, match="no rows"):
        read_states(model, [], CPU)


def test_a_model_without_encoder_blocks_is_refused() -> None:
    with pytest.raises(CotextError, match="Linear has no stack of encoder blocks"):
        encoder_of(nn.Linear(2, 2))
    with pytest.raises(CotextError, match="no stack"):
        encoder_of(TokenAndPosition(states="padded", blocks=0))


def test_rows_of_one_token_have_no_pairs() -> None:
    single = rows_of([1, 1, 1], [noise], 0)
    with pytest.raises(CotextError, match="task order: no row has two tokens"):
        probe("order", Split(single, single, single), 1)


@pytest.mark.usefixtures("quick")
def test_summaries_by_hand() -> None:
    split = split_of(ramp, rows=60)
    seeds = [probe("order", split, seed) for seed in (1, 2, 3)]
    summary = TaskSummary.of("order", seeds)
    values = [100 * p.layers[0].accuracy for p in seeds]
    assert summary.layers[0].accuracy.mean == pytest.approx(sum(values) / 3)
    assert summary.layers[0].accuracy.spread == pytest.approx(torch.tensor(values).std().item(), abs=1e-3)
    assert summary.pairs[1] == sum(p.pairs[1] for p in seeds)
    lines = summary.table().splitlines()
    assert [line.split()[0] for line in lines] == ["layer", "0", "token", "chance"]
    assert lines[1].endswith("-")  # ±20 does not occur in rows of 9 tokens
    reliable = set(summary.reliable(summary.layers[0]))
    assert reliable == {d for d, pairs in summary.pairs.items() if pairs >= MIN_PAIRS}
    assert 1 in reliable
    assert json.loads(json.dumps(summary.as_dict()))["layers"][0]["layer"] == 0


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("runs", [1, 3])
def test_pictures_have_a_line_for_all_they_show(runs: int) -> None:
    split = split_of(ramp, noise, rows=60)
    order = TaskSummary.of("order", [probe("order", split, 1)])
    figure = probed_by_distance([(f"run {i}", order) for i in range(runs)])
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    expected = [f"run {i}, layer 1" for i in range(runs)]
    assert labels == [*(["layer 0 (input)"] if runs == 1 else []), *expected, "token alone"]
    few = TaskSummary.of("relative", [probe("relative", split_of(ramp, rows=3), 1)])
    assert not few.reliable(few.layers[0])
    (said,) = probed_by_distance([("few", few)]).axes[0].texts
    assert said.get_text() == "too few pairs at any distance"
    absolute = TaskSummary.of("absolute", [probe("absolute", split, seed) for seed in (1, 2)])
    figure = probed_by_layer([(f"run {i}", absolute) for i in range(runs)])
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == [*(f"run {i}" for i in range(runs)), "within 3", "token alone"]
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["0\n(input)", "1"]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command does around its classifiers does not need good ones."""
    monkeypatch.setattr(classifier, "LEAST_UPDATES", 1)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`data`, and two runs on it: `window` of two sentences and `sentence`."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("probing")
    data = prepare_toy(folder / "data", documents=40)
    config = run_config(max_updates=2, validate_every=2, warmup_updates=1, average=1)
    train_here(config, data, folder / "window")
    train_here(with_section(config, "view", kind="sentence", before=0), data, folder / "sentence")
    return folder


def test_positions_of_a_model_line_up_with_its_embedding(world: Path) -> None:
    """The states of a trained run are those of each row read alone."""
    opened = probe_module.open_probes([world / "window"], None, None)[0]
    instances = probe_module._sample(opened, 300)["train"]
    together = read_states(opened.loaded.model, probe_module._batches(opened, instances), CPU)
    in_order = list(probe_module._batches(opened, instances))
    assert any(bool((source.sentence < 0).any()) for source in in_order), "no padding to get wrong"
    alone = []
    for source in in_order:
        for row in range(len(source.tokens)):
            length = int((source.sentence[row] >= 0).sum())
            one = source.select(torch.tensor([row]))
            one.tokens, one.sentence = one.tokens[:, :length], one.sentence[:, :length]
            alone.append(one)
    single = read_states(opened.loaded.model, alone, CPU)
    assert torch.equal(single.token, together.token)
    assert torch.equal(single.position, together.position)
    for one_layer, other in zip(single.layers, together.layers, strict=True):
        assert torch.allclose(one_layer, other, atol=1e-5)
    model: Any = opened.loaded.model
    table = model.embedding.table(together.position - 1)
    expected = model.embedding.weight[together.token] * model.embedding.scale + table
    assert torch.allclose(together.layers[0], expected, atol=1e-5)


FILLED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "sentences": {"attention": {"span": "sentence"}},
    "gated": {"attention": {"span": "sentence", "top": {"layers": 1, "mix": "gated"}}},
    "current on top": {"encoder": {"top": {"layers": 1, "span": "current"}}},
    "segment distance": {"encoder": {"score": "segment_distance"}},
    "segment gate": {"encoder": {"span": "sentence"}, "document_layer": "segment_gate"},
    "hierarchical": {"document_layer": "hierarchical"},
    **{score: {"attention": {"score": score}} for score in ("positions", "rotary", "alibi")},
    **{context: {"batch_context": context} for context in ("flat", "datapoints", "mean")},
}


# What predicts all at once is refused before: tests/search/test_non_autoregressive.py.
@pytest.mark.parametrize("name", FILLED)
def test_every_system_can_be_probed_or_says_why_not(name: str, world: Path) -> None:
    opened = probe_module.open_probes([world / "window"], None, None)[0]
    config = with_section(opened.loaded.config, "model", encoder_layers=3, **FILLED[name])
    torch.manual_seed(0)
    model = build_model(config, opened.loaded.tokenizer.vocabulary_size).eval()
    sources = list(probe_module._batches(opened, probe_module._sample(opened, 300)["train"]))
    # Fewer states than tokens at the top, or one more in front of every row.
    unlike_tokens = {"current on top": 3, "mean": 0}
    if name in unlike_tokens:
        with pytest.raises(CotextError, match=f"encoder layer {unlike_tokens[name]} gives states"):
            read_states(model, sources, CPU)
        return
    found = read_states(model, sources, CPU)
    assert len(found.layers) == 4 + ("document_layer" in FILLED[name])  # which is one more
    assert all(states.shape == (len(found), 16) for states in found.layers)
    # Layer 3 of the first row of the last batch, read alone.
    last = sources[-1]
    one = last.select(torch.tensor([0]))
    length = int((one.sentence >= 0).sum())
    one.tokens, one.sentence = one.tokens[:, :length], one.sentence[:, :length]
    start = len(found) - int((last.sentence >= 0).sum())
    alone = read_states(model, [one], CPU).layers[3]
    assert torch.allclose(alone, found.layers[3][start : start + length], atol=1e-5)


def test_parts_share_no_document_and_keep_to_the_budget(world: Path) -> None:
    opened = probe_module.open_probes([world / "window"], None, None)[0]
    found = probe_module._sample(opened, 300)
    documents = {name: {i.document for i in instances} for name, instances in found.items()}
    assert not documents["train"] & documents["held_out"]
    assert all(documents.values())
    symbols = probe_module.special_symbols(opened.loaded.tokenizer, opened.loaded.config.view)
    sizes = {name: sum(i.source_tokens(symbols) for i in each) for name, each in found.items()}
    assert 300 <= sizes["train"] < 300 + 60
    assert 30 <= sizes["held_out"] < 30 + 60
    # A budget beyond the corpus: everything, and still something held out.
    everything = probe_module._sample(opened, 10**9)
    learned = {i.document for i in everything["train"]} | {i.document for i in everything["held_out"]}
    assert len(learned) >= 38
    assert len(everything["train"]) > 3 * len(everything["held_out"])


@pytest.mark.usefixtures("quick")
def test_the_command_compares_runs(world: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "figures"
    arguments = [world / "sentence", world / "window", "--out", out, "--tokens", "200", "--seeds", "2"]
    first = succeed("probe", *arguments, "--task", "order", "--task", "absolute")
    assert sorted(path.name for path in out.iterdir()) == ["absolute.png", "order.png", "probing.json"]
    content = json.loads((out / "probing.json").read_text())
    assert [run["name"] for run in content["runs"]] == ["sentence", "window"]
    run = content["runs"][1]
    assert list(run["tasks"]) == ["absolute", "order"]
    assert run["view"]["before"] == 1
    assert run["signature"] == load_run(world / "window").signature
    assert run["data"] == str((world / "data").resolve())
    assert [layer["layer"] for layer in run["tasks"]["order"]["layers"]] == [0, 1]
    assert len(run["tasks"]["order"]["layers"][0]["accuracy"]["seeds"]) == 2
    assert set(run["tasks"]["absolute"]["layers"][0]) == {"layer", "accuracy", "within_3"}
    assert run["parts"]["train"]["tokens"] >= 200
    assert "±" in first.out
    assert "window  model:transformer" in first.out
    assert "token alone" in first.out
    again = succeed("probe", *arguments, "--task", "absolute", "--task", "order")
    assert again.out == first.out
    assert json.loads((out / "probing.json").read_text()) == content


@pytest.mark.usefixtures("quick")
def test_all_tasks_into_the_run_by_default(world: Path) -> None:
    succeed("probe", world / "sentence", "--tokens", "100", "--checkpoint", "2")
    folder = world / "sentence" / "probing"
    assert {p.name for p in folder.iterdir()} == {"absolute.png", "order.png", "probing.json", "relative.png"}
    assert all((folder / f"{task}.png").read_bytes().startswith(b"\x89PNG") for task in ("absolute", "order"))


@pytest.mark.usefixtures("quick")
def test_what_a_person_can_put_right_is_said(world: Path, tmp_path: Path) -> None:
    def refused(*arguments: str | Path) -> str:
        outcome = cotext("probe", *arguments)
        assert outcome.code == 2
        assert not list(tmp_path.glob("out*"))
        return outcome.err

    out = ("--out", tmp_path / "out")
    assert "--task 'relativ': choose one of absolute, relative, order, all" in refused(
        world / "window", "--task", "relativ", *out
    )
    assert "no such run folder" in refused(world / "nowhere", *out)
    assert "no prepared data there" in refused(world / "window", "--data", tmp_path, *out)
    assert "no checkpoint of update 7" in refused(world / "window", "--checkpoint", "7", *out)
    assert "device 'abacus'" in refused(world / "window", "--device", "abacus", *out)
    assert "--tokens" in refused(world / "window", "--tokens", "0", *out)
    occupied = tmp_path / "file"
    occupied.write_text("mine")
    assert "no folder can be made there" in refused(world / "window", "--out", occupied)
    assert occupied.read_text() == "mine"


@pytest.mark.usefixtures("quick")
def test_data_that_is_gone(world: Path, tmp_path: Path) -> None:
    data = prepare_toy(tmp_path / "data", documents=6)
    run = tmp_path / "run"
    train_here(run_config(max_updates=2, validate_every=2, warmup_updates=1, average=1), data, run)
    data.rename(tmp_path / "elsewhere")
    outcome = cotext("probe", run, "--tokens", "50")
    assert outcome.code == 2
    assert "no longer there; give --data" in outcome.err
    succeed("probe", run, "--tokens", "50", "--task", "order", "--data", tmp_path / "elsewhere")


@pytest.mark.usefixtures("quick")
def test_too_few_documents(world: Path, tmp_path: Path) -> None:
    data = shutil.copytree(world / "data", tmp_path / "data")
    tokenizer = load_tokenizer(data / "tokenizer")
    with StoreWriter(data / "train.arrow", tokenizer.fingerprint) as writer:
        writer.add("only", [[1, 2, 3], [4]], [[1], [2]])
    outcome = cotext("probe", world / "window", "--tokens", "50", "--data", data, "--out", tmp_path / "out")
    assert outcome.code == 2
    assert "train.arrow: too few documents" in outcome.err
    assert "probing needs two to learn from" in outcome.err
