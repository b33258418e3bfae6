"""Names of parameters in few words: by modules, those of like layers together."""

import re
from collections.abc import Collection, Iterable, Iterator


def without_common_ending(own: str, other: str) -> tuple[str, str]:
    """The names of the modules that correspond: `a.global`, `a.local` of `a.global.w.x`, `a.local.w.x`."""
    one, two = own.split("."), other.split(".")
    while len(one) > 1 and len(two) > 1 and one[-1] == two[-1]:
        one.pop()
        two.pop()
    return ".".join(one), ".".join(two)


def grouped(names: Collection[str], everything: Iterable[str]) -> list[str]:
    """Names of parameters, words by the largest modules that hold no others, numbered ones together.

    `encoder.4.ffn.weight`, `encoder.4.ffn.bias`, `encoder.5.ffn...` become `encoder.4-5.ffn`.
    """
    chosen = set(names)
    mixed = {prefix for name in everything if name not in chosen for prefix in _prefixes(name)}
    return numbered_together(
        dict.fromkeys(next(p for p in _prefixes(name) if p not in mixed) for name in names)
    )


def numbered_together(names: Iterable[str]) -> list[str]:
    """`a.0-1.b` for `a.0.b`, `a.1.b`: names that differ in their first number alone, wherever it stands."""
    numbers: dict[str, list[int]] = {}
    for name in names:
        first = re.search(r"(?<=\.)\d+(?=[. ]|$)", name)
        pattern = re.sub(rf"(?<=\.){first[0]}(?=[. ]|$)", "#", name) if first else name
        numbers.setdefault(pattern, []).extend([int(first[0])] if first else [])
    return [pattern.replace("#", _ranges(found)) for pattern, found in numbers.items()]


def _prefixes(name: str) -> Iterator[str]:
    """`a`, `a.b`, `a.b.c` of `a.b.c`."""
    parts = name.split(".")
    return (".".join(parts[:length]) for length in range(1, len(parts) + 1))


def _ranges(numbers: list[int]) -> str:
    """`0-2,5` of 0, 1, 2, 5."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
