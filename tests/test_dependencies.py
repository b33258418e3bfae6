"""Requirements: what the package imports of others stands in pyproject.toml."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from itertools import chain

from packaging.requirements import Requirement

from tests.test_architecture import ROOT, tree

# Rooms that a plain installation need not import, with the extra that they stand on.
EXTRAS = {"serving": "serve", "training": "train"}
# Modules of other rooms that are imported only where their package is needed.
LATE = {"data/store.py": "pyarrow", "evaluation/studies/plots.py": "matplotlib"}
# Installed by themselves, as the pages say that name them: their own requirements do not go with Cotext's.
APART = {"unbabel-comet"}
DISTRIBUTIONS = {"comet": "unbabel-comet"}  # of modules that need not be installed where tests run


def normal(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def installed() -> dict[str, list[str]]:
    """The distributions that bring each module, of those that are installed here."""
    return dict(packages_distributions())


@cache
def project() -> dict[str, list[str]]:
    """The requirements of every extra; those of a plain installation under no name."""
    content = tomllib.loads((ROOT.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {"": content["dependencies"], **content["optional-dependencies"]}


def brought(extra: str) -> set[str]:
    """The distributions that an extra names, those of further extras among it included."""
    found = set()
    for requirement in project()[extra]:
        name, further = re.match(r"([\w.-]+)(?:\[(.*?)\])?", requirement).groups()  # type: ignore[union-attr]
        if normal(name) == "cotext":
            found.update(*(brought(each.strip()) for each in further.split(",")))
        else:
            found.add(normal(name))
    return found


def imported(node: ast.AST, at_once: bool = True) -> Iterator[tuple[str, bool]]:
    """The modules that a file imports, each with whether that happens when it is itself imported."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import(names=names):
                yield from ((alias.name, at_once) for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module, at_once
            case ast.Call(func=ast.Name(id=function), args=[ast.Constant(value=str(module)), *_]) if (
                function in ("import_module", "optional_module")
            ):
                yield module, at_once
        later = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        types = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        yield from imported(child, at_once and not later and not types)


def distributions(module: str) -> set[str]:
    """The distributions that may bring a module; of one that is not installed, that of its own name."""
    known = installed().get(module, [DISTRIBUTIONS.get(module, module)])
    return {normal(name) for name in known}


@cache
def others() -> dict[tuple[str, str, bool], str]:
    """Modules of others by room, name and whether at once; each with a file that imports it."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        room = path.relative_to(ROOT).parts[0]
        for name, at_once in imported(tree(path)):
            top = name.partition(".")[0]
            if LATE.get(path.relative_to(ROOT).as_posix()) == top:
                continue
            if top != "cotext" and top not in sys.stdlib_module_names:
                found.setdefault((room, top, at_once), str(path))
    return found


def missing(at_once: bool) -> list[str]:
    """Modules that are imported at once, or later, and that nothing brings which a room stands on."""
    everything = set[str]().union(APART, *(brought(extra) for extra in project() if extra != "dev"))
    wrong = []
    for (room, name, here), path in others().items():
        there = brought("") | (brought(EXTRAS[room]) if room in EXTRAS else set())
        if here is at_once and not distributions(name) & (there if at_once else everything):
            wrong.append(f"{path}: {name}")
    return wrong


def test_what_is_imported_at_once_comes_with_a_plain_installation() -> None:
    """But in rooms of an extra; what another requirement happens to bring is no requirement of one's own."""
    assert not missing(at_once=True)
    assert len(others()) > 30


def test_what_is_imported_later_comes_with_an_extra() -> None:
    assert not missing(at_once=False)


def test_the_lockfile_pins_what_all_brings_by_checksum() -> None:
    text = (ROOT.parents[1] / "requirements.lock").read_text(encoding="utf-8")
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+) \\\n    --hash=sha256:[0-9a-f]{64}", text, re.MULTILINE))
    assert len(pinned) == text.count("==")
    assert set(re.findall(r"https?://[^/\s]+", text)) == {"https://download.pytorch.org"}
    constraints = (ROOT.parents[1] / "constraints.txt").read_text(encoding="utf-8")
    assert f"torch=={pinned['torch'].removesuffix('+cpu')}\n" in constraints
    assert pinned.keys() >= brought("all") | brought("")
    for each in map(Requirement, chain(*project().values())):
        version = pinned.get(normal(each.name))
        assert version is None or each.specifier.contains(version), each
