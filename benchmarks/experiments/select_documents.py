"""Write the documents of a corpus whose id begins with a prefix, as text.

python -m benchmarks.experiments.select_documents PREFIX SOURCE TARGET OUT_SOURCE OUT_TARGET
"""

import argparse
from pathlib import Path

from cotext.data.formats import read_parallel, write_parallel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("prefix")
    for name in ("source", "target", "out_source", "out_target"):
        parser.add_argument(name, type=Path)
    given = parser.parse_args()
    chosen = (d for d in read_parallel(given.source, given.target) if d.id.startswith(given.prefix))
    write_parallel(given.out_source, given.out_target, chosen, "text")


if __name__ == "__main__":
    main()
