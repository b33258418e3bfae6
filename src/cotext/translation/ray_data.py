"""Translation on a cluster of Ray: a pipeline stage for Ray Data, and opened runs that translate there.

Ray hands out tables of documents to workers, each a process that has the run open, starts workers anew that
are lost, and gives their tables to others. A document is never lost nor twice in the result. `pip install
'cotext[ray]'`; on every machine of the cluster, the same Cotext and the same run under the same path.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from cotext.data.documents import Document
from cotext.runtime.errors import CotextError
from cotext.search.guide import Guide
from cotext.translation.document_state import WindowLog
from cotext.translation.open import OpenedRun
from cotext.translation.ray_stage import Translate, files_of, table_of, translations_of
from cotext.translation.requests import ClusterOptions
from cotext.translation.translator import DocumentTranslator, Translation
from cotext.translation.written_beside import require_no_lists

LOCAL: Final = "ray"  # a cluster of the environment (RAY_ADDRESS), or else of this machine alone
# At most of a table. They are searched together: with few of them, batches are small.
TABLE_DOCUMENTS: Final = 128
TABLES_PER_WORKER: Final = 4  # at least, so that all end at about the same time
NUMBER: Final = "number"


@dataclass(frozen=True, slots=True)
class RayCluster:
    """A cluster and what of it is used.

    `address`: `ray`, or as Ray writes them: `ray://HOST:10001` (a client) or `HOST:6379` (from one of its
    machines). `workers`: how many processes translate; None: one for every `cpus` processors, or every GPU.
    `device`: cpu or cuda; None: GPUs where the cluster has some.
    """

    address: str = LOCAL
    workers: int | None = None
    cpus: int = 1
    device: str | None = None


def translate_dataset(
    dataset: Any,
    stage: Translate,
    workers: int,
    cpus: int = 1,
    gpus: int = 0,
    documents: int | None = TABLE_DOCUMENTS,
) -> Any:
    """A dataset of Ray Data with translations beside its documents: a lazy step, as `map_batches`.

    `documents`: of a table that a worker is given; None: as they are stored. The columns are those of
    `cotext.translation.ray_stage`; rows stay what they are, so that Ray's own checkpoints by `id` work.
    Workers keep their `cpus` for themselves: what reads and writes in the same pipeline needs processors
    beside them.
    """
    return dataset.map_batches(
        Translate,
        fn_constructor_args=stage.settings,
        batch_size=documents,
        batch_format="pyarrow",
        compute=_ray().data.ActorPoolStrategy(size=workers),
        num_cpus=cpus,
        num_gpus=gpus,
        udf_modifying_row_count=False,
    )


def placed(opened: OpenedRun, request: ClusterOptions, decode: Mapping[str, Any]) -> OpenedRun:
    """A run that translates on the cluster of a request, if it names one; `decode`: how it was opened.

    Raises:
        CotextError: as `on_ray`; lists of translations, which no cluster writes.
    """
    if request.on is None:
        return opened
    require_no_lists(opened, f"--on {request.on}")
    cluster = RayCluster(request.on, request.workers, device=request.device)
    return on_ray(opened, cluster, decode, request.checkpoint)


def on_ray(
    opened: OpenedRun, cluster: RayCluster, decode: Mapping[str, Any], update: int | None = None
) -> OpenedRun:
    """The same run, whose translator has documents translated by a cluster; scoring and checks stay here.

    `decode` and `update` are those that the run was opened with. The connection stays until the process ends,
    or `ray.shutdown()` is called.

    Raises:
        CotextError: no Ray, no such cluster, or one without the workers that are asked for.
    """
    ray = _connected(cluster.address)
    workers, device = workers_of(cluster, ray.cluster_resources())
    if opened.first_pass is not None:  # under the same path wherever a worker stands
        decode = {**decode, "first_pass": str(opened.first_pass.folder.resolve())}
    stage = Translate(opened.folder.resolve(), decode, device, update, cluster.cpus, files_of(opened))
    translator = _OnRay(opened.translator, stage, workers, cluster.cpus, int(device != "cpu"))
    return replace(opened, translator=translator)


class _OnRay(DocumentTranslator):
    """A translator whose documents are translated by workers of a cluster."""

    def __init__(
        self, translator: DocumentTranslator, stage: Translate, workers: int, cpus: int, gpus: int
    ) -> None:
        self.__dict__.update(translator.__dict__)
        self._stage, self._workers, self._cpus, self._gpus = stage, workers, cpus, gpus

    @property
    def takes_guides(self) -> bool:
        """Never: lexical constraints are not handed out."""
        return False

    def translate(
        self,
        documents: Iterable[Document],
        on_sentences: Callable[[int], None] = lambda count: None,
        guide: Guide | None = None,
        taken: Mapping[int, Mapping[int, str]] | None = None,
        log: WindowLog | None = None,
    ) -> Iterator[tuple[int, Translation]]:
        """As `DocumentTranslator.translate`; the documents are read first, and `log` is not written.

        Raises:
            CotextError: constraints or given translations; what a worker refuses; workers lost too often.
        """
        if guide is not None or taken:
            raise CotextError("glossaries and translation memories are not for --on; leave one of them out")
        tables = tables_of(list(documents), self._workers)
        if not tables:
            return
        with _told():
            for table in _pipeline(tables, self._stage, self._workers, self._cpus, self._gpus):
                numbers = table.column(NUMBER).to_pylist()
                for number, translation in zip(numbers, translations_of(table), strict=True):
                    on_sentences(len(translation.document))
                    yield number, translation


def _pipeline(tables: list[pa.Table], *settings: Any) -> Iterator[pa.Table]:
    """Tables with translations, as they are ready; `settings` as of `_Pipeline`."""
    ray = _ray()
    if not ray.util.client.ray.is_connected():
        yield from _Pipeline(tables, *settings)
        return
    # Datasets are not made over the connection of a client, but by a process of the cluster.
    far = ray.remote(num_cpus=0)(_Pipeline).remote(tables, *settings)
    while (table := ray.get(far.next.remote())) is not None:
        yield table


class _Pipeline:
    """A dataset of tables under translation, table by table."""

    def __init__(self, tables: list[pa.Table], stage: Translate, workers: int, cpus: int, gpus: int) -> None:
        data = _ray().data
        data.DataContext.get_current().enable_progress_bars = False  # the command has its own
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        # Ray refuses to leave the size of a batch open where there is a GPU.
        most = max(map(len, tables)) if gpus else None
        found = translate_dataset(data.from_arrow(tables), stage, workers, cpus, gpus, most)
        self._tables: Iterator[pa.Table] = iter(found.iter_batches(batch_size=None, batch_format="pyarrow"))

    def __iter__(self) -> Iterator[pa.Table]:
        return self._tables

    def next(self) -> pa.Table | None:
        """The next table; None behind the last."""
        return next(self._tables, None)


def tables_of(documents: list[Document], workers: int) -> list[pa.Table]:
    """Documents, numbered from 0, as tables of consecutive ones, several for every worker."""
    most = max(1, sum(map(len, documents)) // (workers * TABLES_PER_WORKER))  # sentences
    tables, start, held = [], 0, 0
    for end, document in enumerate(documents, 1):
        held += len(document)
        if held >= most or end - start == TABLE_DOCUMENTS or end == len(documents):
            tables.append(table_of(documents[start:end], **{NUMBER: pa.array(range(start, end), pa.int64())}))
            start, held = end, 0
    return tables


def workers_of(cluster: RayCluster, there: Mapping[str, float]) -> tuple[int, str]:
    """How many workers, and the kind of device of each; `there`: what the cluster has, as Ray names it.

    Raises:
        CotextError: it has no room for them.
    """
    gpus, processors = int(there.get("GPU", 0)), int(there.get("CPU", 0))
    device = cluster.device or ("cuda" if gpus else "cpu")
    room = processors // cluster.cpus if device == "cpu" else min(gpus, processors // cluster.cpus)
    workers = room if cluster.workers is None else cluster.workers
    if not 0 < workers <= room:
        raise CotextError(
            f"--on {cluster.address}: the cluster has {processors} processors and {gpus} GPUs, room for "
            f"{room} workers on {device}, and {cluster.workers or 1} are asked for"
        )
    return workers, device


def _ray() -> Any:
    # Before it is imported: nothing is told to anybody about its use.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        import ray.data
    except ImportError:
        raise CotextError("a cluster of Ray needs `pip install 'cotext[ray]'`") from None
    return ray


def _connected(address: str) -> Any:
    """Ray, connected, by whoever called us or else now."""
    ray = _ray()
    if not ray.is_initialized():
        try:
            ray.init(None if address == LOCAL else address, logging_level="error", log_to_driver=False)
        except (ConnectionError, ValueError, RuntimeError, OSError) as error:
            raise CotextError(f"--on {address}: no cluster there: {_first_line(error)}") from None
    return ray


@contextmanager
def _told() -> Iterator[None]:
    """What a worker refused, as an error of ours."""
    from ray.exceptions import RayError

    try:
        yield
    except RayError as error:
        said = [line for line in str(error).splitlines() if "CotextError: " in line]
        if said:
            raise CotextError(f"a worker of the cluster: {said[-1].partition('CotextError: ')[2]}") from None
        raise CotextError(
            f"the cluster did not finish: {_first_line(error)}; what is translated is kept, and the same "
            "command goes on from there"
        ) from None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
