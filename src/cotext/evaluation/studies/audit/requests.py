"""The request of an audit."""

from collections.abc import Sequence
from pathlib import Path

from cotext.data.requests import CorpusFormat
from cotext.evaluation.requests import TargetLanguage
from cotext.runtime.request import option


class AuditRequest(TargetLanguage, CorpusFormat):
    """Translations to audit; see `audit`."""

    output: Sequence[Path] = option("Translations, one file per system.", argument=True)
    source: Path | None = option("Source. Default: OUTPUT, which has to hold both languages.", default=None)
    reference: Path | None = option("Reference, a line for each line of the source.", default=None)
    terms: Path | None = option("Glossary of the terms that translations have to use.", default=None)
    out: Path | None = option("HTML page to write.", default=None)
    fail_on: Sequence[str] = option("Kind of finding, or all: exit with code 1 if there is one.", default=())
