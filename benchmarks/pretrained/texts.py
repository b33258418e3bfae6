"""Texts to follow a pretrained model with: the controlled corpus, and behind it a corpus of one's own.

    python -m benchmarks.pretrained.texts --out FOLDER [--controlled 4000]
        [--source train.en --target train.de]

Writes train, dev and test (`.en`, `.de`) into the folder; the corpus of one's own joins the training texts.
"""

import argparse
from itertools import chain
from pathlib import Path

from cotext.data.controlled import development_documents, training_documents
from cotext.data.controlled import test_documents as held_out_documents
from cotext.data.formats import read_parallel, write_parallel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--controlled", type=int, default=4000, help="documents of the controlled corpus")
    parser.add_argument("--source", type=Path)
    parser.add_argument("--target", type=Path)
    arguments = parser.parse_args()
    own = read_parallel(arguments.source, arguments.target) if arguments.source else ()
    splits = {
        "train": chain(training_documents(arguments.controlled, seed=1), own),
        "dev": development_documents(seed=1),
        "test": held_out_documents(seed=1),
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, documents in splits.items():
        source, target = (arguments.out / f"{name}.{language}" for language in ("en", "de"))
        write_parallel(source, target, documents, "text")


if __name__ == "__main__":
    main()
