"""Reading and writing of corpora in eight formats, document by document; .xz and .gz are decompressed."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Final

from cotext.data.documents import (
    Document,
    Languages,
    ParallelDocument,
    language_of_name,
    languages_of_names,
    primary_language,
)
from cotext.data.formats import line_formats, streams, wmt, xml_formats
from cotext.data.formats.streams import (
    OUTER_SPACE,
    Record,
    Side,
    atomic_sinks,
    check_readable,
    id_to_write,
    refuse,
)
from cotext.runtime import CotextError, naming, nearest, parse_json, shown

# --- The table of formats: readers, writers and properties.

# Suffixes of common formats that Cotext cannot write.
UNWRITTEN: Final = frozenset(
    (".pdf", ".doc", ".rtf", ".xls", ".ods", ".ppt", ".odp", ".pages", ".mobi", ".zip")
)
NOT_CORPORA: Final = frozenset((".htm", ".html", ".xhtml", ".md", ".markdown", ".po", ".pot"))


@dataclass(frozen=True, slots=True)
class Format:
    """One corpus format: its reader, its writer and its properties.

    `encode` returns the text of one document, or is None for a format that is only read. `header`, `between`
    and `footer` surround the documents. `holds_empty_sentences`: documents may have them at any place.
    `languages` reads the codes of source and target from a file; a missing code is empty.
    """

    name: str
    read: Callable[[Path], Iterator[Record]]
    encode: Callable[[Record], str] | None = None
    header: str = ""
    between: str = ""
    footer: str = ""
    carries_ids: bool = True
    holds_both_languages: bool = True
    neighbours_need_different_ids: bool = False
    holds_empty_sentences: bool = True
    languages: Callable[[Path], tuple[str, str]] | None = None

    def require_written(self) -> None:
        """Raise CotextError if this format cannot be written."""
        if self.encode is None:
            written = ", ".join(name for name, row in FORMATS.items() if row.encode)
            raise CotextError(
                f"the format {self.name} can be read, but not written; choose one of {written} "
                "(`cotext convert FILE --to jsonl --out NEW` makes a copy in another format)"
            )


def check_output(out: Path, inputs: Iterable[Path]) -> None:
    """Raise CotextError if an output cannot be written as a new file, or is an input."""
    require_written(out)
    folder = out.absolute().parent
    if out.is_dir():
        raise CotextError(f"{out}: is a folder; --out must be a file")
    if not folder.is_dir():
        problem = "is not a folder" if folder.exists() else "does not exist; create it first"
        raise CotextError(f"{out}: {folder} {problem}")
    if out.exists() and not out.is_file():
        raise CotextError(f"{out}: is not a regular file; choose another --out")
    streams.refuse_input(out, inputs)


FORMATS = {
    row.name: row
    for row in (
        Format(
            "text",
            line_formats.read_text,
            line_formats.encode_text,
            between="\n",
            carries_ids=False,
            holds_both_languages=False,
            holds_empty_sentences=False,
        ),
        Format(
            "docids",
            line_formats.read_docids,
            lambda record: "\n".join(streams.sentences_to_write(record)) + "\n",
            between="\n",
            holds_both_languages=False,
        ),
        Format(
            "d-lines",
            line_formats.read_d_lines,
            line_formats.encode_d_lines,
            carries_ids=False,
            holds_both_languages=False,
        ),
        Format("wmt-xml", xml_formats.read_wmt_xml, languages=xml_formats.languages_of_wmt_xml),
        Format(
            "tmx",
            xml_formats.read_tmx,
            xml_formats.encode_tmx,
            header=xml_formats.HEADER,
            footer=xml_formats.FOOTER,
            languages=xml_formats.languages_of_tmx,
            neighbours_need_different_ids=True,
        ),
        Format("tsv", line_formats.read_tsv, line_formats.encode_tsv, neighbours_need_different_ids=True),
        Format("jsonl", line_formats.read_jsonl, line_formats.encode_jsonl),
        Format("wmt", wmt.read_wmt, wmt.encode_wmt, languages=wmt.languages_of_wmt),
    )
}


def find_format(name: str) -> Format:
    """Return a format by name; raises CotextError with the nearest known name.

    `wmt:de_DE` and `wmt:cs-de_DE` select the format `wmt`, and only the documents of this language or pair.
    """
    if name in FORMATS:
        return FORMATS[name]
    kind, _, languages = name.partition(":")
    if kind == "wmt" and languages:
        return replace(
            FORMATS[kind],
            read=partial(wmt.read_wmt, wanted=languages),
            languages=partial(wmt.languages_of_wmt, wanted=languages),
        )
    near = nearest(kind, FORMATS)
    hint = f"did you mean {near[0]}? " if near else ""
    raise CotextError(f"unknown corpus format {shown(name)}: {hint}known formats: {', '.join(FORMATS)}")


def require_written(out: Path) -> None:
    """Raise CotextError if the suffix of an output belongs to a format that cannot be written."""
    if out.suffix.lower() in UNWRITTEN:
        raise CotextError(f"{out}: ends in {out.suffix}, a format that is not written; choose another name")


# --- Detection of corpus formats by the beginning of the content and by side files.

BEGINNING_BYTES = 1 << 18
_TALK_BEGINNING = re.compile(r"(?:<doc\s[^<>]*>\s*)?<(?:url>\s*https?:|talkid>)")
_OBJECT_BEGINNING = re.compile(r'\{\s*"')
_KEY = re.compile(r'"(?:\w*id|source|target|sentences)"\s*:')  # a key of a corpus in JSON
_CATALOGUE_BEGINNING = re.compile(r'[\[{]$|\{\s*"|\[\s*["\[{]')
_OF_SENTENCES = re.compile("[ ，。！？]")  # characters that sentences have, but not ids
_NUMBER = re.compile(r"\s*-?[0-9.]+(e-?[0-9]+)?\s*", re.IGNORECASE)  # such as a score of the pair
# Text files that are refused, because their markup would be translated.
CATALOGUES = (
    dict.fromkeys((".json", ".arb", ".ipynb"), "JSON")
    | dict.fromkeys((".yaml", ".yml"), "YAML")
    | {".properties": "Java properties", ".strings": "Apple strings", ".csv": "CSV"}
    | {".tex": "LaTeX", ".rst": "reStructuredText", ".adoc": "AsciiDoc"}
)


def detect_format(path: Path) -> str:
    """Return the name of the format, from the first 256 KiB of content; the default is `text`.

    Rules in order: jsonl or wmt (a JSON object on line 1), d-lines (`<d>`), docids (a side file), tmx or
    wmt-xml (the root element), tsv (one or two tabs in every line).

    Raises CotextError for a missing, empty or irregular file (a pipe can be read only once), and for markup,
    subtitles and binary files.
    """
    check_readable(path)
    if not path.is_file():
        raise CotextError(f"{path}: not a regular file, so its format cannot be detected; name the format")
    head, complete = streams.beginning(path, BEGINNING_BYTES)
    refuse(path, streams.binary_kind(head))
    # Only TMX may be UTF-16; the other readers refuse it.
    text = head.decode("utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8", errors="replace")
    lines = [line.strip("\r") for line in text.split("\n")]
    if not complete and len(lines) > 1:
        lines.pop()
    first = next((line.strip(OUTER_SPACE) for line in lines if line.strip(OUTER_SPACE)), "")
    if not first and complete:
        raise CotextError(f"{path}: is empty; a corpus has at least one sentence")
    kind = CATALOGUES.get(path.suffix.lower(), "")
    if _is_object(first, complete or len(lines) > 1) and (kind != "JSON" or _KEY.search(first)):
        return "wmt" if wmt.begins_wmt(first) else "jsonl"
    if kind and (kind != "JSON" or _CATALOGUE_BEGINNING.match(first)):
        refuse(path, f"{kind} (a catalogue of strings, a table or a manual)")
    if _TALK_BEGINNING.match(text.lstrip()):
        refuse(path, "a training file of IWSLT (train.tags)")
    if first == line_formats.DOCUMENT_LINE:
        return "d-lines"
    root = streams.markup_root(text) if first.startswith("<") else ""
    is_document = root in streams.CORPUS_ROOTS or (root and first.startswith(("<?", "<!")))
    if not is_document and line_formats.find_side_file(path) is not None:
        return "docids"  # a sentence may begin with a tag or a comment
    if root == "tmx" or root in streams.CORPUS_ROOTS:
        return "tmx" if root == "tmx" else "wmt-xml"
    if root:
        refuse(path, streams.MARKUP.get(root, f"XML with the root element <{root[:40]}>"))
    refuse(path, streams.subtitle_kind(lines))
    if lines[-1] == "":
        lines.pop()
    rows = [line.split("\t") for line in lines]
    columns, ids = {len(row) for row in rows}, [row[0].strip() for row in rows]
    is_table = columns == {2} or (columns == {3} and all(_NUMBER.fullmatch(row[2]) for row in rows))
    if is_table and 2 * sum(map(bool, map(_OF_SENTENCES.search, ids))) > len(ids):
        refuse(path, "a table of sentences and translations, without document ids")
    if columns in ({2}, {3}) and all(ids):
        return "tsv"
    return "text"


def is_corpus(path: Path) -> bool:
    """Return whether a file has a corpus format; False for folders and missing files.

    Web pages, Markdown and message catalogues do not count, although they may look like plain text.
    """
    if path.is_dir() or path.suffix.lower() in NOT_CORPORA:
        return False
    try:
        detect_format(path)
    except CotextError:
        return False
    return True


def format_in(path: Path, format: str | None, language: str | None) -> str:
    """Return the name of the format of a file; for WMT files including the requested language."""
    name = format or detect_format(path)
    return f"{name}:{language}" if name == "wmt" and language else name


def _is_object(line: str, whole: bool) -> bool:
    if not whole:
        return _OBJECT_BEGINNING.match(line) is not None
    try:
        return isinstance(parse_json(line, "", numbers=False), dict)
    except CotextError:
        # A truncated object is not a sentence; the reader will report the error.
        return re.match(r'\{\s*"(id|source|target|sentences)"\s*:', line) is not None


# --- Reading and writing.

UNEQUAL: Final = (
    "every source sentence needs exactly one target sentence (`prepare --skip-unequal` skips such documents)"
)


def read_documents(path: Path, format: str | None = None, side: Side = "source") -> Iterator[Document]:
    """Read the documents of one language, one at a time.

    `side` selects the language of files with two languages. Documents without ids are numbered from 1.

    Raises CotextError, with the line, if the file is missing, empty, not UTF-8 or malformed. A missing file
    and an unknown format are reported at once, other errors during iteration.
    """
    records = _side_records(path, _resolve(path, format), side)
    return (Document(record.id, record.sentences or ()) for record in records)


def languages_of_files(source: Path, target: Path | None, format: str | None) -> Languages:
    """Return the language pair in the names of two files, or inside a file with both languages.

    Two names with the same language give this language twice. A file with both sides has an unknown pair
    unless it names two different languages.

    Raises CotextError if the reader of the format raises an error.
    """
    if target is not None and (code := language_of_name(source)) == language_of_name(target):
        return Languages(code, code)
    if target is not None or not source.is_file():
        return languages_of_names(source, target)
    read = find_format(format or detect_format(source)).languages
    codes = [primary_language(code) for code in (read(source) if read else ())]
    are_codes = all(re.fullmatch("[a-z]{2,3}", code) for code in codes)
    return Languages(*codes) if are_codes and len(set(codes)) == 2 else Languages()


def located_documents(path: Path, format: str | None) -> Iterator[tuple[Document, Callable[[int], str]]]:
    """Like `read_documents`, but each document has a function that returns the location of a sentence.

    The sentence is counted from 0. The location is file and line for messages, with the number of the
    sentence if several share a line.
    """
    for record in _side_records(path, _resolve(path, format), "source"):
        yield Document(record.id, record.sentences or ()), partial(_location, path, record)


def _location(path: Path, record: Record, sentence: int) -> str:
    within = "" if record.lines_per_sentence else f" (document {record.id!r}, sentence {sentence + 1})"
    return f"{path}:{record.line + sentence * record.lines_per_sentence}{within}"


def read_parallel(
    source: Path, target: Path | None, format: str | None = None, skipped: list[str] | None = None
) -> Iterator[ParallelDocument]:
    """Read two parallel files, or one file with both languages (`target` is None).

    If `skipped` is given, documents with unequal numbers of sentences are skipped, and their ids added to it.

    Raises CotextError if the numbers of documents or sentences differ, or the ids if both files have ids;
    also the errors of `read_documents`.
    """
    source_format, doubt = _resolve(source, format), ""
    if target is None:
        if not source_format.holds_both_languages:
            raise CotextError(
                f"{source}: files of the format {source_format.name} have one language; name the target "
                "file, too"
            )
        pairs = _pairs_of_one_file(source, source_format)
    else:
        target_format = _resolve(target, format)
        if source_format is not target_format:
            doubt = (
                f" (the source was read as {source_format.name}, the target as {target_format.name}; name "
                "the format if that is wrong)"
            )
        pairs = _pairs_of_two_files(source, source_format, target, target_format, doubt)
    return _of_equal_sides(pairs, skipped, doubt)


def second_file(source: Path, target: Path | None) -> Path | None:
    """Return the second argument for `read_parallel`: None if the target file is the source file."""
    same = target in (None, source) or (target.exists() and source.exists() and target.samefile(source))
    return None if same else target


# A document whose sides may be unequal: its location, id, source and target.
_Pair = tuple[str, str, tuple[str, ...], tuple[str, ...]]


def _of_equal_sides(
    pairs: Iterable[_Pair], skipped: list[str] | None, doubt: str
) -> Iterator[ParallelDocument]:
    for where, name, source, target in pairs:
        if len(source) == len(target):
            yield ParallelDocument(name, source, target)
        elif skipped is not None:
            skipped.append(name)
        else:
            raise CotextError(
                f"{where}: document {name!r} has {len(source)} source sentences but {len(target)} target "
                f"sentences; {UNEQUAL}{doubt}"
            )


def _pairs_of_one_file(path: Path, format: Format) -> Iterator[_Pair]:
    for record in checked_records(path, format):
        source, target = record.source, record.target
        if source is None or target is None:
            missing = "target" if source is not None else "source" if target is not None else "second"
            raise CotextError(
                f"{path}:{record.line}: document {record.id!r} has no {missing} side; a parallel corpus "
                "needs both languages"
            )
        yield f"{path}:{record.line}", record.id, source, target


def _pairs_of_two_files(
    source: Path, source_format: Format, target: Path, target_format: Format, doubt: str
) -> Iterator[_Pair]:
    sources = _side_records(source, source_format, "source")
    targets = _side_records(target, target_format, "target")
    both_have_ids = source_format.carries_ids and target_format.carries_ids
    for order, (first, second) in enumerate(zip_longest(sources, targets), 1):
        if first is None or second is None:
            ended, longer, record = (target, source, first) if second is None else (source, target, second)
            more = sum(1 for _ in (sources if second is None else targets)) + 1
            raise CotextError(
                f"{longer} has {order - 1 + more} documents but {ended} has only {order - 1}; the first "
                f"without partner is document {record.id!r} at {longer}:{record.line}{doubt}"
            )
        where = f"{source}:{first.line} and {target}:{second.line}"
        if both_have_ids and first.id != second.id:
            raise CotextError(
                f"{where}: document number {order} is {first.id!r} in the source but {second.id!r} in the "
                f"target; both files need the same documents in the same order{doubt}"
            )
        known = second if target_format.carries_ids and not source_format.carries_ids else first
        yield where, known.id, first.sentences or (), second.sentences or ()


def checked_records(path: Path, format: Format) -> Iterator[Record]:
    """Read records; raises CotextError for empty documents, and for a file without documents."""
    record = None
    for record in format.read(path):
        if not (record.sentences or record.source or record.target):
            raise CotextError(f"{path}:{record.line}: document {record.id!r} is empty; remove it")
        yield record
    if record is None:
        raise CotextError(f"{path}: has no documents; a corpus has at least one sentence")


def _side_records(path: Path, format: Format, side: Side) -> Iterator[Record]:
    for record in checked_records(path, format):
        sentences = record.side(side)
        if not sentences:
            raise CotextError(
                f"{path}:{record.line}: document {record.id!r} has no {side} sentences, only the other side"
            )
        yield Record(record.id, record.line, record.lines_per_sentence, sentences)


def _resolve(path: Path, format: str | None) -> Format:
    check_readable(path)
    return find_format(detect_format(path) if format is None else format)


def write_documents(path: Path, documents: Iterable[Document], format: str) -> tuple[int, int]:
    """Write documents of one language; the file appears when all are written.

    Returns the numbers of documents and sentences. For the format docids, a side file is also written. In
    tsv, there are two columns; in jsonl and wmt, the keys are `sentences` and `hypothesis`. Raises
    CotextError for content that the format cannot represent, for no documents, and for storage errors.
    """
    return _write(find_format(format), [path], ((Record(d.id, sentences=d.sentences),) for d in documents))


def write_parallel(
    source: Path,
    target: Path | None,
    documents: Iterable[ParallelDocument],
    format: str,
    languages: tuple[str, str] | None = None,
) -> tuple[int, int]:
    """Write two files, or one file if the format contains both languages (`target` is None).

    `languages` become the `lang` attributes of tmx. Returns and raises the same as `write_documents`.
    """
    row = find_format(format)
    if row.holds_both_languages:
        if target is not None:
            raise CotextError(
                f"the format {format} contains both languages in one file; remove the target file {target}"
            )
        both = ((Record(d.id, source=d.source, target=d.target),) for d in documents)
        return _write(row, [source], both, languages)
    if target is None:
        raise CotextError(f"files of the format {format} contain one language; name the target file, too")
    sides = ((Record(d.id, sentences=d.source), Record(d.id, sentences=d.target)) for d in documents)
    return _write(row, [source, target], sides)


def write_translations(
    path: Path, documents: Iterable[ParallelDocument], format: str, languages: tuple[str, str] | None = None
) -> None:
    """Write translations in the format of the translated file; the target is the hypothesis.

    Formats of one language contain only the hypothesis; other formats contain source and hypothesis.
    `read_documents` with side "target" returns the hypotheses in both cases. Raises the same errors as
    `write_documents`.
    """
    if find_format(format).holds_both_languages:
        write_parallel(path, None, documents, format, languages)
    else:
        write_documents(path, (Document(d.id, d.target) for d in documents), format)


def _write(
    row: Format,
    paths: list[Path],
    documents: Iterable[tuple[Record, ...]],
    languages: tuple[str, str] | None = None,
) -> tuple[int, int]:
    """Write the i-th record of every tuple to the i-th path, and side files if the format has them."""
    row.require_written()
    assert row.encode is not None
    encode = partial(xml_formats.encode_tmx, languages=languages) if row.name == "tmx" else row.encode
    side_paths = dict.fromkeys(map(line_formats.side_file_to_write, paths)) if row.name == "docids" else {}
    # Side files (document ids) of other texts are kept, and must match.
    others = {path: line_formats.other_text(path, paths) for path in side_paths if path.exists()}
    kept = {path: (other, line_formats.read_side_file(path)) for path, other in others.items() if other}
    previous: str | None = None
    written = sentences = 0
    with atomic_sinks([*paths, *(path for path in side_paths if path not in kept)]) as sinks:
        for records in documents:
            document_id = records[0].id
            if not (records[0].sentences or records[0].source):
                raise CotextError(f"document {document_id!r} is empty and cannot be written; leave it out")
            if row.neighbours_need_different_ids and document_id == previous:
                raise CotextError(
                    f"two documents in a row have the id {document_id!r}, which the format {row.name} "
                    "cannot distinguish; rename one or write jsonl instead"
                )
            try:
                for sink, record in zip(sinks, records, strict=False):
                    opening = row.header if previous is None else row.between
                    with naming(sink.path):
                        sink.write(opening + encode(record))
                for sink in sinks[len(paths) :]:
                    sink.write(f"{id_to_write(records[0])}\t{len(records[0].sentences or ())}\n")
            except UnicodeEncodeError:
                raise CotextError(
                    f"{sink.path}: document {document_id!r} has half a character (a lone surrogate), "
                    "which UTF-8 cannot write; remove it"
                ) from None
            _check_kept(kept, (document_id, len(records[0].sentences or ())))
            previous, written = document_id, written + 1
            sentences += len(records[0].sentences or records[0].source or ())
        if previous is None:
            raise CotextError(f"{paths[0]}: there are no documents to write; the file is unchanged")
        for sink in sinks[: len(paths)]:
            sink.write(row.footer)
        _check_kept(kept, None)
    return written, sentences


def _check_kept(
    kept: Mapping[Path, tuple[Path, Iterator[tuple[int, str, int]]]], expected: tuple[str, int] | None
) -> None:
    """Raise CotextError unless the next document of each side file is as expected; None: there is no next."""
    for path, (other, documents) in kept.items():
        found = next(documents, None)
        if (found and found[1:]) != expected:
            raise CotextError(
                f"{path}, the side file of {other}, lists different documents; choose an output name that "
                "begins differently"
            )
