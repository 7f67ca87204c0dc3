"""The metrics as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from bftrainer_slurm.controller.publish import metrics
from bftrainer_slurm.controller.publish.metrics import Scrapes, families
from bftrainer_slurm.controller.publish.server import Request
from tests.controller.publish.test_metrics import KEEPER, one, status

ASKED = Request("/metrics")


def everything() -> Iterable[Metric]:
    return families(status(one("alice", nodes=3)), 0.5, KEEPER)


def told(read: Iterable[Metric]) -> list[tuple[str, str, float]]:
    """Names, labels and values of all samples."""
    samples = (sample for family in read for sample in family.samples)
    return sorted((one.name, repr(sorted(one.labels.items())), one.value) for one in samples)


def test_prometheus_parser_reads_back_what_is_served() -> None:
    answer = Scrapes(everything)(ASKED)
    read = told(text_string_to_metric_families(answer.body.decode()))
    assert answer.status == 200
    assert read == told(everything())
    assert all(name.startswith("bftrainer_") for name, _, _ in read)


def test_a_flood_asks_the_source_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_KEEP_S", 3600.0)
    calls: list[int] = []

    def source() -> Iterable[Metric]:
        calls.append(1)
        return [GaugeMetricFamily("bftrainer_one", "One.", value=1)]

    site = Scrapes(source)
    for _ in range(20):
        site(ASKED)
    assert len(calls) == 1
