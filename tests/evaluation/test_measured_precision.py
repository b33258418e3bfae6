"""Measurements of a run for comparisons: those in another precision are others."""

from pathlib import Path

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite, write_suite
from cotext.data.tokenizer import load_tokenizer
from cotext.evaluation.studies.compare.measured import MeasurementSettings, measure_run
from cotext.runtime.progress import Meter
from tests.tiny_runs import prepare_toy, run_config, write_run


def test_decisions_of_a_suite_are_kept_for_each_precision(tmp_path: Path) -> None:
    data = prepare_toy(tmp_path / "data")
    run = write_run(tmp_path / "run", run_config(), load_tokenizer(data / "tokenizer"))
    candidates = ("die katze",), ("der hund",)
    example = ContrastiveExample("0", "article", 0, ("the cat",), candidates, 0, document="d")
    suite, path = ContrastiveSuite("articles", "en", "de", (example,)), tmp_path / "suite.json"
    write_suite(path, suite)
    for count, precision in enumerate(("float32", "int8", "bfloat16"), start=1):
        decode = {"precision": precision}
        settings = MeasurementSettings(
            *(None, {path: suite}, decode, "cpu"),
            use=False,
            controls=False,
            new_meter=lambda what: Meter(what, 0, None, shown=False),
        )
        found = measure_run(run, "a", settings)
        assert list(found.decisions) == ["articles"]
        assert len(list((run / "compared").glob("*.json"))) == count
