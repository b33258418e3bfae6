"""Options shared by requests that open a run, and the request of `score`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cotext.data.requests import CorpusFormat
from cotext.runtime import CotextError
from cotext.runtime.request import Request, option

if TYPE_CHECKING:
    from cotext.runtime.jobs.journal import Shard

# Decoding settings that apply to scoring.
SCORING: Final = (
    "max_source_tokens",
    "max_tokens",
    "group_windows",
    "before",
    "language_model",
    "precision",
    "source_language",
    "target_language",
)

# Further settings that apply to re-ranking.
RANKING: Final = ("length_penalty", "length_penalty_form")


class Device(Request):
    """The device to use."""

    device: str | None = option("Device: cpu, cuda, cuda:1. Default: the GPU if there is one.", default=None)


class Decoding(Device):
    """Changes to the decoding settings."""

    decode: Mapping[str, Any] = option(
        "Change a decoding setting of the recipe, as in beam=1 (keys: section `decode` of docs/recipes.md); "
        "may be repeated.",
        name="set",
        default_factory=dict,
    )

    def require_scoring(self, further: tuple[str, ...] = ()) -> None:
        """Raise CotextError for a setting that has no effect on scoring; `further` settings are allowed."""
        supported = *SCORING, *further
        for key in self.decode:
            if key not in supported:
                raise CotextError(
                    f"--set {key}: scoring supports only {', '.join(supported)}; the other settings apply to "
                    "translation (to translate a suite, add --generate)"
                )


class RunOptions(Decoding):
    """A run and its decoding settings."""

    checkpoint: int | None = option(
        "Use the checkpoint saved at this update instead of the final model.", default=None
    )


class Sharded(Request):
    """A job that can be divided among processes."""

    shard: str | None = option(
        "Do only part i of n, as in 2/4; when all n parts are done, `cotext join OUT` puts them together "
        "(docs/cluster.md).",
        default=None,
        needs="out",
    )

    def part(self) -> "Shard | None":
        """Return the part to do; None for the whole job. Raise CotextError for an invalid part."""
        from cotext.runtime.jobs.journal import Shard

        return None if self.shard is None else Shard.parse(self.shard)


class ScoreRequest(Sharded, CorpusFormat, RunOptions):
    """A translation to score; see `score_file`."""

    run: Path = option("Run or engine folder, or name of a model.", argument=True, is_run=True)
    source: Path = option("Source documents.")
    target: Path | None = option("Translation of the source, which is scored.", default=None)
    out: Path | None = option("Output file; default: standard output.", default=None)
    decode: Mapping[str, Any] = option(
        f"Change a decoding setting, as in before=3: {', '.join(SCORING)}; may be repeated.",
        name="set",
        default_factory=dict,
    )

    def check(self) -> None:
        """Raise CotextError for a setting that applies only to search."""
        self.require_scoring()


class RerankRequest(CorpusFormat, RunOptions):
    """n-best lists to re-rank; see `RerankJob`."""

    run: Path = option("Run or engine folder, or name of a model.", argument=True, is_run=True)
    lists: Path = option("n-best lists (`cotext translate --set nbest=N`).", argument=True)
    source: Path = option("Source documents of the lists.")
    out: Path = option("File to write.")
    decode: Mapping[str, Any] = option(
        f"Change a decoding setting, as in before=3: {', '.join((*SCORING, *RANKING))}; may be repeated.",
        name="set",
        default_factory=dict,
    )
    to: str = option("Corpus format to write.", default="text")
    overwrite: bool = option("Replace a file that exists.", default=False)

    def check(self) -> None:
        """Raise CotextError for a setting that applies only to search."""
        self.require_scoring(RANKING)


class ClusterOptions(RunOptions):
    """Options of translation on a Ray cluster."""

    on: str | None = option(
        "Translate on a Ray cluster: ray (the cluster of RAY_ADDRESS, or this machine), ray://HOST:10001 or "
        "HOST:6379.",
        default=None,
    )
    workers: int | None = option(
        "With --on: number of worker processes. Default: one for each processor or GPU.",
        default=None,
        needs="on",
    )


class TermOptions(Request):
    """Terms, words to keep and a translation memory; read by `read_terminology`."""

    glossary: Path | None = option(
        "Terms with their required and forbidden translations (TSV, CSV or TBX).", default=None
    )
    keep: Path | None = option("File of words and phrases to leave untranslated, one per line.", default=None)
    memory: Path | None = option(
        "Translation memory (TMX), used for sentences that it has after the same previous sentence.",
        default=None,
    )
