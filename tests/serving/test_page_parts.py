"""The page in a real browser: errors, keys, what outlives a reload, hostile data, glossary and files."""

from pathlib import Path

import pytest

from tests.serving.browsing import (
    CHROMIUM,
    TARGETS,
    TEXT,
    Open,
    sentence,
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

HOSTILE = "<img src=x onerror=alert(1)> <script>alert(2)</script> &amp; “x”."


def test_errors_are_told_where_they_arise(visit: Open, told: Told) -> None:
    told.fail["translate"] = 429, "too many requests: wait a minute"
    with visit(refused=True) as page:
        page.click("#translate")
        assert "nothing to translate" in page.inner_text("#text-error")
        assert page.evaluate("document.activeElement.id") == "source"
        page.evaluate("document.getElementById('source').value = 'a'.repeat(200_001)")
        page.click("#translate")
        assert "200,001 bytes" in page.inner_text("#text-error")
        translate(page)
        assert page.inner_text("#text-error") == "too many requests: wait a minute"
        assert page.input_value("#source") == TEXT
        told.fail.clear()
        page.click("#translate")
        page.wait_for_selector(".s[data-column] .t")
        assert page.is_hidden("#text-error")


@pytest.mark.parametrize("how", ["break_at", "hang_up_at"])
def test_what_came_before_an_error_stays(visit: Open, told: Told, how: str) -> None:
    setattr(told, how, 2)
    with visit() as page:
        translate(page)
        assert targets(page) == TARGETS[:2]
        expected = {"break_at": "the model is gone", "hang_up_at": "The connection broke"}[how]
        assert expected in page.inner_text("#result-error")
        assert page.locator(".s .failed").count() == 3


def test_a_server_that_is_gone_is_told(visit: Open) -> None:
    with visit(refused=True) as page:
        page.route("**/api/translate", lambda route: route.abort())
        translate(page)
        assert "cannot be reached" in page.inner_text("#text-error")


def test_a_key_is_asked_for_and_kept_until_the_tab_is_closed(visit: Open, told: Told) -> None:
    told.key = "secret"
    with visit(refused=True) as page:
        page.wait_for_selector("#key-form:visible")
        page.fill("#key", "wrong")
        page.keyboard.press("Enter")
        page.wait_for_selector("#key-form", state="hidden")
        translate(page)
        page.wait_for_selector("#key-error:visible")
        assert page.inner_text("#key-error") == "this key is unknown to this server"
        page.fill("#key", "secret")
        page.keyboard.press("Enter")
        page.wait_for_selector("#key-form", state="hidden")
        page.click("#translate")
        page.wait_for_selector(".s[data-column] .t")
        page.reload()
        page.wait_for_selector("#systems:visible")
        assert page.is_hidden("#key-form")
        assert page.evaluate("Object.keys(localStorage)") == []
        assert page.evaluate("sessionStorage.getItem('cotext.key')") == '"secret"'


def test_text_and_systems_survive_a_reload(visit: Open) -> None:
    with visit() as page:
        page.fill("#source", TEXT)
        page.select_option("#system", "sentence")
        page.select_option("#beside", "parallel")
        page.reload()
        page.wait_for_selector("#systems:visible")
        assert page.input_value("#source") == TEXT
        assert (page.input_value("#system"), page.input_value("#beside")) == ("sentence", "parallel")


def test_data_is_never_markup(visit: Open, told: Told) -> None:
    with visit() as page:
        page.on("dialog", lambda dialog: pytest.fail("a script of the data ran"))
        page.goto(page.url + "#glossary")
        page.fill("#term-source", "<img src=x onerror=alert(3)>")
        page.fill("#term-target", "<b>x</b>")
        page.keyboard.press("Enter")
        page.goto(page.url.split("#")[0] + "#text")
        translate(page, HOSTILE, beside="sentence")
        sentence(page, 0).click()
        page.wait_for_selector("#panel:visible")
        told.jobs["j"] = {
            "id": "j", "state": "error", "sentences": 1, "sentences_done": 0, "seconds_remaining": None,
            "billed_characters": 0, "message": HOSTILE, "messages": [HOSTILE],
            "file_name": "<img src=x onerror=alert(4)>.txt",
        }  # fmt: skip
        page.goto(page.url.split("#")[0] + "#files")
        page.wait_for_selector(".job")
        assert page.inner_text(".job .name") == "<img src=x onerror=alert(4)>.txt"
        assert page.locator("main img, main script, main b").count() == 0
        assert HOSTILE.split(" <")[0] in page.text_content(".source")  # type: ignore[operator]


def test_writing_without_spaces_and_from_right_to_left(visit: Open, told: Told) -> None:
    told.languages = ("zh", "ar")
    with visit() as page:
        translate(page, "北京很大。他很高。\nשלום עולם.")
        assert page.locator(".source").first.get_attribute("lang") == "zh"
        assert page.locator(".target").first.get_attribute("lang") == "ar"
        assert page.locator(".source").nth(1).evaluate("e => getComputedStyle(e).direction") == "rtl"
        assert page.locator(".source").first.inner_text() == "北京很大。他很高。"
        assert page.locator(".row.head .cell").first.inner_text().startswith("Chinese")


def test_the_glossary_is_kept_and_asked_for(visit: Open, told: Told) -> None:
    with visit() as page:
        page.click("#go-glossary")
        for source_text, target in (("lamp", "Leuchte"), ("ring", "Reif")):
            page.fill("#term-source", source_text)
            page.fill("#term-target", target)
            page.keyboard.press("Enter")
        page.click("#term-rows tr:nth-child(1) button")
        tsv = {"name": "g.tsv", "mimeType": "text/tab-separated-values", "buffer": b"old\tbejahrt\n"}
        page.set_input_files("#glossary-file", tsv)
        until(page, "document.querySelectorAll('#term-rows tr').length === 2")
        page.set_input_files("#glossary-file", {**tsv, "buffer": b"good\tgut\nno tab here\n"})
        page.wait_for_selector("#glossary-error:visible")
        assert "g.tsv, line 2" in page.inner_text("#glossary-error")
        page.reload()
        page.wait_for_selector("#terms:visible")
        assert page.locator("#term-rows tr").count() == 2
        page.click("#go-text")
        assert page.inner_text("#about") == "With 2 terms of the glossary."
        translate(page)
        assert told.asked[-1][1]["glossary"] == [["ring", "Reif"], ["old", "bejahrt"]]
        assert "bejahrt" in targets(page)[1]


def test_files_are_handed_in_watched_downloaded_and_cancelled(visit: Open, told: Told) -> None:
    with visit() as page:
        page.click("#go-files")
        page.set_input_files("#upload", {"name": "letter.docx", "mimeType": "x/y", "buffer": b"abc"})
        page.wait_for_selector(".job progress")
        assert page.inner_text(".job .soft") == "4 of 10 sentences, about 3 s left"
        assert told.asked[-2][1] == {"system": "document", "glossary": "[]"}
        told.jobs["j0"].update(sentences_done=7)
        until(page, "document.querySelector('.job progress').value === 7")
        told.jobs["j0"].update(state="done", messages=["a table was left as it is"])
        page.wait_for_selector(".job button.main:visible")
        page.click(".job summary")
        assert page.inner_text(".job details p") == "a table was left as it is"
        with page.expect_download() as got:
            page.click(".job button.main")
        assert got.value.suggested_filename == "letter.docx"
        assert Path(got.value.path()).read_bytes() == b"translated"
        page.set_input_files("#upload", {"name": "b.txt", "mimeType": "x/y", "buffer": b"abc"})
        page.get_by_role("button", name="Cancel b.txt").click()
        until(page, "document.querySelectorAll('.job').length === 1")
        page.set_input_files("#upload", {"name": "b.exe", "mimeType": "x/y", "buffer": b"abc"})
        assert page.inner_text("#files-error") == (
            "b.exe: files of this type are not supported; see the list above."
        )
        several = (("b.md", b"a" * 1001), ("b.exe", b"abc"), ("c.txt", b"abc"))
        page.set_input_files(
            "#upload", [{"name": n, "mimeType": "x/y", "buffer": content} for n, content in several]
        )
        page.get_by_role("button", name="Cancel c.txt").wait_for()
        told_of = page.inner_text("#files-error").split("\n")
        assert [line.partition(" ")[0] for line in told_of] == ["b.md", "b.exe:"]
        assert "at most" in told_of[0]


DROP = """([selector, name, text]) => {
  const data = new DataTransfer();
  data.items.add(new File([text], name));
  const target = document.querySelector(selector);
  for (const type of ["dragenter", "dragover", "drop"]) {
    target.dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }));
  }
}"""


def test_files_are_dropped(visit: Open, told: Told) -> None:
    with visit() as page:
        page.evaluate(DROP, ["#writing", "a.txt", "The ring."])
        until(page, "document.getElementById('source').value === 'The ring.'")
        page.evaluate(DROP, ["#writing", "b.docx", "PK"])
        page.wait_for_selector(".job")
        assert page.inner_text(".job .name") == "b.docx"
        page.evaluate(DROP, ["#drop", "c.md", "# Title"])
        until(page, "document.querySelectorAll('.job').length === 2")
