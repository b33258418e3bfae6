"""The metrics log of a run: one line of JSON for each report, and TensorBoard curves.

`metrics.jsonl` is append-only but for one moment: on resumption, what was written after the checkpoint goes.
Each of its lines ends with a checksum.
TensorBoard gets the same figures in `tensorboard/` and is told to forget the same steps.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from cotext.runtime.errors import CotextError
from cotext.runtime.files import replacing
from cotext.runtime.integrity import sealed, sealed_lines, unsealed

# What differs between two runs of one seed.
TIMING = ("time", "tokens_per_second", "waiting_share")


class MetricsLog:
    """The reports of a run, as lines of JSON and as curves beside them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._curves: SummaryWriter | None = None
        self._forgotten_from: int | None = None

    def write(self, kind: str, figures: Mapping[str, float]) -> None:
        """Append a line, with the time in UTC, and a point to each curve.

        Raises:
            CotextError: they can't be written.
        """
        time = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"{sealed({'kind': kind, 'time': time, **figures})}\n")
            if self._curves is None:
                folder = str(self.path.parent / "tensorboard")
                self._curves = SummaryWriter(folder, purge_step=self._forgotten_from)
            for name, value in figures.items():
                if name != "update":
                    self._curves.add_scalar(f"{kind}/{name}", value, int(figures["update"]))
            self._curves.flush()
        except OSError as error:
            raise CotextError(f"{self.path}: cannot be written: {error}") from None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is there of what was reported."""
        return not self.path.exists() or self.path.stat().st_size == 0

    def forget_after(self, update: int) -> int:
        """Drop what was reported after `update`, damaged lines, and the figures of a model made final.

        To be called before anything is written. Returns how many lines were damaged; the last, which an
        interruption may cut short, is not counted.

        Raises:
            CotextError: the file cannot be read or rewritten.
        """
        self._forgotten_from = update + 1
        *lines, cut_short = sealed_lines(self.path)
        if not lines and not cut_short:
            return 0
        kept: list[str] = []
        damaged = 0
        for line in lines:
            try:
                entry = unsealed(line)
                stands = entry["update"] <= update and entry["kind"] != "final"
            except (ValueError, KeyError, TypeError):
                damaged += 1
                continue
            if stands:
                kept.append(f"{line}\n")
        with replacing(self.path) as temporary:
            temporary.write_text("".join(kept), encoding="utf-8")
        return damaged
