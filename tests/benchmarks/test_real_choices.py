"""Choices of real text, by hand: what is one, what only looks like one, and what a translation decided."""

import json
from pathlib import Path

from benchmarks.study.choices import judge, main, suites_of
from benchmarks.study.pronoun_choices import pronoun_choices, pronoun_of
from benchmarks.study.register_choices import exchanged, register_choices, register_of
from benchmarks.study.term_choices import gender, learn, term_choices
from cotext.data.contrastive_suites import read_suite
from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import write_parallel
from cotext.evaluation.studies.contrastive.decisions import read_decisions
from tests.loops import loop_over
from tests.refusals import must_raise


def document(*pairs: tuple[str, str], id: str = "a") -> ParallelDocument:
    return ParallelDocument(id, tuple(s for s, _ in pairs), tuple(t for _, t in pairs))


@loop_over(
    ("source", "target", "form"),
    [
        ("It is old.", "Sie ist alt.", "Sie"),
        ("It is old.", "Er ist alt.", "Er"),
        ("If it is set, the file is read.", "Wenn sie gesetzt ist, wird die Datei gelesen.", "sie"),
        ("“It works.”", "„Er funktioniert.“", "Er"),
        ("It is used to read files.", "Er wird benutzt, um Dateien zu lesen.", "Er"),
    ],
)
def test_pronouns_that_stand_for_something_elsewhere(source: str, target: str, form: str) -> None:
    found = pronoun_of(source, target)
    start, stop, written = found
    assert target[start:stop] == written == form


@loop_over(
    ("source", "target"),
    [
        # `it` that stands for nothing, on one side or the other
        ("It is possible to read it later.", "Es ist möglich, später zu lesen."),
        ("It seems broken.", "Es scheint kaputt."),
        ("This makes it easier to read.", "Dadurch ist es leichter lesbar."),
        ("It is the server that answers.", "Es ist der Server, der antwortet."),
        ("It has two parts.", "Es gibt zwei Teile."),
        ("It allows you to stop.", "Dadurch erlaubt es Ihnen, anzuhalten."),
        ("Avoid it if files are open.", "Vermeiden Sie es, wenn Dateien offen sind."),
        # sie of the plural, and others that it could be
        ("It holds the files when they are read.", "Dort sind sie, wenn gelesen wird."),
        # the polite Sie, at the beginning of a sentence
        ("You can open it.", "Sie können öffnen."),
        # it twice; two pronouns; an object
        ("It says that it works.", "Sie sagt, dass sie läuft."),
        ("It reads him.", "Er liest ihn."),
        # what it stands for may be in the sentence
        ("The file is deleted if it is empty.", "Die Datei wird gelöscht, wenn sie leer ist."),
        # not rendered by a pronoun
        ("It is old.", "Die Lampe ist alt."),
    ],
)
def test_pronouns_that_are_no_choice(source: str, target: str) -> None:
    assert pronoun_of(source, target) is None


def test_choices_of_pronouns_and_register() -> None:
    pair = ("It is old.", "Sie ist alt.")
    [choice] = pronoun_choices(document(("The lamp fell.", "Die Lampe fiel."), pair))
    assert (choice.sentence, choice.right, choice.distance) == (1, "Sie ist alt.", None)
    assert choice.wrong == ("Er ist alt.", "Es ist alt.")
    assert choice.tags == {"pronoun": "sie"}
    assert list(pronoun_choices(document(pair))) == []  # the first sentence has no context
    pairs = [
        ("Your lamp is new.", "Ihre Lampe ist neu."),  # the first: nothing tells yet
        ("Open the door.", "Die Tür öffnen."),
        ("Put it on your table.", "Auf Ihren Tisch damit."),
    ]
    [choice] = register_choices(document(*pairs))
    assert (choice.sentence, choice.distance, choice.wrong) == (2, 2, ("Auf deinen Tisch damit.",))
    mixed = [*pairs, ("You see it.", "Du siehst sie.")]
    assert list(register_choices(document(*mixed))) == []


@loop_over(
    ("source", "target", "register"),
    [
        ("You can stop.", "Dann können Sie anhalten.", "polite"),
        ("Your file and its name.", "Ihre Datei und deren Name.", None),  # could be of `its`
        ("You and they agree.", "Sie sind sich einig.", None),  # could be `they`
        ("Use your file, not theirs.", "Nehmen Sie Ihre Datei.", "polite"),
        ("You can stop.", "Du kannst anhalten.", "familiar"),
        ("Your file", "Deine Datei", "familiar"),
        ("You and your friend", "Du und Ihr Freund", "mixed"),
        ("You can stop.", "Man kann anhalten.", None),
    ],
)
def test_registers(source: str, target: str, register: str | None) -> None:
    assert register_of(source, target) == register


@loop_over(
    ("source", "target", "register", "other"),
    [
        ("Your file", "Ihre Datei", "polite", "Deine Datei"),
        ("It allows you", "erlaubt Ihnen", "polite", "erlaubt dir"),
        ("Your file is read.", "Deine Datei wird gelesen.", "familiar", "Ihre Datei wird gelesen."),
        ("It helps you.", "Das hilft dir.", "familiar", "Das hilft Ihnen."),
        ("You open your file.", "Sie öffnen Ihre Datei.", "polite", None),  # the verb would change
        ("You hurt yourself.", "Dann tut sich Ihr Kind weh.", "polite", None),
        ("Its name and your name", "Ihr Name, und Ihr Name", "polite", None),  # whose?
    ],
)
def test_registers_exchanged(source: str, target: str, register: str, other: str | None) -> None:
    assert exchanged(source, target, register) == other


PAIRS = [
    *[("The password is old.", "Dann ist das Kennwort alt.")] * 30,
    *[("The password is new.", "Dann ist das Passwort neu.")] * 30,
    *[("The folder is new.", "Dann ist der Ordner neu, den Ordner gibt es.")] * 30,
    *[("The folder is old.", "Dann ist das Verzeichnis alt.")] * 30,
    *[("The document is old.", "Dann ist das Dokument alt.")] * 30,
    *[("The document is new.", "Dann ist das Dokuments neu.")] * 30,
    *[("The colour is new.", "Dann sind das Rotes und das Blaues.")] * 30,
]


def test_alternatives_are_of_one_gender_apart_and_not_one_word() -> None:
    alternatives = learn(PAIRS)
    assert alternatives["password"] == {"Kennwort": ("Passwort",), "Passwort": ("Kennwort",)}
    assert "folder" not in alternatives  # der Ordner, das Verzeichnis
    assert "document" not in alternatives  # Dokuments is Dokument
    assert "colour" not in alternatives  # both in every sentence
    assert learn(PAIRS[:49]) == {}  # too few of one of them
    assert gender({"m": 4}) is None
    assert gender({"m": 4, "f": 2}) is None
    assert gender({"m": 4, "n": 1}) == "m"


def test_a_term_that_the_document_keeps() -> None:
    alternatives = learn(PAIRS)
    kept = [
        ("The password is here.", "Hier ist das Kennwort."),
        ("Good.", "Gut."),
        ("No password?", "Ohne Kennwort?"),
        ("Password or password?", "Kennwort oder Kennwort?"),
    ]
    [choice] = term_choices(document(*kept), alternatives)
    assert (choice.sentence, choice.distance) == (2, 2)
    assert (choice.right, choice.wrong) == ("Ohne Kennwort?", ("Ohne Passwort?",))
    both = [*kept, ("A password", "Ein Passwort")]
    assert list(term_choices(document(*both), alternatives)) == []


TEXT = [
    ParallelDocument(
        "doc:1",
        ("The lamp is your lamp.", "It is old.", "Take your password.", "Your password is new."),
        ("Die Lampe ist Ihre Lampe.", "Sie ist alt.", "Hier Ihr Kennwort.", "Ihr Kennwort ist neu."),
    ),
    ParallelDocument("doc:2", ("The table is new.", "It is big."), ("Der Tisch ist neu.", "Er ist groß.")),
]


def test_the_reference_decides_everything_rightly_and_others_do_not() -> None:
    suites = suites_of("real", TEXT, learn(PAIRS), before=2)
    assert {phenomenon: [e.id for e in suite.examples] for phenomenon, suite in suites.items()} == {
        "pronoun": ["doc:1:pronoun:2", "doc:2:pronoun:2"],
        "register": ["doc:1:register:3", "doc:1:register:4"],
        "term": ["doc:1:term:password:4"],
    }
    [last] = suites["term"].examples
    assert (last.source, last.distance, last.document) == (TEXT[0].source[1:], 1, "doc:1")
    figures, decisions = judge(suites.values(), [Document(d.id, d.target) for d in TEXT])
    assert [each["right"] for each in figures.values()] == [100, 100, 100]
    assert figures["real-register"]["kept"] == 100
    written = ("Die Lampe ist Ihre Lampe.", "Er ist alt.", "Hier dein Kennwort.", "Ihr Wort ist neu.")
    both = [Document("doc:1", written), Document("doc:2", ("", "Er ist dick."))]
    figures, decisions = judge(suites.values(), both)
    assert figures["real-pronoun"] == {"right": 50, "wrong": 50, "both": 0, "neither": 0, "choices": 2}
    register = figures["real-register"]  # dein, then Ihr
    assert (register["kept"], register["wrong"]) == (0, 50)
    assert figures["real-term"]["neither"] == 100
    assert "kept" not in figures["real-term"]  # nothing was decided
    pronouns = decisions["real-pronoun"]
    assert pronouns["decisions"] == {"doc:1:pronoun:2": "wrong", "doc:2:pronoun:2": "right"}
    assert pronouns["documents"] == {"doc:1:pronoun:2": 0, "doc:2:pronoun:2": 1}
    # Of the documents there are.
    assert judge([suites["pronoun"]], both[:1])[0]["real-pronoun"]["choices"] == 1
    for id, told, message in (
        ("doc:1", written[:1], "doc:1:pronoun:2: its document has only 1 sentences in the translation"),
        ("doc:3", written, "the translation has none of its documents; give a translation"),
    ):
        must_raise(message, judge, suites.values(), [Document(id, told)])


def test_choices_by_command(tmp_path: Path) -> None:
    write_parallel(tmp_path / "text.jsonl", None, TEXT, "jsonl")
    write_parallel(tmp_path / "train.jsonl", None, [document(*PAIRS)], "jsonl")
    corpus, training, folder = (str(tmp_path / name) for name in ("text.jsonl", "train.jsonl", "real"))
    main(["make", corpus, corpus, folder, "--learn", training, training])
    assert sum(len(read_suite(path).examples) for path in Path(folder).iterdir()) == 5
    write_parallel(tmp_path / "written.jsonl", None, TEXT, "jsonl")  # as `cotext translate` writes it
    main(["judge", folder, str(tmp_path / "written.jsonl"), str(tmp_path / "out.json")])
    assert json.loads((tmp_path / "out.json").read_text())["real-term"]["right"] == 100
    assert "real-term" in read_decisions(tmp_path / "out.decisions.json")
