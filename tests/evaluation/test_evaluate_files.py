"""`cotext evaluate` on several systems, on decisions, and on submissions to WMT."""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cotext.data.contrastive_suites import read_suite
from cotext.data.documents import Document
from cotext.data.formats import write_documents
from cotext.evaluation.metrics.aligned_files import name_systems
from cotext.evaluation.metrics.contrastive import CONTEXTS, digest_of
from cotext.evaluation.requests import EvaluationRequest
from cotext.evaluation.statistics.significance import mcnemar
from cotext.evaluation.studies.contrastive.decisions import Decisions, compare_decisions, read_decisions
from cotext.evaluation.studies.evaluate.evaluate_files import evaluate_files
from tests.command_line import World, must_refuse, succeed
from tests.evaluation.test_bleu import evaluate
from tests.evaluation.test_leaderboard import garbled
from tests.loops import loop_over
from tests.refusals import must_raise

WORDS = list("abcdefghijklmnop")


@pytest.fixture(scope="module")
def systems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with reference.de and three translations of it: good.de, fair.de (close to it), poor.de."""
    folder, generator = tmp_path_factory.mktemp("systems"), random.Random(3)

    def sentences() -> Iterator[str]:
        for _ in range(generator.randint(1, 5)):
            yield " ".join(generator.choices(WORDS, k=generator.randint(4, 12)))

    reference = [Document(f"d{number}", tuple(sentences())) for number in range(25)]
    write_documents(folder / "reference.de", reference, "text")
    for name, rate in (("good", 0.1), ("fair", 0.11), ("poor", 0.4)):
        write_documents(folder / f"{name}.de", garbled(reference, rate, generator), "text")
    return folder


def hypotheses(folder: Path, *names: str) -> list[str | Path]:
    given: list[str | Path] = ["evaluate", "--reference", folder / "reference.de"]
    for name in names:
        given += ["--hypothesis", folder / f"{name}.de"]
    return given


def test_paired_text(systems: Path) -> None:
    options = ["--paired", "--samples", "1000", "--protocol", "d-bleu", "--protocol", "ter"]
    shown = succeed(*hypotheses(systems, "good", "fair", "poor"), *options).out
    rows = [line for line in shown.splitlines() if " - " in line]
    assert [" ".join(row.split()[:4]) for row in rows] == [
        f"{title} {other}.de - {one}.de"
        for title in ("d-BLEU", "TER")
        for one, other in (("good", "fair"), ("good", "poor"), ("fair", "poor"))
    ]
    # A thousand samples: at least 1/1001, three times that after correction.
    assert rows[1].split()[-2:] == ["0.0010", "0.0030"]
    assert float(rows[0].split()[-2]) > 0.05
    assert "test:randomisation|unit:document|n:25|samples:1000|seed:12345|sides:2|correction:holm-3" in shown


def test_what_is_scored_by_documents_cannot_be_drawn_by_sentences(systems: Path) -> None:
    options = ["--paired", "--unit", "sentence", "--samples", "500", "--seed", "1"]
    shown = json.loads(succeed(*hypotheses(systems, "good", "poor"), *options, "--json").out)["paired"]
    assert "test:randomisation|unit:sentence|" in shown["chrf"]["signature"]
    assert "test:randomisation|unit:document|n:25|samples:500|seed:1|" in shown["d-bleu"]["signature"]


def test_discourse_marks(tmp_path: Path) -> None:
    (tmp_path / "reference").write_text("She saw it .\nIt shone .\n\nBut he left .\n")
    (tmp_path / "ours").write_text("She sees it .\nIt shone .\n\nBut he left .\n")
    (tmp_path / "marks").write_text("TC\t1:saw\t5:shone,was bright\nCP\t0:But,Yet\n")
    command = ["evaluate", "--hypothesis", tmp_path / "ours", "--reference", tmp_path / "reference"]
    shown = succeed(*command, "--protocol", "d-bleu", "--discourse", tmp_path / "marks").out.splitlines()
    assert [line.split()[:2] for line in shown[1:3]] == [["TC", "50.00"], ["CP", "100.00"]]
    paired = ["--hypothesis", tmp_path / "reference", "--paired", "--samples", "100"]
    both = succeed(*command, *paired, "--discourse", tmp_path / "marks").out
    assert any(line.split()[:5] == ["TC", "reference", "-", "ours", "+50.00"] for line in both.splitlines())
    assert "tc: 2 documents are too few for any significant difference" in both
    (tmp_path / "ours").write_text("She saw it.\nIt shone.\n\nBut he left.\n")
    must_refuse("tokenise both or neither", *command, "--discourse", tmp_path / "marks")


def test_names_of_systems_and_the_same_by_another_path(tmp_path: Path) -> None:
    assert name_systems([Path("a/x"), Path("b/y")]) == {"x": Path("a/x"), "y": Path("b/y")}
    assert list(name_systems([Path("a/x"), Path("b/x"), Path("y")])) == ["a/x", "b/x", "y"]
    must_raise("a/x: is given twice", name_systems, [Path("a/x"), Path("a/x")])
    # Its scores would stand there twice, and every test between both would find nothing.
    (tmp_path / "x").write_text("a\n")
    (tmp_path / "best").symlink_to("x")
    for other in (tmp_path / "best", tmp_path / "sub" / ".." / "x"):
        (tmp_path / "sub").mkdir(exist_ok=True)
        must_raise(r"is given twice \(also as .*/x\)", name_systems, [tmp_path / "x", other])


def test_decomposed_accents_are_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("für\n" * 3 + "fu\u0308r\n", encoding="utf-8")
    (tmp_path / "b").write_text("fu\u0308r\n" * 4, encoding="utf-8")
    for one, other in ("ab", "ba", "aa"):
        said = succeed("evaluate", "--hypothesis", tmp_path / one, "--reference", tmp_path / other).err
        assert ("b: 4 sentences have decomposed" in said) == (one != other)


def test_ids_that_some_files_carry(tmp_path: Path) -> None:
    documents = [Document("one", ("a b c d", "e")), Document("two", ("f g h i",))]
    other = [Document("one", ("a b c d", "e")), Document("three", ("f g h i",))]
    write_documents(tmp_path / "plain", documents, "text")
    write_documents(tmp_path / "ours.jsonl", documents, "jsonl")
    write_documents(tmp_path / "theirs.jsonl", other, "jsonl")
    ours, theirs, plain = tmp_path / "ours.jsonl", tmp_path / "theirs.jsonl", tmp_path / "plain"
    found = evaluate_files(
        EvaluationRequest(hypothesis=[ours, plain], reference=[plain], source=ours, protocol=["d-bleu"])
    )
    assert [scores[0].value for scores in found.scores.values()] == pytest.approx([100, 100])
    assert found.scores["plain"] == evaluate(documents, documents, ["d-bleu"])
    for hypotheses_of, reference in (([plain, theirs], ours), ([ours, theirs], plain)):
        request = EvaluationRequest(hypothesis=hypotheses_of, reference=reference)
        must_raise(r"document number 2 is 'three' in .*theirs.jsonl", evaluate_files, request)


@loop_over(
    ("options", "words"),
    [
        ("--hypothesis {0}/good.de --reference {0}/reference.de --paired", "give at least two"),
        (
            "{two} --paired --baseline best.de",
            "no system 'best.de' to compare with; systems are good.de",
        ),
        ("{two} --baseline good.de", "--baseline needs --paired"),
        ("{two} --hypothesis {0}/good.de", "good.de: is given twice"),
        ("{two} --discourse {0}/reference.de", "reference.de:"),
    ],
)
def test_what_is_refused(systems: Path, options: str, words: str) -> None:
    two = "--hypothesis {0}/good.de --hypothesis {0}/poor.de --reference {0}/reference.de"
    arguments = options.replace("{two}", two).replace("{0}", str(systems)).split()
    assert must_refuse(words, "evaluate", *arguments).out == ""


RULES = "suite:s|n:4|tie:wrong|score:sum"


def decided(path: Path, right: str, signature: str = RULES, suite: str = "s") -> Path:
    outcomes = {str(place): "right" if digit == "1" else "wrong" for place, digit in enumerate(right)}
    path.write_text(json.dumps({suite: {"signature": signature, "decisions": outcomes}}))
    return path


def test_contrastive_decisions_are_stored_and_compared(world: World, tmp_path: Path) -> None:
    suite, out = world.folder / "suite.json", tmp_path / "ours.json"
    succeed("contrastive", world.run, suite, "--out", out)
    stored = json.loads(out.read_text())["toy/order"]
    assert sum(value == "right" for value in stored["decisions"].values()) == stored["overall"]["correct"]
    assert len(stored["tied"]) == stored["overall"]["ties"]
    ours = read_decisions(out)["toy/order"]
    other = [replace(e, source=tuple(f"{s.upper()} ." for s in e.source)) for e in read_suite(suite).examples]
    assert ours.digest == digest_of(other[::-1]) != digest_of(other[1:])
    # A system that is right where ours is wrong, and nowhere else.
    turned = {**stored, "decisions": {k: "wrong" if v else "right" for k, v in ours.right.items()}}
    (tmp_path / "theirs.json").write_text(json.dumps({"toy/order": turned, "more": turned}))
    command = ["compare-decisions", out, tmp_path / "theirs.json"]
    shown = succeed(*command)
    assert "theirs.json - ours.json" in shown.out
    assert "test:mcnemar|unit:document|n:6|sides:2|correction:holm-1-mid-p|" in shown.out
    assert shown.out.endswith("not scored by all systems: more\n")
    (comparison,) = json.loads(succeed(*command, "--json").out)["toy/order"]["comparisons"]
    values = list(ours.right.values())
    assert comparison["p_mid"] == mcnemar(values, [not value for value in values], range(6)).p_mid


def test_comparing_three_systems(tmp_path: Path) -> None:
    files = [decided(tmp_path / name, right) for name, right in (("a", "1100"), ("b", "1111"), ("c", "0000"))]
    (found,) = compare_decisions({path.name: read_decisions(path) for path in files})
    assert found.accuracies == {"a": 50.0, "b": 100.0, "c": 0.0}
    counts = {pair: (test.only_system, test.only_baseline) for pair, (test, _) in found.tests.items()}
    assert counts == {("a", "b"): (2, 0), ("a", "c"): (0, 2), ("b", "c"): (0, 4)}
    # Mid-p of 4 equal tosses is 1/16, of 2 it is 1/4: times 3 and 2.
    assert [corrected for _, corrected in found.tests.values()] == pytest.approx([0.5, 0.5, 3 / 16])


def test_decisions_of_documents_are_compared_by_documents(tmp_path: Path) -> None:
    """Four examples of two documents, won in one and lost in the other; and all of two won."""
    found = {}
    # The suite of the first file had another order, in which more documents were found.
    for name, right, last in (("a", "1100", 2), ("b", "0011", 1), ("c", "1111", 1)):
        content = json.loads(decided(tmp_path / name, right).read_text())
        content["s"]["documents"] = dict(zip(content["s"]["decisions"], (0, 0, 1, last), strict=True))
        (tmp_path / name).write_text(json.dumps(content))
        found[name] = read_decisions(tmp_path / name)
    # Another tool's file does not tell of documents.
    found["d"] = read_decisions(decided(tmp_path / "d", "0000"))
    (comparison,) = compare_decisions(found, "d")
    assert (comparison.documents, comparison.examples, comparison.too_few) == (2, 4, True)
    # Of a and b, one of two documents is won; of c, both: the observed outcome of two tosses counts half.
    assert [test.p_mid for test, _ in comparison.tests.values()] == [0.5, 0.5, 0.25]
    shown = succeed("compare-decisions", tmp_path / "b", tmp_path / "d").out
    assert "s, 4 examples of 2 documents" in shown
    assert "2 documents are too few for any significant difference" in shown


def test_documents_and_contexts_that_do_not_fit(tmp_path: Path) -> None:
    content = json.loads(decided(tmp_path / "a", "10").read_text())["s"]
    ids = list(content["decisions"])
    contexts = {k: {"decisions": content["decisions"], "nats": dict.fromkeys(ids, -1.0)} for k in CONTEXTS}
    contexts["foreign"]["nats"][ids[0]] = None
    whole = {**content, "contexts": {**contexts, "tokens": dict.fromkeys(ids, 3)}}
    (tmp_path / "b").write_text(json.dumps({"s": whole}))
    readings = read_decisions(tmp_path / "b")["s"].readings
    assert readings.by_context["foreign"].nats == {ids[0]: -float("inf"), ids[1]: -1.0}
    assert readings.as_dict() == whole["contexts"]
    for entry, message in (
        ({**content, "documents": {"x": 1}}, "'documents' needs a number for each example"),
        ({**content, "documents": {key: [1] for key in ids}}, "'documents' needs a number"),
        ({**content, "contexts": {"true": {}}}, "'contexts' are damaged"),
        ({**content, "contexts": {**contexts, "tokens": {}}}, "'contexts' are damaged"),
        ({**content, "contexts": []}, "'contexts' are damaged"),
    ):
        (tmp_path / "b").write_text(json.dumps({"s": entry}))
        must_raise(message, read_decisions, tmp_path / "b")


def test_decisions_that_cannot_be_compared(tmp_path: Path) -> None:
    a = read_decisions(decided(tmp_path / "a", "1100"))
    for name, right, signature, suite, message in (
        ("b", "110", "", "s", "a and b did not decide the same examples"),
        ("b", "1100", "suite:s|n:4|tie:first|score:sum", "s", "a uses tie:wrong, b tie:first"),
        ("b", "1100", "", "t", "no suite was decided by all systems; the first system decided s"),
    ):
        b = read_decisions(decided(tmp_path / name, right, signature, suite))
        must_raise(message, compare_decisions, {"a": a, "b": b})
    assert Decisions("s", "no signature at all", {}).rules == {}
    must_raise("different texts", compare_decisions, {n: {"s": replace(a["s"], digest=n)} for n in "xy"})


@loop_over(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "contains no suites"),
        ('{"s": {"overall": {}}}', "suite 's' has no 'decisions'"),
        ('{"s": {"decisions": {"1": true}}}', "example '1': neither 'right' nor 'wrong'"),
        ('{"s": {"decisions": {"1": "right"}, "signature": 3}}', "signature is not a string"),
    ],
)
def test_files_without_decisions(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "figures.json"
    path.write_text(text)
    must_raise(message, read_decisions, path)


PARAGRAPHS = 3


def text(number: int, word: str, as_html: bool) -> str:
    parts = [f"{word} {number} a{n}. Then {word} b{n}!" for n in range(PARAGRAPHS)]
    return "\n".join(f"<p>{part}</p>" for part in parts) if as_html else "\n\n".join(parts)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Source, references, and a submission in another order and with documents for another language."""
    numbers = list(range(6))
    published = [
        {"doc_id": f"d{n}", "src_lang": "en", "tgt_lang": "de_DE"}
        | {"src_text": text(n, "the", True), "refs": {"A": {"ref": text(n, "der", True)}}}
        for n in numbers
    ]
    random.Random(1).shuffle(numbers)
    submission = [
        {"doc_id": f"d{n}", "tgt_lang": "de_DE", "hypothesis": text(n, "der" if n else "die", n % 2 == 0)}
        for n in numbers
    ] + [{"doc_id": "d0", "tgt_lang": "cs_CZ", "hypothesis": text(0, "ten", False)}]
    for name, lines in (("refs", published), ("sub", submission)):
        content = "".join(f"{json.dumps(line)}\n" for line in lines)
        (tmp_path / f"{name}.jsonl").write_text(content, encoding="utf-8")
    for name, first in (("ref", "der"), ("hyp", "die")):
        documents = [text(n, "der" if n else first, False).replace("\n\n", "\n") for n in range(6)]
        (tmp_path / f"{name}.de").write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return tmp_path


def test_scores_are_those_of_the_same_paragraphs_as_text(files: Path) -> None:
    plain = succeed("evaluate", "--hypothesis", files / "hyp.de", "--reference", files / "ref.de").out
    assert "6 documents, 18 sentences" in plain
    assert "s-BLEU  100" not in plain
    given = ["evaluate", "--hypothesis", files / "sub.jsonl", "--target-language", "de"]
    assert succeed(*given, "--reference", files / "refs.jsonl").out == plain
    succeed("profile", *given[1:], "--reference", files / "refs.jsonl")
    # A reference without ids stands in the order of the source.
    options = ["--reference", files / "ref.de", "--source", files / "refs.jsonl"]
    assert succeed(*given, *options).out == plain


def test_what_does_not_fit_is_refused(files: Path) -> None:
    given = ["evaluate", "--reference", files / "refs.jsonl", "--hypothesis"]
    must_refuse("a document of cs_CZ, after others of de_DE", *given, files / "sub.jsonl")
    lines = (files / "sub.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)[:6]
    part, twice, empty = (files / f"{name}.jsonl" for name in ("part", "twice", "empty"))
    part.write_text("".join(lines[:5]), encoding="utf-8")
    must_refuse("part.jsonl: lacks 1 of the documents of the task", *given, part)
    twice.write_text("".join([*lines, lines[0]]), encoding="utf-8")
    must_refuse("twice.jsonl: has documents twice", *given, twice)
    changed = {**json.loads(lines[0]), "hypothesis": "<p>a</p><p></p><p></p>"}
    empty.write_text("".join([json.dumps(changed) + "\n", *lines[1:]]), encoding="utf-8")
    assert "2 empty hypothesis sentences" in succeed(*given, empty).out
    empty.write_text("".join([json.dumps({**changed, "hypothesis": ""}) + "\n", *lines[1:]]))
    must_refuse((": 1 sentences in", "as an empty sentence, in docids"), *given, empty)


def test_the_order_is_never_guessed(tmp_path: Path) -> None:
    """Lines of a submission stand in any order: something has to tell that of a reference without ids."""
    turned, task, plain = (tmp_path / name for name in ("turned.jsonl", "task.jsonl", "plain.de"))
    for path, key, names in ((turned, "hypothesis", "ba"), (task, "source_doc", "ab")):
        path.write_text("".join(f"{json.dumps({'doc_id': n, key: f'{n}!'})}\n" for n in names))
    plain.write_text("a!\n\nb!\n", encoding="utf-8")
    request = EvaluationRequest(hypothesis=[turned], reference=[plain])
    must_raise(r"any order.*--source", evaluate_files, request)
    assert evaluate_files(replace(request, source=task)).scores["turned.jsonl"][2].value == 100
