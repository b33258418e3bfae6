import json
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from cotext.runtime.integrity import sealed
from cotext.training.trainer import MetricsLog


def points(folder: Path, tag: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(folder)).Reload()
    return [(e.step, round(e.value, 4)) for e in events.Scalars(tag)]


def test_lines_and_curves_hold_the_same_figures(tmp_path: Path) -> None:
    journal = MetricsLog(tmp_path / "metrics.jsonl")
    journal.write("train", {"update": 1.0, "loss": 3.5})
    journal.write("validation", {"update": 1.0, "loss": 4.0})
    journal.write("train", {"update": 2.0, "loss": 3.25})
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["kind"], line["update"], line["loss"]) for line in lines] == [
        ("train", 1.0, 3.5),
        ("validation", 1.0, 4.0),
        ("train", 2.0, 3.25),
    ]
    assert points(tmp_path / "tensorboard", "train/loss") == [(1, 3.5), (2, 3.25)]
    assert points(tmp_path / "tensorboard", "validation/loss") == [(1, 4.0)]


def test_what_came_after_the_checkpoint_is_forgotten_by_both(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    first = MetricsLog(path)
    for update in (1.0, 2.0, 3.0):
        first.write("train", {"update": update, "loss": update})
    with path.open("a") as file:
        file.write('{"kind": "train", "upda')  # cut short by the interruption
    second = MetricsLog(path)
    assert second.forget_after(2) == 0
    second.write("train", {"update": 3.0, "loss": 30.0})
    assert [json.loads(line)["loss"] for line in path.read_text().splitlines()] == [1.0, 2.0, 30.0]
    assert points(tmp_path / "tensorboard", "train/loss") == [(1, 1.0), (2, 2.0), (3, 30.0)]


def test_damaged_lines_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    journal = MetricsLog(path)
    for update in (1.0, 2.0, 3.0, 4.0):
        journal.write("train", {"update": update, "loss": update})
    lines = path.read_text().splitlines()
    lines[1] = lines[1].replace("2.0", "2.5")
    lines[2] = sealed({"kind": "train", "loss": 3.0})  # whole, and of something else
    path.write_text("".join(f"{line}\n" for line in lines))
    assert MetricsLog(path).forget_after(4) == 2
    assert path.read_text().splitlines() == [lines[0], lines[3]]
