"""`translate RUN -`: standard input to standard output."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cotext.cli.options import CUT_OFF, LONG, counted

if TYPE_CHECKING:
    from cotext.data.splitting import Splitting

STANDARD_INPUT = Path("/dev/stdin")


def translate_standard_input(
    opening: tuple[Path, str | None, dict[str, Any], int | None],
    format: str | None,
    splitting: "Splitting | None",
    wishes: dict[str, Any],
) -> None:
    """Translate what comes in line for line; what there is to say of it goes to standard error.

    `opening`: the arguments of `open_run`. `format`: text (documents ended by empty lines), prose (running
    text), or None, as the content is. `wishes`: the arguments of `read_wishes`.
    """
    from cotext.data.formats.streams import numbered_lines
    from cotext.decoding.open import open_run
    from cotext.decoding.translate_stream import StreamTranslation
    from cotext.decoding.wishes import read_wishes
    from cotext.decoding.written_beside import require_no_lists

    def say(text: str) -> None:
        typer.echo(text, err=True)

    def write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    opened = open_run(*opening)
    require_no_lists(opened, "standard input")
    splitter = splitting.splitter(opened.languages.source) if splitting else None
    running_text = None if format is None else format == "prose"
    asked = read_wishes(opened.languages, **wishes)
    stream = StreamTranslation(opened, splitter, running_text, say, asked)
    stream.run(numbered_lines(STANDARD_INPUT, whole=True), write)
    report = stream.report
    if report.split_lines:
        say(
            f"{counted(report.split_lines, 'line')} split into {report.split_sentences:,} sentences, "
            "translated in context and joined again (--no-split: each line as one)"
        )
    say(f"{counted(report.sentences, 'sentence')} in {counted(report.documents, 'document')}")
    for count, what in ((report.truncated, CUT_OFF), (report.long, LONG)):
        if count:
            say(f"  {counted(count, 'sentence')} {what}")
    say(opened.signature)
