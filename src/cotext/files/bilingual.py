"""Formats that hold source and target side by side: message catalogues, XLIFF, translation memories, tasks.

Of such a file, a job says which languages are wanted, and which entries: what is translated already stays,
and is context.
"""

from dataclasses import dataclass
from typing import Final, Literal, Protocol, runtime_checkable

from cotext.files.blocks import FileFormat

# `untranslated`: those without a translation; `unfinished`: also those whose translation is marked as a guess
# or for review; `all`: those that are translated too, unless they are marked as final.
Entries = Literal["untranslated", "unfinished", "all"]


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be translated of a bilingual file.

    Languages as codes ("de", "pt-BR"); empty where they are not known: then the file has to say them where
    its format asks for them.
    """

    source_language: str = ""
    target_language: str = ""
    entries: Entries = "untranslated"


ANY: Final = Job()


@runtime_checkable
class BilingualFormat(FileFormat, Protocol):
    """A format of files that hold both languages.

    A block that is handed back as the object that was read leaves its entry as it is; any other block is
    written as its translation, be its text equal to the source ("OK") or not.
    """

    def for_job(self, job: Job) -> FileFormat:
        """The same format, reading what this job asks for."""
        ...
