"""The command `mbr`: of several translations of each sentence, that which the others agree with most."""

from pathlib import Path
from typing import Annotated, Any

import typer

from cotext.cli.messages import printable
from cotext.cli.options import Format, Json, as_json, counted, output
from cotext.runtime.errors import CotextError


def mbr(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="n-best lists (`cotext translate --set nbest=N`), or translations by several systems."
        ),
    ],
    out: Annotated[Path, typer.Option(help="File to write.")],
    utility: Annotated[
        str,
        typer.Option(help="Metric that measures agreement: chrf, bleu or comet (with --comet and --source)."),
    ] = "chrf",
    level: Annotated[
        str,
        typer.Option(
            help="sentence: choose each sentence by itself; document: choose all sentences of a document "
            "together."
        ),
    ] = "sentence",
    probabilities: Annotated[
        str,
        typer.Option(
            help="Weights of the translations in a list: scores (their model probabilities) or uniform."
        ),
    ] = "scores",
    temperature: Annotated[
        float | None,
        typer.Option(
            help="With --probabilities scores: divide log-probabilities by this number first. Default: 1."
        ),
    ] = None,
    candidates: Annotated[
        int | None, typer.Option(min=1, help="Use at most this many translations of each list. Default: all.")
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            min=1, help="With --level document: number of documents drawn from the lists. Default: 64."
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="With --level document: seed for drawing documents. Default: 1.")
    ] = None,
    source: Annotated[Path | None, typer.Option(help="Source documents, for COMET.")] = None,
    comet: Annotated[
        str | None, typer.Option(help="COMET model, a path or a name (docs/metrics.md).")
    ] = None,
    comet_python: Annotated[
        Path | None,
        typer.Option(
            help="Python interpreter or environment in which COMET is installed. Default: "
            "$COTEXT_COMET_PYTHON."
        ),
    ] = None,
    target_language: Annotated[
        str | None, typer.Option(help="Language code such as zh, for BLEU's tokenizer.")
    ] = None,
    to: Annotated[str, typer.Option(help="Corpus format to write.")] = "text",
    format: Format = None,
    overwrite: Annotated[bool, typer.Option(help="Replace a file that exists.")] = False,
    json: Json = False,
) -> None:
    """Choose translations by minimum Bayes risk, from n-best lists or from the outputs of several systems."""
    if temperature is not None and probabilities != "scores":
        raise CotextError("--temperature is for --probabilities scores; leave it out")
    if (samples is not None or seed is not None) and level != "document":
        raise CotextError("--samples and --seed need --level document")
    if target_language is not None and utility != "bleu":
        raise CotextError("--target-language is for --utility bleu; leave it out")
    if comet_python is not None and comet is None:
        raise CotextError("--comet-python needs --comet MODEL")
    if out.is_file() and not overwrite:
        raise CotextError(f"{out}: exists; choose another --out, or add --overwrite to replace it")
    from cotext.data.formats import write_documents
    from cotext.data.formats.table import find_format
    from cotext.evaluation.metrics.comet import Comet, find_python
    from cotext.evaluation.studies.evaluate.mbr_files import MbrSettings, choose_translations
    from cotext.runtime.progress import meter
    from cotext.translation.translate_file import check_output
    from cotext.translation.written_beside import check_new_lists, lists_beside, remove_lists

    find_format(to)
    inputs = [*files, *filter(None, [source])]
    given: dict[str, Any] = {"temperature": temperature, "samples": samples, "seed": seed}
    settings = MbrSettings(
        utility=utility,
        level=level,  # type: ignore[arg-type]
        probabilities=probabilities,  # type: ignore[arg-type]
        candidates=candidates,
        target_language=target_language,
        comet=None if comet is None else Comet(comet, find_python(comet_python)),
        **{name: value for name, value in given.items() if value is not None},
    )
    with output(out, inputs), meter("choosing", 0) as progress:
        # Lists beside the output are of what it was, and go with it; those that are read are not lost so.
        check_output(lists_beside(out), inputs)
        if not overwrite:
            check_new_lists(out)

        def on_comet(done: int, total: int) -> None:
            progress.restart(total)
            progress.advance_to(done)

        chosen, report = choose_translations(
            files,
            settings,
            source=source,
            format=format,
            on_start=progress.restart,
            on_sentences=progress.advance,
            on_comet=on_comet,
        )
        write_documents(out, chosen, to)
        remove_lists(out)
    if json:
        typer.echo(as_json({**report.as_dict(), "out": str(out)}))
        return
    typer.echo(
        f"{printable(str(out))}: {counted(report.sentences, 'sentence')} in "
        f"{counted(report.documents, 'document')}, {report.translations:.2f} translations of each; "
        f"{report.changed:,} are not the first\n"
        f"expected {utility}: {report.utility:.2f}, of the first translations {report.utility_of_first:.2f}\n"
        f"{report.signature}"
    )
