"""PO: message catalogues of gettext, and their templates (POT).

A message is one block or several (see `cotext.files.strings`), and a file is one document. Only msgstr
and the flag fuzzy change; comments, contexts and obsolete entries are kept. In the header of a template, only
the charset is filled in; `msginit` does the rest.

By default, entries with a translation, also fuzzy ones, are kept as context. With `--entries unfinished`,
fuzzy entries are translated, too, and lose their flag; with `--entries all`, all entries are translated. With
plural forms, the first form is the translation of the singular, and all others are the translation of the
plural. A single form is the translation of the plural. If there are more than two forms, they cannot all be
right: the entry is marked fuzzy, with a message.

The package polib is not used, because it rewrites files, with other line breaks.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final

from cotext.data.documents import Languages
from cotext.files.blocks import ANY, Block, Copied, FileFormat, Job, Piece
from cotext.files.places import Decoded, Edit, Slot, SplicedFile, decoded
from cotext.files.strings import CatalogueString, Markers, wrapped
from cotext.runtime import CotextError, shown

# --- Placeholders of messages, by the flag of an entry, such as `c-format`.

# A width does not begin with 0, which is a flag. Otherwise matching a run of zeros takes quadratic time.
_PRINTF = r"%(?:\d+\$)?[-+ #0'I]*(?:\*(?:\d+\$)?|[1-9]\d*)?(?:\.(?:\*(?:\d+\$)?|\d+)?)?"
_BRACES = r"\{\{|\}\}|\{[^{}\s][^{}]*\}|\{\}"
_C = _PRINTF + r"(?:(?:hh|h|ll|l|L|q|j|z|t)?[diouxXeEfFgGaAcsCSpnm@]|<PRI[A-Za-z0-9]+>|%)|%<PRI\w+>"
_PYTHON = r"%(?:\([^()]*\))?[-+ #0]*(?:\*|[1-9]\d*)?(?:\.(?:\*|\d+))?[hlL]?[diouxXeEfFgGcrsa%]"


@dataclass(frozen=True, slots=True)
class Grammar:
    """Syntax of placeholders.

    `by_order`: placeholders without name and number take the next argument. `numbered`: they may have a
    number, such as `%2$s`.
    """

    pattern: re.Pattern[str]
    by_order: bool = False
    numbered: bool = False


_WRITTEN_AS: Final = (
    ("c objc gcc-internal gfc-internal php java-printf", _C, True, True),
    ("awk lua perl tcl pascal object-pascal javascript ycp librep elisp", _C, True, False),
    ("python", _PYTHON, True, False),
    ("ruby", r"%(?:<\w+>|\{\w+\})|" + _C, True, False),
    ("boost", r"%(?:\d+%|\|[^|%]*\||" + _C[1:] + ")", True, False),
    ("go", _PRINTF + r"(?:\[\d+\])?[A-Za-z%]", True, False),
    ("python-brace rust", _BRACES, False, False),
    ("csharp java", r"\{\d+(?:,[^{}]*)?(?::[^{}]*)?\}|\{\{|\}\}", False, False),
    ("perl-brace", r"\{\w+\}", False, False),
    ("qt", r"%L?\d{1,2}", False, False),
    ("qt-plural", r"%L?n|%L?\d{1,2}", False, False),
    ("kde kde-kuit", r"%\d{1,2}", False, False),
    ("sh", r"\$\w+|\$\{\w+\}", False, False),
    ("smalltalk", r"%\d|%<[^>]{0,1000}>", False, False),
    ("scheme lisp", r"~[-+\d,'@:]*[A-Za-z~%]", False, False),
)
GRAMMARS: Final[dict[str, Grammar]] = {
    f"{name}-format": Grammar(re.compile(pattern), by_order, numbered)
    for names, pattern, by_order, numbered in _WRITTEN_AS
    for name in names.split()
}
_NAMED_OR_NUMBERED: Final = re.compile(r"%(?:\d+\$|\(|\{|<(?!PRI))")


def grammar_of(flags: Sequence[str]) -> Grammar | None:
    """Return the grammar for the flags of an entry, or None."""
    return next((GRAMMARS[flag] for flag in flags if flag in GRAMMARS), None)


def with_arguments(
    own: Sequence[Sequence[Piece]], given: Sequence[Sequence[Piece]], grammar: Grammar | None
) -> tuple[list[list[Piece]], bool]:
    """Return a translation whose placeholders are corrected if possible, and whether they are now right.

    If the order of placeholders without numbers ("%s: %d") has changed, they get numbers ("%2$d, %1$s"). If
    the grammar has no numbers, they cannot be corrected. Nor can they if the translation has more braces or
    percent signs than the source, as in "{name}}" for "{name}".
    """
    kept = [list(pieces) for pieces in given]
    in_source = _by_order(own)
    if grammar is None:
        return kept, True
    text, text_of_source = _uncopied(given), _uncopied(own)
    if any(text.count(mark) > text_of_source.count(mark) for mark in "{}%"):
        return kept, False
    if not grammar.by_order or in_source == _by_order(given):
        return kept, True
    if not grammar.numbered or any("*" in copied.text for _, copied in in_source):
        return kept, False
    for number, (paragraph, copied) in enumerate(in_source, 1):
        at = kept[paragraph].index(copied)
        kept[paragraph][at] = Copied(copied.key, f"%{number}${copied.text[1:]}")
    return kept, True


def _uncopied(paragraphs: Sequence[Sequence[Piece]]) -> str:
    return "".join(piece for pieces in paragraphs for piece in pieces if isinstance(piece, str))


def _by_order(paragraphs: Sequence[Sequence[Piece]]) -> list[tuple[int, Copied]]:
    return [
        (paragraph, piece)
        for paragraph, pieces in enumerate(paragraphs)
        for piece in pieces
        if isinstance(piece, Copied)
        and piece.text.startswith("%")
        and piece.text not in ("%%", "%m")
        and not _NAMED_OR_NUMBERED.match(piece.text)
    ]


MAX_ENTRIES: Final = 1_000_000
MAX_FORMS: Final = 10  # plural forms
_WIDTH: Final = 79
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_KEYWORD = re.compile(
    r"\s*(msgctxt|msgid_plural|msgid|msgstr(?:\[(\d{1,2})\])?)\s*(\"(?:[^\"\\]|\\.)*\")\s*$"
)
_CONTINUED = re.compile(r"\s*(\"(?:[^\"\\]|\\.)*\")\s*$")
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|(.))", re.DOTALL)
_NAMED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_WRITTEN = {"\\": "\\\\", '"': '\\"', **{character: f"\\{name}" for name, character in _NAMED.items()}}
# The second alternative consumes lines without a charset, so that each line is searched only once.
_CHARSET = re.compile(
    rb"Content-Type:[^\"\n]{0,1000}?charset=([\w.:-]+)|Content-Type:[^\"\n]*", re.IGNORECASE
)
_HEAD = re.compile(rb"(?:\s|#[^\n]*\n)*(?:msgctxt|msgid)\s*\"")


@dataclass(slots=True)
class _Text:
    """A decoded string of an entry, and its span from the keyword to the last quote."""

    start: int
    stop: int
    text: str
    lines: int = 1


@dataclass(slots=True)
class _Entry:
    line: int
    start: int  # of the keywords
    flags: list[tuple[int, int, str]] = field(default_factory=list)  # lines with flags: start, stop, text
    texts: dict[str, _Text] = field(default_factory=dict)
    forms: dict[int, _Text] = field(default_factory=dict)  # msgstr by number

    def flagged(self) -> list[str]:
        return [flag.strip() for _, _, line in self.flags for flag in line.split(",") if flag.strip()]


def _recognises(head: bytes) -> bool:
    """Recognise a catalogue by the first keyword after comments."""
    return _HEAD.match(head.removeprefix(b"\xef\xbb\xbf")) is not None and b"msgstr" in head


def _open(content: bytes, name: str, job: Job = ANY) -> SplicedFile:
    """Read a catalogue; raise CotextError for an invalid line, with its number, or another language."""
    charset = next((match[1].decode() for match in _CHARSET.finditer(content) if match[1]), "utf-8")
    source = decoded(content, name, "utf-8" if charset == "CHARSET" else charset)
    return _Catalogue(source, list(_entries(source.text, name)), job).opened()


def _entries(text: str, name: str) -> Iterator[_Entry]:
    entry: _Entry | None = None
    flags: list[tuple[int, int, str]] = []
    current: _Text | None = None
    for number, match in enumerate(_LINE.finditer(text), 1):
        line = match[0].rstrip("\r\n")
        bare = line.strip()
        if not bare or bare.startswith("#"):
            current = None
            if bare.startswith("#,"):
                flags.append((match.start(), match.end(), bare[2:]))
            elif not bare:
                flags = []
            continue
        stop = match.start() + len(line.rstrip())
        if continued := _CONTINUED.match(line):
            if current is None:
                raise CotextError(f"{name}:{number}: text without a keyword; msgid or msgstr is missing")
            current.text += _unescaped(continued[1], f"{name}:{number}")
            current.stop, current.lines = stop, current.lines + 1
            continue
        keyword = _KEYWORD.match(line)
        if keyword is None:
            raise CotextError(
                f"{name}:{number}: not a line of a catalogue: {shown(bare)}; expected a comment, or msgctxt, "
                "msgid, msgid_plural or msgstr and a text in quotes"
            )
        current = _Text(match.start(), stop, _unescaped(keyword[3], f"{name}:{number}"))
        begins = keyword[1] == "msgctxt" or (
            keyword[1] == "msgid" and (entry is None or "msgid" in entry.texts or bool(entry.forms))
        )
        if begins:
            if entry is not None:
                yield _whole(entry, name)
            entry = _Entry(number, match.start(), flags)
            flags = []
        if entry is None:
            raise CotextError(f"{name}:{number}: {keyword[1]} before the first msgid")
        _take(entry, keyword, current, f"{name}:{number}")
    if entry is not None:
        yield _whole(entry, name)


def _take(entry: _Entry, keyword: re.Match[str], text: _Text, where: str) -> None:
    if keyword[1].startswith("msgstr"):
        form = int(keyword[2] or 0)
        if form in entry.forms or "msgid" not in entry.texts:
            raise CotextError(
                f"{where}: {keyword[1]} out of place; an entry must have one msgid, and each msgstr only once"
            )
        if (keyword[2] is not None) != ("msgid_plural" in entry.texts):
            raise CotextError(f"{where}: with msgid_plural, write msgstr[n]; without it, write msgstr")
        entry.forms[form] = text
    elif keyword[1] in entry.texts or entry.forms:
        raise CotextError(f"{where}: {keyword[1]} out of place; the msgstr of the entry before is missing")
    else:
        entry.texts[keyword[1]] = text


def _whole(entry: _Entry, name: str) -> _Entry:
    if "msgid" not in entry.texts or not entry.forms:
        raise CotextError(f"{name}:{entry.line}: an entry without msgid or msgstr; complete or remove it")
    if sorted(entry.forms) != list(range(len(entry.forms))):
        raise CotextError(f"{name}:{entry.line}: plural forms are missing; number them from 0")
    return entry


def _unescaped(quoted: str, where: str) -> str:
    def character(escape: re.Match[str]) -> str:
        if escape[3] is not None:
            return _NAMED.get(escape[3], escape[3])
        code = int(escape[1], 8) if escape[1] else int(escape[2], 16)
        if not 0 < code < 128:
            raise CotextError(f"{where}: the escape {escape[0]} is not ASCII; write the character itself")
        return chr(code)

    return _ESCAPE.sub(character, quoted[1:-1])


def _header(entries: Sequence[_Entry]) -> tuple[_Entry | None, dict[str, str]]:
    """Return the entry of the header, if there is one, and its fields by name in lower case."""
    header = next((e for e in entries if not e.texts["msgid"].text and "msgctxt" not in e.texts), None)
    lines = header.forms[0].text.splitlines() if header else []
    fields = (line.split(":", 1) for line in lines if ":" in line)
    return header, {key.strip().lower(): value.strip() for key, value in fields}


class _Catalogue:
    """Reads the entries of a catalogue as slots."""

    def __init__(self, source: Decoded, entries: list[_Entry], job: Job) -> None:
        if len(entries) > MAX_ENTRIES:
            raise CotextError(f"{source.name}: more than {MAX_ENTRIES:,} entries; split the catalogue")
        self._source, self._text, self._job, self._entries = source, source.text, job, entries
        self._break = "\r\n" if "\r\n" in source.text else "\n"
        self._header, self._fields = _header(entries)
        stated, wanted = self._fields.get("language", ""), job.target_language
        if Languages.parse(f"-{stated}").contradicts(Languages.parse(f"-{wanted}")):
            raise CotextError(
                f"{source.name}: its header has the language {shown(stated)}, but the run translates into "
                f"{wanted}; use a run for this language, or correct the header"
            )
        plurals = re.search(r"nplurals\s*=\s*(\d{1,3})", self._fields.get("plural-forms", ""))
        self._forms = min(max(int(plurals[1]), 1), MAX_FORMS) if plurals else 0  # 0: unknown
        self._messages: list[str] = []

    def opened(self) -> SplicedFile:
        slots: list[Slot] = []
        kept = fuzzy_kept = 0
        for entry in self._entries:
            if entry is self._header:
                continue
            fuzzy = "fuzzy" in entry.flagged()
            translated = all(form.text for form in entry.forms.values())
            wanted = self._job.entries == "all" or not translated
            if fuzzy and translated and self._job.entries == "untranslated":
                fuzzy_kept += 1
            elif fuzzy:
                wanted = True
            elif not wanted:
                kept += 1
            slots += self._slots(entry, wanted)
        if "expression" in self._fields.get("plural-forms", "").lower():
            self._messages.append(
                "a template: its header has no language and no plural forms; make a catalogue from it "
                "first, with `msginit --locale LANGUAGE`"
            )
        if kept:
            self._messages.append(f"translated entries kept, and used as context: {kept}")
        if fuzzy_kept:
            self._messages.append(
                f"fuzzy entries kept: {fuzzy_kept}; use --entries unfinished to translate them"
            )
        edits: list[Edit] = []  # fills in the charset of a template
        if (header := self._header) is not None:
            at = self._text.find("charset=CHARSET", header.start, header.forms[0].stop)
            edits = [(at, at + len("charset=CHARSET"), "charset=UTF-8")] if at >= 0 else []
        return SplicedFile(self._source, [slots], self._messages, True, edits)

    def _slots(self, entry: _Entry, wanted: bool) -> Iterator[Slot]:
        grammar = grammar_of(entry.flagged())
        marker = self._fields.get("x-accelerator-marker", "")
        markers = Markers(
            grammar.pattern if grammar else None,
            marker if len(marker) == 1 else "&_~",
            within_words=len(marker) == 1,
        )
        keys = [key for key in ("msgid", "msgid_plural") if key in entry.texts]
        strings = [CatalogueString(entry.texts[key].text, markers) for key in keys]
        context = f" ({shown(entry.texts['msgctxt'].text)})" if "msgctxt" in entry.texts else ""
        blocks = tuple(
            Block(paragraph.pieces, f"line {entry.line}{context}", translate=wanted)
            for string in strings
            for paragraph in string.paragraphs
        )
        if not blocks:
            return
        if wanted and len(strings) > 1 and max(self._forms, len(entry.forms)) > 2:
            self._messages.append(
                f"line {entry.line}: {max(self._forms, len(entry.forms))} plural forms are needed, but the "
                "source has two; all but the first are the translation of the plural, and the entry is "
                "marked fuzzy"
            )
        yield Slot(blocks, partial(self._edits, entry, strings))

    def _edits(
        self, entry: _Entry, strings: Sequence[CatalogueString], blocks: Sequence[Block]
    ) -> Iterable[Edit]:
        grammar = grammar_of(entry.flagged())
        doubtful = False
        texts: list[str] = []
        remaining = iter(blocks)
        for string in strings:
            source_pieces = [paragraph.pieces for paragraph in string.paragraphs]
            translated = [block.pieces for block in islice(remaining, len(source_pieces))]
            given, reliable = with_arguments(source_pieces, translated, grammar)
            doubtful |= not reliable
            texts.append(string.written(given))
        forms = [texts[0]]
        is_kept = self._job.entries != "all" and "fuzzy" not in entry.flagged()
        if len(strings) > 1:
            count = max(self._forms, len(entry.forms))
            forms = [texts[1]] if count == 1 else [texts[0], *[texts[1]] * (count - 1)]
            doubtful |= count > 2
        for number, text in enumerate(forms):
            literal = self._literal(text, entry.texts["msgid"].lines)
            if number in entry.forms:
                old = entry.forms[number]
                keyword = self._text[old.start : self._text.index('"', old.start)]
                if not (is_kept and old.text):
                    yield old.start, old.stop, keyword + literal
            else:
                last = entry.forms[len(entry.forms) - 1].stop
                yield last, last, f"{self._break}msgstr[{number}] {literal}"
        if doubtful and "fuzzy" not in entry.flagged():
            yield entry.start, entry.start, f"#, fuzzy{self._break}"
        if not doubtful:
            for start, stop, flags in entry.flags:
                kept = [flag.strip() for flag in flags.split(",") if flag.strip() != "fuzzy"]
                if "fuzzy" in flags:
                    yield start, stop, f"#, {', '.join(kept)}{self._break}" if any(kept) else ""

    def _literal(self, text: str, lines: int) -> str:
        """Return a text in quotes, on several lines if its msgid is on several lines."""
        if lines == 1:
            return f'"{_escaped(text)}"'
        written: list[str] = []
        for line in re.findall(r"[^\n]*\n|[^\n]+", text):
            parts = list(wrapped(_escaped(line), _WIDTH - 3))
            written += [f'"{part} "' for part in parts[:-1]] + [f'"{parts[-1]}"']
        return self._break.join(['""', *written])


def _escaped(text: str) -> str:
    return "".join(_WRITTEN.get(character, character) for character in text)


def translated_documents(
    content: bytes, name: str, every: bool = False
) -> tuple[tuple[str, str], list[list[tuple[str, str]]]]:
    """Return the language codes, and one document with the pairs of translated, not fuzzy entries.

    The target language is that of the header; the source language is empty. Only the first plural form is
    returned. `every`: include fuzzy and untranslated entries, and keep spaces.
    """
    entries = [*_entries(decoded(content, name).text, name)]
    languages = "", _header(entries)[1].get("language", "")
    texts = [(e.texts["msgid"].text, e.forms[0].text) for e in entries if every or "fuzzy" not in e.flagged()]
    if every:
        return languages, [[pair for pair in texts if pair[0]]]
    pairs = ((" ".join(source.split()), " ".join(target.split())) for source, target in texts)
    return languages, [[pair for pair in pairs if all(pair)]]


FORMAT: Final = FileFormat("po", (".po", ".pot"), _recognises, _open, bilingual=True)
