"""`cotext translate endpoint.yaml`: files in and out, the report beside, and what is refused."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import FORMATS, read_documents, write_documents, write_parallel
from cotext.runtime.files import checksum
from cotext.translation.open import signature_entries
from tests.command_line import Outcome, cotext, succeed
from tests.language_models.described import KEY, VARIABLE, WORDS, described
from tests.language_models.fake import Fake

SOURCE = "\n".join([*WORDS, "", "The cat sleeps.", ""])
TARGET = "\n".join([*WORDS.values(), "", "Die Katze schläft.", ""])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "test.en"
    path.write_text(SOURCE)
    return path


def translated(folder: Path, fake: Fake, *arguments: Any, refused: str = "", **settings: Any) -> Outcome:
    """Translate the file, or be refused with a message."""
    endpoint = described(folder, fake.url, key=VARIABLE, **settings)
    outcome = cotext("translate", endpoint, folder / "test.en", "--out", folder / "out.de", *arguments)
    assert outcome.code == (2 if refused else 0), outcome.err
    assert refused in outcome.err
    return outcome


def test_a_file_and_its_report(tmp_path: Path, fake: Fake, source: Path) -> None:
    fake.misbehave("merge", when=lambda request: "dog" in request.text)
    outcome = translated(tmp_path, fake, "--json", mode="chunk", chunk=3, context=0, at_once=1)
    out = tmp_path / "out.de"
    assert out.read_text() == TARGET
    told = json.loads(outcome.out)
    noted = json.loads((tmp_path / "out.de.report.json").read_text())
    assert {key: noted[key] for key in told.keys() & noted.keys() - {"format", "version"}} == {
        key: told[key] for key in told.keys() & noted.keys() - {"format", "version"}
    }
    assert noted["format"] == "cotext-endpoint-report"
    assert noted["output"] == checksum(out)
    assert (noted["documents"], noted["sentences"], noted["untranslated"]) == (2, 6, [])
    assert told["repairs"] == [
        {
            "document": "1",
            "first": 1,
            "last": 3,
            "problem": "has 2 numbered lines, where 3 were asked for",
            "remedy": "requested again",
        }
    ]
    # Two chunks, one of them twice, and the second document.
    usage = told["usage"]["all"]
    assert usage["requests"] == 4 == len(fake.requests)
    assert usage["input_tokens"] > usage["output_tokens"] > 0
    today = datetime.now(UTC).date().isoformat()
    entries = signature_entries(told["signature"])
    assert entries["model"] == "fake"
    assert entries["languages"] == "en-de"
    assert entries["mode"] == "chunk-3"
    assert entries["answered"] in (today, told["answered"])


def test_a_name_that_the_server_gives_stays_in_its_place(tmp_path: Path, fake: Fake, source: Path) -> None:
    body = {"model": "a|b\n\x1b[31mc", "choices": [{"message": {"content": "[1] Eins."}}]}
    source.write_text("One.\n")
    fake.misbehave("given", body=json.dumps(body).encode())
    outcome = translated(tmp_path, fake)
    assert "|answered_by:a/b [31mc|" in outcome.out


def test_the_same_command_sends_nothing_again(tmp_path: Path, fake: Fake, source: Path) -> None:
    translated(tmp_path, fake)
    first, sent = (tmp_path / "out.de").read_bytes(), len(fake.requests)
    (tmp_path / "out.de").unlink()
    outcome = translated(tmp_path, fake, refused="out.de.report.json: exists")
    assert "--overwrite" in outcome.err
    outcome = translated(tmp_path, fake, "--overwrite", "--json")
    assert (tmp_path / "out.de").read_bytes() == first
    assert len(fake.requests) == sent
    usage = json.loads(outcome.out)["usage"]
    assert (usage["all"]["requests"], usage["now"]["requests"]) == (2, 0)


def test_a_job_that_fails_goes_on_and_loses_nothing(tmp_path: Path, fake: Fake, source: Path) -> None:
    fake.misbehave("503", times=None, when=lambda request: "[5]" not in request.text)
    translated(tmp_path, fake, retries=1, at_once=1, refused="no answer after 2 attempts")
    assert not list(tmp_path.glob("out.de*"))
    fake.behave()
    sent = len(fake.requests)
    translated(tmp_path, fake, retries=1)
    assert len(fake.requests) == sent + 1  # the first document is there
    assert (tmp_path / "out.de").read_text() == TARGET


def test_what_is_told_on_the_screen(tmp_path: Path, fake: Fake, source: Path) -> None:
    fake.misbehave("refuse", times=None, when=lambda request: "It is loud." in request.text)
    outcome = translated(tmp_path, fake, repeats=0, source_language="fr")
    assert "the name says 'en'" in outcome.err
    assert (tmp_path / "out.de").read_text() == TARGET.replace("Er ist laut.", "It is loud.")
    assert "6 sentences in 2 documents" in outcome.out
    assert "untranslated: the source text is kept: 1 (the answer has no numbered lines), 1:4" in outcome.out
    assert "model:fake|" in outcome.out
    assert KEY not in outcome.out + outcome.err


def test_settings_of_the_command_line(tmp_path: Path, fake: Fake, source: Path) -> None:
    endpoint = described(tmp_path, fake.url, key=VARIABLE)
    options = ("--set", "mode=sentence", "--target-language", "Danish", "--out", tmp_path / "out.da")
    outcome = succeed("translate", endpoint, source, *options)
    assert "into Danish" in fake.requests[0].text
    assert "languages:en-da|mode:sentence|" in outcome.out


def test_several_files_into_a_folder(tmp_path: Path, fake: Fake) -> None:
    for name, text in (("a.en", SOURCE), ("b.en", "It is loud.\n")):
        (tmp_path / name).write_text(text)
    endpoint = described(tmp_path, fake.url, key=VARIABLE)
    outs = tmp_path / "out"
    outcome = cotext("translate", endpoint, tmp_path / "a.en", tmp_path / "b.en", "--out-dir", outs, "--json")
    assert outcome.code == 0, outcome.err
    assert (outs / "a.en").read_text() == TARGET
    assert (outs / "b.en").read_text() == "Er ist laut.\n"
    files = json.loads(outcome.out)["files"]
    assert [file["usage"]["all"]["requests"] for file in files] == [2, 1]


# A translation memory is a file of a person, and no corpus, to `translate`.
@pytest.mark.parametrize("format", sorted(name for name, row in FORMATS.items() if row.encode))
def test_every_format_of_documents(tmp_path: Path, fake: Fake, format: str) -> None:
    source, out = tmp_path / "test.en", tmp_path / "out.de"
    sentences = tuple(WORDS)
    if FORMATS[format].holds_both_languages:
        documents = [ParallelDocument(name, sentences, sentences[::-1]) for name in "ab"]
        write_parallel(source, None, documents, format, ("en", "de"))
    else:
        write_documents(source, [Document(name, sentences) for name in "ab"], format)
    translated(tmp_path, fake, "--format", format)
    found = [document.sentences for document in read_documents(out, format, "target")]
    assert found == [tuple(WORDS.values())] * 2


def test_lines_of_wmt_hand_on_instructions(tmp_path: Path, fake: Fake) -> None:
    lines = [
        {"doc_id": "a", "src_lang": "en", "tgt_lang": "de_DE", "source_doc": "<p>It is loud.</p><p></p>"},
        {"doc_id": "b", "src_lang": "en", "tgt_lang": "cs_CZ", "source_doc": "It is loud."},
        {"doc_id": "c", "src_lang": "en", "tgt_lang": "de_DE", "source_doc": "It is tired.\n\nIt is loud."},
    ]
    for line in lines:
        line["instruction"] = f"Be formal in {line['doc_id']}.\n100% of it."
    source, out = tmp_path / "test.en", tmp_path / "out.de"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "|instructions:2|" in translated(tmp_path, fake).out
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(line["doc_id"], line["hypothesis"]) for line in found] == [
        ("a", "<p>Er ist laut.</p>\n<p></p>"),
        ("c", "<p>Sie ist müde.</p>\n<p>Er ist laut.</p>"),
    ]
    instructed = {request.question.split("Be formal in ")[1][:14] for request in fake.requests}
    assert instructed == {"a.\n100% of it.", "c.\n100% of it."}
    source.write_text(source.read_text() + json.dumps(lines[0]) + "\n")
    translated(tmp_path, fake, "--overwrite", refused="has two documents 'a'")
    assert len(fake.requests) == 2


def test_what_is_refused_before_anything_is_sent(tmp_path: Path, fake: Fake, source: Path) -> None:
    for arguments, message in (
        (("--glossary", "terms.tsv"), "do not support --glossary"),
        (("--scores", "scores.tsv"), "do not support --scores"),
        (("--shard", "1/2"), "do not support --shard"),
        (("--checkpoint", "0"), "do not support --checkpoint"),
        (("--set", "beam=4"), "unknown key 'beam'"),
        (("--set", "mode=window"), "mode = 'window'"),
        (("--format", "markdown"), "language models behind an API translate only corpora"),
    ):
        translated(tmp_path, fake, *arguments, refused=message)
    assert not fake.requests
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.yaml", "test.en"]


def test_a_wrong_or_no_key(tmp_path: Path, fake: Fake, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.key = KEY
    monkeypatch.setenv(VARIABLE, "sk-another-0123456789")
    translated(tmp_path, fake, refused=f"is the key in {VARIABLE} right?")
    monkeypatch.delenv(VARIABLE)
    translated(tmp_path, fake, refused=f"{VARIABLE} is not set")
