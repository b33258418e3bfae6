"""`cotext translate --bilingual`: source and translation side by side, as a page or as a memory."""

import os
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from cotext.runtime.errors import CotextError

if TYPE_CHECKING:
    from cotext.evaluation.studies.context.context_use import TokenScorer
    from cotext.files.bilingual_page import Influences
    from cotext.files.blocks import FileFormat
    from cotext.files.translate_blocks import PairedSentence
    from cotext.files.translate_files import BlocksJob
    from cotext.translation.open import OpenedRun

KINDS = (".html", ".tmx")


def check_bilingual(
    path: Path | None,
    files: Sequence[Path],
    outs: Sequence[Path],
    formats: Sequence["FileFormat | str"],
    overwrite: bool,
    explain: bool,
) -> None:
    """Refuse a file that cannot be written, or whose kind its name does not say, before any work.

    One that an interrupted job has written may be there.
    """
    from cotext.translation.partial_output import journal_of

    if explain and (path is None or path.suffix.lower() != ".html"):
        raise CotextError("--explain is of the page of --bilingual; add --bilingual FILE.html")
    if path is None:
        return
    if path.suffix.lower() not in KINDS:
        raise CotextError(f"--bilingual {path}: its name ends with neither {' nor '.join(KINDS)}; choose one")
    if len(formats) > 1 or isinstance(formats[0], str):
        raise CotextError("--bilingual is of one file, and of none that is a corpus; translate it by itself")
    if path.resolve() in {other.resolve() for other in (*files, *outs)}:
        raise CotextError(f"--bilingual {path}: is another file of this command; choose another name")
    if not path.parent.is_dir():
        raise CotextError(f"--bilingual {path}: {path.parent} is no folder; make it first")
    if os.path.lexists(path) and not overwrite and not journal_of(outs[0]).exists():
        raise CotextError(f"{path}: exists; choose another name, or add --overwrite to replace what is there")


def write_bilingual(path: Path, job: "BlocksJob", opened: "OpenedRun", explain: bool) -> None:
    """Write the sentences of a finished job beside their translations; `explain`: what context has done."""
    from cotext.data.formats.xml_formats import encode_memory
    from cotext.files.bilingual_page import render_page
    from cotext.runtime.files import replacing
    from cotext.runtime.progress import meter

    source, target, pairs = opened.languages.source, opened.languages.target, job.pairs
    if path.suffix.lower() == ".tmx":
        units = (
            (
                each.source,
                each.target,
                {"x-document": str(each.document + 1), "x-position": str(each.number + 1)},
            )
            for each in pairs
        )
        content = encode_memory(units, source or "und", target or "und")
    else:
        about = [("file", str(job.source.name)), ("system", opened.signature)]
        explained = None
        if explain:
            with meter("measuring context", len(pairs)) as progress:
                explained = context_influences(opened.translator, pairs, progress.advance)
        content = render_page(job.source.name, (source, target), pairs, about, explained).encode()
    with replacing(path.resolve()) as temporary:
        temporary.write_bytes(content)


def context_influences(
    scorer: "TokenScorer",
    sentences: Sequence["PairedSentence"],
    on_sentences: Callable[[int], None] = lambda count: None,
) -> list["Influences"]:
    """For every sentence of a file, the influence of the others that its translation sees, largest first.

    That is the log-probability of the translation with the context sentence minus that without it.

    Raises:
        CotextError: a system whose single tokens have no probability, or a sentence too long to be scored.
    """
    from cotext.data.documents import ParallelDocument
    from cotext.evaluation.studies.context.context_use import influences

    found: list[Influences] = []
    for name, members in groupby(sentences, lambda each: each.document):
        pairs, first = list(members), len(found)
        document = ParallelDocument(
            str(name + 1), tuple(each.source for each in pairs), tuple(each.target for each in pairs)
        )
        for each in influences(scorer, document):
            ranked = sorted(each.influences, key=lambda one: -abs(one.nats))
            found.append([(first + one.number, one.nats) for one in ranked])
        on_sentences(len(pairs))
    return found
