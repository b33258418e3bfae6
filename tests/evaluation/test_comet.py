"""COMET in another environment: a stand-in for it, and, where one is at hand, COMET itself."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cotext.data.documents import Document
from cotext.data.formats import write_documents
from cotext.evaluation.metrics.comet import (
    PYTHON_VARIABLE,
    Comet,
    find_python,
    looks_like_path,
    measure_comet,
)
from cotext.evaluation.metrics.comet_runner import blocks, build_windows
from cotext.evaluation.metrics.interface import Texts
from tests.command_line import succeed
from tests.loops import loop_over
from tests.refusals import must_raise

BUILDER = Path(__file__).with_name("comet_checkpoint.py")

# A library of the same surface: 20 tokens at most, a score that tells what was read.
LIBRARY = """
import json, pathlib, sys


class Tokenizer:
    sep_token = "</s>"

    def __call__(self, text):
        return {"input_ids": [0, *text.split(), 2]}


class Encoder:
    tokenizer = Tokenizer()
    max_positions = 22
    size_separator = 2


class Model:
    encoder = Encoder()

    def __init__(self, hparams):
        self.hparams = hparams
        self.context = False

    def requires_references(self):
        return self.hparams["class_identifier"] != "referenceless_regression_metric"

    def enable_context(self):
        self.context = True

    def read(self, text):
        words = text.split()[:18]
        if self.context and "</s>" in words:
            words = words[len(words) - words[::-1].index("</s>"):]
        return words

    def predict(self, samples, batch_size, gpus, progress_bar, num_workers):
        print("noise on standard output")
        assert (batch_size, gpus, progress_bar, num_workers) == (16, 0, False, 0)
        if self.hparams.get("breaks"):
            sys.exit("out of memory, say")
        if self.hparams.get("nan"):
            return {"scores": [float("nan")] * len(samples)}
        scores = []
        for sample in samples:
            ours = self.read(sample["mt"])
            theirs = self.read(sample.get("ref", sample["src"]))
            scores.append(sum(w in theirs for w in ours) / max(len(ours), 1))
        return {"scores": scores}


def download_model(name):
    try:
        raise ConnectionError("no route to the hub")
    except ConnectionError:
        raise KeyError(f"Model '{name}' not supported by COMET.")


def load_from_checkpoint(path, local_files_only=False):
    hparams = json.loads((pathlib.Path(path).parents[1] / "hparams.yaml").read_text())
    if hparams.get("encoder") == "absent":
        raise OSError("no file named tokenizer.json")
    return Model(hparams)
"""
TORCH = """
__version__ = "0"
class cuda:
    is_available = staticmethod(lambda: False)
"""
HUB = """
def snapshot_download(repo_id, local_files_only):
    raise FileNotFoundError(repo_id)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that finds the stand-in, as that of another environment finds COMET."""
    folder = tmp_path_factory.mktemp("environment")
    for name, text in (("comet", LIBRARY), ("torch", TORCH), ("huggingface_hub", HUB)):
        (folder / f"{name}.py").write_text(text)
    (folder / "unbabel_comet-2.9.9.dist-info").mkdir()
    metadata = "Metadata-Version: 2.1\nName: unbabel-comet\nVersion: 2.9.9\n"
    (folder / "unbabel_comet-2.9.9.dist-info" / "METADATA").write_text(metadata)
    interpreter(
        folder / "bin" / "python",
        "import os, runpy, sys\n"
        "assert sys.argv[1] == '-I', sys.argv\n"
        f"sys.path[0] = {str(folder)!r}\n"
        "sys.argv = sys.argv[2:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n",
    )
    return folder / "bin" / "python"


def interpreter(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable} -S\n{text}")
    path.chmod(0o755)
    return path


def checkpoint(folder: Path, **settings: object) -> Path:
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "model.ckpt").write_bytes(b"weights")
    hparams = {"class_identifier": "regression_metric", "pool": "avg", **settings}
    (folder / "hparams.yaml").write_text(json.dumps(hparams))
    return folder


SOURCE = [Document("one", ("a b", "c", "d e f")), Document("two", ("g h", "i"))]
REFERENCE = [Document("one", ("A B", "C", "D E F")), Document("two", ("G H", "I"))]
OURS = [Document("one", ("A X", "C", "D E X")), Document("two", ("G", ""))]


def window_texts(before: int, **document: list[str]) -> list[tuple[str, ...]]:
    windows = build_windows(document, before, "|", lambda texts: True)
    return [tuple(window.texts.values()) for window in windows]


def test_windows_put_earlier_sentences_first_those_of_the_reference_before_the_hypothesis() -> None:
    sides = {"source": ["a", "b", "c", "d"], "hypothesis": ["W", "X", "Y", "Z"]}
    assert window_texts(2, **sides, reference=["A", "B", "C", "D"]) == [
        ("a", "W", "A"),
        ("a | b", "A | X", "A | B"),
        ("a | b | c", "A | B | Y", "A | B | C"),
        ("b | c | d", "B | C | Z", "B | C | D"),
    ]
    # Without a reference the hypothesis has its own context.
    assert window_texts(1, **sides)[:2] == [("a", "W"), ("a | b", "W | X")]


def test_a_window_shrinks_on_all_sides_until_the_longest_fits() -> None:
    document = {
        "source": ["a a", "b", "c", "d d d d d"],
        "hypothesis": ["A", "B", "C C C", "D"],
        "reference": ["A", "B", "C", "D"],
    }

    def fits(texts: dict[str, str]) -> bool:
        return all(len(text.replace("|", "").split()) <= 4 for text in texts.values())

    windows = build_windows(document, 2, "|", fits)
    assert [window.shrunk for window in windows] == [False, False, True, True]
    assert [window.cut for window in windows] == [False, False, False, True]
    assert windows[2].texts == {"src": "b | c", "mt": "B | C C C", "ref": "B | C"}
    # What does not fit even alone is handed over whole: the encoder cuts it, and we count it.
    assert windows[3].texts["src"] == "d d d d d"


def test_separators_in_texts_and_blocks_of_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    document = {"source": ["a | b", "c"], "hypothesis": ["A", "B | C"], "reference": ["A", "B"]}
    assert window_texts(1, **document)[1] == ("a   b | c", "A | B   C", "A | B")
    assert window_texts(0, **document)[1] == ("c", "B | C", "B")
    monkeypatch.setattr("cotext.evaluation.metrics.comet_runner.BLOCK_SENTENCES", 3)
    documents = [
        {"system": system, "source": ["x"] * length} for system in ("a", "b") for length in (2, 1, 0, 5)
    ]
    assert list(blocks(documents)) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert list(blocks([])) == []


def test_scores_are_means_over_sentences(python: Path, tmp_path: Path) -> None:
    comet = Comet(str(checkpoint(tmp_path / "tiny")), python)
    seen: list[tuple[int, int]] = []
    systems = {"ours": OURS, "same": REFERENCE}
    measured = measure_comet(comet, Texts(systems, [REFERENCE], SOURCE), lambda *now: seen.append(now))
    [ours] = measured["ours"]
    # Words found: 1/2, 1, 2/3; 1, 0.
    assert ours.score.value == pytest.approx(100 * (1 / 2 + 1 + 2 / 3 + 1 + 0) / 5)
    assert (ours.score.documents, ours.score.sentences, ours.score.empty_hypotheses) == (2, 5, 1)
    assert ours.score.signature.startswith("protocol:comet|unit:sentence|model:tiny|sha256:")
    assert "|refs:1|context:0|max-tokens:20|cut:0|scale:100|comet:2.9.9|version:" in ours.score.signature
    assert seen[-1] == (10, 10)
    documents, unit = ours.statistics.by("document")
    assert unit == "document"
    assert documents == pytest.approx(np.array([[1 / 2 + 1 + 2 / 3, 3], [1, 2]]))


def test_document_comet_beside_comet(python: Path, tmp_path: Path) -> None:
    comet = Comet(str(checkpoint(tmp_path / "tiny") / "checkpoints" / "model.ckpt"), python, 2)
    long = [Document("one", ("a " * 10, "b " * 8, "c " * 12, "d " * 19))]
    plain, context = measure_comet(comet, Texts({"ours": long}, [long, long], long))["ours"]
    # The third has 8 + 1 + 12 tokens and two of frame with one sentence before it: none fits in 20.
    assert "|model:tiny|" in context.score.signature
    assert "protocol:doc-comet|" in context.score.signature
    assert "|refs:first-of-2|context:2-reference|max-tokens:20|shrunk:3|cut:1|" in context.score.signature
    assert "|context:0|max-tokens:20|cut:1|" in plain.score.signature
    assert context.score.components == {"shrunk_windows": 3.0, "cut_sentences": 1.0}
    # Only the current sentence is compared: with context that fits, too.
    short = [Document("one", ("a b", "c d", "e f"))]
    wrong = [Document("one", ("x x", "c d", "x f"))]
    plain, context = measure_comet(comet, Texts({"wrong": wrong}, [short], short))["wrong"]
    assert plain.score.value == context.score.value == pytest.approx(50)
    assert "|shrunk:0|cut:0|" in context.score.signature


def test_a_model_without_references(python: Path, tmp_path: Path) -> None:
    model = checkpoint(tmp_path / "qe", class_identifier="referenceless_regression_metric")
    comet = Comet(str(model), python, 1)
    plain, context = measure_comet(comet, Texts({"ours": SOURCE}, [REFERENCE], SOURCE))["ours"]
    assert plain.score.value == pytest.approx(100)
    assert "|refs:none|context:0|" in plain.score.signature
    assert "|refs:none|context:1-hypothesis|" in context.score.signature


def test_a_unified_model_reads_all_sides_as_one(python: Path, tmp_path: Path) -> None:
    kind = {"class_identifier": "unified_metric", "input_segments": ["mt", "src", "ref"]}
    model = checkpoint(tmp_path / "unified", **kind)
    # 15 words and 1 + 3 * 2 special tokens fill the 22 positions.
    comet, source, reference = Comet(str(model), python), [one("b " * 5)], [[one("c " * 5)]]
    for words, sentences in ((5, 0.0), (6, 1.0)):
        [measured] = measure_comet(comet, Texts({"": [one("a " * words)]}, reference, source))[""]
        assert measured.score.components["cut_sentences"] == sentences
    message = "a unified_metric model cannot score only the current sentence"
    must_raise(message, measure_comet, Comet(str(model), python, 2), Texts({"": OURS}, [REFERENCE], SOURCE))


def one(text: str) -> Document:
    return Document("one", (text.strip(),))


def test_missing_weights_and_folders_that_are_no_models(python: Path, tmp_path: Path) -> None:
    (checkpoint(tmp_path / "half") / "hparams.yaml").unlink()
    for model, message in (
        ("Unbabel/wmt22-comet-da", r"no weights at hand.*no route to the hub.*give its path"),
        (str(tmp_path), "0 files checkpoints"),
        (str(tmp_path / "half"), r"hparams.yaml is missing from .*half"),
    ):
        must_raise(message, measure_comet, Comet(model, python), Texts({"": OURS}, [REFERENCE], SOURCE))


@loop_over(
    ("settings", "words"),
    [
        ({"encoder": "absent"}, "not the tokenizer and configuration of its encoder.*HF_HOME"),
        ({"breaks": True}, r"ended with 1; what it wrote last:\n(.*\n)*out of memory, say"),
        ({"nan": True}, "returns scores that are not numbers"),
        ({"pool": "cls"}, "pools by 'cls'"),
    ],
)
def test_models_that_fail(python: Path, tmp_path: Path, settings: dict[str, object], words: str) -> None:
    comet = Comet(str(checkpoint(tmp_path / "tiny", **settings)), python, 1)
    must_raise(words, measure_comet, comet, Texts({"": OURS}, [REFERENCE], SOURCE))


@loop_over(
    ("text", "words"),
    [
        ("print('usage: python')", "does not answer as expected: b'usage: python"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed by signal 9"),
        (
            "import runpy, sys; sys.path[0] = '/nowhere'; sys.argv = sys.argv[2:]\n"
            "runpy.run_path(sys.argv[0], run_name='__main__')",
            "cannot be imported .*make an environment: python -m venv",
        ),
        ("", "ended with 0"),
    ],
)
def test_interpreters_that_cannot(tmp_path: Path, text: str, words: str) -> None:
    comet = Comet(str(checkpoint(tmp_path / "tiny")), interpreter(tmp_path / "bin" / "python", text))
    must_raise(words, measure_comet, comet, Texts({"": OURS}, [REFERENCE], SOURCE))


def test_the_other_process_ends_with_us(tmp_path: Path) -> None:
    text = (
        "import os, sys, time\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        'sys.stdout.write(\'{"uses_reference": true}\\n{"context": 0, "document": 0, "scores": [1]}\\n\')\n'
        "sys.stdout.flush()\n"
        "time.sleep(60)\n"
    )
    comet = Comet(str(checkpoint(tmp_path / "tiny")), interpreter(tmp_path / "bin" / "python", text))

    def interrupted(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_comet(comet, Texts({"": OURS}, [REFERENCE], SOURCE), interrupted)
    if (tmp_path / "pid").exists():  # it may have been ended even earlier
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), 0)


def test_where_comet_is_and_what_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PYTHON_VARIABLE, raising=False)
    must_raise(r"pip install unbabel-comet .* --comet-python", find_python, None)
    real = interpreter(tmp_path / "environment" / "bin" / "python", "")
    assert find_python(tmp_path / "environment") == real == find_python(real)
    monkeypatch.setenv(PYTHON_VARIABLE, str(tmp_path / "environment"))
    assert find_python(None) == real
    must_raise("absent: no such interpreter", find_python, tmp_path / "absent")
    assert all(map(looks_like_path, ("./a", "/a", "~/a", "a/b/c", "model.ckpt", "../a")))
    assert not any(map(looks_like_path, ("wmt20-comet-da", "Unbabel/wmt22-comet-da")))
    must_raise(r"absent\.ckpt: no such COMET model", Comet, "absent.ckpt", Path("python"))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """source, reference, ours and same."""
    named = {"source": SOURCE, "reference": REFERENCE, "ours": OURS, "same": REFERENCE}
    for name, documents in named.items():
        write_documents(tmp_path / name, documents, "jsonl")
    return tmp_path


def command(files: Path, *more: str | Path) -> list[str | Path]:
    given: list[str | Path] = ["evaluate", "--protocol", "d-bleu", "--reference", files / "reference"]
    return [*given, "--hypothesis", files / "ours", *more]


def test_evaluate(python: Path, files: Path) -> None:
    model = checkpoint(files / "tiny")
    options = ["--source", files / "source", "--comet", model, "--comet-python", python]
    both = [*options, "--comet-context", "2", "--hypothesis", files / "same"]
    table = succeed(*command(files, *both, "--paired", "--samples", "100")).out.splitlines()
    assert table[0].split() == ["d-BLEU", "COMET", "doc-COMET", "empty"]
    assert table[2].split() == ["same", "100.00", "100.00", "100.00", "0"]
    assert any(line.split()[:5] == ["doc-COMET", "same", "-", "ours", "+36.67"] for line in table)
    report = json.loads(succeed(*command(files, *both, "--json")).out)
    scores = report["systems"]["ours"]["scores"]
    assert list(scores) == ["d-bleu", "comet", "doc-comet"]
    assert scores["doc-comet"]["value"] == pytest.approx(63.3333, abs=1e-4)


@pytest.fixture(scope="module")
def real_python() -> Path:
    """The interpreter of an environment with COMET; tests that ask for it skip where none is named."""
    if PYTHON_VARIABLE not in os.environ:
        pytest.skip(f"{PYTHON_VARIABLE} names no environment with COMET")
    return find_python(None)


@pytest.mark.outside
def test_real_comet_reads_context(real_python: Path, tmp_path: Path) -> None:
    def document(*sentences: str) -> Document:
        return Document("one", tuple(" ".join(f"w{n}" for n in s.split()) for s in sentences))

    source = document("1 2 3", "4 5 6 7 8", "9 1", "2 3 4 5 6 7 8 9")
    reference = document("11 12 13", "14 15 16", "19 11 12 13 14 15 16", "12 13 14 15 16 17 18")
    ours = document("11 22 13", "14", "19 21 12 13 24", "12 13 24 25 16 17 18")
    subprocess.run([real_python, "-I", BUILDER, tmp_path], check=True, capture_output=True)
    comet, given = Comet(str(tmp_path), real_python, 2), Texts({"": [ours]}, [[reference]], [source])
    plain, context = measure_comet(comet, given)[""]
    first, *rest = abs(plain.statistics.counts - context.statistics.counts)[:, 0]
    assert first < 1e-5 < 1e-4 < min(rest)  # the first sentence has no context
    # With frame and separators the reference of the fourth has 21 tokens after two sentences, 20 fit.
    assert "|max-tokens:20|shrunk:1|cut:0|" in context.score.signature
    (tmp_path / "encoder").rename(tmp_path / "moved")
    must_raise("not the tokenizer and configuration of its encoder", measure_comet, comet, given)
