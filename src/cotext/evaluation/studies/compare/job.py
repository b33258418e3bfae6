"""The command `cotext compare`: check inputs, measure runs, write the page and figures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cotext.data.contrastive_suites import CONTROLLED, ContrastiveSuite, read_suite
from cotext.data.documents import Languages, check_pair, check_sides
from cotext.data.formats import check_output
from cotext.data.prepared import TRAIN
from cotext.evaluation.metrics.aligned_files import name_systems, require_different
from cotext.evaluation.metrics.interface import load_words
from cotext.evaluation.requests import ComparisonRequest
from cotext.evaluation.statistics.significance import Resampling
from cotext.evaluation.studies.compare.comparison import RunComparison, compare_runs
from cotext.evaluation.studies.compare.measured import (
    EvaluationSet,
    MeasuredSystem,
    MeasurementSettings,
    measure_run,
)
from cotext.evaluation.studies.compare.recipe import missing_seeds, require_alike
from cotext.evaluation.studies.compare.report import as_csv, render_comparison
from cotext.models.run_folder import checkpoints, config_of, is_ended, seed_folder, seeds_in
from cotext.runtime import CotextError
from cotext.runtime.files import write_text, writing
from cotext.runtime.progress import Meter
from cotext.translation.open import open_run


def compare_folders(
    request: ComparisonRequest, new_meter: Callable[[str], Meter], notes: Sequence[str] = ()
) -> RunComparison:
    """Measure all runs and write the files; results that a run folder contains are not measured again.

    `notes`: further paragraphs for the page. Raises CotextError if there is nothing to measure; if a run or
    file is missing, damaged or repeated, or languages differ; or for an error of `run_folders`.
    """
    drawing = Resampling(samples=request.samples)
    folders = find_systems(request.runs)
    test = _test_set(request)
    suites = _suites(request)
    if test is None and not suites:
        raise CotextError("there is nothing to compare on: give --data, --source and --reference, or --suite")
    given = [name for name in ("words", "protocol", "target_language") if request.is_given(name)]
    if test is None and given:
        name = given[0].replace("_", "-")
        raise CotextError(f"--{name} needs a test set; add --source and --reference")
    words = load_words(request.words)
    for path in request.outputs:
        check_output(path, [*suites, *([test.source, test.reference] if test else [])])
    if len({path.absolute() for path in request.outputs}) < len(request.outputs):
        raise CotextError(f"{request.out}: two outputs would be written to one file; give different names")
    runs = [run for paths, _ in folders.values() for run in paths]
    _check_languages(runs, test, suites)
    for run in runs if request.decode else []:  # before hours of measuring: the settings must fit every run
        open_run(run, request.device, dict(request.decode))
    with writing(*request.outputs):
        settings = MeasurementSettings(request, test, suites, new_meter)
        measured = []
        for title, (paths, seeds) in folders.items():
            titles = [f"{title}, seed {seed}" for seed in seeds] or [title]
            found = (measure_run(*each, settings) for each in zip(paths, titles, strict=True))
            measured.append(MeasuredSystem(title, tuple(found), seeds))
        comparison = compare_runs(
            measured,
            test,
            {suite.name: suite for suite in suites.values()},
            protocols=request.protocols,
            target_language=request.target_language or measured[0].first.languages.target or None,
            words=words,
            resampling=drawing,
        )
        comparison = replace(comparison, notes=(*comparison.notes, *notes))
        write_text(request.out, render_comparison(comparison))
        if request.csv is not None:
            write_text(request.csv, as_csv(comparison))
        return comparison


def find_systems(paths: Sequence[Path]) -> dict[str, tuple[tuple[Path, ...], tuple[int, ...]]]:
    """Return the runs of each requested system by its title, and their seeds (empty for a single run).

    Raises CotextError if a path is a file, or a run is given twice; also the errors of `run_folders`.
    """
    systems = {}
    for title, path in name_systems(paths).items():
        if path.is_file():
            raise CotextError(f"{path}: compare measures runs; for translations, use `cotext leaderboard`")
        seeds = run_folders(path)
        systems[title] = tuple(seeds.values()) or (path,), tuple(seeds)
    require_different([run for runs, _ in systems.values() for run in runs])
    return systems


def run_folders(path: Path) -> dict[int, Path]:
    """Return the runs of a folder of several seeds, by seed; empty if the folder is itself a run.

    Raises CotextError if a run is missing or not finished, or runs differ in more than their seed.
    """
    folders = {seed: seed_folder(path, seed) for seed in seeds_in(path)}
    if not folders:
        return {}
    if missing := missing_seeds(path, folders):
        raise CotextError(missing)
    for run in folders.values():
        _require_finished(run)
    require_alike(path, folders)
    return folders


def _require_finished(run: Path) -> None:
    if is_ended(run) and (run / "model.safetensors").is_file():
        return
    saved = checkpoints(run)
    where = f"it is at update {saved[-1]}" if saved else "it has no checkpoint yet"
    raise CotextError(f"{run}: training is not finished, {where}; the same `cotext train` command resumes it")


def _check_languages(
    runs: Sequence[Path], test: EvaluationSet | None, suites: Mapping[Path, ContrastiveSuite]
) -> None:
    """Raise CotextError if runs, suites and files are in different languages."""
    languages, whose = Languages(), ""
    for run in runs:
        pair = Languages.parse(config_of(run).languages)
        check_pair(languages, pair, f"{run}", whose)
        if test is not None:
            check_sides(pair, test.source, test.reference, f"{run} translates")
        if str(pair) and not str(languages):
            languages, whose = pair, f"{run} translates"
    for path, suite in suites.items():
        check_pair(languages, suite.languages, f"{path}", whose)


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
    if not (request.data / TRAIN).is_file():
        raise CotextError(f"{request.data}: no prepared data there; make it with `cotext prepare`")
    if request.suite or _suite_files(request.data):
        return None
    raise CotextError(
        f"{request.data}: contains no test set; give --source and --reference, or prepare it with "
        "--test-source and --test-target"
    )


def _suites(request: ComparisonRequest) -> dict[Path, ContrastiveSuite]:
    paths = list(request.suite)
    if not paths and request.data is not None:
        paths = _suite_files(request.data)
    require_different(paths)
    suites = {path: read_suite(path) for path in paths}
    names: dict[str, Path] = {}
    for path, suite in suites.items():
        title = suite.name.removeprefix(CONTROLLED)  # as in tables
        if title in names:
            raise CotextError(f"{path}: a suite of the same name ({title}) as {names[title]}; rename one")
        names[title] = path
    return suites


def _suite_files(data: Path) -> list[Path]:
    return sorted((data / "contrastive").glob("*.json"))
