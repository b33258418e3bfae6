"""Files that are no corpus are named for what they are; texts that look a little like them are read."""

import gzip
import re
from pathlib import Path

from cotext.data.formats import detect_format, read_documents
from tests.command_line import must_refuse
from tests.loops import loop_over
from tests.refusals import must_raise

SRT = "1\n00:00:01,000 --> 00:00:02,500\nIt rains.\n\n2\n00:00:03,000 --> 00:00:04,000\nShe is late.\n"
DOCX = b"PK\3\4\x14\0\0\0\x08\0word/document.xml"
PDF = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<</Type /Catalog>>\n"

FOREIGN = {
    "page.html": ("<!DOCTYPE html>\n<html><head><title>x</title></head></html>\n", "HTML"),
    "bare.html": ("<html lang='en'>\n<body>\n<p>It rains.</p>\n</body></html>\n", "HTML"),
    "upper.html": ("<HTML>\n<HEAD><TITLE>x</TITLE></HEAD>\n", "HTML"),
    "xhtml.html": ('<?xml version="1.0"?>\n<!DOCTYPE html PUBLIC "a" "b">\n<html><body/></html>\n', "HTML"),
    "x.xlf": ('<?xml version="1.0"?><xliff version="1.2"><file/></xliff>\n', "XLIFF"),
    "bare.xlf": ('<xliff version="1.2">\n  <file original="a"/>\n</xliff>\n', "XLIFF"),
    "s.xml": ("<?xml version='1.0'?>\n<!-- x -->\n<resources>\n</resources>\n", "root element <resources>"),
    "a.srt": (SRT, "SubRip"),
    "crlf.srt": ("\ufeff" + SRT.replace("\n", "\r\n"), "SubRip"),
    "a.vtt": ("WEBVTT\n\n00:01.000 --> 00:04.000\nIt rains.\n", "WebVTT"),
    "a.ass": ("[Script Info]\nTitle: x\n", "ASS"),
    "a.docx": (DOCX, "an office document"),
    "a.docx.gz": (gzip.compress(DOCX), "or another zip archive"),
    "a.pdf": (PDF, "a PDF document"),
    "train.tags.docs": ('<doc docid="7">\n<url>http://talks.example/7</url>\nIt rains.\n', "IWSLT"),
    "train.tags": ("<url>http://talks.example/7</url>\nIt rains.\n", "IWSLT"),
    "a.rtf": ("{\\rtf1\\ansi It rains.}\n", "rtf"),
    "a.doc": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(100), "a binary file"),
    "a.bin": (bytes(range(256)), "a binary file"),
}

ORDINARY = {
    "heart": "<3 you all!\n",
    "sound": "<laughs> It rains.\n",
    "about html": "<html> is the element that all others stand in.\nIt rains.\n",
    "html and words": "<html>\nThat is how it begins.\n",
    "about doc": "<doc, are you there?>\nNo.\n",
    "declaration in words": "<?xml version='1.0'?> is the first line of an XML file.\n",
    "comment and words": "<!-- a comment --> is not shown.\nIt rains.\n",
    "tag": "<b>It rains.</b> She is late.\n",
    "number": "1\nIt rains.\n",
    "time": "00:00:01,000\nIt rains.\n",
    "WEBVTT": "WEBVTT is a format.\nIt rains.\n",
    "PDF": "%PDF-1.7 is how such a file begins.\n",
    "zip": "PK is a name.\n",
    "mp3": "ID3 holds the title: caf\u00e9.\n",
    "brackets": "[Script Info] is a section.\n",
    "arrow": "He said --> go.\n",
}


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@loop_over("name", FOREIGN)
def test_what_is_no_corpus_is_named(name: str, tmp_path: Path) -> None:
    content, kind = FOREIGN[name]
    path = written(tmp_path, name, content)
    message = must_raise(re.escape(kind), read_documents, path)
    assert message.startswith(f"{path}: not a supported format: it looks like ")
    assert "UTF-8" not in message


@loop_over("name", ORDINARY)
def test_ordinary_text_that_looks_a_little_like_it_is_read(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, "a.en", ORDINARY[name])
    assert detect_format(path) == "text"
    [document] = read_documents(path)
    assert list(document.sentences) == ORDINARY[name].splitlines()


def test_a_named_format_is_taken_at_its_word_but_for_binary_files(tmp_path: Path) -> None:
    assert sum(1 for _ in read_documents(written(tmp_path, "a.srt", SRT), "text")) == 2
    pdf = written(tmp_path, "a.en", PDF)
    must_raise("not a supported format: it looks like a PDF", read_documents, pdf, "text")
    must_refuse("it looks like a PDF", "translate", tmp_path, pdf, "--out", tmp_path / "a.de")
