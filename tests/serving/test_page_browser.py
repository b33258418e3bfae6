"""The page in a real browser, before a server whose answers the test decides: a text and its translation."""

from pathlib import Path

import pytest

from tests.serving.browsing import (
    CHROMIUM,
    TARGETS,
    TEXT,
    Open,
    finished,
    sentence,
    source,
    targets,
    translate,
    until,
)
from tests.serving.fake_own_api import Told

pytest.importorskip("playwright", reason="needs playwright, of the extra `dev`")
pytestmark = [
    pytest.mark.outside,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]


def test_a_document_is_shown_beside_its_translation_paragraph_by_paragraph(visit: Open) -> None:
    with visit() as page:
        translate(page)
        assert targets(page) == TARGETS
        rows = page.locator(".row:not(.head)")
        assert [rows.nth(i).locator(".source .s").count() for i in range(rows.count())] == [2, 3]
        assert page.locator(".target").first.get_attribute("lang") == "de"
        assert page.locator(".source").first.get_attribute("lang") == "en"
        assert page.locator(".source").first.get_attribute("dir") == "auto"
        assert page.locator(".row.head").inner_text().split("\n")[0].startswith("English")
        until(page, "document.getElementById('status').textContent === 'Translated 5 sentences.'")


def test_sentences_appear_as_they_come_in_any_order(visit: Open, told: Told) -> None:
    told.pause, told.backwards = 0.15, True
    with visit() as page:
        page.fill("#source", TEXT)
        page.click("#translate")
        until(page, "document.querySelectorAll('.s[data-column] .t').length === 2")
        assert targets(page) == TARGETS[3:]
        assert page.locator(".pending .ghost[aria-hidden=true]").count() == 3
        assert "/ 5" in page.inner_text("#count")
        finished(page)
        assert targets(page) == TARGETS


def test_a_running_translation_is_cancelled(visit: Open, told: Told) -> None:
    told.pause = 0.2
    with visit() as page:
        page.fill("#source", TEXT * 5)
        page.click("#translate")
        page.wait_for_selector(".s[data-column] .t")
        page.click("#cancel")
        finished(page)
        assert 0 < len(targets(page)) < 25
        assert page.locator(".s .failed").first.inner_text() == "not translated"
        assert page.is_visible("#legend-failed")
        assert page.inner_text("#summary").startswith("Stopped: ")
        assert page.evaluate("document.activeElement.id") == "result-title"
        page.wait_for_timeout(400)
        assert told.stopped == 1


def test_the_example_stands_in_both_kinds_of_system(visit: Open) -> None:
    with visit() as page:
        page.click("#example")
        finished(page)
        assert page.input_value("#system") == "document"
        assert page.input_value("#beside") == "sentence"
        assert len(targets(page)) == len(targets(page, 1)) == page.locator(".source .s").count() > 6


def test_low_confidence_is_underlined_and_said(visit: Open) -> None:
    with visit() as page:
        translate(page)
        assert page.locator(".s.low").count() == 3
        assert sentence(page, 0).inner_text().endswith("(unsure)")
        line = "e => getComputedStyle(e).textDecorationStyle"
        assert page.locator(".s.low .t").first.evaluate(line) == "wavy"
        assert page.is_visible("#legend-low")


def test_two_systems_stand_side_by_side_with_their_differences_marked(visit: Open) -> None:
    with visit() as page:
        translate(page, beside="sentence")
        assert page.locator(".row:not(.head)").count() == 5
        marks = [page.locator(f".s[data-column='{c}'] mark").all_inner_texts() for c in (0, 1)]
        assert marks == [["Sie", "Er"], ["Es", "Es"]]
        assert "differ in 2 of them" in page.inner_text("#summary")
        assert page.is_visible("#legend-mark")


def test_a_click_on_a_word_shows_which_context_decided_it(visit: Open, told: Told) -> None:
    with visit() as page:
        translate(page)
        sentence(page, 4).hover()
        sentence(page, 4).locator(".w", has_text="Er").click()
        page.wait_for_selector(".verdict")
        asked = told.asked[-1][1]
        assert asked["characters"] == [0, 2]
        assert (asked["sentence"], asked["targets"]) == (4, TARGETS)
        assert page.inner_text(".verdict") == (
            "Er was decided by sentence 4, There was a ring. With it, the word is 26 times as probable as "
            "without it (+3.25)."
        )
        assert page.locator(".influences li").count() == 4
        assert page.locator(".influences .figures").first.inner_text() == "+3.25"
        assert "lit" in (source(page, 3).get_attribute("class") or "")
        # The sentence has its figure once, where the source stands.
        assert source(page, 3).locator(".figure").inner_text() == "+3.25"
        assert "lit" in (sentence(page, 3).get_attribute("class") or "")
        assert sentence(page, 3).locator(".figure").count() == 0
        assert "down" in (source(page, 0).get_attribute("class") or "")
        widths = page.locator(".bar").evaluate_all("all => all.map(e => e.getBoundingClientRect().width)")
        assert widths[0] > 5 * widths[1] > 0
        assert "Es war alt." in page.inner_text("#panel")
        page.keyboard.press("Escape")
        assert page.locator(".lit, .figure").count() == 0
        assert page.is_hidden("#panel")


def test_words_behind_characters_of_two_halves_are_found(visit: Open, told: Told) -> None:
    with visit() as page:
        translate(page, "There was a ring. \U0001f600 It was old.")
        sentence(page, 1).hover()
        sentence(page, 1).locator(".w", has_text="alt").click()
        page.wait_for_selector(".verdict")
        assert told.asked[-1][1]["characters"] == [9, 12]
        assert page.inner_text(".asked") == "alt"
        assert "+3.00" in page.inner_text(".words button[aria-pressed=true]")


def test_text_is_copied_and_downloaded(visit: Open, told: Told) -> None:
    expected = " ".join(TARGETS[:2]) + "\n" + " ".join(TARGETS[2:])
    with visit(permissions=["clipboard-read", "clipboard-write"]) as page:
        translate(page)
        page.click("#copy")
        until(page, "document.getElementById('copy').textContent === 'Copied'")
        assert page.evaluate("navigator.clipboard.readText()") == expected
        with page.expect_download() as got:
            page.click("#download")
        assert got.value.suggested_filename == "translation.de.txt"
        assert Path(got.value.path()).read_text(encoding="utf-8") == expected
