"""What is written with a full stop that ends no sentence, and words that often begin one, by language.

All in small letters; of what has several full stops, without the last and without white space, as in "z.b".
"""

from pathlib import Path
from typing import Final

from cotext.runtime.errors import CotextError
from cotext.runtime.reading import read_text

LONGEST: Final = 20  # characters of an abbreviation that a user gives

# Something always follows: titles before a name, and what introduces an example.
LEADING: Final = {
    "en": """
        dr mr mrs ms prof gen col sgt lt capt cpt cmdr adm maj sen rep gov hon rev fr st mt ft messrs supt
        e.g i.e cf viz vs ca approx
    """,
    "de": """
        dr hr fr frl prof dipl ing mag hl st fa bzw ca evtl ggf insb inkl exkl vgl sog zzgl bes gegr geb
        gest z.b d.h d.i u.u i.d.r i.a m.e s.o s.u o.g z.t z.zt u.d.t v.a i.allg dr.med dr.phil dr.h.c
    """,
    "fr": "dr m mm mme mlle mgr me pr st ste cf env p.ex c.-à-d c.à.d",
    "es": "dr dra sr sra srta sres d da dña ing lic prof profa ee gral mons sto sta p.ej ud uds vd vds",
    "it": "dr dott dott.ssa sig sigg sig.ra sig.na ing avv prof prof.ssa on mons geom arch rag cfr es p.es",
    "pt": "dr dra sr sra srta prof profa eng exmo exma p.ex",
    "nl": "dhr mevr mw dr drs ir ing prof mr ds bijv bv t.a.v d.w.z m.b.t i.v.m ca resp",
    "pl": "dr prof inż mgr hab ks św np tj tzn tzw m.in ok im ul al",
    "cs": """
        dr ing mgr bc judr mudr phdr rndr paeddr prof doc sv p pí sl např tj tzv tzn resp popř příp cca ul
        nám gen plk mjr kpt por
    """,
    "sk": "dr ing mgr bc prof doc sv napr tj tzv resp ul nám",
    "ru": "г-н г-жа д-р проф акад доц им ул пр пл пер см ср напр т.е т.н т.к св гр тов пос обл д",
    "uk": "проф акад ім вул див напр т.зв",
    "sv": "dr prof t.ex bl.a s.k d.v.s dvs ca resp st",
    "da": "dr prof hr fr f.eks bl.a s.k dvs ca",
    "no": "dr prof f.eks bl.a s.k dvs ca",
    "fi": "dr prof esim ns mm tri",
    "hu": "dr prof pl ún kb ill id ifj özv",
    "tr": "dr prof doç av sn bkz örn vb yrd",
    "ro": "dr dl dna prof ing d-na d-l",
    "hi": "डॉ श्री प्रो",
    "mr": "डॉ श्री प्रा",
}
# A number follows, or else the word is one like any other, as "no" and "art" are.
NUMBERED: Final = {
    "en": """
        no nos p pp fig figs eq eqs sec secs ch chap art arts vol vols ed par para tab app ex ref refs tel jan
        feb mar apr jun jul aug sep sept oct nov dec
    """,
    "de": """
        nr nrn s abb abs art kap bd bde anm tab ziff rn rz str tel hs jh jg aufl lfd jan feb mär apr jun
        jul aug sep sept okt nov dez
    """,
    "fr": "n no nos p pp fig art chap vol t éd bd tab par al janv févr avr juil sept oct nov déc tél",
    "es": "n núm nº pág págs p fig art cap vol t s tab tel ene feb mar abr jun jul ago sept oct nov dic",
    "it": "n pag pagg p fig art cap vol tab tel gen feb mar apr giu lug ago set ott nov dic",
    "pt": "n núm pág págs p fig art cap vol tab tel jan fev mar abr jun jul ago set out nov dez",
    "nl": "nr blz p pp fig afb art hfst dl tab tel jan feb mrt apr jun jul aug sept okt nov dec",
    "pl": "nr s str rys tab art ust poz rozdz t r tel",
    "cs": "č s str obr tab kap sv odst čl roč tel r",
    "sk": "č s str obr tab kap odst čl tel r",
    "ru": "с стр рис табл гл т ст п разд тел № илл кв стб",
    "uk": "с стор рис табл гл т ст п",
}
# May end a sentence; it does where a word stands next that often begins one. What closes a list, as "etc.",
# does so in most languages: it is here for German alone, in which many words have a capital letter.
OFTEN: Final = {
    "en": """
        al inc ltd co corp llc bros univ assn dept est ave rd blvd hwy jr sr a.m p.m u.s u.k u.n u.s.a
        ph.d m.sc b.sc m.a b.a d.c b.c a.d min max misc ext inst esq
    """,
    "de": """
        usw etc u.a u.ä o.ä u.s.w u.v.m uvm v.chr n.chr a.d mio mrd mill tsd std min max sek jh jhd verf
        hrsg allg co u.s ver e.v evang kath ehem u.dgl n.n ff f
    """,
    "fr": "av av.j.-c ap.j.-c s.a env apr min max st fasc réf ibid suiv",
    "es": "uu ee.uu a.c d.c s.a s.l a.m p.m avda av máx mín aprox cía",
    "it": "s.p.a s.r.l a.c d.c ca v.le p.za tel",
    "pt": "s.a a.c d.c ltda cia av",
    "nl": "e.d e.a o.a n.v b.v v.chr n.chr mln mld",
    "pl": "w r tys mln mld godz pt p.n.e n.e s.a z.o.o min max wiek zł gr ub",
    "cs": "atd apod aj s.r.o a.s tis mil mld kč hod min max stol př.n.l n.l n m v.o.s o.p.s",
    "sk": "a.s s.r.o tis mil mld hod min",
    "ru": "г гг в вв руб коп тыс млн млрд мин сек час др пр т.д т.п н.э до.н.э и.о",
    "uk": "р рр ст грн тис млн млрд т.д т.п ін",
    "sv": "m.m o.d osv kr tkr st",
    "da": "m.m osv kr ca",
    "no": "m.m osv kr",
    "fi": "jne yms klo mk s",
    "hu": "stb kft rt bt",
    "tr": "vs vb ltd şti a.ş",
}
# Words that seldom stand inside a sentence with a capital letter: articles, pronouns, conjunctions.
STARTING: Final = {
    "en": """
        the a an this that these those he she it they we you his her its their our my your there here then
        thus but and or so if when while after before however meanwhile moreover nobody everybody everyone
        what who why where how at in on for from as although because since some many most all no not is
        are was
    """,
    "de": """
        der die das den dem des ein eine einer einem eines er sie es wir ihr ich man sein seine ihre dies
        diese dieser dieses dann danach dort hier da so aber und oder wenn als weil nachdem bevor doch
        jedoch niemand jeder alle in im am an auf aus bei mit nach seit von vor zu zum zur für ohne um
        durch auch nur dabei dazu damit daher deshalb außerdem wer was wo wie warum wann nun jetzt später
        bis sind ist war
    """,
    "fr": """
        le la les un une des ce cet cette ces il elle ils elles on nous vous je tu son sa ses leur leurs
        mon ma mes mais et ou donc or car si quand après avant alors puis ensuite ici là dans en au aux à
        de du par pour sans sur avec personne tout tous qui que quoi où comment pourquoi c'est
    """,
    "es": """
        el la los las un una unos unas este esta estos estas ese esa él ella ellos ellas yo tú nosotros su
        sus mi pero y o si cuando después antes entonces luego aquí allí en a de por para con sin sobre
        nadie todo todos qué quién dónde cómo no lo se es
    """,
    "it": """
        il lo la i gli le un uno una questo questa lui lei egli essi noi voi io ma e o se quando dopo
        prima poi qui in a di da per con su nessuno tutti non si è
    """,
    "pt": """
        o a os as um uma este esta ele ela eles elas nós eu seu sua mas e ou se quando depois antes então
        aqui em de por para com sem no na não ninguém todos é
    """,
    "nl": """
        de het een dit dat deze die hij zij ze wij we ik jij u hun haar zijn maar en of als toen daarna
        dan daar hier in op aan bij met na van voor niemand iedereen wat wie waar
    """,
    "pl": """
        on ona ono oni one my wy ja ty ten ta to te ale i a lub gdy jeśli potem tam tu w z na po przed do
        od dla nikt wszyscy co kto gdzie jest
    """,
    "cs": """
        on ona ono oni my vy já ty ten ta to ti tato tento toto ale a i nebo když jestli pak potom tam
        tady v ve z ze na po před do od pro nikdo všichni co kdo kde je jsou byl byla bylo
    """,
    "sk": """
        on ona ono oni my vy ja ten tá to ale a i alebo keď ak potom tam v vo z na po pred do od nikto čo
        kto kde
    """,
    "ru": """
        он она оно они мы вы я ты это этот эта эти его её их но и а или если когда потом затем там здесь в
        во на по до от из с к у о для при никто все всё что кто где как не
    """,
    "uk": """
        він вона воно вони ми ви я ти це цей ця ці але і й та або якщо коли потім там тут в у на по до від
        ніхто
    """,
    "sv": """
        det den de han hon vi jag du ni en ett detta men och eller om när sedan där här i på av med för
        från ingen
    """,
    "da": """
        det den de han hun vi jeg du en et dette men og eller hvis når så der her i på af med for fra
        ingen
    """,
    "no": """
        det den de han hun vi jeg du en et dette men og eller hvis når så der her i på av med for fra
        ingen
    """,
    "hu": "a az egy ez ő ők mi én te de és vagy ha amikor akkor ott itt nem senki",
    "fi": "hän he me minä sinä se ne tämä mutta ja tai jos kun sitten siellä täällä ei kukaan",
}
# "3." is "third" there, and stands inside a sentence.
ORDINAL: Final = frozenset(
    [
        "de",
        "da",
        "no",
        "nb",
        "nn",
        "fi",
        "is",
        "et",
        "lv",
        "cs",
        "sk",
        "pl",
        "hu",
        "hr",
        "sl",
        "sr",
        "bs",
        "tr",
        "lb",
    ]
)
# Words without a vowel that are none shortened, as "vlk" (wolf).
SYLLABIC: Final = frozenset(["cs", "sk", "hr", "sl", "sr", "bs", "mk"])


def words_of(table: dict[str, str], language: str) -> frozenset[str]:
    """The words of a table for a language; of all its languages for an unknown one."""
    chosen = table.values() if not language else [table.get(language, "")]
    return frozenset(word for words in chosen for word in words.split())


def read_abbreviations(path: Path) -> frozenset[str]:
    """Abbreviations from a file of one a line, with or without its full stop; empty lines and # apart.

    Raises:
        CotextError: a line that is no abbreviation; else as `cotext.runtime.reading.read_text`.
    """
    found = set()
    for number, line in enumerate(read_text(path).splitlines(), 1):
        abbreviation = "".join(line.split())
        if not abbreviation or abbreviation.startswith("#"):
            continue
        if len(abbreviation) > LONGEST or not any(map(str.isalpha, abbreviation)):
            raise CotextError(
                f"{path}:{number}: no abbreviation; write one a line, as in Dr., of {LONGEST} characters "
                "at most"
            )
        found.add(abbreviation)
    return frozenset(found)
