"""Decoding time of several runs on the same documents, side by side (Yu et al. 2024, table 3).

Every run is timed with greedy search and with its own beam, in two settings. `one`: one document at a time.
`many`: all documents in batches of `decode.max_tokens`. A sentence system is also timed one sentence at a
time. All runs decode with caches, so the speed-up of non-autoregressive decoding is relative to fair rivals.
Ratios compare times of the same round, because noise changes between rounds; their median is reported.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, product
from typing import Any, Final

import torch

from cotext.data.documents import Document
from cotext.data.formats import read_documents
from cotext.evaluation.requests import SpeedRequest
from cotext.evaluation.studies.context.context_use import translated
from cotext.runtime import CotextError
from cotext.runtime.progress import CLOCKS, Clock, Meter, spread
from cotext.runtime.rendering import render_rows
from cotext.translation.open import OpenedRun, open_run

SETTINGS: Final = {"one": "a document at a time", "many": "documents side by side"}
CLOCK_NAMES: Final = {"cpu": "processor time", "wall": "wall-clock time"}
FORM = "{:.3g}"
WARM_UP = 2  # sentences of the first document that are translated before timing
Work = Callable[[Sequence[Document]], list[Document]]  # translates documents
Encode = Callable[[Sequence[str]], Sequence[Sequence[int]]]  # returns the tokens of target sentences


@dataclass(frozen=True, slots=True)
class Way:
    """A run and its decoding settings; `left_to_right`: whether the model is autoregressive."""

    name: str
    signature: str
    left_to_right: bool
    work: Work
    encode: Encode


@dataclass(frozen=True, slots=True)
class TimedWay:
    """The times of a `Way` in one setting: seconds per document for each round, and the tokens written.

    `faster`: the time of the first way divided by that of this way. `than_rival`: the same for the fastest
    autoregressive way instead of the first.
    """

    way: Way
    seconds: tuple[float, ...]
    tokens: int
    faster: tuple[float, ...]
    than_rival: tuple[float, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "way": self.way.name,
            "signature": self.way.signature,
            "left_to_right": self.way.left_to_right,
            "seconds_a_document": list(self.seconds),
            "median": statistics.median(self.seconds),
            "tokens_written": self.tokens,
            "times_as_fast_as_the_first": statistics.median(self.faster),
            "times_as_fast_as_the_fastest_left_to_right": (
                statistics.median(self.than_rival) if self.than_rival else None
            ),
        }


@dataclass(frozen=True, slots=True)
class Speed:
    """Decoding times by setting, and notes on missing values."""

    documents: int
    sentences: int
    rounds: int
    clock: str
    device: str
    threads: int
    timed: dict[str, tuple[TimedWay, ...]]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        conditions = ("documents", "sentences", "rounds", "clock", "device", "threads")
        return {
            "format": "cotext-speed",
            "version": 1,
            **{name: getattr(self, name) for name in conditions},
            "settings": {name: [timed.as_dict() for timed in ways] for name, ways in self.timed.items()},
            "notes": list(self.notes),
        }

    def render(self) -> str:
        """Format a table for each setting: the median, with the smallest and the largest of the rounds."""
        parts = []
        for setting, ways in self.timed.items():
            first = ways[0].way.name
            rival = _fastest({timed.way.name: timed.seconds for timed in ways if timed.way.left_to_right})
            head = ["", "seconds a document", "tokens", f"times as fast as {first}"]
            rows = [
                [timed.way.name, spread(timed.seconds, FORM), f"{timed.tokens:,}", spread(timed.faster, FORM)]
                for timed in ways
            ]
            if rival is not None and rival != first:
                head.append(f"as {rival}")
                for row, timed in zip(rows, ways, strict=True):
                    row.append(spread(timed.than_rival, FORM))
            parts.append(f"{SETTINGS[setting]}\n{render_rows([head, *rows], left=1)}")
        recipe = (
            f"documents:{self.documents}|sentences:{self.sentences}|rounds:{self.rounds}|"
            f"clock:{CLOCK_NAMES[self.clock]}|device:{self.device}|threads:{self.threads}"
        )
        every = (timed.way for ways in self.timed.values() for timed in ways)
        signatures = dict.fromkeys(f"{way.name}: {way.signature}" for way in every)
        return "\n\n".join([*parts, "\n".join([*self.notes, recipe, *signatures])])


def measure_speed(request: SpeedRequest, progress: Meter) -> Speed:
    """Time runs on documents, in turn, and compare every other run with the first.

    Raises CotextError if a run or device is missing; if a run rejects a document, or the documents have no
    words; or if processor time is to be measured on a GPU.
    """
    documents = list(islice(read_documents(request.document, request.format), request.documents))
    decode, rounds, threads = dict(request.decode), request.rounds, request.threads
    opened = [open_run(run, request.device, decode, threads=threads) for run in request.runs]
    device = opened[0].translator.device
    clock = request.clock or ("wall" if device.type == "cuda" else "cpu")
    if clock == "cpu" and device.type == "cuda":
        raise CotextError("--clock cpu does not include the time of a GPU: choose wall, or --device cpu")
    for run in opened:
        run.translator.check(documents)
        if not any(any(run.translator.tokenizer.encode_batch(d.sentences)) for d in documents):
            raise CotextError("the documents have no words; there is nothing to time")
    selected = [name for name in SETTINGS if name in (request.setting or SETTINGS)]
    settings = [name for name in selected if name == "one" or len(documents) > 1] or ["one"]
    ways = list(_ways(opened, decode))
    progress.restart(len(settings) * len(ways) * (rounds + 1))
    timed = {
        name: _time_ways(name, ways, documents, rounds, _clock(clock, device), progress.advance)
        for name in settings
    }
    return Speed(
        documents=len(documents),
        sentences=sum(map(len, documents)),
        rounds=rounds,
        clock=clock,
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        threads=threads,
        timed=timed,
        notes=tuple(_notes(opened, ways)),
    )


def _clock(name: str, device: torch.device) -> Clock:
    def when_done() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return when_done if device.type == "cuda" else CLOCKS[name]


def _ways(runs: Sequence[OpenedRun], decode: dict[str, Any]) -> Iterator[Way]:
    """Yield all ways of all runs in order; runs with the same name are distinguished by number."""
    names = [run.folder.resolve().name for run in runs]
    for number, (name, run) in enumerate(zip(names, runs, strict=True), 1):
        title = name if names.count(name) == 1 else f"{name} ({number})"
        left_to_right = run.loaded.writes_left_to_right
        beam = run.config.decode.beam
        greedy = "greedy" if left_to_right else "best path"
        variants = {greedy: {"beam": 1}}
        if run.config.view.kind == "sentence":
            variants[f"{greedy}, one by one"] = {"beam": 1, "max_tokens": 1}
        if beam > 1:
            variants[f"beam {beam}"] = {"beam": beam}
        for what, settings in variants.items():
            changed = run.with_decode({**decode, **settings})
            work = partial(translated, changed.translator)
            encode = partial(run.translator.tokenizer.encode_batch, side="target")
            yield Way(f"{title}, {what}", changed.signature, left_to_right, work, encode)


def _time_ways(
    setting: str,
    ways: Sequence[Way],
    documents: Sequence[Document],
    rounds: int,
    clock: Clock,
    on_way: Callable[[int], None],
) -> tuple[TimedWay, ...]:
    """Time all ways in one setting; a short document is translated first as warm-up."""
    short = Document(documents[0].id, documents[0].sentences[:WARM_UP])
    tokens: dict[str, int] = {}

    batches = [documents] if setting == "many" else [[document] for document in documents]
    for way in ways:
        way.work([short])
        on_way(1)
    seconds: dict[str, list[float]] = {way.name: [] for way in ways}
    for _, way in product(range(rounds), ways):
        before = clock()
        written = [translation for batch in batches for translation in way.work(batch)]
        if way.name not in tokens:
            tokens[way.name] = sum(len(ids) for document in written for ids in way.encode(document.sentences))
        on_way(1)
        seconds[way.name].append((clock() - before) / len(documents))
    rival = _fastest({way.name: seconds[way.name] for way in ways if way.left_to_right})

    def ratios(name: str, to: str) -> tuple[float, ...]:
        return tuple(a / b for a, b in zip(seconds[name], seconds[to], strict=True))

    return tuple(
        TimedWay(
            way,
            tuple(seconds[way.name]),
            tokens[way.name],
            ratios(ways[0].name, way.name),
            () if rival is None else ratios(rival, way.name),
        )
        for way in ways
    )


def _fastest(seconds: dict[str, Sequence[float]]) -> str | None:
    return min(seconds, key=lambda name: statistics.median(seconds[name]), default=None)


def _notes(runs: Sequence[OpenedRun], ways: Sequence[Way]) -> Iterator[str]:
    """Yield notes on kinds of systems that a fair comparison needs and that are not among the runs."""
    if not any(way.left_to_right for way in ways):
        yield "No run is autoregressive: add one, such as g-transformer/sent in the paper, to compare with."
    if not any(run.config.view.kind == "sentence" and run.loaded.writes_left_to_right for run in runs):
        yield (
            "No run is an autoregressive sentence Transformer, which can decode all sentences as one batch: "
            "add one, such as g-transformer/sent."
        )
