"""Probing of trained runs for positions: what `cotext probe` does.

The classifiers learn on documents of the training store and are tested on documents of the development store,
which they never saw. The documents are the same for every seed and, of one data folder, for every run; what a
seed draws is told at `probe`.
"""

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from cotext.evaluation.requests import ProbeRequest
from cotext.evaluation.studies.probing.probe_runs import open_probes, probe_run
from cotext.evaluation.studies.probing.probing import MAX_DISTANCE, TASKS, Task
from cotext.evaluation.studies.probing.probing_summary import Part, RunSummary
from cotext.runtime.devices import choose_device
from cotext.runtime.files import replacing
from cotext.runtime.locks import working_in

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def probe_runs(
    request: ProbeRequest,
    on_start: Callable[[int], None] = lambda classifiers: None,
    on_classifier: Callable[[int], None] = lambda count: None,
) -> list[RunSummary]:
    """Probe runs one after the other; writes probing.json and a picture per task into the folder `out`.

    Raises:
        CotextError: as `open_probes`, `choose_device`, `working_in` and `read_states`.
    """
    asked, out, seeds = request.task, request.folder, request.seeds
    tasks = [task for task in TASKS if not asked or task in asked or "all" in asked]
    where = choose_device(request.device)
    probes = open_probes(request.runs, request.data, request.checkpoint)
    with working_in(out):
        on_start(sum((each.layers + 2) * len(tasks) * seeds for each in probes))
        found = [
            probe_run(each, tasks, request.tokens, seeds, where, lambda: on_classifier(1)) for each in probes
        ]
        content = as_dict(found, request.tokens, seeds)
        with replacing(out / "probing.json") as temporary:
            temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
        for task in tasks:
            with replacing(out / f"{task}.png") as temporary:
                draw(task, found).savefig(temporary, format="png", dpi=160)
    return found


def as_dict(found: Sequence[RunSummary], max_tokens: int, seeds: int) -> dict[str, Any]:
    """Everything that `probe_runs` found, for a JSON file."""
    return {
        "format": "cotext-probing",
        "version": 1,
        "max_distance": MAX_DISTANCE,
        "max_tokens": max_tokens,
        "seeds": list(range(1, seeds + 1)),
        "runs": [summary.as_dict() for summary in found],
    }


def draw(task: Task, found: Sequence[RunSummary]) -> "Figure":
    """The picture of a task: figures 1, 2 and 3 of the paper."""
    from cotext.evaluation.studies.pictures import probed_by_distance, probed_by_layer

    named = [(summary.name, summary.tasks[task]) for summary in found]
    return probed_by_layer(named) if task == "absolute" else probed_by_distance(named)


def render(summary: RunSummary) -> str:
    """The tables of a run, with what one needs to know to read them."""
    train, test = summary.parts["train"], summary.parts["test"]
    lines = [
        f"{summary.name}  {summary.signature}",
        f"learned from {_size(train)} of the training store, "
        f"tested on {_size(test)} of the development store",
    ]
    what = {
        "absolute": "the position of a token in its row",
        "relative": f"the distance i - j of two tokens, up to ±{MAX_DISTANCE}",
        "order": "which of two tokens comes first",
    }
    for task, found in summary.tasks.items():
        lines += ["", f"{task}: {what[task]}, {found.classes} classes, per cent right", found.table()]
    # What looks too good to be true is worth a word.
    given = ", with absolute positions just added" if summary.model["positions"] == "absolute" else ""
    lines += [
        "",
        f"layer 0: what enters the first block{given}",
        "token alone: a random vector per token of the vocabulary; chance: always the commonest answer",
    ]
    return "\n".join(lines)


def _size(part: Part) -> str:
    return f"{part.tokens:,} tokens in {part.rows:,} rows of {part.documents:,} documents"
