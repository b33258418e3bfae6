"""Formatting of numbers, lists and tables as plain text."""

from collections.abc import Sequence


def render_p(p: float) -> str:
    """Format a p-value with four decimals."""
    return f"{p:.4f}" if p >= 0.0001 else "<0.0001"


def listed(parts: Sequence[str]) -> str:
    """Join parts to "a, b and c"; separate them by semicolons if a part contains a comma."""
    joint = "; " if any("," in part for part in parts) else ", "
    if len(parts) < 2:
        return "".join(parts)
    return f"{joint.join(parts[:-1])}{';' if joint == '; ' else ''} and {parts[-1]}"


def render_rows(rows: Sequence[Sequence[str]], left: int) -> str:
    """Align rows in columns: the first `left` columns to the left, all other columns to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def in_bytes(count: int) -> str:
    """Format a number of bytes, such as "4.5 MB"."""
    number, units = float(count), ["bytes", "kB", "MB", "GB", "TB"]
    while number >= 1000 and len(units) > 1:
        number, units = number / 1000, units[1:]
    return f"{number:.3g} {units[0]}" if count >= 1000 else f"{count} bytes"
