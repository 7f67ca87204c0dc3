"""The status as Prometheus metrics. Pure: documents in, metric families out.

The names, units and meanings are those of docs/monitoring.md. Serving them is in ``scrapes``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.metrics_core import Metric

from bftrainer_slurm import __version__
from bftrainer_slurm.controller.publish.status import STATES

MOST_USERS = 20  # with a label of their own; the others share one
OTHERS = "(other)"  # no Unix name
_ENDS = ("shrank", "reclaimed", "ended")
_PLANS = ("optimal", "feasible", "greedy")


def families(
    status: Mapping[str, Any], age_s: float, keeper: Mapping[str, Any] | None
) -> Iterator[Metric]:
    """Return what is known; what is not has no sample.

    Args:
        status: as published.
        age_s: for how long it has been the same.
        keeper: what the keeper says of itself, None: it does not answer.
    """
    yield from _of_controller(status["controller"], age_s)
    yield from _of_keeper(keeper)
    if status["pool"] is not None:
        yield from _of_pool(status["pool"], status["plan"])
        yield _gauges(
            "left_alone_nodes", "Idle, but not for trainers.", "why", status["left_alone"]
        )
        yield from _of_trainers(status["trainers"], status["malformed"])
        yield from _of_users([] if status["jobs_private"] else status["trainers"])
        yield from _of_counts(status["counts"])


def _of_controller(about: Mapping[str, Any], age_s: float) -> Iterator[Metric]:
    names = {name: str(about[name]) for name in ("mode", "partition", "gateway")}
    info = InfoMetricFamily("bftrainer", "The controller.")
    info.add_metric((), {"version": __version__, **names})
    yield info
    yield _gauge("start_time_seconds", "When the controller began, Unix time.", about["since_s"])
    yield _gauge("status_age_seconds", "Since the controller's last word of itself.", age_s)
    yield _gauge("trouble", "1: the last turn did less than it should.", bool(about["error"]))
    history = bool(about.get("history"))
    yield _gauge("history_trouble", "1: the history cannot be written.", history)
    yield _counter(
        "failed_turns", "Turns that failed, unless Slurm was away.", about["failed_turns"]
    )


def _of_keeper(keeper: Mapping[str, Any] | None) -> Iterator[Metric]:
    yield _gauge("keeper_up", "1: the keeper answers the controller.", keeper is not None)
    if keeper is None:
        return
    yield _gauge("keeper_members", "Processes of trainers at the keeper.", keeper["members"])
    kinds = CounterMetricFamily(
        "bftrainer_keeper_refusals", "Connections and messages refused.", labels=["kind"]
    )
    for kind, count in sorted(keeper["refused"].items()):
        kinds.add_metric([kind], count)
    yield kinds


def _of_pool(pool: Mapping[str, Any], plan: Mapping[str, Any] | None) -> Iterator[Metric]:
    yield _gauge("pool_nodes", "Nodes in holes, used by trainers or free.", pool["nodes"])
    yield _gauge("pool_used_nodes", "Nodes that trainers have.", pool["used"])
    yield _gauge("pool_free_nodes", "Nodes that trainers may grow onto.", len(pool["free"]))
    now = {status: float(plan is not None and plan["status"] == status) for status in _PLANS}
    yield _gauges("plan_status", "1: how the plan in force was made.", "status", now)
    if plan is not None:
        yield _gauge("plan_objective", "What the plan in force is worth.", plan["objective"])


def _of_trainers(
    trainers: Iterable[Mapping[str, Any]], malformed: Mapping[str, str]
) -> Iterator[Metric]:
    states = Counter(dict.fromkeys(STATES, 0))
    states.update(one["state"] for one in trainers)
    yield _gauges("trainers", "Trainers, by state.", "state", states)
    yield _gauge("jobs_left_alone", "Jobs that are no trainers, or faulty ones.", len(malformed))


def _of_users(trainers: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    """Those with the most nodes have a label of their own, whoever else there is."""
    nodes, jobs = Counter[str](), Counter[str]()
    for one in trainers:
        nodes[one["user"]] += len(one["nodes"])
        jobs[one["user"]] += one["state"] not in ("finished", "given up", "cancelled")
    ranked = sorted(nodes, key=lambda user: (-nodes[user], -jobs[user], user))
    for name, text, counts in (
        ("user_nodes", "Nodes on which a user's trainers run.", nodes),
        ("user_trainers", "A user's trainers that are not over.", jobs),
    ):
        shown = {user: counts[user] for user in ranked[:MOST_USERS]}
        if len(ranked) > MOST_USERS:
            shown[OTHERS] = sum(counts[user] for user in ranked[MOST_USERS:])
        yield _gauges(name, text, "username", shown)


def _of_counts(counts: Mapping[str, Any]) -> Iterator[Metric]:
    yield _counter("elements_started", "Elements that have begun to run.", counts["started"])
    ended = dict.fromkeys(_ENDS, 0) | counts["ended"]
    yield _counters("elements_ended", "Elements that run no more, by how.", "how", ended)
    yield _counter(
        "preempted_elements",
        "Elements on the nodes of ordinary jobs that preempted.",
        counts["preempted_elements"],
    )
    yield _counter(
        "late_ordinary_jobs", "Ordinary jobs that missed a backfill pass.", counts["late_jobs"]
    )
    delays = HistogramMetricFamily(
        "bftrainer_preemption_delay_seconds", "How long ordinary jobs waited for elements to go."
    )
    delays.add_metric((), **_histogram(counts["delays"]))
    yield delays
    pauses = HistogramMetricFamily(
        "bftrainer_rescale_pause_seconds", "How long trainers stood still.", labels=["direction"]
    )
    for direction, known in counts["pauses"].items():
        pauses.add_metric([direction], **_histogram(known))
    yield pauses
    plans = dict.fromkeys(_PLANS, 0) | counts["plans"]
    yield _counters("plans", "Plans, by how they were made.", "status", plans)
    yield _summary("plan_solve_seconds", "How long plans took.", counts["solving"])
    yield _summary("look_seconds", "How long looks at Slurm took.", counts["looks"])
    asked = SummaryMetricFamily(
        "bftrainer_slurm_request_seconds", "How long Slurm took to answer.", labels=["request"]
    )
    for name, known in sorted(counts["requests"].items()):
        asked.add_metric([name], known["count"], known["sum_s"])
    yield asked
    failed = dict.fromkeys(counts["requests"], 0) | counts["failed_requests"]
    yield _counters("slurm_request_failures", "Refused or unanswered.", "request", failed)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"bftrainer_{name}", text, value=float(value))


def _gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"bftrainer_{name}", text, labels=[label])
    for word, value in values.items():
        family.add_metric([word], value)
    return family


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"bftrainer_{name}", text, value=value)


def _counters(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(f"bftrainer_{name}", text, labels=[label])
    for word, value in values.items():
        family.add_metric([word], value)
    return family


def _summary(name: str, text: str, known: Mapping[str, Any]) -> Metric:
    return SummaryMetricFamily(
        f"bftrainer_{name}", text, count_value=known["count"], sum_value=known["sum_s"]
    )


def _histogram(known: Mapping[str, Any]) -> dict[str, Any]:
    within = [(str(bound), count) for bound, count in known["within"]]
    return {"buckets": [*within, ("+Inf", known["count"])], "sum_value": known["sum_s"]}
