"""Decoding time of several runs on the same documents, side by side (Yu et al. 2024, table 3).

Every run is timed greedily and at its own beam, in two settings: `one`, a document at a time, and `many`,
all documents side by side in batches of `decode.max_tokens`. The rivals that make a speed-up of decoding
without autoregression an honest one are timed in turn with the runs: decoding with caches, which is how all
systems decode here; the sentences of a document as one batch and one by one. Exports of a run, in int8 or to
CTranslate2, are given as runs. Ratios are taken within a round, as all ways of a round meet the same noise,
and told by their median.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final

import torch

from cotext.data.documents import Document
from cotext.data.formats import read_documents
from cotext.data.tokenizer import Tokenizer
from cotext.evaluation.requests import SpeedRequest
from cotext.runtime.errors import CotextError
from cotext.runtime.tables import render_rows
from cotext.runtime.timing import CLOCKS, Clock, Times, in_turn, spread
from cotext.translation.open import OpenedRun, open_run

SETTINGS: Final = {"one": "a document at a time", "many": "documents side by side"}
CLOCK_NAMES: Final = {"cpu": "processor time", "wall": "wall-clock time"}
FORM = "{:.3g}"
WARM_UP = 2  # sentences of the first document
Work = Callable[[Sequence[Document]], list[list[str]]]  # translates; the sentences of every document


@dataclass(frozen=True, slots=True)
class Way:
    """A run and how it decodes; `left_to_right`: token by token, so that others are compared with it."""

    name: str
    signature: str
    left_to_right: bool
    work: Work
    tokenizer: Tokenizer


@dataclass(frozen=True, slots=True)
class TimedWay:
    """A way with its time in one setting: seconds a document, a number a round, and the tokens it wrote.

    `faster` has the time of the first way over that of this one, by round, `than_rival` the time of the
    fastest way that decodes from left to right; empty where there is none.
    """

    name: str
    signature: str
    left_to_right: bool
    seconds: tuple[float, ...]
    tokens: int
    faster: tuple[float, ...]
    than_rival: tuple[float, ...]

    def as_dict(self) -> dict[str, Any]:
        """Everything, for a JSON file; ratios as their medians."""
        return {
            "way": self.name,
            "signature": self.signature,
            "left_to_right": self.left_to_right,
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
    """Decoding times by setting, and what was left out."""

    documents: int
    sentences: int
    rounds: int
    clock: str
    device: str
    threads: int
    timed: dict[str, tuple[TimedWay, ...]]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Everything, for a JSON file."""
        return {
            "format": "cotext-speed",
            "version": 1,
            "documents": self.documents,
            "sentences": self.sentences,
            "rounds": self.rounds,
            "clock": self.clock,
            "device": self.device,
            "threads": self.threads,
            "settings": {name: [each.as_dict() for each in ways] for name, ways in self.timed.items()},
            "notes": list(self.notes),
        }

    def render(self) -> str:
        """A table for each setting, median with the smallest and the largest of the rounds."""
        parts = []
        for setting, ways in self.timed.items():
            first = ways[0].name
            rival = _fastest({each.name: each.seconds for each in ways if each.left_to_right})
            head = ["", "seconds a document", "tokens", f"times as fast as {first}"]
            rows = [
                [each.name, spread(each.seconds, FORM), f"{each.tokens:,}", spread(each.faster, FORM)]
                for each in ways
            ]
            if rival is not None and rival != first:
                head.append(f"as {rival}")
                for row, each in zip(rows, ways, strict=True):
                    row.append(spread(each.than_rival, FORM))
            parts.append(f"{SETTINGS[setting]}\n{render_rows([head, *rows], left=1)}")
        recipe = (
            f"documents:{self.documents}|sentences:{self.sentences}|rounds:{self.rounds}|"
            f"clock:{CLOCK_NAMES[self.clock]}|device:{self.device}|threads:{self.threads}"
        )
        signatures = dict.fromkeys(f"{e.name}: {e.signature}" for ways in self.timed.values() for e in ways)
        return "\n\n".join([*parts, "\n".join([*self.notes, recipe, *signatures])])


def measure_speed(
    request: SpeedRequest,
    on_start: Callable[[int], None] = lambda total: None,
    on_way: Callable[[int], None] = lambda count: None,
) -> Speed:
    """Time runs on documents, in turn; the first run is what the others are compared with.

    `on_start` is called with the number of translations that are timed, `on_way` after each.

    Raises:
        CotextError: no such run or device, a document that a run does not take, no words, processor time on
            a GPU.
    """
    documents = list(islice(read_documents(request.document, request.format), request.documents))
    decode, rounds, threads = dict(request.decode), request.rounds, request.threads
    opened = [open_run(run, request.device, decode, threads=threads) for run in request.runs]
    place = opened[0].translator.device
    chosen = request.clock or ("wall" if place.type == "cuda" else "cpu")
    if chosen == "cpu" and place.type == "cuda":
        raise CotextError("--clock cpu does not count what a GPU does: choose wall, or --device cpu")
    for run in opened:
        run.translator.check(documents)
        if not any(any(run.translator.tokenizer.encode_batch(d.sentences)) for d in documents):
            raise CotextError("the documents have no words; there is nothing to time")
    settings = [name for name in SETTINGS if name in (request.setting or SETTINGS)]
    wanted = [name for name in settings if name == "one" or len(documents) > 1] or ["one"]
    ways = list(_ways(opened, decode))
    on_start(len(wanted) * len(ways) * (rounds + 1))
    timed = {name: _timed(name, ways, documents, rounds, _clock(chosen, place), on_way) for name in wanted}
    return Speed(
        documents=len(documents),
        sentences=sum(map(len, documents)),
        rounds=rounds,
        clock=chosen,
        device=torch.cuda.get_device_name(place) if place.type == "cuda" else str(place),
        threads=threads,
        timed=timed,
        notes=tuple(_notes(opened, ways)),
    )


def _clock(name: str, place: torch.device) -> Clock:
    if place.type != "cuda":
        return CLOCKS[name]

    def when_done() -> float:
        torch.cuda.synchronize(place)
        return time.perf_counter()

    return when_done


# ------------------------------------------------------------------------------------------------- ways


def _ways(runs: Sequence[OpenedRun], decode: dict[str, Any]) -> Iterator[Way]:
    """All ways of all runs, in their order; names of runs that are alike are told apart by number."""
    names = [run.folder.resolve().name for run in runs]
    for number, run in enumerate(runs):
        same = names.count(names[number]) > 1
        yield from _ways_of(run, f"{names[number]} ({number + 1})" if same else names[number], decode)


def _ways_of(run: OpenedRun, name: str, decode: dict[str, Any]) -> Iterator[Way]:
    left_to_right = run.loaded.writes_left_to_right
    beam = run.config.decode.beam
    greedy = "greedy" if left_to_right else "best path"
    chosen = [(greedy, {"beam": 1})]
    if run.config.view.kind == "sentence":
        chosen.append((f"{greedy}, one by one", {"beam": 1, "max_tokens": 1}))
    if beam > 1:
        chosen.append((f"beam {beam}", {"beam": beam}))
    for what, settings in chosen:
        changed = run.with_decode({**decode, **settings})
        yield Way(
            f"{name}, {what}",
            changed.signature,
            left_to_right,
            partial(_translated, changed),
            run.translator.tokenizer,
        )


def _translated(run: OpenedRun, documents: Sequence[Document]) -> list[list[str]]:
    found = dict(run.translator.translate(documents))
    return [list(found[index].document.sentences) for index in range(len(documents))]


# ------------------------------------------------------------------------------------------------- time


def _timed(
    setting: str,
    ways: Sequence[Way],
    documents: Sequence[Document],
    rounds: int,
    clock: Clock,
    on_way: Callable[[int], None],
) -> tuple[TimedWay, ...]:
    """All ways in one setting; a short document warms each of them up."""
    short = Document(documents[0].id, documents[0].sentences[:WARM_UP])
    tokens: dict[str, int] = {}

    def work(way: Way) -> float:
        if setting == "many":
            written = way.work(documents)
        else:
            written = [sentences for document in documents for sentences in way.work([document])]
        if way.name not in tokens:
            encode = partial(way.tokenizer.encode_batch, side="target")
            tokens[way.name] = sum(len(ids) for sentences in written for ids in encode(sentences))
        on_way(1)
        return len(documents)

    for way in ways:
        way.work([short])
        on_way(1)
    times = in_turn({way.name: partial(work, way) for way in ways}, rounds, clock, warm_up=0)
    return tuple(
        TimedWay(
            way.name,
            way.signature,
            way.left_to_right,
            tuple(times[way.name]),
            tokens[way.name],
            tuple(times.ratios(ways[0].name, way.name)),
            tuple(_against_rival(times, ways, way)),
        )
        for way in ways
    )


def _against_rival(times: Times, ways: Sequence[Way], way: Way) -> list[float]:
    rival = _fastest({each.name: times[each.name] for each in ways if each.left_to_right})
    return [] if rival is None else times.ratios(rival, way.name)


def _fastest(seconds: dict[str, Sequence[float]]) -> str | None:
    """The way of the smallest median."""
    return min(seconds, key=lambda name: statistics.median(seconds[name]), default=None)


def _notes(runs: Sequence[OpenedRun], ways: Sequence[Way]) -> Iterator[str]:
    """What is missing beside the runs."""
    if not any(way.left_to_right for way in ways):
        yield (
            "No run writes from left to right: a speed-up is one against a rival that does, so name one "
            "(in the paper, g-transformer/randinit and g-transformer/sent)."
        )
    if not any(run.config.view.kind == "sentence" and run.loaded.writes_left_to_right for run in runs):
        yield (
            "No run is a sentence Transformer, whose sentences as one batch are the strongest rival: name "
            "one, as of g-transformer/sent."
        )
