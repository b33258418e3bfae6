"""Adapt a model to several corpora with `cotext adapt`, and print the scores before and after in a table.

    python -m benchmarks.pretrained.adapt_corpora MODEL CORPUS NAME [NAME ...] --out FOLDER
        [--documents 400] [-- OPTIONS OF cotext adapt]

CORPUS has the training files train.SOURCE.xz, train.TARGET.xz and train.docids.xz, as the corpora of
`../shared/data`. NAME is the prefix of document ids before the colon, such as `progit`. Choose parts that the
model was not trained on. Documents are drawn by a fixed seed. The same command resumes.
"""

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path

from cotext.data.formats import read_parallel, write_parallel
from cotext.runtime.errors import CotextError
from cotext.runtime.tables import render_p, render_rows

SEED = 1  # of the documents


def write_corpus(corpus: Path, name: str, documents: int, out: Path, languages: tuple[str, str]) -> None:
    """Write the drawn documents of one part of a corpus; raise CotextError if there are none."""
    source, target = (corpus / f"train.{language}.xz" for language in languages)
    chosen = [each for each in read_parallel(source, target) if each.id.startswith(f"{name}:")]
    if not chosen:
        raise CotextError(f"{corpus}: no document id begins with {name}:")
    drawn = random.Random(SEED).sample(chosen, min(documents, len(chosen)))
    write_parallel(out, None, drawn, "tmx", languages)


def rows_of(name: str, report: dict) -> list[tuple[str, ...]]:
    """Return a row for each score in a report of `cotext adapt`."""
    rows = []
    before_and_after = (report["systems"][f"{which}.jsonl"]["scores"] for which in ("before", "after"))
    for before, after in zip(*(scores.values() for scores in before_and_after), strict=True):
        [test] = report["paired"][after["protocol"]]["comparisons"]
        values = f"{before['value']:.2f}", f"{after['value']:.2f}", f"{test['difference']:+.2f}"
        rows.append((name, f"{after['documents']}", after["title"], *values, render_p(test["p"])))
    return rows


def main() -> None:
    """Adapt to each corpus, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("corpus", type=Path)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--documents", type=int, default=400)
    parser.add_argument("--languages", nargs=2, default=("en", "de"))
    own, options = sys.argv[1:], []
    if "--" in own:
        own, options = own[: own.index("--")], own[own.index("--") + 1 :]
    given = parser.parse_args(own)
    given.out.mkdir(parents=True, exist_ok=True)
    rows = [("corpus", "test documents", "score", "before", "after", "difference", "p")]
    for name in given.names:
        corpus, run = given.out / f"{name}.tmx", given.out / name
        if not corpus.exists():
            write_corpus(given.corpus, name, given.documents, corpus, tuple(given.languages))
        command = ["adapt", given.model, str(corpus), "--out", str(run), *options]
        subprocess.run([sys.executable, "-m", "cotext", *command], check=True)
        rows += rows_of(name, json.loads(run.with_name(f"{name}.adapt").joinpath("report.json").read_text()))
    table = render_rows(rows, left=1)
    (given.out / "table.txt").write_text(f"{table}\n", encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()
