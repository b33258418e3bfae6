"""Plant the faults of `faults.yaml` one at a time in a copy of the package, and report which the tests find.

    .venv/bin/python -m tests.faults            # all; several minutes
    .venv/bin/python -m tests.faults 3 17-20    # some, by number

Only the test files that the fault names are run, up to the first failure. They run in a fork of this process,
which has imported the slow libraries.
"""

import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import accelerate  # noqa: F401 - slow libraries, imported once for all forks
import hypothesis  # noqa: F401
import pyarrow  # noqa: F401
import pytest
import sacrebleu  # noqa: F401
import typer  # noqa: F401
import yaml

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src"
SECONDS = 600  # for one fault; a test that exceeds this time has found it
FINDS = pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED  # the second if an import fails


def plant(fault: dict[str, str], copy: Path) -> None:
    """Insert the fault into a copy of the package. Raise ValueError unless its code occurs exactly once."""
    path = copy / "cotext" / fault["file"]
    code = path.read_text(encoding="utf-8")
    if code.count(fault["old"]) != 1:
        raise ValueError(f"{fault['file']}: there {code.count(fault['old'])} times: {fault['old']}")
    path.write_text(code.replace(fault["old"], fault["new"]), encoding="utf-8")


def run_tests(copy: Path, files: list[str]) -> int:
    """Return the exit code of pytest on a copy of the package, or minus a signal's number."""
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        with (copy / "output").open("w", encoding="utf-8") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        os.environ["PYTHONPATH"] = str(copy)
        sys.path.insert(0, str(copy))
        options = ["-q", "-x", "-p", "no:cacheprovider", f"--basetemp={copy / 'tests'}"]
        os._exit(pytest.main([*options, *(str(TESTS / name) for name in files)]))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def first_failure(copy: Path) -> str:
    """Return the name of the test that failed, from pytest's summary."""
    lines = (copy / "output").read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line for line in lines if line.startswith(("FAILED", "ERROR "))), "no summary")[:110]


def main(numbers: set[int]) -> int:
    """Plant the faults with these numbers, or all. Return how many were not found."""
    missed = 0
    for number, fault in enumerate(yaml.safe_load((TESTS / "faults.yaml").read_text(encoding="utf-8")), 1):
        if numbers and number not in numbers:
            continue
        with tempfile.TemporaryDirectory() as folder:
            copy, begun = Path(folder), time.monotonic()
            shutil.copytree(SOURCE, copy, dirs_exist_ok=True)
            try:
                plant(fault, copy)
                code = run_tests(copy, fault["tests"].split())
            except ValueError as error:
                print(f"{number:3} cannot be planted: {error}", flush=True)
                missed += 1
                continue
            found = code in FINDS or code < 0
            missed += not found
            how = first_failure(copy) if found else f"exit code {code}: {fault['file']}: {fault['old']}"
            seconds = time.monotonic() - begun
            print(f"{number:3} {'found ' if found else 'MISSED'} {seconds:4.0f} s {how}", flush=True)
    print(f"missed: {missed}")
    return missed


def read_numbers(arguments: list[str]) -> set[int]:
    """Read numbers and ranges, such as 3 and 17-20."""
    ranges = (argument.partition("-") for argument in arguments)
    return {n for first, _, last in ranges for n in range(int(first), int(last or first) + 1)}


if __name__ == "__main__":
    sys.exit(bool(main(read_numbers(sys.argv[1:]))))
