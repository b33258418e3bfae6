"""Make a Python package of trained runs, so that `cotext translate NAME` finds them once it is installed.

    python -m benchmarks.pretrained.model_package PACKAGE LICENCE SOURCES NAME=RUN [NAME=RUN ...]
        [--scores FILE ...]

PACKAGE is a new folder with the name of the distribution. LICENCE is the text of a licence, in a file with
the identifier of the hub as its name (gpl-3.0-or-later). SOURCES is Markdown for the model card: all parts
of the training data with their licences and authors. The package has an int8 copy of every RUN without
local paths, with a card and checksums, and an entry point NAME in the group `cotext.models`.
"""

import argparse
import shutil
import tempfile
from pathlib import Path

from cotext.interchange.export import SOURCES_UNKNOWN, export_hub, export_int8
from cotext.interchange.model_names import CARD, write_checksums
from cotext.runtime import CotextError, __version__
from cotext.runtime.files import new_folder

PROJECT = """\
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "{name}"
description = "A translation model for Cotext"
version = "{version}"
readme = "README.md"
requires-python = ">=3.11"
license = "{licence}"
license-files = ["LICENSE"]
authors = [{{ name = "Cotext developers" }}]

[project.entry-points."cotext.models"]
{points}
[tool.hatch.build.targets.wheel]
packages = ["{module}"]
"""
# SPDX identifiers, which Python packages need, by the identifier of the hub.
SPDX = {"gpl-3.0-or-later": "GPL-3.0-or-later", "apache-2.0": "Apache-2.0"}


def write_package(
    package: Path, licence: Path, sources: Path, runs: dict[str, Path], scores: list[Path]
) -> None:
    """Write the package; raise CotextError for a licence that is not in `SPDX`."""
    if licence.name not in SPDX:
        raise CotextError(f"{licence}: its name is not a known licence ({', '.join(SPDX)})")
    distribution = package.resolve().name
    module = _identifier(distribution)
    with new_folder(package) as made:
        (made / module).mkdir(parents=True)
        for name, run in runs.items():
            _write_model(name, made / module, run, licence.name, sources, scores)
        first = made / module / _identifier(next(iter(runs)))
        shutil.copyfile(first / CARD, made / CARD)
        shutil.copyfile(licence, made / "LICENSE")
        points = "".join(f'{name} = "{module}.{_identifier(name)}"\n' for name in runs)
        project = PROJECT.format(
            name=distribution,
            version=__version__,
            licence=SPDX[licence.name],
            points=points,
            module=module,
        )
        (made / "pyproject.toml").write_text(project, encoding="utf-8")


def _identifier(name: str) -> str:
    """Return a name as a Python identifier."""
    return name.replace("-", "_")


def _write_model(name: str, module: Path, run: Path, licence: str, sources: Path, scores: list[Path]) -> None:
    """Write an int8 copy of a run with a card and checksums."""
    folder = module / _identifier(name)
    with tempfile.TemporaryDirectory() as temporary:
        published = Path(temporary) / name
        export_hub(run, published, licence=licence, scores=scores)
        export_int8(published, folder)
        card = (published / CARD).read_text(encoding="utf-8")
    # The card gets its sources here.
    card = card.replace(f"\n{SOURCES_UNKNOWN}\n", "")
    (folder / CARD).write_text(f"{card}\n{sources.read_text(encoding='utf-8')}", encoding="utf-8")
    write_checksums(folder)


def main() -> None:
    """Write a package from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name in ("package", "licence", "sources"):
        parser.add_argument(name, type=Path)
    parser.add_argument("runs", nargs="+", metavar="NAME=RUN")
    parser.add_argument("--scores", type=Path, nargs="*", default=[])
    given = parser.parse_args()
    runs = {name: Path(run) for name, _, run in (each.partition("=") for each in given.runs)}
    write_package(given.package, given.licence, given.sources, runs, given.scores)


if __name__ == "__main__":
    main()
