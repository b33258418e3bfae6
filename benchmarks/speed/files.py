"""What reading and writing a file costs beside its translation, on the CPU in fp32.

    python -m benchmarks.speed.files FILE... [--run RUN] [--size small] [--sentences 200]

Files of any format of `cotext translate`; without any, a page of 10 MB and, where python-docx is installed, a
letter of 300 pages are made. `read` opens a file and cuts it into sentences, `write` puts other text in their
places, `place` projects inner elements by alignment, on the sentences translated. The first sentences of the
file are translated, and the rest is taken to cost as much by its characters. Without a run, weights are
random, and every output is as long as its source, in tokens: a translation that does not run away.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import torch

from benchmarks.speed.harness import apply, parser, table
from benchmarks.speed.systems import SIZES, config_of
from cotext.config.recipe import dump_config
from cotext.data.splitting import Splitter
from cotext.data.tokenizer import TokenizerSettings, train_tokenizer
from cotext.files.blocks import Block, Contents
from cotext.files.translate_blocks import BlockDocuments
from cotext.files.translate_files import format_of
from cotext.models.build import build_model
from cotext.models.checkpoint import save_model
from cotext.runtime.timing import Clock
from cotext.translation.open import OpenedRun, open_run

SYSTEM = "focused-concatenation/s4to4"
WORDS = [
    "the",
    "table",
    "was",
    "new",
    "it",
    "was",
    "expensive",
    "anna",
    "bought",
    "a",
    "lamp",
    "and",
    "she",
    "liked",
    "it",
    "very",
    "much",
    "today",
]
PAGE_BYTES = 10_000_000
PARAGRAPHS = 300 * 9  # of about fifty words, nine a page


def main() -> None:
    """Make or take files, and print a table."""
    options_of = parser(__doc__, 1)
    options_of.add_argument("files", nargs="*", type=Path)
    options_of.add_argument("--run", type=Path)
    options_of.add_argument("--size", choices=sorted(SIZES), default="small")
    options_of.add_argument("--sentences", type=int, default=200)
    options = options_of.parse_args()
    clock = apply(options)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        files = options.files or list(made(Path(folder)))
        run = options.run or fresh_run(Path(folder) / "run", options.size)
        opened = open_run(run, "cpu", {"beam": 1, "max_ratio": 1.0, "max_extra": 0})
        torch.set_num_threads(options.threads)
        rows = [row(opened, file, options.sentences, clock) for file in files]
    head = ["file", "MB", "sentences", "read s", "write s", "place s", "translate s", "read and write"]
    table(head, rows)


def row(opened: OpenedRun, path: Path, count: int, clock: Clock) -> list[str]:
    """The seconds of one file."""
    format = format_of(path)
    assert not isinstance(format, str), f"{path} is a corpus"
    start = clock()
    file = format.open(path.read_bytes(), str(path))
    texts = BlockDocuments(opened, file.contents, Splitter("en"))
    read = clock() - start
    whole = [sentence for document in texts.documents for sentence in document.sentences]
    sample = BlockDocuments(opened, Contents(list(beginning(file.contents, count))), Splitter("en"))
    start = clock()
    found = dict(opened.translator.translate(sample.documents))
    translating = clock() - start
    start = clock()
    sample.blocks(found)
    placing = clock() - start
    other = [[other_text(block) for block in blocks] for blocks in file.contents.documents]
    start = clock()
    file.written(other)
    write = clock() - start
    scale = sum(map(len, whole)) / sum(len(s) for document in sample.documents for s in document.sentences)
    share = (read + write) / (scale * translating)
    figures = (read, write, scale * placing, scale * translating)
    megabytes = f"{path.stat().st_size / 1e6:.1f}"
    return [
        path.name,
        megabytes,
        f"{len(whole):,}",
        *(f"{seconds:.1f}" for seconds in figures),
        f"{share:.1%}",
    ]


def beginning(contents: Contents, sentences: int) -> Iterator[list[Block]]:
    """The first blocks of a file, about so many sentences."""
    left = sentences
    for blocks in contents.documents:
        taken = []
        for block in blocks:
            left -= len(Splitter("en").spans(block.text))
            taken.append(block)
            if left <= 0:
                break
        yield taken
        if left <= 0:
            return


def other_text(block: Block) -> Block:
    """A block with other letters of the same length."""
    pieces = tuple(piece.swapcase() if isinstance(piece, str) else piece for piece in block.pieces)
    return replace(block, pieces=pieces)


def fresh_run(folder: Path, size: str) -> Path:
    """A run of random weights, whose special symbols are never written unasked."""
    config = config_of(SYSTEM, size)
    # All of its words, however small the text: a small output layer translates faster.
    tokenizer = train_tokenizer(list(sentences(4000)), TokenizerSettings(num_threads=1))
    folder.mkdir()
    tokenizer.save(folder / "tokenizer")
    (folder / "config.yaml").write_text(dump_config(config), encoding="utf-8")
    torch.manual_seed(0)
    model = build_model(config, tokenizer.vocabulary_size)
    with torch.no_grad():
        model.output_weight[tokenizer.pieces :] = 0
    save_model(folder / "model.safetensors", model.state_dict(), config, tokenizer.fingerprint, [1])
    return folder


def sentences(count: int) -> Iterator[str]:
    """Sentences of words, as in the files that are made."""
    for number in range(count):
        words = [WORDS[(number * 7 + place * place) % len(WORDS)] for place in range(8 + number % 9)]
        yield f"{' '.join(words).capitalize()}."


def made(folder: Path) -> Iterator[Path]:
    """The page and the letter."""
    text = sentences(10**9)
    parts = ["<!DOCTYPE html><html><head><title>A page</title></head><body>"]
    size = 0
    while size < PAGE_BYTES:
        first, second, third = next(text), next(text), next(text)
        parts.append(f'<p>{first} <b>{second}</b> <a href="https://example.org/x?y=1">{third}</a></p>\n')
        size += len(parts[-1])
    page = folder / "page.html"
    page.write_text("".join([*parts, "</body></html>"]), encoding="utf-8")
    yield page
    try:
        docx = import_module("docx")
    except ImportError:
        return
    letter = docx.Document()
    for _ in range(PARAGRAPHS):
        paragraph = letter.add_paragraph(f"{next(text)} {next(text)} ")
        paragraph.add_run(next(text)).bold = True
        paragraph.add_run(f" {next(text)}")
    letter.save(str(folder / "letter.docx"))
    yield folder / "letter.docx"


if __name__ == "__main__":
    main()
