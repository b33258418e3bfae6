"""Run and data folders from elsewhere: what they ask for is compared with what they hold, then taken."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from cotext.config.model import ModelConfig
from cotext.config.recipe import Config, load_config, recipe_names
from cotext.data.store import TokenStore, store_writer
from cotext.models import checkpoint as ckpt
from cotext.models.build import build_model, parameters_at_most
from cotext.models.describe import describe_model
from cotext.runtime import CotextError, devices
from cotext.runtime.devices import choose_threads
from cotext.training.inputs import open_data
from tests.command_line import RECIPE, TINY, World, must_refuse, writable_copy
from tests.loops import loop_over
from tests.refusals import must_raise

NINES = "9" * 6000


@pytest.fixture
def run(world: World, tmp_path: Path) -> Path:
    """A copy of a run that may be spoiled."""
    return writable_copy(world.run, tmp_path / "run")


def describe(run: Path, **changes: Callable[[str], str]) -> None:
    """Change what the model file of a run says of itself."""
    path = run / "model.safetensors"
    weights = load_file(path)
    with safe_open(path, framework="pt") as file:
        metadata = dict(file.metadata())
    for key, change in changes.items():
        metadata[f"cotext.{key}"] = change(metadata[f"cotext.{key}"])
    metadata[ckpt.CHECKSUM] = ckpt.model_checksum(weights, metadata)
    save_file(weights, path, metadata)


def refusal(run: Path) -> str:
    with pytest.raises(CotextError) as caught:
        ckpt.load_run(run)
    lines = str(caught.value).splitlines()
    assert len(lines) <= 11
    assert max(map(len, lines)) < 900
    return str(caught.value)


@loop_over(
    ("before", "after", "message"),
    [
        (
            "dimension: 16",
            "dimension: 65536",
            r"embedding.weight is \[\d+, 16\], but must be \[\d+, 65536\]; ",
        ),
        ("feed_forward: 32", "feed_forward: 65536", "but must be"),
        ("segments: none", "segments: learned", "embedding.segment is missing"),
        ("encoder_layers: 1", "encoder_layers: 100", "is missing; .* and [0-9,]{4,} more"),
    ],
)
def test_a_model_that_asks_for_more_than_it_holds(
    run: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str, message: str
) -> None:
    def change(config: str) -> str:
        assert before in config
        changed = config.replace(before, after).replace("before: 1", "before: 9999")
        return changed.replace("max_tokens: 512", "max_tokens: 1000000")

    def build(config: Config, *vocabularies: int) -> Any:
        assert torch.get_default_device().type == "meta", "memory is taken"
        return build_model(config, *vocabularies)

    describe(run, config=change)
    monkeypatch.setattr(ckpt, "build_model", build)
    must_raise(message, ckpt.load_run, run)


@loop_over(
    ("key", "value", "message"),
    [
        ("config", "a: &a [1, 2]\nb: *a", "its metadata is damaged: its configuration is not valid"),
        ("config", "x" * 10**6, "more than 65,536 characters"),
        ("config", "decode: {beam: 2001-99-99}", "decode.beam = '2001-99-99'"),
        ("config", "decode: {max_ratio: 1.0e+300}", "decode.max_ratio = 1e+300"),
        ("config", "train: {threads: 1000000000}", "train.threads = 1000000000"),
        ("config", "".join(f"k{n}: 1\n" for n in range(4000)), "more like these"),
        ("updates", "[" * 10**5, "nested too deep"),
        ("updates", "[1.5]", "not whole numbers"),
        ("updates", "[true]", "not whole numbers"),
        ("updates", '{"1": 2}', "not whole numbers"),
        ("format", "1" * 10**5, "in model format 1111"),
    ],
)
def test_descriptions_within_limits(run: Path, key: str, value: str, message: str) -> None:
    describe(run, **{key: lambda _: value})
    assert message in refusal(run)


def test_checkpoints_of_different_models_have_no_mean(tmp_path: Path, world: World) -> None:
    metadata = {"cotext.format": ckpt.FORMAT}
    save_file({"a": torch.zeros(2, 3)}, tmp_path / "one", metadata)
    for name, tensors in (
        ("shape", {"a": torch.zeros(3, 2)}),
        ("more", {"a": torch.zeros(2, 3), "b": torch.zeros(1)}),
        ("fewer", {}),
    ):
        save_file(tensors, tmp_path / name, metadata)
        must_raise(f"{name}: its weights do not fit", ckpt.average, [tmp_path / "one", tmp_path / name])


def parts_of(model: ModelConfig) -> str:
    """What fills the slots that bring parameters of their own."""
    stacks = model.stack("encoder").top.mix, model.stack("decoder").span
    return " ".join((model.writes, model.batch_context, model.document_layer, *stacks))


@pytest.mark.parametrize(("size", "models"), [("tiny", describe_model), ("base", parts_of)])
def test_the_bound_of_parameters_holds(size: str, models: Callable[[ModelConfig], str]) -> None:
    """For every model that a recipe describes, built without memory; and it is no wild guess."""
    seen = set()
    for name in recipe_names():
        config = load_config(name, size, ["model.shift=1", "view.numbers=100"])
        if models(config.model) in seen:
            continue
        seen.add(models(config.model))
        with torch.device("meta"):
            model = build_model(config, 1000)
        numbers = sum(tensor.numel() for tensor in model.state_dict().values())
        assert numbers < parameters_at_most(config, 1000) < ckpt.MOST_TIMES * numbers, name
    assert len(seen) >= 8


def test_training_of_what_no_memory_holds(world: World, tmp_path: Path) -> None:
    huge = (*TINY, "model.dimension=65536", "model.feed_forward=65536", "model.heads=1")
    command = ("train", RECIPE, *huge, "--data", world.folder / "data", "--out", tmp_path / "r")
    must_refuse("GiB, and this machine has", *command)
    assert not (tmp_path / "r").exists()


def test_no_more_threads_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "usable_cores", lambda: 4)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    config = load_config("focused-concatenation/base").model.dimension
    assert [choose_threads(config, asked) for asked in (0, 1, 3, 1024)] == [4, 1, 3, 4]
    # Of processes that share a machine; what is asked for is more than a custom.
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert [choose_threads(config, asked) for asked in (0, 1, 3, 1024)] == [2, 1, 3, 4]
    monkeypatch.setenv("OMP_NUM_THREADS", "none")
    assert choose_threads(config, 0) == 4


@loop_over(
    ("content", "message"),
    [
        ("[" * 10**5, "nested too deep"),
        (f'{{"version": {NINES}}}', "64 bits"),
        ('{"version": [1, [2]], "kind": "x", "fingerprint": "y"}', "tokenizer format [1, [2]]"),
        ('{"version": 1, "kind": ["x"], "fingerprint": "y"}', "unknown tokenizer ['x']"),
        (f'{{"version": "{"1" * 10**5}", "kind": "x", "fingerprint": "y"}}', "tokenizer format '111"),
        ("[]", "not a JSON object"),
        (" " * (1 << 21), "longer than the 1,048,576 bytes"),
    ],
)
def test_descriptions_of_tokenizers(run: Path, content: str, message: str) -> None:
    (run / "tokenizer" / "tokenizer.json").write_text(content)
    assert message in refusal(run)


@pytest.mark.parametrize(
    "name", ["tokenizer/tokenizer.json", "tokenizer/sentencepiece.model", "model.safetensors"]
)
def test_no_file_of_a_run_is_a_pipe_or_endless(run: Path, name: str) -> None:
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir):
        (run / name).unlink()
        make(run / name)
        assert name.rpartition("/")[2] in refusal(run)
        shutil.rmtree(run / name) if (run / name).is_dir() else None
        (run / name).touch()


def test_no_store_is_a_pipe(world: World, tmp_path: Path) -> None:
    data = writable_copy(world.folder / "data", tmp_path / "data")
    (data / "dev.arrow").unlink()
    os.mkfifo(data / "dev.arrow")
    must_raise(r"dev\.arrow: can't be read: not a regular file", open_data, data)


@loop_over(
    ("totals", "ends"),
    [
        ({"documents": 10**15}, None),
        ({"documents": 2}, None),
        ({"sentences": -1}, None),
        ({"source_tokens": 1.5}, None),
        ({"target_tokens": "many"}, None),
        ({}, [10**15]),
        ({}, [1, 3]),
        ({}, [[3]]),
        ({}, {"0": 3}),
        ({}, []),
    ],
)
def test_totals_that_a_store_cannot_have(tmp_path: Path, totals: dict[str, Any], ends: Any) -> None:
    """Memory is taken by what a store says that it holds."""
    path = tmp_path / "train.arrow"
    with store_writer(path, "f" * 64) as writer:
        for name in "abc":
            writer.add(name, [[1, 2], [3]], [[4], [5, 6]])
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source)
        batches = [reader.get_batch_with_custom_metadata(n) for n in range(reader.num_record_batches)]
        closing = {key.decode(): json.loads(value) for key, value in batches[-1][1].items()}
        schema, contents = reader.schema, [batch.to_pylist() for batch, _ in batches]
    changed = {"totals": {**closing["totals"], **totals}, "ends": closing["ends"] if ends is None else ends}
    with pa.ipc.new_file(str(path), schema) as writer:
        for rows in contents[:-1]:
            writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=schema))
        said = {key: json.dumps(value) for key, value in changed.items()}
        writer.write_batch(pa.RecordBatch.from_pylist([], schema=schema), custom_metadata=said)
    must_raise("the token store is damaged", TokenStore, path)
