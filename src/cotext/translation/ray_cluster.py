"""Translation on a Ray cluster: opened runs whose documents are translated by workers of the cluster.

Each worker is a process with its own copy of the run. Ray restarts lost workers and reassigns their
documents. Every document appears in the result exactly once. Every machine needs the extra `ray`, the same
Cotext and the same run under the same path.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from cotext.data.documents import Document
from cotext.runtime import CotextError, optional_module
from cotext.translation.document_state import WindowLog
from cotext.translation.open import OpenedRun, open_run, systems_of
from cotext.translation.requests import ClusterOptions
from cotext.translation.terms.terms import TermGuide
from cotext.translation.translator import DocumentTranslator, Translation

LOCAL: Final = "ray"  # address: the cluster of RAY_ADDRESS, or else one of only this machine
LOT_DOCUMENTS: Final = 128  # upper bound; documents of a lot share batches, and small lots give small batches
LOTS_PER_WORKER: Final = 4  # roughly; several lots let all workers finish at a similar time


class DocumentWorker:
    """A process of the cluster that translates documents with the same files as the main process."""

    def __init__(
        self, run: Path, device: str, decode: dict[str, Any], update: int | None, files: Mapping[str, str]
    ) -> None:
        """Open a run with the arguments of `open_run`; its files must have the checksums `files`."""
        # One processor per worker.
        opened = open_run(run, device, decode, update, threads=1)
        if (checksums := files_of(opened)) != files:
            different = sorted(k for k in checksums.keys() | files.keys() if checksums.get(k) != files.get(k))
            raise CotextError(
                f"{run}: differs from the run of the main process: another {' and '.join(different)}; "
                "every machine needs the same run under this path, unchanged during the job"
            )
        self._translator = opened.translator

    def translate(self, documents: Sequence[Document]) -> list[tuple[int, Translation]]:
        return list(self._translator.translate(documents))


def files_of(opened: OpenedRun) -> dict[str, str]:
    """Return checksums of the files with which a run and its further runs translate, by their kind.

    The folders of further runs are excluded, because they may have other names elsewhere.
    """
    own = systems_of(opened)
    further = {name: own.pop(name) for name in opened.further_runs()}
    for system in (own, *further.values()):
        # Compare all settings except the paths of further runs.
        config = system.pop("config")
        del config["decode"]["first_pass"], config["decode"]["language_model"]
        system["configuration"] = hashlib.sha256(json.dumps(config).encode()).hexdigest()
    named = {name: name.replace("_", " ") for name in further}
    of_further = {f"{named[n]}'s {kind}": sha for n, files in further.items() for kind, sha in files.items()}
    return {**own, **of_further}


def placed(opened: OpenedRun, request: ClusterOptions, decode: Mapping[str, Any]) -> OpenedRun:
    """Return a run that translates on the cluster of a request, if there is one; `decode`: its settings.

    Scoring and checks stay in this process. The connection remains until the process ends or `ray.shutdown()`
    is called.

    Raises CotextError if Ray is not installed, or the cluster does not exist or has too few resources; or if
    the run writes n-best lists, which are not available on clusters.
    """
    if request.on is None:
        return opened
    opened.require_no_lists(f"--on {request.on}")
    ray = _connect(request.on)
    workers, device = workers_of(request, ray.cluster_resources())
    # Further runs are under the same path on every machine; workers search with the settings chosen here.
    further = {name: str(run.folder.resolve()) for name, run in opened.further_runs().items()}
    decode = {**decode, **further, "engine": opened.config.decode.engine}
    given = opened.folder.resolve(), device, decode, request.checkpoint, files_of(opened)
    make = ray.remote(num_cpus=1, num_gpus=int(device != "cpu"), max_restarts=-1, max_task_retries=-1)(
        DocumentWorker
    )
    translator = _OnRay(opened.translator, workers, lambda: make.remote(*given))
    return replace(opened, translator=translator)


class _OnRay(DocumentTranslator):
    """A translator whose documents are translated by workers of a cluster, which `make` starts."""

    def __init__(self, translator: DocumentTranslator, workers: int, make: Callable[[], Any]) -> None:
        own = translator
        super().__init__(
            *(own.model, own.config, own.tokenizer, own.device, own.first_pass, own.plan.name),
            shortlist=own.shortlist,
        )
        self._workers, self._make = workers, make

    @property
    def supports_terms(self) -> bool:
        return False

    def translate(
        self,
        documents: Iterable[Document],
        on_sentences: Callable[[int], None] = lambda count: None,
        guide: TermGuide | None = None,
        taken: Mapping[int, Mapping[int, str]] | None = None,
        log: WindowLog | None = None,
    ) -> Iterator[tuple[int, Translation]]:
        """Translate like `DocumentTranslator.translate`; read all documents first, and do not use `log`.

        Raises CotextError if there are terms or given translations, a worker fails, or workers are lost too
        often.
        """
        if guide is not None or taken:
            raise CotextError(
                "--on does not support glossaries and translation memories; remove one of the options"
            )
        ray, given = _ray(), list(documents)
        lots = lots_of(given, self._workers)
        at_work: dict[Any, Any] = {}  # worker by pending result
        lot_of: dict[Any, range] = {}
        with _translate_ray_errors(), ExitStack() as stack:
            idle = [self._make() for _ in lots[: self._workers]]
            for worker in idle:
                stack.callback(ray.kill, worker)
            while lots or at_work:
                while idle and lots:
                    worker, lot = idle.pop(), lots.pop(0)
                    promise = worker.translate.remote(given[lot.start : lot.stop])
                    at_work[promise], lot_of[promise] = worker, lot
                for worker in idle:  # no lots remain: free the resources for workers that Ray restarts
                    ray.kill(worker)
                [ready], _ = ray.wait([*at_work])
                idle, lot = [at_work.pop(ready)], lot_of.pop(ready)
                for number, translation in ray.get(ready):
                    on_sentences(len(translation.document))
                    yield lot[number], translation


def lots_of(documents: Sequence[Document], workers: int) -> list[range]:
    """Divide documents into ranges of consecutive documents, several per worker."""
    # Several lots per worker balance different speeds and lengths.
    most = max(1, sum(map(len, documents)) // (workers * LOTS_PER_WORKER))  # sentences
    lots, start, held = [], 0, 0
    for end, document in enumerate(documents, 1):
        held += len(document)
        if held >= most or end - start == LOT_DOCUMENTS or end == len(documents):
            lots.append(range(start, end))
            start, held = end, 0
    return lots


def workers_of(request: ClusterOptions, resources: Mapping[str, float]) -> tuple[int, str]:
    """Return the number of workers and their device; raise CotextError without room for them."""
    gpus, processors = int(resources.get("GPU", 0)), int(resources.get("CPU", 0))
    device = request.device or ("cuda" if gpus else "cpu")
    room = processors if device == "cpu" else min(gpus, processors)
    workers = room if request.workers is None else request.workers
    if not 0 < workers <= room:
        raise CotextError(
            f"--on {request.on}: the cluster has {processors} processors and {gpus} GPUs, room for "
            f"{room} workers on {device}, but {request.workers or 1} are required"
        )
    return workers, device


def _ray() -> Any:
    # Disable Ray's usage statistics; this must be set before the import.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    return optional_module("ray", "ray", "--on")


def _connect(address: str) -> Any:
    """Return Ray, connected by the caller or now."""
    ray = _ray()
    if not ray.is_initialized():
        try:
            ray.init(None if address == LOCAL else address, logging_level="error", log_to_driver=False)
        except (ConnectionError, ValueError, RuntimeError, OSError) as error:
            raise CotextError(f"--on {address}: no cluster there: {_first_line(error)}") from None
    return ray


@contextmanager
def _translate_ray_errors() -> Iterator[None]:
    """Raise errors of workers as CotextError."""
    from ray.exceptions import RayError

    try:
        yield
    except RayError as error:
        messages = [line for line in str(error).splitlines() if "CotextError: " in line]
        if messages:
            raise CotextError(
                f"a worker of the cluster: {messages[-1].partition('CotextError: ')[2]}"
            ) from None
        raise CotextError(
            f"the cluster did not finish: {_first_line(error)}; finished documents are saved, and the "
            "same command resumes from there"
        ) from None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
