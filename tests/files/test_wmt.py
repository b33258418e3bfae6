"""Lines of the shared task of WMT: documents of JSON, HTML and text, submissions, languages, damage."""

import json
import random

import pytest
from catalogues import same_again, texts, translated, upper
from hostile.mutations import mutate

from cotext.files.blocks import BilingualFormat, Job
from cotext.files.table import recognise
from cotext.files.wmt import FORMAT
from cotext.runtime.errors import CotextError

FENCED = '```json\n[\n  {"id": 1, "text": "First cue"},\n  {"id": 2, "text": "Second cue"}\n]\n```'
LINES = [
    {
        "dataset_id": "set",
        "doc_id": "plain",
        "source_doc": "A first paragraph. Of two.\n\nAnother one.\n\n- 12 -",
        "tgt_lang": "de_DE",
        "instruction": "Be formal.",
    },
    {
        "doc_id": "html",
        "source_doc": "<p>One <b>bold</b>.</p>\n<p>Two.</p>",
        "tgt_lang": "de_DE",
        "instruction": "",
    },
    {"doc_id": "cues", "source_doc": FENCED, "tgt_lang": "de_DE", "instruction": "Keep JSON."},
    {"doc_id": "plain", "source_doc": "Not for us.", "tgt_lang": "cs_CZ", "instruction": ""},
]
FILE = "".join(json.dumps(line) + "\n" for line in LINES).encode()
OF_2025 = b'{"doc_id": "d", "src_lang": "en", "tgt_lang": "de", "src_text": "One.\\n\\nTwo."}\n'
GERMAN = FORMAT.for_job(Job("en", "de"))


def test_they_are_recognised_by_content() -> None:
    for content in (FILE, OF_2025):
        found = recognise(content, "blindset")
        assert isinstance(found, BilingualFormat)
        assert found.name == "wmt"
    assert not FORMAT.recognises(b'{"id": "a", "sentences": ["b"]}\n')


@pytest.mark.parametrize("content", [FILE, FILE.replace(b"\n", b"\r\n"), OF_2025.strip()])
def test_their_own_blocks_give_the_file_back(content: bytes) -> None:
    same_again(GERMAN, content)


def test_a_submission() -> None:
    opened = GERMAN.open(FILE, "file")
    assert texts(opened) == ["A first paragraph. Of two.", "Another one."]
    assert texts(opened, 1) == ["One bold.", "Two."]
    assert texts(opened, 2) == ["First cue", "Second cue"]
    plain, page, cues = map(json.loads, upper(opened).decode().splitlines())
    assert plain == {
        "dataset_id": "set",
        "doc_id": "plain",
        "tgt_lang": "de_DE",
        "hypothesis": "A FIRST PARAGRAPH. OF TWO.\n\nANOTHER ONE.\n\n- 12 -",
        "translation_granularity": "document-level",
    }
    assert page["hypothesis"] == "<p>ONE <b>BOLD</b>.</p>\n<p>TWO.</p>"
    assert page["dataset_id"] == "wmt26"
    assert cues["hypothesis"] == FENCED.replace("First cue", "FIRST CUE").replace("Second cue", "SECOND CUE")
    said = " ".join(opened.contents.messages)
    assert "left out: cs_CZ (1)" in said
    assert "2 lines have instructions, which are not obeyed" in said


def test_lines_of_2025() -> None:
    [line] = map(json.loads, upper(FORMAT.open(OF_2025, "file")).decode().splitlines())
    assert (line["dataset_id"], line["hypothesis"]) == ("wmt25", "ONE.\n\nTWO.")


def test_codes_of_three_letters_and_the_direction_in_ids() -> None:
    """Of 2026, German from Czech is `deu_Latn`, and from English `de_DE`."""
    lines = [
        {
            "doc_id": "WMT26_###_news_###_ces_Latn_###_deu_Latn_###_1",
            "source_doc": "Jedna.",
            "tgt_lang": "deu_Latn",
        },
        {"doc_id": "2", "source_doc": "Two.", "tgt_lang": "de_DE"},
    ]
    both = "".join(json.dumps(line) + "\n" for line in lines).encode()
    assert texts(GERMAN.open(both, "file")) == ["Two."]
    czech = FORMAT.for_job(Job("cs", "deu")).open(both, "file")
    assert texts(czech) == ["Jedna."]
    assert "left out: de_DE (1)" in " ".join(czech.contents.messages)
    with pytest.raises(CotextError, match=r"target languages: ces_Latn-deu_Latn\)"):
        GERMAN.open(both.split(b"\n")[0], "file")


def test_half_a_character_is_not_written_into_json() -> None:
    opened = GERMAN.open(FILE, "file")
    documents = translated(opened.contents, lambda text: f"{text}\ud800")
    *_, cues = map(json.loads, opened.written(documents).decode().splitlines())
    assert cues["hypothesis"] == FENCED


def test_damaged_json_in_a_document_is_text() -> None:
    line = {"doc_id": "d", "source_doc": '{"a": "b"', "tgt_lang": "de"}
    opened = FORMAT.open(json.dumps(line).encode(), "file")
    assert any("translated as plain text" in message for message in opened.contents.messages)


@pytest.mark.parametrize(
    ("content", "job", "said"),
    [
        (FILE, Job(), "several target languages"),
        (FILE, Job("en", "fr"), r"no line is in the languages of the run"),
        (FILE + FILE, Job("en", "de"), "file:5: the document 'plain' for de_DE came before"),
        (b'{"doc_id": 1, "tgt_lang": "de", "source_doc": "a"}', Job(), "file:1: the key 'doc_id' must"),
        (b'{"doc_id": "a", "source_doc": "a"}', Job(), "file:1: a line of the task"),
        (b'{"doc_id": "a", "tgt_lang": "de", "source_doc": "a"\n', Job(), "file:1: not valid JSON"),
    ],
)
def test_what_is_refused(content: bytes, job: Job, said: str) -> None:
    with pytest.raises(CotextError, match=said):
        FORMAT.for_job(job).open(content, "file")


def test_damage() -> None:
    # What is written is a submission, which is not read again.
    draw = random.Random(1)
    read = 0
    for _ in range(200):
        damaged, _ = mutate(FILE, draw)
        try:
            opened = GERMAN.open(damaged, "damaged")
        except CotextError:
            continue
        assert opened.written(opened.contents.documents) == damaged
        upper(opened)
        read += 1
    assert read
