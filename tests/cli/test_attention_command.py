"""`cotext attention` on the command line: output files, and messages on bad input."""

import json
import math
from pathlib import Path

import pytest

from cotext.config.recipe import parse_config
from cotext.data.documents import ParallelDocument
from cotext.data.formats import write_parallel
from tests.command_line import World, must_refuse, succeed
from tests.tiny_runs import toy_documents, train_here

PNG = b"\x89PNG\r\n\x1a\n"


SETTINGS = {
    "model": {
        **{"dimension": 16, "feed_forward": 32, "heads": 2, "encoder_layers": 2, "decoder_layers": 1},
        "batch_context": "flat",
    },
    "train": {
        **{"max_updates": 2, "max_tokens": 500, "validate_every": 2, "validate_bleu": False, "threads": 1},
        "order": "documents",
    },
    "decode": {"max_ratio": 1.0, "max_extra": 3, "group_windows": 4},
    "view": {"kind": "window", "before": 1, "separators": "numbered", "max_tokens": 60},
}


@pytest.fixture(scope="module")
def docflat(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("docflat") / "run"
    train_here(parse_config(SETTINGS, "test"), world.folder / "data", run)
    return run


def parallel(folder: Path, format: str = "text") -> tuple[Path, Path, list[ParallelDocument]]:
    """A document of one sentence and one of six."""
    documents = [d for d in toy_documents(40, 9) if len(d.source) in (1, 6)][:12]
    source, target = folder / "d.en", folder / "d.de"
    write_parallel(source, target, documents, format)
    return source, target, documents


def test_what_is_written(docflat: Path, tmp_path: Path) -> None:
    source, target, documents = parallel(tmp_path, "docids")
    chosen = next(d for d in documents if len(d.source) == 6)
    out = tmp_path / "out"
    done = succeed("attention", docflat, source, "--target", target, "--document", chosen.id, "--out", out)
    names = {"encoder", "decoder", "cross", "batch-source", "batch-target"}
    assert {path.name for path in out.iterdir()} == {"attention.json", *(f"{name}.png" for name in names)}
    assert all((out / f"{name}.png").read_bytes().startswith(PNG) for name in names)
    assert all(f"{name}.png" in done.out for name in names)
    found = json.loads((out / "attention.json").read_text())
    assert (found["document"], found["target"]) == (chosen.id, "given")
    assert [s["source"] for s in found["sentences"]] == list(chosen.source)
    assert [s["target"] for s in found["sentences"]] == list(chosen.target)
    assert "group_windows:4" in found["signature"]
    assert set(found["attentions"]) == {
        *("batch_context.source_context.attention", "encoder.0.attention", "encoder.1.attention"),
        *("batch_context.target_context.attention", "decoder.0.attention", "decoder.0.cross"),
    }
    for each in (*found["attentions"].values(), *found["kinds"].values()):
        for row in each["share"]:
            assert math.isclose(sum(v or 0 for v in row), 1, abs_tol=1e-4)
    # Windows of two sentences; groups of four windows and of two.
    within = [[v is not None for v in row] for row in found["attentions"]["encoder.1.attention"]["share"]]
    assert within == [[j in (i - 1, i) for j in range(6)] for i in range(6)]
    shares = found["attentions"]["batch_context.source_context.attention"]["share"]
    groups = [[v is not None for v in row] for row in shares]
    assert groups == [[i // 4 == j // 4 for j in range(6)] for i in range(6)]
    assert found["kinds"]["encoder"]["attentions"] == ["encoder.0.attention", "encoder.1.attention"]
    assert 0 < found["gates"]["batch_context.source_context.gate"]["openness"] < 1


def test_bad_input(world: World, tmp_path: Path) -> None:
    source, target, documents = parallel(tmp_path)
    out = tmp_path / "out"

    short = tmp_path / "short.de"
    short.write_text("\n".join(documents[0].target[:-1] or ["x", "y"]) + "\n")
    must_refuse("short.de", "attention", world.run, source, "--target", short, "--out", out)
    assert not out.exists()
    out.write_text("a file")
    must_refuse("no folder can be made", "attention", world.run, source, "--target", target, "--out", out)
