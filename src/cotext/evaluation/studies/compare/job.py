"""The files of `cotext compare`: inputs checked, runs measured, page and tables written.

The test set of a comparison where its lines are paragraphs, as those of WMT: split into sentences.

Systems are trained on sentences, and a paragraph that is translated as one is translated badly by all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cotext.data.contrastive_suites import ContrastiveSuite
from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import write_parallel
from cotext.data.languages import Languages, check_pair, check_sides
from cotext.data.prepared import TRAIN, store_exists
from cotext.data.splitting import Splitting
from cotext.data.suite_files import read_suite
from cotext.evaluation.metrics.aligned_files import name_systems, require_different, split_paragraphs
from cotext.evaluation.metrics.interface import Texts
from cotext.evaluation.metrics.tokenised import Words
from cotext.evaluation.requests import ComparisonRequest
from cotext.evaluation.statistics.significance import Resampling
from cotext.evaluation.studies.compare.comparison import RunComparison, compare_runs
from cotext.evaluation.studies.compare.measured import (
    EvaluationSet,
    MeasurementSettings,
    measure_run,
)
from cotext.evaluation.studies.compare.others import check_others, is_other, languages_of_other, measure_other
from cotext.evaluation.studies.compare.system import MeasuredSystem, run_folders
from cotext.files.table import require_page_name
from cotext.models.engine_folder import config_of
from cotext.runtime.errors import CotextError
from cotext.runtime.files import replacing
from cotext.runtime.locks import writing
from cotext.runtime.progress import Meter
from cotext.translation.translate_file import check_output


def split_test_set(test: EvaluationSet, languages: Languages, out: Path) -> tuple[EvaluationSet, str]:
    """Write a test set a sentence a line, where both sides of a paragraph have equally many; and say so."""
    pairs = test.documents()
    sides = ([Document(p.id, p.source) for p in pairs], [Document(p.id, p.target) for p in pairs])
    by = Splitting()
    texts, counts = split_paragraphs(
        Texts({}, [sides[1]], sides[0]), by.splitter(languages.target), by.splitter(languages.source)
    )
    written = (
        ParallelDocument(source.id, source.sentences, target.sentences)
        for source, target in zip(texts.source, texts.references[0], strict=True)
    )
    write_parallel(out, None, written, "jsonl")
    return EvaluationSet(out, out, "jsonl"), f"The test set has paragraphs ({out}): {counts.render()}."


def compare_folders(
    request: ComparisonRequest, new_meter: Callable[[str], Meter], notes: Sequence[str] = ()
) -> RunComparison:
    """Measure all runs and write the files; what a run folder holds already is not measured again.

    `notes`: paragraphs about the systems that the page shows too.

    Raises:
        CotextError: nothing to measure, runs or files that are missing, damaged, given twice or of unlike
            languages, seeds that are missing, unfinished or unlike;
            all that can be known beforehand is checked before any work is done.
    """
    protocols = request.protocols
    drawing = Resampling(samples=request.samples)
    folders = find_systems(request.runs)
    test = _test_set(request)
    suites = _suites(request)
    if test is None and not suites:
        raise CotextError(
            "nothing to compare on: give --data FOLDER, or --source and --reference, or --suite FILE"
        )
    words = _words(request, test)
    of_paragraphs = test is not None and test.kind.partition(":")[0] == "wmt"
    runs = [path for each in folders for path in each.runs]
    check_others([path for path in runs if is_other(path)], test is not None, bool(suites))
    inputs = [*suites, *(path for path in runs if path.is_file())]
    inputs += [test.source, test.reference] if test else []
    split = request.out.with_suffix(".test.jsonl")  # a test set of paragraphs, by sentences
    _check_outputs([*request.outputs, *([split] if of_paragraphs else [])], inputs)
    pair = _check_languages(folders, test, suites)
    with writing(*request.outputs):
        notes = list(notes)
        if test is not None and of_paragraphs:
            test, note = split_test_set(test, pair, split)
            notes.append(note)
        settings = MeasurementSettings(
            test=test,
            suites=suites,
            decode=request.decode,
            device=request.device,
            use=request.use,
            controls=request.controls,
            new_meter=new_meter,
        )
        measured = [_measure(each, settings) for each in folders]
        found = compare_runs(
            measured,
            test,
            {suite.name: suite for suite in suites.values()},
            protocols=protocols,
            target_language=request.target_language or measured[0].first.languages.target or None,
            words=words,
            resampling=drawing,
        )
        found = replace(found, notes=(*found.notes, *notes))
        _write(found, request)
        return found


def _words(request: ComparisonRequest, test: EvaluationSet | None) -> Words | None:
    """The words that the test set is scored in, if not its texts as they are."""
    if test is None and request.words is not None:
        raise CotextError(
            f"--words {request.words}: there is no test set to score; add --source and --reference, or leave "
            "it out"
        )
    return Words.of(request.words)


def _check_outputs(outputs: Sequence[Path], inputs: Sequence[Path]) -> None:
    require_page_name(outputs[0])
    for path in outputs:
        check_output(path, inputs)
    if len({path.absolute() for path in outputs}) < len(outputs):
        raise CotextError(f"{outputs[0]}: two outputs would be written to one file; name each once")


@dataclass(frozen=True, slots=True)
class SystemFolders:
    """A system that was asked for, and its runs; `seeds` is empty where it is a run by itself."""

    title: str
    path: Path
    runs: tuple[Path, ...]
    seeds: tuple[int, ...] = ()


def find_systems(paths: Sequence[Path]) -> list[SystemFolders]:
    """The runs of each system that is asked for.

    Raises:
        CotextError: as `name_systems` and `run_folders`; a run that is given beside its folder of seeds.
    """
    found = []
    for title, path in name_systems(paths).items():
        seeds = run_folders(path)
        found.append(SystemFolders(title, path, tuple(seeds.values()) or (path,), tuple(seeds)))
    require_different([run for each in found for run in each.runs])
    return found


def _measure(folders: SystemFolders, settings: MeasurementSettings) -> MeasuredSystem:
    runs = []
    for number, run in enumerate(folders.runs):
        title = f"{folders.title}, seed {folders.seeds[number]}" if folders.seeds else folders.title
        measure = measure_other if is_other(run) else measure_run
        runs.append(measure(run, title, settings))
    return MeasuredSystem(folders.title, folders.path, tuple(runs), folders.seeds)


def _check_languages(
    systems: Sequence[SystemFolders], test: EvaluationSet | None, suites: Mapping[Path, ContrastiveSuite]
) -> Languages:
    """The languages of all, as far as they tell; refuses runs, suites and files of unlike ones."""
    known, whose = Languages(), ""
    for run in (run for each in systems for run in each.runs):
        pair = languages_of_other(run) if is_other(run) else Languages.parse(config_of(run).languages)
        check_pair(known, pair, f"{run}", whose)
        if test is not None:
            check_sides(pair, test.source, test.reference, f"{run} translates")
        if str(pair) and not str(known):
            known, whose = pair, f"{run} translates"
    for path, suite in suites.items():
        check_pair(known, suite.languages, f"{path}", whose)
    return known


def _test_set(request: ComparisonRequest) -> EvaluationSet | None:
    if request.source is not None or request.reference is not None:
        if request.source is None or request.reference is None:
            raise CotextError("--source and --reference belong together: give both (or the same file twice)")
        for path in (request.source, request.reference):
            if not path.is_file():
                raise CotextError(f"{path}: no such file")
        return EvaluationSet(request.source, request.reference, request.format)
    if request.data is None:
        return None
    path = request.data / "test.jsonl"
    if path.is_file():
        return EvaluationSet(path, path, "jsonl")
    if not store_exists(request.data / TRAIN):
        raise CotextError(
            f"{request.data}: no prepared data there; make it with `cotext prepare ... --out {request.data}`"
        )
    if request.suite or _suite_files(request.data):
        return None
    raise CotextError(
        f"{request.data}: holds no test set; give --source and --reference, or prepare it with --test-source "
        "and --test-target"
    )


def _suites(request: ComparisonRequest) -> dict[Path, ContrastiveSuite]:
    paths = list(request.suite)
    if not paths and request.data is not None:
        paths = _suite_files(request.data)
    found = {path: read_suite(path) for path in paths}
    names: dict[str, Path] = {}
    for path, suite in found.items():
        if suite.name in names:
            raise CotextError(
                f"{path}: a suite of the same name ({suite.name}) as {names[suite.name]}; give each once"
            )
        names[suite.name] = path
    if len(found) < len(paths):
        raise CotextError("a suite is given twice; give each once")
    return found


def _suite_files(data: Path) -> list[Path]:
    return sorted((data / "contrastive").glob("*.json"))


def _write(found: RunComparison, request: ComparisonRequest) -> None:
    from cotext.evaluation.studies.compare.figures import as_csv
    from cotext.evaluation.studies.compare.report import as_latex, render_comparison

    contents = [
        (request.out, render_comparison),
        (request.csv, as_csv),
        (request.latex, as_latex),
    ]
    for path, render in contents:
        if path is not None:
            with replacing(path) as temporary:
                temporary.write_text(render(found), encoding="utf-8")
