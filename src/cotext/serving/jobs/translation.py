"""Translation of the file of one job, resumed from its journal."""

import re
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from cotext.data.formats.streams import COMPRESSIONS, GZ_BEGINNING, XZ_BEGINNING
from cotext.data.splitting import Splitting
from cotext.files.table import GENERIC, file_formats, format_of
from cotext.files.translate_files import open_job
from cotext.runtime import CotextError
from cotext.runtime.jobs.engine import run
from cotext.serving.errors import without_paths
from cotext.serving.jobs.table import JobStatus, JobTable, Row
from cotext.serving.sharing.shared_system import SharedSystem
from cotext.serving.sharing.turns import Work
from cotext.serving.systems import System
from cotext.translation.corpus_files import FileReport
from cotext.translation.faults import faults_in_words, shown_places
from cotext.translation.translate_file import FileOptions

MAX_MESSAGES: Final = 100
AT_ONCE_SECONDS: Final = 0.1  # sentences reported this soon after the first come from the journal
_OPTION: Final = re.compile(r" \(--[^()]*\)$")  # advice that only applies to the command line


@dataclass(slots=True)
class Running:
    """A running job; `done` counts its translated sentences."""

    work: Work
    done: int = 0
    _begun: float = 0.0
    _done_before: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def advance(self, count: int) -> None:
        now = time.monotonic()
        with self._lock:
            self._begun = self._begun or now
            self.done += count
            if now - self._begun < AT_ONCE_SECONDS:
                self._done_before = self.done

    def updated(self, status: JobStatus) -> JobStatus:
        """Return a status with the sentences done, and the remaining time estimated from the speed."""
        with self._lock:
            seconds, count = time.monotonic() - self._begun, self.done - self._done_before
            done = min(self.done, status.sentences)
            speed = count / seconds if self._begun and seconds else 0.0
        remaining = round((status.sentences - done) / speed, 1) if speed else None
        return replace(status, sentences_done=done, seconds_remaining=remaining)


def translate_job(
    row: Row,
    table: JobTable,
    system: System,
    shared: SharedSystem,
    running: Running,
    on_read: Callable[[int, int], None],
) -> list[str]:
    """Translate the file of a job; return messages about the translation.

    The journal is kept, in case the final state of the job cannot be saved. `on_read` is called with the
    numbers of sentences and characters.

    Raises:
        CotextError: the file cannot be translated; the message is for the client, without paths.
        CancelledError: the job was cancelled.
    """
    source, out = table.source(row), table.result(row)
    before: list[str] = []
    names = {
        source: row.source_name,
        out.with_name(f"{out.name}.partial"): row.status.file_name,
        out: row.status.file_name,
        out.parent: row.source_name,
        table.root: "the server",
        system.opened.folder: system.name,
    }
    try:
        format = format_of(source)
        # Clients send notes, lists and poems without full stops. There, an empty line does not end a
        # document. Plain text is prose, even if it looks like a corpus.
        if format == "text":
            format = file_formats()[GENERIC]
        job = open_job(
            shared.opened_for(running.work),
            source,
            out,
            format,
            FileOptions(Splitting(), row.options.wishes, before.append, by_window=True),
            alone=partial(shared.exclusively, running.work),
        )
        on_read(job.sentences, job.characters)
        at_start = list(before)  # later messages are also in the report
        report = run(job, running.advance, overwrite=True, keep=True)
    except CotextError as error:
        raise CotextError(without_paths(str(error), names)) from None
    messages = [*at_start, *report.messages, *_of_sentences(report)]
    shown = [without_paths(_OPTION.sub("", message), names) for message in dict.fromkeys(messages)]
    if len(shown) > MAX_MESSAGES:
        shown[MAX_MESSAGES:] = [f"... and {len(shown) - MAX_MESSAGES:,} more messages"]
    return shown


def check_source(path: Path, name: str) -> None:
    """Raise CotextError if the format of a file is unknown or the file is compressed.

    `name`: the client's name for the file.
    """
    with path.open("rb") as file:
        beginning = file.read(len(XZ_BEGINNING))
    if beginning.startswith((XZ_BEGINNING, GZ_BEGINNING)) or path.suffix in COMPRESSIONS:
        raise CotextError(f"{name}: is compressed; unpack it and send the files in it")
    try:
        format_of(path)
    except CotextError as error:
        raise CotextError(_OPTION.sub("", str(error).replace(str(path), name))) from None


def _of_sentences(report: FileReport) -> Iterable[str]:
    """Yield messages about sentences that should be checked."""
    for where, what in (
        (report.missing, "without a translation"),
        (report.truncated, "cut off at the length limit"),
        (report.long, "longer than all sentences of the training data"),
        (report.shed, "translated with less context than others"),
    ):
        if where:
            sentences = f"{len(where):,} sentence{'s' if len(where) > 1 else ''}"
            yield f"{sentences} {what}; {report.places} {shown_places(where)}"
    if report.faults:
        yield faults_in_words(report.faults)
