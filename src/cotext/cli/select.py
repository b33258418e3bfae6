"""`cotext select`: the sentences of a corpus that need context, for weights, training and people."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cotext.cli.messages import printable
from cotext.cli.options import Checkpoint, Device, Format, Json, Scoring, as_json, output, scoring_settings
from cotext.runtime.errors import CotextError

if TYPE_CHECKING:
    from cotext.analysis.selection import Criterion


def select(
    run: Annotated[Path, typer.Argument(help="Run folder of a system that reads context.")],
    source: Annotated[
        Path,
        typer.Option(
            help="Source documents, a file with both sides, or a folder made by `prepare`, whose training "
            "corpus is used."
        ),
    ],
    target: Annotated[Path | None, typer.Option(help="Their reference translations.")] = None,
    cxmi: Annotated[
        Path | None,
        typer.Option(
            help="Use the figures that `cotext cxmi RUN --out` wrote for these texts, instead of scoring "
            "again."
        ),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            help="Rank by the gain from context of the best word (word), of the sentence in all (sentence), "
            "or per token (token)."
        ),
    ] = "word",
    source_words: Annotated[
        Path | None,
        typer.Option(help="File of words, one per line: rank only sentences whose source has one of them."),
    ] = None,
    target_words: Annotated[
        Path | None,
        typer.Option(
            help="File of words, one per line, such as pronouns: count the gains of these target words only."
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of sentences in the table and on the sheet.")] = 20,
    out: Annotated[
        Path | None, typer.Option(help="Write all ranked sentences to this file (JSON lines).")
    ] = None,
    sheet: Annotated[
        Path | None,
        typer.Option(
            help="Sheet for human evaluation of the top sentences, .html or .csv; a file beside it tells "
            "which system wrote what."
        ),
    ] = None,
    hypothesis: Annotated[
        list[Path] | None,
        typer.Option(
            help="With --sheet: translations of the corpus to be rated; may be repeated. Default: --target."
        ),
    ] = None,
    before: Annotated[
        int, typer.Option(min=0, help="With --sheet: number of preceding sentences shown with each.")
    ] = 3,
    seed: Annotated[
        int, typer.Option(min=0, help="With --sheet: seed for the order of items and systems.")
    ] = 1,
    weights: Annotated[
        Path | None,
        typer.Option(
            help="Write sentence weights for `train.weight_by` to this file; --source must be a folder made "
            "by `prepare`."
        ),
    ] = None,
    share: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help="With --weights: share of the total weight that is distributed by the scores; the rest is "
            "equal for all.",
        ),
    ] = 0.5,
    format: Format = None,
    device: Device = None,
    set: Scoring = None,
    checkpoint: Checkpoint = None,
    json: Json = False,
) -> None:
    """Rank the sentences of a corpus by how much they need context."""
    decode = scoring_settings(set)
    from cotext.analysis.corpus_texts import corpus_texts, has_ids, is_prepared
    from cotext.analysis.selected_corpus import SelectionRequest, select_corpus, weigh
    from cotext.analysis.selection import effective_share
    from cotext.data.documents import Document
    from cotext.data.formats.streams import atomic_sinks
    from cotext.metrics.aligned_files import name_systems, read_systems
    from cotext.reports.evaluation_sheet import (
        SheetSettings,
        check_systems,
        key_of,
        require_new_sheet,
        write_sheet,
    )
    from cotext.runtime.progress import meter

    if weights is not None and not is_prepared(source):
        raise CotextError(
            "--weights: are those of the training corpus of a folder made by `prepare`; give --source such a "
            f"folder, not {source}"
        )
    criterion = _criterion(by, source_words, target_words)
    request = SelectionRequest(run, source, target, format, cxmi, criterion, device, decode, checkpoint)
    inputs = [source, target, cxmi, source_words, target_words]
    key = None if sheet is None else key_of(sheet)
    if sheet is not None:
        require_new_sheet(sheet)
    if hypothesis and sheet is None:
        raise CotextError("--hypothesis is for a sheet: add --sheet, or leave it out")
    systems = {}
    if named := name_systems(hypothesis or []):
        texts = corpus_texts(source, target, format)
        like = [Document(text.id, text.target) for text in texts]
        systems = read_systems(named, format, like, has_ids=has_ids(source, target, format))
        check_systems(systems, texts)
    with _held([out, weights, sheet, key], [*inputs, *(hypothesis or [])]), meter("scoring", 0) as progress:
        found = select_corpus(request, progress.restart, progress.advance)
        lines = [found.render(top)]
        if out is not None:
            with atomic_sinks([out]) as [sink]:
                for row in found.rows():
                    sink.write(f"{dumps(row, ensure_ascii=False)}\n")
        if sheet is not None:
            items = write_sheet(sheet, found, systems, SheetSettings(top, before, seed))
            lines.append(f"{sheet}: {items} items; {key} tells what they are, and is not for raters")
        if weights is not None:
            given = weigh(weights, source, found, share)
            lines.append(
                f"{weights}: weights of {len(given):,} sentences, at most {max(given):.3g} times the mean; "
                f"as unequal as if {effective_share(given):.0%} of them counted alike"
            )
    if json:
        header, *rows = islice(found.rows(), top + 1)
        typer.echo(as_json({**header, "first": rows}))
        return
    for line in lines:
        typer.echo(printable(line))


@contextmanager
def _held(outs: Sequence[Path | None], inputs: Sequence[Path | None]) -> Iterator[None]:
    """Check and hold all files that are to be written."""
    named = [out for out in outs if out is not None]
    if len({out.absolute() for out in named}) < len(named):
        raise CotextError(f"{named[0]}: two options name this file; give each its own")
    with ExitStack() as stack:
        for out in named:
            stack.enter_context(output(out, inputs))
        yield


def _criterion(by: str, source_words: Path | None, target_words: Path | None) -> "Criterion":
    from cotext.analysis.marked_words import read_marked_words
    from cotext.analysis.selection import Criterion

    lists = (None if path is None else read_marked_words(path) for path in (source_words, target_words))
    return Criterion(by, *lists)
