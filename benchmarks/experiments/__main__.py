"""Run an experiment: train its rows, measure them, write its tables.

    python -m benchmarks.experiments FILE.yaml --out FOLDER [--minutes 9] [--rows NAME ...] [--at-once 2]
        [--device cuda] [--seeds NAME=1,2,3 ...] [--set key=value ...]

The same command goes on where an earlier one stopped: rows that are trained stay, figures that are measured
are not measured again. Rows of the highest value come first. With --minutes, all stops cleanly before that
time is over, so that short calls in turn finish a long experiment. FOLDER/tables.md and results.json are
written after every row. `--set name=value` changes a variable of the file, `--set train.key=value` a setting
of every training; `--seeds` has other seeds for a row than the file. Exit code 0: all is done; 130: stopped
before that; 1: something failed; 2: refused.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.experiments.plan import read_experiment, require_known, require_recipes
from benchmarks.experiments.runner import INTERRUPTED, Budget, Runner
from cotext.runtime.errors import CotextError
from cotext.runtime.locks import working_in
from cotext.runtime.signals import stop_on_signals


def main(arguments: list[str] | None = None) -> int:
    """Read the experiment, run it; give the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.experiments",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, help="experiment in YAML")
    parser.add_argument("--out", type=Path, required=True, help="folder for data, runs, figures and tables")
    parser.add_argument("--minutes", type=float, help="stop cleanly before they are over")
    parser.add_argument("--rows", nargs="+", default=[], metavar="NAME", help="with those that they need")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="rows side by side")
    parser.add_argument("--device", help="cpu, cuda ...; the GPU if there is one")
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
        print(f"{given.out}: stopped; the same command goes on")
        return INTERRUPTED
    print(f"{given.out / 'tables.md'}: {'some rows failed' if outcome.failed else 'all rows done'}")
    return 1 if outcome.failed else 0


if __name__ == "__main__":
    sys.exit(main())
