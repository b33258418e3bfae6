"""The request to translate files."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from cotext.data.requests import CorpusFormat, SentenceSplitting
from cotext.runtime import CotextError
from cotext.runtime.request import option
from cotext.translation.requests import ClusterOptions, RunOptions, Sharded, TermOptions

STANDARD_INPUT: Final = Path("-")
# Fields that cannot be combined with standard input.
_OF_FILES: Final = (
    *("out", "out_dir", "memory", "bilingual", "scores", "overwrite", "shard"),
    *("on", "workers"),
)
_LINES: Final = (None, "text")  # formats of standard input
PAGE_SUFFIX, BILINGUAL_SUFFIXES = ".html", (".html", ".tmx")


class TranslationRequest(SentenceSplitting, TermOptions, Sharded, ClusterOptions):
    """Options of a translation of files; see `cotext.translate_files`."""

    run: Path = option(
        "Run or engine folder, name of a model (docs/models.md), or endpoint.yaml of a language model "
        "(docs/language-models.md).",
        argument=True,
        is_run=True,
    )
    files: Sequence[Path] = option(
        "Corpora, or files in a format of docs/files.md, recognised by their content or suffix. -: read "
        "standard input line by line, and write to standard output.",
        argument=True,
    )
    out: Path | None = option(
        "File to write, in the format of the input; only for a single input file.", default=None
    )
    out_dir: Path | None = option(
        "Folder to write files into, under the names of the input files.", default=None
    )
    format: str | None = option(
        "Format of a file: markdown, prose (running text) or another of docs/files.md; or of a corpus: text "
        "(one sentence per line), docids, d-lines, tmx, tsv, jsonl or wmt. Default: detected from the "
        "content.",
        default=None,
    )
    no_split: bool = option("Translate each line or paragraph as one sentence.", default=False)
    entries: Literal["untranslated", "unfinished", "all"] = option(
        "Entries to translate in files with both languages (PO, XLIFF): untranslated; unfinished (also "
        "fuzzy entries and entries waiting for review); or all (except entries marked as final).",
        default="untranslated",
    )
    bilingual: Path | None = option(
        "Also write source and translation side by side to this .html or .tmx file.", default=None
    )
    scores: Path | None = option(
        "Write the log-probability of each sentence of a corpus to this file (TSV).", default=None
    )
    source_language: str | None = option(
        "Language of the documents, for multilingual tokenizers. Default: the language of the run's data.",
        default=None,
    )
    target_language: str | None = option(
        "Language to translate into, for multilingual tokenizers. Default: the language of the run's data.",
        default=None,
    )
    overwrite: bool = option(
        "Replace existing files, and discard the unfinished output of other jobs.", default=False
    )

    def check(self) -> None:
        """Raise CotextError if options cannot be combined."""
        self.require_split(not self.no_split, "omit --no-split")
        if self.is_standard_input:
            if len(self.files) > 1 or any(map(self.is_given, _OF_FILES)) or self.format not in _LINES:
                raise CotextError(
                    "- reads standard input and writes one output line for each input line; give a file, or "
                    "omit all other files, --out, --out-dir, --memory, --bilingual, --scores, --overwrite, "
                    "--shard, --on and --workers (--format can only be text)"
                )
            return
        _ = self.outs  # raises if outputs have no name
        if self.bilingual is not None and self.bilingual.suffix.lower() not in BILINGUAL_SUFFIXES:
            raise CotextError(
                f"--bilingual {self.bilingual}: the name of the file must end with "
                f"{' or '.join(BILINGUAL_SUFFIXES)}"
            )

    @property
    def is_standard_input(self) -> bool:
        return STANDARD_INPUT in self.files

    @property
    def settings(self) -> Mapping[str, Any]:
        """The decoding settings, including languages."""
        sides = {"source_language": self.source_language, "target_language": self.target_language}
        return {**self.decode, **{key: name for key, name in sides.items() if name}}

    @property
    def outs(self) -> list[Path]:
        """The output path of each file.

        Raises CotextError if an output has no name, or two files have the same output.
        """
        out, files, folder = self.out, self.files, self.out_dir
        if out is not None and folder is not None:
            raise CotextError("--out names a file and --out-dir a folder; give only one of them")
        if folder is None:
            if out is None:
                raise CotextError(
                    "--out FILE is needed, or --out-dir FOLDER (or - as the file, for standard input and "
                    "output)"
                )
            if len(files) > 1:
                raise CotextError(
                    f"--out is for one file, but {len(files)} files are given; use --out-dir FOLDER"
                )
            if out == STANDARD_INPUT:
                raise CotextError(
                    "--out -: files are not written to standard output; name a file, or give the text on "
                    "standard input: cotext translate RUN - < FILE"
                )
            return [out]
        if os.path.lexists(folder) and not folder.is_dir():
            raise CotextError(f"{folder}: is not a folder; give --out-dir another name")
        outs = [folder / file.name for file in files]
        names = [str(each).casefold() for each in outs]  # Windows and macOS ignore the case of names
        for number, name in enumerate(names):
            if (first := names.index(name)) < number:
                raise CotextError(
                    f"{files[first]} and {files[number]} would both be written to {outs[number]}; translate "
                    "them one after the other, into different folders"
                )
        return outs


class RepairRequest(CorpusFormat, RunOptions):
    """A request to repair translations of any system with a run trained on one language (DocRepair)."""

    run: Path = option(
        "Run trained on round-trip translations in one language (docs/monolingual.md).",
        argument=True,
        is_run=True,
    )
    hypothesis: Path = option("Translation to repair: a corpus with one sentence per line, of any system.")
    out: Path = option("File to write, in the format of the hypothesis.")
    overwrite: bool = option(
        "Replace an existing file, and discard the unfinished output of another job.", default=False
    )

    @property
    def translation(self) -> TranslationRequest:
        """The request by which `repair` translates: each line of the hypothesis is one sentence."""
        return TranslationRequest(
            run=self.run,
            files=[self.hypothesis],
            out=self.out,
            format=self.format,
            no_split=True,
            overwrite=self.overwrite,
            device=self.device,
            decode=self.decode,
            checkpoint=self.checkpoint,
        )
