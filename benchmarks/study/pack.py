"""Pack the results of an experiment into one file: all but data, weights and checkpoints.

    python -m benchmarks.study.pack FOLDER OUT.tar.xz [--most-mib 16]

The file has results.json, tables.md, pictures, the output of all measures and the logs, and of each run its
configuration, curves and start. `benchmarks.study.page` reads the unpacked folder. A file that would be
larger than `--most-mib` is an error and is not written.
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
    """Yield the files to pack."""
    yield from sorted(path for name in ("*.json", "*.md", "*.png") for path in folder.glob(name))
    for name in ("measures", "logs"):
        yield from sorted(path for path in (folder / name).rglob("*") if path.is_file())
    for run in sorted((folder / "runs").glob("*")):
        yield from (path for name in OF_RUN if (path := run / name).is_file())


def pack(folder: Path, out: Path, most: int = 16 * MEBIBYTE) -> int:
    """Write the file; return its size in bytes.

    Raises:
        CotextError: the folder has no results, or the file would have more than `most` bytes.
    """
    if not (folder / "results.json").is_file():
        raise CotextError(f"{folder}: no results.json; give the folder of an experiment")
    with replacing(out) as temporary:
        with tarfile.open(temporary, "w:xz") as archive:
            for path in kept(folder):
                archive.add(path, f"{folder.name}/{path.relative_to(folder)}")
        if (size := temporary.stat().st_size) > most:
            raise CotextError(f"{out}: would have {size:,} bytes, more than the limit of {most:,}")
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
