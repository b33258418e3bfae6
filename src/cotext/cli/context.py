"""Commands about the use of context: `context`, `cxmi` and `profile`."""

from functools import partial
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
    Protocols,
    ShardOption,
    TranslationFile,
    as_json,
    check_shard_output,
    decode_settings,
    output,
    require_translations,
    shard_of,
    tell_shard,
    write_figures,
)


def context(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    document: OneDocument,
    out: Annotated[
        Path, typer.Option(help="HTML page to write; the figures go into a .json file of the same name.")
    ],
    target: TranslationFile = None,
    id: DocumentId = None,
    format: Format = None,
    device: Device = None,
    set: Decode = None,
    checkpoint: Checkpoint = None,
    json: Json = False,
) -> None:
    """Remove each context sentence of a document in turn and show which target words change probability."""
    decode = decode_settings(set)
    from cotext.evaluation.studies.context.page import report_context
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
    run: Annotated[
        Path, typer.Argument(help="Run folder, or endpoint.yaml of a language model behind an API.")
    ],
    source: Annotated[
        Path,
        typer.Option(
            help="Source documents, a file with both sides, or a folder made by `prepare`, whose training "
            "corpus is used."
        ),
    ],
    target: Annotated[
        Path | None, typer.Option(help="Their reference translations, which are scored.")
    ] = None,
    context: Annotated[
        list[str] | None,
        typer.Option(
            help="Kind of context to compare with no context: true, shuffled or random; may be repeated. "
            "Default: all three."
        ),
    ] = None,
    translate: Annotated[
        bool, typer.Option("--translate", help="Also translate with each kind of context, and evaluate.")
    ] = False,
    protocol: Protocols = None,
    seed: Annotated[int, typer.Option(help="Seed of shuffled and random context.")] = 1,
    out: Annotated[Path | None, typer.Option(help="JSON file for all figures.")] = None,
    format: Format = None,
    device: Device = None,
    set: Decode = None,
    checkpoint: Checkpoint = None,
    shard: ShardOption = None,
    json: Json = False,
) -> None:
    """Measure how much context adds to the log-probability of references (CXMI)."""
    decode = decode_settings(set)
    require_translations(protocol, translate)
    part = shard_of(shard, out)
    from cotext.evaluation.metrics.interface import DEFAULT_PROTOCOLS
    from cotext.evaluation.studies.context.context_corpus import CorpusQuestion, measure_corpus
    from cotext.evaluation.studies.context.context_shards import COMMAND, cxmi_shard
    from cotext.evaluation.studies.context.context_use import CONDITIONS
    from cotext.language_models.config import is_endpoint
    from cotext.runtime.progress import meter
    from cotext.translation.open import open_run, open_scorer

    asked = CorpusQuestion(context or CONDITIONS, translate, protocol or DEFAULT_PROTOCOLS, seed)
    if is_endpoint(run):
        from cotext.cli.endpoint_scores import cxmi_by_endpoint

        others = {"--device": device, "--checkpoint": checkpoint is not None, "--shard": shard}
        files: Any = {"format": format, "out": out, "json": json, "others": others}
        cxmi_by_endpoint(run, source, target, decode, asked, **files)
        return
    open_one = partial(open_run if translate else open_scorer, run, device, decode, checkpoint)
    if part is not None and out is not None:
        check_shard_output(out, [source, target])
        opened = open_one()
        with meter("scoring", 0) as progress:
            watched: Any = {"on_start": progress.restart, "on_sentences": progress.advance}
            report = cxmi_shard(opened, source, target, asked, out, part, format=format, **watched)
        tell_shard(COMMAND, out, report, json)
        return
    with output(out, [source, target]), meter("scoring", 0) as progress:
        found = measure_corpus(
            open_one(),
            source,
            target,
            asked,
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
    reference: Annotated[Path, typer.Option(help="Reference translations.")],
    protocol: Annotated[
        list[str] | None,
        typer.Option(
            help="Metric, by its name in docs/metrics.md, as in d-bleu; may be repeated. Default: s-bleu, "
            "d-bleu and chrf."
        ),
    ] = None,
    target_language: Annotated[
        str | None, typer.Option(help="Language code such as zh, for the metric's tokenizer.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="JSON file for all figures.")] = None,
    format: Format = None,
    json: Json = False,
) -> None:
    """Measure translation quality by position in the document and by document length."""
    from cotext.evaluation.metrics.aligned_files import name_systems, read_aligned
    from cotext.evaluation.metrics.interface import DEFAULT_PROTOCOLS
    from cotext.evaluation.metrics.profile import TITLES, by_length, by_position, render_profile

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
