"""The status as Prometheus metrics: documents in, families out; and the answer to a scrape.

Names, units and meanings are those of docs/monitoring.md. ``web_server`` has the port.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily as Total
from prometheus_client.core import GaugeMetricFamily as Gauge
from prometheus_client.core import HistogramMetricFamily as Histogram
from prometheus_client.core import InfoMetricFamily as Info
from prometheus_client.core import SummaryMetricFamily as Summary
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from bftrainer_slurm import __version__
from bftrainer_slurm.controller.publish.status import STATES
from bftrainer_slurm.controller.publish.web_server import Answer, Request

Source = Callable[[], Iterable[Metric]]

MOST_USERS = 20  # users with a label of their own; the others share one
OTHERS = "(other)"  # not a Unix name
_TEXT = "text/plain; version=0.0.4; charset=utf-8"  # every Prometheus reads this
_KEEP_S = 1.0  # within this time everybody gets the same answer
_ENDS = ("shrank", "reclaimed", "ended")
_PLANS = ("optimal", "feasible", "greedy")


def families(
    status: Mapping[str, Any], age_s: float, keeper: Mapping[str, Any] | None
) -> Iterator[Metric]:
    """Return the metrics; unknown values have no sample.

    The ``status`` is as published, and unchanged for ``age_s`` seconds. ``keeper`` is what the
    keeper reports about itself, None if it does not answer.
    """
    yield from _of_controller(status["controller"], age_s)
    yield from _of_keeper(keeper)
    if status["pool"] is not None:
        yield from _of_pool(status["pool"], status["plan"])
        left = status["left_alone"]
        yield _family(
            Gauge, "left_alone_nodes", "Idle nodes that trainers leave alone.", left, "why"
        )
        yield from _of_trainers(status["trainers"], status["malformed"])
        yield from _of_users([] if status["jobs_private"] else status["trainers"])
        yield from _of_counts(status["counts"])


def _of_controller(about: Mapping[str, Any], age_s: float) -> Iterator[Metric]:
    names = {name: str(about[name]) for name in ("mode", "partition", "gateway")}
    info = Info("bftrainer", "The controller.")
    info.add_metric((), {"version": __version__, **names})
    yield info
    since_s, turns = about["since_s"], about["failed_turns"]
    trouble, history = bool(about["error"]), bool(about.get("history"))
    yield _family(Gauge, "start_time_seconds", "When the controller began, Unix time.", since_s)
    yield _family(Gauge, "status_age_seconds", "Since the controller's last status.", age_s)
    yield _family(Gauge, "trouble", "1: the last turn did less than it should.", trouble)
    yield _family(Gauge, "history_trouble", "1: the history cannot be written.", history)
    yield _family(
        Total, "failed_turns", "Turns that failed, except when Slurm did not answer.", turns
    )


def _of_keeper(keeper: Mapping[str, Any] | None) -> Iterator[Metric]:
    up = keeper is not None
    yield _family(Gauge, "keeper_up", "1: the keeper answers the controller.", up)
    if keeper is None:
        return
    members, refused = keeper["members"], dict(sorted(keeper["refused"].items()))
    yield _family(Gauge, "keeper_members", "Processes of trainers at the keeper.", members)
    about = "Connections and messages refused."
    yield _family(Total, "keeper_refusals", about, refused, "kind")


def _of_pool(pool: Mapping[str, Any], plan: Mapping[str, Any] | None) -> Iterator[Metric]:
    free = len(pool["free"])
    yield _family(Gauge, "pool_nodes", "Nodes in holes, used by trainers or free.", pool["nodes"])
    yield _family(Gauge, "pool_used_nodes", "Nodes that trainers have.", pool["used"])
    yield _family(Gauge, "pool_free_nodes", "Nodes that trainers may grow onto.", free)
    now = {status: plan is not None and plan["status"] == status for status in _PLANS}
    yield _family(Gauge, "plan_status", "1: how the current plan was made.", now, "status")
    if plan is not None:
        worth = plan["objective"]
        yield _family(Gauge, "plan_objective", "What the current plan is worth.", worth)


def _of_trainers(
    trainers: Iterable[Mapping[str, Any]], malformed: Mapping[str, str]
) -> Iterator[Metric]:
    states = Counter(dict.fromkeys(STATES, 0))
    states.update(one["state"] for one in trainers)
    yield _family(Gauge, "trainers", "Trainers, by state.", states, "state")
    about = "Jobs that are not trainers, or faulty trainers."
    yield _family(Gauge, "jobs_left_alone", about, len(malformed))


def _of_users(trainers: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    """The users with the most nodes have a label of their own; all others share one."""
    nodes, jobs = Counter[str](), Counter[str]()
    for one in trainers:
        nodes[one["user"]] += len(one["nodes"])
        jobs[one["user"]] += one["state"] not in ("finished", "given up", "cancelled")
    ranked = sorted(nodes, key=lambda user: (-nodes[user], -jobs[user], user))
    for name, text, counts in (
        ("user_nodes", "Nodes on which a user's trainers run.", nodes),
        ("user_trainers", "A user's trainers that have not ended.", jobs),
    ):
        shown = {user: counts[user] for user in ranked[:MOST_USERS]}
        if len(ranked) > MOST_USERS:
            shown[OTHERS] = sum(counts[user] for user in ranked[MOST_USERS:])
        yield _family(Gauge, name, text, shown, "username")


def _of_counts(counts: Mapping[str, Any]) -> Iterator[Metric]:
    ended, plans = dict.fromkeys(_ENDS, 0), dict.fromkeys(_PLANS, 0)
    requests = dict(sorted(counts["requests"].items()))
    failed = dict.fromkeys(counts["requests"], 0) | counts["failed_requests"]
    preempted = "Elements on the nodes of ordinary jobs that preempted."
    late = "Ordinary jobs that missed a backfill pass."
    waited = "How long ordinary jobs waited for elements."
    paused = "How long trainers stood still."
    for kind, name, text, known, *label in (
        (Total, "elements_started", "Elements that have begun to run.", counts["started"]),
        (Total, "elements_ended", "Elements that have ended.", ended | counts["ended"], "how"),
        (Total, "preempted_elements", preempted, counts["preempted_elements"]),
        (Total, "late_ordinary_jobs", late, counts["late_jobs"]),
        (Histogram, "preemption_delay_seconds", waited, counts["delays"]),
        (Histogram, "rescale_pause_seconds", paused, counts["pauses"], "direction"),
        (Total, "plans", "Plans, by how they were made.", plans | counts["plans"], "status"),
        (Summary, "plan_solve_seconds", "How long plans took.", counts["solving"]),
        (Summary, "look_seconds", "How long looks at Slurm took.", counts["looks"]),
        (Summary, "slurm_request_seconds", "How long Slurm took to answer.", requests, "request"),
        (Total, "slurm_request_failures", "Requests refused or not answered.", failed, "request"),
    ):
        yield _family(kind, name, text, known, *label)


def _family(kind: Any, name: str, text: str, known: Any, label: str = "") -> Metric:
    """Return a metric of one value, or of one for each value of a label."""
    family: Metric = kind(f"bftrainer_{name}", text, labels=[label] if label else [])
    for word, value in known.items() if label else (("", known),):
        add: Any = partial(family.add_metric, [word] if label else [])  # type: ignore[attr-defined]
        if kind is Histogram:
            within = [(str(bound), count) for bound, count in value["within"]]
            add([*within, ("+Inf", value["count"])], value["sum_s"])
        elif kind is Summary:
            add(value["count"], value["sum_s"])
        else:
            add(float(value))
    return family


class Scrapes(Collector):
    """A site of one page: the metrics as text, made anew once a second at most."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._text, self._made_s = b"", float("-inf")

    def __call__(self, request: Request) -> Answer:
        """Answer every request with the metrics."""
        with self._lock:
            if time.monotonic() - self._made_s >= _KEEP_S:
                self._text = generate_latest(self)
                self._made_s = time.monotonic()
            return Answer(200, _TEXT, self._text)

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        return self._source()
