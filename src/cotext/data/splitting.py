"""Splitting of text into sentences, and joining of sentences into a line.

The rules for sentence boundaries are based on punctuation, capitalisation and abbreviations. They need no
other package and no model, and run in linear time. Their accuracy on annotated paragraphs and on real text is
in docs/results/sentences-and-files.md.
"""

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final
from unicodedata import normalize

from cotext.runtime import CotextError, read_text

RULES: Final = 2  # version of the rules
UNSPACED: Final = frozenset({"zh", "ja"})  # written without a space between sentences
LONGEST: Final = 20  # characters of an abbreviation given by a user
# Languages in which "3." means "third", inside a sentence.
_ORDINAL = "de da no nb nn fi is et lv cs sk pl hu hr sl sr bs tr lb"
ORDINAL: Final = frozenset(_ORDINAL.split())
# Languages with words without a vowel, such as "vlk" (wolf).
SYLLABIC: Final = frozenset(["cs", "sk", "hr", "sl", "sr", "bs", "mk"])


@cache
def _word_lists() -> dict[tuple[str, str], frozenset[str]]:
    """Return the words in sentence_ends.txt by kind and language."""
    lists: dict[tuple[str, str], frozenset[str]] = {}
    text = Path(__file__).with_name("sentence_ends.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if not line.startswith("#"):
            kind, language, words = line.split(maxsplit=2)
            lists[kind, language] = lists.get((kind, language), frozenset()).union(words.split())
    return lists


@cache
def words_of(kind: str, language: str) -> frozenset[str]:
    """Return the words of a kind (see sentence_ends.txt) for a language; if it is "", for all languages."""
    lists = [words for key, words in _word_lists().items() if key[0] == kind and language in ("", key[1])]
    return frozenset().union(*lists)


def read_abbreviations(path: Path) -> frozenset[str]:
    """Read a file with one abbreviation per line, with or without full stop; # begins a comment line.

    Raises CotextError if a line is not an abbreviation; also the errors of `read_text`.
    """
    abbreviations = set()
    for number, line in enumerate(read_text(path).splitlines(), 1):
        abbreviation = "".join(line.split())
        if not abbreviation or abbreviation.startswith("#"):
            continue
        if len(abbreviation) > LONGEST or not any(map(str.isalpha, abbreviation)):
            raise CotextError(
                f"{path}:{number}: not an abbreviation; write one per line, such as Dr. (at most {LONGEST} "
                "characters)"
            )
        abbreviations.add(abbreviation)
    return frozenset(abbreviations)


# Scripts without a space between sentences. Thai does not belong here: it has a space between sentences, but
# none between words.
UNSPACED_CHARACTER: Final = re.compile("[\u2e80-\u303f\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]")
_STRONG: Final = frozenset("!?！？؟፧;\u037e")
_BRACKETS: Final = {")": "(", "）": "（", "]": "[", "】": "【", "〕": "〔"}
# Time is linear: quantifiers are possessive, and a match begins only where a run of punctuation begins.
_WIDE = r"[。！？｡][。！？｡…!?]*+[\"'”’」』）】〕》〉)\]]*+"
_OTHER = r"[{marks}]++(?:[\"'”’“‘»«›)\]」』）】]++|[\s\u202f]++»(?=[\s,.;:!?)]|\Z))*+"
_MARKS: Final = ".!?…۔؟។։።፧။।॥\u037e"
_ENDS: Final = {
    greek: re.compile(
        rf"(?<![{marks}。！？｡])(?:(?P<wide>{_WIDE})|(?P<other>{_OTHER.format(marks=marks)}))(?P<space>\s*+)"
    )
    for greek, marks in ((False, _MARKS), (True, f"{_MARKS};"))
}
_MARK_RUN = re.compile(rf"[{_MARKS};。！？｡]++")
# Opening punctuation, dashes and bullets before the first word.
_LEAD = re.compile(r"[^\w.!?…,;:。！？、，]*+")
_NEXT = re.compile(r"(?P<word>[\w’'-]*+)(?P<after>[).]?)")
_FAR: Final = 1 << 20  # longest match in characters, because a single match blocks all other threads
_WORD_BEFORE = re.compile(r"[^\s()\[\]{}«»„“”\"—–/‘¿¡（）「」]*\Z")
_DOTTED_BEFORE = re.compile(r"(?<!\w)(?:[^\W\d_]{1,3}\.[ \u00a0\u202f]?)+[^\W\d_]{1,4}\Z")
# In normal form D, letters with accents begin with one of these.
_VOWEL = re.compile(r"[aeiouyæøœıаеиоуыэюяієәөүұ]", re.IGNORECASE)
_CASED = re.compile(r"[A-Za-zÀ-ɏЀ-ӿ]+")
_ROMAN = re.compile(r"(?=[IVXLC])C{0,3}(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})")
# The number, letter or Roman numeral of a list item.
_ITEM = re.compile(r"\d{1,3}(?:\.\d{1,3})*|\w|x{0,3}(?:ix|iv|v?i{0,3})", re.IGNORECASE)
_HEADING = re.compile(
    r"(?:chapter|section|part|kapitel|abschnitt|teil|chapitre|partie|capítulo|parte|capitolo|глава|часть|kapitola"
    r"|část|rozdział|hoofdstuk|deel)\s+\d+",
    re.IGNORECASE,
)
# An abbreviation and its number, such as No. 3.
_NUMBERED = re.compile(r"([^\W\d_]+)\.\s*\d+\Z")
_ELISION = re.compile(r"\A[^\W\d_]{1,2}['’]")
_DATE = re.compile(r"\d{1,2}\.\d{1,2}")
_SYMBOLS: Final = "•◦▪‣●*"
# A clause that attributes direct speech, after its final punctuation: “Why?” Peter asked.
_SAYS_EN = re.compile(
    r"(?!(?:He|She|It|They|We|I|You)\b)(?:[A-Z][\w’'.-]*\s){1,3}(?:said|says|asked|asks|cried|shouted|replied"
    r"|answered|whispered|exclaimed|wrote|told|wondered|demanded|yelled|screamed|called|added)\b"
)
_SAYS_ZH = re.compile(r"[\u4e00-\u9fff·]{0,6}?(?:说|問|问|說|道|喊|叫道|回答|答道|告诉|写道|表示)(?![：:])")
_PARTICLE_JA = re.compile(
    r"(?!はい|もう|もし|とても|ところ|とにかく|やがて|やはり|やっと|のち|もちろん)(?:って|[とのがをにはもへや])"
)
_SEARCHED: Final = 400  # characters before the punctuation that are searched for an opening bracket


class Splitter:
    """A splitter of texts of one language into sentences; an empty `language` is unknown.

    `abbreviations`: additional abbreviations; their full stop does not end a sentence. `name` identifies the
    method, for reports and resumption.
    """

    def __init__(self, language: str, abbreviations: frozenset[str] = frozenset()) -> None:
        self.name = f"rules-{RULES}:{language or 'any'}"
        if abbreviations:
            listed = "\n".join(sorted(abbreviations)).encode()
            self.name += f"+{len(abbreviations)}-{hashlib.sha256(listed).hexdigest()[:8]}"
        self._language = language
        self._given = frozenset(
            re.sub(r"\s", "", normalize("NFC", word)).lower().removesuffix(".") for word in abbreviations
        )
        self._leading = words_of("leading", language) | self._given
        self._numbered, self._often = words_of("numbered", language), words_of("often", language)
        self._starting = words_of("starting", language)
        self._ordinal = not language or language in ORDINAL
        self._pattern = _ENDS[language == "el"]

    def sentences(self, text: str) -> list[str]:
        """Return the sentences of a text without surrounding white space; an empty list for blank text."""
        return [text[start:stop] for start, stop in self.spans(text)]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the sentences of a text as sorted spans (start, stop) of characters.

        All characters outside of the spans are white space, and no span begins or ends with white space. Line
        breaks are white space.
        """
        spans = []
        for start, end in pairwise([0, *self.ends(text), len(text)]):
            piece = text[start:end]
            if stripped := piece.strip():
                low = start + len(piece) - len(piece.lstrip())
                spans.append((low, low + len(stripped)))
        return spans

    def ends(self, text: str) -> list[int]:
        """Return the offsets of sentence boundaries; white space belongs to the sentence before it."""
        ends, start = [], 0
        following = _Following(text, 0)
        for match in self._pattern.finditer(text):
            if match.end() > following.begins:
                following = _Following(text, match.end())
            if match.end() < len(text) and self._is_end(text, start, match, following):
                start = match.end()
                ends.append(start)
        return _with_content(text, ends) if ends else ends

    def _is_end(self, text: str, start: int, match: re.Match[str], following: "_Following") -> bool:
        run = _MARK_RUN.match(text, match.start())
        assert run is not None
        marks, closing = run[0], text[run.end() : match.end()].strip()
        word, after = following.word, following.after
        if not word:
            return following.opened >= match.end()
        if match["wide"] is None and not match["space"] and not self._unspaced(text, match, marks):
            return False
        bullet = following.symbol >= match.end() or (after == ")" and len(word) <= 2)
        if not bullet:
            # Georgian sentences begin with small letters.
            if word[0].islower() and not "\u10d0" <= word[0] <= "\u10ff":
                return False
            if not word[0].isupper() and not word[0].isdigit() and self._goes_on(text, start, match, closing):
                return False
        strong = bool(set(marks) & _STRONG)
        if strong:
            says = self._language in ("en", "") and set(closing) & set("\"'”’")
            company = marks == "!" and after == "." and word.lower() in self._often  # Yahoo! Inc.
            return not (company or (says and _SAYS_EN.match(text, match.end())))
        if set(marks) <= set(".…") and marks != ".":
            return self._ends_in_dots(text, match.start(), word, closing)
        if marks != ".":
            return True
        return self._full_stop(text, start, match.start(), word, closing)

    def _unspaced(self, text: str, match: re.Match[str], marks: str) -> bool:
        """Return whether a boundary needs no space: before Chinese and Japanese, and after an Indic danda."""
        if set(marks) & set("।॥။"):
            return True
        return marks != "." and "…" not in marks and bool(UNSPACED_CHARACTER.match(text, match.end()))

    def _goes_on(self, text: str, start: int, match: re.Match[str], closing: str) -> bool:
        """Return whether a sentence in a script without capitals continues after a closing mark."""
        if not closing:
            return False
        at = match.end()
        if closing[-1] in _BRACKETS:
            low = max(start, at - _SEARCHED)
            opened = text.rfind(_BRACKETS[closing[-1]], low, match.start())
            return opened > low and bool(text[low:opened].strip())
        if self._language == "ja" or (not self._language and "\u3040" <= text[at] <= "\u309f"):
            return bool(_PARTICLE_JA.match(text, at))
        return bool(_SAYS_ZH.match(text, at))

    def _ends_in_dots(self, text: str, dots: int, word: str, closing: str) -> bool:
        """Return whether an ellipsis ends a sentence."""
        if not word[0].isupper():
            return False
        before = text[dots - 1 : dots]
        if before in _BRACKETS.values() and closing[:1] in _BRACKETS:
            return False
        if before.isspace():  # words are omitted, usually inside a sentence
            return self._begins(word)
        return not self._is_pronoun(word)

    def _is_pronoun(self, word: str) -> bool:
        """Return whether a word is the English "I" or "I'm", which is always capitalised."""
        return self._language in ("en", "") and re.split("['’]", word)[0] == "I"

    def _full_stop(self, text: str, start: int, stop: int, word: str, closing: str) -> bool:
        match = _WORD_BEFORE.search(text, max(start, stop - 40), stop)
        before = normalize("NFC", match[0].strip("'’-&")) if match else ""
        if not before:
            return True
        shortened = self._shortened(text, start, stop, before, word)
        # Before a closing quotation mark, an abbreviation ends the sentence.
        return not shortened if not set(closing) - set(_BRACKETS) else True

    def _shortened(self, text: str, start: int, stop: int, before: str, word: str) -> bool:
        """Return whether the full stop belongs to an abbreviation, an initial or a number."""
        text_before = text[start:stop] if stop - start <= 40 else ""
        head = text_before.strip().strip(f"{_SYMBOLS}([„“«»\"'-–— ")
        if (head == before and _ITEM.fullmatch(before)) or (head and _HEADING.fullmatch(head)):
            return True
        if not _has_content(before):
            return False
        if before.isdigit() and text[max(start, stop - 40) : stop - len(before)].rstrip().endswith(":"):
            return True  # the first item of a list
        before = _ELISION.sub("", before)  # French and Italian: l'art. 5
        lower = before.lower()
        dotted = _DOTTED_BEFORE.search(text, max(start, stop - 20), stop)
        together = re.sub(r"\s", "", dotted[0]).lower() if dotted else lower
        if lower in self._given or together in self._leading or lower in self._leading:
            return True
        if lower in self._numbered or (self._language in ("de", "") and lower.endswith("str")):
            if word[0].isdigit() or (_ROMAN.fullmatch(word) and not self._is_pronoun(word)):
                return True
            if len(before) > 1 and together not in self._often:
                return False
        often = together in self._often or lower in self._often
        ordinal = self._ordinal and self._is_ordinal(text, start, stop, before)
        return (often or ordinal or self._looks_short(before)) and not self._begins(word)

    def _is_ordinal(self, text: str, start: int, stop: int, before: str) -> bool:
        """Return whether a number with a full stop may be an ordinal, as in "3. Oktober", or a date."""
        if _ROMAN.fullmatch(before) or _DATE.fullmatch(before):
            return True
        if not before.isdigit() or len(before) > 2:
            return False
        numbered = _NUMBERED.search(text, max(start, stop - 20), stop)
        return numbered is None or numbered[1].lower() not in self._numbered

    def _looks_short(self, before: str) -> bool:
        """Return whether an unlisted word looks abbreviated: one letter, short parts, or no vowel."""
        if sum(map(str.isalpha, before)) == 1 and not any(map(str.isdigit, before)):
            return True
        parts = [part for part in re.split(r"[.-]", before) if part]
        if len(parts) > 1 and all(len(part) <= 2 and part.isalpha() for part in parts):
            return True
        if self._language in SYLLABIC or before.isupper():
            return False
        return bool(_CASED.fullmatch(before)) and not _VOWEL.search(normalize("NFD", before))

    def _begins(self, word: str) -> bool:
        """Return whether a word is capitalised and often begins a sentence."""
        return word[0].isupper() and re.split("['’]", word)[0].lower() in self._starting


class _Following:
    """The text after a possible end of sentence: punctuation ("lead"), and the next word.

    Several possible ends may share one lead, which is parsed once. `begins`: offset of the word. `opened`,
    `symbol`: last offset in the lead of an opening bracket and of a bullet, or -1.
    """

    def __init__(self, text: str, start: int) -> None:
        lead = _LEAD.match(text, start, start + _FAR)
        assert lead is not None
        word = _NEXT.match(text, lead.end(), lead.end() + _FAR)
        assert word is not None
        self.begins = lead.end()
        self.word, self.after = word["word"], word["after"]
        self.opened, self.symbol = (
            max(text.rfind(mark, start, self.begins) for mark in marks) for marks in ("([（【", _SYMBOLS)
        )


def sentence_ends(text: str) -> list[int]:
    """Return the offsets of sentence boundaries in a text of any language, without the end of the text."""
    return _ANY.ends(text)


def _with_content(text: str, ends: list[int]) -> list[int]:
    """Remove ends that would leave a piece without letters or digits."""
    bounds = [0]
    for start, end in pairwise([0, *ends, len(text)]):
        if bounds[-1] and not (_has_content(text[start:end]) and _has_content(text[bounds[-2] : start])):
            bounds[-1] = end
        else:
            bounds.append(end)
    return bounds[1:-1]


def _has_content(piece: str) -> bool:
    return any(map(str.isalnum, piece))


_ANY: Final = Splitter("")


def several_warning(count: int, whole: int, things: str) -> str:
    """Return the beginning of a warning, as in "2 of 10 lines seem to hold several sentences"."""
    return f"{count:,} of {whole:,} {things} {'seems' if count == 1 else 'seem'} to hold several sentences"


def join_sentences(sentences: Sequence[str], language: str) -> str:
    """Join sentences to one line, with a space between them, except in Chinese and Japanese.

    In these and in unknown languages, there is no space next to a Chinese or Japanese character.
    """
    may_join = not language or language in UNSPACED
    line = ""
    for sentence in sentences:
        text = sentence.strip()
        if line and text and not (may_join and any(map(UNSPACED_CHARACTER.match, (line[-1], text[0])))):
            line += " "
        line += text
    return line
