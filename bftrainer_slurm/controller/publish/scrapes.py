"""What Prometheus is answered: the metrics as text, made anew once a second at most.

The metrics themselves are in ``metrics``, the port in ``server``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from bftrainer_slurm.controller.publish.server import Answer, Request

Source = Callable[[], Iterable[Metric]]

_TEXT = "text/plain; version=0.0.4; charset=utf-8"  # which every Prometheus reads
_KEEP_S = 1.0  # whoever asks within it gets the same answer


class Scrapes(Collector):
    """A site of one page."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._lock = threading.Lock()
        self._text, self._made_s = b"", float("-inf")

    def __call__(self, request: Request) -> Answer:
        """Answer with the metrics, whatever is asked for."""
        with self._lock:
            if time.monotonic() - self._made_s >= _KEEP_S:
                self._text = generate_latest(self._registry)
                self._made_s = time.monotonic()
            return Answer(200, _TEXT, self._text)

    def describe(self) -> list[Metric]:
        """Nothing: the registry would ask the source before there is anything to say."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        return self._source()
