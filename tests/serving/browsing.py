"""A real browser for tests of the page: Chromium, its console, and what it asked of whom."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium")
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
