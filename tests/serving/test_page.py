"""The page without a browser: its files, what they name, and how they are handed out."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import cotext.serving
from cotext.serving.own_api import parts
from cotext.serving.settings import ServerSettings
from tests.loops import loop_over
from tests.serving.fake_own_api import Told, fake

FOLDER = Path(cotext.serving.__file__).parent / "page"
SCRIPTS = sorted(FOLDER.glob("*.js"))
INDEX = (FOLDER / "index.html").read_text(encoding="utf-8")
IDS = set(re.findall(r'\bid="([^"]+)"', INDEX))


def client(page: bool = True) -> TestClient:
    made = fake(Told())
    made.state.service.settings = ServerSettings(state=Path("unused"), page=page)
    return TestClient(made)


def test_every_file_of_the_folder_is_handed_out_with_its_type_and_policy() -> None:
    asked = client()
    assert set(parts()) == {path.name for path in FOLDER.iterdir()} >= {"index.html", "app.js", "style.css"}
    for name, (content, kind) in parts().items():
        answer = asked.get(f"/page/{name}")
        assert answer.status_code == 200
        assert answer.content == content == (FOLDER / name).read_bytes()
        charset = "; charset=utf-8" if kind.startswith("text/") else ""
        assert answer.headers["content-type"] == f"{kind}{charset}"
        assert answer.headers["content-security-policy"].startswith("default-src 'self';")
        assert "unsafe" not in answer.headers["content-security-policy"]
    assert asked.get("/").content == parts()["index.html"][0]


@loop_over("name", ["none.js", "..%2fsettings.py", "%2e%2e/errors.py", "settings.py", ""])
def test_nothing_else_is_handed_out(name: str) -> None:
    assert client().get(f"/page/{name}").status_code == 404
    for path in ("/", "/page/app.js"):
        assert client(page=False).get(path).status_code == 404


def test_no_file_names_another_host() -> None:
    for path in FOLDER.iterdir():
        found = re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"')]*", path.read_text(encoding="utf-8"))
        assert set(found) <= {"http://www.w3.org/2000/svg"}, path.name


def test_nothing_stands_inside_the_html_that_the_policy_forbids() -> None:
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", INDEX)
    assert re.findall(r"<script[^>]*>(.*?)</script>", INDEX, re.DOTALL) == [""]
    named = re.findall(r'(?:src|href)="page/([^"]+)"', INDEX)
    assert set(named) <= set(parts())
    assert "app.js" in named


def test_ids_that_are_named_are_there_once() -> None:
    assert len(re.findall(r'\bid="', INDEX)) == len(IDS)
    for attribute in ("for", "aria-labelledby"):
        assert set(re.findall(rf'\b{attribute}="([^"]+)"', INDEX)) - {"panel-title"} <= IDS
    assert set(re.findall(r'href="#([^"]+)"', INDEX)) <= IDS | {"text", "files", "glossary"}
    for path in SCRIPTS:
        text = path.read_text(encoding="utf-8")
        made = set(re.findall(r'\bid: "([^"]+)"', text))
        asked = set(re.findall(r'byId\("([^"]+)"\)|showError\("([^"]+)"', text))
        assert {one or other for one, other in asked} <= IDS | made, path.name


def test_data_becomes_text_and_never_markup() -> None:
    for path in SCRIPTS:
        text = path.read_text(encoding="utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
        )


@pytest.mark.outside
@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_modules_that_parse(path: Path) -> None:
    command = ["node", "--input-type=module", "--check"]
    done = subprocess.run(command, input=path.read_bytes(), capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
