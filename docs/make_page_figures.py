"""Take the screenshots of the server's web page in docs/figures, of real systems, with a real browser.

    python docs/make_page_figures.py --runs runs/document runs/sentence [--all FOLDER]

The first run reads documents, the second sentences. `--all`: every state of the page, light and dark, wide
and narrow, for inspection; by default, only the figures of docs/serving.md. Needs playwright and Chromium.
"""

import argparse
import io
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep

import uvicorn
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from cotext.serving.application import app
from cotext.serving.settings import ServerSettings

FIGURES = Path(__file__).with_name("figures")
SIZES = {"wide": (1280, 800), "narrow": (390, 844)}
SHOWN = {
    ("explained", "light", "wide"): "page-context.png",
    ("compared", "dark", "wide"): "page-compared-dark.png",
    ("explained", "light", "narrow"): "page-narrow.png",
    ("translated", "light", "wide"): "page-translated.png",
}
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"]


@contextmanager
def served(runs: list[Path]) -> Iterator[str]:
    """The address of a server of these runs."""
    with tempfile.TemporaryDirectory() as state:
        config = uvicorn.Config(
            app(runs, ServerSettings(state=Path(state)), "cpu"), port=0, log_level="error"
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            sleep(0.05)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        server.should_exit = True
        thread.join(30)


def states(page: Page) -> Iterator[str]:
    """Bring the page into one state after the other."""
    page.wait_for_selector("#systems:visible")
    yield "empty"
    page.click("#example")
    page.wait_for_selector("#actions:visible")
    page.wait_for_selector("mark")
    yield "compared"
    page.locator(".s[data-column='0'][data-number='6'] mark").last.click()
    page.wait_for_selector(".verdict", timeout=60_000)
    page.mouse.move(0, 0)
    yield "explained"
    page.keyboard.press("Escape")
    page.select_option("#beside", "")
    page.wait_for_selector("#rows:not(.compared)")
    page.locator(".s[data-number='5']").last.hover()
    yield "translated"
    page.click("#go-glossary")
    for source, target in (("lamp", "Leuchte"), ("director", "Chef")):
        page.fill("#term-source", source)
        page.fill("#term-target", target)
        page.keyboard.press("Enter")
    yield "glossary"
    page.click("#go-files")
    letter = "There was a heavy boat downstairs. It was fragile.\nMary was proud of the box.\n"
    for name, text in (("letter.txt", letter), ("notes.md", f"# Notes\n\n{letter * 60}")):
        page.set_input_files("#upload", {"name": name, "mimeType": "text/plain", "buffer": text.encode()})
        page.get_by_text(name.split(".")[0]).first.wait_for()
    page.wait_for_timeout(1500)
    yield "files"
    page.click("#go-text")
    page.route("**/api/translate", lambda route: route.abort())
    page.click("#back")
    page.click("#translate")
    page.wait_for_selector("#text-error:visible")
    yield "error"


def small(picture: bytes) -> Image.Image:
    """The picture in few colours."""
    image: Image.Image = Image.open(io.BytesIO(picture)).convert("RGB")
    return image.quantize(256, dither=Image.Dither.NONE)


def main() -> None:
    """Take the pictures."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--runs", type=Path, nargs=2, required=True, help="a document and a sentence system")
    parser.add_argument("--all", type=Path, help="a folder for pictures of every state")
    arguments = parser.parse_args()
    with served(arguments.runs) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for scheme in ("light", "dark"):
            for size, (width, height) in SIZES.items():
                wanted = [state for state, *of in SHOWN if of == [scheme, size]]
                if not arguments.all and not wanted:
                    continue
                page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": height})
                page.goto(address)
                for state in states(page):
                    if arguments.all:
                        arguments.all.mkdir(parents=True, exist_ok=True)
                        name = f"{state}-{scheme}-{size}.png"
                        (arguments.all / name).write_bytes(page.screenshot())
                    if name := SHOWN.get((state, scheme, size)):
                        small(page.screenshot()).save(FIGURES / name, optimize=True)
                    if not arguments.all and state == wanted[-1]:
                        break
                page.context.close()
        browser.close()


if __name__ == "__main__":
    main()
