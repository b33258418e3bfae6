"""The results of the demonstration on the terminal: a table, what was expected, and a document."""

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cotext.analysis.demonstration import Demonstration, Sample, bracketed


def show(comparison: Demonstration) -> None:
    """The table, what was expected, and the sample document, on the terminal."""
    screen = Console(highlight=False)
    screen.print(_table(comparison))
    typer.echo(
        "distance: sentences back to the clue; ahead: the clue is in the next sentence.\n"
        "(in brackets): the clue is outside the context window, so chance is expected.\n"
        f"BLEU: {comparison.systems[0].scores[0].documents} test documents.\n"
    )
    for expectation in comparison.expectations:
        state = Text("as expected", "green") if expectation.met else Text("NOT AS EXPECTED", "bold red")
        words = Text.assemble(state, f": {expectation.text} ({expectation.found})")
        screen.print(words, soft_wrap=True)
    typer.echo()
    _show_sample(screen, comparison.sample)


def _table(comparison: Demonstration) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=0,
        title="Contrastive accuracy, per cent",
        title_justify="left",
    )
    table.add_column("", no_wrap=True)
    for title in ("distance", "chance", *(system.title for system in comparison.systems)):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    last = ""
    for row in comparison.rows:
        if last and row.phenomenon != last:
            table.add_section()
        cells = [
            Text(f"{cell.percent:.1f} ") if cell.in_window else Text(f"({cell.percent:.1f})", "dim")
            for cell in row.cells
        ]
        name = row.phenomenon if row.phenomenon != last else ""
        table.add_row(name, row.distance, f"{row.chance:.1f}", *cells, row.verdict)
        last = row.phenomenon
    table.add_section()
    for number, score in enumerate(comparison.systems[0].scores):
        values = [f"{system.scores[number].value:.1f} " for system in comparison.systems]
        table.add_row(score.title, "", "", *values, "")
    return table


def _show_sample(screen: Console, sample: Sample) -> None:
    width = max(len(title) for title in (sample.first_title, sample.second_title, "reference"))
    typer.echo(f"Test document {sample.number}; words in [brackets] differ between the two systems:\n")

    def show(who: str, text: Text) -> None:
        screen.print(Text.assemble((f"{who:>{width}}  ", "dim"), text), soft_wrap=True)

    for sentence in sample.sentences:
        show("source", Text(sentence.source, "italic"))
        for title, line in ((sample.first_title, sentence.first), (sample.second_title, sentence.second)):
            words = [Text(bracketed((word,)), "bold reverse" if word.marked else "") for word in line]
            show(title, Text(" ").join(words))
        if " ".join(word.text for word in sentence.second) != sentence.reference:
            show("reference", Text(sentence.reference))
        typer.echo()
