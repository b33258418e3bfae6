"""Marked discourse words, and glossary terms, counted by hand."""

from pathlib import Path

import pytest

from cotext.data.documents import Document
from cotext.evaluation.metrics.discourse import (
    Mark,
    MarkedDocument,
    hits,
    measure_discourse,
    measure_terms,
    read_marks,
    tokenised,
)
from cotext.evaluation.metrics.interface import Texts
from tests.command_line import cotext
from tests.loops import loop_over
from tests.refusals import must_raise

# Three documents of one phenomenon each; positions count tokens.
#            0   1    2    3     4   5 6   7   8     9
TENSE = ("She saw the lamp .", "It was very bright .")
JOINED = ("It was late .", "But they came .")
PRONOUN = ("Ann took it .",)
REFERENCE = [Document("t", TENSE), Document("c", JOINED), Document("p", PRONOUN)]
MARKED = [
    MarkedDocument("TC", (Mark(1, ("saw", "caught sight of")), Mark(6, ("was", "shone")))),
    MarkedDocument("CP", (Mark(4, ("But", "However")),)),
    MarkedDocument("PT", (Mark(2, ("it",)),)),
]


def documents(*texts: tuple[str, ...]) -> list[Document]:
    return [Document(each.id, text) for each, text in zip(REFERENCE, texts, strict=True)]


def values(hypothesis: list[Document], reference: list[Document] = REFERENCE) -> dict[str, float]:
    measured = measure_discourse(MARKED, Texts({"x": hypothesis}, [reference]))["x"]
    return {each.score.title: each.score.value for each in measured}


def test_scores_by_hand() -> None:
    assert values(REFERENCE) == pytest.approx({"TC": 100, "CP": 100, "PT": 100, "TCP": 100})
    # One of two verbs, the conjunction in another rendering, the pronoun lost.
    tense, joined = ("She sees the lamp .", "It was bright ."), ("It was late .", "However they came .")
    wrong = documents(tense, joined, ("Ann left .",))
    assert values(wrong) == pytest.approx({"TC": 50, "CP": 100, "PT": 0, "TCP": 0})
    half = documents(tense, JOINED, PRONOUN)
    # The cube root of 0.5.
    assert values(half)["TCP"] == pytest.approx(79.3701, abs=1e-4)


def test_counts_and_signature() -> None:
    texts = Texts({"x": documents(TENSE, JOINED, ("Ann left .",))}, [REFERENCE])
    tcp = measure_discourse(MARKED, texts)["x"][3]
    assert tcp.statistics.counts.tolist() == [[2, 2, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 1]]
    assert (tcp.score.components["TC_hits"], tcp.score.components["PT_marks"]) == (2.0, 1.0)
    assert "protocol:tcp|unit:document|window:20+20|case:mixed|tok:none|" in tcp.score.signature


def test_renderings_of_several_words_and_case() -> None:
    tense, joined = ("She caught sight of the lamp .", "It shone ."), ("It was late .", "but they came .")
    ours = documents(tense, joined, PRONOUN)
    assert values(ours) == pytest.approx({"TC": 100, "CP": 0, "PT": 100, "TCP": 0})
    # Words far apart are no rendering, and a word is not found inside another one.
    apart = documents(("She caught of sight the lamp .", "It shone ."), JOINED, ("Ann took items .",))
    assert values(apart) == pytest.approx({"TC": 50, "CP": 100, "PT": 0, "TCP": 0})


@loop_over(("place", "found"), [(79, False), (80, True), (99, True), (100, True), (119, True), (120, False)])
def test_near_is_twenty_before_and_twenty_from_the_place_on(place: int, found: bool) -> None:
    # Twice as long as the reference: position 50 is expected at 100.
    hypothesis = ["x"] * 200
    hypothesis[place] = "word"
    assert hits([Mark(50, ("word",))], hypothesis, 100) == [found]


def test_windows_at_the_end_and_one_phenomenon_alone() -> None:
    assert hits([Mark(1, ("a",)), Mark(59, ("z",))], ["a", *"x" * 58, "z"], 60) == [True, True]
    assert hits([Mark(1, ("a",))], [], 60) == [False]
    assert hits([Mark(0, ("a",))], ["a"], 0) == [True]  # a reference without a word
    measured = measure_discourse(MARKED[2:], Texts({"x": REFERENCE[2:]}, [REFERENCE[2:]]))["x"]
    assert [each.score.title for each in measured] == ["PT"]


def test_plain_text_is_tokenised() -> None:
    pytest.importorskip("sacremoses")
    plain = documents(
        ("She saw the lamp.", "It was very bright."), ("It was late.", "But they came."), ("Ann took it.",)
    )
    assert values(plain, plain)["TCP"] == pytest.approx(100)
    signature = measure_discourse(MARKED, Texts({"x": plain}, [plain]))["x"][0].score.signature
    assert "tok:moses-en-hyphens" in signature
    assert tokenised([Document("d", ("A well-known fact", "isn’t."))], "moses") == [
        ["A", "well", "@-@", "known", "fact", "isn", "’", "t", "."]
    ]


def test_a_file_of_marks(tmp_path: Path) -> None:
    path = tmp_path / "marks"
    path.write_text("TC\t1:saw,caught sight of\t6:was,shone,\nCP\t4:But,However\nPT\t2:it\t\n")
    assert read_marks(path) == MARKED
    path.write_text("1:saw\n" * 50 + "0:But\n" * 46 + "2:it\t3:he\n" * 52)
    read = read_marks(path)
    assert [(d.phenomenon, len(d.marks)) for d in (read[0], read[49], read[50], read[95], read[96])] == [
        ("TC", 1), ("TC", 1), ("CP", 1), ("CP", 1), ("PT", 2),
    ]  # fmt: skip


@loop_over(
    ("text", "message"),
    [
        ("1:saw\n", "1 lines, but the published set has 148"),
        ("TC\t1:saw\n2:it\n", "marks:2: does not begin with TC, CP, PT"),
        ("TC\t1:saw\tsaw\n", "marks:1: 'saw' is not a mark"),
        ("TC\tx:saw\n", "'x:saw' is not a mark"),
        ("TC\t1:,\n", "'1:,' is not a mark"),
    ],
)
def test_files_that_hold_no_marks(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "marks"
    path.write_text(text)
    must_raise(message, read_marks, path)


def test_marks_of_other_documents_are_noticed() -> None:
    for marks, texts, message in (
        (MARKED, REFERENCE[:2], "there are marks for 3 documents, but the reference has 2"),
        (MARKED, documents(JOINED, PRONOUN, TENSE), "only 0 % of the 4 marked words are at their positions"),
        ([MarkedDocument("TC", ())], REFERENCE[:1], "the file contains none"),
    ):
        must_raise(message, measure_discourse, marks, Texts({"x": texts}, [texts]))


def test_the_same_hits_as_the_authors_script(shared_data: Path) -> None:
    """Counts printed by tcp.py of github.com/sunzewei2715/Doc2Doc_NMT (19e8e1c) for these very texts."""
    marked = read_marks(shared_data / "pdc" / "doc.en.candidates")
    lines = (shared_data / "pdc" / "doc.en.tok").read_text(encoding="utf-8").splitlines()
    late, thinned = [], []
    for line in lines:
        words = line.split()
        late.append(" ".join([*words[15:], *["so"] * 15]))
        # Every fifth word is lost, and of the last two thirds of the rest every other one.
        rest = [word for place, word in enumerate(words) if place % 5 != 2]
        thinned.append(" ".join(w for place, w in enumerate(rest) if place < len(rest) // 3 or place % 2))
    reference, *hypotheses = (
        [Document(str(n), (line,)) for n, line in enumerate(each)] for each in (lines, late, thinned)
    )
    measured = measure_discourse(
        marked, Texts(dict(zip(("late", "thinned"), hypotheses, strict=True)), [reference])
    )
    found = {name: [m.score.components[f"{p}_hits"] for p, m in zip(("TC", "CP", "PT"), each, strict=False)]
             for name, each in measured.items()}  # fmt: skip
    assert found == {"late": [2432, 453, 294], "thinned": [607, 202, 161]}
    assert measured["late"][3].score.value == pytest.approx(99.2, abs=0.05)
    assert measured["thinned"][3].score.value == pytest.approx(39.0, abs=0.05)


TERMS = [("window", ["Fenster"]), ("file", ["Date", "Datei", "Akte", "akte"]), ("cell", ["Zelle"])]
SOURCE = [
    Document("a", ("A Window and a window.", "The file.", "A file.", "This file")),
    Document("b", ("One cell.", "No term.")),
]
TERM_REFERENCE = [
    Document("a", ("Ein Fenster und ein Fenster.", "Die Datei.", "Eine Datei.", "Diese Datei")),
    # "cell" is translated otherwise here, and so it does not count.
    Document("b", ("Ein Kästchen.", "Kein Begriff.")),
]


def test_success_and_consistency() -> None:
    output = [
        Document("a", ("Ein fenster.", "Die Akte.", "Eine Akte.", "Diese Dateien, diese Akte")),
        Document("b", ("Zelle.", "Kein Begriff.")),
    ]
    [success, consistency] = measure_terms(TERMS, Texts({"x": output}, [TERM_REFERENCE], SOURCE))["x"]
    # window: 1 of 2; file: 4 for 3, at most 1.
    assert success.score.value == pytest.approx(100 * (0.5 + 1.0) / 2)
    references = [TERM_REFERENCE, [TERM_REFERENCE[0], output[1]]]  # the second also has the cell
    [several, same] = measure_terms(TERMS, Texts({"x": output}, references, SOURCE))["x"]
    assert several.score.value == pytest.approx(100 * (0.5 + 1.0 + 1.0) / 3)
    assert ("|nrefs:2|" in several.score.signature, same.score) == (True, consistency.score)
    # Each of three sentences has Akte; that one also has Datei does not matter.
    assert consistency.score.value == pytest.approx(100)
    output = [Document("a", ("", "Die Datei.", "Das Ding.", "")), Document("b", ("", ""))]
    [success, consistency] = measure_terms(TERMS, Texts({"x": output}, [TERM_REFERENCE], SOURCE))["x"]
    assert success.score.value == pytest.approx(100 * (0 + 1 / 3) / 2)
    assert consistency.score.value == pytest.approx(100 / 3)
    texts = Texts({"x": output}, [TERM_REFERENCE], SOURCE)
    # No term occurs in two sentences of a document.
    assert len(measure_terms([("window", ["Fenster"])], texts)["x"]) == 1
    must_raise("no term of the list", measure_terms, [("door", ["Tür"])], texts)


def test_evaluate_takes_a_glossary(tmp_path: Path) -> None:
    (tmp_path / "s.en").write_text("A window.\nThis window.\n", encoding="utf-8")
    (tmp_path / "r.de").write_text("Ein Fenster.\nDies Fenster.\n", encoding="utf-8")
    (tmp_path / "h.de").write_text("Ein Fenster. Dies Loch.\n", encoding="utf-8")
    (tmp_path / "t.tsv").write_text("window\tFenster\n", encoding="utf-8")
    files = [f"--{name}={tmp_path / file}" for name, file in (("hypothesis", "h.de"), ("reference", "r.de"))]
    assert cotext("evaluate", *files, f"--terms={tmp_path / 't.tsv'}").code == 2
    given = f"--terms={tmp_path / 't.tsv'}", f"--source={tmp_path / 's.en'}"
    result = cotext("evaluate", *files, *given, "--realign")
    assert "term success       50.00" in result.out
    assert "term consistency   50.00" in result.out
    # Terms are counted by sentence, so they depend on the cuts; d-BLEU does not.
    assert result.out.count("|realign:least-edits-13a-lc-1-of-1") == 4
