"""Folders that are no model, or none that is known here: refused with the reason, and nothing is written."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from cotext.data.documents import Languages
from cotext.interchange.importing import import_model
from tests.command_line import must_refuse
from tests.loops import loop_over
from tests.pretrained_models import marian_model, mbart_model
from tests.refusals import must_raise

pytest.importorskip("transformers")
Change = Callable[[Path], object]
LAYER = "model.encoder.layers.0"
KINDS = {"marian": marian_model, "mbart": mbart_model}


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    top = tmp_path_factory.mktemp("refused")
    return {name: make(top / name) for name, make in KINDS.items()}


def setting(**changes: Any) -> Change:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        content = {**json.loads(path.read_text()), **changes}
        path.write_text(json.dumps({key: value for key, value in content.items() if value is not Ellipsis}))

    return change


def tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Change:
    def changed(folder: Path) -> None:
        path = folder / "model.safetensors"
        content = load_file(path)
        change(content)
        save_file(content, path, {"format": "pt"})

    return changed


def pickled(content: object) -> Change:
    def change(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        with (folder / "pytorch_model.bin").open("wb") as file:
            torch.save(content, file)

    return change


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, ("raise SystemExit('a pickle was run')",))


def cut(name: str, length: int) -> Change:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:length])


def without_start(folder: Path) -> None:
    setting(decoder_start_token_id=...)(folder)
    (folder / "generation_config.json").unlink()


def gone(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def not_a_number(weights: dict[str, torch.Tensor]) -> None:
    weights[f"{LAYER}.fc1.bias"][3] = torch.nan


def stored(name: str, *shape: int, kind: torch.dtype = torch.float32) -> Callable[..., object]:
    return lambda weights: weights.update({name: torch.zeros(shape).to(kind)})


def stretched(folder: Path) -> None:
    """A matrix of terabytes that holds one number."""
    weights = load_file(folder / "model.safetensors")
    weights[f"{LAYER}.fc1.weight"] = torch.zeros(1).expand(1 << 20, 1 << 20)
    pickled(weights)(folder)


REFUSED: list[tuple[Change, str]] = [
    # settings
    (setting(normalize_before=True), r"normalize_before = True: .* normalises after its layers"),
    (setting(scale_embedding=False), r"scale_embedding = False: "),
    (setting(activation_function="tanh"), r"activation_function = 'tanh' .*: relu, swish, silu, gelu"),
    (setting(encoder_ffn_dim=48), r"encoder_ffn_dim = 48: encoder and decoder must have"),
    (setting(d_model=...), r"config\.json: d_model is None, a whole number is needed"),
    (setting(d_model=10**9, decoder_layers=10**9), r"model\.dimension"),
    (setting(d_model=65_536, decoder_layers=256), r"far smaller than the model of its configuration"),
    (setting(decoder_layers=2), r"decoder\.layers\.1\.\S+ is missing"),
    (setting(encoder_layers=1), r"'model\.encoder\.layers\.1\.\S+' is unknown in this type of model"),
    (setting(eos_token_id=5), r"sentences end with the symbol of row 5 of 68"),
    (setting(decoder_start_token_id=999), r"begin with that of row 999"),
    (without_start, r"decoder_start_token_id is missing: decoders that start with the language"),
    (setting(decoder_vocab_size=10**15), r"row 0 of 1,000,000,000,000,000"),
    (setting(decoder_start_token_id=-7), r"decoder_start_token_id is -7; it must be a row"),
    (setting(vocab_size=60), r"vocab\.json: 68 pieces, but 60 rows"),
    (setting(vocab_size=80), r"shared\.weight is \[68, 16\], which does not fit|has them elsewhere"),
    (setting(model_type="t5"), r"model_type = 't5': supported are marian, m2m_100, mbart"),
    # files
    (gone("config.json"), r"has no config\.json of Hugging Face"),
    (gone("source.spm"), r"source\.spm is missing"),
    (gone("model.safetensors"), r"has no model\.safetensors and no pytorch_model\.bin"),
    (cut("model.safetensors", 3000), r"model\.safetensors: damaged or truncated"),
    (cut("source.spm", 100), r"source\.spm: not a sentencepiece model"),
    # weights
    (tensors(stored("lm_head.weight", 68, 16)), r"lm_head\.weight differs from model\.shared\.weight"),
    (tensors(not_a_number), r"fc1\.bias contains values that are not finite numbers"),
    (tensors(stored(f"{LAYER}.fc1.bias", 5)), r"fc1\.bias is \[5\], which does not fit \[24\]"),
    (
        tensors(stored("model.encoder.embed_positions.weight", 64, 16)),
        r"embed_positions\.weight does not contain sinusoids",
    ),
    (pickled({"weight": Bomb()}), r"pytorch_model\.bin: .*contains objects other than tensors"),
    (tensors(stored(f"{LAYER}.fc1.bias", 24, kind=torch.float8_e4m3fn)), r"are in torch\.float8_e4m3fn"),
    (pickled({1: torch.zeros(3)}), r"something other than named tensors"),
    (pickled({"weight": torch.zeros(3).to_sparse()}), r"something other than named tensors"),
    (pickled({"weight": torch.zeros(3, device="meta")}), r"named tensors with all their values"),
    (stretched, r"fc1\.weight is \[1048576, 1048576\], which does not fit"),
]
OTHERS: list[tuple[str, Change, str]] = [
    ("mbart", setting(decoder_start_token_id=100), r"of row 100, .* the decoder starts with a language"),
    ("mbart", setting(max_position_embeddings=99), r"embed_positions\.weight is \[66, 16\]"),
]


@loop_over(("kind", "change", "message"), [*(("marian", *each) for each in REFUSED), *OTHERS])
def test_what_is_no_such_model_is_refused(
    kind: str, change: Change, message: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = copytree(folders[kind], tmp_path / "there")
    change(folder)
    must_raise(message, import_model, folder, tmp_path / "run", Languages())
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_names_of_files_elsewhere(folders: dict[str, Path], tmp_path: Path) -> None:
    """An index may name files beside it alone."""
    folder = copytree(folders["marian"], tmp_path / "there")
    (folder / "model.safetensors").rename(tmp_path / "elsewhere.safetensors")
    index = {"weight_map": {"lm_head.weight": "../elsewhere.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    must_raise("must name files in the same folder", import_model, folder, tmp_path / "run", Languages())
    (tmp_path / "elsewhere.safetensors").rename(folder / "part-1.safetensors")
    listed = {"weight_map": dict.fromkeys(load_file(folder / "part-1.safetensors"), "part-1.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(listed))
    import_model(folder, tmp_path / "run", Languages())


def test_old_pickles_of_tensors_are_read(folders: dict[str, Path], tmp_path: Path) -> None:
    """Written before torch 1.6, whose files were no archives yet."""
    folder = copytree(folders["marian"], tmp_path / "there")
    weights = load_file(folder / "model.safetensors")
    torch.save(weights, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    (folder / "model.safetensors").unlink()
    found = import_model(folder, tmp_path / "run", Languages())
    assert found.self_test.largest_difference < 1e-5
    torch.save(weights, tmp_path / "new.bin")
    archive = (tmp_path / "new.bin").read_bytes()
    for damaged in (pickle.dumps({"weight": Bomb()}, protocol=2), archive[:-26] + b"\2" + archive[-25:]):
        (folder / "pytorch_model.bin").write_bytes(damaged)
        must_raise("objects other than tensors", import_model, folder, tmp_path / "other", Languages())


def test_the_command_line_says_what_is_wrong(folders: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / "mine.txt").write_text("text")
    must_refuse("nowhere: no such folder", "import", tmp_path / "nowhere", "--out", tmp_path / "x")
    must_refuse("exists; choose another --out", "import", folders["marian"], "--out", out)
    assert [path.name for path in out.iterdir()] == ["mine.txt"]
