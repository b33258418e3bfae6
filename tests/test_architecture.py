"""Which folders may import each other, and limits of size; checked in the source code."""

import ast
import json
import re
import runpy
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from torch import nn

import cotext
from cotext.cli.main import COMMANDS
from cotext.models.describe import entries
from tests.loops import loop_over

ROOT = Path(cotext.__file__).parent
# A folder imports only itself and folders on lower floors.
FLOORS = {
    "runtime": 1,
    "layers": 1,
    "config": 2,
    "data": 3,
    "models": 4,
    "search": 5,
    "interchange": 5,
    "translation": 6,
    "training": 7,
    "files": 7,
    "language_models": 7,
    "evaluation": 8,
    "serving": 9,
    "cli": 10,
}
# Folders that the core does not import. They import the core, and of each other only those named here.
ANNEXES: dict[str, set[str]] = {
    "files": set(),
    "language_models": set(),
    "evaluation": {"files"},
    "serving": {"files", "evaluation"},
}


def module(path: Path) -> str:
    name = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
    return name.removesuffix(".__init__")


FILES = {module(path): path for path in sorted(ROOT.rglob("*.py"))}
ROOMS = {name: path for name, path in FILES.items() if name.count(".") and name != "cotext.__main__"}


@cache
def tree(path: Path) -> ast.Module:
    """Return a parsed file of the package; files are parsed only when a test needs them."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Return the modules of the package that a file imports, also inside functions."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
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


@loop_over("name", sorted(FLOORS))
def test_a_room_imports_only_rooms_below_it(name: str) -> None:
    wrong = [
        f"{importer} imports {imported}"
        for importer, path in ROOMS.items()
        if room(importer) == name
        for imported in imports(path)
        if not allowed(importer, imported)
    ]
    assert not wrong, "\n".join(wrong)


def test_annexes_import_of_each_other_what_is_named() -> None:
    found: dict[str, set[str]] = {name: set() for name in ANNEXES}
    for name, path in ROOMS.items():
        if room(name) in ANNEXES:
            there = {room(imported) for imported in imports(path)}
            found[room(name)] |= there & ANNEXES.keys() - {room(name)}
    assert found == ANNEXES


def test_a_room_imports_seven_others_at_most() -> None:
    found: dict[str, set[str]] = {name: set() for name in FLOORS}
    for name, path in ROOMS.items():
        found[room(name)] |= {room(imported) for imported in imports(path)} - {room(name), "the face"}
    assert [name for name, others in found.items() if len(others) > 7] == ["cli"]


def test_every_file_lies_in_a_room() -> None:
    assert {room(name) for name in ROOMS} == set(FLOORS)


def test_no_circle() -> None:
    open_modules = {name: set(imports(path)) - {name} for name, path in ROOMS.items()}
    while free := [name for name, needed in open_modules.items() if not needed & open_modules.keys()]:
        for name in free:
            del open_modules[name]
    assert not open_modules, f"a circle among {sorted(open_modules)}"


def test_metrics_and_statistics_know_no_model() -> None:
    below = {"runtime", "config", "data", "evaluation"}
    for name, path in ROOMS.items():
        if name.startswith(("cotext.evaluation.metrics", "cotext.evaluation.statistics")):
            assert {room(imported) for imported in imports(path)} <= below, name
            assert not [each for each in imports(path) if ".studies" in each], name


def test_the_trainer_is_handed_its_validation_by_translation() -> None:
    for name in ("trainer", "validation", "resume"):
        found = set(imports(FILES[f"cotext.training.{name}"]))
        assert not [imported for imported in found if room(imported) in ("search", "translation")], name


def test_the_check_can_fail() -> None:
    assert not allowed("cotext.layers.positions", "cotext.runtime")
    assert not allowed("cotext.data.batch", "cotext.models.transformer")
    assert not allowed("cotext.data.batch", "cotext")
    assert not allowed("cotext.search.beam_search", "cotext.training.trainer")
    assert allowed("cotext.training.trainer", "cotext.translation.translator")


def test_the_recipe_reference_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    for layer in (nn.Linear, nn.LayerNorm):  # only shapes are asked for
        monkeypatch.setattr(layer, "reset_parameters", lambda layer: None)
    page = ROOT.parents[1] / "docs" / "recipes.md"
    maker = runpy.run_path(str(page.with_name("make_recipes.py")))
    assert page.read_text(encoding="utf-8") == maker["page"](), "run `make docs`"
    assert json.loads(maker["COUNTS"].read_text(encoding="utf-8")) == maker["stored_parameters"](), (
        "run `make docs`"
    )
    assert {each.recipe: each.parameters for each in entries()} == maker["parameters"]()


def sources() -> dict[str, str]:
    return {name: path.read_text(encoding="utf-8") for name, path in FILES.items()}


def test_files_are_of_a_size() -> None:
    assert not [name for name, text in sources().items() if len(text.splitlines()) > 600]


def parameters(node: ast.FunctionDef) -> int:
    """Return the number of parameters, without `self`, `cls` and the `ctx` of an autograd function."""
    names = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"], ["ctx"]))


def test_functions_have_eight_parameters_and_sixty_lines_at_most() -> None:
    """For commands, whose parameters are options, only the lines of the body count."""
    commands = {function.__name__ for panel in COMMANDS.values() for function in panel.values()}
    for name, path in FILES.items():
        for owner, node in methods(tree(path)):
            is_command = room(name) == "cli" and node.name in commands
            first = node.body[0].lineno if is_command else node.lineno
            assert is_command or parameters(node) <= 8, f"{name}.{owner}{node.name}"
            assert (node.end_lineno or 0) - first < 60, f"{name}.{owner}{node.name}"


def methods(module: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield every function, with the name of its class and a dot, if it has one."""
    owners = {
        id(node): f"{each.name}."
        for each in ast.walk(module)
        if isinstance(each, ast.ClassDef)
        for node in each.body
    }
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef):
            yield owners.get(id(node), ""), node


def test_no_type_is_given_up() -> None:
    for name, text in sources().items():
        assert "tuple[Any" not in text, name
        assert "ignore[override]" not in text, name


def test_one_place_asks_what_kind_a_model_is() -> None:
    """Only `models` itself and the plan of decoding check it."""
    kinds = {"TranslationModel", "NonAutoregressiveModel", "Transformer", "NonAutoregressiveTransformer"}
    for name, path in FILES.items():
        if room(name) == "models" or name == "cotext.translation.plan":
            continue
        for node in ast.walk(tree(path)):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "isinstance"
            ):
                asked = {each.id for each in ast.walk(node.args[1]) if isinstance(each, ast.Name)}
                assert not asked & kinds, f"{name}: {ast.unparse(node)}"


def test_only_the_builder_knows_parts_by_name() -> None:
    skeletons = {"cotext.models.transformer", "cotext.models.nat"}
    names = (
        "attention_weights build build_views checkpoint checks describe interface language_model likelihood "
        "output_layer reach run_folder sentence_maps slots"
    )
    shared = {f"cotext.models.{name}" for name in names.split()}
    parts = {name for name in ROOMS if name.startswith("cotext.models.") and name not in skeletons | shared}
    assert {"cotext.models.han", "cotext.models.mcn", "cotext.models.docflat"} <= parts
    for name, path in ROOMS.items():
        imported = set(imports(path))
        if name != "cotext.models.build":
            assert not imported & parts, f"{name} knows a part by name"
        if name in parts:
            assert not imported & skeletons, f"{name} knows a skeleton"
            allowed = {"layers", "models"}
            assert all(room(i) in allowed or i == "cotext.data.batch" for i in imported), name


def test_rows_are_padded_and_packed_in_one_place() -> None:
    """Only `data/batch.py` pads rows of tokens and packs them into batches."""
    for name, path in FILES.items():
        nodes = list(ast.walk(tree(path)))
        called = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
        if (
            room(name) in ("data", "search", "translation", "training", "evaluation")
            and name != "cotext.data.batch"
        ):
            assert "pad_sequence" not in called, name
        if name != "cotext.data.batch":
            defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
            assert not defined & {"padded", "_padded", "make_batch", "source_batch"}, name
            assert not defined & {"pack_groups", "share_batches", "pack_apart"}, name


def test_short_names_in_the_reading_guide_exist() -> None:
    """A name without a folder is in the folder of the name before it."""
    top = ROOT.parents[1]
    guide = (top / "docs" / "reading-guide.md").read_text(encoding="utf-8")
    names = re.findall(r"`((?:[\w-]+/)*(?:[\w-]+\.py)?)`", guide.split("## Find a line in two steps")[1])
    assert names
    folder = ""
    for name in names:
        folder = name.rpartition("/")[0] if "/" in name else folder
        assert (ROOT / folder / name.rpartition("/")[2]).exists(), f"{folder}: {name}"


def test_the_site_has_every_page() -> None:
    top = ROOT.parents[1]
    listed = re.findall(
        r"^ +- ([\w/-]+\.md)$", (top / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE
    )
    docs = top / "docs"
    assert sorted(str(page.relative_to(docs)) for page in docs.rglob("*.md")) == sorted(listed)


def test_the_site_has_every_room() -> None:
    """The list is read without mkdocs, which tests do not need."""
    reference = (ROOT.parents[1] / "docs" / "reference.py").read_text(encoding="utf-8")
    listed = reference.partition("ROOMS = (")[2].partition(")")[0]
    assert sorted(re.findall(r'"(\w+)"', listed)) == sorted(FLOORS)


def test_docstrings_name_no_link_of_the_site() -> None:
    """Two consecutive pairs of brackets are a link in Markdown, whose target would be missing."""
    wrong = [
        (name, found)
        for name, path in FILES.items()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        for found in re.findall(
            r"\]\s?\[[^]]*\]",
            re.sub(r"`[^`]*`|^    .*$", "", ast.get_docstring(node) or "", flags=re.MULTILINE),
        )
    ]
    assert wrong == []
