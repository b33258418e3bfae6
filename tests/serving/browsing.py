"""Chromium for tests of the page: its console, what it asked of whom, and what a person does there."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

TEXT = "There was a old lamp. It was old.\nThe nights were cold. There was a ring. It was old."
TARGETS = [
    "Da war ein alt Lampe.",
    "Sie war alt.",
    "Die Nächte waren kalt.",
    "Da war ein Ring.",
    "Er war alt.",
]

Open = Callable[..., "AbstractContextManager[Page]"]

CHROMIUM = shutil.which("chromium")
MARKS = [pytest.mark.outside, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]
FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


@contextmanager
def chromium() -> "Iterator[Browser]":
    """A browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def until(page: "Page", expression: str) -> None:
    """Wait for an expression to be true; asked from outside, as the page's policy lets no string be code."""
    for _ in range(500):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(20)
    raise AssertionError(f"never true: {expression}")


@contextmanager
def opened(browser: "Browser", address: str, refused: bool = False, **context: Any) -> "Iterator[Page]":
    """The page in a tab of its own; at the end, nothing was asked of another host and nothing went wrong.

    `refused`: the server refuses something in this test, which a browser writes to its console.
    """
    made = browser.new_context(**context)
    page = made.new_page()
    page.set_default_timeout(10_000)
    wrong: list[str] = []
    hosts: set[str] = set()

    def on_console(message: Any) -> None:
        if message.type in ("error", "warning"):
            wrong.append(message.text)

    page.on("console", on_console)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: hosts.add("/".join(request.url.split("/")[:3])))
    page.add_init_script(
        "addEventListener('securitypolicyviolation', e => console.error('policy', e.violatedDirective))"
    )
    page.goto(address)
    page.wait_for_selector("#systems:visible, #key-form:visible, #page-error:visible")
    try:
        yield page
    finally:
        made.close()
    assert {host for host in hosts if not host.startswith("blob:")} == {address}
    if refused:
        wrong = [each for each in wrong if not each.startswith("Failed to load resource")]
    assert not wrong, wrong


def translate(page: "Page", text: str = TEXT, beside: str | None = None) -> None:
    """Translate a text, beside another system or alone."""
    page.fill("#source", text)
    if beside:
        page.select_option("#beside", beside)
    page.click("#translate")
    finished(page)


def finished(page: "Page") -> None:
    """Wait until nothing is translated any more."""
    page.wait_for_selector("#actions:visible, #text-error:visible")


def targets(page: "Page", column: int = 0) -> list[str]:
    """The translations of a column."""
    return page.locator(f".s[data-column='{column}'] .t").all_text_contents()


def sentence(page: "Page", number: int, column: int = 0) -> Any:
    """A translated sentence."""
    return page.locator(f".s[data-column='{column}'][data-number='{number}']")


def source(page: "Page", number: int) -> Any:
    """A source sentence."""
    return page.locator(f".source .s[data-number='{number}']")
