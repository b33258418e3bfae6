"""`evaluate --realign`: documents of other numbers of sentences, brought to those of the reference."""

import random
from pathlib import Path

import pytest

from cotext.data.documents import Document
from cotext.data.formats import write_documents
from cotext.evaluation.metrics.aligned_files import read_aligned
from cotext.evaluation.metrics.realign import AlignmentReport, Cutter, realign, realign_systems
from cotext.evaluation.requests import EvaluationRequest
from cotext.evaluation.studies.evaluate.evaluate_files import evaluate_files
from tests.command_line import must_refuse, succeed
from tests.evaluation.test_bleu import evaluate
from tests.refusals import must_raise

REFERENCE = (
    "Das ist gut.",
    "Er kam gestern sehr spät nach Hause.",
    "Sie lachte laut.",
    "Dann gingen alle schlafen.",
)


def fitted(lines: tuple[str, ...]) -> tuple[Document, AlignmentReport]:
    [document], report = realign([Document("a", lines)], [[Document("a", REFERENCE)]], Cutter())
    return document, report


def test_lines_joined_and_divided() -> None:
    lines = (
        "Das ist gut. Er kam gestern",
        "sehr spät nach Hause.",
        "Sie lachte laut. Dann gingen alle schlafen.",
    )
    document, report = fitted(lines)
    assert document.sentences == REFERENCE
    assert (report.realigned, report.omitted, report.added) == (1, 0, 0)
    # All in one line.
    assert fitted((" ".join(REFERENCE),))[0].sentences == REFERENCE


def test_what_is_left_out_and_what_is_added() -> None:
    document, report = fitted((REFERENCE[0], *REFERENCE[2:]))
    assert document.sentences == (REFERENCE[0], "", *REFERENCE[2:])
    assert report.documents[0].omitted == (2,)
    more = "Niemand wusste warum, und keiner fragte danach."
    document, report = fitted((*REFERENCE[:2], more, *REFERENCE[2:]))
    # Words that belong to no sentence stay with the one before, as its line ends there.
    assert document.sentences == (REFERENCE[0], f"{REFERENCE[1]} {more}", *REFERENCE[2:])
    assert (report.documents[0].omitted, report.documents[0].added) == ((), (3,))
    assert report.length_ratio == pytest.approx(24 / 17)


def test_as_many_lines_by_accident_are_told() -> None:
    """The second sentence is left out, and something else stands at the end."""
    lines = (REFERENCE[0], *REFERENCE[2:], "Ja!")
    document, report = fitted(lines)
    assert (document.sentences, report.realigned) == (lines, 0)
    assert "1 documents have as many lines as the reference has sentences, but they" in report.notes[0]
    [document], report = realign([Document("a", lines)], [[Document("a", REFERENCE)]], Cutter(), "all")
    assert document.sentences == (REFERENCE[0], "", REFERENCE[2], f"{REFERENCE[3]} Ja!")
    assert not report.notes


def test_documents_that_fit_stay_as_they_are() -> None:
    """Even where other cuts would have fewer edits: `Hause.` is closer to the second sentence."""
    lines = ("Das ist gut.", "Er kam gestern sehr spät nach", "Hause. Sie lachte laut.", "Alle  schliefen.")
    document, report = fitted(lines)
    assert document.sentences is lines
    assert report.signature == ""
    [document], _ = realign([Document("a", lines)], [[Document("a", REFERENCE)]], Cutter(), "all")
    assert document.sentences[1:3] == ("Er kam gestern sehr spät nach Hause.", "Sie lachte laut.")


def joined(document: Document) -> Document:
    return Document("d", (" ".join(document.sentences),))


def test_no_word_is_lost_and_scores_of_documents_stay() -> None:
    """On random texts in three kinds of writing; words of odd characters and entities are among them."""
    generator = random.Random(5)
    spaced = [*"abcdefg", "&quot;ha&quot;", "<skipped>", "3.5,", "(x)", "A.B.", "-", "ß!"]
    for language, vocabulary in (("de", spaced), ("zh", [*"天地玄黄，。", "NMT", " 3.5"]), (None, spaced)):
        between = "" if language == "zh" else " "

        def text(most: int, vocabulary: list[str] = vocabulary, between: str = between) -> Document:
            lines = [
                between.join(generator.choices(vocabulary, k=generator.randint(1, 9))).strip()
                for _ in range(generator.randint(1, most))
            ]
            return Document("d", tuple(lines))

        cutter = Cutter(language)
        for _ in range(60):
            ours, theirs = text(6), text(4)
            [found], _ = realign([ours], [[theirs]], cutter, "all")
            assert len(found) == len(theirs)
            assert "".join(found.sentences).replace(" ", "") == "".join(ours.sentences).replace(" ", "")
            if language != "zh":
                assert " ".join(found.sentences).split() == " ".join(ours.sentences).split()
            whole = [
                evaluate([joined(d)], [joined(theirs)], ["d-bleu"], target_language=language)[0].value
                for d in (ours, found)
            ]
            assert whole[0] == whole[1]


def test_several_references_each_sentence_by_the_nearest() -> None:
    one = Document("a", ("Das ist gut.", "Er kam sehr spät."))
    other = Document("a", ("Gut so!", "Er traf mit Verspätung ein."))
    lines = ("Das ist gut. Er traf mit Verspätung ein.",)
    [document], _ = realign([Document("a", lines)], [[one], [other]], Cutter())
    assert document.sentences == ("Das ist gut.", "Er traf mit Verspätung ein.")


def test_text_without_spaces_needs_its_language() -> None:
    reference = [Document("a", ("天地玄黄。", "宇宙洪荒。"))]
    hypothesis = [Document("a", ("天地玄黄。宇宙洪荒。",))]
    for code, tokens in (("zh", "zh"), ("yue", "char")):
        systems, reports = realign_systems({"x": hypothesis}, [reference], code, "unequal")
        assert (systems["x"], reports["x"].signature.split("-", 2)[2]) == (reference, f"{tokens}-lc-1-of-1")
    message = r"^x: document 'a': is written without spaces.*language .zh, ja"
    must_raise(message, realign_systems, {"x": hypothesis}, [reference], None, "unequal")
    # Words of text that is split into words stay apart at the ends of lines.
    words = Document("a", ("天 地 玄黄 。", "宇宙 洪荒 。"))
    lines = Document("a", ("天 地", "玄黄 。 宇宙", "洪荒 。"))
    assert realign([lines], [[words]], Cutter("zh"))[0] == [words]
    # A line of such text in a document with spaces is a word.
    lines = ("Auf dem Schild steht:", "天地玄黄。", "Das ist der Anfang eines alten Gedichts.")
    document, _ = fitted((*lines, "Alle schliefen."))
    assert document.sentences[:3] == lines


@pytest.fixture
def files(tmp_path: Path) -> Path:
    reference = [Document("one", REFERENCE), Document("two", ("Ein Hund bellt.", "Die Katze schläft."))]
    ours = [Document("one", (" ".join(REFERENCE[:2]), *REFERENCE[2:])), reference[1]]
    write_documents(tmp_path / "reference.jsonl", reference, "jsonl")
    write_documents(tmp_path / "ours.jsonl", ours, "jsonl")
    write_documents(tmp_path / "theirs.jsonl", reference, "jsonl")
    write_documents(tmp_path / "moved.jsonl", [ours[1], ours[0]], "jsonl")
    return tmp_path


def command(folder: Path, *systems: str) -> list[str | Path]:
    given: list[str | Path] = ["evaluate", "--reference", folder / "reference.jsonl"]
    for name in systems:
        given += ["--hypothesis", folder / f"{name}.jsonl"]
    return given


def test_on_the_command_line(files: Path) -> None:
    must_refuse("or use `evaluate --realign`", *command(files, "ours"))
    shown = succeed(*command(files, "ours", "theirs"), "--realign", "--paired", "--samples", "100").out
    assert shown.count("  theirs.jsonl - ours.jsonl       +0.00") == 3
    assert "s-BLEU  ours.jsonl  protocol:s-bleu|" in shown  # another signature than that of theirs
    assert "|realign:least-edits-13a-lc-1-of-2" in shown
    rows = [line.split() for line in shown.splitlines()]
    assert ["ours.jsonl", "1", "of", "2", "0", "0", "1.00"] in rows
    # Files that fit have the same scores and signatures.
    fit = {"hypothesis": [files / "theirs.jsonl"], "reference": [files / "reference.jsonl"]}
    plain, found = (evaluate_files(EvaluationRequest(**fit, realign=each)) for each in (False, True))
    assert found.scores == plain.scores


def test_what_needs_no_alignment_and_what_is_refused(files: Path) -> None:
    shown = succeed(*command(files, "ours"), "--realign", "--protocol", "d-bleu").out
    assert "realign:" not in shown
    refused = must_refuse("document number 1 is 'two' in ", *command(files, "moved"), "--realign")
    assert refused.out == ""
    message = r"3 sentences in .*ours.jsonl, 4 in .*reference.jsonl"
    paths, references = {"theirs": files / "theirs.jsonl"}, [files / "reference.jsonl", files / "ours.jsonl"]
    must_raise(message, read_aligned, paths, references, None, None, same_sentences=False)
