"""Every benchmark can be started: what it imports of the project is there."""

import ast
import importlib
from pathlib import Path

from tests.loops import loop_over

ROOT = Path(__file__).resolve().parents[2]
OURS = ("benchmarks", "cotext")
OLDER = ROOT / "benchmarks/speed/commits_worker.py"  # runs in earlier commits, too, whose names it tries
FILES = [path for path in sorted((ROOT / "benchmarks").rglob("*.py")) if path != OLDER]


@loop_over("path", FILES)
def test_imported_names_exist(path: Path) -> None:
    missing = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in OURS:
            names = [alias.name for alias in node.names]
            missing += [f"{node.module}.{name}" for name in names if not provides(node.module, name)]
    assert not missing


def provides(module: str, name: str) -> bool:
    """Whether `from module import name` works, where the libraries that this needs are installed."""
    try:
        if not hasattr(importlib.import_module(module), name):
            importlib.import_module(f"{module}.{name}")
    except ModuleNotFoundError as error:
        return (error.name or "").partition(".")[0] not in OURS
    return True
