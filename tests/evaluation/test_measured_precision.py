"""Measurements of a run for comparisons: those in another precision are others."""

from functools import partial
from pathlib import Path

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite, write_suite
from cotext.data.tokenizer import load_tokenizer
from cotext.evaluation.requests import ComparisonRequest
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
    quiet = partial(Meter, total=0, live=None, shown=False)
    for count, precision in enumerate(("float32", "int8", "bfloat16"), start=1):
        request = ComparisonRequest(
            runs=[run],
            out=tmp_path / "page.html",
            decode={"precision": precision},
            device="cpu",
            use=False,
            controls=False,
        )
        settings = MeasurementSettings(request, None, {path: suite}, quiet)
        found = measure_run(run, "a", settings)
        assert list(found.decisions) == ["articles"]
        assert len(list((run / "compared").glob("*.json"))) == count
