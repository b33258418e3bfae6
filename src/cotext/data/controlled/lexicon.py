"""The words of the controlled corpus in English and German, with the inflected forms that sentences need.

The tables are small, so that a tiny model learns the words in minutes. Only the use of context is difficult.
"""

from collections import namedtuple
from collections.abc import Mapping
from functools import cache
from typing import Final, Literal

# A phrase with one form in each language.
Pair = namedtuple("Pair", "en de")
# An inanimate noun; its German gender decides how "it" is translated.
Thing = namedtuple("Thing", "en a_en de gender der den ein einen ein_ending einen_ending er ihn")
# An adjective for things: predicative form, stem before an ending, English with its article.
Quality = namedtuple("Quality", "en a_en de stem")
# A person, named or with a profession, in one German rendering.
Person = namedtuple("Person", "en nom acc dat he er")
# A past-tense verb to which "did too" can refer, with its German perfect.
Activity = namedtuple("Activity", "en participle aux aux_plural")
# The German forms of "you" and the verbs used with it, familiar or formal.
Address = namedtuple(
    "Address",
    "du dich dir dein deine bist hast hattest kannst musst kennst kommst arbeitest wohnst sprichst lachst "
    "hältst",
)
_FORMAL: Final = (
    "Sie Sie Ihnen Ihr Ihre sind haben hatten können müssen kennen kommen arbeiten wohnen sprechen lachen "
    "halten"
)
FAMILIAR: Final = Address(*Address._fields)
FORMAL: Final = Address(*_FORMAL.split())
# A listener, who determines the form of address in the document.
Listener = namedtuple("Listener", "en dat address")


def _rows(words: str, separator: str | None = None) -> list[list[str]]:
    """Return the fields of entries such as "table/Tisch chair/Stuhl"."""
    return [entry.split("/") for entry in words.split(separator)]


def _pairs(words: str) -> tuple[Pair, ...]:
    return tuple(Pair(*row) for row in _rows(words, ", "))


def _a(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"


# For each gender: der, den, ein, einen, adjective ending after ein, after einen, er, ihn; the nouns.
_THINGS: Final = {
    "m": (
        "der den ein einen er en er ihn",
        "table/Tisch chair/Stuhl cupboard/Schrank carpet/Teppich mirror/Spiegel hat/Hut coat/Mantel "
        "key/Schlüssel spoon/Löffel ring/Ring bucket/Eimer basket/Korb suitcase/Koffer "
        "umbrella/Regenschirm ball/Ball computer/Computer",
    ),
    "f": (
        "die die eine eine e e sie sie",
        "lamp/Lampe clock/Uhr bag/Tasche bottle/Flasche cup/Tasse vase/Vase camera/Kamera guitar/Gitarre "
        "flute/Flöte candle/Kerze box/Kiste necklace/Kette drum/Trommel blanket/Decke doll/Puppe "
        "ladder/Leiter",
    ),
    "n": (
        "das das ein ein es es es es",
        "book/Buch bed/Bett knife/Messer painting/Gemälde bicycle/Fahrrad piano/Klavier radio/Radio "
        "telephone/Telefon shirt/Hemd dress/Kleid pillow/Kissen glass/Glas sofa/Sofa boat/Boot "
        "shelf/Regal tent/Zelt",
    ),
}
THINGS_BY_GENDER: Final = {
    gender: tuple(Thing(en, _a(en), de, gender, *forms.split()) for en, de in _rows(words))
    for gender, (forms, words) in _THINGS.items()
}
# The same number of things of each gender, so that a uniform draw is uniform over genders.
THINGS: Final = tuple(thing for row in zip(*THINGS_BY_GENDER.values(), strict=True) for thing in row)
# Qualities and moods contain no opposites, because any two of them may describe the same thing or person. The
# third part of a quality is the stem, if it differs: "teuer" drops its e before an ending.
_QUALITIES: Final = tuple(
    Quality(row[0], _a(row[0]), row[1], row[-1])
    for row in _rows(
        "heavy/schwer, old/alt, expensive/teuer/teur, beautiful/schön, small/klein, dirty/schmutzig, "
        "dusty/staubig, strange/seltsam, rare/selten, valuable/wertvoll, colourful/bunt, wet/nass, "
        "practical/praktisch, fragile/zerbrechlich",
        ", ",
    )
)
_MOODS: Final = _pairs(
    "tired/müde, hungry/hungrig, thirsty/durstig, nervous/nervös, angry/wütend, curious/neugierig, "
    "friendly/freundlich, sad/traurig, ill/krank, patient/geduldig, polite/höflich, careful/vorsichtig, "
    "jealous/eifersüchtig, bored/gelangweilt"
)
_FORMS: Final = {"hat": "haben", "ist": "sind"}
ACTIVITIES: Final = tuple(
    Activity(en, participle, aux, _FORMS[aux])
    for en, participle, aux in _rows(
        "danced/getanzt/hat sang/gesungen/hat laughed/gelacht/hat cried/geweint/hat slept/geschlafen/hat "
        "worked/gearbeitet/hat swam/geschwommen/ist read/gelesen/hat cooked/gekocht/hat painted/gemalt/hat "
        "smoked/geraucht/hat waited/gewartet/hat played/gespielt/hat studied/studiert/hat prayed/gebetet/hat "
        "trained/trainiert/hat argued/gestritten/hat fished/geangelt/hat wrote/geschrieben/hat "
        "ate/gegessen/hat dreamed/geträumt/hat whistled/gepfiffen/hat ran/gelaufen/ist knitted/gestrickt/hat"
    )
)


def _people(gender: str, words: str) -> tuple[tuple[Person, ...], ...]:
    """Return the German renderings of every name; without any, the name is the same in German."""
    he, er = ("he", "er") if gender == "m" else ("she", "sie")
    return tuple(
        tuple(Person(en, de, de, de, he, er) for de in renderings or [en]) for en, *renderings in _rows(words)
    )


_MEN: Final = _people("m", "Peter Tom Paul Felix Martin Jonas Andrew/Andreas Daniel")
_WOMEN: Final = _people("f", "Anna Lisa Laura Julia Sophie Clara Mary/Maria Eve/Eva")
PEOPLE: Final = tuple(person for [person] in (*_MEN, *_WOMEN))
# People whose English name has two German renderings; a document uses only one of them.
HEROES: Final = (
    *_people("m", "Charles/Karl/Charles George/Georg/George William/Wilhelm/William Henry/Heinrich/Henry"),
    *_people(
        "f",
        "Elizabeth/Elisabeth/Elizabeth Catherine/Katharina/Catherine Helen/Helene/Helen Jane/Johanna/Jane",
    ),
    # No weak nouns (den Postboten), so that the noun has the same form in all cases.
    *(
        tuple(Person(f"the {en}", f"der {de}", f"den {de}", f"dem {de}", "he", "er") for de in renderings)
        for en, *renderings in _rows(
            "butcher/Metzger/Fleischer carpenter/Tischler/Schreiner doctor/Arzt/Doktor "
            "caretaker/Hausmeister/Hauswart plumber/Klempner/Installateur priest/Pfarrer/Priester "
            "actor/Schauspieler/Darsteller guest/Gast/Besucher"
        )
    ),
)


def _family(her: str, ihr: str) -> tuple[Listener, ...]:
    women = "sister/Schwester mother/Mutter aunt/Tante daughter/Tochter grandmother/Großmutter"
    men = "brother/Bruder father/Vater uncle/Onkel son/Sohn grandfather/Großvater"
    rows = [(*row, ending) for words, ending in ((women, "er"), (men, "em")) for row in _rows(words)]
    return tuple(Listener(f"{her} {en}", f"{ihr}{ending} {de}", FAMILIAR) for en, de, ending in rows)


_OFFICIALS: Final = tuple(
    Listener(f"the {en}", de, FORMAL)
    for en, de in _pairs(
        "director/dem Direktor, judge/dem Richter, minister/dem Minister, professor/dem Professor, "
        "mayor/dem Bürgermeister, ambassador/dem Botschafter, inspector/dem Inspektor, bishop/dem Bischof, "
        "landlady/der Vermieterin, headmistress/der Rektorin"
    )
)
# Familiar and formal listeners, by the pronoun of the speaker: "her sister", "his sister".
LISTENERS: Final = {"she": (_family("her", "ihr"), _OFFICIALS), "he": (_family("his", "sein"), _OFFICIALS)}

# Words for slots that are filled freely, by the letters of the slots in the templates. The discourse
# determines all other slots.
TABLES: Final[Mapping[str, tuple[object, ...]]] = {
    **dict.fromkeys("pqs", PEOPLE),
    "t": THINGS,
    "v": ACTIVITIES,
    **dict.fromkeys("khj", _QUALITIES),
    **dict.fromkeys("ab", _MOODS),
    "c": _pairs(
        "older/älter, younger/jünger, taller/größer, stronger/stärker, faster/schneller, kinder/netter"
    ),
    "x": _pairs(
        "at home/zu Hause, at work/bei der Arbeit, abroad/im Ausland, on vacation/im Urlaub, "
        "outside/draußen, at school/in der Schule"
    ),
    "z": _pairs("outside/draußen, upstairs/oben, downstairs/unten, next door/nebenan"),
    "g": _pairs(
        "children/Kinder, neighbours/Nachbarn, students/Studenten, guests/Gäste, parents/Eltern, "
        "musicians/Musiker"
    ),
    "n": _pairs("nights/Nächte, days/Tage, winters/Winter, evenings/Abende, mornings/Vormittage"),
    "m": _pairs("cold/kalt, long/lang, quiet/ruhig, dark/dunkel, warm/warm"),
    "i": _pairs(
        "for hours/stundenlang, at home/zu Hause, all evening/den ganzen Abend, yesterday/gestern, "
        "in the morning/am Morgen, outside/draußen, a lot/viel"
    ),
    # Actions with things (German preterite), and verbs of finding them.
    "f": _pairs(
        "bought/kaufte, sold/verkaufte, found/fand, repaired/reparierte, cleaned/putzte, lost/verlor, "
        "hid/versteckte, needed/brauchte, photographed/fotografierte, carried/trug"
    ),
    "d": _pairs("noticed/bemerkte, found/fand, discovered/entdeckte, saw/sah"),
    "r": _pairs("brother/Bruder, father/Vater, uncle/Onkel, son/Sohn"),
    "u": _pairs("sister/Schwester, mother/Mutter, aunt/Tante, daughter/Tochter"),
}


# --- Word order of the target: the order of German main clauses, or orders that are unlike the source.
#
# The source, the words of the target and all choices are the same in all orders; only the positions of target
# words differ. So differences between orders in the scores of a system are caused only by re-ordering.

WordOrder = Literal["verb-second", "verb-final", "reversed"]


# Finite verbs in the German templates: words, and attributes of slots.
_WORDS: Final = "war waren hatte ist kann suchte betrifft spricht reist sitzt trinkt"
_SLOTS: Final = (
    "f.de d.de v.aux w.aux w.aux_plural y.bist y.hast y.hattest y.kannst y.musst y.kennst y.kommst "
    "y.arbeitest y.wohnst y.sprichst y.lachst y.hältst"
)
_FINITE: Final = frozenset((*_WORDS.split(), *(f"{{{slot}}}" for slot in _SLOTS.split())))


@cache
def ordered(template: str, order: WordOrder) -> str:
    """Reorder a German sentence template; the caller capitalises the first word.

    ``verb-final``: the finite verb ends its clause, as in German subordinate clauses ("Später Peter sie
    verlor."). ``reversed``: clauses, and words or slots in each clause, are in reverse order ("Sie Peter
    verlor später."), which moves words as far as possible.
    """
    if order == "verb-second":
        return template
    text, mark = template[:-1], template[-1]
    # No template begins with a noun, so that the first word can be written in lower case.
    clauses = [clause.split() for clause in (text[0].lower() + text[1:]).split(", ")]
    if order == "verb-final":
        clauses = [sorted(clause, key=_FINITE.__contains__) for clause in clauses]
    else:
        clauses = [clause[::-1] for clause in reversed(clauses)]
    return ", ".join(map(" ".join, clauses)) + mark
