"""Commands about the use of context: `context`, `cxmi` and `profile`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from cotext.cli.options import (
    Checkpoint,
    Decode,
    Device,
    DocumentId,
    Format,
    Json,
    OneDocument,
    Translated,
    as_json,
    decode_settings,
    output,
    write_figures,
)
from cotext.runtime.errors import CotextError


def context(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    document: OneDocument,
    out: Annotated[Path, typer.Option(help="Page to write; its figures stand beside it, in .json.")],
    target: Translated = None,
    id: DocumentId = None,
    format: Format = None,
    device: Device = None,
    set: Decode = None,
    checkpoint: Checkpoint = None,
    json: Json = False,
) -> None:
    """Which context sentence of a document, when taken away, changes which word of its translation."""
    decode = decode_settings(set)
    from cotext.reports.context import report_context
    from cotext.runtime.progress import meter

    with meter("translating without context", 0) as progress:
        report = report_context(
            run,
            document,
            out,
            target=target,
            document=id,
            format=format,
            device=device,
            decode=decode,
            update=checkpoint,
            on_start=progress.restart,
            on_sentences=progress.advance,
        )
    if json:
        typer.echo(as_json(report.as_dict()))
    else:
        typer.echo(f"{report.signature}\n{report.render()}\n{out}, {out.with_suffix('.json').name}")


def cxmi(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    source: Annotated[Path, typer.Option(help="Source documents (or both sides).")],
    target: Annotated[Path | None, typer.Option(help="Their translations, which are scored.")] = None,
    context: Annotated[
        list[str] | None,
        typer.Option(help="true, shuffled or random, beside none; may be repeated. All if not given."),
    ] = None,
    translate: Annotated[
        bool, typer.Option("--translate", help="Translate in each kind of context, and evaluate.")
    ] = False,
    protocol: Annotated[list[str] | None, typer.Option(help="Named protocol; may be repeated.")] = None,
    seed: Annotated[int, typer.Option(help="Of what is shuffled and drawn.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Write all figures here as JSON.")] = None,
    format: Format = None,
    device: Device = None,
    set: Decode = None,
    checkpoint: Checkpoint = None,
    json: Json = False,
) -> None:
    """What context adds to the probability of a translation: the true one, shuffled, of other documents."""
    decode = decode_settings(set)
    if protocol and not translate:
        raise CotextError("--protocol is for translations: add --translate, or leave it out")
    from cotext.analysis.context_corpus import measure_corpus
    from cotext.analysis.context_use import CONDITIONS
    from cotext.decoding.open import open_run, open_scorer
    from cotext.runtime.progress import meter

    with output(out, [source, target]), meter("scoring", 0) as progress:
        opened = (open_run if translate else open_scorer)(run, device, decode, checkpoint)
        found = measure_corpus(
            opened,
            source,
            target,
            conditions=context or CONDITIONS,
            translate=translate,
            protocols=protocol,
            seed=seed,
            format=format,
            on_start=progress.restart,
            on_sentences=progress.advance,
        )
        write_figures(out, found.as_dict())
    typer.echo(as_json(found.as_dict()) if json else found.render())


def profile(
    hypothesis: Annotated[
        list[Path], typer.Option(help="Translated documents; may be repeated for several systems.")
    ],
    reference: Annotated[Path, typer.Option(help="Reference.")],
    protocol: Annotated[
        list[str] | None, typer.Option(help="Named protocol; may be repeated. s-bleu, d-bleu and chrf.")
    ] = None,
    target_language: Annotated[str | None, typer.Option(help="Code such as zh, for the tokenizer.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write all figures here as JSON.")] = None,
    format: Format = None,
    json: Json = False,
) -> None:
    """Quality against position in the document, and against the length of documents; from plain files."""
    from cotext.metrics.bleu import DEFAULT_PROTOCOLS
    from cotext.metrics.evaluate_files import name_systems, read_aligned
    from cotext.metrics.profile import TITLES, by_length, by_position, render_profile

    with output(out, [*hypothesis, reference]):
        protocols = tuple(protocol or DEFAULT_PROTOCOLS)
        systems, [references], _ = read_aligned(name_systems(hypothesis), [reference], None, format)
        names = list(systems)
        figures: dict[str, Any] = {"format": "cotext-profile", "version": 1, "systems": names}
        for kind, ways in (("position", by_position), ("length", by_length)):
            buckets = ways(list(systems.values()), references, protocols, target_language=target_language)
            if not json:
                typer.echo(f"{render_profile(TITLES[kind], buckets, names)}\n")
            figures[f"by_{kind}"] = [bucket.as_dict() for bucket in buckets]
        if json:
            typer.echo(as_json(figures))
        write_figures(out, figures)
