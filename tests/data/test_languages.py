"""Languages of a corpus, a run and a suite: told or guessed, kept, and checked against each other."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cotext.data.contrastive_suites import read_suite, write_suite
from cotext.data.documents import (
    CODES,
    NAMES,
    Languages,
    ParallelDocument,
    check_sides,
    language_code,
    language_of_name,
    languages_of_names,
    name_of,
    name_warning,
)
from cotext.data.formats import write_parallel
from cotext.models.checkpoint import load_run
from cotext.models.run_folder import describe_file
from cotext.runtime import CotextError
from cotext.training.inputs import open_data, resolve
from tests.command_line import TINY, World, must_refuse, prepare_arguments, succeed, write_corpus
from tests.refusals import must_raise
from tests.tiny_runs import run_config

EN_DE = Languages("en", "de")


def test_codes_names_and_pairs() -> None:
    assert NAMES.keys() == CODES
    assert len(set(NAMES.values())) == len(NAMES)
    assert (name_of("de"), name_of("nds")) == ("German", "nds")
    written = {"DE": "de", "de-AT": "de", "zh_CN": "zh", "deu": "de", "nds": "nds"}
    assert {text: language_code(text, "--x") for text in written} == written
    must_raise("--x German: pass a language code", language_code, "German", "--x")
    assert languages_of_names(Path("train.en"), Path("train.de")) == EN_DE
    for target in (None, Path("train.txt"), Path("other.en")):
        assert languages_of_names(Path("train.en"), target) == Languages()
    assert EN_DE.contradicts(Languages("en", "ru"))
    assert EN_DE.contradicts(EN_DE.reversed)
    assert EN_DE.contradicts(Languages("", "fr"))
    # The same by other codes, perhaps; half a pair; nothing.
    for other in (EN_DE, Languages("eng", "deu"), Languages("en", ""), Languages()):
        assert not EN_DE.contradicts(other)
    assert Languages.parse(str(EN_DE)) == Languages.parse("eng-deu") == EN_DE
    assert Languages.parse("") == Languages()
    named = {"train.en": "en", "train.de.xz": "de", "talks.en-de.en.txt.gz": "en", "Train.DE": "de"}
    for name, code in {**named, "train.jsonl": "", "en": "", "train.txt": ""}.items():
        assert language_of_name(Path("x.fr", name)) == code


def test_names_the_wrong_way_round_are_refused_and_one_alone_is_warned_of() -> None:
    with pytest.raises(CotextError, match=r"a\.de and a\.en: the names say de-en, but r translates en-de"):
        check_sides(EN_DE, Path("a.de"), Path("a.en"), "r translates")
    check_sides(EN_DE, Path("a.en"), Path("a.de"), "")
    check_sides(Languages(), Path("a.de"), Path("a.en"), "")
    assert "the name says 'de', but r translates from 'en'" in name_warning(
        Path("a.de"), "en", "r translates"
    )
    assert not name_warning(Path("a.en"), "en", "") + name_warning(Path("a"), "en", "")
    assert not name_warning(Path("a.de"), "", "") + name_warning(Path("a.de"), "eng", "")


def test_from_names_to_the_checkpoints(world: World) -> None:
    assert "languages: en-de" in world.prepared.out
    assert open_data(world.folder / "data").languages == EN_DE
    assert load_run(world.run).languages == EN_DE
    for path in world.run.rglob("model.safetensors"):
        assert describe_file(path).config.languages == "en-de"


def test_what_is_told_counts_more_than_names_unless_it_contradicts_them(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    given = prepare_arguments(tmp_path, tmp_path / "data")
    command = (*given, "--source-language", "de", "--target-language", "en")
    must_refuse("train.de: the names say en-de, but the corpus is de-en; swap them", *command)
    assert not (tmp_path / "data").exists()
    german = ("Der Ausschuss hat den Bericht besprochen.", "Wir danken den Mitgliedern für die Fragen.")
    english = ("The committee has discussed the report.", "We thank the members for their questions.")
    memory = ("--source", tmp_path / "memory", "--dev-source", tmp_path / "memory")
    pair = ("--source-language", "en", "--target-language", "de", "--out", tmp_path / "data")
    for codes, words in ((("de", "en"), "memory: the file is de-en"), (None, "memory: the texts say de-en")):
        write_parallel(tmp_path / "memory", None, [ParallelDocument("d", german, english)], "tmx", codes)
        must_refuse(words, "prepare", *memory, *pair)
    told = [*prepare_arguments(tmp_path, tmp_path / "data"), "--target-language", "de-AT"]
    shown = succeed(*told, "--source-language", "fr").out
    assert "languages: fr-de" in shown
    report = json.loads((tmp_path / "data" / "report.json").read_text())
    assert report["languages"] == {"source": "fr", "target": "de"}


def test_settings_that_contradict_the_data(world: World) -> None:
    data = open_data(world.folder / "data")
    told = run_config().model_copy(update={"languages": "en-ru"})
    must_raise(r"the configuration \(languages\) is en-ru, and .*data is en-de", resolve, told, data)
    places = ("--data", world.folder / "data", "--out", world.folder / "none")
    train = ("train", "focused-concatenation/base", *TINY, "languages=English")
    must_refuse("languages = 'English'", *train, *places)


def test_suites_of_another_pair_and_files_the_wrong_way_round(world: World, tmp_path: Path) -> None:
    folder = world.folder
    write_suite(tmp_path / "suite.json", replace(read_suite(folder / "suite.json"), target_language="ru"))
    words = ("suite.json is en-ru, and", "translates en-de; use the same language pair for both")
    must_refuse(words, "contrastive", world.run, tmp_path / "suite.json", "--out", tmp_path / "out.json")
    swapped = (folder / "test.de", "--target", folder / "test.en")
    for given in ("score --source", "cxmi --source", f"attention --out {tmp_path / 'maps'}"):
        command, *options = given.split()
        must_refuse("the names say de-en", command, world.run, *options, *swapped)
    done = succeed("translate", world.run, folder / "test.de", "--out", tmp_path / "test.out")
    assert "test.de: the name says 'de'" in done.err + done.out
    done = succeed("translate", world.run, folder / "test.en", "--out", tmp_path / "other.out")
    assert "by its name" not in done.err + done.out
