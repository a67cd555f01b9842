"""What is counted and measured, as Prometheus reads it at /metrics.

Names have their units; durations are in seconds. Each `Metrics` has a registry of its own, so that several can be in
one process.
"""

from collections.abc import Callable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from qkv.serve.batching import BatchFacts

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60)
TOKENS = tuple(2**power for power in range(3, 18))
ROWS = tuple(2**power for power in range(12))
FAILURES = ("overloaded", "unavailable", "access", "input", "dropped", "fault")
"""Reasons: the queue is full, the server starts or stops, the token, host or page is refused, the request is wrong, its
client has left, a bug."""


class Metrics:
    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        here = self.registry
        self._requests = Counter("qkv_requests", "Requests answered.", ["route", "model", "status"], registry=here)
        self._failures = Counter("qkv_failures", "Requests that were not answered.", ["reason"], registry=here)
        self._queue_tokens = Gauge("qkv_queue_tokens", "Tokens that wait for a batch.", ["model"], registry=here)
        self._batch_tokens = Histogram("qkv_batch_tokens", "Tokens of a batch.", buckets=TOKENS, registry=here)
        self._batch_rows = Histogram("qkv_batch_rows", "Rows of a batch.", buckets=ROWS, registry=here)
        self._request = Histogram(
            "qkv_request_duration_seconds",
            "From a request to the end of its response.",
            buckets=SECONDS,
            registry=here,
        )
        self._queue = Histogram(
            "qkv_queue_duration_seconds", "From the queue to the first batch.", buckets=SECONDS, registry=here
        )
        self._tokenization = Histogram(
            "qkv_tokenization_duration_seconds", "Of the texts of a request.", buckets=SECONDS, registry=here
        )
        self._inference = Histogram("qkv_inference_duration_seconds", "Of a batch.", buckets=SECONDS, registry=here)
        self._info = Info("qkv_model", "A served model.", ["model"], registry=here)
        self._counters: dict[tuple[str, str, int], Counter] = {}
        for reason in FAILURES:
            self._failures.labels(reason)

    def request(self, route: str, model: str, status: int, seconds: float) -> None:
        """Count a request. The server calls it for every response (listen.py); routes need not."""
        key = route, model, status
        if key not in self._counters:  # labels are looked up under a lock
            self._counters[key] = self._requests.labels(route, model, str(status))
        self._counters[key].inc()
        self._request.observe(seconds)

    def failure(self, reason: str) -> None:
        """Count a failure, by one of FAILURES."""
        self._failures.labels(reason).inc()

    def tokenization(self, seconds: float) -> None:
        self._tokenization.observe(seconds)

    def waited(self, seconds: float) -> None:
        self._queue.observe(seconds)

    def model(
        self, name: str, tasks: Sequence[str], facts: Mapping[str, object], queued: Callable[[], int] = lambda: 0
    ) -> None:
        """Describe a served model; `queued` counts the tokens that wait for it, and is called for the page."""
        self._info.labels(name).info({"tasks": ",".join(tasks)} | {key: str(value) for key, value in facts.items()})
        self._queue_tokens.labels(name).set_function(queued)

    # of batching.Observer

    def batch(self, model: str, facts: BatchFacts) -> None:
        self._batch_tokens.observe(facts.tokens)
        self._batch_rows.observe(facts.units)
        self._inference.observe(facts.seconds)

    def text(self) -> bytes:
        """The page of /metrics."""
        return generate_latest(self.registry)
