"""The harness of timings: rounds in turn, by any clock, told as medians and ratios of a round."""

from collections.abc import Iterator

from benchmarks.speed import harness
from cotext.runtime.progress import spread


def test_ways_take_turns_and_the_warm_up_does_not_count() -> None:
    calls: list[str] = []
    now = 0.0

    def way(name: str, seconds: Iterator[float]) -> None:
        nonlocal now
        calls.append(name)
        now += next(seconds)

    seconds = {"one": iter([100.0, 2.0, 3.0]), "two": iter([100.0, 4.0, 9.0])}
    ways = {name: lambda n=name: way(n, seconds[n]) for name in seconds}
    times = harness.timed(ways, rounds=2, clock=lambda: now)
    assert calls == ["one", "two", "two", "one", "one", "two"]
    assert times["one"] == [2.0, 3.0]
    assert times.ratios("two", "one") == [2.0, 3.0]
    assert spread(times.ratios("two", "one")) == "2.50 (2.00-3.00)"


def test_rounds_and_numbers_of_things() -> None:
    sizes, ticks = iter([8.0, 4.0, 8.0]), iter(range(6))
    times = harness.timed({"labels": lambda: next(sizes)}, 2, clock=lambda: next(ticks))
    assert times["labels"] == [1 / 4, 1 / 8]
    assert spread([3.0, 1.0, 2.0]) == "2.00 (1.00-3.00)"
    calls: list[str] = []
    times = harness.timed({name: lambda n=name: calls.append(n) for name in "abc"}, 2, lambda: len(calls))
    assert "".join(calls) == "abcbcacab"
    assert times["a"] == [1.0, 1.0]
    assert harness.in_own_process(max, 2, 5) == 5
