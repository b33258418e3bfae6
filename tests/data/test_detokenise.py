"""Tokenised corpora and suites as people write them."""

import json
from dataclasses import replace
from pathlib import Path

from cotext.data.contrastive_suites import read_suite
from cotext.data.convert import Detokeniser
from tests.command_line import cotext, must_refuse, succeed
from tests.loops import loop_over

GROUP = {
    "src": "I 've never seen it . _eos You weren 't there , were you ?",
    "dst": [f"Я этого не видела . _eos {you} там не было , да ?" for you in ("Вас", "Тебя")],
    "true_ind": 1,
    "ctx_dist": 1,
}  # fmt: skip


@loop_over(
    ("language", "tokenised", "text"),
    [
        ("en", "I 've never seen it , he said .", "I've never seen it, he said."),
        ("en", "It 's &quot; new &quot; &amp; old @-@ fashioned .", 'It\'s "new" & old-fashioned.'),
        ("fr", "l' eau n' est pas là .", "l'eau n'est pas là."),
        ("ru", "К моему удивлению , она жива !", "К моему удивлению, она жива!"),
        ("de-CH", "Ja , gut .", "Ja, gut."),
        # Moses' rules know none of these.
        ("en", "“ I didn ’ t , ” she said . “ O ’ Brien ’ s ! ”", "“I didn’t,” she said. “O’Brien’s!”"),
        ("en", "“ Say : ‘ I ’ m in . ’ ” The dogs ’ house .", "“Say: ‘I’m in.’” The dogs’ house."),
        ("en", "He said : “ It goes on .", "He said: “It goes on."),
        ("en", "It ends , ” he said .", "It ends,” he said."),
        ("de", "„ Ja “ und » so « , „ so “ .", "„Ja“ und »so«, „so“."),
        ("sv", "” Ja ” och ” nej ” .", "”Ja” och ”nej”."),
        ("ru", "« Да » и « нет , сказал он .", "«Да» и «нет, сказал он."),
        ("fr", "l ’ eau , « oui » , n ’ est - ce pas ?", "l’eau, « oui », n’est - ce pas ?"),
        ("ar", "مرحبا ، كيف حالك ؟", "مرحبا، كيف حالك؟"),
        ("zh", "他 说 ： “ 你好 ” ， 《 书 》 （ 好 ） ！", "他说：“你好”，《书》（好）！"),
        # Its Czech ones joined these numbers to the words before, and failed at `' -`.
        ("cs", "V roce 1990 a 1995 .", "V roce 1990 a 1995."),
        ("cs", "e' - mail .", "e' - mail."),
        # Full stops of abbreviations do not make a plain text.
        ("en", "He 's of Acme Corp.", "He's of Acme Corp."),
        ("en", "Dr. No isn &apos;t of Corp.", "Dr. No isn't of Corp."),
        ("en", "a @-@ b Corp.", "a-b Corp."),
        # Plain text stays as it is.
        ("en", *["He said: 'Hello', and let 'em go."] * 2),
        ("zh", *["要打开 数据 对话框，请点击。"] * 2),
        ("en", "\u200b", "\u200b"),
        ("en", *["AT&T\u200b's <b>one, two</b> e\u0301 ☺."] * 2),
    ],
)
def test_words_are_joined_by_the_rules_of_a_language(language: str, tokenised: str, text: str) -> None:
    joined = Detokeniser(language)
    assert joined.sentence(tokenised) == text
    assert joined.sentence(text) == text


def test_a_suite_has_another_name_and_the_same_choices(tmp_path: Path) -> None:
    given, out = tmp_path / "deixis_test.json", tmp_path / "out.json"
    given.write_text(json.dumps([GROUP]))
    succeed("convert-suite", given, "--detokenise", "--out", out)
    suite, before = read_suite(out), read_suite(given)
    assert suite.name == f"{before.name}-detokenised"
    [example], [tokenised] = suite.examples, before.examples
    assert example.source == ("I've never seen it.", "You weren't there, were you?")
    assert example.candidates[1] == ("Я этого не видела.", "Тебя там не было, да?")
    assert replace(example, source=tokenised.source, candidates=tokenised.candidates) == tokenised
    # Languages may be given; a suite is detokenised once.
    run = ("--detokenise", "--source-language", "fr")
    succeed("convert-suite", given, *run, "--out", out)
    assert read_suite(out).examples[0].source[0] == "I 've never seen it."
    must_refuse("is detokenised already", "convert-suite", out, *run, "--out", tmp_path / "twice.json")
    out.write_text(json.dumps({**json.loads(out.read_text()), "name": "x", "source_language": "English"}))
    asked = cotext("convert-suite", out, "--detokenise", "--out", tmp_path / "twice.json")
    assert "--source-language en" in asked.err


def test_corpora_of_two_files_and_of_one(tmp_path: Path) -> None:
    (tmp_path / "a.en").write_text("I 've seen it .\n\nIt weren 't old .\nGood , good .\n")
    (tmp_path / "a.fr").write_text("l' eau .\n\nBon .\nOui , oui .\n")
    sides = ("convert", tmp_path / "a.en", tmp_path / "a.fr", "--to", "text", "--detokenise")
    succeed(*sides, "--out", tmp_path / "b.en", "--out-target", tmp_path / "b.fr")
    assert (tmp_path / "b.en").read_text() == "I've seen it.\n\nIt weren't old.\nGood, good.\n"
    assert (tmp_path / "b.fr").read_text() == "l'eau.\n\nBon.\nOui, oui.\n"
    succeed("convert", tmp_path / "a.en", "--to", "jsonl", "--detokenise", "--out", tmp_path / "b.jsonl")
    assert [json.loads(line)["sentences"] for line in (tmp_path / "b.jsonl").read_text().splitlines()] == [
        ["I've seen it."], ["It weren't old.", "Good, good."],
    ]  # fmt: skip


def test_languages_that_no_name_tells_have_to_be_given(tmp_path: Path) -> None:
    both, out = tmp_path / "both.en.jsonl", tmp_path / "out.jsonl"
    both.write_text(json.dumps({"id": "d", "source": ["weren 't", ""], "target": ["l' eau", ""]}) + "\n")
    run = ("convert", both, "--to", "jsonl", "--out", out, "--detokenise")
    for given, missing in (
        ((), "--source-language en"),
        (("--source-language", "en"), "--target-language en"),
    ):
        refused = cotext(*run, *given)
        assert (refused.code, missing in refused.err, out.exists()) == (2, True, False)
    succeed(*run, "--source-language", "en-GB", "--target-language", "fra")
    found = json.loads(out.read_text())
    assert (found["source"], found["target"]) == (["weren't", ""], ["l'eau", ""])
    (tmp_path / "a").write_text("l' eau\n")
    one = ("convert", tmp_path / "a", "--to", "text", "--detokenise", "--out", tmp_path / "b")
    assert "--source-language en" in cotext(*one).err
    assert "--source-language, without --target-language" in cotext(*one, "--target-language", "fr").err
    succeed(*one, "--source-language", "fr")
    assert (tmp_path / "b").read_text() == "l'eau\n"
