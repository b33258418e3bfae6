"""A hook of mkdocs: the API reference, a page for every room of the package, made from its docstrings."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "cotext"
SECTION = "API reference"
# From the ground up, as docs/reading-guide.md tells them.
ROOMS = (
    "runtime", "layers", "config", "data", "models", "losses", "search", "translation", "training",
    "interchange", "files", "language_models", "evaluation", "serving", "cli",
)  # fmt: skip


def modules(room: str) -> Iterator[str]:
    """The modules of a room that say something, by name."""
    for path in sorted((PACKAGE / room).rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        if path.read_text(encoding="utf-8").strip():
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def pages() -> dict[str, str]:
    """The pages of the reference by address, in Markdown."""
    found = {"reference/cotext.md": "# cotext\n\n::: cotext\n"}
    for room in ROOMS:
        entries = "\n\n".join(f"::: {name}" for name in modules(room))
        found[f"reference/{room}.md"] = f"# cotext.{room}\n\n{entries}\n"
    return found


def on_config(config: Any) -> Any:
    """Bring the pages into the navigation."""
    missing = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()} - {*ROOMS}
    if missing:
        raise ValueError(f"docs/reference.py: no page for {', '.join(sorted(missing))}")
    for entry in config.nav:
        if isinstance(entry, dict) and SECTION in entry:
            entry[SECTION] = list(pages())
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages, which are in no folder."""
    for address, content in pages().items():
        files.append(File.generated(config, address, content=content))
    return files
