"""The command `align`: make a parallel corpus from documents of any format and their translations."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from cotext.cli.options import Json, as_json, output
from cotext.data.requests import AlignmentRequest
from cotext.runtime.errors import CotextError

if TYPE_CHECKING:
    from cotext.data.alignment import Probabilities
    from cotext.data.documents import Document
    from cotext.data.languages import Languages
    from cotext.data.splitting import Splitter

IMPOSSIBLE = -1e4  # log-probability given to a sentence that is too long for the run


def align(request: AlignmentRequest, json: Json = False) -> None:
    """Align the sentences of documents and their translations; write a parallel corpus for `prepare`."""
    from cotext.data.aligned_corpus import ALONE, align_corpus
    from cotext.data.formats import write_parallel

    with output(request.out, [*request.source, *request.target]):
        sources, targets = _files(request.source), _files(request.target)
        names = {name: name for name in sources if name in targets}
        if len(sources) == len(targets) == 1:
            names = dict(zip(sources, targets, strict=True))
        alone = [name for name in (*sources, *targets) if name not in names and name not in names.values()]
        if not names:
            raise CotextError(
                f"no source and target file have the same name; unmatched: {', '.join(alone[:5])}"
            )
        files = [(name, sources[name], targets[other]) for name, other in names.items()]
        languages = _languages(request, files)
        by = request.splitting()
        splitters = by.splitter(languages.source), by.splitter(languages.target)
        pairs = [
            pair
            for name, source, target in files
            for pair in _paired(
                name, _read(source, "source", splitters[0]), _read(target, "target", splitters[1])
            )
        ]
        corpus = align_corpus(pairs, languages, _probabilities(request.run))
        corpus.left_out.update(dict.fromkeys(alone, ALONE))
        if not corpus.documents:
            raise CotextError(f"nothing could be aligned\n{corpus.render()}")
        codes = (languages.source, languages.target) if str(languages) else None
        write_parallel(request.out, None, corpus.documents, request.format, codes)
    if json:
        figures = {name: value for name, value in asdict(corpus).items() if name != "documents"}
        typer.echo(as_json({"format": "cotext-align", "version": 1, "out": str(request.out), **figures}))
        return
    typer.echo(corpus.render())
    typer.echo(f"{request.out}: ready for `cotext prepare --source {request.out} ...`")


def _files(paths: Sequence[Path]) -> dict[str, Path]:
    """Return the given files, and the files in given folders, by name without ending and language code.

    Raises:
        CotextError: two files have the same name.
    """
    from cotext.data.languages import CODES

    found: dict[str, Path] = {}
    for path in paths:
        inside = sorted(each for each in path.rglob("*") if each.is_file() and each.name[0] != ".")
        for file in inside if path.is_dir() else [path]:
            stem = Path(re.sub(r"\.(xz|gz)$", "", file.name)).stem
            before, code = stem[:-3], stem[-2:].lower()
            if before and stem[-3] in "._-" and code in CODES:
                stem = before
            name = str(file.relative_to(path).with_name(stem)) if path.is_dir() else stem
            if name in found:
                raise CotextError(
                    f"{found[name]} and {file}: both documents have the name {name}; rename one"
                )
            found[name] = file
    return found


def _languages(request: AlignmentRequest, files: Sequence[tuple[str, Path, Path]]) -> "Languages":
    """Return the languages of the request, or else the languages in the names of the first two files.

    Raises:
        CotextError: a language code is invalid, or the names of two files suggest swapped sides.
    """
    from cotext.data.languages import Languages, check_sides, language_code, languages_of_names

    guessed = languages_of_names(*files[0][1:])
    source, target = request.source_language, request.target_language
    languages = Languages(
        language_code(source, "--source-language") if source else guessed.source,
        language_code(target, "--target-language") if target else guessed.target,
    )
    for _, first, second in files:
        check_sides(languages, first, second, "the corpus is")
    return languages


def _read(path: Path, side: Literal["source", "target"], splitter: "Splitter") -> "list[Document]":
    """Read the documents of a file; ids are empty if its format has no ids.

    Plain text has one sentence or paragraph per line; empty lines separate documents.

    Raises:
        CotextError: the file cannot be read.
    """
    from cotext.data.documents import Document
    from cotext.data.formats import FORMATS, read_documents
    from cotext.data.formats.streams import check_readable, read_whole
    from cotext.files.block_sentences import cut
    from cotext.files.blocks import Block
    from cotext.files.translate_files import format_of, read_file

    check_readable(path)
    if path.stat().st_size == 0:
        return [Document("", ())]
    format = format_of(path)
    if format == "text" or (not isinstance(format, str) and format.name == "prose"):
        lines = [line.strip() for line in read_whole(path).split("\n")]
        groups = [list(group) for is_text, group in groupby(lines, key=bool) if is_text]
        return [
            Document("", tuple(s for line in group for s in splitter.sentences(line))) for group in groups
        ]
    if isinstance(format, str):
        with_ids = FORMATS[format].carries_ids
        return [
            Document(each.id if with_ids else "", tuple(s for s in each.sentences if s.strip()))
            for each in read_documents(path, format, side)
        ]
    return [
        Document(
            "",
            tuple(
                Block(pieces).text.strip()
                for block in blocks
                for pieces in cut(block, splitter.spans).parts.sentences
            ),
        )
        for blocks in format.open(read_file(path), str(path)).contents.documents
    ]


def _paired(
    name: str, sources: "list[Document]", targets: "list[Document]"
) -> "list[tuple[Document, Document]]":
    """Pair documents by id if all have ids, else in order.

    If the numbers of documents differ, each file is one document.
    """
    from cotext.data.documents import Document

    by_id = {each.id: each for each in targets}
    if all(each.id for each in (*sources, *targets)) and len(by_id) == len(targets):
        return [(each, by_id.get(each.id, Document(each.id, ()))) for each in sources]
    if len(sources) != len(targets):
        sources, targets = (
            [Document("", tuple(s for each in side for s in each.sentences))] for side in (sources, targets)
        )
    several = len(sources) > 1
    return [
        (Document(f"{name}/{number}" if several else name, source.sentences), target)
        for number, (source, target) in enumerate(zip(sources, targets, strict=True), 1)
    ]


def _probabilities(run: Path | None) -> "Probabilities | None":
    """Return a function that computes log-probabilities of sentence pairs; None without a run."""
    if run is None:
        return None
    from cotext.data.documents import ParallelDocument
    from cotext.translation.open import open_scorer

    translator = open_scorer(run).translator

    def fits(pair: ParallelDocument) -> bool:
        try:
            translator.check_pairs([pair])
        except CotextError:
            return False
        return True

    def probabilities(texts: Sequence[tuple[str, str]]) -> list[float]:
        pairs = [ParallelDocument("", (source,), (target,)) for source, target in texts]
        fitting = [fits(pair) for pair in pairs]
        scores = iter(translator.score([pair for pair, fit in zip(pairs, fitting, strict=True) if fit]))
        return [next(scores)[0].log_probability if fit else IMPOSSIBLE for fit in fitting]

    return probabilities
