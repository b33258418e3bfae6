"""ContraPro as published, with context from a folder of subtitles."""

import json
from pathlib import Path
from typing import Any

import pytest

from cotext.data.contrastive_suites import ContrastiveExample, SubtitleContext, documents_of, read_suite
from tests.command_line import cotext, must_refuse, succeed
from tests.loops import loop_over
from tests.refusals import must_raise

FILM = "1926_16493_4773977"
ENGLISH = ["The lamp.", '  It\'s "new".', "Good.", "It is mine."]
GERMAN = ["Die Lampe.", "Sie ist neu!", "Gut.", "Sie ist meine."]


def entry(**changes: Any) -> dict[str, Any]:
    return {
        **{"ante distance": 1, "ref pronoun": "Sie", "src pronoun": "It", "document id": f"{FILM}.de"},
        "errors": [
            {"contrastive": "Er ist neu.", "replacement": "Er", "type": "pronominal coreference"},
            {"contrastive": "Es ist neu.", "replacement": "Es", "type": "pronominal coreference"},
        ],
        **{"intrasegmental": False, "ref ante head gender": "Fem", "ref segment": "Sie ist neu."},
        **{"segment id": 2, "src segment": "It's 'new'.", **changes},
    }


LAST = entry(
    **{"segment id": 4, "src segment": "It is mine.", "ref segment": "Sie ist meine.", "ante distance": 3}
)
LAST["errors"] = [{"contrastive": "Er ist meine."}]


def suite_file(folder: Path, *entries: dict[str, Any]) -> Path:
    path = folder / "contrapro.json"
    path.write_text(json.dumps(list(entries), indent=2))
    return path


def subtitles(folder: Path, by_year: bool = True, german: list[str] = GERMAN) -> Path:
    inner = folder / "documents" / ("1926" if by_year else "")
    inner.mkdir(parents=True, exist_ok=True)
    for language, lines in (("en", ENGLISH), ("de", german)):
        (inner / f"{FILM}.{language}").write_text("".join(f"{line}\n" for line in lines))
    return folder / "documents"


@pytest.mark.parametrize("by_year", [True, False])
def test_contrapro_takes_its_context_from_the_film(tmp_path: Path, by_year: bool) -> None:
    context = SubtitleContext(subtitles(tmp_path, by_year), 2)
    suite = read_suite(suite_file(tmp_path, entry(), LAST), context)
    assert (suite.name, str(suite.languages)) == ("contrapro-original-ctx2", "en-de")
    first, last = suite.examples
    # The film begins one sentence before the first example; its tested sentences are as the suite has them.
    assert first == ContrastiveExample(
        id="0",
        phenomenon="pronoun",
        distance=1,
        source=("The lamp.", "It's 'new'."),
        candidates=tuple(("Die Lampe.", f"{pronoun} ist neu.") for pronoun in ("Sie", "Er", "Es")),
        correct=0,
        tags={"pronoun": "sie", "antecedent_gender": "f"},
        document=f"{FILM}.de",
    )
    assert last.source == ('It\'s "new".', "Good.", "It is mine.")
    assert last.candidates[1] == ("Sie ist neu!", "Gut.", "Er ist meine.")
    assert last.distance == 3
    assert documents_of(suite.examples) == [0, 0]


def test_folders_of_films_that_are_not_needed_uneven_or_missing(tmp_path: Path) -> None:
    path = suite_file(tmp_path, entry())
    assert read_suite(path, SubtitleContext(None, 0)).examples[0].source == ("It's 'new'.",)
    must_raise("2 sentences of context need the folder", SubtitleContext, None, 2)
    must_raise(r"contrapro\.json: ContraPro as published, .* --documents FOLDER", read_suite, path)
    context = SubtitleContext(subtitles(tmp_path, german=GERMAN[:3]), 3)
    must_raise(r"\.en has 4 lines but .*\.de has 3", read_suite, suite_file(tmp_path, entry()), context)
    must_raise("no such folder", SubtitleContext, tmp_path / "absent", 3)


@loop_over(
    ("changes", "message"),
    [
        ({"segment id": 5}, r"example 0: 'segment id' is 5, but .* lines 1 to 4"),
        ({"segment id": 0}, r"'segment id' is 0"),
        ({"segment id": None}, r"'segment id' is None"),
        ({"segment id": "2"}, r"'segment id': Input should be a valid integer"),
        ({"segment id": 3}, r"line 3 of .* is 'Good\.', not \"It's 'new'\.\"; .* OpenSubtitles 2018"),
        ({"document id": "../../etc/passwd.de"}, r"which cannot be the name of a file"),
        ({"document id": "1926_1.de"}, r"1926_1\.en: no such file"),
        ({"document id": 7}, r"'document id': Input should be a valid string"),
        ({"errors": []}, "at least two candidates"),
        ({"errors": [{}]}, r"'errors.0.contrastive': Field required"),
        ({"ref segment": "a\nb"}, r"'ref segment': contains a line break"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    context = SubtitleContext(subtitles(tmp_path), 3)
    must_raise(message, read_suite, suite_file(tmp_path, entry(**changes)), context)


def test_convert_makes_a_suite_with_context(tmp_path: Path) -> None:
    path, out = suite_file(tmp_path, entry(), LAST), tmp_path / "ctx.json.gz"
    folder = subtitles(tmp_path)
    shown = succeed("convert-suite", path, "--documents", folder, "--out", out)
    assert shown.out == f"{out}: contrapro-original-ctx3, 2 examples\n"
    assert read_suite(out) == read_suite(path, SubtitleContext(folder, 3))
    succeed("convert-suite", path, "--context", 0, "--out", out)
    assert read_suite(out).name == "contrapro-original-ctx0"
    before = out.read_bytes()
    must_refuse("--documents FOLDER", "convert-suite", path, "--out", out)
    must_refuse("need the folder", "convert-suite", path, "--out", out, "--context", 1)
    refused = cotext("convert-suite", out, "--out", tmp_path / "c", "--documents", folder)
    assert "has its own context" in refused.err
    assert out.read_bytes() == before
