"""The experiments of the study in miniature: all commands that they make, on corpora of a few documents.

Rows of a few updates of a model of 16 dimensions. What is asked of a device for half an hour is asked here
first.
"""

import json
import lzma
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.experiments import data as experiment_data
from benchmarks.experiments.__main__ import main as experiments
from benchmarks.experiments.measures import Step, figures, steps
from benchmarks.experiments.plan import Experiment, read_experiment
from benchmarks.experiments.runner import Runner
from benchmarks.experiments.tables import render
from tests.benchmarks.here import run_here

EXPERIMENTS = Path(__file__).resolve().parents[2] / "benchmarks" / "experiments"
TINY = [
    "size=tiny", "minutes=0", "most=2", "teacher_updates=2", "tokens=300", "every=1", "teacher_every=1",
    "warmup=1", "teacher_warmup=1", "documents=3", "precision=fp32",
    "model.dimension=16", "model.feed_forward=32", "model.heads=2", "model.encoder_layers=2",
    "model.decoder_layers=2", "train.validate_bleu=false", "train.validate_sentences=4", "train.average=1",
    "decode.max_ratio=1.0", "decode.max_extra=1", "decode.beam=2",
]  # fmt: skip
SMALL = ["prefixes=[a]", "teacher_minutes=0", "vocabulary=60", "cxmi=2"]
ENDE = [*SMALL, "distilled=9", "ted=2", "contrapro=3", "written=2"]
NOUNS = {
    "lamp": ("Lampe", "die"),
    "table": ("Tisch", "der"),
    "book": ("Buch", "das"),
    "file": ("Datei", "die"),
}
# Of the others, which differ from these in a setting or learn from what the teacher makes, in the slow test.
TRAINED = ["s4to4-shift-cd", "mr-doc2doc"]
PRONOUNS = {"die": "Sie", "der": "Er", "das": "Es"}


def documents(count: int, seed: int) -> list[list[tuple[str, str]]]:
    """Documents of four to six sentences with pronouns, forms of address and terms in two renderings."""
    generator = random.Random(seed)
    found = []
    for _ in range(count):
        noun = generator.choice(sorted(NOUNS))
        german, article = NOUNS[noun]
        word = generator.choice(["Kennwort", "Passwort"])
        sentences = [
            (f"The {noun} is {generator.randint(1, 9)}.", f"Hier ist {article} {german} zu sehen."),
            ("It is old.", f"{PRONOUNS[article]} bleibt alt."),
            ("This is your password.", f"Hier ist das {word} von Ihnen."),
            ("Your password helps.", f"Nun hilft Ihr {word}."),
            ("The end.", "Das Ende."),
        ]
        found.append(sentences[: generator.randint(4, 5)])
    return found


def write_corpora(folder: Path) -> None:
    """All that the experiments read, in the places where they look for it."""
    corpus = folder / "mix-ende"
    corpus.mkdir(parents=True)
    for seed, (split, count) in enumerate({"train": 90, "dev": 3, "test": 4}.items()):
        texts = documents(count, seed)
        for side, language in enumerate(("en", "de")):
            lines = "\n\n".join("\n".join(pair[side] for pair in document) for document in texts)
            (corpus / f"{split}.{language}.xz").write_bytes(lzma.compress(f"{lines}\n".encode()))
        ids = "".join(f"a{number}:x\t{len(document)}\n" for number, document in enumerate(texts))
        (corpus / f"{split}.docids.xz").write_bytes(lzma.compress(ids.encode()))
    (folder / "maruf" / "ted").mkdir(parents=True)
    for split in ("dev", "test"):
        for side, language in enumerate(("en", "de")):
            text = "".join("<d>\n" + "\n".join(p[side] for p in d) + "\n" for d in documents(3, 7))
            (folder / "maruf" / "ted" / f"{split}.{language}").write_text(text)
    (folder / "contrapro").mkdir()
    lines = [
        json.dumps({"src_context": f"The lamp {n}.", "src": f"It is old {n}.",
                    "ref_context": f"Die Lampe {n}.",
                    "ref": "Sie ist alt.", "contrastive": ["Er ist alt.", "Es ist alt."]})
        for n in range(5)
    ]  # fmt: skip
    (folder / "contrapro" / "contrapro-ctx1.jsonl.xz").write_bytes(lzma.compress("\n".join(lines).encode()))


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpora")
    write_corpora(folder)
    return folder


def take(step: Step) -> None:
    done = run_here(step.arguments)
    assert done.code == 0, done.err
    if step.printed is not None:
        step.printed.write_text(done.out)


class Miniature:
    """An experiment in a folder, its commands run in this process."""

    def __init__(self, name: str, folder: Path, changes: Sequence[str]) -> None:
        self.experiment: Experiment = read_experiment(EXPERIMENTS / f"{name}.yaml", changes)
        self.runner = Runner(self.experiment, folder, "cpu", print)

    def run(self, rows: Sequence[str], measured: Sequence[str]) -> dict[str, dict[str, dict[str, float]]]:
        """Figures by row and measure; of the rows named in `measured` alone everything is measured."""
        found: dict[str, dict[str, dict[str, float]]] = {}
        made: set[str] = set()
        for row, seed in self.experiment.in_order(rows):
            self._make(self.experiment.data_of(row), made)
            training = self.runner._training_command(
                row,
                seed,
                self.runner.run_folder(row, seed),
                self.runner.data_folder(self.experiment.data_of(row)),
            )
            take(Step(training))
            found[row] = {}
            for key, measure in self.experiment.measures_of(row).items():
                if row not in measured and key != "training":
                    continue
                place = self.runner._place(key, row, seed)
                place.out.parent.mkdir(parents=True, exist_ok=True)
                for step in steps(measure, place, "cpu"):
                    take(step)
                found[row][key] = figures(measure, place)
        return found

    def _make(self, name: str, made: set[str]) -> None:
        if name in made:
            return
        made.add(name)
        data = self.experiment.data[name]
        other = None
        if data.other is not None:
            self._make(data.other, made)
            other = self.runner.data_folder(data.other)
        for command in experiment_data.commands(
            data, self.runner.data_folder(name), self.runner.run_folder("teacher", 1), other
        ):
            take(Step(tuple(command)))


def test_the_study_measures_all_that_it_tells(corpora: Path, tmp_path: Path) -> None:
    changes = [f"corpora={corpora}", *TINY, *ENDE]
    study = Miniature("cpu-study", tmp_path, changes)
    found = study.run(TRAINED, measured=["s4to4-shift-cd"])
    whole = found["s4to4-shift-cd"]
    assert {"s-bleu", "d-bleu", "chrf"} <= whole["own"].keys()
    assert {"s-bleu", "d-bleu", "chrf"} <= whole["ted"].keys()
    assert {"mix-pronoun", "mix-register", "mix-term", "talks-pronoun"} <= whole["real"].keys()
    assert "contrapro-ctx1-part" in whole["contrapro"]
    assert 0 <= whole["generated"]["all.right"] <= 100
    assert whole["written"]["own-pronoun.choices"] >= 3
    assert {"true.per_token", "shuffled.per_token", "random.per_token"} <= whole["cxmi"].keys()
    assert whole["speed"]["settings.one.1.median"] > 0
    entries = {
        row: {"1": {"measures": {k: {"figures": f} for k, f in each.items()}}} for row, each in found.items()
    }
    page = render(study.experiment, {"rows": entries, "data": {}, "versions": {}})
    told = next(line for line in page.splitlines() if line.startswith("| s4to4-shift-cd |"))
    assert "|  |" not in told  # every column of the first table has its figure


def blocks() -> list[str]:
    """The commands of blocks on a device, as docs/results/not-measured.md has them."""
    text = (EXPERIMENTS.parents[1] / "docs" / "results" / "not-measured.md").read_text()
    command = "benchmarks/experiments/gpu-study.yaml --rows"
    return [line for line in text.splitlines() if line.startswith(command)]


def test_blocks_name_all_rows_of_the_table_once() -> None:
    experiment = read_experiment(EXPERIMENTS / "gpu-study.yaml")
    named = [row for block in blocks() for row in block.split("--rows ")[1].split()]
    assert sorted(named) == sorted(experiment.rows.keys() - {"teacher"})
    cpu = read_experiment(EXPERIMENTS / "cpu-study.yaml")
    assert cpu.rows.keys() - {"moved"} == experiment.rows.keys()  # there a start of its own sees all places
    assert cpu.measures.keys() == experiment.measures.keys()
    assert cpu.variables.keys() == experiment.variables.keys()


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks())
def test_blocks_of_a_device_in_miniature(block: str, corpora: Path, tmp_path: Path) -> None:
    """Each by the driver itself, in processes of its own, and what comes back from it."""
    rows = block.split("--rows ")[1].split()
    changes = [f"corpora={corpora}", *TINY, *ENDE]
    arguments = [str(EXPERIMENTS / "gpu-study.yaml"), "--out", str(tmp_path / "out"), "--rows", *rows]
    assert experiments([*arguments, "--set", *changes]) == 0
    assert set(json.loads((tmp_path / "out" / "results.json").read_text())["rows"]) == {"teacher", *rows}
