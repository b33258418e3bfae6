"""Throughput and latency of `cotext serve` with many clients, compared with the Python API.

    python -m benchmarks.serving.load RUN TEXT [--clients 1 8 64] [--sentences 400] [--rounds 3]
    python -m benchmarks.serving.load RUN TEXT --memory 10000

TEXT has one sentence per line. Each sentence is sent once, by the next free client, over a kept connection in
the API of LibreTranslate. Servers run in processes of their own. Each round also translates the same
sentences with the Python API, in one call, and with one call per sentence, as a server without shared batches
would. A response that differs from the translation of the API stops the benchmark, unless RUN is an engine:
near-ties in int8 may depend on the batch. An engine is also served by `benchmarks.serving.minimal`.

Sentences a second are given by elapsed time and by processor time of the server or the API, which does not
depend on other work on the machine. `--memory` sends so many requests, and prints the resident set of the
server.
"""

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path

from benchmarks.speed.harness import load, table
from cotext.data.splitting import Splitter
from cotext.files.blocks import Block, Contents
from cotext.files.translate_blocks import BlockDocuments
from cotext.models.run_folder import is_engine
from cotext.translation.engine_cache import open_to_translate

PATIENCE_SECONDS = 120.0
WHOLE, SINGLE = "Python API, one call", "Python API, one by one"
HEAD = ["", "sentences/s", "processor", "to one call", "processor", "to one by one", "processor"]
HEAD += ["p50 ms", "p95", "p99"]


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: its port, its process id, and the seconds until it was ready."""

    port: int
    process: int
    started_seconds: float

    @property
    def processor_seconds(self) -> float:
        """Return its processor time so far."""
        times = Path(f"/proc/{self.process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def resident_mebibytes(self) -> float:
        """Return its anonymous resident set."""
        for line in Path(f"/proc/{self.process}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1024
        raise AssertionError("no RssAnon")


@contextmanager
def serving(run: Path, threads: int, minimal: bool = False) -> Iterator[Server]:
    """Run `cotext serve`, or the minimal server, on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as state:
        command = ["cotext", "serve", str(run), "--port", str(port), "--state", state]
        command += ["--threads", str(threads)]
        if minimal:
            command = ["benchmarks.serving.minimal", str(run), str(port), str(threads)]
        process = subprocess.Popen(
            [sys.executable, "-m", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            while not _is_ready(port):
                if process.poll() is not None or time.perf_counter() - begun > PATIENCE_SECONDS:
                    raise SystemExit("the server did not start")
                time.sleep(0.02)
            yield Server(port, process.pid, time.perf_counter() - begun)
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)


def _is_ready(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return b" 200 " in connection.recv(100)
    except OSError:
        return False


async def asked(port: int, sentences: Sequence[str], clients: int, key: str) -> tuple[list[str], list[float]]:
    """Send sentences from `clients` clients; return the translations, and the seconds of each request."""
    found, seconds = [""] * len(sentences), [0.0] * len(sentences)
    waiting = iter(range(len(sentences)))

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in waiting:
            fields = {"q": sentences[number], "source": "en", "target": "de", "api_key": key}
            body = json.dumps(fields).encode()
            begun = time.perf_counter()
            head = "POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
            writer.write(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            status, answer = await _answer(reader)
            seconds[number] = time.perf_counter() - begun
            if status != 200:
                raise SystemExit(f"{status}: {answer.decode()}")
            found[number] = json.loads(answer)["translatedText"]
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return found, seconds


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    lengths = [line.split(":")[1] for line in head if line.lower().startswith("content-length:")]
    return int(head[0].split()[1]), await reader.readexactly(int(lengths[0]))


def rates(options: argparse.Namespace, sentences: Sequence[str], servers: Mapping[str, Server]) -> None:
    """Print sentences a second and latencies, and ratios to the Python API in the same round."""
    opened = open_to_translate(options.run, "cpu", threads=options.threads)
    splitter = Splitter(opened.languages.source)
    blocks = [Block((text,)) for text in sentences]

    def by_api(parts: Sequence[Sequence[Block]]) -> list[str]:
        found: list[list[Block]] = []
        for part in parts:
            texts = BlockDocuments(opened, Contents([[each] for each in part]), splitter)
            guide = texts.guide(range(len(texts.documents)))
            found += texts.blocks(dict(opened.translator.translate(texts.documents, guide=guide)))
        return [block.text for [block] in found]

    by_api([blocks[:8]])
    for server in servers.values():
        asyncio.run(asked(server.port, sentences[:8], 1, "warm"))
    took: dict[str, list[tuple[float, float]]] = {}  # elapsed and processor seconds
    latencies: dict[str, list[float]] = {}
    for number in range(options.rounds):
        begun = time.perf_counter(), time.process_time()
        expected = by_api([blocks])
        took.setdefault(WHOLE, []).append(_since(begun, time.process_time()))
        begun = time.perf_counter(), time.process_time()
        by_api([[block] for block in blocks])
        took.setdefault(SINGLE, []).append(_since(begun, time.process_time()))
        for clients, (kind, server) in product(options.clients, servers.items()):
            name = f"{kind}{clients} client{'s' if clients > 1 else ''}"
            begun = time.perf_counter(), server.processor_seconds
            # A new key, so that the cache of another round is not used.
            answers, seconds = asyncio.run(asked(server.port, sentences, clients, f"{number} {clients}"))
            took.setdefault(name, []).append(_since(begun, server.processor_seconds))
            latencies.setdefault(name, []).extend(1000 * each for each in seconds)
            if wrong := [i for i, text in enumerate(answers) if text != expected[i]]:
                print(f"{name}: {len(wrong)} responses differ, first for {sentences[wrong[0]]!r}")
                if server is servers[""] and not is_engine(options.run):
                    raise SystemExit("a response differs from the API")
    rows = []
    for name, found in took.items():
        elapsed, processor = zip(*found, strict=True)
        cells = [f"{len(sentences) / statistics.median(each):.1f}" for each in (elapsed, processor)]
        cells += [_ratios(found, took[other], kind) for other in (WHOLE, SINGLE) for kind in (0, 1)]
        if waited := latencies.get(name):
            cells += [f"{statistics.quantiles(waited, n=100)[part - 1]:.0f}" for part in (50, 95, 99)]
        rows.append([name, *cells, *([""] * (len(HEAD) - 1 - len(cells)))])
    table(HEAD, rows)


def _since(begun: tuple[float, float], processor_seconds: float) -> tuple[float, float]:
    return time.perf_counter() - begun[0], processor_seconds - begun[1]


def _ratios(found: Sequence[tuple[float, float]], other: Sequence[tuple[float, float]], kind: int) -> str:
    every = sorted(theirs[kind] / own[kind] for own, theirs in zip(found, other, strict=True))
    return f"{statistics.median(every):.2f} ({every[0]:.2f}-{every[-1]:.2f})"


def memory(count: int, sentences: Sequence[str], server: Server) -> None:
    """Print the resident set of the server before and during `count` requests of 64 clients."""
    rows = []
    for done in (0, 500, *(count * part // 4 for part in (1, 2, 3, 4))):
        todo = [f"{sentences[i % len(sentences)]} {i}" for i in range(rows[-1][0] if rows else 0, done)]
        for first in range(0, len(todo), 500):
            asyncio.run(asked(server.port, todo[first : first + 500], 64, f"client {first % 7}"))
        rows.append((done, f"{server.resident_mebibytes:.0f}"))
    table(("requests", "MiB"), [(f"{done:,}", size) for done, size in rows])


def main() -> None:
    """Start a server and print a table."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("run", type=Path)
    made.add_argument("text", type=Path)
    made.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    made.add_argument("--sentences", type=int, default=400)
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--threads", type=int, default=1)
    made.add_argument("--memory", type=int, metavar="REQUESTS")
    options = made.parse_args()
    lines = options.text.read_text(encoding="utf-8").splitlines()
    sentences = list(islice(dict.fromkeys(line for line in lines if line.strip()), options.sentences))
    print(f"{options.run}: {len(sentences)} sentences; {load()}", flush=True)
    with ExitStack() as stack:
        servers = {"": stack.enter_context(serving(options.run, options.threads))}
        if is_engine(options.run):
            servers["minimal, "] = stack.enter_context(serving(options.run, options.threads, minimal=True))
        for kind, server in servers.items():
            print(f"{kind}ready after {server.started_seconds:.1f} s, {server.resident_mebibytes:.0f} MiB")
        if options.memory:
            memory(options.memory, sentences, servers[""])
        else:
            rates(options, sentences, servers)


if __name__ == "__main__":
    main()
