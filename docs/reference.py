"""A hook of mkdocs that makes the API reference from docstrings: a page for every folder of the package."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "cotext"
SECTION = "API reference"
# From the lowest layer to the highest, as in docs/reading-guide.md.
ROOMS = (
    "runtime", "layers", "config", "data", "models", "search", "interchange",
    "translation", "training", "files", "language_models", "evaluation", "serving", "cli",
)  # fmt: skip


def modules(room: str) -> Iterator[str]:
    """Yield the names of the modules of a folder that are not empty."""
    for path in sorted((PACKAGE / room).rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        if path.read_text(encoding="utf-8").strip():
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def pages() -> dict[str, str]:
    """Return the pages of the reference by address, in Markdown."""
    found = {"reference/cotext.md": "# cotext\n\n::: cotext\n"}
    for room in ROOMS:
        entries = "\n\n".join(f"::: {name}" for name in modules(room))
        found[f"reference/{room}.md"] = f"# cotext.{room}\n\n{entries}\n"
    return found


def on_config(config: Any) -> Any:
    """Add the pages to the navigation."""
    missing = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()} - {*ROOMS}
    if missing:
        raise ValueError(f"docs/reference.py: no page for {', '.join(sorted(missing))}")
    for entry in config.nav:
        if isinstance(entry, dict) and SECTION in entry:
            entry[SECTION] = list(pages())
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages, which are not files in a folder."""
    for address, content in pages().items():
        files.append(File.generated(config, address, content=content))
    return files
