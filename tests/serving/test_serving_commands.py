"""The commands of the README's section on the server, and of docs/serving*.md, run as they stand.

Those of the section on files: test_file_routes.py.
"""

import json
import random
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from cotext.cli.main import app
from cotext.serving.keys import add_key
from cotext.serving.systems import System, Systems
from tests.files import structures
from tests.serving.loopback import served
from tests.serving.tiny_server import tiny_application

TOP = Path(__file__).resolve().parents[2]
ADDRESS = "http://127.0.0.1:5000"

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")


@pytest.fixture(scope="module")
def address(quick_systems: Systems, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    named = zip("ab", (quick_systems.named("window"), quick_systems.named("sentence")), strict=True)
    systems = Systems([System(name, system.opened) for name, system in named])
    with served(tiny_application(systems, tmp_path_factory.mktemp("state"))) as client:
        yield str(client.base_url).rstrip("/")


def section(page: str, heading: str) -> str:
    """A section with those below it."""
    text = (TOP / page).read_text(encoding="utf-8")
    _, start, rest = text.partition(f"\n{heading}\n")
    assert start, f"{page} has no {heading}"
    level = heading.partition(" ")[0]
    return re.split(rf"\n#{{1,{len(level)}}} ", rest)[0]


def blocks(page: str, heading: str, language: str = "") -> list[str]:
    """The blocks of code of a section that are in a language; commands are in none."""
    fences = re.findall(r"^```(\w*)\n(.*?)\n```$", section(page, heading), re.DOTALL | re.MULTILINE)
    found = [content for name, content in fences if name == language]
    assert found
    return found


def commands(page: str, heading: str) -> list[str]:
    """The commands of a section."""
    found = (block.replace("\\\n", "").split("\n") for block in blocks(page, heading))
    return [line for each in found for line in each]


def curl(command: str, address: str, folder: Path) -> str:
    """What a command of curl prints."""
    words = [word.replace(ADDRESS, address) for word in shlex.split(command)]
    assert words[0] == "curl"
    asked = [words[0], "--silent", "--show-error", "--fail-with-body", "--max-time", "60", *words[1:]]
    done = subprocess.run(asked, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout} {done.stderr}"
    return done.stdout


def ran(command: Sequence[str | Path], folder: Path) -> str:
    """What a program prints."""
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", timeout=120, cwd=folder, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout} {done.stderr}"
    return done.stdout


def checked(command: str) -> dict[str, Any]:
    """The parameters of a command of `cotext`, as they are read."""
    first, *words = command.split("  #")[0].split()
    assert first == "cotext"
    group: Any = get_command(app)
    parsed: dict[str, Any] = group.commands[words[0]].make_context(words[0], words[1:]).params
    return parsed


def test_the_readme(address: str, tmp_path: Path) -> None:
    start, *asked = commands("README.md", "## Server")
    parameters = checked(start)
    assert (parameters["runs"], parameters["port"]) == (["runs/a"], int(ADDRESS[-4:]))
    answers = [json.loads(curl(command, address, tmp_path)) for command in asked]
    assert [list(answer) for answer in answers] == [
        ["translatedText"],
        ["translations"],
        ["translatedText"],
        ["translatedText"],
    ]


@pytest.mark.parametrize(
    ("page", "heading", "words"),
    [
        ("serving-apis", "## LibreTranslate", '"translatedText":'),
        ("serving-apis", "## Sessions", '"trans'),
        ("serving-own-api", "## A text, sentence by sentence", '"signature":'),
        ("serving-own-api", "## Which context decided a word", '"decisive":'),
    ],
)
def test_the_pages(address: str, tmp_path: Path, page: str, heading: str, words: str) -> None:
    for command in commands(f"docs/{page}.md", heading):
        answer = curl(command, address, tmp_path)
        assert words in answer.replace('": ', '":'), command
        assert "event: error" not in answer


def test_the_commands_of_deepl(address: str, tmp_path: Path) -> None:
    pytest.importorskip("deepl", reason="needs deepl, of the extra `dev`")
    first, second = commands("docs/serving-apis.md", "## DeepL")
    assert json.loads(curl(first, address, tmp_path))["translations"]
    python, *words = shlex.split(second.replace(ADDRESS, address))
    assert python == "python"
    assert ran([sys.executable, *words], tmp_path).strip()


@pytest.mark.parametrize(
    ("heading", "package"), [("## DeepL", "deepl"), ("## LibreTranslate", "libretranslatepy")]
)
def test_the_examples_in_python(address: str, tmp_path: Path, heading: str, package: str) -> None:
    pytest.importorskip(package, reason=f"needs {package}, of the extra `dev`")
    content, _ = structures.STRUCTURES["docx"](random.Random(1))
    (tmp_path / "letter.docx").write_bytes(content)
    [code] = blocks("docs/serving-apis.md", heading, "python")
    # DeepL's client asks every five seconds how far a document is.
    quick = "import time\nreal = time.sleep\ntime.sleep = lambda seconds: real(seconds / 100)\n"
    assert ran([sys.executable, "-c", quick + code.replace(ADDRESS, address)], tmp_path).strip()
    if package == "deepl":
        assert (tmp_path / "brief.docx").read_bytes()[:2] == b"PK"


@pytest.mark.outside
def test_the_example_in_javascript(address: str) -> None:
    here = Path(__file__).parent
    node = shutil.which("node")
    if node is None or not (here / "node_modules" / "deepl-node").is_dir():
        pytest.skip("node or deepl-node is not installed")
    [code] = blocks("docs/serving-apis.md", "## DeepL", "js")
    assert ran([node, "-e", code.replace(ADDRESS, address)], here).count("'") >= 4


def test_the_commands_of_the_server() -> None:
    top = (TOP / "docs/serving.md").read_text(encoding="utf-8").split("\n```\n")[1]
    assert checked(top)["port"] == int(ADDRESS[-4:])
    add, serve = commands("docs/serving.md", "## Keys")
    assert (add.split()[:3], checked(serve)["host"]) == (["cotext", "serve-key", "add"], "0.0.0.0")
    [unit] = blocks("docs/serving.md", "### systemd", "ini")
    [start] = re.findall(r"^ExecStart=/opt/cotext/bin/(.*)$", unit, re.MULTILINE)
    assert str(checked(start)["state"]) == "${STATE_DIRECTORY}"


def test_the_application_of_the_documentation(
    systems: Systems, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for name, run in zip("ab", systems, strict=False):
        (tmp_path / "runs" / name).symlink_to(run.opened.folder)
    add_key(tmp_path / "keys.json", "somebody")
    [code, ray] = blocks("docs/serving.md", "### As an ASGI application", "python")
    names: dict[str, Any] = {}
    exec(code, names)
    with served(names["application"]) as client:
        assert client.get("/ready").status_code == 200
    compile(ray, "ray", "exec")
