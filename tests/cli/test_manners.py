"""Commands on terminals of all kinds and on none, interrupted commands, and commands that fail."""

import fcntl
import io
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from rich.console import Console

from cotext.runtime import progress
from cotext.runtime.progress import Meter
from tests.command_line import World, cotext, must_refuse, process_environment, start, succeed

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"
ENGLISH = "the cat sees a dog\n" * 20 + "\n"


def on_a_terminal(*arguments: str | Path, columns: int = 80, **environment: str) -> tuple[int, str]:
    """The exit code of a command on a terminal of its own, and all that the terminal was sent."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "cotext", *map(str, arguments)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**process_environment(), "TERM": "xterm-256color", **environment},
    )
    os.close(theirs)
    shown = b"".join(_chunks(ours))
    os.close(ours)
    return process.wait(60), shown.decode()


def _chunks(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            yield os.read(terminal, 1 << 16)
        except OSError:  # EIO: the last process has closed the terminal
            return


def test_no_color_prints_no_color(tmp_path: Path) -> None:
    color = re.compile("\x1b\\[[0-9;]*3[0-7]")
    coloured, plain = on_a_terminal("nonsense"), on_a_terminal("nonsense", NO_COLOR="1")
    assert (coloured[0], plain[0]) == (2, 2)
    assert color.search(coloured[1])
    assert not color.search(plain[1])


def test_a_dumb_terminal_gets_lines_and_no_control_sequences(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.en", "b.en")]
    for path in files:
        path.write_text(ENGLISH)
    code, shown = on_a_terminal("mbr", *files, "--out", tmp_path / "out.en", "--verbose", TERM="dumb")
    assert code == 0, shown
    assert "\x1b" not in shown
    assert re.search(r"^\d\d:\d\d:\d\d  choosing 20/20\r?$", shown, re.M)


@pytest.mark.parametrize("columns", [30, 60, 100])
def test_the_count_stays_on_a_narrow_terminal(columns: int) -> None:
    """Notes and names are cut, in one line."""
    with progress.display(Console(file=io.StringIO(), width=columns, force_terminal=True)) as live:
        meter = Meter("focused-concatenation, seed 1", 5000, live)
        meter.start(0)
        meter.advance_to(4000, "loss 3.212  current 3.100  rate 0.0012  12,345 tokens/s")
        screen = Console(file=io.StringIO(), width=columns)
        screen.print(live.get_renderable())
    [line] = screen.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(line) <= columns
    assert " 4000/5000 " in line
    assert ("━" in line) == (columns >= 60)


def test_a_process_without_standard_streams_works(world: World, tmp_path: Path) -> None:
    """As one that a service manager starts: all three are closed."""
    (tmp_path / "in.en").write_text(ENGLISH)
    command = f'exec "$@" --out "{tmp_path}/out.de" <&- >&- 2>&-'
    translate = [sys.executable, "-m", "cotext", "translate", str(world.run), str(tmp_path / "in.en")]
    done = subprocess.run(["sh", "-c", command, "sh", *translate], env=process_environment(), check=False)
    assert done.returncode == 0
    assert len((tmp_path / "out.de").read_text().splitlines()) == 20


def test_pipes_get_utf_8_whatever_the_console_encoding(tmp_path: Path) -> None:
    """As on Windows, where Python writes the code page into pipes."""
    (tmp_path / "in.ru").write_text("Она стара.\n", encoding="utf-8")
    environment = {**process_environment(), "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "cotext", "head", tmp_path / "in.ru"]
    done = subprocess.run(command, capture_output=True, env=environment, check=True)
    assert "Она стара." in done.stdout.decode("utf-8")


def test_quiet_prints_results_alone(world: World, tmp_path: Path) -> None:
    (tmp_path / "in.en").write_text(ENGLISH)
    usual = succeed("translate", world.run, tmp_path / "in.en", "--out", tmp_path / "usual.de")
    assert "translating 20/20" in usual.err
    quiet = succeed("--quiet", "translate", world.run, tmp_path / "in.en", "--out", tmp_path / "quiet.de")
    assert (quiet.err, quiet.out) == ("", usual.out.replace("usual", "quiet"))
    assert not progress.console.quiet
    # It may follow the command. Errors are printed.
    must_refuse("no such run folder", "info", "nothing", "--quiet")


def test_verbose_prints_times(world: World, tmp_path: Path) -> None:
    (tmp_path / "in.en").write_text(ENGLISH)
    shown = succeed("translate", world.run, tmp_path / "in.en", "--out", tmp_path / "a", "--verbose").err
    *notes, last = shown.splitlines()
    assert notes
    assert all(re.match(r"\d\d:\d\d:\d\d  \S", note) for note in notes)
    assert re.fullmatch(r"\d\d:\d\d:\d\d  took \d+:\d\d", last)
    assert "took" in cotext("info", "nothing", "--verbose").err
    assert cotext("--quiet", "--verbose", "systems").code == 2


def documented() -> dict[int, str]:
    """The exit codes of the page with their explanations."""
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.M)
    return {int(code): text for code, text in rows}


def test_every_exit_code_of_the_page_is_met(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in.en").write_text("I paid 35 euros.\n")
    (tmp_path / "out.de").write_text("Ich zahlte 53 Euro.\n")

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    found = {succeed("--version").code, cotext("nonsense").code, cotext("info", tmp_path / "nothing").code}
    audited = ("audit", tmp_path / "out.de", "--source", tmp_path / "in.en", "--fail-on", "all")
    found |= {cotext(*audited).code}
    monkeypatch.setattr("cotext.models.describe.render", interrupted)
    found |= {cotext("systems").code}
    assert found == documented().keys()


def interrupt(process: "subprocess.Popen[str]", ready: Callable[[str], bool], times: int) -> tuple[int, str]:
    """Send Ctrl-C `times` times, the first when a line of standard error is `ready`."""
    lines: list[str] = []
    for line in iter(process.stderr.readline, ""):
        lines.append(line)
        if ready(line):
            break
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        lines.append(process.stderr.readline())
    lines.append(process.stderr.read())
    return process.wait(60), "".join(lines)


@pytest.mark.parametrize(("times", "codes"), [(1, {130}), (2, {130, -signal.SIGINT})])
def test_ctrl_c_once_and_twice(world: World, tmp_path: Path, times: int, codes: set[int]) -> None:
    """Twice: at once, also where the interpreter is about to exit. Shells report 130 for both codes."""
    (tmp_path / "in.en").write_text(ENGLISH * 300)
    process = start("translate", world.run, tmp_path / "in.en", "--out", tmp_path / "out.de")
    code, shown = interrupt(process, lambda line: line.startswith("translating"), times)
    assert code in codes
    assert "Traceback" not in shown
    assert "Exception ignored" not in shown
    assert not (tmp_path / "out.de").exists()
    assert ("cotext: interrupted; " in shown) or times == 2


def test_an_error_names_the_next_command(tmp_path: Path) -> None:
    for words, next_command in (
        (("info", "no-such-run"), "`cotext models`"),
        (("models", "remove", "nobody/nothing"), "`cotext models`"),
        (("train", "no-such-recipe", "--data", tmp_path, "--out", tmp_path / "r"), "`cotext systems`"),
        (("train", "han/source", "--data", tmp_path, "--out", tmp_path / "r"), "`cotext prepare"),
        (("serve", "run", "--host", "0.0.0.0"), "`cotext serve-key add"),
        (("tranlate",), "Did you mean 'translate'"),
    ):
        must_refuse(next_command, *words)


def completed(monkeypatch: pytest.MonkeyPatch, *words: str) -> Sequence[str]:
    """What bash offers for the last of the words."""
    monkeypatch.setenv("_COTEXT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(("cotext", *words)))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    return succeed().out.split()


def test_the_shell_completes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    assert completed(monkeypatch, "tran") == ["translate"]
    assert completed(monkeypatch, "train", "han/") == ["han/joint", "han/source", "han/target"]
    assert completed(monkeypatch, "train", "han/joint", "train.see") == ["train.seed=", "train.seed=1"]
    assert "model.attention.span=" in completed(monkeypatch, "train", "han/joint", "model.")
    assert completed(monkeypatch, "translate", "ru") == ["runs/"]
    settings = completed(monkeypatch, "translate", "runs/", "x", "--set", "be")
    assert settings == ["beam=", "beam_per=", "before="]
    assert completed(monkeypatch, "contrastive", "runs/", "x", "--tie", "") == ["wrong", "first"]
    assert completed(monkeypatch, "--verb") == ["--verbose"]
