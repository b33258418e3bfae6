"""Who may import whom: read from the source, so that a wrong import fails before it is a habit."""

import ast
import json
import runpy
from pathlib import Path

import pytest

import cotext

ROOT = Path(cotext.__file__).parent

# room -> prefixes of cotext modules that it may import
ALLOWED = {
    "layers": ("cotext.layers",),
    "data": (
        "cotext.data",
        "cotext.errors",
        "cotext.files",
        "cotext.integrity",
        "cotext.locks",
        "cotext.reading",
    ),
    "models": ("cotext.models.base", "cotext.layers", "cotext.data.batch"),
    "losses": ("cotext.losses", "cotext.models.base", "cotext.layers", "cotext.data.batch", "cotext.errors"),
    "metrics": ("cotext.metrics", "cotext.data", "cotext.errors", "cotext.reading"),
    "analysis": (
        "cotext.analysis",
        "cotext.models.base",
        "cotext.layers",
        "cotext.data",
        "cotext.errors",
    ),
    "constraints.py": ("cotext.data.batch", "cotext.errors"),
    "recovery.py": ("cotext.data.batch",),
    "parallel.py": (
        "cotext.constraints",
        "cotext.losses.prefix_beam",
        "cotext.models.base",
        "cotext.recovery",
        "cotext.search",
        "cotext.data.batch",
        "cotext.errors",
    ),
    "search.py": ("cotext.constraints", "cotext.models.base", "cotext.data.batch", "cotext.errors"),
}
FORBIDDEN = {
    "trainer.py": ("cotext.translate", "cotext.search", "cotext.jobs"),
    "translate.py": ("cotext.trainer", "cotext.runs", "cotext.jobs"),
    "scoring.py": ("cotext.trainer", "cotext.translate"),
}


def imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.update({node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)})
    return {name for name in names if name.split(".")[0] == "cotext"}


def files(room: str) -> list[Path]:
    path = ROOT / room
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def within(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == p or name.startswith(f"{p}.") or p.startswith(f"{name}.") for p in prefixes)


@pytest.mark.parametrize("room", ALLOWED)
def test_a_room_imports_only_what_it_may(room: str) -> None:
    for path in files(room):
        wrong = {
            n
            for n in imports(path)
            if n != "cotext" and n != "cotext.__version__" and not within(n, ALLOWED[room])
        }
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


@pytest.mark.parametrize("room", FORBIDDEN)
def test_rooms_that_do_not_know_each_other(room: str) -> None:
    for path in files(room):
        wrong = {n for n in imports(path) if any(n == f or n.startswith(f"{f}.") for f in FORBIDDEN[room])}
        assert not wrong, f"{room} imports {wrong}"


def test_nobody_imports_the_command_line() -> None:
    for path in ROOT.rglob("*.py"):
        assert not any(n.startswith("cotext.cli") for n in imports(path)) or path.name == "__main__.py"
        of_it = path.name == "cli.py" or path.parent.name == "commands"
        assert of_it or not any(n.startswith("cotext.commands") for n in imports(path))


def test_the_check_can_fail(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("from cotext.models import transformer\nimport cotext.trainer\n")
    found = imports(bad)
    assert "cotext.trainer" in found
    assert not within("cotext.trainer", ALLOWED["layers"])
    assert not within("cotext.models.transformer", ALLOWED["models"])


def test_the_recipe_reference_is_up_to_date() -> None:
    page = ROOT.parents[1] / "docs" / "recipes.md"
    maker = runpy.run_path(str(page.with_name("make_recipes.py")))
    assert page.read_text(encoding="utf-8") == maker["page"](), "run `make docs`"
    assert json.loads(maker["COUNTS"].read_text(encoding="utf-8")) == maker["parameters"](), "run `make docs`"
