"""Training that starts from another run: what is taken over, what is told of it, and when it is refused."""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from cotext.config.recipe import Config, ViewConfig, load_config
from cotext.data.batch import Instance, SpecialSymbols, make_batch
from cotext.data.sampling import instances_of
from cotext.data.views import Window, WindowView
from cotext.models import checkpoint as ckpt
from cotext.models.build import build_model
from cotext.models.build_views import special_symbols
from cotext.models.interface import System
from cotext.models.run_folder import checkpoint_folder
from cotext.runtime.files import unsealed
from cotext.training.inputs import open_data, resolve, settle_by_start
from cotext.training.warm_start import DECODER, grouped, inherit, start_from, start_loss, translate_symbols
from tests.command_line import TINY, cotext, succeed
from tests.loops import loop_over
from tests.refusals import must_raise
from tests.tiny import WordTokenizer, window
from tests.tiny_runs import (
    assert_same_file,
    assert_same_run,
    prepare_toy,
    run_config,
    told_in_training,
    train_here,
    train_to_a_mean,
    training_is_refused,
    with_section,
)


@pytest.fixture(scope="module")
def source(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run to start from; its final model is no checkpoint's, but the mean of two."""
    run = tmp_path_factory.mktemp("init") / "source"
    train_to_a_mean(run_config(max_updates=4, validate_every=2), data, run)
    return run


def started(source: Path | str, **settings: Any) -> Config:
    """The configuration of a run that starts from another."""
    return run_config(init=str(source), **{"max_updates": 2, "validate_every": 2, "log_every": 2, **settings})


class Parts(System):
    """A model of named parameters and nothing else; parameter i is filled with i + 1."""

    output_weight = torch.empty(0)

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], adopted: Mapping[str, str]) -> None:
        super().__init__()
        self.adopted = adopted
        for number, (name, shape) in enumerate(shapes.items(), start=1):
            *modules, last = name.split(".")
            place: nn.Module = self
            for part in modules:
                if part not in dict(place.named_children()):
                    place.add_module(part, nn.Module())
                place = place.get_submodule(part)
            place.register_parameter(last, nn.Parameter(torch.full(shape, float(number))))

    def adopted_names(self) -> Mapping[str, str]:
        return self.adopted


def weights(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Other numbers at every place of every weight."""
    return {
        name: 100.0 * number + torch.arange(torch.Size(shape).numel()).view(shape)
        for number, (name, shape) in enumerate(shapes.items(), start=1)
    }


# Shapes of a model, the weights that it adopts, shapes of the other model, and where each parameter comes
# from: the name of another one, a number of rows of its own, or nothing.
ORIGINS: list[tuple[Any, Any, Any, Any]] = [
    # By name and shape: as many numbers in another shape do not fit.
    (
        {"a.w": (2, 3), "b.w": (2, 3), "c.w": (2, 3), "d": (4,)},
        {},
        {"a.w": (2, 3), "b.w": (3, 2), "d": (4,), "e": (1,)},
        {"a.w": "a.w", "b.w": None, "c.w": None, "d": "d"},
    ),
    (
        {"local.w": (2, 2), "global.w": (2, 2)},
        {"global.w": "local.w"},
        {"local.w": (2, 2)},
        {"local.w": "local.w", "global.w": "local.w"},
    ),
    # Its own name comes before adoption, and adoption before rows.
    (
        {"x": (2, 2), "y": (3, 2)},
        {"x": "z", "y": "t"},
        {"x": (2, 2), "y": (2, 2), "z": (2, 2), "t": (3, 2)},
        {"x": "x", "y": "t"},
    ),
    # What is adopted must be there and fit.
    ({"x": (2, 2), "y": (2, 2)}, {"x": "absent", "y": "wide"}, {"wide": (2, 3)}, {"x": None, "y": None}),
    # Further rows stay fresh; nothing else is cut or padded.
    ({"e": (5, 2)}, {}, {"e": (3, 2)}, {"e": 3}),
    *(
        ({"e": own}, {}, {"e": theirs}, {"e": None})
        for own, theirs in (
            *(((2, 2), (3, 2)), ((3, 3), (2, 2)), ((2, 3), (2, 2))),
            *(((4,), (2,)), ((2, 2), (2,)), ((3, 2, 2), (2, 2))),
        )
    ),
]


class TestInheriting:
    @loop_over(("shapes", "adopted", "other", "origins"), ORIGINS)
    def test_origins(self, shapes: Any, adopted: Any, other: Any, origins: dict[str, Any]) -> None:
        model, given = Parts(shapes, adopted), weights(other)
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        found = inherit(model, given)
        names = {name: origin for name, origin in origins.items() if isinstance(origin, str)}
        rows = {name: origin for name, origin in origins.items() if isinstance(origin, int)}
        for name, tensor in model.state_dict().items():
            count = len(tensor) if name in names else rows.get(name, 0)
            assert torch.equal(tensor[count:], before[name][count:])
            if count:
                assert torch.equal(tensor[:count], given[names.get(name, name)][:count])
        assert set(found.taken) == {name for name, origin in names.items() if origin == name}
        assert found.adopted == {name: origin for name, origin in names.items() if origin != name}
        assert found.partly == {name: (count, shapes[name][0]) for name, count in rows.items()}
        assert found.fresh == [name for name in model.state_dict() if origins[name] is None]
        assert set(found.unused) == given.keys() - {*names.values(), *rows}
        assert all(parameter.requires_grad for parameter in model.parameters())

    def test_what_is_adopted_is_copied(self) -> None:
        model = Parts({"local.w": (2, 2), "global.w": (2, 2)}, {"global.w": "local.w"})
        inherit(model, given := weights({"local.w": (2, 2)}))
        with torch.no_grad():
            model.get_parameter("global.w").zero_()
        assert torch.equal(model.get_parameter("local.w"), given["local.w"])

    def test_without_copies_the_first_alone_goes_on_from_a_parameter(self) -> None:
        adopted = {"local.w": "w", "wide.w": "w", "beside.t": "t"}
        model = Parts({"local.w": (2, 2), "wide.w": (2, 2), "t": (2,), "beside.t": (2,)}, adopted)
        found = inherit(model, weights({"w": (2, 2), "t": (2,)}), copies=False)
        assert (found.taken, found.adopted, found.fresh) == (["t"], {"local.w": "w"}, ["wide.w", "beside.t"])
        assert torch.equal(model.get_parameter("wide.w"), torch.full((2, 2), 2.0))

    def test_global_attention_starts_at_random_and_local_attention_goes_on(self, data: Path) -> None:
        """As in the authors' runs of G-Transformer (Bao et al. 2021)."""
        size = open_data(data).tokenizer.vocabulary_size
        plain = build_model(run_config(), size)
        chosen = {"attention": {"span": "sentence", "top": {"layers": 1, "span": "row", "mix": "gated"}}}
        config = with_section(run_config(), "model", **chosen)
        copied = inherit(build_model(config, size), plain.state_dict())
        found = inherit(build_model(config, size), plain.state_dict(), copies=False)
        assert {name.split(".")[3] for name in copied.new} == {"gate"}
        assert {name.split(".")[3] for name in found.fresh} == {"wide"}
        assert found.neutral == copied.neutral
        assert {name.split(".")[3] for name in found.adopted} == {"local"}

    def test_adopting_for_a_name_that_is_not_there_is_a_mistake_in_the_model(self) -> None:
        with pytest.raises(ValueError, match=r"Parts adopts weights for globl.w: no such names"):
            inherit(Parts({"global.w": (2, 2)}, {"globl.w": "local.w"}), weights({"local.w": (2, 2)}))

    def test_symbols_of_other_separators_are_left_behind(self) -> None:
        """From indexed separators to brackets: the subwords and the symbols that both have."""
        small = ["model.dimension=8", "model.heads=2", "model.encoder_layers=2", "model.decoder_layers=2"]
        indexed = build_model(load_config("p-transformer/transformer-doc", None, small), 20)
        bracket = build_model(load_config("g-transformer/randinit", None, small), 20)
        found = inherit(bracket, indexed.state_dict())
        assert found.partly == {"embedding.weight": (20, 20)}
        assert torch.equal(bracket.output_weight, indexed.output_weight[:20])


class TestAccount:
    def test_by_hand(self) -> None:
        shapes = {
            "embedding.weight": (6, 2),
            **{f"encoder.{i}.local.{p}": (2, 2) for i in range(4) for p in ("query", "key")},
            **{f"encoder.{i}.global.{p}": (2, 2) for i in (2, 3) for p in ("query", "key")},
            "encoder.2.gate.bias": (1,),
            "encoder.3.gate.bias": (1,),
        }
        adopted = {n: n.replace("global", "local") for n in shapes if "global" in n}
        given = {n: torch.zeros(s) for n, s in shapes.items() if "local" in n}
        given |= {
            "embedding.weight": torch.zeros(4, 2),
            "head.0.w": torch.zeros(2),
            "head.1.w": torch.zeros(2),
        }
        assert list(inherit(Parts(shapes, adopted), given).lines()) == [
            "  taken by name: 8 parameters (32 numbers): encoder.0-1, encoder.2-3.local",
            "  copied from another parameter: 4 parameters (16 numbers): encoder.2-3.global",
            "  taken in part: embedding.weight, the first 4 of 6 rows",
            "  newly initialised: 2 parameters (2 numbers): encoder.2-3.gate",
            "  not used: head",
        ]

    def test_groups(self) -> None:
        """Gaps in numbers, and names that begin alike."""
        everything = [f"a.{i}.{p}" for i in range(12) for p in ("x", "xy")]
        chosen = [f"a.{i}.x" for i in (0, 1, 2, 4, 10, 11)]
        assert grouped(chosen, everything) == ["a.0-2,4,10-11.x"]


class TestTraining:
    def test_it_starts_from_the_final_model(self, data: Path, source: Path, tmp_path: Path) -> None:
        """With a learning rate that changes nothing, the run ends where the other ended."""
        messages = told_in_training(started(source, learning_rate=1e-30), data, tmp_path / "run")
        ended, expected = (load_file(run / "model.safetensors") for run in (tmp_path / "run", source))
        for name, tensor in expected.items():
            torch.testing.assert_close(ended[name], tensor, rtol=0, atol=1e-20)
        assert not torch.equal(
            expected["embedding.weight"],
            load_file(ckpt.checkpoint_folder(source, 4) / "model.safetensors")["embedding.weight"],
        )
        numbers = sum(tensor.numel() for tensor in expected.values())
        [message] = [m for m in messages if m.startswith("starting from")]
        assert message.splitlines()[0] == f"starting from {source} (updates 2+4):"
        assert message.splitlines()[1].startswith(
            f"  taken by name: {len(expected)} parameters ({numbers:,} numbers): "
        )
        assert message.splitlines()[2:] == ["  newly initialised: nothing"]
        written = unsealed((tmp_path / "run" / "init.json").read_text())
        assert set(written.pop("taken")) == set(expected)
        loss = written.pop("loss")
        assert loss["sentences_here"] == loss["sentences_there"] > 0
        assert {"fresh", "unused", "left_out", "differing"} < written.keys()
        assert {key: value for key, value in written.items() if value} == {
            "run": str(source.resolve()),
            "updates": [2, 4],
            "numbers": {"taken": numbers, "adopted": 0, "neutral": 0, "fresh": 0},
            "blended": {"settings": [], "updates": 0},
        }
        assert ckpt.load_run(tmp_path / "run").config.train.init == str(source)

    def test_further_symbols_and_differing_settings(self, data: Path, source: Path, tmp_path: Path) -> None:
        """Indexed separators lengthen the embedding; two heads instead of four fit, and are told."""
        config = with_section(started(source), "view", separators="indexed", indexed_separators=4)
        config = with_section(config, "model", heads=4, encoder_layers=2)
        train_here(config, data, tmp_path / "run")
        written = unsealed((tmp_path / "run" / "init.json").read_text())
        assert written["partly"] == {}
        assert written["symbols"] == "further separators: 0 taken, 3 copied from the separator"
        assert written["fresh"]
        assert all(name.startswith("encoder.1.") for name in written["fresh"])
        assert written["differing"] == {
            "model.heads": {"here": "4", "there": "2"},
            "model.encoder_layers": {"here": "2", "there": "1"},
            "view.separators": {"here": "indexed", "there": "plain"},
        }

    def test_a_longer_span_begins_as_the_shorter_one(self, data: Path, tmp_path: Path) -> None:
        """Distances are taken as distances, not as rows of a table that has got more of them."""
        near = {"attention": {"score": "relative"}, "relative_span": 2}
        there = with_section(run_config(max_updates=2, validate_every=2), "model", **near)
        train_here(there, data, tmp_path / "near")
        here = with_section(started(tmp_path / "near"), "model", **{**near, "relative_span": 4})
        tokenizer = open_data(data).tokenizer
        model = build_model(here, tokenizer.vocabulary_size)
        found = start_from(tmp_path / "near", model, here, tokenizer)
        assert "not finished" not in found.render()
        reports = tmp_path / "near" / "metrics.jsonl"
        reports.write_text("".join(reports.read_text().splitlines(keepends=True)[:-1]))
        killed = start_from(tmp_path / "near", model, here, tokenizer)
        assert "(updates 2; its training is not finished)" in killed.render()
        assert found.differing == {"model.relative_span": ("4", "2")}
        assert "relative" in found.inheritance.taken
        before = ckpt.load_weights(tmp_path / "near" / "model.safetensors")["relative"]
        assert bool(before.any())
        rows = torch.tensor([0, 0, 0, 1, 2, 3, 4, 4, 4])
        assert torch.equal(model.get_parameter("relative"), before[rows])

    def test_the_encoder_alone(self, data: Path, source: Path, tmp_path: Path) -> None:
        """With a learning rate that changes nothing, the decoder ends as it would without a start."""
        config = started(source, learning_rate=1e-30, init_parts="encoder")
        messages = told_in_training(config, data, tmp_path / "run")
        train_here(started("", learning_rate=1e-30), data, tmp_path / "fresh")
        ended, given, fresh = (
            load_file(run / "model.safetensors") for run in (tmp_path / "run", source, tmp_path / "fresh")
        )
        decoder = [name for name in given if name.startswith("decoder")]
        assert 0 < len(decoder) < len(given)
        for name, tensor in ended.items():
            expected = fresh if name in decoder else given
            torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-20)
        assert any(not torch.equal(given[name], fresh[name]) for name in decoder)
        [message] = [m for m in messages if m.startswith("starting from")]
        lines = message.splitlines()
        assert lines[1].endswith(": embedding, encoder")
        assert lines[2].startswith(f"  newly initialised: {len(decoder)} parameters (")
        assert lines[2].endswith(": decoder")
        assert lines[3:] == [
            "  left out (train.init_parts = encoder): decoder; embeddings and output bias are taken"
        ]
        written = unsealed((tmp_path / "run" / "init.json").read_text())
        assert sorted(written["left_out"]) == sorted(written["fresh"]) == sorted(decoder)
        assert written["unused"] == []


def encoder_side(config: Config) -> set[str]:
    """The parameters that what a decoder is given of the source follows from, projections of it aside."""
    model = build_model(config, 30)
    batch = make_batch(
        [
            Instance(i, Window(range(3), range(3), range(3)), [[1, 2], [3], [4, 5]], [[6], [7, 8], [9]])
            for i in range(2)
        ],
        SpecialSymbols(pad=20, bos=21, eos=22, separators=(22,), bracket=True),
    )
    state = model.encode(batch.source)
    sum(keys.square().sum() + values.square().sum() for keys, values in state.source.keys_values).backward()
    return {n for n, p in model.named_parameters() if p.grad is not None and ".cross." not in n}


@pytest.mark.parametrize(
    "recipe", ["p-transformer/doc", "g-transformer/randinit", "docflat/docflat-c", "mcn/final"]
)
def test_what_is_the_decoders_alone(recipe: str) -> None:
    """It is no part of what the encoder does; and nothing else is left out."""
    small = ["model.dimension=8", "model.heads=2", "model.encoder_layers=2", "model.decoder_layers=2"]
    config = load_config(recipe, None, [*small, "view.separators=bracket"])
    names = dict(build_model(config, 30).named_parameters()).keys()
    assert {n for n in names if not n.startswith(DECODER)} == encoder_side(config)


WINDOW = {"kind": "window", "before": 1}
BRACKET = {"kind": "document", "separators": "bracket"}
INDEXED = {"kind": "document", "separators": "indexed", "indexed_separators": 4}
NUMBERED: list[dict[str, Any]] = [{"separators": "numbered", "numbers": count} for count in range(5)]
COPIED = "the separator is copied from the end symbol"
FIRST = "0 taken, 3 copied from the"


@loop_over(
    ("there", "here", "rows", "account"),
    [
        # Numbers open sentences as the begin symbol did; further ones are what the last one served.
        ({"separators": "plain"}, NUMBERED[3], [9, 7, 7, 7], f"numbers of sentences: {FIRST} begin symbol"),
        ({"separators": "bracket"}, NUMBERED[3], [9, 7, 7, 7], f"numbers of sentences: {FIRST} begin symbol"),
        (
            *(NUMBERED[2], NUMBERED[4], [9, 100, 101, 101, 101]),
            "numbers of sentences: 2 taken, 2 copied from the last",
        ),
        (NUMBERED[3], NUMBERED[3], [9, 100, 101, 102], "numbers of sentences: 3 taken"),
        (NUMBERED[3], NUMBERED[2], [9, 100, 101], "numbers of sentences: 2 taken"),
        # A separator that was never seen closes sentences as the end symbol did.
        ({}, WINDOW, [8], COPIED),
        (BRACKET, WINDOW, [8], COPIED),
        (WINDOW, WINDOW, [9], ""),
        ({"mixed_with": [WINDOW]}, WINDOW, [9], ""),
        ({}, {}, [9], ""),  # nobody needs it here
        ({}, BRACKET, [9], ""),
        # Numbers are no separators, and the other way round.
        ({}, INDEXED, [8, 8, 8, 8], f"{COPIED}; further separators: {FIRST} separator"),
        (WINDOW, INDEXED, [9, 9, 9, 9], f"further separators: {FIRST} separator"),
        (
            *(INDEXED, INDEXED | {"indexed_separators": 5}, [9, 100, 101, 102, 102]),
            "further separators: 3 taken, 1 copied from the last",
        ),
        (NUMBERED[3], INDEXED, [8, 8, 8, 8], f"{COPIED}; further separators: {FIRST} separator"),
        (INDEXED, NUMBERED[3], [9, 7, 7, 7], f"numbers of sentences: {FIRST} begin symbol"),
    ],
)
def test_symbols(there: dict[str, Any], here: dict[str, Any], rows: list[int], account: str) -> None:
    """Row i holds i: 7 is the begin symbol, 8 the end symbol, 9 the separator; further rows hold 100 + i."""
    further = there.get("numbers", 0) or there.get("indexed_separators", 1) - 1
    table = torch.arange(10.0 + further)
    table[10:] += 90
    views = ViewConfig.model_validate(there), ViewConfig.model_validate(here)
    found, told = translate_symbols(table[:, None].expand(-1, 3), *views, WordTokenizer(["a", "b"]))
    assert found[:, 0].tolist() == [*range(9), *rows]
    assert told == account


@pytest.fixture(scope="module")
def sentence_run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("init") / "sentences"
    train_here(sentence_config(), data, run)
    return run


class TestFirstLoss:
    """What a model costs on single sentences before its first update, beside the run that it starts from."""

    def measured(self, config: Config, data: Path, start: Path) -> tuple[float, float, float]:
        opened = open_data(data)
        config = resolve(with_section(config, "train", init=str(start)), opened)
        config = settle_by_start(config, start / "no run yet")
        torch.manual_seed(5)
        model = build_model(config, opened.tokenizer.vocabulary_size)
        start_from(start, model, config, opened.tokenizer)
        found = start_loss(start, model, config, opened.dev, opened.tokenizer, torch.device("cpu"))
        assert found is not None
        return found.sentences_there, found.sentences_here, found.instances_here

    @pytest.mark.parametrize(
        "model",
        [
            {},
            {"positions": "shifted", "shift": 7},
            {"positions": "shifted", "shift": "sequence"},
            {"segments": "learned"},
            {"segments": "sinusoidal"},
        ],
    )
    def test_windows(self, data: Path, sentence_run: Path, model: dict[str, Any]) -> None:
        """A separator that is as probable as the end symbol costs a little; nothing else does."""
        config = with_section(with_section(sentence_config(), "view", **window(2)), "model", **model)
        there, here, instances = self.measured(config, data, sentence_run)
        assert here == pytest.approx(there + cost_of_the_separator(data, sentence_run), abs=1e-5)
        assert instances > here

    def test_the_published_shift_moves_first_sentences_too(self, data: Path, sentence_run: Path) -> None:
        config = with_section(sentence_config(), "view", **window(2))
        config = with_section(config, "model", positions="shifted", shift=7, from_first=True)
        there, here, _ = self.measured(config, data, sentence_run)
        expected = there + cost_of_the_separator(data, sentence_run)
        assert abs(here - expected) > 1e-3

    def test_it_is_reported(self, data: Path, sentence_run: Path, tmp_path: Path) -> None:
        config = sentence_config(init=str(sentence_run), max_updates=2, validate_every=2)
        config = with_section(config, "view", **window(2))
        messages = told_in_training(config, data, tmp_path / "run")
        [told] = [m for m in messages if "development loss at the start" in m]
        assert re.fullmatch(
            r"  development loss at the start, nats per token: single sentences \d\.\d{3} "
            r"\(\d\.\d{3} in that run\), instances of this recipe \d\.\d{3}",
            told,
        )
        assert ckpt.load_run(tmp_path / "run").config.model.from_first is None

    def test_what_is_shifted_is_settled_once(self, data: Path, sentence_run: Path, tmp_path: Path) -> None:
        config = sentence_config(init=str(sentence_run), max_updates=2, validate_every=2)
        config = with_section(config, "view", **window(2))
        config = with_section(config, "model", positions="shifted", shift=7)
        train_here(config, data, tmp_path / "run")
        assert ckpt.load_run(tmp_path / "run").config.model.from_first is False
        train_here(config, data, tmp_path / "run")  # the same command goes on
        further = with_section(config, "train", init=str(tmp_path / "run"))
        train_here(further, data, tmp_path / "further")
        assert ckpt.load_run(tmp_path / "further").config.model.from_first is False


def sentence_config(**train_settings: Any) -> Config:
    config = with_section(
        run_config(**{"max_updates": 40, "validate_every": 40, **train_settings}),
        "view",
        kind="sentence",
        before=0,
    )
    return with_section(config, "train", learning_rate=1e-2, log_every=20)


@torch.no_grad()
def cost_of_the_separator(data: Path, run: Path) -> float:
    """Mean over all labels of log(1 + P(end) - P(separator)) under the run: the one becomes the other."""
    loaded = ckpt.load_run(run)
    symbols = special_symbols(loaded.tokenizer, loaded.config.view)
    dev = open_data(data).dev
    batch = make_batch([i for d in dev for i in instances_of(d, WindowView(0))], symbols)
    model = loaded.left_to_right("this test")
    hidden = model.decode(batch.target_input, batch.input_sentence, model.encode(batch.source))
    probability = (hidden[batch.is_label] @ model.output_weight.T).softmax(dim=1)
    [separator] = symbols.separators
    return float((1 + probability[:, symbols.eos] - probability[:, separator]).log().mean())


class TestGoingOn:
    @pytest.fixture
    def begun(self, data: Path, source: Path, tmp_path: Path) -> Path:
        """A run from a source of its own, stopped after two of four updates; the source is gone."""
        own = tmp_path / "own"
        shutil.copytree(source, own)
        train_here(started(own), data, tmp_path / "begun")
        shutil.rmtree(own)
        return tmp_path / "begun"

    @pytest.mark.parametrize("again", ["same", "left out", "required", "another way to write it"])
    def test_it_goes_on(self, data: Path, source: Path, begun: Path, tmp_path: Path, again: str) -> None:
        own = str(tmp_path / "own")
        init = {"same": own, "left out": "", "required": again}.get(again, f"{tmp_path}/begun/../own/")
        stamp = (begun / "init.json").stat().st_mtime_ns
        assert train_here(started(init, max_updates=4), data, begun).finished
        shutil.copytree(source, own)
        train_here(started(own, max_updates=4), data, tmp_path / "untroubled")
        assert_same_run(begun, tmp_path / "untroubled")
        assert (begun / "init.json").stat().st_mtime_ns == stamp
        assert ckpt.load_run(begun).config.train.init == own

    def test_new_parameters_keep_their_rate(self, data: Path, source: Path, tmp_path: Path) -> None:
        """Which they are is read from the account of the start, without which the run does not go on."""
        model = {"attention": {"span": "sentence", "top": {"layers": 1, "span": "row", "mix": "gated"}}}

        def config(updates: int, rate: float = 5.0) -> Config:
            return with_section(started(source, max_updates=updates, fresh_rate=rate), "model", **model)

        train_here(config(4), data, tmp_path / "whole")
        train_here(config(2), data, tmp_path / "parts")
        account = (tmp_path / "parts" / "init.json").read_text()
        (tmp_path / "parts" / "init.json").unlink()
        message = r"init.json: missing or damaged; it describes the start of training"
        training_is_refused(config(4), data, tmp_path / "parts", message)
        (tmp_path / "parts" / "init.json").write_text(account.replace("wide", "near", 1))
        training_is_refused(config(4), data, tmp_path / "parts", message)
        (tmp_path / "parts" / "init.json").write_text(account)
        train_here(config(4), data, tmp_path / "parts")
        assert_same_file(tmp_path / "whole" / "model.safetensors", tmp_path / "parts" / "model.safetensors")
        train_here(config(4, rate=1.0), data, tmp_path / "even")
        one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "even"))
        assert any(not torch.equal(one[name], other[name]) for name in one if ".gate." in name)

    def test_frozen_parameters_stay_and_others_learn(self, data: Path, source: Path, tmp_path: Path) -> None:
        """In one go, and if training goes on from a checkpoint."""
        model = {"document_layer": "hierarchical", "document": {"target": True}}

        def config(updates: int) -> Config:
            return with_section(started(source, max_updates=updates, freeze="init"), "model", **model)

        train_here(config(4), data, tmp_path / "whole")
        train_here(config(2), data, tmp_path / "parts")
        train_here(config(4), data, tmp_path / "parts")
        assert_same_file(tmp_path / "whole" / "model.safetensors", tmp_path / "parts" / "model.safetensors")
        given, early, late = (
            load_file(path / "model.safetensors")
            for path in (source, *(checkpoint_folder(tmp_path / "whole", update) for update in (2, 4)))
        )
        assert given.keys() < late.keys()
        assert all(torch.equal(late[name], given[name]) for name in given)
        changed = {name for name in late if not torch.equal(late[name], early[name])}
        assert {f"{side}_document.gate.weight" for side in ("source", "target")} <= changed

    def test_batches_without_anything_to_learn(self, data: Path, source: Path, tmp_path: Path) -> None:
        """Only attention to the context is trained: a batch of a first sentence has no gradient."""
        train = {"freeze": "init", "max_updates": 40, "max_tokens": 30, "accumulate": 1}
        config = with_section(started(source, **train), "model", context_encoder="separate")
        config = with_section(config, "view", kind="window", before=1, target_before=0)
        train_here(with_section(config, "loss", context_discount=1.0), data, tmp_path / "run")

    def test_freezing_everything_is_refused(self, data: Path, source: Path, tmp_path: Path) -> None:
        message = "so nothing is left to train; remove the setting"
        training_is_refused(started(source, freeze="init"), data, tmp_path / "run", message)

    def test_another_source_is_refused(self, data: Path, source: Path, begun: Path, tmp_path: Path) -> None:
        message = must_raise("", train_here, started(source, max_updates=4), data, begun)
        assert f"  train.init: {tmp_path / 'own'} in the run, {source} requested" in message
        fresh = tmp_path / "fresh"
        train_here(run_config(max_updates=2, validate_every=2), data, fresh)
        training_is_refused(started(source), data, fresh, "nothing in the run, .*source requested")

    def test_killed_before_its_first_checkpoint(self, data: Path, source: Path, tmp_path: Path) -> None:
        """There is nothing to go on from but the source."""
        train_here(started(source), data, tmp_path / "run")
        shutil.copytree(tmp_path / "run", tmp_path / "again")
        for name in ("checkpoints", "tensorboard"):
            shutil.rmtree(tmp_path / "again" / name)
        for name in ("init.json", "model.safetensors"):
            (tmp_path / "again" / name).unlink()
        train_here(started(""), data, tmp_path / "again")
        assert_same_run(tmp_path / "again", tmp_path / "run")
        assert (tmp_path / "again" / "init.json").exists()


class TestRefusals:
    @pytest.fixture
    def out(self, tmp_path: Path) -> Path:
        return tmp_path / "run"

    @pytest.fixture(autouse=True)
    def nothing_is_left(self, out: Path) -> Any:
        yield
        assert not out.exists()

    def test_another_tokenizer(self, source: Path, out: Path, tmp_path: Path) -> None:
        other = prepare_toy(tmp_path / "other", seed=9)
        training_is_refused(
            started(source), other, out, r"source: was not trained with the tokenizer of the data"
        )

    def test_nothing_fits(self, data: Path, source: Path, out: Path) -> None:
        """Biases of feed-forward layers of the same width do not make a start."""
        config = with_section(started(source), "model", dimension=32)
        assert must_raise("", train_here, config, data, out).splitlines() == [
            f"{source}: none of its weights fits this model; start from another run",
            "  model.dimension: 32 here, not 16",
        ]

    @pytest.mark.parametrize(
        ("name", "reason"), [("nowhere", "no such run folder"), (".", "no such model file")]
    )
    def test_no_run(self, data: Path, out: Path, tmp_path: Path, name: str, reason: str) -> None:
        training_is_refused(started(tmp_path / name), data, out, reason)


def test_on_the_command_line(data: Path, source: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "finetune.yaml"
    recipe.write_text("view: {kind: window, before: 1}\ntrain: {init: required, fresh_rate: 2}\n")
    # A name that YAML would take for something else.
    shutil.copytree(source, tmp_path / "a: b")
    arguments = ["train", recipe, *TINY, "--data", data, "--out", tmp_path / "run"]
    refused = cotext(*arguments)
    assert (refused.code, (tmp_path / "run").exists()) == (2, False)
    assert refused.err == f"cotext: {recipe} starts from a trained model: give --init RUN\n"
    done = succeed(*arguments, "--init", tmp_path / "a: b")
    assert "starting from" in done.out + done.err
    assert "finished at update 6" in done.out
    # Going on, it need not be given again.
    recipe.write_text(recipe.read_text().replace("init: required, ", ""))
    assert "finished at update 6" in cotext(*arguments).out
