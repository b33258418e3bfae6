import gzip
import json
import lzma
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite, read_suite, write_suite
from tests.loops import loop_over
from tests.refusals import must_raise

LAMP = ContrastiveExample(
    id="lamp",
    phenomenon="pronoun",
    distance=1,
    source=("The lamp is new.", "It is bright.", "Good."),
    candidates=(
        ("Die Lampe ist neu.", "Sie ist hell.", "Gut."),
        ("Die Lampe ist neu.", "Er ist hell.", "Gut."),
    ),
    correct=0,
    tags={"pronoun": "sie"},
)
YOU = ContrastiveExample(
    id="you",
    phenomenon="register",
    distance=None,
    source=("Are you there?",),
    candidates=(("Bist du da?",), ("Seid ihr da?",), ("Sind Sie da?",)),
    correct=2,
)


def as_json(**changes: Any) -> dict[str, Any]:
    """The own format by hand, with keys of the only example replaced (None: left out)."""
    example = {
        "id": "lamp",
        "phenomenon": "pronoun",
        "distance": 1,
        "source": ["It is bright."],
        "candidates": [["Sie ist hell."], ["Er ist hell."]],
        "correct": 0,
        "tags": {},
    }
    example = {key: value for key, value in {**example, **changes}.items() if value is not None}
    return {
        "format": "cotext-contrastive",
        "version": 1,
        "name": "hand",
        "source_language": "en",
        "target_language": "de",
        "examples": [example],
    }


def test_compression_equal_sentences_and_repeated_ids(tmp_path: Path) -> None:
    """Compression follows the content, not the name; equal sentences share one string."""
    must_raise("no such file", read_suite, tmp_path / "absent.json")
    document = as_json()
    document["examples"] *= 2
    (tmp_path / "s.json").write_text(json.dumps(document))
    must_raise(r"s\.json: .*'lamp' occurs twice", read_suite, tmp_path / "s.json")
    context = "die Lampe " * 50
    candidates = [[context, "Sie."], [context, "Er."], [context, "Es."]]
    (tmp_path / "s.json").write_text(json.dumps(as_json(source=["a", "b"], candidates=candidates)))
    assert len({id(first) for first, _ in read_suite(tmp_path / "s.json").examples[0].candidates}) == 1
    content = json.dumps(as_json()).encode()
    for name, data in (("a", gzip.compress(content)), ("b.json", lzma.compress(content)), ("c.gz", content)):
        (tmp_path / name).write_bytes(data)
        assert read_suite(tmp_path / name).examples[0].id == "lamp"


def test_a_file_has_an_example_a_line_and_survives_a_failed_write(tmp_path: Path) -> None:
    write_suite(tmp_path / "s.json", ContrastiveSuite("mine", "en", "de", (LAMP, YOU)))
    path = tmp_path / "s.json"
    text = path.read_text(encoding="utf-8")
    assert json.loads(text)["examples"][1]["candidates"][2] == ["Sind Sie da?"]
    assert len(text.splitlines()) == 1 + 2 + 1
    unencodable = ContrastiveExample("x", "p", None, ("\ud800",), (("a",), ("b",)), 0)
    must_raise("cannot be written", write_suite, path, ContrastiveSuite("new", "en", "de", (unencodable,)))
    assert read_suite(path).name == "mine"
    assert [each.name for each in tmp_path.iterdir()] == ["s.json"]


@loop_over("name", ["s.json", "s.json.gz", "s.json.xz"])
def test_suites_survive_writing_and_reading(tmp_path: Path, name: str) -> None:
    odd = replace(YOU, id='\n"', source=("\u2028\t ",), distance=-3, tags={"": "\U0001f389"}, document="film")
    for examples in ((), (LAMP, YOU, odd)):
        suite = ContrastiveSuite("any", "en", "de", examples)
        write_suite(tmp_path / name, suite)
        assert read_suite(tmp_path / name) == suite
        assert [each.name for each in tmp_path.iterdir()] == [name]


def test_differing_sentences_and_identical_candidates() -> None:
    assert LAMP.differing_sentences == (1,)
    assert YOU.differing_sentences == (0,)
    three = ContrastiveExample(
        "x", "p", 0, ("a", "b", "c"), (("1", "2", "3"), ("1", "2", "4"), ("0", "2", "3")), 0
    )
    assert three.differing_sentences == (0, 2)
    twins = ContrastiveExample("x", "p", 0, ("a",), (("1",), ("2",), ("1",)), 2)
    assert twins.identical_to_correct == (0,)
    assert LAMP.identical_to_correct == ()


@loop_over(
    ("content", "message"),
    [
        ({"candidates": [["Sie."], ["Er ist", "hell."]]}, "candidate 1 has 2 sentences, the source has 1"),
        ({"candidates": [["Sie ist hell."]]}, "at least two candidates"),
        ({"correct": 2}, "numbered from 0 to 1"),
        ({"correct": -1}, "numbered from 0 to 1"),
        ({"correct": True}, "'examples.0.correct': Input should be a valid integer"),
        ({"source": [], "candidates": [[], []]}, "the source has no sentence"),
        ({"source": "It is bright."}, "'examples.0.source': Input should be a valid list"),
        ({"source": ["It is\nbright."]}, "contains a line break"),
        ({"candidates": [["Sie ist hell."], [7]]}, "'examples.0.candidates.1.0': Input should"),
        ({"distance": 1.0}, "'examples.0.distance': Input should be a valid integer"),
        ({"phenomenon": ""}, "'examples.0.phenomenon': String should have at least 1 character"),
        ({"distanse": 1}, "'examples.0.distanse': Extra inputs are not permitted"),
        (b"", "not valid JSON, column 1"),
        (b'{"format": "cotext-contrastive",\n "version": 1,,}', "not valid JSON, line 2 column 15"),
        (b'"lamp"', "not a contrastive suite"),
        (b'{"version": 1}', "'format' is None"),
        (json.dumps({**as_json(), "version": 2}).encode(), "'version' is 2, expected 1"),
        (json.dumps({**as_json(), "langauge": "en"}).encode(), "'langauge': Extra inputs"),
        (json.dumps(as_json()).encode("utf-16"), "not UTF-8"),
        (lzma.compress(json.dumps(as_json()).encode())[:-20], "cannot be read"),
        (b'[{"src": "a", "dst": ["b", "c"]}]', "example 0: 'true_ind': Field required"),
        (b'[{"src": "a _eos b", "dst": ["c _eos d", "e"], "true_ind": 0}]', "candidate 1 has 1 sentences"),
        (b'{"ref": "a", "contrastive": ["b"]}', "1: example '0': 'src_context': Field required"),
    ],
)
def test_a_wrong_file_is_named_once_with_the_reason(
    tmp_path: Path, content: bytes | dict[str, Any], message: str
) -> None:
    path = tmp_path / "s.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(as_json(**content)).encode())
    assert must_raise(re.escape(message), read_suite, path).count(str(path)) == 1


def test_contrapro_lines_by_hand(tmp_path: Path) -> None:
    lines = [
        {
            "id": 7,
            "src_context": "the lamp.",
            "src": "it is new.",
            "ref_context": "die Lampe.",
            "ref": "Sie ist neu.",
            "contrastive": ["Er ist neu.", "Es ist neu."],
            "ref_pronoun": "sie",
            "meta": {"ante distance": 1, "ref ante head gender": "Fem"},
        },
        {
            "id": 8,
            "src_context": "",
            "src": "it\u2028is.",
            "ref_context": "",
            "ref": "Es.",
            "contrastive": ["Er."],
            "ref_pronoun": "es",
        },
    ]
    # The name says nothing, and a line separator of Unicode inside a sentence does not end a JSON line.
    path = tmp_path / "anything.txt"
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    first, second = read_suite(path).examples
    assert first == ContrastiveExample(
        id="7",
        phenomenon="pronoun",
        distance=1,
        source=("the lamp.", "it is new."),
        candidates=tuple(("die Lampe.", f"{pronoun} ist neu.") for pronoun in ("Sie", "Er", "Es")),
        correct=0,
        tags={"pronoun": "sie", "antecedent_gender": "f"},
    )
    assert second.source == ("it\u2028is.",)
    assert second.candidates == (("Es.",), ("Er.",))
    assert second.distance is None
    assert second.tags == {"pronoun": "es"}


def test_the_documented_example_is_valid(tmp_path: Path) -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "contrastive-format.md"
    block = re.search(r"```json\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    (tmp_path / "s.json").write_text(block[1], encoding="utf-8")
    (example,) = read_suite(tmp_path / "s.json").examples
    assert example.differing_sentences == (1,)


@loop_over(
    ("name", "count", "undecidable"),
    [("deixis_test", 2_500, 0), ("lex_cohesion_test", 1_500, 0), ("ellipsis_vp", 500, 11)],
)
def test_real_consistency_sets(shared_data: Path, name: str, count: int, undecidable: int) -> None:
    suite = read_suite(shared_data / "voita-consistency" / f"{name}.json.xz")
    assert (suite.name, len(suite.examples)) == (f"voita-consistency/{name}", count)
    assert {(len(e.source), e.phenomenon) for e in suite.examples} == {(4, name.removesuffix("_test"))}
    assert all(example.differing_sentences in ((3,), ()) for example in suite.examples)
    assert sum(bool(example.identical_to_correct) for example in suite.examples) == undecidable
