"""Figures of a server in the text format of Prometheus; no label holds anything that a client wrote."""

import time
from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from cotext.serving.record import RequestRecord
from cotext.serving.service import Service

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics:
    """Counters and histograms of a server, in a registry of its own: several can be in a process."""

    def __init__(self, service: Service) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "cotext_requests", "Requests answered.", ("method", "route", "status"), registry=registry
        )
        self._seconds = Histogram(
            "cotext_request_seconds",
            "From request to answer.",
            ("route",),
            registry=registry,
            buckets=SECONDS,
        )
        self._in_flight = Gauge("cotext_requests_in_flight", "Requests being answered.", registry=registry)
        self._sentences = Counter(
            "cotext_sentences", "Sentences translated for requests.", ("system",), registry=registry
        )
        self._tokens = Counter(
            "cotext_tokens", "Tokens that these translations have.", ("system",), registry=registry
        )
        registry.register(_Work(service))

    def begun(self) -> None:
        """Count a request that begins."""
        self._in_flight.inc()

    def done(self, record: RequestRecord) -> None:
        """Count a request that is over."""
        self._in_flight.dec()
        self._requests.labels(record.method, record.route, str(record.status)).inc()
        self._seconds.labels(record.route).observe(time.monotonic() - record.started)
        if record.system:
            self._sentences.labels(record.system).inc(record.sentences)
            self._tokens.labels(record.system).inc(record.tokens)

    def text(self) -> bytes:
        """All figures, as Prometheus reads them."""
        return generate_latest(self._registry)


class _Work(Collector):
    """What the service knows when it is asked."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        service = self._service
        waiting = GaugeMetricFamily("cotext_texts_waiting", "Requests whose texts are being translated.")
        waiting.add_metric([], service.waiting)
        yield waiting
        batches = CounterMetricFamily("cotext_batches", "Batches that a model searched.", labels=["system"])
        for system in service.systems:
            batches.add_metric([system.name], service.shared(system).batches)
        yield batches
        jobs = GaugeMetricFamily("cotext_jobs", "Files that are kept, by how far they are.", labels=["state"])
        for state, count in service.jobs.counts().items():
            jobs.add_metric([state], count)
        yield jobs
