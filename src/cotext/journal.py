"""What a run reports of itself: sums between two reports, and one line of JSON for each report.

`metrics.jsonl` is append-only but for one moment: on resumption, what was written after the checkpoint goes.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from cotext.errors import CotextError
from cotext.losses.cross_entropy import LossParts

TIMING = ("tokens_per_second", "waiting_share")  # the figures that differ between two runs of one seed


@dataclass(slots=True)
class Interval:
    """What this process has added up since the last report, `since` a time in seconds.

    `sums` are pairs of a sum and its count, float64 [2] on the CPU.
    """

    since: float
    waited_seconds: float = 0.0
    grad_norm: float = 0.0
    sums: dict[str, Tensor] = field(default_factory=dict)

    def add(self, outcome: LossParts) -> None:
        """Add the figures of one batch."""
        for name, (total, count) in {"loss": (outcome.loss, outcome.count), **outcome.parts}.items():
            pair = torch.stack((total.detach(), count)).cpu().double()
            self.sums[name] = self.sums[name] + pair if name in self.sums else pair


class Journal:
    """The file of reports of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, kind: str, figures: Mapping[str, float]) -> None:
        """Append a line; raises CotextError when it can't be written."""
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"kind": kind, **figures}) + "\n")
        except OSError as error:
            raise CotextError(f"{self.path}: cannot be written: {error}") from None

    def forget_after(self, update: int) -> None:
        """Drop what was reported after `update`, lines cut short, and the figures of a model made final.

        Raises:
            CotextError: the file cannot be rewritten.
        """
        try:
            if not self.path.exists():
                return
            lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
            kept = [line for line in lines if _stands(line, update)]
            temporary = self.path.with_name(f".{self.path.name}")
            temporary.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
            os.replace(temporary, self.path)
        except OSError as error:
            raise CotextError(f"{self.path}: cannot be rewritten: {error}") from None


def _stands(line: str, update: int) -> bool:
    try:
        entry = json.loads(line)
        return bool(entry["update"] <= update and entry["kind"] != "final")
    except (ValueError, KeyError, TypeError):
        return False
