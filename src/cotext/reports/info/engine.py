"""A summary of an engine: the system, what it was written for and how exactly, and whether it is whole."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cotext.models.engine_folder import EngineDescription, read_engine
from cotext.reports.info.run import describe_tokenizer, render_info, size_of, system_in_words
from cotext.runtime.errors import CotextError
from cotext.runtime.tables import in_bytes


@dataclass(slots=True)
class EngineInfo:
    """The content of an engine folder; None or empty: not known. `problems`: what is missing or damaged."""

    folder: Path
    description: EngineDescription | None = None
    tokenizer: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        of = self.description
        return {
            "format": "cotext-engine",
            "version": 1,
            "engine": str(self.folder),
            "signature": None if of is None else of.signature,
            "system": None if of is None else system_in_words(of.config),
            "program": None if of is None else {"name": of.engine, "version": of.version},
            "quantization": None if of is None else of.quantization,
            "positions": None if of is None else of.positions,
            "updates": None if of is None else of.updates,
            "tokenizer": self.tokenizer or None,
            "bytes": size_of(self.folder),
            "problems": self.problems,
        }

    def render(self) -> str:
        """One line for each thing that is known."""
        rows: list[tuple[str, str]] = []
        if (of := self.description) is not None:
            system = system_in_words(of.config)
            rows += [
                ("engine", f"{of.engine} {of.version}, {of.quantization}"),
                ("recipe", system["recipe"] or "a system of its own"),
                ("languages", system["languages"] or "not known"),
                ("view", system["view"]),
                ("decoding", system["decoding"]),
                ("longest row", f"{of.positions:,} tokens"),
                ("signature", of.signature),
            ]
        if found := self.tokenizer:
            rows.append(
                ("tokenizer", f"{found['kind']}, {found['pieces']:,} pieces, {found['fingerprint'][:16]}")
            )
        rows.append(("on disk", in_bytes(size_of(self.folder))))
        rows += [("problem", problem) for problem in self.problems]
        return "\n".join([f"{self.folder}: an engine", *render_info(rows)])


def engine_info(folder: Path) -> EngineInfo:
    """Read what an engine folder says of itself; damage is listed in `problems`."""
    info = EngineInfo(folder)
    try:
        info.description = read_engine(folder)
        info.tokenizer = describe_tokenizer(folder / "tokenizer")
    except CotextError as error:
        info.problems.append(str(error))
    return info
