"""A summary of a folder that Cotext has made: `cotext info`."""

import os
from pathlib import Path

from cotext.evaluation.studies.info import data as data_info
from cotext.evaluation.studies.info import engine
from cotext.evaluation.studies.info import run as run_info
from cotext.evaluation.studies.info import seeds as seeds_info
from cotext.models.run_folder import ENGINE, is_engine, seeds_in
from cotext.runtime.errors import CotextError


def folder_info(
    folder: Path,
) -> run_info.RunInfo | seeds_info.SeedsInfo | data_info.DataInfo | engine.EngineInfo:
    """The summary of a run folder, of one with runs of several seeds, of an engine or of prepared data.

    Raises:
        CotextError: none of these.
    """
    if not folder.is_dir():
        raise CotextError(f"{folder}: no such folder; give a run folder, or one made by `cotext prepare`")
    if is_engine(folder):
        return engine.engine_info(folder)
    if any(os.path.lexists(folder / name) for name in data_info.MARKS):
        return data_info.data_info(folder)
    if any(os.path.lexists(folder / name) for name in run_info.MARKS):
        return run_info.run_info(folder)
    if seeds_in(folder):
        return seeds_info.seeds_info(folder)
    raise CotextError(
        f"{folder}: neither a run nor an engine nor prepared data: holds none of "
        f"{', '.join((*run_info.MARKS, ENGINE, *data_info.MARKS))}"
    )
