"""The page in a real browser, before a server whose answers the test decides; once before the real server."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.serving.browsing import (
    MARKS,
    TARGETS,
    TEXT,
    Open,
    finished,
    opened,
    sentence,
    source,
    targets,
    translate,
    until,
)
from tests.serving.fake_own_api import Told

if TYPE_CHECKING:
    import httpx2 as httpx
    from playwright.sync_api import Browser

pytest.importorskip("playwright", reason="needs playwright, of the extra `dev`")
pytestmark = MARKS

# --- a text and its translation


def test_the_real_server_translates_compares_and_explains(browser: "Browser", server: "httpx.Client") -> None:
    with opened(browser, str(server.base_url).rstrip("/")) as page:
        page.select_option("#system", "window")
        translate(page, "The cat sees a dog. It runs.\nIt sings! A red bird eats.", beside="sentence")
        assert [source(page, n).inner_text() for n in (0, 3)] == ["The cat sees a dog.", "A red bird eats."]
        assert len(targets(page)) == len(targets(page, 1)) == 4
        sentence(page, 3).focus()
        page.keyboard.press("Enter")
        page.locator(".words button").first.click()
        page.wait_for_selector(".verdict")
        assert page.locator(".influences li").count() == 2  # the window has two sentences before


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
        assert page.locator(".s.low").count() == 3
        assert sentence(page, 0).inner_text().endswith("(unsure)")
        line = "e => getComputedStyle(e).textDecorationStyle"
        assert page.locator(".s.low .t").first.evaluate(line) == "wavy"
        assert page.is_visible("#legend-low")


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

        # Characters behind one of two halves are counted as the server counts them.
        page.click("#back")
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


# --- errors, keys, what outlives a reload, hostile data, glossary and files

HOSTILE = "<img src=x onerror=alert(1)> <script>alert(2)</script> &amp; “x”."


def test_errors_are_told_where_they_arise(visit: Open, told: Told) -> None:
    told.fail["translate"] = 429, "too many requests: wait a minute"
    with visit(refused=True) as page:
        page.click("#translate")
        assert "nothing to translate" in page.inner_text("#text-error")
        assert page.evaluate("document.activeElement.id") == "source"
        translate(page)
        assert page.inner_text("#text-error") == "too many requests: wait a minute"
        assert page.input_value("#source") == TEXT
        told.fail.clear()
        page.click("#translate")
        page.wait_for_selector(".s[data-column] .t")
        assert page.is_hidden("#text-error")
        page.click("#back")
        page.route("**/api/translate", lambda route: route.abort())
        translate(page)
        assert "cannot be reached" in page.inner_text("#text-error")

        told.fail["submit"] = 400, "not a supported format"
        page.click("#go-files")
        page.set_input_files(
            "#upload", [{"name": n, "mimeType": "x/y", "buffer": b"abc"} for n in ("a.exe", "b.exe")]
        )
        until(page, "document.getElementById('files-error').textContent.includes('b.exe')")
        lines = [f"{name}: not a supported format" for name in ("a.exe", "b.exe")]
        assert page.inner_text("#files-error").split("\n") == lines


@pytest.mark.parametrize("how", ["break_at", "hang_up_at"])
def test_what_came_before_an_error_stays(visit: Open, told: Told, how: str) -> None:
    setattr(told, how, 2)
    with visit() as page:
        translate(page)
        assert targets(page) == TARGETS[:2]
        expected = {"break_at": "the model is gone", "hang_up_at": "The connection broke"}[how]
        assert expected in page.inner_text("#result-error")
        assert page.locator(".s .failed").count() == 3


def test_key_text_and_systems_are_kept_until_the_tab_is_closed(visit: Open, told: Told) -> None:
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
        page.select_option("#system", "sentence")
        page.select_option("#beside", "parallel")
        page.reload()
        page.wait_for_selector("#systems:visible")
        assert page.input_value("#source") == TEXT
        assert (page.input_value("#system"), page.input_value("#beside")) == ("sentence", "parallel")
        assert page.is_hidden("#key-form")
        assert page.evaluate("Object.keys(localStorage)") == []
        assert page.evaluate("sessionStorage.getItem('cotext.key')") == '"secret"'


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
        other = page.context.new_page()
        other.goto(f"{page.url}#glossary")
        for tab, source_text, target in ((page, "lamp", "Leuchte"), (other, "ring", "Reif")):
            tab.click("#go-glossary")
            tab.fill("#term-source", source_text)
            tab.fill("#term-target", target)
            tab.keyboard.press("Enter")
        until(page, "document.querySelectorAll('#term-rows tr').length === 2")
        page.click("#term-rows tr:nth-child(1) button")
        tsv = {"name": "g.tsv", "mimeType": "text/tab-separated-values"}
        page.set_input_files("#glossary-file", {**tsv, "buffer": b"Source\tTarget\n# a\tb\nold\tbejahrt\n"})
        until(page, "document.querySelectorAll('#term-rows tr').length === 2")
        for wrong, said in (
            (b"good\tgut\nno tab here\n", "g.tsv, line 2"), (b"lamp\tLampe|Licht", "g.tsv, line 1"),
            (b"lamp\tLicht\nlamp\tLampe", "g.tsv, line 2"), (b"lamp\tLicht\tLampe", "g.tsv, line 1"),
            (b"size\tGr\xf6\xdfe", "UTF-8"),
        ):  # fmt: skip
            page.set_input_files("#glossary-file", {**tsv, "buffer": wrong})
            until(page, f"document.getElementById('glossary-error').textContent.includes('{said}')")
        page.reload()
        page.wait_for_selector("#terms:visible")
        page.click("#go-text")
        assert page.inner_text("#about") == "With 2 terms of the glossary."
        translate(page)
        assert told.asked[-1][1]["glossary"] == [["ring", "Reif"], ["old", "bejahrt"]]
        assert "bejahrt" in targets(page)[1]
        page.click("#go-glossary")
        page.click("#glossary-clear")
        page.click("#go-text")
        finished(page)
        assert targets(page) == TARGETS


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
        latin = {"name": "d.txt", "mimeType": "text/plain", "buffer": b"Gr\xf6\xdfe"}
        page.set_input_files("#open-file", latin)
        until(page, "document.querySelectorAll('.job').length === 3")


# --- keyboard alone, narrow screens, long documents, accessibility

AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"


def test_everything_is_done_by_keyboard_alone(visit: Open) -> None:
    with visit() as page:

        def reach(identity: str) -> None:
            for _ in range(40):
                page.keyboard.press("Tab")
                if page.evaluate("document.activeElement.id") == identity:
                    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
                    return
            raise AssertionError(f"{identity} was not reached")

        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        reach("beside")
        page.keyboard.press("ArrowDown")
        reach("source")
        page.keyboard.insert_text(TEXT)
        page.keyboard.press("Control+Enter")
        page.wait_for_selector(".compared .s[role]")
        finished(page)
        assert page.evaluate("document.activeElement.id") == "result-title"
        reach("download")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.dataset.number") == "0"
        for key, column, number in (
            ("ArrowDown", "0", "1"), ("ArrowRight", "1", "1"), ("End", "1", "4"), ("ArrowLeft", "0", "4"),
        ):  # fmt: skip
            page.keyboard.press(key)
            found = page.evaluate("({...document.activeElement.dataset})")
            assert found == {"column": column, "number": number}
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.textContent") == "Er"
        page.keyboard.press("Enter")
        page.wait_for_selector(".verdict")
        assert page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
        page.keyboard.press("Escape")
        assert page.evaluate("document.activeElement.dataset.number") == "4"
        page.keyboard.press("Shift+Tab")
        assert page.evaluate("document.activeElement.id") == "download"


@pytest.mark.parametrize("width", [320, 360, 390, 1280])
def test_nothing_is_wider_than_the_screen(visit: Open, width: int) -> None:
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    with visit(viewport={"width": width, "height": 700}) as page:
        assert page.evaluate(wide) <= 0
        translate(page, TEXT + "\n" + "Donaudampfschifffahrt" * 12 + ".", beside="sentence")
        assert page.evaluate(wide) <= 0
        sentence(page, 1).click()
        page.wait_for_selector(".verdict")
        assert page.evaluate(wide) <= 0
        for part in ("files", "glossary"):
            page.click(f"#go-{part}")
            assert page.evaluate(wide) <= 0


# Milliseconds in which the page answers nobody; here 60, so that a busy machine passes too.
LONGEST_TASK = """() => {
  window.longest = 0;
  const seen = (list) => list.getEntries().forEach((each) => { longest = Math.max(longest, each.duration); });
  new PerformanceObserver(seen).observe({ type: "longtask" });
}"""


def test_two_thousand_sentences_stay_usable(visit: Open) -> None:
    with visit() as page:
        page.evaluate(LONGEST_TASK)
        page.evaluate("text => { document.getElementById('source').value = text; }", "\n".join([TEXT] * 400))
        page.click("#translate")
        finished(page)
        assert page.evaluate("longest") < 1500
        assert len(targets(page)) == 2000
        assert targets(page)[-1] == TARGETS[-1]
        sentence(page, 1500).scroll_into_view_if_needed()
        sentence(page, 1500).hover()
        assert page.locator(".pair").count() == 2


@pytest.mark.skipif(not AXE.is_file(), reason="needs axe-core: npm install --prefix tests/serving")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_no_state_of_the_page_has_an_accessibility_violation(
    visit: Open, told: Told, scheme: str, width: int
) -> None:
    viewport = {"width": width, "height": 800}
    with visit(color_scheme=scheme, viewport=viewport, bypass_csp=True, refused=True) as page:

        def check(state: str) -> None:
            if not page.evaluate("'axe' in window"):
                page.evaluate(AXE.read_text(encoding="utf-8"))
            found = page.evaluate("axe.run(document, {rules: {'color-contrast-enhanced': {enabled: false}}})")
            wrong = [
                (each["id"], node["html"][:200], node["failureSummary"])
                for each in found["violations"] for node in each["nodes"]
            ]  # fmt: skip
            assert not wrong, (state, wrong)

        check("empty")
        page.click("#translate")
        check("nothing to translate")
        told.pause = 0.4
        page.fill("#source", TEXT)
        page.click("#translate")
        page.wait_for_selector(".s[data-column] .t")
        check("under way")
        told.pause = 0.0
        finished(page)
        check("translated")
        page.select_option("#beside", "sentence")
        page.wait_for_selector("mark")
        check("compared")
        sentence(page, 4).hover()
        sentence(page, 4).locator(".w").first.click()
        page.wait_for_selector(".verdict")
        check("explained")
        told.fail["translate"] = 503, "busy"
        page.click("#back")
        page.click("#translate")
        page.wait_for_selector("#text-error:visible")
        check("error")
        page.click("#go-glossary")
        check("glossary, empty")
        page.fill("#term-source", "lamp")
        page.fill("#term-target", "Leuchte")
        page.keyboard.press("Enter")
        check("glossary")
        page.click("#go-files")
        for name in ("a.txt", "b.txt"):
            page.set_input_files("#upload", {"name": name, "mimeType": "x/y", "buffer": b"abc"})
            until(page, f"document.querySelectorAll('.job').length === {len(told.jobs) or 1}")
        told.jobs["j0"].update(state="done")
        page.wait_for_selector(".job button.main:visible")
        check("files")
        page.click("footer summary")
        check("keyboard")
        told.key = "secret"
        page.reload()
        page.wait_for_selector("#key-form:visible")
        check("key")
