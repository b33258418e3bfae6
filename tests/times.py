"""What tests cost in processor time, which does not hang on what else the machine does: `make test-times`.

A plugin of pytest. A child counts for the test that waits for its end; what is forked by the server of
`tiny_runs.PROCESSES` is that server's child, and counts for nobody.
"""

import os
from collections import Counter

import pytest

SPENT = "processor seconds"
SHOWN = 30
_before = [0.0]  # processor time at the end of what was told last
_spent: Counter[str] = Counter()


def processor_seconds() -> float:
    """Of this process and of its children that have ended, from their start."""
    found = os.times()
    return found.user + found.system + found.children_user + found.children_system


def pytest_collection_finish() -> None:
    """What comes before the first test is no test's."""
    _before[0] = processor_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> object:
    """Note beside a report what its phase has cost, where processes that share the tests send it along."""
    report = yield
    now = processor_seconds()
    report.user_properties.append((SPENT, now - _before[0]))
    _before[0] = now
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up what the phases of a test have cost."""
    # Later reports of a test repeat the properties of the test itself, not those of earlier reports.
    _spent[report.nodeid] += sum(value for name, value in report.user_properties if name == SPENT)


def dearest(spent: Counter[str], depth: int) -> list[tuple[str, float, int]]:
    """Files (depth 0) or functions (1) with their seconds and tests, the dearest first."""
    seconds: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for test, cost in spent.items():
        path, *names = test.partition("[")[0].split("::")
        place = "::".join([path, *names]) if depth else path
        seconds[place] += cost
        tests[place] += 1
    return [(place, cost, tests[place]) for place, cost in seconds.most_common(SHOWN)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the dearest files and functions."""
    for depth, kind in enumerate(("files", "functions")):
        terminalreporter.write_sep("=", f"dearest {kind}, of {_spent.total():.0f} processor seconds")
        for place, cost, tests in dearest(_spent, depth):
            terminalreporter.write_line(f"{cost:8.2f} {tests:5} {place}")
