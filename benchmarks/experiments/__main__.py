"""Run an experiment: train its rows, measure them, write its tables.

    python -m benchmarks.experiments FILE.yaml --out FOLDER [--minutes 9] [--rows NAME ...] [--at-once 2]
        [--device cuda] [--seeds NAME=1,2,3 ...] [--set key=value ...]

The same command continues an interrupted one: trained rows and measured figures are kept. Rows with the
highest `value` come first. `--minutes` stops in time, so that several short calls finish a long experiment.
FOLDER/tables.md and FOLDER/results.json are written after every row. `--set name=value` changes a variable of
the file, `--set train.key=value` a setting of every training, and `--seeds` the seeds of a row.

Exit codes: 0 finished, 1 failed, 2 invalid arguments or file, 130 stopped before the end.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.experiments.plan import read_experiment, require_known, require_recipes
from benchmarks.experiments.runner import INTERRUPTED, Budget, Runner
from cotext.runtime import CotextError
from cotext.runtime.files import working_in
from cotext.runtime.signals import stop_on_signals


def main(arguments: list[str] | None = None) -> int:
    """Run an experiment; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.experiments",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, help="YAML file of the experiment")
    parser.add_argument("--out", type=Path, required=True, help="folder for data, runs, figures and tables")
    parser.add_argument("--minutes", type=float, help="stop within this time")
    parser.add_argument(
        "--rows", nargs="+", default=[], metavar="NAME", help="only these rows, and those that they need"
    )
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="number of rows at the same time")
    parser.add_argument("--device", help="cpu or cuda; default: the GPU if there is one")
    parser.add_argument("--seeds", nargs="+", action="extend", default=[], metavar="NAME=1,2,3")
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE")
    given = parser.parse_args(arguments)
    budget = Budget.of(given.minutes)
    try:
        experiment = read_experiment(given.file, given.set, given.seeds)
        for name in given.rows:
            require_known("--rows", name, experiment.rows)
        require_recipes(experiment, given.rows)
        with working_in(given.out), stop_on_signals() as stop:
            runner = Runner(experiment, given.out, given.device, lambda text: print(text, flush=True))
            outcome = runner.run(given.rows, given.at_once, budget, stop)
    except (CotextError, ValueError) as error:
        print(f"{given.file}: {str(error).removeprefix(f'{given.file}: ')}", file=sys.stderr)
        return 2
    for key, problem in outcome.failed.items():
        print(f"{' '.join(key)}: {problem}", file=sys.stderr)
    if outcome.stopped:
        print(f"{given.out}: stopped; the same command continues")
        return INTERRUPTED
    print(f"{given.out / 'tables.md'}: {'some rows failed' if outcome.failed else 'all rows done'}")
    return 1 if outcome.failed else 0


if __name__ == "__main__":
    sys.exit(main())
