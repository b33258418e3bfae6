"""Sentence frames: one template for each side, whose slots the lexicon fills.

A slot is one letter, and an attribute of what fills it gives the form: ``{t.den}`` is the accusative article
of the thing ``t``. Slots: ``p q`` people, ``s`` speaker, ``l`` listener, ``y`` form of address, ``t`` thing,
``o`` the thing that "it" stands for, ``v`` activity, ``w`` the activity that "did too" stands for, ``k h j``
qualities, ``a b`` moods, ``c`` comparison, ``x`` whereabouts, ``z`` spot, ``g`` group, ``n`` season, ``m``
climate, ``i`` manner, ``f`` dealing, ``d`` discovery, ``r u`` a male and a female relative.

A frame is an *event* where its English verb is a full verb in the past tense: "did too" would refer to it, so
events never stand between an activity and its ellipsis.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from string import Formatter
from typing import Final

from cotext.data.controlled import lexicon
from cotext.data.controlled.word_order import WordOrder, ordered


@dataclass(frozen=True, slots=True)
class Frame:
    """A sentence pattern on both sides."""

    english: str
    german: str
    event: bool = False
    slots: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        fields = (name for text in (self.english, self.german) for _, name, _, _ in Formatter().parse(text))
        object.__setattr__(self, "slots", tuple(dict.fromkeys(name[0] for name in fields if name)))


@dataclass(frozen=True, slots=True)
class Sentence:
    """A frame with all its slots filled."""

    frame: Frame
    words: Mapping[str, object]

    def english(self) -> str:
        """The source sentence."""
        text = self.frame.english.format_map(self.words)
        return text[0].upper() + text[1:]

    def german(self, order: WordOrder) -> str:
        """The target sentence."""
        text = ordered(self.frame.german, order).format_map(self.words)
        return text[0].upper() + text[1:]

    def with_word(self, slot: str, word: object) -> "Sentence":
        """The same sentence with another word in one slot."""
        return Sentence(self.frame, {**self.words, slot: word})


# What an open slot may be filled with; slots that are missing here are always bound by the discourse.
TABLES: Final[Mapping[str, tuple[object, ...]]] = {
    "p": lexicon.PEOPLE,
    "q": lexicon.PEOPLE,
    "s": lexicon.PEOPLE,
    "t": lexicon.THINGS,
    "v": lexicon.ACTIVITIES,
    "k": lexicon.QUALITIES,
    "h": lexicon.QUALITIES,
    "j": lexicon.QUALITIES,
    "a": lexicon.MOODS,
    "b": lexicon.MOODS,
    "c": lexicon.COMPARISONS,
    "x": lexicon.WHEREABOUTS,
    "z": lexicon.SPOTS,
    "g": lexicon.GROUPS,
    "n": lexicon.SEASONS,
    "m": lexicon.CLIMATES,
    "i": lexicon.MANNERS,
    "f": lexicon.DEALINGS,
    "d": lexicon.DISCOVERIES,
    "r": lexicon.RELATIVES["m"],
    "u": lexicon.RELATIVES["f"],
}

# About one person; the subject may be a hero. No thing, no event.
PERSON: Final = (
    Frame("{p.en} was {a.en}.", "{p.nom} war {a.de}."),
    Frame("{p.en} was very {a.en}.", "{p.nom} war sehr {a.de}."),
    Frame("{p.en} was {a.en} again.", "{p.nom} war wieder {a.de}."),
    Frame("{p.en} was never {a.en}.", "{p.nom} war nie {a.de}."),
    Frame("Today {p.en} was {a.en}.", "Heute war {p.nom} {a.de}."),
    Frame("Why was {p.en} so {a.en}?", "Warum war {p.nom} so {a.de}?"),
    Frame("{p.en} was still {x.en}.", "{p.nom} war noch {x.de}."),
    Frame("Perhaps {p.en} was {x.en}.", "Vielleicht war {p.nom} {x.de}."),
    Frame(
        "{p.en} was {a.en}, but {p.he} was not {b.en}.", "{p.nom} war {a.de}, aber {p.er} war nicht {b.de}."
    ),
    Frame("{p.en} was {a.en} because {p.he} was {b.en}.", "{p.nom} war {a.de}, weil {p.er} {b.de} war."),
    Frame("{p.en} and {q.en} were {x.en}.", "{p.nom} und {q.nom} waren {x.de}."),
    Frame("{p.en} was {c.en} than {q.en}.", "{p.nom} war {c.de} als {q.nom}."),
    Frame("For {p.en} everything was new.", "Für {p.acc} war alles neu."),
)
# About groups and seasons. No thing, no event.
SCENE: Final = (
    Frame("The {g.en} were {a.en}.", "Die {g.de} waren {a.de}."),
    Frame("The {g.en} were {x.en}.", "Die {g.de} waren {x.de}."),
    Frame("Everyone was {x.en}.", "Alle waren {x.de}."),
    Frame("Nobody was {a.en}.", "Niemand war {a.de}."),
    Frame("The {n.en} were {m.en}.", "Die {n.de} waren {m.de}."),
    Frame("The {n.en} were {m.en} again.", "Die {n.de} waren wieder {m.de}."),
)
# A thing comes up.
THING: Final = (
    Frame("The {t.en} was {k.en}.", "{t.der} {t.de} war {k.de}."),
    Frame("The {t.en} was very {k.en}.", "{t.der} {t.de} war sehr {k.de}."),
    Frame("There was {t.a_en} {z.en}.", "{z.de} war {t.ein} {t.de}."),
    Frame("There was {j.a_en} {t.en} {z.en}.", "{z.de} war {t.ein} {j.stem}{t.ein_ending} {t.de}."),
    Frame("{p.en} was proud of the {t.en}.", "{p.nom} war stolz auf {t.den} {t.de}."),
    Frame("{p.en} {f.en} the {t.en}.", "{p.nom} {f.de} {t.den} {t.de}.", event=True),
    Frame("{p.en} {f.en} {t.a_en}.", "{p.nom} {f.de} {t.einen} {t.de}.", event=True),
    Frame(
        "{p.en} {f.en} {j.a_en} {t.en}.",
        "{p.nom} {f.de} {t.einen} {j.stem}{t.einen_ending} {t.de}.",
        event=True,
    ),
)
# A thing and its "it" in one sentence.
THING_AND_PRONOUN: Final = (
    Frame("The {t.en} was {k.en}, and it was {h.en}.", "{t.der} {t.de} war {k.de}, und {o.er} war {h.de}."),
    Frame(
        "The {t.en} was {k.en}, but it was not {h.en}.",
        "{t.der} {t.de} war {k.de}, aber {o.er} war nicht {h.de}.",
    ),
    Frame(
        "{p.en} {f.en} the {t.en} because it was {k.en}.",
        "{p.nom} {f.de} {t.den} {t.de}, weil {o.er} {k.de} war.",
        event=True,
    ),
)
PRONOUN: Final = (
    Frame("It was {k.en}.", "{o.er} war {k.de}."),
    Frame("It was very {k.en}.", "{o.er} war sehr {k.de}."),
    Frame("It was not {k.en}.", "{o.er} war nicht {k.de}."),
    Frame("Unfortunately it was {k.en}.", "Leider war {o.er} {k.de}."),
    Frame("Was it really {k.en}?", "War {o.er} wirklich {k.de}?"),
    Frame("For {p.en} it was too {k.en}.", "Für {p.acc} war {o.er} zu {k.de}."),
    Frame("{p.en} {f.en} it.", "{p.nom} {f.de} {o.ihn}.", event=True),
    Frame("Later {p.en} {f.en} it.", "Später {f.de} {p.nom} {o.ihn}.", event=True),
)
# "It" before its noun: these openings stand nowhere else, and only where no thing has come up yet.
CATAPHORA: Final = (
    Frame("At first it was barely visible.", "Zuerst war {o.er} kaum zu sehen."),
    Frame("For years it was forgotten.", "Jahrelang war {o.er} vergessen."),
    Frame("At first glance it was {k.en}.", "Auf den ersten Blick war {o.er} {k.de}."),
    Frame("From afar it was {k.en}.", "Von weitem war {o.er} {k.de}."),
    Frame("Even in the dark it was {k.en}.", "Sogar im Dunkeln war {o.er} {k.de}."),
    Frame("Until then nobody had noticed it.", "Bis dahin hatte {o.ihn} niemand bemerkt.", event=True),
)
CATAPHORA_NOUN: Final = (
    Frame("Then the {t.en} was right in front of {p.en}.", "Dann war {t.der} {t.de} direkt vor {p.dat}."),
    Frame("Then {p.en} {d.en} the {t.en}.", "Dann {d.de} {p.nom} {t.den} {t.de}.", event=True),
    Frame("Finally {p.en} {d.en} the {t.en}.", "Schließlich {d.de} {p.nom} {t.den} {t.de}.", event=True),
)
ACTIVITY: Final = (
    Frame("{p.en} {v.en} {i.en}.", "{p.nom} {v.aux} {i.de} {v.participle}.", event=True),
    Frame("Yesterday {p.en} {v.en}.", "Gestern {v.aux} {p.nom} {v.participle}.", event=True),
    Frame("{p.en} {v.en} with {q.en}.", "{p.nom} {v.aux} mit {q.dat} {v.participle}.", event=True),
)
ELLIPSIS: Final = (
    Frame("{p.en} did too.", "{p.nom} {w.aux} auch {w.participle}.", event=True),
    Frame("So did {p.en}.", "Auch {p.nom} {w.aux} {w.participle}.", event=True),
    Frame("But {p.en} did not.", "Aber {p.nom} {w.aux} nicht {w.participle}.", event=True),
    Frame("{p.en} never did.", "{p.nom} {w.aux} nie {w.participle}.", event=True),
    Frame(
        "{p.en} and {q.en} did too.", "{p.nom} und {q.nom} {w.aux_plural} auch {w.participle}.", event=True
    ),
    Frame("The {g.en} did too.", "Die {g.de} {w.aux_plural} auch {w.participle}.", event=True),
)
# Who speaks to whom; what follows in the document is said to the listener.
STATEMENT: Final = (
    Frame("{s.en} is talking to {l.en}.", "{s.nom} spricht mit {l.dat}."),
    Frame("{s.en} is travelling with {l.en}.", "{s.nom} reist mit {l.dat}."),
    Frame("{s.en} is sitting next to {l.en}.", "{s.nom} sitzt neben {l.dat}."),
    Frame("{s.en} is drinking tea with {l.en}.", "{s.nom} trinkt Tee mit {l.dat}."),
)
# Spoken in the present tense, so that "did too" can't refer to them.
YOU: Final = (
    Frame("You are {a.en}.", "{y.du} {y.bist} {a.de}."),
    Frame("Are you {a.en}?", "{y.bist} {y.du} {a.de}?"),
    Frame("Why are you so {a.en}?", "Warum {y.bist} {y.du} so {a.de}?"),
    Frame("Do you know {p.en}?", "{y.kennst} {y.du} {p.acc}?"),
    Frame("Can you help {p.en}?", "{y.kannst} {y.du} {p.dat} helfen?"),
    Frame("You must wait for {p.en}.", "{y.du} {y.musst} auf {p.acc} warten."),
    Frame("{p.en} was looking for you.", "{p.nom} suchte {y.dich}."),
    Frame("{p.en} can help you.", "{p.nom} kann {y.dir} helfen."),
    Frame("Where is your {r.en}?", "Wo ist {y.dein} {r.de}?"),
    Frame("Your {u.en} is {a.en}.", "{y.deine} {u.de} ist {a.de}."),
    Frame("Where do you live?", "Wo {y.wohnst} {y.du}?"),
    Frame("You work too much.", "{y.du} {y.arbeitest} zu viel."),
    Frame("Do you speak German?", "{y.sprichst} {y.du} Deutsch?"),
    Frame("Do you have time today?", "{y.hast} {y.du} heute Zeit?"),
    Frame("You were right about {p.en}.", "Was {p.acc} betrifft, {y.hattest} {y.du} recht."),
    Frame("Why are you laughing?", "Warum {y.lachst} {y.du}?"),
    Frame("What do you think of {p.en}?", "Was {y.hältst} {y.du} von {p.dat}?"),
    Frame("You are always late.", "{y.du} {y.kommst} immer zu spät."),
)
