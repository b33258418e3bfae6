"""What it costs to hand documents out and to read streams: `python -m benchmarks.speed.scale RUN CORPUS`.

Ray, where it is installed: seconds by the wall until the cluster of this machine stands, for a number of
documents and for twice as many, whose difference is without the start of workers. Reading: sentences a second
of processor time in several formats. The load of the machine is printed first:
other work disturbs the wall's clock.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.speed.data import generated
from benchmarks.speed.harness import apply, parser, table
from cotext.data.formats import read_documents, read_parallel, write_parallel
from cotext.runtime.errors import CotextError
from cotext.runtime.timing import in_turn
from cotext.translation.open import open_run
from cotext.translation.ray_cluster import RayCluster, on_ray

READ_PAIRS = 40_000


def read_times(folder: Path, rounds: int) -> None:
    """Print how fast the formats are read."""
    pairs = generated(READ_PAIRS, 0)
    paths = {name: folder / f"corpus.{name}" for name in ("jsonl", "jsonl.gz", "tsv", "parquet")}
    for name, path in paths.items():
        write_parallel(path, None, pairs, name.partition(".")[0])
    sizes = {name: path.stat().st_size for name, path in paths.items()}

    def reading(path: Path) -> Callable[[], float]:
        return lambda: float(sum(map(len, read_parallel(path, None))))

    times = in_turn({name: reading(path) for name, path in paths.items()}, rounds)
    rows = [
        (name, f"{sizes[name] / 2**20:.1f}", rate, ratio) for name, rate, ratio in times.speed_rows("{:,.0f}")
    ]
    table(("format", "MiB", "sentence pairs a second", "to jsonl"), rows)


def main() -> None:
    made = parser(__doc__, rounds=3)
    made.add_argument("run", type=Path)
    made.add_argument("corpus", type=Path)
    made.add_argument("--documents", type=int, default=200)
    options = made.parse_args()
    apply(options)
    documents = list(read_documents(options.corpus))[: 2 * options.documents]
    half = documents[: options.documents]
    sentences = sum(map(len, half))

    opened = open_run(options.run, "cpu", threads=options.threads)
    begun = time.perf_counter()
    try:
        far = on_ray(opened, RayCluster(workers=1, cpus=options.threads, device="cpu"), {})
    except CotextError as error:
        print(f"Ray is left out: {error}")
    else:
        stood = time.perf_counter() - begun
        seconds = []
        for given in (half, documents):
            begun = time.perf_counter()
            assert len(list(far.translator.translate(given))) == len(given)
            seconds.append(time.perf_counter() - begun)
        more = sum(map(len, documents)) - sentences
        rate = more / max(seconds[1] - seconds[0], 1e-9)
        print(f"Ray, one worker: {stood:.1f} s until the cluster stands; {seconds[0]:.1f} s for {sentences}")
        print(
            f"sentences, {seconds[1]:.1f} s for {sentences + more}: {rate:,.1f} a second with workers there"
        )
    with tempfile.TemporaryDirectory() as folder:
        read_times(Path(folder), options.rounds)


if __name__ == "__main__":
    main()
