"""Models and checkpoints on disk: whole or absent, averaged by hand, refused with a reason."""

import errno
import os
import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from safetensors.torch import save as serialised

from cotext.config.recipe import TrainConfig
from cotext.models import checkpoint as ckpt
from cotext.models.run_folder import Description, describe_file, write_config
from cotext.runtime import CotextError
from cotext.training import resume as training_state
from tests.refusals import must_raise
from tests.tiny_runs import (
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
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of updates 2, 4, ... 12, all kept; the final model is the mean of three."""
    run = tmp_path_factory.mktemp("checkpoint") / "trained"
    train_to_a_mean(run_config(validate_every=2, keep=10, average=3), data, run)
    return run


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def test_equal_models_are_equal_files(trained: Path, tmp_path: Path) -> None:
    """Whatever is in their description: the library would write its parts in any order."""
    loaded = ckpt.load_run(trained)
    content = loaded.config.model_copy(update={"paper": '\x7f \n\t \x01 \\ / " ü 😀 \u2028'})
    files = [tmp_path / f"{number}.safetensors" for number in range(4)]
    for path in files:
        ckpt.save_model(path, loaded.model.state_dict(), content, loaded.tokenizer.fingerprint, [7])
    assert sorted(tmp_path.iterdir()) == files
    assert len({path.read_bytes() for path in files}) == 1
    assert describe_file(files[0]) == Description(content, loaded.tokenizer.fingerprint, [7])
    weights = ckpt.load_weights(files[0])
    assert all(torch.equal(weights[name], tensor) for name, tensor in loaded.model.state_dict().items())


def test_a_run_describes_itself(trained: Path, tmp_path: Path) -> None:
    """Nothing but model and tokenizer is needed, and the file says what it is."""
    shutil.copytree(trained / "tokenizer", tmp_path / "tokenizer")
    shutil.copy(trained / "model.safetensors", tmp_path)
    loaded = ckpt.load_run(tmp_path)
    assert loaded.config == run_config(validate_every=2, keep=10, average=3)
    assert loaded.updates == [8, 10, 12]
    assert "updates:8+10+12" in loaded.signature
    assert not loaded.model.training


class TestAveraging:
    def test_the_final_model_is_the_mean_of_the_chosen(self, trained: Path) -> None:
        final = load_file(trained / "model.safetensors")
        files = [trained / "checkpoints" / f"{u:08d}" / "model.safetensors" for u in (8, 10, 12)]
        parts = [load_file(file) for file in files]
        for name, tensor in final.items():
            mean = (parts[0][name].double() + parts[1][name].double() + parts[2][name].double()) / 3
            assert torch.equal(tensor, mean.float())

    def test_the_closest_to_the_best_or_the_last(self) -> None:
        """Of two as close to the best, the earlier."""
        saved = [10, 20, 30, 40, 50]
        for count, expected in ((1, [30]), (2, [20, 30]), (3, [20, 30, 40]), (4, saved[:4]), (9, saved)):
            assert ckpt.averaged(saved, 30, TrainConfig(average=count)) == expected
        assert ckpt.averaged(saved, 50, TrainConfig(average=3)) == [30, 40, 50]
        assert ckpt.averaged(saved, 10, TrainConfig(average=3)) == [10, 20, 30]
        config = TrainConfig(average=2, average_by="last")
        assert ckpt.averaged(saved, 10, config) == [40, 50]
        assert ckpt.averaged([10], 10, config) == [10]

    @given(
        values=st.lists(st.integers(0, 9), min_size=1, max_size=25),
        average=st.integers(1, 6),
        keep=st.integers(1, 6),
        by=st.sampled_from(["best", "last"]),
    )
    @example(values=[1, 0, 0], average=1, keep=1, by="last")
    def test_pruning_keeps_what_averaging_needs(
        self, values: list[int], average: int, keep: int, by: str
    ) -> None:
        """Pruned after every validation or never: the same are averaged in the end."""
        config = TrainConfig.model_validate({"average": average, "keep": keep, "average_by": by})
        kept: list[int] = []
        best, best_update = -1, 0
        for number, value in enumerate(values):
            update = 10 * (number + 1)
            if value > best:
                best, best_update = value, update
            kept = sorted(ckpt.worth_keeping([*kept, update], best_update, config))
        everything = [10 * (number + 1) for number in range(len(values))]
        assert ckpt.averaged(kept, best_update, config) == ckpt.averaged(everything, best_update, config)
        assert {best_update, *everything[-keep:]} <= set(kept)
        assert len(kept) <= average + max(average, keep)

    def test_average_of_named_checkpoints(self, trained: Path, tmp_path: Path) -> None:
        ckpt.average_run(trained, tmp_path / "mean", [2, 6])
        loaded = ckpt.load_run(tmp_path / "mean")
        assert loaded.updates == [2, 6]
        assert (tmp_path / "mean" / "data.json").read_bytes() == (trained / "data.json").read_bytes()
        one, other = (ckpt.load_run(trained, u).model.state_dict() for u in (2, 6))
        for name, tensor in loaded.model.state_dict().items():
            assert torch.equal(tensor, ((one[name].double() + other[name].double()) / 2).float())
        must_raise("no checkpoint of update 5", ckpt.average_run, trained, tmp_path / "other", [2, 5])


class TestPruning:
    def test_folders(self, run: Path) -> None:
        ckpt.prune(run, keep_models={2, 8, 12}, keep_states={12})
        assert ckpt.checkpoints(run) == [2, 8, 12]
        names = [sorted(p.name for p in ckpt.checkpoint_folder(run, u).iterdir()) for u in (8, 12)]
        kept = ["model.safetensors", "trainer.json"]
        assert names == [kept, sorted([*kept, "optimizer.safetensors", "process-0.safetensors"])]
        assert not list((run / "checkpoints").glob(".*"))

    def test_a_run_keeps_few(self, data: Path, tmp_path: Path) -> None:
        progress = train_here(run_config(validate_every=1, keep=2, average=2), data, tmp_path / "run")
        saved = ckpt.checkpoints(tmp_path / "run")
        assert {11, 12, progress.best_update} <= set(saved)
        assert len(saved) <= 4

    def test_what_cannot_be_deleted_is_reported_once(
        self, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refused(source: Path, target: Path) -> None:
            no_space() if Path(source).name.isdigit() else shutil.move(source, target)

        monkeypatch.setattr(os, "replace", refused)
        config = run_config(validate_every=1, keep=1, average=1, max_updates=6)
        told = [line for line in told_in_training(config, data, tmp_path / "run") if "deleted" in line]
        assert len(told) == 1
        assert re.match(r".*/0000000\d: is no longer needed, but cannot be deleted", told[0])


def no_space(*args: Any, **kwargs: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def no_space_in_tensors(*args: Any, **kwargs: Any) -> None:
    raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


def no_space_for(names: str, source: Path, target: Path) -> None:
    no_space() if re.fullmatch(names, Path(target).name) else shutil.move(source, target)


def visible(run: Path) -> dict[str, list[str]]:
    """The checkpoint folders that count, with their files."""
    return {
        str(u): sorted(p.name for p in ckpt.checkpoint_folder(run, u).iterdir())
        for u in ckpt.checkpoints(run)
    }


@pytest.fixture(scope="module")
def begun(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with one checkpoint, and beside it what becomes of it where nothing happens."""
    run = tmp_path_factory.mktemp("begun") / "run"
    train_here(run_config(max_updates=4, log_every=4), data, run)
    train_here(run_config(log_every=4), data, run.with_name("untroubled"))
    return run


class TestNeverHalfWritten:
    @pytest.fixture
    def interrupted(self, begun: Path, tmp_path: Path) -> Path:
        """A run with one checkpoint, about to write its second."""
        return Path(shutil.copytree(begun, tmp_path / "run"))

    @pytest.mark.parametrize(
        ("module", "name", "error"),
        [
            (os, "replace", partial(no_space_for, "model.safetensors")),
            (os, "replace", partial(no_space_for, "[0-9]+")),
            (ckpt, "save_file", no_space_in_tensors),
            (ckpt, "save_file", no_space),
            (training_state, "save_file", no_space_in_tensors),
            (training_state, "save_file", no_space),
            (training_state, "sealed", no_space),
        ],
    )
    def test_a_full_disk(
        self, data: Path, begun: Path, interrupted: Path, module: Any, name: str, error: Any
    ) -> None:
        before = visible(interrupted)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, name, error)
            training_is_refused(
                run_config(log_every=100), data, interrupted, r"cannot be (re)?written: .*[Nn]o space left"
            )
        assert visible(interrupted) == before
        assert ckpt.load_run(interrupted).updates in ([4], [8])
        assert not list(interrupted.rglob(".*"))
        # With room again, the same command goes on, to the same end.
        train_here(run_config(log_every=4), data, interrupted)
        assert_same_run(interrupted, begun.with_name("untroubled"))

    def test_a_checkpoint_replaces_another(self, tmp_path: Path) -> None:
        for name in ("new", "final"):
            (tmp_path / name).mkdir()
            (tmp_path / name / name).touch()
        ckpt.put_in_place(tmp_path / "new", tmp_path / "final")
        assert [p.name for p in tmp_path.rglob("*")] == ["final", "new"]


def rewrite(path: Path, change: dict[str, Any]) -> None:
    """Change tensors or metadata of a model file in place; it is left without a checksum."""
    tensors, metadata = load_file(path), ckpt.read_metadata(path)
    del metadata[ckpt.CHECKSUM]
    for key, value in change.items():
        if key == "heads:":
            metadata["cotext.config"] = metadata["cotext.config"].replace(key, value)
            continue
        part: dict[str, Any] = metadata if key.startswith("cotext.") else tensors
        part.pop(key, None)
        if value is not None:
            part[key] = value
    save_file(tensors, path, metadata)


class TestRefusedModels:
    def test_no_run(self, tmp_path: Path) -> None:
        must_raise("nowhere: no such run folder", ckpt.load_run, tmp_path / "nowhere")
        must_raise(r"no such model file; has the run been trained\?", ckpt.load_run, tmp_path)

    def test_files_that_are_no_model(self, run: Path) -> None:
        path = run / "model.safetensors"
        whole = path.read_bytes()
        others = b"hello, this is a text\n" * 50, bytes(1000), b"PK\x03\x04" * 300
        for content, message in (
            *(
                (whole[:length], r"model.safetensors: .*damaged or truncated")
                for length in (0, 4, 100, 5000, -1)
            ),
            *((content, "not a safetensors file") for content in others),
            (serialised({"w": torch.zeros(3)}), "a safetensors file, but not a model of Cotext"),
        ):
            path.write_bytes(content)
            must_raise(message, ckpt.load_run, run)

    def test_another_tokenizer_or_none(self, run: Path, tmp_path: Path) -> None:
        other = prepare_toy(tmp_path / "other", seed=9)
        shutil.rmtree(run / "tokenizer")
        must_raise("tokenizer", ckpt.load_run, run)
        shutil.copytree(other / "tokenizer", run / "tokenizer")
        must_raise("needs another tokenizer .* restore this folder", ckpt.load_run, run)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (
                {"cotext.format": "99", "cotext.version": "9.9"},
                r"written by Cotext 9\.9 in model format 99; .*reads format 1",
            ),
            *(
                (change, "metadata is damaged")
                for change in (
                    {"cotext.config": "{"},
                    {"cotext.config": "view: [1, 2"},
                    {"cotext.config": None},
                    {"cotext.updates": "1, 2"},
                    {"cotext.updates": "7"},
                )
            ),
            *(
                (change, "its weights do not fit its configuration")
                for change in (
                    {"embedding.weight": None},
                    {"one.more": torch.zeros(2)},
                    {"embedding.weight": torch.zeros(3, 5)},
                )
            ),
            ({"heads:": "haeds:"}, r"unknown key 'model.haeds'; the nearest known one is 'model.heads'"),
        ],
        ids=str,
    )
    def test_description_and_weights(self, run: Path, change: dict[str, Any], message: str) -> None:
        """By key of either, with None for what is missing; `heads:` is a part of the configuration."""
        rewrite(run / "model.safetensors", change)
        must_raise(message, ckpt.load_run, run)

    @settings(max_examples=60)
    @given(data=st.data())
    def test_any_byte_may_be_another(self, trained: Path, data: st.DataObject) -> None:
        """Of the head, where the configuration stands, or of the weights: refused, or of no consequence."""
        path = trained / "model.safetensors"
        content = path.read_bytes()
        head = 8 + int.from_bytes(content[:8], "little")
        place = data.draw(st.integers(0, head - 1) | st.integers(head, len(content) - 1))
        damaged = bytearray(content)
        damaged[place] ^= data.draw(st.integers(1, 255))
        expected = ckpt.load_run(trained)
        path.write_bytes(damaged)
        try:
            loaded = ckpt.load_run(trained)
        except CotextError:
            return
        finally:
            path.write_bytes(content)
        assert (loaded.config, loaded.updates) == (expected.config, expected.updates)
        weights = expected.model.state_dict()
        assert all(torch.equal(t, weights[name]) for name, t in loaded.model.state_dict().items())

    def test_the_checksum_is_that_of_the_content_alone(self, trained: Path, tmp_path: Path) -> None:
        """The order of the weights is no part of it, and it can be computed anew from the file."""
        path = trained / "model.safetensors"
        metadata, weights = ckpt.read_metadata(path), load_file(path)
        assert metadata[ckpt.CHECKSUM] == ckpt.model_checksum(dict(reversed(weights.items())), metadata)
        weights["embedding.weight"][0, 0] += 1
        assert metadata[ckpt.CHECKSUM] != ckpt.model_checksum(weights, metadata)


class TestRunFolders:
    """What `train` accepts to write into."""

    def test_other_settings(self, data: Path, run: Path) -> None:
        asked = with_section(run_config(validate_every=2, keep=10, average=3), "model", dropout=0.3)
        with pytest.raises(CotextError) as caught:
            train_here(asked, data, run)
        message = str(caught.value)
        assert "contains a run with another configuration" in message
        assert message.splitlines()[1:] == ["  model.dropout: 0.2 in the run, 0.3 requested"]
        assert "choose another --out" in message
        # What was trained counts, not what was later written into `config.yaml`.
        write_config(run, asked)
        training_is_refused(asked, data, run, "model.dropout: 0.2 in the run, 0.3 requested")

    @pytest.mark.parametrize("key", ["max_updates", "patience", "log_every", "keep", "average"])
    def test_settings_that_may_change(self, data: Path, run: Path, key: str) -> None:
        asked = run_config(**{"validate_every": 2, "keep": 10, "average": 3, key: 11})
        assert train_here(asked, data, run).finished
        assert f"  {key}: 11\n" in (run / "config.yaml").read_text()

    def test_foreign_folder(self, data: Path, tmp_path: Path) -> None:
        (tmp_path / "thesis.tex").touch()
        training_is_refused(run_config(), data, tmp_path, "the folder is not empty and contains no run")
        assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]

    def test_below_a_file(self, data: Path, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        for run in (tmp_path / "file", tmp_path / "file" / "run"):
            training_is_refused(run_config(), data, run, "cannot be written")

    @pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only to the superuser")
    def test_read_only(self, data: Path, tmp_path: Path) -> None:
        (tmp_path / "closed").mkdir(mode=0o555)
        training_is_refused(run_config(), data, tmp_path / "closed" / "run", "cannot be written")

    @pytest.mark.parametrize("content", [b"view: [", b"\xff\xfe\x00", b"- a list"])
    def test_damaged_configuration(self, data: Path, run: Path, content: bytes) -> None:
        (run / "config.yaml").write_bytes(content)
        training_is_refused(
            run_config(), data, run, r"config.yaml(:| is) (not valid|cannot be read|expected a mapping)"
        )

    def test_data_of_another_tokenizer(self, run: Path, tmp_path: Path) -> None:
        other = prepare_toy(tmp_path / "other", seed=9)
        training_is_refused(
            run_config(validate_every=2, keep=10, average=3),
            other,
            run,
            r"trained on other data \(.*tokenizer.* changed\)",
        )

    def test_no_data(self, tmp_path: Path) -> None:
        training_is_refused(
            run_config(), tmp_path, tmp_path / "run", r"no prepared data there; make it with `cotext prepare"
        )
