"""The page in a real browser before the real server, of tiny systems that never learned anything."""

from typing import TYPE_CHECKING

import pytest

from tests.serving.browsing import MARKS, opened

if TYPE_CHECKING:
    import httpx2 as httpx
    from playwright.sync_api import Browser

pytest.importorskip("playwright", reason="needs playwright, of the extra `dev`")
pytestmark = MARKS

TEXT = "The cat sees a dog. It runs.\nIt sings! A red bird eats."


def test_a_document_is_translated_compared_and_explained(browser: "Browser", server: "httpx.Client") -> None:
    with opened(browser, str(server.base_url).rstrip("/")) as page:
        page.select_option("#system", "window")
        page.select_option("#beside", "sentence")
        page.fill("#source", TEXT)
        page.click("#translate")
        page.wait_for_selector("#actions:visible")
        assert page.locator(".source .s").all_text_contents() == [
            "The cat sees a dog.", "It runs.", "It sings!", "A red bird eats."
        ]  # fmt: skip
        assert page.locator(".s[data-column] .t").count() == 8
        page.locator(".s[data-column='0'][data-number='3']").focus()
        page.keyboard.press("Enter")
        page.locator(".words button").first.click()
        page.wait_for_selector(".verdict")
        assert page.locator(".influences li").count() == 2  # the window has two sentences before
