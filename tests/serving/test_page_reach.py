"""The page in a real browser: keyboard alone, narrow screens, long documents, accessibility."""

from pathlib import Path

import pytest

from tests.serving.browsing import (
    CHROMIUM,
    TARGETS,
    TEXT,
    Open,
    finished,
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
            assert page.evaluate("({...document.activeElement.dataset})") == {
                "column": column,
                "number": number,
            }
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
