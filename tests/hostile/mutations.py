"""Damage to bytes, as disks, networks and people do it."""

import random


def mutate(content: bytes, draw: random.Random) -> tuple[bytes, str]:
    """One damage, and its name with where it is."""
    size = len(content)
    at = draw.randrange(size + 1)
    length = draw.choice([1, 1, 2, 8, 100])
    kind = draw.choice(
        ["bit", "byte", "cut", "gone", "doubled", "zeros", "noise", "swapped", "more", "empty"]
    )
    if kind == "bit" and size:
        at = draw.randrange(size)
        content = content[:at] + bytes([content[at] ^ 1 << draw.randrange(8)]) + content[at + 1 :]
    elif kind == "byte" and size:
        at = draw.randrange(size)
        content = content[:at] + draw.randbytes(1) + content[at + 1 :]
    elif kind == "cut":
        content = content[:at]
    elif kind == "gone":
        content = content[:at] + content[at + length :]
    elif kind == "doubled":
        content = content[:at] + content[at : at + length] + content[at:]
    elif kind == "zeros":
        content = content[:at] + bytes(length) + content[at + length :]
    elif kind == "noise":
        content = content[:at] + draw.randbytes(length) + content[at + length :]
    elif kind == "swapped" and size > 1:
        other = draw.randrange(size)
        first, second = sorted((min(at, size - 1), other))
        length = max(1, min(length, second - first, size - second))
        content = (
            content[:first]
            + content[second : second + length]
            + content[first + length : second]
            + content[first : first + length]
            + content[second + length :]
        )
    elif kind == "more":
        content += draw.randbytes(length)
    elif kind == "empty":
        content = b""
    return content, f"{kind} at {at} of {size} ({length})"
