"""The request to make training data by translation."""

from pathlib import Path

from cotext.data.requests import CorpusFormat
from cotext.runtime.request import option
from cotext.translation.requests import ClusterOptions, Sharded


class DistillRequest(Sharded, CorpusFormat, ClusterOptions):
    """A corpus, or documents in one language, that a teacher translates; see `distillation`."""

    teacher: Path = option("Run folder of the teacher.", argument=True)
    data: Path = option("Folder made by `prepare`.")
    out: Path = option("Data folder to make.")
    monolingual: Path | None = option(
        "Documents in one language, to be translated and added to the corpus; the corpus itself stays as it "
        "is.",
        default=None,
    )
    side: str = option(
        "Side that the monolingual documents belong to: source (forward translation) or target "
        "(back-translation). Default: by their language.",
        default="",
        needs="monolingual",
    )
    format: str | None = option("Format of the monolingual documents.", default=None, needs="monolingual")
