"""The request to make training data by translation."""

from pathlib import Path

from cotext.runtime.request import option
from cotext.translation.requests import ClusterOptions, Sharded


class DistillRequest(Sharded, ClusterOptions):
    """A corpus that a teacher translates; see `distillation`."""

    teacher: Path = option("Run folder of the teacher.", argument=True)
    data: Path = option("Folder made by `prepare`.")
    out: Path = option("Data folder to make.")
