"""A summary of an engine folder: the system, the engine that runs it, sizes.

Read without the engine, from whatever lies there: what is missing or damaged is listed with the rest.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cotext.evaluation.studies.info.run import (
    describe_system,
    describe_tokenizer,
    noted_totals,
    render_info,
    render_totals,
    size_of,
    system_rows,
    tokenizer_row,
    weights_row,
)
from cotext.models.engine_folder import REMEDY, EngineDescription, describe_engine
from cotext.runtime.errors import CotextError
from cotext.runtime.integrity import require_whole
from cotext.runtime.tables import in_bytes


@dataclass(slots=True)
class EngineInfo:
    """The content of an engine folder; None or empty: not known. `problems`: what is missing or damaged.

    `data`: the folder of the training data by name, and totals of its splits. Sizes in bytes.
    """

    folder: Path
    description: EngineDescription | None = None
    system: dict[str, Any] = field(default_factory=dict)
    tokenizer: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    size: int = 0
    problems: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        described = self.description
        engine = None
        if described is not None:
            engine = {
                "name": described.engine,
                "version": described.version,
                "quantization": described.quantization,
                "positions": described.positions,
                "parameters": described.parameters,
                "updates": described.updates,
            }
        return {
            "format": "cotext-engine",
            "version": 1,
            "folder": str(self.folder),
            "signature": None if described is None else described.signature,
            "system": self.system or None,
            "engine": engine,
            "tokenizer": self.tokenizer or None,
            "data": self.data or None,
            "bytes": self.size,
            "problems": self.problems,
        }

    def render(self) -> str:
        """One line for each thing that is known."""
        rows = system_rows(self.system)
        if (described := self.description) is not None:
            rows += [
                ("parameters", f"{described.parameters:,}"),
                weights_row(described.updates),
                ("engine", f"{described.engine} {described.version}, as it was written"),
                ("quantization", described.quantization),
                ("positions", f"{described.positions:,}: the longest row, source or target"),
                ("signature", described.signature),
            ]
        if self.tokenizer:
            rows.append(tokenizer_row(self.tokenizer))
        if self.data:
            rows.append(("data", self.data["folder"]))
            rows += [(f"  {s}", render_totals(t)) for s in ("train", "dev") if (t := self.data[s])]
        files = "some are missing or damaged" if self.problems else "all whole"
        rows.append(("files", f"{in_bytes(self.size)}, {files}; to translate elsewhere, all of them"))
        rows += [("problem", problem) for problem in self.problems]
        return "\n".join([f"{self.folder}: an engine", *render_info(rows)])


def engine_info(folder: Path) -> EngineInfo:
    """Read what an engine folder says of itself; damage is listed in `problems`."""
    info = EngineInfo(folder, size=size_of(folder))
    try:
        info.description, checksums = describe_engine(folder)
        info.system = describe_system(info.description.config)
        require_whole(folder, checksums, REMEDY)
    except CotextError as error:
        info.problems.append(str(error))
    try:
        info.tokenizer = describe_tokenizer(folder / "tokenizer")
        info.data = noted_totals(folder)
    except CotextError as error:
        info.problems.append(str(error))
    return info
