"""Files as jobs: their states, their limits, and what a server does with a folder that it finds."""

import errno
import json
import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cotext.files.table import format_of
from cotext.files.translate_files import BlockOptions, open_job
from cotext.runtime.jobs.engine import run
from cotext.serving.jobs import Jobs, Running
from cotext.serving.service import Service
from cotext.serving.settings import ServerSettings
from cotext.serving.sharing import Work
from cotext.serving.state import JobStatus, JobTable, JobTicket
from cotext.serving.systems import System, Systems
from cotext.translation.translate_file import NotedWindows
from tests.noting import calls_of
from tests.refusals import must_raise
from tests.serving.tiny_server import tiny_systems
from tests.serving.waiting import TEXT, Sender, long_text, refused, until

Opened = Callable[..., Sender]


@pytest.fixture
def opened(systems: Systems, tmp_path: Path) -> Iterator[Opened]:
    """Servers on one state folder, one after the other; closed in the end."""
    made: list[Jobs] = []

    def open_one(of: Systems = systems, **settings: Any) -> Sender:
        service = Service(of, ServerSettings(state=tmp_path / "state", **settings))
        made.append(service.jobs)
        service.jobs.start()
        return Sender(service)

    yield open_one
    for jobs in made:
        jobs.close()


@pytest.fixture
def held(systems: Systems) -> Iterator[Callable[[Sender], Callable[[], None]]]:
    """Keeps the model of a server from translating until the function that it returns is called."""
    releases: list[Callable[[], None]] = []

    def hold(sender: Sender) -> Callable[[], None]:
        taken, leave = threading.Event(), threading.Event()

        def keep() -> None:
            with sender.service.shared(systems.named(sender.system)).exclusively(Work()):
                taken.set()
                leave.wait(60)

        thread = threading.Thread(target=keep, daemon=True)
        thread.start()
        taken.wait(60)

        def release() -> None:
            leave.set()
            thread.join(60)

        releases.append(release)
        return release

    yield hold
    for release in releases:
        release()


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def folders(tmp_path: Path) -> set[str]:
    """The folders of jobs that hold more than the record of one."""
    jobs = (p for p in (tmp_path / "state" / "jobs").iterdir())
    return {p.name for p in jobs if names(p) != ["job.json"]}


def changed(tmp_path: Path, ticket: JobTicket, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the record of a job."""
    path = tmp_path / "state" / "jobs" / ticket.id / "job.json"
    record = json.loads(path.read_bytes())
    change(record)
    path.write_text(json.dumps(record))


def by_command(system: System, folder: Path, content: bytes, name: str = "a.txt") -> bytes:
    """The file as the job of a command writes it."""
    folder.mkdir()
    source, out = folder / name, folder / f"out-{name}"
    source.write_bytes(content)
    job = open_job(system.opened, source, out, format_of(source), BlockOptions(frozenset()))
    run(job)
    return out.read_bytes()


def test_a_file_is_translated_as_by_the_command(opened: Opened, systems: Systems, tmp_path: Path) -> None:
    sender = opened()
    ticket = sender.send(TEXT, "../My text.en.txt")
    assert sender.translated(ticket) == by_command(systems.named("window"), tmp_path / "plain", TEXT)
    status = sender.status(ticket)
    assert (status.sentences, status.sentences_done, status.file_name) == (3, 3, "My text.de.txt")
    assert status.billed_characters == len("The cat sees a dog.It runs.It sings!")
    assert any("paragraph is split" in message for message in status.messages)
    assert not any(str(tmp_path) in message or "--" in message for message in status.messages)
    assert not sender.service.jobs.table.finish(ticket.id, "error")  # it has ended
    # What is not needed any more is deleted: the upload and the journal.
    state = tmp_path / "state"
    assert sorted(names(state / "jobs" / ticket.id)) == ["job.json", "result.txt"]
    for folder in (state, state / "jobs", state / "jobs" / ticket.id):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    # A key that is on the disk would be one for whoever reads a backup.
    everything = b"".join(p.read_bytes() for p in state.rglob("*") if p.is_file())
    assert ticket.key.encode() not in everything
    assert ticket.id.encode() in everything


def test_a_job_is_its_clients(opened: Opened) -> None:
    sender = opened()
    ticket = sender.send()
    jobs, other = sender.service.jobs, "another"
    for call in (jobs.status, jobs.result, jobs.delete):
        assert refused(call, ticket.id, other).status == 404
        assert refused(call, ticket.id, sender.client, "0" * 64).status == 404
        assert refused(call, "0" * 32, sender.client).status == 404
    assert jobs.of_client(other) == []
    assert [status.id for status in jobs.of_client(sender.client)] == [ticket.id]
    assert sender.finished(ticket).state == "done"


def test_deleted_at_once_whatever_its_state(
    opened: Opened, held: Callable[[Sender], Callable[[], None]], tmp_path: Path
) -> None:
    sender = opened(files_at_once=1)
    jobs, client = sender.service.jobs, sender.client
    done = sender.send()
    sender.translated(done)
    release = held(sender)
    begun, waiting = sender.send(long_text(12)), sender.send()
    until(lambda: sender.status(begun).sentences == 12)
    assert (sender.status(begun).state, sender.status(waiting).state) == ("translating", "queued")
    assert "not translated yet" in refused(lambda: jobs.result(waiting.id, client)).message
    for ticket in (done, begun, waiting):
        jobs.delete(ticket.id, client)
        assert refused(sender.status, ticket).status == 404
    until(lambda: folders(tmp_path) == set())  # the thread of one may be opening its journal
    release()
    assert sender.finished(sender.send()).state == "done"
    assert len(folders(tmp_path)) == 1


def test_what_is_wrong_with_a_file_is_told_without_paths(opened: Opened, tmp_path: Path) -> None:
    sender = opened()
    broken = sender.send(b'<xliff version="1.2"><file>', "Fehler.xlf")
    status = sender.finished(broken)
    assert status.state == "error"
    assert status.message.startswith("Fehler.xlf")
    assert str(tmp_path) not in status.message
    assert "source" not in status.message
    assert folders(tmp_path) == set()
    for content, name, word in (
        (b"", "a.txt", "a.txt: is empty"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "a.png", "a.png"),
        (b"%PDF-1.7\n", "a.pdf", "a.pdf: not a supported format: it looks like a PDF document; save it in"),
        (b"\x1f\x8b\x08\0", "a.txt", "unpack"),
        (TEXT, "a.txt.gz", "unpack"),
        (b"The cat", "a.docx", "a.docx: ends in .docx, but it contains only text; save it"),
    ):
        error = refused(lambda: sender.send(content, name))  # noqa: B023
        assert (error.status, word in error.message) == (400, True), error.message
        assert str(tmp_path) not in error.message
        assert "--" not in error.message
    assert folders(tmp_path) == set()


def test_a_fault_of_the_server_is_the_jobs_error(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise ZeroDivisionError("secret text")

    monkeypatch.setattr("cotext.serving.jobs._of_sentences", fail)
    sender = opened()
    status = sender.finished(sender.send())
    assert status.state == "error"
    assert "an internal server error" in status.message
    assert "secret" not in status.message
    monkeypatch.undo()
    assert sender.finished(sender.send()).state == "done"


def test_a_full_disk_is_the_jobs_error(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    sender = opened()
    with monkeypatch.context() as patched:
        patched.setattr("cotext.runtime.jobs.journal.sealed", full)
        status = sender.finished(sender.send())
    assert (status.state, str(tmp_path) in status.message) == ("error", False)
    with monkeypatch.context() as patched:
        patched.setattr("cotext.serving.state.JobTable.store", full)
        assert refused(sender.send).status == 503
    with monkeypatch.context() as patched:
        usage = shutil.disk_usage(tmp_path)._replace(free=1 << 20)
        patched.setattr(shutil, "disk_usage", lambda path: usage)
        assert "too little disk space" in refused(sender.send).message
    assert folders(tmp_path) == set()
    assert sender.finished(sender.send()).state == "done"


def test_the_end_of_a_job_that_the_disk_refuses_is_noted_when_there_is_room(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cotext.serving.jobs.REFUSED_SECONDS", 0.05)
    sender = opened()
    plain, refusals = JobTable.finish, []

    def finish(self: Any, *args: Any, **kwargs: Any) -> bool:
        if len(refusals) < 2:
            refusals.append(args)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return plain(self, *args, **kwargs)

    monkeypatch.setattr(JobTable, "finish", finish)
    assert sender.finished(sender.send()).state == "done"
    assert len(refusals) == 2


def test_clients_take_turns(opened: Opened, held: Callable[[Sender], Callable[[], None]]) -> None:
    first = opened(files_at_once=1)
    second, third = replace(first, client="second"), replace(first, client="third")
    release = held(first)
    tickets = [(first, first.send()) for _ in range(3)]
    until(lambda: first.status(tickets[0][1]).sentences > 0)
    tickets += [(second, second.send()) for _ in range(2)] + [(third, third.send())]
    release()
    for sender, ticket in tickets:
        sender.translated(ticket)
    rows = first.service.jobs.table.everything()
    order = [row.client for row in sorted(rows, key=lambda row: row.finished or 0.0)]
    assert order == ["anybody", "second", "third", "anybody", "second", "anybody"]


def test_how_many_may_wait(opened: Opened, held: Callable[[Sender], Callable[[], None]]) -> None:
    sender = opened(files_at_once=1, max_waiting=3, max_waiting_of_client=2)
    held(sender)
    for _ in range(2):
        sender.send()
    assert refused(sender.send).status == 429
    other = replace(sender, client="other")
    other.send()
    error = refused(replace(sender, client="third").send)
    assert (error.status, error.retry_after is not None) == (503, True)


def test_finished_files_are_kept_for_a_time(opened: Opened, tmp_path: Path) -> None:
    sender = opened()
    ticket = sender.send()
    sender.translated(ticket)
    sender.service.jobs.close()
    again = opened()
    assert again.status(ticket).state == "done"
    again.service.jobs.close()
    changed(tmp_path, ticket, lambda record: record.update(finished=record["finished"] - 24 * 3600))
    last = opened()
    assert refused(lambda: last.status(ticket)).status == 404
    assert folders(tmp_path) == set()


def test_uploads_and_files_use_the_space_of_their_client(opened: Opened) -> None:
    """Of 800,000 bytes, eight clients have an eighth each, and a ninth has what they leave."""
    sender = opened(max_jobs_bytes=800_000, max_file_bytes=50_000)
    jobs, long = sender.service.jobs, b"It runs.\n\n" * 5000
    reservations = [jobs.reserve(str(number), 100_000) for number in range(8)]
    error = refused(lambda: jobs.reserve("0", 1))
    assert (error.status, "100,000 bytes" in error.message) == (429, True)
    assert refused(lambda: jobs.reserve("8", 1)).status == 503
    for reservation in reservations:
        jobs.release(reservation)
    jobs.release(jobs.reserve("8", 100_000))
    ticket = sender.send()
    sender.translated(ticket)
    until(lambda: not jobs._running)
    jobs.result(ticket.id, sender.client)[0].write_bytes(2 * long)
    jobs._measure(ticket.id)
    assert refused(lambda: sender.send(long)).status == 429
    assert sender.status(ticket).state == "done"
    assert replace(sender, client="other").send(long)
    assert refused(lambda: sender.send(b"x" * 50_001)).status == 413
    jobs.delete(ticket.id, sender.client)
    assert sender.send(long)


def test_a_folder_that_cannot_be_used(opened: Opened, tmp_path: Path) -> None:
    """Another server uses it, or a record is of another version or damaged."""
    sender = opened()
    must_raise("another process is working on it", opened)
    ticket = sender.send()
    sender.service.jobs.close()
    changed(tmp_path, ticket, lambda record: record.update(version=2))
    must_raise(r"has version 2.*--state", opened)
    (tmp_path / "state" / "jobs" / ticket.id / "job.json").write_text('{"number": "x"}')
    must_raise("not a valid record of a job", opened)
    shutil.rmtree(tmp_path / "state" / "jobs" / ticket.id)
    opened()  # the lock is given back


def test_what_a_killed_server_leaves_is_put_in_order(
    opened: Opened, held: Callable[[Sender], Callable[[], None]], tmp_path: Path
) -> None:
    sender = opened(files_at_once=1)
    done, empty = sender.send(), sender.send()
    for ticket in (done, empty):
        sender.translated(ticket)
    release = held(sender)
    lost, waiting = sender.send(), sender.send()
    until(lambda: sender.status(lost).sentences > 0)
    stopping = threading.Thread(target=sender.service.jobs.close)
    stopping.start()
    until(lambda: sender.service.jobs._stopping.is_set())
    release()
    stopping.join()
    jobs = tmp_path / "state" / "jobs"
    (jobs / lost.id[::-1]).mkdir()  # killed before the row was written
    (jobs / "letters").mkdir()  # of the user
    (jobs / lost.id[::-1] / "source.txt").write_bytes(TEXT)
    (jobs / done.id / "source.txt").write_bytes(TEXT)  # killed before it was deleted
    (jobs / empty.id / "result.txt").unlink()
    (jobs / lost.id / "source.txt").unlink()
    again = opened()
    assert again.finished(lost).message == "the uploaded file was lost; send it again"
    assert again.translated(waiting) == again.translated(done)
    assert refused(lambda: again.status(empty)).status == 404
    assert folders(tmp_path) == {done.id, waiting.id, "letters"}
    assert sorted(names(jobs / done.id)) == ["job.json", "result.txt"]


def stopped_after(
    sender: Sender, ticket_of: Callable[[], Any], windows: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, list[int]]:
    """Send a file to a server that stops when so many of its windows are translated; their numbers."""
    noted: list[int] = []
    plain = NotedWindows.note

    def note(self: NotedWindows, document: int, window: Any) -> None:
        plain(self, document, window)
        if len(noted) + 1 == windows:
            stopping.start()
            until(lambda: sender.service.jobs._stopping.is_set())
        noted.append(window.number)

    stopping = threading.Thread(target=sender.service.jobs.close)
    with monkeypatch.context() as patched:
        patched.setattr(NotedWindows, "note", note)
        ticket = ticket_of()
        until(lambda: len(noted) >= windows)
        stopping.join()
    return ticket, noted


def test_a_server_that_is_stopped_goes_on_in_mid_document(
    opened: Opened, systems: Systems, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, sender = long_text(16), opened()
    ticket, noted = stopped_after(sender, lambda: sender.send(text), 5, monkeypatch)
    assert 5 <= len(noted) < 16
    again = calls_of(monkeypatch, NotedWindows, "note", lambda _, document, window: window.number)
    second = opened()
    assert second.translated(ticket) == by_command(systems.named("window"), tmp_path / "plain", text)
    by_server = again[: 16 - len(noted)]
    assert sorted(noted + by_server) == list(range(16))


def test_a_system_of_the_same_name_and_another_model_begins_anew(
    opened: Opened, systems: Systems, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, sender = long_text(8), opened()
    ticket, _ = stopped_after(sender, lambda: sender.send(text), 3, monkeypatch)
    other = tiny_systems(tmp_path / "others", seed=7).named("window")
    expected = by_command(other, tmp_path / "plain", text)
    assert expected != by_command(systems.named("window"), tmp_path / "old", text)
    second = opened(Systems([other]))
    assert second.translated(ticket) == expected


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"attempts": 10}, "not finish this file in 10 attempts"),
        ({"status": {"system": "gone"}}, "the system 'gone' is no longer served"),
    ],
)
def test_a_job_that_cannot_be_gone_on_with_is_given_up(
    opened: Opened, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    sender = opened()
    ticket = sender.send()
    sender.translated(ticket)
    sender.service.jobs.close()
    jobs = tmp_path / "state" / "jobs"
    shutil.copy(jobs / ticket.id / "result.txt", jobs / ticket.id / "source.txt")

    def begun(record: dict[str, Any]) -> None:
        status = {**record["status"], "state": "translating", **change.get("status", {})}
        record.update({**change, "status": status})

    changed(tmp_path, ticket, begun)
    assert words in opened().finished(ticket).message


def test_remaining_time_is_by_the_speed_since_the_server_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("cotext.serving.jobs.time.monotonic", lambda: clock[0])
    running, status = Running(Work()), JobStatus("1", "translating", "a", "a.txt", sentences=100)
    assert running.updated(status).seconds_remaining is None
    for seconds, count in ((0.0, 0), (0.01, 40), (2.0, 10), (2.0, 10)):
        clock[0] += seconds
        running.advance(count)
    assert running.updated(status).seconds_remaining == pytest.approx(8.0, abs=0.1)
