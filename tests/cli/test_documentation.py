"""Pages tell what is there: commands, options, configuration keys, links and papers that they name exist."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import typer
import yaml

import cotext
from cotext.cli.main import app
from cotext.config.recipe import Config, keys, recipe_names
from cotext.models.describe import PAPERS
from tests.loops import loop_over

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
SECTIONS = {name for name, field in Config.model_fields.items() if hasattr(field.annotation, "model_fields")}
KEYS = {key for key, _ in keys(Config)}
NAMED = KEYS | {".".join(key.split(".")[:n]) for key in KEYS for n in range(1, key.count(".") + 1)}

FILES = {"arrow", "de", "docids", "en", "gz", "indexed", "json", "jsonl", "ru", "safetensors", "xz", "zh"}
pages = loop_over("page", PAGES)


@cache
def options() -> dict[str, set[str]]:
    """The options of every command; those of the program itself may stand behind a command, too."""
    group: Any = typer.main.get_command(app)
    return {
        name: {"--help", *(o for p in (*group.params, *command.params) for o in (*p.opts, *p.secondary_opts))}
        for name, command in group.commands.items()
    }


def code(text: str) -> Iterator[str]:
    """Commands as one would type them: blocks line by line, continued lines joined, and code within lines."""
    for block in re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        yield from re.sub(r"\\\n\s*", " ", block).splitlines()
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    yield from (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose))


def called(line: str) -> Iterator[list[str]]:
    """Every call of the command in a line of a shell."""
    for part in re.split(r"\||&&|;|\$\(|#", line):
        try:
            words = shlex.split(part)
        except ValueError:
            continue  # no command of a shell
        while words and ("=" in words[0] or words[0] in ("time", "nice", "srun", "$")):
            words = words[1:]
        if words and Path(words[0]).name == "cotext":
            yield words[1:]


@pages
def test_commands_and_their_options_exist(page: Path) -> None:
    wrong = []
    for line in code(page.read_text(encoding="utf-8")):
        for words in called(line):
            if not words or words[0].startswith("-") or not re.fullmatch("[a-z-]+", words[0]):
                continue
            if words[0] not in options():
                wrong.append(f"cotext {words[0]}")
                continue
            given = {word.partition("=")[0] for word in words[1:] if re.match("--?[a-z]", word)}
            wrong += [f"cotext {words[0]} {option}" for option in sorted(given - options()[words[0]])]
    assert not wrong


@pages
def test_configuration_keys_exist(page: Path) -> None:
    text = "\n".join(code(page.read_text(encoding="utf-8")))
    named = re.findall(rf"(?<![\w./-])((?:{'|'.join(SECTIONS)})(?:\.[a-z_]+)+)(?![\w/*.-])", text)
    assert not {key for key in named if key.rpartition(".")[2] not in FILES and not is_known(key)}


@pages
def test_recipes_exist(page: Path) -> None:
    folders = "|".join(sorted({name.partition("/")[0] for name in recipe_names()}))
    text = "\n".join(code(page.read_text(encoding="utf-8")))
    named = re.findall(rf"(?<![\w./-])((?:{folders})/[a-z0-9+-]+)(?![\w./*+-])", text)
    assert not set(named) - set(recipe_names())


@pages
def test_files_of_the_project_exist(page: Path) -> None:
    """Pages name files of the package as `folder/file.py`, and others from the top of the project."""
    text = "\n".join(code(page.read_text(encoding="utf-8")))
    paths = re.findall(r"(?<![\w./-])((?:benchmarks|src|tests)/[\w/.-]*\w)(?![\w*{<])", text)
    modules = re.findall(r"python3? -m ((?:benchmarks|tests)(?:\.\w+)+)", text)
    wrong = [path for path in paths if not (ROOT / path).exists()]
    for module in modules:
        path = ROOT / module.replace(".", "/")
        if not path.with_suffix(".py").exists() and not (path / "__main__.py").exists():
            wrong.append(module)
    file = r"(?<!As an example, the file )`((?:[\w.-]+/)+[\w-]+\.py)`"
    tops = (ROOT, ROOT / "src", ROOT / "src" / "cotext")
    for name in re.findall(file, page.read_text(encoding="utf-8")):
        if not any((top / name).is_file() for top in tops):
            wrong.append(name)
    assert not wrong


def is_known(key: str) -> bool:
    """Settings of stacks may have all that those of `attention` have."""
    return key in NAMED or re.sub(r"^model\.(encoder|decoder|cross)\.", "model.attention.", key) in NAMED


@pages
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    wrong = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        if "://" in link or path.startswith("reference/"):
            continue  # elsewhere, or made by `make docs`
        to = (page.parent / path).resolve() if path else page
        if not to.exists() or (anchor and to.suffix == ".md" and anchor not in anchors(to)):
            wrong.append(link)
    assert not wrong


@cache
def anchors(page: Path) -> set[str]:
    """Headings as GitHub and mkdocs name them in links."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower().replace("`", "")
        found.add(re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-"))
    return found


def test_the_citation() -> None:
    """It names this version, and every paper whose systems are here."""
    content = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (content["cff-version"], content["type"]) == ("1.2.0", "software")
    assert content["version"] == cotext.__version__
    assert content["authors"] == [{"name": "Cotext developers"}]
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").split()[:2] == ["Apache", "License"]
    assert content["license"] == "Apache-2.0"
    for reference in content["references"]:
        folder = reference["notes"].removeprefix("recipes ").removesuffix("/")
        author = reference["authors"][0]["family-names"]
        assert PAPERS[folder].startswith(f"{author} et al. {reference['year']}, ")
        assert PAPERS[folder].endswith(reference["title"])
    assert len(content["references"]) == 5
