"""The reports beside translations by language models: what they took, and what had to be repaired."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cotext.language_models.numbered import one_line
from cotext.language_models.translate_file import REPORT, report_of
from cotext.runtime.errors import CotextError
from cotext.runtime.files import checksum
from cotext.runtime.reading import read_json
from cotext.runtime.tables import render_rows

MAX_REPORT_BYTES = 64 << 20  # a line for every repair of a large corpus


@dataclass(frozen=True, slots=True)
class KeptReport:
    """What a translation took. `repairs` counts by what was done; `cost` is None without prices.

    `changed`: the translation is not as it was written.
    """

    requests: int
    input_tokens: int
    output_tokens: int
    cost: float | None
    repairs: Mapping[str, int]
    untranslated: int
    changed: bool
    signature: str

    def as_dict(self) -> dict[str, Any]:
        """For a JSON file."""
        return {
            "requests": self.requests,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cost": self.cost,
            "repairs": dict(self.repairs),
            "untranslated": self.untranslated,
            "changed_since": self.changed,
            "signature": self.signature,
        }


def report_beside(translation: Path) -> KeptReport | None:
    """The report beside a translation; None where there is none.

    Raises:
        CotextError: it is damaged, or something else.
    """
    path = report_of(translation)
    if not path.is_file():
        return None
    content = read_json(path, MAX_REPORT_BYTES)
    if content.get("format") != REPORT:
        return None  # a file of others that is called so
    try:
        usage = content["usage"]["all"]
        cost = usage["cost"]
        return KeptReport(
            requests=int(usage["requests"]),
            input_tokens=int(usage["input_tokens"]),
            output_tokens=int(usage["output_tokens"]),
            cost=None if cost is None else float(cost),
            repairs=Counter(one_line(str(repair["remedy"])) for repair in content["repairs"]),
            untranslated=len(content["untranslated"]),
            changed=content["output"] != checksum(translation),
            signature=one_line(str(content["signature"])),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CotextError(
            f"{path}: damaged ({type(error).__name__}: {error}); delete it, or translate again"
        ) from None


def render_reports(reports: Mapping[str, KeptReport]) -> str:
    """A line for every system, and what has to be known of it."""
    rows = [("by language models", "requests", "tokens in", "out", "cost", "repairs", "untranslated")]
    for name, each in reports.items():
        rows.append(
            (
                name,
                f"{each.requests:,}",
                f"{each.input_tokens:,}",
                f"{each.output_tokens:,}",
                "" if each.cost is None else f"{each.cost:.4f}",
                f"{sum(each.repairs.values()):,}",
                f"{each.untranslated:,}",
            )
        )
    lines = [render_rows(rows, left=1)]
    for name, each in reports.items():
        if each.repairs:
            told = (f"{count:,} {remedy}" for remedy, count in sorted(each.repairs.items()))
            lines.append(f"{name}: {'; '.join(told)}")
        if each.changed:
            lines.append(f"{name}: changed since the model has written it")
        lines.append(f"{name}: {each.signature}")
    return "\n".join(lines)
