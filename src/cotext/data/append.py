"""Documents appended to the training corpus of prepared data: `cotext append`.

The tokenizer, the held-out sets, the shards that are there and files of others stay as they are; new
documents come in shards of their own behind them, and a shortlist is made again of all. The folder is
replaced as a whole, by one that shares the old files.
"""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from cotext.data.cleaning import parse_rules
from cotext.data.corpora import (
    CorpusSplit,
    OnDocuments,
    checked_documents,
    corpus_of_files,
    encode_corpus,
    input_checksums,
)
from cotext.data.formats import read_parallel
from cotext.data.languages import check_sides
from cotext.data.overlap import HeldOut
from cotext.data.preparation import Preparation, preparing
from cotext.data.preparation_notes import selection_notes
from cotext.data.preparation_report import Report, report_of
from cotext.data.prepared import REPORT, TRAIN, read_report, store_files, write_report
from cotext.data.prepared_shortlist import build_shortlist
from cotext.data.requests import AppendRequest
from cotext.data.selection import Selection
from cotext.data.shortlist import SHORTLIST
from cotext.data.store import TokenStore
from cotext.runtime.errors import CotextError
from cotext.runtime.files import checksum, link_or_copy
from cotext.runtime.integrity import digests, require_whole
from cotext.runtime.version import __version__


def append(request: AppendRequest, on_documents: OnDocuments = lambda stage, documents: None) -> Report:
    """Add documents to the training corpus of the prepared folder `out`; returns its new report.

    The same call goes on with what an interrupted one has done.

    Raises:
        CotextError: no prepared data there, or damaged; a file that is in the corpus already; else as
            `prepare`.
    """
    source, target, out = request.source, request.target, request.out
    files = (source,) if target is None else (source, target)
    with preparing(out, False, files) as work:
        before = read_report(out)
        if not before:
            raise CotextError(f"{out}: no prepared data there to append to; make it with `cotext prepare`")
        report = report_of(before, out / REPORT)
        pair, rules = report.pair, parse_rules(request.clean)
        check_sides(pair, source, target, f"{out} is")
        splitters = request.splitters(pair)
        read = partial(read_parallel, source, target, request.format, skip_unequal=request.skip_unequal)
        corpus = corpus_of_files("train", source, target, Selection(read, pair, rules, splitters))
        inputs = input_checksums([corpus], request.format)
        settings = {
            "files": [str(path) for path in files],
            **request.recorded(rules, splitters),
            "inputs": inputs,
        }
        if before.get("append") == settings:
            return report  # done before
        of_all = [before["inputs"], *(each["inputs"] for each in before.get("appended", []))]
        for path in files:
            if any(inputs[str(path)] in known.values() for known in of_all):
                raise CotextError(f"{path}: is in {out} already; name a file that is not")
        # The report has all of the job, so that a folder that lacks its name alone is known.
        job = {"cotext": __version__, "append": settings, "onto": checksum(out / REPORT)}
        if not work.begin(job, replacing=True):
            _encode(work, corpus, before, request, on_documents)
            if SHORTLIST in before["files"]:
                before["shortlist"] = build_shortlist(work, on_documents)
            _write_report(work, before, job)
        work.publish()
        return report_of(read_report(work.out), work.out / REPORT)


def _encode(
    work: Preparation,
    corpus: CorpusSplit,
    before: dict[str, Any],
    request: AppendRequest,
    on_documents: OnDocuments,
) -> None:
    """Take over what stays, and write the store, unless that is done."""
    if work.done("train") is not None:
        return
    require_whole(work.out, before["files"], "prepare it again")
    for _ in checked_documents(corpus, request.max_characters):
        pass
    old = {work.out / REPORT, *store_files(work.out / TRAIN)}
    for path in sorted(path for path in work.out.rglob("*") if path.is_file() and path not in old):
        own = work.folder / path.relative_to(work.out)
        own.parent.mkdir(parents=True, exist_ok=True)
        own.unlink(missing_ok=True)
        link_or_copy(path, own)
    sets = HeldOut(
        {
            split: read_parallel(work.folder / f"{split}.jsonl", None)
            for split in ("dev", "test")
            if (work.folder / f"{split}.jsonl").is_file()
        }
    )
    store = TokenStore(work.out / TRAIN)
    found = encode_corpus(
        work.folder, corpus, work.folder / "tokenizer", sets.wanted, request.processes, on_documents, store
    )
    overlaps = sets.overlaps(found.found)
    added = {
        "documents": found.statistics.documents - store.totals.documents,
        "sentences": found.statistics.sentences - store.totals.sentences,
        "overlap": {split: asdict(each) for split, each in overlaps.items()},
    }
    notes = [
        f"train: {added['documents']:,} documents, {added['sentences']:,} sentence pairs, appended from "
        f"{' and '.join(map(str, corpus.files))}",
        *(f"of what was appended, {each.render(split)}" for split, each in overlaps.items()),
        *selection_notes(corpus),
    ]
    noted = {"statistics": asdict(found.statistics), "added": added, "notes": notes}
    work.note("train", store_files(work.folder / TRAIN), noted)


def _write_report(work: Preparation, before: dict[str, Any], job: dict[str, Any]) -> None:
    """The report of the whole; `overlap` stays that of the first corpus, notes tell that of the others."""
    found = work.done("train")
    kept = [work.folder / name for name in before["files"]]
    content = {
        **before,
        **job,
        "inputs": {**job["append"]["inputs"], **before["inputs"]},
        "splits": {**before["splits"], "train": found["statistics"]},
        "notes": [*before["notes"], *found["notes"]],
        "appended": [*before.get("appended", []), {**job["append"], **found["added"]}],
        "files": {**digests(work.folder, filter(Path.is_file, kept)), **work.digests},
    }
    write_report(work.folder, content)
