"""Attacks at random: seeded, counted, and each failure named by what repeats it."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.attacks import Attacks

SEED = int(os.environ.get("COTEXT_HOSTILE_SEED", "1"))
COUNTED = "hostile"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.hostile)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many attacks of each kind there were, and how they ended."""
    made: Counter[str] = Counter()
    ended: dict[str, Counter[str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == COUNTED and getattr(report, "when", "") == "call":
                    kind, counts = value
                    made[kind] += sum(counts.values())
                    ended.setdefault(kind, Counter()).update(counts)
    if made:
        terminalreporter.write_sep("=", f"attacks, seed {SEED}")
        for kind in sorted(made):
            parts = ", ".join(f"{count:,} {name}" for name, count in sorted(ended[kind].items()))
            terminalreporter.write_line(f"{kind:<12} {made[kind]:>6,}   {parts}")
        terminalreporter.write_line(f"{'in all':<12} {sum(made.values()):>6,}")


@pytest.fixture
def attacks(request: pytest.FixtureRequest) -> Iterator[Attacks]:
    """The attacks of one test, none of which may succeed; its node id and the seed decide all of them."""
    found = Attacks(f"{SEED} {request.node.nodeid}")
    kind = request.node.path.stem.removeprefix("test_")
    request.node.user_properties.append((COUNTED, (kind, found.counts)))
    yield found
    found.require_none()
