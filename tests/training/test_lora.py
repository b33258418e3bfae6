"""Low-rank adaptation: no jump at the start, nothing without effect, plain models in files, resumption."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
from command_line import RECIPE, TINY, World, cotext, documents_file, succeed
from killing import Moment, run_killed
from safetensors.torch import load_file, save_file
from test_neutral_start import batches, loss, moved_in, sentence_run, started
from tiny_runs import assert_same_file, assert_same_run, prepare_toy, run_config, train_here, with_section

from cotext.config.recipe import Config, load_config
from cotext.data.build import build_view
from cotext.layers.low_rank import corrections, merged
from cotext.models import checkpoint as ckpt
from cotext.models.build import build_model
from cotext.models.parameters import count_parameters
from cotext.runtime.errors import CotextError
from cotext.training import run as runs
from cotext.training.callbacks import TrainingCallbacks
from cotext.training.low_rank import BASE, CORRECTIONS, adapt
from cotext.training.prepared_data import open_data
from cotext.training.setup import set_up
from cotext.training.warm_start import OF_SYMBOLS

# Among them all parts that read weights without calling their layer.
FAMILIES = [
    "opus/sentence",
    "opus/s4to4-shift-cd",
    "opus/p-transformer",
    "opus/g-transformer",
    "opus/docflat-c",
    "opus/mcn",
    "opus/han",
    "docflat/abd-both",
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_toy(tmp_path_factory.mktemp("low-rank") / "data", documents=8)


@pytest.fixture(scope="module")
def imported(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sentence_run(tmp_path_factory.mktemp("low-rank") / "sent", data, pre_norm=False)


@pytest.mark.parametrize("recipe", FAMILIES)
def test_no_jump_and_nothing_without_effect(recipe: str, data: Path, imported: Path, tmp_path: Path) -> None:
    tokenizer = open_data(data).tokenizer
    config, model, new = started(recipe, data, imported, tmp_path, "train.lora.rank=2")
    given = batches(config, tokenizer, build_view(config.view))
    names = model.state_dict().keys()
    with torch.no_grad():
        before = loss(model, given)
    trained = adapt(model, config, tokenizer, new, {})
    matrices = {f"{path}.weight" for path, m in model.named_modules() if isinstance(m, torch.nn.Linear)}
    assert len(corrections(model)) == 2 * len(matrices - set(new)) + 1
    assert merged(model).keys() == names
    with torch.no_grad():
        assert loss(model, given) == before
    # Behind a closed gate, the second matrix of a correction moves first, and then the first one.
    moved = moved_in(3, model, given)
    assert moved == set(trained) == {*new, *corrections(model)}
    with torch.no_grad():
        for name, tensor in corrections(model).items():
            tensor += 0.1 * torch.randn_like(tensor)
            assert name in trained
        after = loss(model, given)
        assert abs(after - before) > 1e-3
        plain = build_model(config, tokenizer.vocabulary_size).train().double()
        ckpt.fill(plain, merged(model), tmp_path)
        plain.blend(0.0, config.train.blend or ())
        assert loss(plain, given) == after


def lora_config(run: Path, **settings: object) -> Config:
    """G-Transformer's attention, dropout, checkpoints that are averaged."""
    lora = {"rank": 2, "alpha": 8.0}
    config = run_config(**{"init": str(run), "lora": lora, "fresh_rate": 3.0, **settings})
    config = with_section(config, "view", kind="document", before=0, separators="bracket")
    attention = {"span": "sentence", "top": {"layers": 1, "span": "row", "mix": "gated"}}
    return with_section(config, "model", attention=attention, encoder_layers=2, decoder_layers=2)


@pytest.fixture(scope="module")
def whole(data: Path, imported: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing interrupts."""
    run = tmp_path_factory.mktemp("low-rank") / "whole"
    train_here(lora_config(imported), data, run)
    return run


class TestFiles:
    def test_models_are_plain_ones(self, data: Path, imported: Path, whole: Path) -> None:
        """Frozen is what was taken and is no matrix of a linear layer; symbols have rows that are trained."""
        first, pad = load_file(imported / "model.safetensors"), open_data(data).tokenizer.pad
        new = json.loads((whole / "init.json").read_text())["neutral"]
        for update in (None, 4, 12):
            model = ckpt.load_run(whole, update).with_states("this test")
            linear = {f"{path}.weight" for path, m in model.named_modules() if isinstance(m, torch.nn.Linear)}
            for name, tensor in model.state_dict().items():
                if name in first and name in linear:
                    assert not torch.equal(tensor, first[name]), name
                    difference = torch.linalg.matrix_rank((tensor - first[name]).double(), rtol=1e-4)
                    assert difference <= (2 if update else 4), name  # of a mean of two, twice as much
                elif name in OF_SYMBOLS:
                    assert torch.equal(tensor[:pad], first[name][:pad])
                    assert not torch.equal(tensor[pad:], first[name][pad:])
                elif name in first:
                    assert torch.equal(tensor, first[name]), name
        assert new

    def test_moments_are_those_of_what_is_trained(self, whole: Path, imported: Path) -> None:
        folder = ckpt.checkpoint_folder(whole, 12)
        with_moments = {name.rpartition("|")[0] for name in load_file(folder / "optimizer.safetensors")}
        own = load_file(folder / CORRECTIONS)
        account = json.loads((whole / "init.json").read_text())
        assert with_moments == {*own, *account["neutral"], *account["fresh"]}
        assert own.keys().isdisjoint(load_file(folder / "model.safetensors"))
        first = load_file(imported / "model.safetensors")
        for name, tensor in load_file(whole / BASE).items():
            origin = account["adopted"].get(name, name)
            assert torch.equal(tensor, first[origin]), name

    def test_stopped_it_goes_on_exactly(
        self, data: Path, imported: Path, whole: Path, tmp_path: Path
    ) -> None:
        """Though the run that it started from is gone."""
        own, run = tmp_path / "own", tmp_path / "run"
        shutil.copytree(imported, own)
        config = with_section(lora_config(imported), "train", init=str(own))

        def on_update(figures: dict[str, float]) -> None:
            if figures["update"] == 6:
                os.kill(os.getpid(), signal.SIGTERM)

        stopped = runs.train(config, data, run, TrainingCallbacks(on_update, lambda f: None, lambda t: None))
        assert stopped.update == 7
        shutil.rmtree(own)
        assert train_here(config, data, run).finished
        assert_same_run(run, whole)
        assert_same_file(run / BASE, whole / BASE)
        assert_same_file(*(ckpt.checkpoint_folder(each, 12) / CORRECTIONS for each in (run, whole)))
        further = with_section(config, "train", max_updates=14)
        assert train_here(further, data, run).update == 14

    @pytest.mark.parametrize("what", ["gone", "another", "of another rank"])
    def test_files_that_do_not_belong_to_it(
        self, data: Path, imported: Path, whole: Path, tmp_path: Path, what: str
    ) -> None:
        run = tmp_path / "run"
        shutil.copytree(whole, run)
        config = lora_config(imported, max_updates=14)
        if what == "gone":
            (run / BASE).unlink()
        elif what == "another":
            matrices = load_file(run / BASE)
            save_file({name: tensor + 1 for name, tensor in matrices.items()}, run / BASE)
        else:
            config = with_section(config, "train", lora={"rank": 3})
        expected = {
            "gone": r"base.safetensors: is missing; restore it",
            "another": r"base.safetensors: damaged, or of another origin",
            "of another rank": r"train.lora.rank: 2 there, 3 asked for",
        }
        with pytest.raises(CotextError, match=expected[what]):
            train_here(config, data, run)

    def test_older_checkpoints_keep_their_model_alone(self, whole: Path) -> None:
        files = {
            update: {path.name for path in ckpt.checkpoint_folder(whole, update).glob("*.safetensors")}
            for update in ckpt.checkpoints(whole)
        }
        assert files[4] == {"model.safetensors"}
        assert CORRECTIONS in files[8] & files[12]


class TestRefused:
    def setup_of(self, data: Path, folder: Path, *overrides: str) -> None:
        set_up(load_config("focused-concatenation/base", None, overrides), data, folder, "", "cpu")

    def test_what_cannot_be_corrected(self, data: Path, imported: Path, tmp_path: Path) -> None:
        with pytest.raises(CotextError, match=r"train.lora.rank = 4: .* give --init RUN"):
            self.setup_of(data, tmp_path, "train.lora.rank=4")
        with pytest.raises(
            CotextError, match=r"train.lora.rank = 16: no low rank where model.dimension = 16"
        ):
            self.setup_of(data, tmp_path, f"train.init={imported}", "train.lora.rank=16")
        other = [f"train.init={imported}", "train.init_architecture=recipe", "train.lora.rank=4"]
        narrow = ["model.dimension=16", "model.heads=2", "model.feed_forward=20", "model.encoder_layers=1"]
        self.setup_of(data, tmp_path, *other, *narrow)  # attention fits

    def test_a_start_that_gives_embeddings_alone(self, data: Path, imported: Path, tmp_path: Path) -> None:
        model = torch.nn.ModuleDict({"embedding": torch.nn.Embedding(9, 4)})
        config = lora_config(imported)
        with pytest.raises(CotextError, match=r"has no matrix of a linear layer that this model takes"):
            adapt(model, config, open_data(data).tokenizer, [], {})


def test_an_encoder_under_a_new_decoder(data: Path, imported: Path, tmp_path: Path) -> None:
    """CASA's decoder is trained as a whole, and so is the row of its blank, which was padding."""
    overrides = [f"train.init={imported}", "train.lora.rank=2"]
    setup = set_up(load_config("opus/casa", None, overrides), data, tmp_path / "run", "", "cpu")
    low_rank = {name.partition(".")[0] for name in corrections(setup.model) if name.endswith(".down")}
    assert low_rank == {"encoder"}
    assert "embedding.parametrizations.weight.0.rows" in setup.fresh
    decoder = {name for name, p in setup.model.named_parameters() if name.startswith("decoder")}
    assert decoder
    assert decoder <= set(setup.fresh)


def command(world: World, out: Path, *further: str | Path) -> list[str | Path]:
    settings = ["train.lora.rank=4", "train.validate_bleu=true"]
    return [
        *("train", RECIPE, *TINY, *settings, "--init", world.run),
        *("--data", world.folder / "data", "--out", out, *further),
    ]


def test_on_the_command_line(world: World, tmp_path: Path) -> None:
    """What is told, before and while; a run that translates, and that another one starts from."""
    run, data = tmp_path / "run", world.folder / "data"
    found = json.loads(succeed(*command(world, run, "--dry-run", "--json")).out)
    whole = count_parameters(ckpt.load_run(world.run).with_states("this test"))
    assert found["parameters"] == whole
    assert found["learning"] < whole / 2
    assert found["model_memory"] < 16 * whole
    told = succeed(*command(world, run))
    words = f"{found['learning']:,} numbers learn, of a model of {found['parameters']:,}"
    assert words in told.out + told.err
    moments = load_file(ckpt.checkpoint_folder(run, 6) / "optimizer.safetensors")
    assert found["learning"] == sum(t.numel() for name, t in moments.items() if name.endswith("|exp_avg"))
    source = documents_file(tmp_path / "in.en", 2, 11)
    succeed("translate", run, source, "--out", tmp_path / "out.de")
    assert len((tmp_path / "out.de").read_text().splitlines()) == len(source.read_text().splitlines())
    again = succeed(
        "train", RECIPE, *TINY, "--init", run, "--data", data, "--out", tmp_path / "two", "--dry-run"
    )
    assert f"parameters   {whole:,}\n" in again.out
    refused = cotext(*command(world, tmp_path / "none", "train.lora.rank=16"))
    assert (refused.code, (tmp_path / "none").exists()) == (2, False)


@pytest.fixture(scope="module")
def untroubled(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("low-rank") / "untroubled"
    succeed(*command(world, run))
    return run


@pytest.mark.parametrize("moment", [BASE, "00000003"])
def test_killed(world: World, untroubled: Path, tmp_path: Path, moment: str) -> None:
    """Before its base, or a checkpoint, has its name: the same command ends the same."""
    out = tmp_path / "out"
    assert run_killed(command(world, out), Moment(1, moment))
    succeed(*command(world, out))
    assert_same_run(out, untroubled)
    assert_same_file(out / BASE, untroubled / BASE)
    assert not list(out.rglob(".*"))
