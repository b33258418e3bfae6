"""Sentence ends inside a line of text, by a heuristic on punctuation.

It knows no language but a list of abbreviations and would rather miss an end than see one where there is
none. How often it is wrong was measured on real text: see docs/data-as-found.md. Lines of the languages that
a splitter knows are split by it: see `cotext.data.splitting`.
"""

import re
from typing import Final

_CLOSING: Final = "\"'”’»›)\\]」』）】〕》〉"
_OPENING: Final = "\"'“‘„‚«‹(\\[¿¡—–「『（【《〈"
# A full stop and the like, what closes with it, and white space, before a word and what may open before it.
# Each begins where a run of them does and never gives back what it took: time goes by the length of a line.
_SPACED = re.compile(rf"(?<![.!?…])([.!?…]++|[۔؟։።។။।॥])[{_CLOSING}]*+\s++(?=[{_OPENING}-]*+\s*+(\w))")
# The full stops of scripts without spaces; more of them, and what closes, belong to the same end.
_UNSPACED = re.compile(rf"(?<![。！？｡])[。！？｡][。！？｡…{_CLOSING}]*+\s*+(?=[{_OPENING}]*+\w)")
_WORD_BEFORE = re.compile(r"[\w.’'&/-]*\Z")
_VOWEL = re.compile(r"[aeiouyäöüàâáéèêëíîïóòôõúùûæøåœıąęаеёиоуыэюяіїє]", re.IGNORECASE)
_LATIN_OR_CYRILLIC = re.compile(r"[A-Za-zÀ-ɏЀ-ӿ]")
# Before a capital letter or not: what is shortened with a full stop and has a vowel, in languages of Europe.
_ABBREVIATIONS = """
prof gen col sen rep gov hon rev capt lieut maj ave apt dept est etc eds vol vols fig figs eq eqs sec
chap ch pp no nos art ed al ca cf viz inc ltd co corp univ assn bros approx max min
jan feb apr jun jul aug sep sept oct okt nov dec dez mär
mio mrd abb abs allg anm aufl bes bez bd bde ca evtl fa ggf inkl jh jhd kap nr ing dipl sog tel usw vgl
ver zzgl
av mme mlle env fasc éd réf
sig sigg dott ing avv pag cap
sra sr srta ud uds núm pág
им ул см рис табл проф акад гг вв руб тыс напр др
"""
ABBREVIATIONS: Final = frozenset(_ABBREVIATIONS.split())


def sentence_ends(text: str) -> list[int]:
    """Offsets at which a sentence inside a line ends and another begins; the end of the line is none of them.

    A line of ten sentences has nine. Takes time by the length of the line.
    """
    ends = [match.end() for match in _SPACED.finditer(text) if _ends(text, match)]
    ends += [match.end() for match in _UNSPACED.finditer(text)]
    return sorted(ends)


def several_warning(count: int, whole: int, things: str) -> str:
    """The beginning of a warning, as in "2 of 10 lines seem to hold several sentences"."""
    return f"{count:,} of {whole:,} {things} {'seems' if count == 1 else 'seem'} to hold several sentences"


def shortens(text: str, stop: int) -> bool:
    """Whether the full stop at an offset seems to belong to an abbreviation, an initial or a number."""
    found = _WORD_BEFORE.search(text, max(0, stop - 40), stop)
    word = found[0].strip("'’-/&") if found else ""
    if not word:
        # After what closes, a full stop is one.
        return stop == 0 or text[stop - 1] not in '"”’»)]'
    if sum(map(str.isalpha, word)) < 2 or "." in word:
        return True
    return word.lower() in ABBREVIATIONS or bool(_LATIN_OR_CYRILLIC.match(word) and not _VOWEL.search(word))


def _ends(text: str, match: re.Match[str]) -> bool:
    # A letter without case, as in Arabic, may begin a sentence; a digit or a small letter goes on with one.
    if match[2].islower() or not match[2].isalpha():
        return False
    if match[1] == ".":
        return not shortens(text, match.start())
    # Dots show that something is left out, and the sentence may go on.
    return not set(match[1]) <= {".", "…"}
