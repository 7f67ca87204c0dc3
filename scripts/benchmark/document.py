"""The results as JSON, with every single time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from scripts.benchmark.figures import ratio, summarise, targets
from scripts.benchmark.machine import Machine
from scripts.benchmark.measure import Comparison, Series


def document(
    machine: Machine, comparisons: Sequence[Comparison], series: Sequence[Series]
) -> dict[str, Any]:
    """Return all of it; times are seconds."""
    return {
        "machine": asdict(machine),
        "side_by_side": [_comparison(one) for one in comparisons],
        "alone": [_series(one) for one in series],
        "targets": [asdict(one) for one in targets(comparisons, series)],
    }


def _comparison(comparison: Comparison) -> dict[str, Any]:
    factor = ratio(comparison)
    return {
        "trainers": comparison.size.trainers,
        "nodes": comparison.size.nodes,
        "node_level_s": [pair.node_level.seconds for pair in comparison.pairs],
        "node_level_status": [pair.node_level.status for pair in comparison.pairs],
        "count_s": comparison.count_seconds,
        "count_status": [pair.count.status for pair in comparison.pairs],
        "ratio": None if factor is None else asdict(factor),
        "objectives_agree": comparison.agree,
    }


def _series(series: Series) -> dict[str, Any]:
    return {
        "problem": series.kind.name,
        "mode": series.mode,
        "seconds": series.seconds,
        "statuses": dict(series.statuses),
        **asdict(summarise(series.seconds)),
    }
