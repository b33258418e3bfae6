"""How often lengths tell of translations that merge two sentences of a request and divide another.

python -m benchmarks.moved_sentences SOURCE TARGET [--unspaced]

Pieces of 5, 10, 20 and 50 consecutive sentences of a parallel corpus, as they are, and with two neighbouring
translations merged and a later one cut in its middle, at random places (seed 1): as many sentences, of which
those between are others. `--unspaced`: the target is cut between characters, not words.
"""

import argparse
import random
from itertools import islice
from pathlib import Path
from typing import Final

from cotext.data.formats import read_parallel
from cotext.language_models.translator import moved

SIZES: Final = (5, 10, 20, 50)
MOST_DOCUMENTS: Final = 60


def shifted(target: list[str], joint: str, generator: random.Random) -> list[str] | None:
    """Translations of as many sentences, two merged and a later one divided; None where it is too short."""
    merged = generator.randrange(len(target) - 2)
    divided = generator.randrange(merged + 2, len(target))
    parts = target[divided].split() if joint else list(target[divided])
    if len(parts) < 2:
        return None
    halves = [joint.join(parts[: len(parts) // 2]), joint.join(parts[len(parts) // 2 :])]
    both = f"{target[merged]}{joint}{target[merged + 1]}"
    return [*target[:merged], both, *target[merged + 2 : divided], *halves, *target[divided + 1 :]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--unspaced", action="store_true")
    given = parser.parse_args()
    documents = list(islice(read_parallel(given.source, given.target), MOST_DOCUMENTS))
    generator = random.Random(1)
    print(f"{'sentences':>9} {'pieces':>7} {'as they are':>12} {'shifted':>8} {'of those found':>15}")
    for size in SIZES:
        pieces = [
            (list(document.source[start : start + size]), list(document.target[start : start + size]))
            for document in documents
            for start in range(0, len(document) - size + 1, size)
        ]
        alarms = sum(moved(source, target) is not None for source, target in pieces)
        wrong = [
            (source, other)
            for source, target in pieces
            if (other := shifted(target, "" if given.unspaced else " ", generator)) is not None
        ]
        found = sum(moved(source, other) is not None for source, other in wrong)
        shares = f"{alarms / max(1, len(pieces)):12.1%} {len(wrong):8} {found / max(1, len(wrong)):15.1%}"
        print(f"{size:9} {len(pieces):7} {shares}")


if __name__ == "__main__":
    main()
