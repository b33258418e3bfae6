"""Repetitions that made scanners slow, everything that meets the text of strangers, and the time it takes."""

# ruff: noqa: E501

import contextlib
import gc
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from html import escape
from typing import Any

from cotext.data.convert import Detokeniser
from cotext.data.faults import Checks, Fault
from cotext.data.formats.streams import markup_root, subtitle_kind
from cotext.data.splitting import Splitter, join_sentences
from cotext.data.tokenizer import SentencePieceTokenizer, TokenizerSettings
from cotext.data.tokenizer.protocol import clean
from cotext.data.words import placeholder_spans
from cotext.evaluation.metrics.contrastive import words_of
from cotext.files.block_sentences import cut, with_placeholders
from cotext.files.blocks import Block, Job, OpenedFile
from cotext.files.po import GRAMMARS
from cotext.files.strings import CatalogueString, Markers
from cotext.files.table import file_formats, named_format, recognise
from cotext.files.tags import project
from cotext.files.text import wrapped
from cotext.files.translate_blocks import without_added_stop
from cotext.language_models.config import UnusableError, read_numbered, read_plain, without_thoughts
from cotext.language_models.translator import is_echo, moved, suspicion
from cotext.runtime import CotextError
from cotext.serving.record import RequestError, without_paths
from cotext.serving.state import attachment, clean_name, result_name
from cotext.serving.translation import TagHandling, detect, fragment
from cotext.translation.terms.terms import Glossary, TermGuide
from tests.files import test_docx, test_epub, test_po, test_pptx
from tests.files.structures import xliff_of

SIZES = (1 << 10, 4 << 10, 16 << 10, 64 << 10)  # characters; the last two are what GROWTH is about
ENOUGH = 0.05  # seconds below which growth is not looked at
GROWTH = 6.0  # times, where text is four times as long
DRAWN = 60  # repetitions for each subject, of about 150
_LINEAR = 4.5  # times, or less: no larger text is tried, since a part that grows faster would show by now
_SHORT = ENOUGH / 64  # seconds for 16 KB: even cubic growth stays below ENOUGH for 64 KB
_SLOW, _TOO_SLOW = 0.1, 0.3  # seconds after which two sizes may tell, and after which they must
_TOO_LONG = 1.0  # seconds for the least size
_AGAIN = 3  # measurements of what looks slow, of which the shortest counts

# What is repeated, from a character to a beginning of markup that is never closed.
_UNITS = (
    *(" ", "\t", "\n", "\r", "\r\n", " \n", "  \n", "\\\n", "\u00a0", "\u3000", "a ", "a  ", "a\n", "a\t", "Ab ", "漢", "ก"),
    *("!", "?", ".", "-", "…", "。", "!?", "! ", ". ", "a.", "a. ", "A. ", "Mr. ", "؟ ", "｡ ", "1", "1.", "1. ", "00:", "é", "e\u0301"),
    *("<", "<a", "<a ", "<a>", "</a>", "<b>x", "<!--", "<!-- ", "<?", "<!DOCTYPE ", "<![CDATA[", "]]>", "</script", "<script>", "<p>x</p>"),
    *('="', "=\"' ", " a=b", "<a b='", "<meta charset=", "&", "&a", "&#", "&#1", "&lt;", "{", "}", "{a", "{{", "{%", "${", "{a, plural, "),
    *("one {x} ", "'{", "''", "'", '"', "`", "`` ", "“", "‘", "« ", " ’ ", "*", "**a", "_", "_a_", "~~", "#", "# ", "- ", "> ", "|", "| a", "\\", '\\"'),
    *("[", "[]", "[a", "[^", "[^a]", "![^", "[a](", "[a](b", "](", "[a]: ", "(", "(((", "()", "(a) ", "[1] ", "%", "%s", "%(", "%-", "%<", "~", "$A"),
    *("@", "a@b.", "/", "a/", "-/", "a-", "./", "C:\\-", "http://", "www.a", "\u0301", "\u200b", "\ufeff", "\u2028", "😀", "- a\n", "> a\n"),
    *("a: b\n", "? ", "- - ", "&a ", "|\n", "---\n", "{\\p1", "\\N", "♪", '"\n', "Content-Type:", "<seg ", "_eos ", "<EOS> "),
)  # fmt: skip
# What stands once before such a unit and makes the difference.
_AFTER = (
    *(("%(a)", "0"), ("%", "0"), ("%1$", " "), ("---\r\n", "a\r\n"), ("[1] x", " "), ("a@", ".a"), ("`", "``"), ("[a](b '", " ")),
    *(("# a", " #"), ("'", "{"), ("<a ", "a "), ("<p title='", "<"), ("http://", "("), ("&#x", "0"), ("1\n", " ")),
)  # fmt: skip


def repetitions(draw: random.Random) -> Iterator[tuple[str, Callable[[int], str]]]:
    """Texts of any size, with their names: some units again and again, between others; counted ones."""
    pairs = [*(("", unit) for unit in _UNITS), *_AFTER]
    for before, unit in draw.sample(pairs, DRAWN):
        between = before or draw.choice(["", "", "a "]), draw.choice(["", "x", "!", " a\n"])
        yield f"{between[0]}{unit}...{between[1]}", partial(_repeated, unit, *between)
    for form in ("{{{}}} ", "a{} ", "Ab{}, ", "<a{}>", "[a{}]"):
        yield f"{form} with numbers", partial(_counted, form)


def _repeated(unit: str, before: str, after: str, size: int) -> str:
    return before + unit * ((size - len(before) - len(after)) // len(unit)) + after


def _counted(form: str, size: int) -> str:
    return "".join(map(form.format, range(size // (len(form) + 3))))


def offence(subject: Callable[[str], object], text: Callable[[int], str]) -> str:
    """The seconds that a subject takes if these are more than linear; else nothing."""

    def least(size: int, times: int) -> float:
        return min(seconds(subject, text(size)) for _ in range(times))

    if (first := seconds(subject, text(SIZES[0]))) > _TOO_LONG:
        return f"{first:.2f} s for {SIZES[0]:,} characters"
    taken = [min(first, least(SIZES[0], 1))]
    for size in SIZES[1:]:
        taken.append(least(size, 2 if size == SIZES[1] else 1))
        if _is_linear(taken):
            return ""
        if taken[-1] > _TOO_SLOW:
            break
    sizes, (small, large) = SIZES[len(taken) - 2 : len(taken)], taken[-2:]
    if large > max(ENOUGH, GROWTH * small):
        # The least of several, since other processes change the caches of the processor.
        small, large = (least(size, _AGAIN) for size in sizes)
    if large <= max(ENOUGH, GROWTH * small):
        return ""
    return f"{small:.3f} s for {sizes[0]:,} characters, {large:.3f} s for {sizes[1]:,}"


def _is_linear(taken: list[float]) -> bool:
    """Whether the seconds for the first of SIZES already tell; what a subject always takes is left out."""
    if len(taken) == 2:
        return _SLOW < taken[1] <= _LINEAR * taken[0]
    first, second, third = taken[:3]
    return third <= _SHORT or third - second <= _LINEAR * (second - first)


def seconds(subject: Callable[[str], object], text: str) -> float:
    """The processor time that a subject takes for a text, which it may refuse."""
    gc.disable()  # as it looks at all objects of the process, now and then
    begun = time.process_time()
    try:
        with contextlib.suppress(CotextError, RequestError, UnusableError):
            subject(text)
        return time.process_time() - begun
    finally:
        gc.enable()


def _xml(text: str) -> str:
    return escape(text).replace("\ufeff", "")


def _book(text: str) -> bytes:
    return test_epub.book(**{"OEBPS/text/one.xhtml": test_epub.page(f"<p>x {text}</p>")})


def _po(text: str) -> str:
    return f'{test_po.HEADER}msgid {json.dumps(text, ensure_ascii=False)}\nmsgstr ""\n'


def _files() -> dict[str, Callable[[str], tuple[str, bytes]]]:
    """Files around a text, by what they are: name and content."""
    found: dict[str, Callable[[str], tuple[str, bytes]]] = {}

    def add(what: str, name: str, content: Callable[[str], str | bytes]) -> None:
        def made(text: str) -> tuple[str, bytes]:
            whole = content(text)
            return name, whole.encode() if isinstance(whole, str) else whole

        found[what] = made

    for what, name in (("html", "a.html"), ("xhtml", "a.xhtml"), ("markdown", "a.md"), ("prose", "a.txt"),
                       ("po", "a.po"), ("srt", "a.srt"), ("vtt", "a.vtt"),
                       ("xliff", "a.xlf")):  # fmt: skip
        add(f"{what}, nothing else", name, lambda text: text)
    add("html, in a paragraph", "a.html", lambda text: f"<!DOCTYPE html><p>x {text}</p>")
    add("html, as text", "a.html", lambda text: f"<!DOCTYPE html><p>x {escape(text)}</p>")
    add("html, in an attribute", "a.html", lambda text: f"<p>x<img alt='{escape(text)}' {text}>y")
    add("html, in a title", "a.html", lambda text: f"<title>x {text}</title><textarea>{text}</textarea>")
    add("html, in a comment", "a.html", lambda text: f"<p>x<!-- {text}")
    add("html, in a script", "a.html", lambda text: f"<p>x</p><script>{text}")
    add("xhtml, in a paragraph", "a.xhtml", lambda text: f"<?xml version='1.0'?><p>x {text}</p>")
    add("docx", "a.docx", lambda text: test_docx.document(f"<w:p>{test_docx.run(_xml(text))}</w:p>"))
    add("pptx", "a.pptx", lambda text: test_pptx.presentation(test_pptx.run(_xml(text))))
    add("epub", "a.epub", lambda text: _book(_xml(text)))
    add("srt, in a cue", "a.srt", lambda text: f"1\n00:00:01,000 --> 00:00:02,000\nx {text}\n\n")
    add("vtt, in a cue", "a.vtt", lambda text: f"WEBVTT\n\n00:01.000 --> 00:02.000\nx {text}\n\n")
    add("xliff, in a unit", "a.xlf", lambda text: xliff_of(f"x {text}"))
    add("xliff, as text", "a.xlf", lambda text: xliff_of(f"x {_xml(text)}"))
    add("po, in a message", "a.po", _po)
    add("po, in a line", "a.po", lambda text: f'{test_po.HEADER}msgid "{text}"\nmsgstr ""\n')
    add("markdown, in a list", "a.md", lambda text: f"* x {text}\n")
    add("markdown, in a table", "a.md", lambda text: f"| x | y |\n|---|---|\n| {text} | z |\n")
    add("markdown, in a heading", "a.md", lambda text: f"# x {text}\n")
    add("markdown, in a link", "a.md", lambda text: f"x [a](b '{text}') ![{text}](c)\n")
    add("markdown, behind front matter", "a.md", lambda text: f"---\n{text}")
    add("prose, between texts", "a.txt", lambda text: f"A text. And another. {text} End\n" * 2)
    return found


FILES = _files()
# Files in which a sentence is no text, or the whole of it is damaged.
NO_TEXT = frozenset(
    what for what in FILES if what.endswith(("nothing else", "in a comment", "in a script", "front matter"))
)


def file_read_and_written(what: str) -> Callable[[str], object]:
    """A file recognised, read, cut into sentences, and written with other text."""

    def subject(text: str) -> None:
        name, content = FILES[what](text)
        recognise(content[: 1 << 18], name)
        opened = _opened(name, content)
        documents = []
        for blocks in opened.contents.documents:
            for block in blocks:
                cut(replace(block, pieces=with_placeholders(block.pieces, _TOKENIZER)), _ENGLISH.spans)
            documents.append([_changed(block) for block in blocks])
        opened.written(documents)

    return subject


def file_written(what: str) -> Callable[[str], object]:
    """A file of a few words whose translation is a text."""
    name, content = FILES[what]("A cat sleeps.")
    opened = _opened(name, content)
    documents = opened.contents.documents

    def subject(text: str) -> None:
        given = [
            [
                replace(each, pieces=project(each.pieces, f"x{text}", None)) if each.translate else each
                for each in blocks
            ]
            for blocks in documents
        ]
        opened.written(given)

    return subject


def _opened(name: str, content: bytes) -> OpenedFile:
    format = named_format(name) or file_formats()["prose"]
    return format.for_job(Job("en", "de", "all")).open(content, name)


def _changed(block: Block) -> Block:
    """The block with a word more in its first text, if it is to be translated."""
    at = next((n for n, piece in enumerate(block.pieces) if isinstance(piece, str)), None)
    if at is None or not block.translate:
        return block
    pieces = list(block.pieces)
    pieces[at] = f"neu {pieces[at]}"
    return replace(block, pieces=tuple(pieces))


_ENGLISH = Splitter("en")
_TOKENIZER = SentencePieceTokenizer.train(["A cat sleeps."], TokenizerSettings())


def _fragment(split: str, tags: TagHandling | None) -> Callable[[str], object]:
    def subject(text: str) -> None:
        part = fragment(text, split, tags, "text 1")
        for block in part.blocks:
            cut(replace(block, pieces=with_placeholders(block.pieces, _TOKENIZER)), _ENGLISH.spans)
        part.written([_changed(block) for block in part.blocks])

    return subject


def _tag_handling() -> Iterator[tuple[str, TagHandling]]:
    names = frozenset({"a", "p", "b"})
    for kind in ("xml", "html"):
        yield kind, TagHandling(kind)
        yield f"{kind}, no outline", TagHandling(kind, outline=False)
        yield f"{kind}, splitting tags", TagHandling(kind, outline=False, splitting=names)
        yield f"{kind}, ignored tags", TagHandling(kind, not_splitting=names, ignored=names)


def _terms(glossary: Glossary, **options: Any) -> Callable[[str], object]:
    def subject(text: str) -> None:
        guide = TermGuide([[text, text[:100]]], glossary, copied=[[["a", "%s"], []]], **options)
        guide.constraints(0, 0)
        guide.constraints(0, 1)

    return subject


def _texts() -> dict[str, Callable[[str], object]]:
    """Whatever else reads a text."""
    found: dict[str, Callable[[str], object]] = {}
    for language in ("", "en", "de", "el", "zh", "ja"):
        found[f"splitter {language or 'of any language'}"] = Splitter(language).spans
    for split in ("0", "1", "nonewlines"):
        found[f"plain text, split_sentences {split}"] = _fragment(split, None)
    for name, tags in _tag_handling():
        found[f"tag handler {name}"] = _fragment("1", tags)
    for split in ("0", "nonewlines"):
        found[f"tag handler html, split_sentences {split}"] = _fragment(split, TagHandling("html"))
    found["detector of languages"] = lambda text: detect(text, ["de", "en", "ja"])
    glossary = Glossary.of({"a": "b", "a a": "b b", "! !": "x", "A. A": "c", "cat": ("Katze", "Kater")})
    found["glossary matcher"] = _terms(glossary)
    found["glossary matcher, kept words"] = _terms(glossary, keep=("a", "1 1"))
    found["placeholders"] = placeholder_spans
    for pattern, flag in {grammar.pattern: flag for flag, grammar in GRAMMARS.items()}.items():
        found[f"strings of {flag}"] = partial(_string, Markers(pattern, "&_", True))
    found["catalogue strings"] = partial(_string, Markers(None, "&_~"))
    found["elements placed in a translation"] = _projected
    found["added stops"] = lambda text: (
        without_added_stop("a", text, "de"),
        without_added_stop(text, "a.", "de"),
    )
    found["wrapping"] = lambda text: wrapped(text, 79)
    found["joined sentences"] = lambda text: join_sentences([text, text], "")
    found["normal form"] = clean
    found["markup of other formats"] = markup_root
    found["subtitles of other formats"] = lambda text: subtitle_kind(text.split("\n"))
    for language in ("en", "fr", "zh", "fi"):
        found[f"detokeniser {language}"] = partial(_detokenised, language)
    found["answers, numbered"] = lambda text: read_numbered(f"{text}\n[1] {text}\n{text}", 1)
    found["answers, plain"] = read_plain
    found["answers, with thoughts"] = lambda text: without_thoughts(f"<think>{text}", [text])
    found["checks of sentences"] = lambda text: (
        suspicion(text, "a"),
        suspicion("a", text),
        is_echo([text], [text]),
        moved([text, "a"], ["a", text]),
    )
    found["checks of a translation"] = lambda text: _faults(
        [(text, text[::-1]), (text, "a"), ("a", text), ("b", text)]
    )
    found["checks of lines"] = lambda text: _faults([(line, line[1:]) for line in text.split()])
    found["words"] = words_of
    found["names of files"] = lambda text: (
        clean_name(text),
        attachment(text),
        result_name(f"{text}.html", "en", "de"),
    )
    found["messages of errors"] = lambda text: without_paths(text, {})
    return found


def _faults(pairs: Sequence[tuple[str, str]]) -> list[list[Fault]]:
    checks = Checks(pairs)
    return [checks.faults(number) for number in range(len(pairs))]


def _detokenised(language: str, text: str) -> None:
    Detokeniser(language).sentence(text)


def _projected(text: str) -> None:
    for block in fragment(text, "0", TagHandling("html"), "text 1").blocks:
        project(block.pieces, f"{block.text} a", None)  # of an equal text, nothing has to be placed


def _string(markers: Markers, text: str) -> None:
    string = CatalogueString(text, markers)
    string.written([each.pieces for each in string.paragraphs])


TEXTS = _texts()
