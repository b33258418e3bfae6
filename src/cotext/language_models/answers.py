"""Answers of APIs, kept: a file for each, under the SHA-256 of all that determines it.

    FOLDER/3f/3f9c...e1.json   the request (address, path, payload, which repeat), the answer and its day

Whoever asks the same again gets the answer that is there, so that an interrupted job goes on with what it has
paid for, and the same command gives the same output. Several processes may share a folder.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from cotext.runtime.addresses import require_here
from cotext.runtime.errors import CotextError
from cotext.runtime.files import replacing
from cotext.runtime.integrity import sealed, unsealed
from cotext.runtime.reading import read_bytes

FOLDER_ENDING: Final = ".answers"
MAX_ANSWER_BYTES: Final = 64 << 20  # log-probabilities of a long prompt are that large
_TIMES_LARGER: Final = 4  # kept, with its request: what two bytes were is six, as an escape


@dataclass(frozen=True, slots=True)
class Request:
    """All that determines an answer; `repeat` counts requests that are equal but for it."""

    address: str
    path: str
    payload: Mapping[str, Any]
    repeat: int = 0

    @property
    def digest(self) -> str:
        """SHA-256, which does not depend on the order of keys."""
        content = [self.address, self.path, self.payload, self.repeat]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Answer:
    """What an API answered, and on which day, as in 2026-11-23."""

    content: dict[str, Any]
    day: str


class Answers:
    """A folder of answers, made with the first."""

    def __init__(self, folder: Path) -> None:
        require_here(folder)
        self.folder = folder

    @classmethod
    def beside(cls, endpoint: Path) -> "Answers":
        """The answers to what a file describes: `gpt.yaml` has them in `gpt.answers`."""
        return cls(endpoint.with_name(f"{endpoint.stem}{FOLDER_ENDING}"))

    def find(self, request: Request) -> Answer | None:
        """The answer to a request; None where there is none that is whole.

        Raises:
            CotextError: it cannot be read.
        """
        path = self._path(request)
        if not path.exists():
            return None
        try:
            entry = unsealed(read_bytes(path, _TIMES_LARGER * MAX_ANSWER_BYTES).decode(errors="replace"))
            content, day = entry["answer"], entry["day"]
        except (ValueError, KeyError):
            return None  # damaged: it is asked for again, and replaced
        return Answer(content, day) if isinstance(content, dict) and isinstance(day, str) else None

    def keep(self, request: Request, content: dict[str, Any]) -> Answer:
        """Write an answer, which came today, to the disk; another process may have been first, with its own.

        Raises:
            CotextError: storage refuses.
        """
        if (first := self.find(request)) is not None:
            return first
        path = self._path(request)
        answer = Answer(content, datetime.now(UTC).date().isoformat())
        entry = {
            "address": request.address,
            "path": request.path,
            "payload": request.payload,
            "repeat": request.repeat,
            "day": answer.day,
            "answer": content,
        }
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CotextError(
                f"{self.folder}: answers cannot be kept there: {error.strerror or error}; move the file of "
                "the endpoint to a folder that can be written"
            ) from None
        with replacing(path) as temporary:
            temporary.write_text(sealed(entry), encoding="utf-8")
        return answer

    def _path(self, request: Request) -> Path:
        digest = request.digest
        return self.folder / digest[:2] / f"{digest}.json"
