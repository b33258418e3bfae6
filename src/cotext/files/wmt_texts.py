"""What is wrong with one hypothesis of a submission to WMT, beside its source."""

import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from cotext.data.formats.wmt import WmtLine
from cotext.data.formats.wmt_paragraphs import TextParser, paragraphs, unfenced
from cotext.data.languages import primary_language
from cotext.runtime.errors import CotextError, shown
from cotext.runtime.reading import parse_json

Severity = Literal["error", "warning"]

FAILED: Final = "FAILED"  # what the organisers' collector writes for a request without an answer
_FENCES: Final = re.compile(r"\A\s*```(?:json)?\s*|(?:(?<!\s)\s++)?```\s*\Z", re.IGNORECASE)
_TRAILING_COMMA: Final = re.compile(r",\s*([}\]])")
_PLACEHOLDER: Final = re.compile(r"\{\{[^{}]*\}\}|[%$]?\{[^{}\s]*\}|%(?:\d+\$)?[sd]")
_MARKS: Final = re.compile(
    r"</?think>|<\|[\w ]{1,40}\|>|\[/?INST\]|</?s>|<(?:pad|unk|bos|eos)>|<(?:start|end)_of_turn>"
    r"|assistantfinal"
)
_PREFACE: Final = re.compile(
    r"\s*(?:\*\*)?(?:(?:(?:sure|certainly|of course|okay|ok)[,.!] )?"
    r"here(?:'s|’s| is| are)[^\n]{0,60}\btranslat\w+[^\n]{0,60}:|"
    r"(?:the )?translat(?:ion|ed text)\b[^\n]{0,40}:|let me translate\b|i(?:'ll| will) translate\b)",
    re.IGNORECASE,
)
_REFUSAL: Final = re.compile(
    r"\s*(?:i['’]m sorry,? (?:but )?i|i (?:cannot|can['’]t|am unable to)|as an ai\b)", re.IGNORECASE
)
_ECHO: Final = 40  # characters of an instruction that no translation has by chance
_LONG: Final = 500  # characters from which on a text can be said to repeat itself
_VOID: Final = frozenset({"br", "hr", "img", "input", "meta", "link", "wbr", "source", "col", "area"})
_MAY_STAY_OPEN: Final = frozenset({"li", "dt", "dd", "tr", "td", "th", "option"})
_SCRIPTS: Final = {
    "Cyrl": "CYRILLIC",
    "Latn": "LATIN",
    "Arab": "ARABIC",
    "Deva": "DEVANAGARI",
    "Armn": "ARMENIAN",
    "Grek": "GREEK",
    "Hebr": "HEBREW",
    "Thai": "THAI",
    "Hang": "HANGUL",
    "Hans": "CJK",
    "Hant": "CJK",
    "Jpan": "CJK HIRAGANA KATAKANA",
}
_SCRIPT_OF: Final = {
    **dict.fromkeys(("ru", "uk", "be", "bg", "mk", "kk"), "Cyrl"),
    **dict.fromkeys(("cs", "de", "en", "es", "et", "fr", "is", "it", "pl", "se", "vi", "id", "lij"), "Latn"),
    **dict.fromkeys(("ar", "arz", "fa", "ur"), "Arab"),
    **dict.fromkeys(("hi", "mr", "bho"), "Deva"),
    **{"hy": "Armn", "el": "Grek", "he": "Hebr", "th": "Thai", "ko": "Hang", "zh": "Hans", "ja": "Jpan"},
}
_LETTERS: Final = 50  # that a text needs for a word about its script


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong: a kind, by which faults are gathered, and the words for this one."""

    kind: str
    message: str
    severity: Severity = "error"


@dataclass(frozen=True, slots=True)
class Counts:
    """Paragraphs or entries on both sides, as the organisers count them; None where JSON is broken."""

    kind: Literal["json", "html"]
    source: int
    hypothesis: int | None

    @property
    def aligned(self) -> bool:
        """Whether both sides have equally many."""
        return self.source == self.hypothesis


def organisers_counts(source: str, hypothesis: str) -> Counts | None:
    """The counts of genmt_check_alignment.py of 2026: entries of fenced JSON, or `<p>`; None for others."""
    source, hypothesis = source.strip(), hypothesis.strip()
    if source.startswith("```json"):
        wanted, found = _tolerant_entries(source), _tolerant_entries(hypothesis)
        return None if wanted is None else Counts("json", wanted, found)
    if source.startswith("<p>"):
        return Counts("html", source.count("<p>"), hypothesis.count("<p>"))
    return None


def _tolerant_entries(text: str) -> int | None:
    try:
        return _entries(_tolerant(text))
    except CotextError:
        return None


def _tolerant(text: str) -> Any:
    """JSON, in a fence or in half of one, with commas before brackets that it must not have."""
    bare = _FENCES.sub("", text)
    try:
        return parse_json(bare, "")
    except CotextError:
        return parse_json(_TRAILING_COMMA.sub(r"\1", bare), "")


def _entries(value: Any) -> int:
    return len(value) if isinstance(value, dict | list) else 1


def faults_of(line: WmtLine, source: WmtLine) -> Iterator[Fault]:
    """The faults of a hypothesis; an empty one has no other, and none where the source is empty."""
    text, original = line.hypothesis or "", source.source or ""
    if not text.strip() and not original.strip():
        return
    if not text.strip() or text.strip() == FAILED:
        yield Fault("empty", f"the hypothesis is {'the word FAILED' if text.strip() else 'empty'}")
        return
    yield from _of_structure(text, original)
    yield from _of_leftovers(text, original, source.instruction, line.target_language)
    yield from _of_characters(text, original, line.target_language)


def _of_structure(text: str, original: str) -> Iterator[Fault]:
    given, found = paragraphs(original), paragraphs(text)
    if given.kind == "json":
        yield from _of_json(text, original)
    elif given.kind == "html":
        yield from _of_html(text, original)
    elif given.kind == found.kind and len(given.texts) != len(found.texts):
        yield Fault("paragraphs", f"{len(found.texts)} paragraphs, and the source has {len(given.texts)}")
    elif given.kind != found.kind:
        yield Fault("kind", f"is {found.kind.upper()}, and the source is plain text")
    else:
        lines = [len(each.strip().split("\n")) for each in (text, original)]
        if lines[0] != lines[1]:
            yield Fault("lines", f"{lines[0]} lines, and the source has {lines[1]}", "warning")
    if given.kind == found.kind and len(given.texts) == len(found.texts):
        empty = [n for n, (a, b) in enumerate(zip(given.texts, found.texts, strict=True), 1) if a and not b]
        if empty:
            more = f" and {len(empty) - 1} more" if empty[1:] else ""
            yield Fault("empty paragraph", f"paragraph {empty[0]}{more} has no translation")


def _of_json(text: str, original: str) -> Iterator[Fault]:
    if bool(unfenced(text)[0]) != bool(unfenced(original)[0]):
        there = "is not" if unfenced(original)[0] else "is"
        yield Fault("fence", f"{there} in a fence (```), unlike the source", "warning")
    try:
        wanted = parse_json(unfenced(original)[1], "")
    except CotextError:
        return  # numbers that no program reads
    try:
        value = parse_json(unfenced(text)[1], "")
    except CotextError as error:
        try:
            value = _tolerant(text)
        except CotextError:
            yield Fault("json", str(error).removeprefix(": "))
            return
        yield Fault("json", "valid JSON only after fences or commas too many are taken away", "warning")
    if _entries(value) != _entries(wanted):
        yield Fault("entries", f"{_entries(value)} entries, and the source has {_entries(wanted)}")
        return
    texts: list[tuple[str, str]] = []
    if (place := _difference(wanted, value, texts)) is not None:
        where = place or "its top"
        yield Fault("keys", f"keys, or values that are no texts, differ from the source at {where}")
        return
    for theirs, ours in texts:
        if Counter(_PLACEHOLDER.findall(ours)) != Counter(_PLACEHOLDER.findall(theirs)):
            yield Fault("placeholders", f"placeholders differ: {shown(theirs)} became {shown(ours)}")
            return


def _difference(wanted: Any, found: Any, texts: list[tuple[str, str]]) -> str | None:
    """Where two values differ in more than their texts, as a path of keys; None, and `texts`, if nowhere."""
    waiting = [("", wanted, found)]
    while waiting:
        path, first, second = waiting.pop()
        if isinstance(first, str) and isinstance(second, str):
            texts.append((first, second))
        elif isinstance(first, dict) and isinstance(second, dict):
            if unlike := first.keys() ^ second.keys():
                return f"{path}.{min(unlike)}".lstrip(".")
            waiting += [(f"{path}.{key}".lstrip("."), first[key], second[key]) for key in reversed(first)]
        elif isinstance(first, list) and isinstance(second, list):
            if len(first) != len(second):
                return f"{path} ({len(second)} values for {len(first)})".strip()
            pairs = list(enumerate(zip(first, second, strict=True)))
            waiting += [(f"{path}[{n}]", a, b) for n, (a, b) in reversed(pairs)]
        elif first != second or isinstance(first, bool) != isinstance(second, bool):
            return path
    return None


def _of_html(text: str, original: str) -> Iterator[Fault]:
    wanted, found = original.count("<p>"), text.count("<p>")
    if wanted != found:
        yield Fault("paragraphs", f"{found} <p>, and the source has {wanted}")
    given, own = _Tags.of(original), _Tags.of(text)
    if own.unbalanced and not given.unbalanced:
        yield Fault("html", f"<{own.unbalanced}> is not opened and closed in turn")
    other = {tag for tag in {*given.count, *own.count} if tag != "p" and given.count[tag] != own.count[tag]}
    if other:
        told = ", ".join(f"<{tag}> {own.count[tag]} for {given.count[tag]}" for tag in sorted(other))
        yield Fault("tags", f"other numbers of tags than the source: {told}", "warning")


class _Tags(TextParser):
    """The tags of a text: how many of each, and the first that is not closed in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()
        self.unbalanced = ""
        self._open: list[str] = []

    @classmethod
    def of(cls, text: str) -> "_Tags":
        tags = cls()
        tags.feed(text)
        tags.close()
        tags.unbalanced = tags.unbalanced or next(
            (tag for tag in tags._open if tag not in _MAY_STAY_OPEN), ""
        )
        return tags

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] += 1
        if tag == "p" and "p" in self._open:
            self.unbalanced = self.unbalanced or tag
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open[-1] != tag and self._open[-1] in _MAY_STAY_OPEN:
            self._open.pop()
        if self._open and self._open[-1] == tag:
            self._open.pop()
        elif tag not in _VOID:
            self.unbalanced = self.unbalanced or tag


def _of_leftovers(text: str, original: str, instruction: str, language: str) -> Iterator[Fault]:
    mark = next((m for m in _MARKS.findall(text) if m not in original), None)
    if mark is not None:
        yield Fault("leftover", f"holds {mark}, which the source has not")
    if "```" in text and "```" not in original:
        yield Fault("leftover", "holds a fence (```), which the source has not")
    opening = instruction.strip()[:_ECHO]
    if len(opening) == _ECHO and opening in text and opening not in original:
        yield Fault("leftover", f"repeats its instruction: {shown(opening)}")
    english = primary_language(language) == "en"
    for pattern, what in ((_PREFACE, "a preface"), (_REFUSAL, "a refusal")):
        match = pattern.match(text)
        if match and not pattern.match(original):
            said = f"begins like {what} of a language model: {shown(match[0].strip())}"
            yield Fault("leftover", said, "warning" if english else "error")


def _of_characters(text: str, original: str, language: str) -> Iterator[Fault]:
    if text.strip() == original.strip() and sum(map(str.isalpha, text)) >= _ECHO:
        yield Fault("copy", "is the source, untranslated", "warning")
    odd = {
        c
        for c in text
        if c not in original and (c == "\ufffd" or (unicodedata.category(c) == "Cc" and c not in "\n\r\t"))
    }
    if odd:
        names = ", ".join(f"U+{ord(c):04X}" for c in sorted(odd))
        yield Fault("characters", f"holds {names}, which no text needs", "warning")
    if len(text) >= _LONG and _evenness(text) > 10 and _evenness(original) < 5:
        yield Fault("repetition", "says the same again and again", "warning")
    script = next((part for part in language.split("_") if part in _SCRIPTS), None)
    script = script or _SCRIPT_OF.get(primary_language(language))
    words = _PLACEHOLDER.sub("", " ".join(paragraphs(text).texts))
    letters = [c for c in words if c.isalpha()]
    if script is not None and len(letters) >= _LETTERS:
        own = tuple(_SCRIPTS[script].split())
        share = sum(unicodedata.name(c, "").startswith(own) for c in letters) / len(letters)
        if share < 0.3:
            yield Fault("script", f"{share:.0%} of its letters are of the script of {language}", "warning")


def _evenness(text: str) -> float:
    content = text.encode(errors="replace")
    return len(content) / len(zlib.compress(content)) if content else 0.0
