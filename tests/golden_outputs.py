"""Golden outputs: what each command prints and writes, on a toy corpus and two runs with fixed weights.

    python -m tests.golden_outputs        (from the repository root; rewrites golden_outputs.json)

Every command runs twice, in two folders; values that differ (times, paths) are kept as `~`. Numbers with a
fraction may differ by a thousandth, as processors round differently. `test_golden_outputs.py` runs the
commands again.
"""

import json
import re
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from cotext.config.recipe import load_config
from cotext.data.documents import ParallelDocument
from cotext.data.formats import read_parallel, write_parallel
from cotext.models import checkpoint as ckpt
from cotext.training.inputs import open_data
from tests.command_line import RECIPE, TINY, WITH_BLEU, Outcome, cotext, prepare_arguments, write_corpus
from tests.tiny_runs import write_run

GOLDEN = Path(__file__).with_suffix(".json")
ANY = "~"  # a value that differs from run to run
TOLERANCE = 1e-3
MACHINE = re.compile(
    r"\d+:\d\d left|[\d.]+ s an update here: [\d.]+ s|[\d.]+ [MG]B at the peak"
    r"|\d+\.\d+\.\d+(\+\w+)?|\w+ \w+, \d+ cores"
)
# Progress: which of these lines are printed, the clock decides.
UNDER_WAY = re.compile(r"[^\d]* (\d+)/(?!\1$)\d+(  \d+:\d\d left)?")
FIXED = (*TINY[:5], "languages=en-de", "decode.max_ratio=1.0", "decode.max_extra=3")
RUNS = {"sent": "focused-concatenation/base", "doc": RECIPE}
QUALITY = (
    *("--hypothesis", "test.de", "--hypothesis", "worse.de"),
    *("--reference", "test.de", "--source", "test.en"),
)
BOTH = ("--source", "test.en", "--target", "test.de")
SET = ("--set", "beam=2")
# By name, in the order in which they run: some use what others wrote.
COMMANDS: dict[str, tuple[str, ...]] = {
    "systems": ("systems", "--json"),
    "info run": ("info", "doc", "--json"),
    "info run, text": ("info", "doc"),
    "info data": ("info", "data", "--json"),
    "info corpus": ("info", "both.jsonl", "--json"),
    "head corpus": ("head", "both.jsonl", "--json"),
    "head data": ("head", "data", "--split", "dev"),
    "convert": ("convert", "test.en", "test.de", "--to", "jsonl", "--out", "converted.jsonl"),
    "convert tmx": ("convert", "both.jsonl", "--to", "docids", "--out", "ids.en", "--out-target", "ids.de"),
    "train": ("train", RECIPE, *TINY, WITH_BLEU, "--data", "data", "--out", "trained"),
    "train again": ("train", RECIPE, *TINY, WITH_BLEU, "--data", "data", "--out", "trained"),
    "train, not JSON": ("train", RECIPE, "--data", "data", "--out", "trained", "--json"),
    "train dry": ("train", RECIPE, *TINY, "--data", "data", "--out", "dry", "--dry-run"),
    "average": ("average", "trained", "--out", "mean", "--checkpoint", "3", "--checkpoint", "6", "--json"),
    "distill": ("distill", "sent", "--data", "data", "--out", "distilled", "--json"),
    "shortlist": ("shortlist", "trained", "--data", "data", "--json"),
    "translate": ("translate", "doc", "test.en", "--out", "t.de", "--json"),
    "translate page": ("translate", "doc", "page.md", "--out", "page.de.md",
                       "--bilingual", "page.html", "--json"),
    "translate n-best": ("translate", "doc", "test.en", "--out", "n.en", *SET, "--set", "nbest=2", "--json"),
    "translate, kept": ("translate", "doc", "test.en", "--out", "t.de"),
    "mbr": ("mbr", "n.en", "--out", "mbr.de", "--json"),
    "evaluate": ("evaluate", *QUALITY, "--json"),
    "evaluate, text": ("evaluate", *QUALITY),
    "evaluate paired": ("evaluate", *QUALITY, "--paired", "--samples", "100", "--protocol", "chrf", "--json"),
    "leaderboard": ("leaderboard", "t.de", "worse.de", "--reference", "test.de", "--source", "test.en",
                    "--out", "l.html", "--samples", "100", "--json"),
    "profile": ("profile", "--hypothesis", "worse.de", "--reference", "test.de", "--json"),
    "score": ("score", "doc", *BOTH, "--json", "--out", "scores.jsonl"),
    "score shard": ("score", "doc", *BOTH, "--out", "parts.jsonl", "--shard", "1/2"),
    "score shard 2": ("score", "doc", *BOTH, "--out", "parts.jsonl", "--shard", "2/2"),
    "join": ("join", "parts.jsonl", "--json"),
    "contrastive": ("contrastive", "doc", "suite.json", "--controls", "--json", "--out", "choices.json"),
    "contrastive, text": ("contrastive", "doc", "suite.json", "--generate"),
    "cxmi": ("cxmi", "doc", *BOTH, "--json", "--out", "cxmi.json"),
    "context": ("context", "doc", "test.en", "--out", "context.html", "--json"),
    "attention": ("attention", "doc", "test.en", "--out", "maps", "--json"),
    "speed": ("speed", "sent", "doc", "--document", "test.en", "--rounds", "1", "--json"),
    "compare": ("compare", "sent", "doc", "--source", "test.en", "--reference", "test.de",
                "--suite", "suite.json", "--out", "compare.html", "--csv", "compare.csv", "--samples", "100",
                "--json"),
    "export int8": ("export", "doc", "--to", "int8", "--out", "int8"),
    "translate int8": ("translate", "int8", "test.en", "--out", "int8.de", "--json"),
    "no run": ("translate", "nowhere", "test.en", "--out", "x.de"),
    "no recipe": ("train", "s4to5", "--data", "data", "--out", "x"),
    "no setting": ("train", RECIPE, "model.encodr=1", "--data", "data", "--out", "x"),
    "no file": ("evaluate", "--hypothesis", "none.de", "--reference", "test.de"),
    "sides differ": ("evaluate", "--hypothesis", "short.de", "--reference", "test.de"),
    "a corpus for a run": ("info", "page.md"),
    "no protocol": ("evaluate", *QUALITY, "--protocol", "blue"),
    "no context": ("cxmi", "sent", *BOTH),
    "not a suite": ("contrastive", "doc", "both.jsonl"),
    "out exists": ("average", "trained", "--out", "data", "--checkpoint", "3"),
    "no parts": ("join", "nothing.jsonl"),
}  # fmt: skip
PAGES = ("page.html", "l.html", "context.html", "compare.html")
WRITTEN = ("t.de", "page.de.md", "mbr.de", "scores.jsonl", "parts.jsonl")
WRITTEN += ("converted.jsonl", "ids.en", "compare.csv")


class _Text(HTMLParser):
    """Text of a page without its style sheets and scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hidden += tag in ("style", "script")

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag in ("style", "script")

    def handle_data(self, data: str) -> None:
        if not self.hidden and data.strip():
            self.lines.append(" ".join(data.split()))


def make_folder(folder: Path) -> None:
    """The corpus, prepared data, and two runs whose weights do not depend on the processor."""
    write_corpus(folder)
    documents = list(read_parallel(folder / "test.en", folder / "test.de", "text"))
    write_parallel(folder / "both.jsonl", None, documents, "jsonl")
    worse = [ParallelDocument(d.id, d.source, tuple(t.split(" ")[0] for t in d.target)) for d in documents]
    write_parallel(folder / "copy.en", folder / "worse.de", worse, "text")
    write_parallel(folder / "less.en", folder / "short.de", worse[:-1], "text")
    lines = [" ".join(documents[0].source), "", f"**{documents[1].source[0]}**"]
    (folder / "page.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert cotext(*prepare_arguments(folder, folder / "data")).code == 0
    tokenizer = open_data(folder / "data").tokenizer
    for name, recipe in RUNS.items():
        config = load_config(recipe, None, list(FIXED))
        run = write_run(folder / name, config, tokenizer)
        weights = load_file(run / "model.safetensors")
        strong = {key: 4 * tensor if tensor.dim() > 1 else tensor for key, tensor in weights.items()}
        ckpt.save_model(run / "model.safetensors", strong, config, tokenizer.fingerprint, [1])


def outputs(folder: Path) -> dict[str, Any]:
    """Exit code, output and messages of every command by name; texts of pages and files by file name."""
    torch.set_num_threads(1)
    make_folder(folder)
    found: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("COLUMNS", "120")
        for name, command in COMMANDS.items():
            found[name] = _plain(cotext(*command))
    for name in PAGES:
        parser = _Text()
        parser.feed((folder / name).read_text(encoding="utf-8"))
        found[name] = parser.lines
    found |= {name: (folder / name).read_text(encoding="utf-8").splitlines() for name in WRITTEN}
    return {name: _anywhere(output) for name, output in found.items()}


def _plain(outcome: Outcome) -> dict[str, Any]:
    try:
        out: Any = json.loads(outcome.out)
    except ValueError:
        out = outcome.out.splitlines()
    messages = [line for line in outcome.err.splitlines() if not UNDER_WAY.fullmatch(line)]
    return {"code": outcome.code, "out": out, "messages": messages}


def _anywhere(output: Any) -> Any:
    """An output without versions, names of machines and speeds."""
    if isinstance(output, dict):
        return {k: ANY if k.startswith("times_as_fast") else _anywhere(v) for k, v in output.items()}
    if isinstance(output, list):
        return [_anywhere(value) for value in output]
    return MACHINE.sub("N", output) if isinstance(output, str) else output


def merged(first: Any, second: Any) -> Any:
    """What two runs have in common, with `~` for what differs."""
    if isinstance(first, dict) and isinstance(second, dict) and first.keys() == second.keys():
        return {key: merged(value, second[key]) for key, value in first.items()}
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        return [merged(*pair) for pair in zip(first, second, strict=True)]
    if isinstance(first, str) and isinstance(second, str):
        words = first.split(" "), second.split(" ")
        if len(words[0]) == len(words[1]):
            return " ".join(a if a == b else ANY for a, b in zip(*words, strict=True))
    return first if first == second and type(first) is type(second) else ANY


def differences(kept: Any, found: Any, place: str = "") -> list[str]:
    """Places where an output is not the kept one."""
    if kept in (ANY, found):
        return []
    if isinstance(kept, dict) and isinstance(found, dict):
        keys = sorted({*kept, *found})
        lists = [differences(kept.get(key), found.get(key), f"{place}/{key}") for key in keys]
    elif isinstance(kept, list) and isinstance(found, list) and len(kept) == len(found):
        lists = [differences(*pair, f"{place}/{n}") for n, pair in enumerate(zip(kept, found, strict=True))]
    elif isinstance(kept, str) and isinstance(found, str) and len(_words(kept)) == len(_words(found)):
        words = zip(_words(kept), _words(found), strict=True)
        lists = [[f"{place}: {kept!r}, now {found!r}"] if any(not _same_word(*w) for w in words) else []]
    elif isinstance(kept, float | int) and isinstance(found, float | int) and _close(kept, found):
        lists = []
    else:
        lists = [[f"{place}: {kept!r}, now {found!r}"]]
    return [each for some in lists for each in some]


def _words(text: str) -> list[str]:
    """Words, and the cells of a CSV file; thousands are not split."""
    return re.split(r"\s+|(?<!\d),|,(?!\d{3}(?!\d))", text)


def _same_word(kept: str, found: str) -> bool:
    if kept == found or ANY in kept:
        return True
    try:
        return "." in kept and _close(float(kept.strip("%(),;")), float(found.strip("%(),;")))
    except ValueError:
        return False


def _close(kept: float, found: float) -> bool:
    return abs(kept - found) <= TOLERANCE * max(1, abs(kept))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory(prefix="a-long-name") as other:
        both = merged(outputs(Path(one)), outputs(Path(other)))
    GOLDEN.write_text(json.dumps(both, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.stdout.write(f"{len(both)} outputs\n")
