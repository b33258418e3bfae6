"""Lines of WMT as a corpus: paragraphs of HTML, JSON and text, and languages."""

import json
from pathlib import Path

from cotext.data.documents import Document, fitting_codes, primary_language
from cotext.data.formats import detect_format, read_documents, read_parallel
from cotext.data.formats.wmt import paragraphs, read_wmt_lines
from tests.command_line import must_refuse
from tests.loops import loop_over
from tests.refusals import must_raise

JSON = '```json\n{\n "a": "One \\"x\\".",\n "n": 3,\n "b": {"c": ["Two.", ""]}\n}\n```'


def lines_file(path: Path, *lines: dict[str, object]) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


@loop_over(
    ("text", "texts"),
    [
        ("One.\nStill one.\n \n\nTwo. \n", ("One. Still one.", "Two.")),
        ("", ("",)),
        ("\xa0\n\nTwo.", ("\xa0", "Two.")),
        ("<p>One<br>and <b>bold</b> &amp; so.</p>\n<p></p><p> Two.", ("One and bold & so.", "", "Two.")),
        ("lost</p> words <h2>Head</h2>\n<p>a < b</p>", ("lost", "words", "Head", "a < b")),
        ("The <i>word</i> is text.", ("The <i>word</i> is text.",)),
        (JSON, ('One "x".', "Two.", "")),
        ('["a", {"key" : "b\\nc"}]', ("a", "b c")),
        ('{"a": "b"', ('{"a": "b"',)),
        ("[sighs] Well.", ("[sighs] Well.",)),
    ],
)
def test_paragraphs_by_hand(text: str, texts: tuple[str, ...]) -> None:
    assert paragraphs(text) == texts


TASK = {"doc_id": "d1", "source_doc": "One.\n\nTwo.", "tgt_lang": "de_DE", "instruction": "Be formal."}
PUBLISHED = {
    "doc_id": "d1",
    "src_lang": "en",
    "tgt_lang": "de_DE",
    "src_text": "One.\n\nTwo.",
    "prompt_instruction": "x",
    "refs": {"refB": {"ref": "B"}, "refA": {"ref": "Eins.\n\nZwei."}},
}
SUBMISSION = {"dataset_id": "wmt", "doc_id": "d1", "tgt_lang": "de_DE", "hypothesis": "<p>E.</p><p>Z.</p>"}


def test_tasks_references_and_submissions_are_documents(tmp_path: Path) -> None:
    task, published, submission = (
        lines_file(tmp_path / f"{name}.jsonl", line)
        for name, line in (("t", TASK), ("p", PUBLISHED), ("s", SUBMISSION))
    )
    assert {detect_format(path) for path in (task, published, submission)} == {"wmt"}
    assert list(read_documents(task)) == [Document("d1", ("One.", "Two."))]
    must_raise("no target sentences", read_documents, task, side="target")
    [pair] = read_parallel(published, None)
    assert (pair.source, pair.target) == (("One.", "Two."), ("Eins.", "Zwei."))
    assert list(read_documents(submission, side="target")) == [Document("d1", ("E.", "Z."))]
    [line] = read_wmt_lines(task)
    assert (line.instruction, line.target_language, line.source) == ("Be formal.", "de_DE", "One.\n\nTwo.")


def test_formats_are_told_by_keys(tmp_path: Path) -> None:
    assert detect_format(lines_file(tmp_path / "a.jsonl", {"domain": "news", **TASK})) == "wmt"
    long = {**SUBMISSION, "hypothesis": "word " * 100_000}
    assert detect_format(lines_file(tmp_path / "b.jsonl", long)) == "wmt"
    native = lines_file(tmp_path / "n.jsonl", {"id": "a", "doc_id": "b", "source": ["x"]})
    assert detect_format(native) == "jsonl"
    native = lines_file(tmp_path / "m.jsonl", {"doc_id": "b", "id": "a", "source": ["x"]})
    assert detect_format(native) == "jsonl"


def test_languages_are_read_one_pair_at_a_time(tmp_path: Path) -> None:
    """Ids of both years name the languages, and so does the direction of synthetic references."""
    path = lines_file(
        tmp_path / "s.jsonl",
        {"doc_id": "cs-de_DE_#_news_#_1", "hypothesis": "a"},
        {"doc_id": "WMT26_###_news_###_eng_Latn_###_ukr_Cyrl_###_2", "hypothesis": "b"},
        {"doc_id": "3", "direction": "eng_Latn---zho_Hant_TW", "hypothesis": "c"},
        {"doc_id": "4", "src_lang": "en", "tgt_lang": "zh_CN", "hypothesis": "d"},
        {"doc_id": "5", "src_lang": "ja", "tgt_lang": "zh_CN", "hypothesis": "e"},
    )

    def ids(wanted: str) -> list[str]:
        return [document.id[-1] for document in read_documents(path, f"wmt:{wanted}")]

    assert [ids(each) for each in ("de", "deu", "en-uk", "ukr_Cyrl", "zho_Hant_TW")] == [
        ["1"], ["1"], ["2"], ["2"], ["3"],
    ]  # fmt: skip
    assert [ids(each) for each in ("en-zh_CN", "ja-zh", "jpn-zh_CN")] == [["4"], ["5"], ["5"]]
    must_raise(r"s.jsonl:2: a document of eng_Latn-ukr_Cyrl, after others of cs-de_DE", read_documents, path)
    must_raise("'zh_CN' may be en-zh_CN, ja-zh_CN; choose a pair", ids, "zh_CN")
    for none in ("fr", "fr-de", "de-fr"):
        must_raise(f"no document has the language '{none}'; there are cs-de_DE", ids, none)


def test_codes_that_a_person_means() -> None:
    assert fitting_codes("de", ["deu_Latn", "de_DE", "en"]) == ["de_DE"]
    assert fitting_codes("de", ["deu_Latn", "en"]) == ["deu_Latn"]
    assert fitting_codes("zh_TW", ["zh_CN", "zh_TW"]) == ["zh_TW"]
    assert fitting_codes("", ["de"]) == []
    assert [primary_language(code) for code in ("jpn_Jpan", "de-AT", "arz_Arab")] == ["ja", "de", "arz"]


def test_what_is_no_line_is_told_with_its_number(tmp_path: Path) -> None:
    for line, said in (
        ({"doc_id": "a", "hypothesis": 3}, "the key 'hypothesis' must contain a text"),
        ({"doc_id": "", "hypothesis": "a"}, "the key 'doc_id' must contain a text that is not empty"),
        ({"doc_id": "a", "hypothesis": None}, "has none of the keys"),
    ):
        path = lines_file(tmp_path / "a.jsonl", SUBMISSION, line)
        must_raise(rf"a\.jsonl:2: .*{said}", read_documents, path)


def test_documents_of_which_a_side_would_be_lost_are_not_converted(tmp_path: Path) -> None:
    """What the first one holds would be taken for what all hold."""
    half = {"doc_id": "d1", "src_lang": "en", "tgt_lang": "de", "src_text": "One."}
    whole, answer = {**half, "doc_id": "d2", "hypothesis": "Eins."}, {"doc_id": "d3", "hypothesis": "Eins."}
    out = tmp_path / "out.jsonl"
    for lines, said in (
        ([half, whole], "document 'd2' has source and target, but the first one has source"),
        ([half, answer], "document 'd3' has sentences, but the first one has source"),
    ):
        path = lines_file(tmp_path / "in.jsonl", *[{**line, "tgt_lang": "de"} for line in lines])
        must_refuse(said, "convert", path, "--format", "wmt:de", "--to", "wmt", "--out", out)
        assert not out.exists()
