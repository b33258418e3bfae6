"""The request of an audit."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from cotext.data.requests import CorpusFormat
from cotext.evaluation.requests import TargetLanguage
from cotext.runtime.request import option

Kind = Literal[
    "lost",
    "added",
    "order",
    "untranslated",
    "copied",
    "language",
    "tag",
    "number",
    "name",
    "quote",
    "term",
    "drift",
]


class AuditRequest(TargetLanguage, CorpusFormat):
    """Translations to audit; see `audit`."""

    output: Sequence[Path] = option("Translations, one file per system.", argument=True)
    source: Path | None = option("Source. Default: OUTPUT, which has to hold both languages.", default=None)
    source_language: str | None = option("Language code of the source.", default=None)
    reference: Path | None = option("Reference, a line for each line of the source.", default=None)
    terms: Path | None = option("Glossary of the terms that translations have to use.", default=None)
    out: Path | None = option("HTML page to write.", default=None)
    fail_on: Sequence[Literal[Kind, "all"]] = option(
        "Kind of finding (or all) that makes the exit code 1; may be repeated.", default=()
    )

    @property
    def kinds(self) -> set[str]:
        """The kinds of findings that make the exit code 1."""
        return set(get_args(Kind)) if "all" in self.fail_on else set(self.fail_on)
