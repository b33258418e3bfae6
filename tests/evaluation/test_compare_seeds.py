"""`cotext compare` of systems with several seeds: what is called different, refused, and shown."""

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from cotext.data.contrastive_suites import ContrastiveSuite
from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import write_documents, write_parallel
from cotext.evaluation.studies.compare.comparison import RunComparison, compare_runs
from cotext.evaluation.studies.compare.job import run_folders
from cotext.evaluation.studies.compare.measured import EvaluationSet, MeasuredRun, MeasuredSystem
from cotext.evaluation.studies.compare.report import as_dict, as_text, render_comparison
from cotext.evaluation.studies.compare.verdict import uses_context
from cotext.evaluation.studies.contrastive.decisions import Decisions
from cotext.models.checkpoint import load_weights, save_model
from cotext.models.run_folder import describe_file
from cotext.runtime.files import sealed, unsealed
from tests.command_line import World, must_refuse, succeed, train_arguments
from tests.deciding import UNBALANCED, Rule, decided, guesser, reader
from tests.evaluation.test_compare import DRAWS, SUITE, arguments_of, of_test_set, run, said, suite
from tests.evaluation.test_leaderboard import garbled
from tests.loops import loop_over
from tests.refusals import must_raise

MANY = suite("contrapro-ctx1", {1: 400})
PLAIN = run("", SUITE, dict.fromkeys((0, 1, 2, 5), 1), before=1)


def of_seeds(title: str, runs: Sequence[MeasuredRun]) -> MeasuredSystem:
    seeds = tuple(range(1, len(runs) + 1))
    named = tuple(replace(r, title=f"{title}, seed {n}") for n, r in zip(seeds, runs, strict=True))
    return MeasuredSystem(title, named, seeds if len(runs) > 1 else ())


def deciding(made: ContrastiveSuite, shares: Sequence[float], seed: int) -> list[MeasuredRun]:
    """Runs that decide such shares of the examples right, each others."""
    found = []
    for number, share in enumerate(shares):
        random = Random(f"{seed} {number}")
        right = {e.id: random.random() < share for e in made.examples}
        decisions = Decisions(made.name, f"suite:{made.name}|tie:wrong|score:sum", right)
        found.append(replace(PLAIN, decisions={made.name: decisions}))
    return found


def compared(systems: Sequence[MeasuredSystem], made: ContrastiveSuite = MANY) -> RunComparison:
    return compare_runs(systems, None, {made.name: made}, protocols=["s-bleu"], resampling=DRAWS)


# A system whose seeds spread by eight points.
RESTLESS = (0.5, 0.58, 0.66, 0.55, 0.62, 0.7)


def test_a_system_is_not_called_different_from_itself_under_other_seeds() -> None:
    first = of_seeds("a", deciding(MANY, RESTLESS[:3], 1))
    found = compared([first, of_seeds("b", deciding(MANY, RESTLESS[3:], 2))])
    (test,) = found.contrastive_tests
    # Four hundred documents alone would have it so.
    assert test.test.p_documents < 0.05 < test.test.over_seeds.p == test.test.p_corrected
    assert not test.test.significant
    words = said(found)
    assert "0 of 1 differences in contrastive accuracy from a are significant" in words
    assert "<b>" not in render_comparison(found).partition("<h2>Seeds</h2>")[2].partition("<h2>")[0]
    # Single runs of it are, and the page says what that leaves out.
    alone = compared([of_seeds("a", deciding(MANY, (0.5,), 1)), of_seeds("b", deciding(MANY, (0.7,), 2))])
    assert alone.contrastive_tests[0].test.significant
    assert "the tests do not cover the variance between seeds" in " ".join(alone.notes)
    mixed = compared([first, of_seeds("b", deciding(MANY, (0.7,), 2))])
    assert "b is a single training run: compared with a system with several seeds" in str(mixed.notes)


def test_a_planted_difference_is_found() -> None:
    shares = (("a", (0.50, 0.52, 0.51)), ("b", (0.70, 0.71, 0.69)))
    found = compared([of_seeds(name, deciding(MANY, each, n)) for n, (name, each) in enumerate(shares, 1)])
    (test,) = found.contrastive_tests
    assert test.test.significant
    assert test.own - test.first == pytest.approx(test.test.difference)
    of_runs = [100 * sum(r.decisions[MANY.name].right.values()) / 400 for r in found.runs[0].runs]
    assert found.rows[0].cells[0].percent == pytest.approx(sum(of_runs) / 3)
    assert "from a are significant (test over documents and seeds, Holm correction for all 1)" in said(found)
    assert "test:flips+welch|unit:document" in as_text(found)
    figure = as_dict(found)["systems"][1]["over_seeds"][0]
    assert (figure["against_first"]["p_seeds"] < 0.05, len(figure["values"])) == (True, 3)
    json.dumps(as_dict(found), allow_nan=False)
    page = render_comparison(found).partition("<h2>Seeds</h2>")[2].partition("<h2>")[0]
    assert all(part in page for part in ("seeds 1,2,3", "<b>"))


def reading(rules: Sequence[Rule], signs: Sequence[int] = (1, 1, 1)) -> MeasuredSystem:
    runs = [
        replace(
            PLAIN,
            decisions={UNBALANCED.name: decided(UNBALANCED, rule, seed=n)},
            cxmi=of_test_set([sign * (1.0 + n) + m / 10 for m in range(8)], [0.0] * 8),
        )
        for n, (rule, sign) in enumerate(zip(rules, signs, strict=True))
    ]
    return of_seeds("a", runs)


def test_a_system_uses_context_where_each_of_its_seeds_does() -> None:
    found = compared([reading([reader, reader, reader])], UNBALANCED)
    assert uses_context(found, 0) is True
    assert "a: context use is significant for each of its 3 seeds." in said(found)
    (evidence,) = found.evidence[0]
    assert len(evidence.by_seed) == 3
    of_seeds_none = [each.conditions["none"] for each in evidence.by_seed]
    assert evidence.conditions["none"].own == pytest.approx(sum(each.own for each in of_seeds_none) / 3)
    assert evidence.conditions["none"].p == max(each.p for each in of_seeds_none)
    # Of the test set: the mean of 1, 2 and 3 nats and a little, over 10 tokens.
    assert found.gains[0][0].nats == pytest.approx(0.2 + 0.035)
    found = compared([reading([reader, guesser, reader])], UNBALANCED)
    assert uses_context(found, 0) is False
    unsure = "a has context, but its use is not significant for the system (only for 2 of its 3 seeds): "
    assert unsure in said(found)


def test_a_seed_that_is_significantly_worse_does_not_count_as_evidence() -> None:
    """Less often right than by chance, surely: no condition may hold by that."""

    def contrary(context: str, right: str, random: Random) -> tuple[str, float]:
        wrong = [form for form in ("er", "sie", "es") if form != right]
        return random.choice(wrong), -3.0 + random.gauss(0, 0.1)

    found = compared([reading([reader, contrary, reader], (1, -1, 1))], UNBALANCED)
    chance, true = found.evidence[0][0].conditions["chance"], found.gains[0][0]
    assert (chance.own > chance.other, chance.holds) == (True, False)
    assert (true.nats > 0, true.p, true.p_foreign) == (True, 1.0, 1.0)


def scored(folder: Path, rates: dict[str, Sequence[float]]) -> RunComparison:
    random = Random(5)
    words = [f"w{n}" for n in range(50)]
    references = [
        Document(f"d{n}", tuple(" ".join(random.choices(words, k=9)) for _ in range(4))) for n in range(60)
    ]
    pairs = [ParallelDocument(d.id, d.sentences, d.sentences) for d in references]
    write_parallel(folder / "test.jsonl", None, pairs, "jsonl")
    systems = []
    for name, of_seed in rates.items():
        runs = []
        for number, wrong in enumerate(of_seed):
            path = folder / f"{name}-{number}.jsonl"
            write_documents(path, garbled(references, wrong, Random(10 * len(name) + number)), "jsonl")
            runs.append(replace(PLAIN, hypothesis=path, decisions={}))
        systems.append(of_seeds(name, runs))
    test = EvaluationSet(folder / "test.jsonl", folder / "test.jsonl", "jsonl")
    return compare_runs(systems, test, {}, protocols=["s-bleu", "s-bleu-tok"], resampling=DRAWS)


def test_scores_are_means_with_tests_over_seeds(tmp_path: Path) -> None:
    same = scored(tmp_path, {"a": (0.10, 0.16, 0.22), "bb": (0.12, 0.18, 0.26)})
    own = same.quality.scores[1][0]
    assert own.score.value == pytest.approx(own.by_seed.mean)
    assert own.score.signature.endswith("|seeds:3-mean")
    test = own.against_first
    assert test.p_documents < 0.05 < test.p_corrected
    assert not test.significant
    assert [each[:13] for each in same.notes if "--words" in each] == ["s-BLEU (tok) "]
    words = said(same)
    assert "bb: no significant difference from a: s-BLEU" in words
    planted = scored(tmp_path, {"a": (0.30, 0.31, 0.32), "bb": (0.10, 0.11, 0.12)})
    assert "bb: significantly better than a: s-BLEU" in said(planted)
    assert "test:randomisation+welch|unit:document|n:60" in as_text(planted)


@pytest.fixture(scope="module")
def folders(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`one` has seeds 1 and 2, `other` 3 and 4 of the same recipe."""
    folder = tmp_path_factory.mktemp("seeds")
    for name, seeds in (("one", "1,2"), ("other", "3,4")):
        succeed(*train_arguments(world.folder, folder / name, "--seeds", seeds))
    return folder


def test_the_command(world: World, folders: Path, tmp_path: Path) -> None:
    both = arguments_of(world, [folders / "one", folders / "other"], tmp_path / "page.html")
    found = json.loads(succeed(*both, "--json").out)
    assert [each["seeds"] for each in found["systems"]] == [[1, 2], [3, 4]]
    against = found["systems"][1]["over_seeds"][0]["against_first"]
    assert against["p"] == max(against["p_documents"], against["p_seeds"])
    tests = [line for line in found["figures"] if line["kind"] in ("score", "contrastive test")]
    assert not any((line.get("p_corrected") or 1) < 0.05 for line in tests)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<h2>Seeds</h2>" in page
    assert page.count("one/seed-") == 2
    # A folder of seeds beside a single run; its own run beside it is refused.
    succeed("compare", world.run, folders / "one", *both[3:])
    must_refuse("given twice", "compare", folders / "one", folders / "one" / "seed-2", *both[3:])


@loop_over("kind", ["missing", "unfinished", "no model", "recipe", "data", "renamed"])
def test_seeds_that_make_no_system(world: World, folders: Path, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "one"
    shutil.copytree(folders / "one", folder, ignore=shutil.ignore_patterns("compared"))
    second, message = folder / "seed-2", ""
    if kind == "missing":
        shutil.rmtree(second)
        message = "the run of seed 2 is missing: the others were trained with --seeds 1,2"
    elif kind == "unfinished":
        shutil.rmtree(second / "checkpoints" / "00000006")
        (second / "metrics.jsonl").write_text("")
        message = f"{second}: training is not finished, it is at update 3"
    elif kind == "no model":
        shutil.rmtree(second / "checkpoints")
        (second / "model.safetensors").unlink()
        message = f"{second}: training is not finished, it has no checkpoint yet"
    elif kind == "renamed":
        second.rename(folder / "seed-7")
        (folder / "seed-1" / "seeds.json").unlink()
        (folder / "seed-7" / "seeds.json").unlink()
        message = f"{folder / 'seed-7'}: contains a run of seed 2"
    elif kind == "data":
        noted = unsealed((second / "data.json").read_text())
        (second / "data.json").write_text(sealed({**noted, "checksums": {"train.arrow": "0"}}))
        message = "trained on different data"
    else:
        path = second / "model.safetensors"
        described = describe_file(path)
        config = described.config.model_copy(update={"paper": "of another paper"})
        save_model(path, load_weights(path), config, described.fingerprint, described.updates)
        message = "seed-1 and seed-2 have different settings and cannot be averaged"
    must_raise(re.escape(message), run_folders, folder)
    suite = ("--suite", world.folder / "suite.json", "--out", tmp_path / "page.html")
    must_refuse("", "compare", folder, *suite)
    assert not (tmp_path / "page.html").exists()
    assert not list(folder.glob("*/compared"))


def test_seeds_that_were_taken_elsewhere_without_checkpoints(folders: Path, tmp_path: Path) -> None:
    shutil.copytree(folders / "one", tmp_path / "one", ignore=shutil.ignore_patterns("checkpoints"))
    assert list(run_folders(tmp_path / "one")) == [1, 2]
    assert run_folders(folders / "one" / "seed-1") == {}
