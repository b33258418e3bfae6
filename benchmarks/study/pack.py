"""What of an experiment is to come back from another machine, in one file: all but data, weights and states.

    python -m benchmarks.study.pack FOLDER OUT.tar.xz [--most-mib 16]

In it: results.json, tables.md, pictures, what was measured (translations, decisions, figures), and of every
run its configuration, its curves and where it started. Unpacked, it is a folder that `benchmarks.study.page`
reads. A file of more than 16 MiB is an error, and is not written.
"""

import argparse
import tarfile
from collections.abc import Iterator
from pathlib import Path

from cotext.runtime.errors import CotextError
from cotext.runtime.files import replacing

OF_RUN = ("config.yaml", "metrics.jsonl", "init.json", "data.json")
MEBIBYTE = 1 << 20


def kept(folder: Path) -> Iterator[Path]:
    """The files that come back."""
    yield from sorted(path for name in ("*.json", "*.md", "*.png") for path in folder.glob(name))
    for name in ("measures", "logs"):
        yield from sorted(path for path in (folder / name).rglob("*") if path.is_file())
    for run in sorted((folder / "runs").glob("*")):
        yield from (path for name in OF_RUN if (path := run / name).is_file())


def pack(folder: Path, out: Path, most: int = 16 * MEBIBYTE) -> int:
    """Write the file; give its size in bytes.

    Raises:
        CotextError: nothing was measured, or it would be larger than `most`.
    """
    if not (folder / "results.json").is_file():
        raise CotextError(f"{folder}: no results.json; give the folder of an experiment")
    with replacing(out) as temporary:
        with tarfile.open(temporary, "w:xz") as archive:
            for path in kept(folder):
                archive.add(path, f"{folder.name}/{path.relative_to(folder)}")
        if (size := temporary.stat().st_size) > most:
            raise CotextError(f"{out}: would have {size:,} bytes, and at most {most:,} come back")
    return size


def main(arguments: list[str] | None = None) -> None:
    """Pack a folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--most-mib", type=int, default=16)
    given = parser.parse_args(arguments)
    print(f"{given.out}: {pack(given.folder, given.out, given.most_mib * MEBIBYTE):,} bytes")


if __name__ == "__main__":
    main()
