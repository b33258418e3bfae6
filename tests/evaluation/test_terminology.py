"""Term success and consistency, counted by hand."""

from pathlib import Path

import pytest

from cotext.data.documents import Document
from cotext.evaluation.metrics.terminology import measure_terms
from tests.command_line import cotext
from tests.refusals import must_raise

TERMS = [("window", ["Fenster"]), ("file", ["Datei", "Akte"]), ("cell", ["Zelle"])]
SOURCE = [
    Document("a", ("A Window and a window.", "The file.", "A file.", "This file")),
    Document("b", ("One cell.", "No term.")),
]
REFERENCE = [
    Document("a", ("Ein Fenster und ein Fenster.", "Die Datei.", "Eine Datei.", "Diese Datei")),
    # "cell" is translated otherwise here, and so it does not count.
    Document("b", ("Ein Kästchen.", "Kein Begriff.")),
]


def test_success_and_consistency() -> None:
    output = [
        Document("a", ("Ein fenster.", "Die Akte.", "Eine Datei.", "Diese Dateien, diese Datei")),
        Document("b", ("Zelle.", "Kein Begriff.")),
    ]
    [success, consistency] = measure_terms(TERMS, {"x": output}, SOURCE, REFERENCE)["x"]
    # window: 1 of 2; file: 4 for 3, at most 1.
    assert success.score.value == pytest.approx(100 * (0.5 + 1.0) / 2)
    # file, in three sentences: Akte, Datei, Datei.
    assert consistency.score.value == pytest.approx(100 * 2 / 3)
    output = [Document("a", ("", "Die Datei.", "Das Ding.", "")), Document("b", ("", ""))]
    [success, consistency] = measure_terms(TERMS, {"x": output}, SOURCE, REFERENCE)["x"]
    assert success.score.value == pytest.approx(100 * (0 + 1 / 3) / 2)
    assert consistency.score.value == pytest.approx(100 / 3)
    must_raise("no term of the list", measure_terms, [("door", ["Tür"])], {"x": output}, SOURCE, REFERENCE)


def test_evaluate_takes_a_glossary(tmp_path: Path) -> None:
    (tmp_path / "s.en").write_text("A window.\nThis window.\n", encoding="utf-8")
    (tmp_path / "r.de").write_text("Ein Fenster.\nDies Fenster.\n", encoding="utf-8")
    (tmp_path / "h.de").write_text("Ein Fenster.\nDies Loch.\n", encoding="utf-8")
    (tmp_path / "t.tsv").write_text("window\tFenster\n", encoding="utf-8")
    files = [f"--{name}={tmp_path / file}" for name, file in (("hypothesis", "h.de"), ("reference", "r.de"))]
    assert cotext("evaluate", *files, f"--terms={tmp_path / 't.tsv'}").code == 2
    result = cotext("evaluate", *files, f"--terms={tmp_path / 't.tsv'}", f"--source={tmp_path / 's.en'}")
    assert "term success       50.00" in result.out
    assert "term consistency   50.00" in result.out
