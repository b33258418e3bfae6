"""Metrics of a server for Prometheus, and endpoints for monitoring; labels contain no text of clients."""

import time
from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from cotext.serving.errors import RequestError
from cotext.serving.keys import Admission
from cotext.serving.record import RequestRecord
from cotext.serving.requests import bearer_key
from cotext.serving.service import Service

SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics:
    """Counters and histograms of a server, in a separate registry, so that a process may have several."""

    def __init__(self, service: Service) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "cotext_requests", "Requests answered.", ("method", "route", "status"), registry=registry
        )
        self._seconds = Histogram(
            "cotext_request_seconds",
            "Time from request to answer.",
            ("route",),
            registry=registry,
            buckets=SECONDS,
        )
        self._in_flight = Gauge("cotext_requests_in_flight", "Requests in progress.", registry=registry)
        self._sentences = Counter("cotext_sentences", "Translated sentences.", ("system",), registry=registry)
        self._tokens = Counter(
            "cotext_tokens", "Target tokens of translations.", ("system",), registry=registry
        )
        registry.register(_Work(service))

    def begun(self) -> None:
        """Count the start of a request."""
        self._in_flight.inc()

    def done(self, record: RequestRecord) -> None:
        self._in_flight.dec()
        self._requests.labels(record.method, record.route, str(record.status)).inc()
        self._seconds.labels(record.route).observe(time.monotonic() - record.started)
        if record.system:
            self._sentences.labels(record.system).inc(record.sentences)
            self._tokens.labels(record.system).inc(record.tokens)

    def text(self) -> bytes:
        return generate_latest(self._registry)


class _Work(Collector):
    """Metrics that are read from the service on request."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        service = self._service
        waiting = GaugeMetricFamily("cotext_texts_waiting", "Requests whose texts are being translated.")
        waiting.add_metric([], service.waiting)
        yield waiting
        batches = CounterMetricFamily("cotext_batches", "Batches searched by a model.", labels=["system"])
        for system in service.systems:
            batches.add_metric([system.name], service.shared(system).batches)
        yield batches
        jobs = GaugeMetricFamily("cotext_jobs", "Stored files, by state.", labels=["state"])
        for state, count in service.jobs.counts().items():
            jobs.add_metric([state], count)
        yield jobs


# --- Endpoints for monitoring: liveness, readiness and metrics.


def routes() -> list[BaseRoute]:
    return [Route("/health", _health), Route("/ready", _ready), Route("/metrics", _metrics)]


async def _health(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _ready(request: Request) -> Response:
    """Return 503 while the server stops or is full."""
    admission: Admission = request.app.state.admission
    if admission.stopping:
        raise RequestError(503, "stopping")
    if admission.full:
        raise RequestError(503, "full", 1)
    return JSONResponse({"status": "ready"})


async def _metrics(request: Request) -> Response:
    """Return the metrics; if keys are configured, the key needs the permission for metrics."""
    admission: Admission = request.app.state.admission
    metrics: Metrics = request.app.state.metrics
    if not admission.may_see_metrics(bearer_key(request)):
        raise RequestError(403, "metrics of the whole server need a key that was made with --metrics")
    return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)
