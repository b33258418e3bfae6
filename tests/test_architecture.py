"""Who may import whom: read from the source, so that a wrong import fails before it is a habit."""

import ast
import json
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

import cotext

ROOT = Path(cotext.__file__).parent
# A room imports rooms of lower floors alone, beside itself.
FLOORS = {
    "runtime": 1,
    "layers": 1,
    "config": 2,
    "data": 3,
    "models": 4,
    "metrics": 4,
    "losses": 5,
    "decoding": 6,
    "training": 7,
    "analysis": 8,
    "reports": 9,
    "cli": 10,
}


def module(path: Path) -> str:
    name = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
    return name.removesuffix(".__init__")


FILES = {module(path): path for path in sorted(ROOT.rglob("*.py"))}
ROOMS = {name: path for name, path in FILES.items() if name.count(".") and name != "cotext.__main__"}


def imports(path: Path) -> Iterator[str]:
    """The modules of the package that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "cotext")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module and node.module.split(".")[0] == "cotext":
                inner = (f"{node.module}.{alias.name}" for alias in node.names)
                yield from (name if name in FILES else node.module for name in inner)


def room(name: str) -> str:
    return name.split(".")[1] if "." in name else "the face"


def allowed(importer: str, imported: str) -> bool:
    here, there = room(importer), room(imported)
    return here == there or FLOORS[here] > FLOORS.get(there, 99)


@pytest.mark.parametrize("name", sorted(FLOORS))
def test_a_room_imports_only_rooms_below_it(name: str) -> None:
    wrong = [
        f"{importer} imports {imported}"
        for importer, path in ROOMS.items()
        if room(importer) == name
        for imported in imports(path)
        if not allowed(importer, imported)
    ]
    assert not wrong, "\n".join(wrong)


def test_every_file_lies_in_a_room() -> None:
    assert {room(name) for name in ROOMS} == set(FLOORS)


def test_no_circle() -> None:
    open_modules = {name: set(imports(path)) - {name} for name, path in ROOMS.items()}
    while free := [name for name, needed in open_modules.items() if not needed & open_modules.keys()]:
        for name in free:
            del open_modules[name]
    assert not open_modules, f"a circle among {sorted(open_modules)}"


def test_layers_know_torch_alone_and_the_rest_no_model() -> None:
    for name, path in ROOMS.items():
        if room(name) == "layers":
            assert {room(imported) for imported in imports(path)} <= {"layers"}, name


def test_the_trainer_is_handed_its_validation_by_translation() -> None:
    trainer = {"trainer", "validation", "checkpoints", "accelerator", "sums", "log", "resume"}
    for name in trainer:
        found = set(imports(FILES[f"cotext.training.{name}"]))
        assert not [imported for imported in found if room(imported) == "decoding"], name


def test_the_check_can_fail() -> None:
    assert not allowed("cotext.layers.masks", "cotext.runtime.errors")
    assert not allowed("cotext.data.batch", "cotext.models.transformer")
    assert not allowed("cotext.data.batch", "cotext")
    assert not allowed("cotext.metrics.bleu", "cotext.models.transformer")
    assert allowed("cotext.training.trainer", "cotext.decoding.translator")


def test_the_recipe_reference_is_up_to_date() -> None:
    page = ROOT.parents[1] / "docs" / "recipes.md"
    maker = runpy.run_path(str(page.with_name("make_recipes.py")))
    assert page.read_text(encoding="utf-8") == maker["page"](), "run `make docs`"
    assert json.loads(maker["COUNTS"].read_text(encoding="utf-8")) == maker["parameters"](), "run `make docs`"
