"""What attacks have in common: random numbers, counts, and the judgement of how a command ended."""

import contextlib
import random
import resource
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.command_line import Outcome, cotext

SCREEN_LINES = 30
SCREEN_CHARACTERS = 8_000
SECONDS = 60.0  # of one command on a tiny system; more counts as a hang
GROWTH = 2_000_000_000  # bytes of memory that the attacks of a test may take together
SHOWN = 10  # failures


class Attacks:
    """The attacks of one test: `random` draws them, `counts` tells how they ended."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)
        self.counts: dict[str, int] = Counter()
        self.found: list[str] = []
        self.memory = _most_memory()

    def run(self, what: str, *arguments: str | Path) -> Outcome | None:
        """Run a command in this process; None where it ended as no command may, which is noted."""
        begun = time.monotonic()
        try:
            outcome = cotext(*arguments)
        except Exception:
            self.fail(what, "".join(traceback.format_exc().splitlines(True)[-6:]))
            return None
        problem = _judge(outcome)
        if time.monotonic() - begun > SECONDS:
            problem = f"took {time.monotonic() - begun:.0f} s"
        if problem:
            self.fail(what, problem)
            return None
        self.counts["refused" if outcome.code else "unharmed"] += 1
        return outcome

    def unharmed(self, count: int = 1) -> None:
        """Count other attacks after which everything was as without them."""
        self.counts["unharmed"] += count

    def fail(self, what: str, problem: str) -> None:
        """Note an attack that succeeded."""
        self.counts["FAILED"] += 1
        self.found.append(f"{what}: {problem}")

    def require_none(self) -> None:
        """Fail the test with what was found."""
        grown = _most_memory() - self.memory
        if grown > GROWTH:
            self.found.append(f"memory grew by {grown / 1e9:.1f} GB")
        shown = "\n\n".join(self.found[:SHOWN])
        assert not self.found, f"{len(self.found)} attacks succeeded:\n{shown}"


def _judge(outcome: Outcome) -> str | None:
    if outcome.code not in (0, 2):
        return f"exit code {outcome.code}: {outcome.err[-600:]}"
    if "Traceback" in outcome.err:
        return f"traceback: {outcome.err[-600:]}"
    if outcome.code == 2 and not outcome.err.strip():
        return "refused without a word"
    if outcome.err.count("\n") > SCREEN_LINES or len(outcome.err) > SCREEN_CHARACTERS:
        return f"a message of {len(outcome.err):,} characters: {outcome.err[:300]}"
    with contextlib.suppress(UnicodeEncodeError):
        outcome.err.encode()
        return None
    return "a message that no terminal can show"


def _most_memory() -> int:
    """Bytes of memory that this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
