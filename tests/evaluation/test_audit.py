"""An audit finds each kind of fault where it was made, and nothing in a text without faults."""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from cotext.data.alignment import Vocabulary
from cotext.evaluation.requests import AuditRequest
from cotext.evaluation.studies.audit.align import _Judge, align
from cotext.evaluation.studies.audit.measure import Finding, SystemAudit, _stems, audit, drifts
from tests.command_line import cotext, succeed
from tests.refusals import must_raise

ANIMALS, VERBS, THINGS = (
    [pair.split() for pair in pairs.split(", ")]
    for pairs in (
        "horse Pferd, mouse Maus, sheep Schaf, goose Gans, snake Schlange",
        "sees sieht, hears hört, follows verfolgt, knows kennt",
        "church Kirche, garden Garten, bridge Brücke, kitchen Küche, ladder Leiter",
    )
)
TIMES = (("in the morning", "am Morgen"), ("tonight", "heute Nacht"), ("on Sunday", "am Sonntag"))
MORE = (("because it is hungry", "weil es hungrig ist"), ("and never comes back", "und kommt nie zurück"))
SENTENCES = 45


def _sentence(n: int, side: int) -> str:
    """The sentence of that number; no two have the same words, and neighbours are of unlike lengths."""
    words = (ANIMALS[n % 5], VERBS[n % 4], THINGS[n // 5 % 5], TIMES[n % 3])
    animal, verb, thing, time = (word[side] for word in words)
    more = "".join(f" {phrase[side]}" for i, phrase in enumerate((*MORE, *MORE)) if (n * n + n) % 11 >> i & 1)
    small, the = ("The small", "the ") if side == 0 else ("Kleine", "")
    return f"{small} {animal} {verb} {the}{thing} {time}{more}."


SOURCE = [_sentence(n, 0) for n in range(SENTENCES)]
TARGET = [_sentence(n, 1) for n in range(SENTENCES)]
SOURCE[30], TARGET[30] = "Nobody asked for their opinion.", "Niemand fragte nach ihrer Meinung."


Found = Callable[..., list[Finding]]


def audited(output: Path, **more: Path | None) -> SystemAudit:
    [system] = audit(AuditRequest(output=(output,), **more)).systems
    return system


@pytest.fixture
def found(tmp_path: Path) -> Callable[..., list[Finding]]:
    """What an audit of an output finds; the source and a glossary may be others."""

    def run(output: Sequence[str], source: Sequence[str] = SOURCE, terms: str = "") -> list[Finding]:
        paths = [tmp_path / name for name in ("text.de", "text.en", "terms.tsv")]
        for path, text in zip(paths, ("\n".join(output), "\n".join(source), terms), strict=True):
            path.write_text(f"{text}\n", encoding="utf-8")
        return list(audited(paths[0], source=paths[1], terms=paths[2] if terms else None).findings)

    return run


def _with(index: int, text: str, lines: Sequence[str] = TARGET) -> list[str]:
    return [*lines[:index], text, *lines[index + 1 :]]


def test_lost_and_added_sentences(found: Found) -> None:
    assert found(TARGET) == []
    [finding] = found(TARGET[:10] + TARGET[11:])
    assert (finding.kind, finding.sentence, finding.output_sentence) == ("lost", 11, None)
    assert (finding.document, finding.source, finding.output) == ("1", SOURCE[10], "")
    assert 0.5 < finding.confidence <= 1
    [finding] = found([*TARGET[:10], "Vielen Dank und bis bald, liebe Leute.", *TARGET[10:]])
    assert (finding.kind, finding.sentence, finding.output_sentence) == ("added", 10, 11)
    assert finding.source == ""


def test_sentences_out_of_order(found: Found) -> None:
    [swapped] = found([*TARGET[:10], TARGET[11], TARGET[10], *TARGET[12:]])
    assert (swapped.kind, swapped.sentence, swapped.output_sentence) == ("order", 11, 12)
    [moved] = found([*TARGET[:10], *TARGET[11:16], TARGET[10], *TARGET[16:]])
    assert (moved.kind, moved.sentence, moved.output_sentence) == ("order", 11, 16)
    # Equal lines are not moved, wherever they are.
    repeated = [(*SOURCE, SOURCE[3], SOURCE[20]), (*TARGET, TARGET[3], TARGET[20])]
    assert found(repeated[1], repeated[0]) == []


def test_the_gain_of_a_move_is_the_difference_of_all_scores() -> None:
    """Added to scores of pairs: 6 + log 0.89 = 5.88; at least -6 in place; unaligned: log 0.02 = -3.91."""
    never = -np.inf

    def gains(scores: list[list[float]], ours: list[int], theirs: list[int]) -> list[np.ndarray]:
        return list(_Judge._gains(np.array(scores, np.float32), np.array(ours), np.array(theirs)))

    # Two unaligned sentences, three beads apart: 2 + 5.88 + 2 * 3.91 - 10 - 2 log 3.
    assert gains([[2]], [0], [3]) == [pytest.approx(np.array([[3.51]]), abs=0.01), [[never]]]
    # From a good pair, which leaves its counterpart alone: 7.88 + 3.91 - (7.88 + 3.91) - 10 - 2 log 2.
    assert gains([[2], [2]], [0, 2], [0])[0] == pytest.approx(np.array([[never], [-11.39]]), abs=0.01)
    # Neighbours that changed places: 7.88 + 8.88 - 2 + 2 * 0.12, whichever is moved.
    swapped = gains([[-10, 2], [3, -10]], [0, 1], [0, 1])[1]
    assert swapped == pytest.approx(np.array([[never, 15.0], [15.0, never]]), abs=0.01)
    # The first sentence became the last: 2 + 1 + 3 - (0 - 1 - 2) - 2 - 2 log 2. Pairs on the two sides of an
    # unaligned sentence do not shift.
    scores = [[0.0, -9, 2], [1, -1, -9], [-9, 3, -2]]
    assert gains(scores, [0, 1, 2], [0, 1, 2])[1][0, 2] == pytest.approx(5.61, abs=0.01)
    assert gains(scores, [0, 1, 3], [0, 1, 3])[1][0, 2] == never


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (SOURCE[10], "untranslated"),
        (TARGET[30], "copied"),
        ("Маленькая змея слышит церковь утром.", "language"),
        ("The other weather report comes because nobody knows the church.", "language"),
        (f"{TARGET[8]} {TARGET[30]}", "lost"),
    ],
)
def test_what_stands_there_instead_of_a_translation(found: Found, text: str, kind: str) -> None:
    [finding] = found(_with(10, text))
    assert (finding.kind, finding.sentence, finding.output) == (kind, 11, text)


@pytest.mark.parametrize(
    ("source", "output", "kind"),
    [
        ("{name}", "", "tag"),
        ("<b>now</b>", "<b>nun</i>", "tag"),
        ("https://example.org/help", "https://example.org", "tag"),
        ("1,234", "1.235", "number"),
        ('"here"', "hier", "quote"),
        # What is only written otherwise is no fault.
        ("{name} %s", "%s {name}", ""),
        ("1,234.5", "1.234,5", ""),
        ('"here"', "„hier“", ""),
    ],
)
def test_what_changed_within_a_sentence(found: Found, source: str, output: str, kind: str) -> None:
    findings = found(_with(10, f"{TARGET[10]} {output}"), _with(10, f"{SOURCE[10]} {source}", SOURCE))
    assert {(each.kind, each.sentence) for each in findings} == ({(kind, 11)} if kind else set())


def test_a_name_that_other_sentences_keep(found: Found) -> None:
    places = (3, 17, 29, 41)
    source = [f"{s[:-1]} near Petrovia now." if n in places else s for n, s in enumerate(SOURCE)]
    output = [f"{t[:-1]} bei Petrovia nun." if n in places else t for n, t in enumerate(TARGET)]
    assert found(output, source) == []
    [finding] = found(_with(17, output[17].replace("Petrovia", "Olvenheim"), output), source)
    assert (finding.kind, finding.sentence) == ("name", 18)
    assert "Petrovia" in finding.note
    # Two letters in another order are a misspelling, even if no other sentence has the name.
    source[17] = source[17].replace("Petrovia", "Marklund")
    output[17] = output[17].replace("Petrovia", "Markulnd")
    [finding] = found(output, source)
    assert (finding.kind, finding.sentence, finding.note) == ("name", 18, "missing: Marklund (has Markulnd)")


def test_terms_of_a_glossary(found: Found) -> None:
    assert found(TARGET, terms="church\tKirche|Gotteshaus\nbridge\tBrücke\n") == []
    # What is missing is told, but not an inflected form; so is a forbidden translation.
    assert found([t.replace("Brücke", "Bru\u0308cken") for t in TARGET], terms="bridge\tBrücke\n") == []
    place = next(n for n, text in enumerate(SOURCE) if "bridge" in text)
    findings = found(_with(place, TARGET[place].replace("Brücke", "Steg")), terms="bridge\tBrücke\tSteg\n")
    told = {(each.kind, each.sentence, each.note) for each in findings if each.kind == "term"}
    assert told == {("term", place + 1, "forbidden: Steg; missing: Brücke")}


def test_a_form_of_address_that_changes(found: Found) -> None:
    places = (3, 9, 17, 29, 41)
    source = [f"{s[:-1]}, as you know." if n in places else s for n, s in enumerate(SOURCE)]
    output = [f"{t[:-1]}, wie Sie wissen." if n in places else t for n, t in enumerate(TARGET)]
    assert found(output, source) == []
    findings = found(_with(17, output[17].replace("Sie wissen", "du weißt"), output), source)
    assert [(each.kind, each.sentence, each.note) for each in findings] == [
        ("drift", 18, "informal address, unlike the rest of the document")
    ]


def test_a_term_that_is_rendered_in_two_ways(found: Found) -> None:
    places = range(2, 44, 6)
    source = [f"{s[:-1]} lantern." if n in places else s for n, s in enumerate(SOURCE)]
    output = [f"{t[:-1]} Laterne." if n in places else t for n, t in enumerate(TARGET)]
    assert found(output, source) == []
    [finding] = found(_with(20, output[20].replace("Laterne", "Funzel"), output), source)
    assert (finding.kind, finding.sentence) == ("drift", 21)


def test_of_two_renderings_that_are_as_usual_the_first_is_told() -> None:
    """The order of a set would be another in every process."""
    german = "Die Laterne namens Zwielicht Abendstern Mondschein Nachtwind ist da."
    pairs = [("1", f"The lantern {n} is there.", german) for n in "abcdef"]
    pairs[3] = ("1", pairs[3][1], "Die schöne alte Funzel ist da.")
    pairs += [("1", f"The door {n} is there.", "Die Tür ist da.") for n in "abcdef"]
    [(number, fault)] = [each for each in drifts(pairs, ("en", "de")) if "lantern" in each[1].note]
    assert (number, fault.note) == (3, 'lacks "Laterne", which 5 other sentences with "lantern" have')


def test_other_words_with_the_same_beginning_are_not_the_same_term() -> None:
    pairs = [("1", f"The compatible part {n} is there.", f"Das kompatible Teil {n} ist da.") for n in "abcde"]
    pairs[2] = ("1", "The companies c are there today.", "Die Firmen c sind heute alle da.")
    pairs += [("1", f"The door {n} is there.", "Die Tür ist da.") for n in "abcdef"]
    assert not any("compa" in fault.note for _, fault in drifts(pairs, ("en", "de")))


def test_pronouns_and_tense_that_change(found: Found) -> None:
    source = [*SOURCE, "He was in the garden.", "He was in the kitchen."]
    assert found([*TARGET, "Er war im Garten.", "Er war in der Küche."], source) == []
    notes = [each.note for each in found([*TARGET, "Er war im Garten.", "Sie ist in der Küche."], source)]
    assert notes == [
        "he becomes sie, but er in the sentence before; past becomes present, but past in the sentence before"
    ]


def test_merged_sentences_are_counted_and_not_lost(tmp_path: Path) -> None:
    merged = [
        f"{TARGET[n][:-1]}, und {TARGET[n + 1][:1].lower()}{TARGET[n + 1][1:]}" for n in range(0, 44, 2)
    ]
    (tmp_path / "m.de").write_text("\n".join([*merged, TARGET[44]]), encoding="utf-8")
    (tmp_path / "s.en").write_text("\n".join(SOURCE), encoding="utf-8")
    system = audited(tmp_path / "m.de", source=tmp_path / "s.en")
    assert (system.merged, system.output_sentences) == (22, 23)
    assert not system.counts["lost"]
    assert "23 (merged in 22 places, divided in 0)" in system.summary


def test_the_summary_says_if_few_words_correspond(tmp_path: Path) -> None:
    draw = random.Random(1)
    other = [" ".join(draw.choices(TARGET[30].split() + " ".join(TARGET[:9]).split(), k=6)) for _ in SOURCE]
    for output, is_weak in ((TARGET, False), (other, True)):
        _write(tmp_path, output)
        system = audited(tmp_path / "o.de", source=tmp_path / "s.en")
        assert (system.is_weak, "few words correspond" in system.summary) == (is_weak, is_weak)


def test_stems() -> None:
    assert list(_stems("Häuserzeile, ok")) == ["häuse", ",", "ok"]
    assert list(_stems("你好吗?")) == ["你", "你好", "好", "好吗", "吗", "?"]


def test_long_unrelated_sentences_are_not_less_likely_than_short_ones() -> None:
    """The score that is expected of 20 words is -32; the scale is the root of 8 / 32."""
    vocabulary = Vocabulary()
    side = vocabulary.side(["a b c d e f g h i j"])
    judge = _Judge([((side, side), [((0,), (0,))])], len(vocabulary), (side, side))
    raw = float((judge._lengths.scores(side, side) + judge._lexicon.scores(side, side))[0, 0, 0])
    judge._unrelated = -1.6
    assert judge._scores(side, side)[0, 0, 0] == pytest.approx(-8 + (raw + 32) / 2, abs=1e-4)
    judge._unrelated = -0.1
    assert judge._scores(side, side)[0, 0, 0] == pytest.approx(raw, abs=1e-4)


def test_documents_are_aligned_one_by_one_and_long_ones_near_an_earlier_path() -> None:
    sides = [SOURCE[:20], SOURCE[20:]], [TARGET[:20], TARGET[20:]]
    beads = align(*sides)
    numbers = [(n,) for n in range(SENTENCES)]
    assert [bead.source for bead in beads] == [bead.output for bead in beads] == numbers
    many, more = SOURCE * 12, TARGET * 12
    beads = align([many], [more[:300] + more[301:]])
    assert [bead.source for bead in beads if not bead.output] == [(300,)]
    assert sum(len(bead.source) == len(bead.output) == 1 for bead in beads) == len(many) - 1


def _write(folder: Path, output: Sequence[str] = TARGET) -> list[str]:
    (folder / "s.en").write_text("\n".join(SOURCE), encoding="utf-8")
    (folder / "o.de").write_text("\n".join(output), encoding="utf-8")
    return [str(folder / "o.de"), "--source", str(folder / "s.en")]


def test_the_command_prints_json_and_fails_on_the_kinds_that_are_asked_for(tmp_path: Path) -> None:
    arguments = _write(tmp_path, TARGET[:10] + TARGET[11:])
    result = cotext("audit", *arguments, "--json", "--fail-on", "lost")
    assert result.code == 1
    [finding] = json.loads(result.out)["findings"]
    assert (finding["kind"], finding["sentence"], finding["system"]) == ("lost", 11, "o.de")
    assert cotext("audit", *arguments, "--fail-on", "all").code == 1
    plain = cotext("audit", *arguments, "--fail-on", "added", "--fail-on", "tag")
    assert (plain.code, "faults: 1 lost." in plain.out) == (0, True)
    assert cotext("audit", *arguments, "--fail-on", "typo").code == 2
    assert "would overwrite an input file" in cotext("audit", *arguments, "--out", arguments[0]).err


def test_the_page_says_what_is_wrong_and_escapes_it(tmp_path: Path) -> None:
    arguments = _write(tmp_path, _with(10, "Kleine <Maus> & Co. {x}"))
    (tmp_path / "good.de").write_text("\n".join(TARGET), encoding="utf-8")
    page = tmp_path / "page.html"
    succeed("audit", str(tmp_path / "good.de"), *arguments, "--out", str(page))
    text = page.read_text(encoding="utf-8")
    assert "<b>good.de</b>: 45 source sentences became 45, and no fault was found." in text
    assert "1 with changed tags or placeholders" in text
    assert "Kleine &lt;Maus&gt; &amp; Co. {x}" in text


def test_numbers_of_documents_and_empty_lines(tmp_path: Path) -> None:
    arguments = _write(tmp_path, [*TARGET[:20], "", *TARGET[20:]])
    result = json.loads(cotext("audit", *arguments, "--json").out)
    assert result["findings"] == []
    assert result["notes"] == ["o.de has 2 documents, but the source has 1; compared as one text"]
    _write(tmp_path, ["", *TARGET[1:5], "", "", *TARGET[7:]])
    system = audited(tmp_path / "o.de", source=tmp_path / "s.en")
    assert [(each.kind, each.sentence) for each in system.findings] == [("lost", n) for n in (1, 6, 7)]
    places = [(*place.values(),) for place in system.positions]
    assert places[:4] == [("1", 1, 1), ("2", 1, 0), ("3-4", 2, 0), ("5-8", 4, 2)]


def test_a_reference_has_a_line_for_each_of_the_source(tmp_path: Path) -> None:
    _write(tmp_path)
    output, source, short = (tmp_path / name for name in ("o.de", "s.en", "short.de"))
    assert not audited(output, source=source, reference=output).findings
    short.write_text("\n".join(TARGET[:-1]), encoding="utf-8")
    must_raise("is not aligned with", audited, output, source=source, reference=short)
    source, other = tmp_path / "s.jsonl", tmp_path / "o.jsonl"
    for path, ids in ((source, "ab"), (other, "ba")):
        path.write_text("".join(f'{{"id": "{id}", "sentences": ["Ja."]}}\n' for id in ids))
    must_raise("in another order", audited, other, source=source)
    must_raise("in another order", audited, source, source=source, reference=other)


XLIFF = """<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file source-language="en"
 target-language="de" original="a" datatype="plaintext"><body>{}</body></file></xliff>"""
UNIT = '<trans-unit id="{}"><source>{} <ph id="1"/></source><target>{} {}</target></trans-unit>'


def test_bilingual_files(tmp_path: Path) -> None:
    missing = [(n, SOURCE[n], TARGET[n], "" if n == 4 else '<ph id="1"/>') for n in range(SENTENCES)]
    (tmp_path / "a.xlf").write_text(XLIFF.format("".join(UNIT.format(*each) for each in missing)))
    entries = (
        f'msgid "{s}"\nmsgstr "{SOURCE[7] if s == SOURCE[7] else t}"\n'
        for s, t in zip(SOURCE, TARGET, strict=True)
    )
    (tmp_path / "b.po").write_text("\n".join(entries), encoding="utf-8")
    (tmp_path / "c.tsv").write_text("".join(f"d\t{s}\t{t}\n" for s, t in zip(SOURCE, TARGET, strict=True)))
    for name, kinds in (("a.xlf", [("tag", 5)]), ("b.po", [("untranslated", 8)]), ("c.tsv", [])):
        assert [(each.kind, each.sentence) for each in audited(tmp_path / name).findings] == kinds
