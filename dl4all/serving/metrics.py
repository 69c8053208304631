"""Numbers that Prometheus reads at ``/metrics``.

Labels are names of models that are served, never what clients send: each new value would take memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from dl4all import memory
from dl4all.scheduler.device.device import Device
from dl4all.serving.served_model import Answer, ServedModel
from dl4all.serving.served_models import ServedModels

SECONDS = (*(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1), *(0.2, 0.5, 1.0, 2.0, 5.0, 10.0))
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
MODEL = ("model", "version")


class Metrics:
    """The counts of a server, and what is read from its models when somebody asks."""

    def __init__(self, models: ServedModels) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "dl4all_inference_requests",
            "Requests by the code of their answer.",
            (*MODEL, "protocol", "code"),
            registry=self._registry,
        )
        self._rows = Counter(
            "dl4all_inference_rows", "Rows that were answered.", MODEL, registry=self._registry
        )
        self._request, self._queue, self._compute = (
            Histogram(
                f"dl4all_inference_{name}_seconds", text, MODEL, buckets=SECONDS, registry=self._registry
            )
            for name, text in (
                ("request", "From arrival to answer."),
                ("queue", "From arrival in the queue to a device."),
                ("compute", "On a device."),
            )
        )
        self._completions = Counter(
            "dl4all_completion_requests",
            "Requests for completions by the code of their answer.",
            ("model", "code"),
            registry=self._registry,
        )
        self._tokens = Counter(
            "dl4all_completion_tokens", "Tokens of completions.", ("model",), registry=self._registry
        )
        self._registry.register(_ModelCollector(models))

    def count(
        self, model: ServedModel | None, protocol: str, code: str, seconds: float, answer: Answer | None
    ) -> None:
        """Count a request, which has an answer if there is one."""
        names = ("", "") if model is None else (model.name, model.version)
        self._requests.labels(*names, protocol, code).inc()
        if model is None:
            return
        self._request.labels(*names).observe(seconds)
        if answer is not None:
            self._rows.labels(*names).inc(answer.rows)
            self._queue.labels(*names).observe(answer.queue_seconds)
            self._compute.labels(*names).observe(answer.compute_seconds)

    def count_completion(self, model: str, status: int, tokens: int) -> None:
        """Count a request for a completion of a language model that is served, and its tokens."""
        self._completions.labels(model, str(status)).inc()
        self._tokens.labels(model).inc(tokens)

    def text(self) -> bytes:
        """All numbers in Prometheus' text format."""
        return generate_latest(self._registry)


class _ModelCollector(Collector):
    """The numbers of queues and devices at the moment."""

    def __init__(self, models: ServedModels) -> None:
        self._models = models

    def collect(self) -> Iterator[Metric]:
        sizes = HistogramMetricFamily("dl4all_inference_batch_size", "Rows of batches.", labels=MODEL)
        waiting = GaugeMetricFamily("dl4all_inference_queue_rows", "Rows that wait.", labels=MODEL)
        shares = GaugeMetricFamily(
            "dl4all_inference_device_share", "The part of the requests by device.", labels=(*MODEL, "device")
        )
        used = GaugeMetricFamily(
            "dl4all_device_memory_bytes", "Memory that tensors of the server use.", labels=("device",)
        )
        devices: set[Device] = set()
        for model in list(self._models.by_name.values()):
            names, stats = (model.name, model.version), model.queue.stats()
            sizes.add_metric(names, *_histogram(stats.batch_sizes))
            waiting.add_metric(names, stats.waiting)
            for name, share in stats.shares.items():
                shares.add_metric((*names, name), share)
            devices.update(model.group.alive)
        for device in devices:
            used.add_metric((str(device),), memory.stats(device).allocated)
        yield from (sizes, waiting, shares, used)


def _histogram(sizes: dict[int, int]) -> tuple[list[tuple[str, float]], float]:
    """The cumulative buckets of batches by their rows, and the sum of the rows.

    >>> buckets, rows = _histogram({3: 2, 8: 1})
    >>> buckets[:4], rows
    ([('1', 0), ('2', 0), ('4', 2), ('8', 3)], 14)
    """
    bounds = [*ROWS, float("inf")]
    names = [*map(str, ROWS), "+Inf"]
    counts = [sum(count for size, count in sizes.items() if size <= bound) for bound in bounds]
    return [*zip(names, counts, strict=True)], sum(size * count for size, count in sizes.items())
