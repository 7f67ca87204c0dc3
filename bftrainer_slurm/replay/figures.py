"""The figures of a replay, as a JSON document and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from bftrainer_slurm.replay.drive import Outcome
from bftrainer_slurm.words import counted


@dataclass(frozen=True, slots=True)
class Replayed:
    """A replay, compared with dedicated nodes, see ``drive``.

    ``plan_s`` has the seconds of each plan, from the problem to the checked plan.
    """

    outcome: Outcome
    dedicated_samples: float
    free_samples: float
    plan_s: Sequence[float] = field(repr=False)

    @property
    def efficiency(self) -> float:
        """U."""
        return _ratio(self.outcome.samples, self.dedicated_samples)

    @property
    def free_efficiency(self) -> float:
        """U_free."""
        return _ratio(self.free_samples, self.dedicated_samples)


def document(found: Replayed) -> dict[str, Any]:
    """Return the figures as JSON has them; times of plans in milliseconds."""
    return asdict(found.outcome) | {
        "plans": len(found.plan_s),
        "plan_ms": _plan_ms(found.plan_s),
        "dedicated_samples": found.dedicated_samples,
        "U": found.efficiency,
        "U_free": found.free_efficiency,
    }


def rows(found: Replayed) -> list[tuple[str, str]]:
    """Return the figures for people: names and texts."""
    outcome, times = found.outcome, _plan_ms(found.plan_s)
    dedicated = found.dedicated_samples
    used = _ratio(outcome.used_node_hours, outcome.idle_node_hours)
    counted_as = f"{outcome.progress:,.0f} samples, each as it counts in its batch"
    return [
        ("time", f"{outcome.hours:.1f} hours, {counted(outcome.events, 'event')}"),
        ("nodes in holes", f"{outcome.mean_pool_nodes:.1f} on average"),
        ("idle node-hours", f"{outcome.idle_node_hours:,.1f}"),
        ("of these used", f"{outcome.used_node_hours:,.1f}  ({used:.1%})"),
        ("samples", f"{outcome.samples:,.0f}, {counted(outcome.trainers_done, 'trainer')} done"),
        *([("progress", counted_as)] if outcome.progress < outcome.samples else []),
        ("lost to rescaling", _lost(outcome.lost_to_rescaling, dedicated)),
        ("lost to reclaims", _lost(outcome.lost_to_reclaims, dedicated)),
        (
            "plans",
            f"{len(found.plan_s):,}; {times['median']:.1f} ms median, {times['p95']:.1f} ms p95, "
            f"{times['max']:.1f} ms at most",
        ),
        ("U", f"{found.efficiency:.4f}  of what as many dedicated nodes would reach"),
        ("U_free", f"{found.free_efficiency:.4f}  with rescaling free of cost"),
    ]


def _lost(samples: float, dedicated: float) -> str:
    return f"{samples:,.0f} samples, {_ratio(samples, dedicated):.4f} of U"


def _plan_ms(seconds: Sequence[float]) -> dict[str, float]:
    shares = {"median": 0.5, "p95": 0.95, "max": 1.0}
    return {
        name: 1e3 * float(np.quantile(seconds, share)) if seconds else 0.0
        for name, share in shares.items()
    }


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
