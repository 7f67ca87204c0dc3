"""The status as Prometheus metrics: documents in, families out.

Names, units and meanings are those of docs/monitoring.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

from prometheus_client.core import CounterMetricFamily as Total
from prometheus_client.core import GaugeMetricFamily as Gauge
from prometheus_client.core import HistogramMetricFamily as Histogram
from prometheus_client.core import InfoMetricFamily as Info
from prometheus_client.core import SummaryMetricFamily as Summary
from prometheus_client.metrics_core import Metric

from bftrainer_slurm import __version__

_Row: TypeAlias = tuple[Any, ...]  # what _family takes

MOST_USERS = 20  # users with a label of their own; the others share one
OTHERS = "(other)"  # not a Unix name
STATES = (
    *("waiting", "starting", "running", "withheld"),
    *("finishing", "finished", "given up", "cancelled"),
)
_ENDS = ("shrank", "reclaimed", "ended")
_PLANS = ("optimal", "feasible", "greedy")


def families(
    status: Mapping[str, Any], age_s: float, keeper: Mapping[str, Any] | None
) -> Iterator[Metric]:
    """Return the metrics; unknown values have no sample.

    The ``status`` was published ``age_s`` seconds ago. ``keeper`` is what the keeper reports about
    itself, None if it does not answer.
    """
    about = status["controller"]
    info = Info("bftrainer", "The controller.")
    names = {name: str(about[name]) for name in ("mode", "partition", "gateway")}
    info.add_metric((), {"version": __version__, **names})
    yield info
    found = chain(_of_controller(about, age_s), _of_keeper(keeper), _of_cluster(status))
    yield from (_family(*row) for row in found)


def _of_controller(about: Mapping[str, Any], age_s: float) -> Iterator[_Row]:
    turns = "Turns that failed, except when Slurm did not answer."
    yield Gauge, "start_time_seconds", "When the controller began, Unix time.", about["since_s"]
    yield Gauge, "status_age_seconds", "Since the controller's last status.", age_s
    yield Gauge, "trouble", "1: the last turn did less than it should.", bool(about["error"])
    yield Gauge, "history_trouble", "1: the history cannot be written.", bool(about.get("history"))
    yield Total, "failed_turns", turns, about["failed_turns"]


def _of_keeper(keeper: Mapping[str, Any] | None) -> Iterator[_Row]:
    yield Gauge, "keeper_up", "1: the keeper answers the controller.", keeper is not None
    if keeper is not None:
        refused = dict(sorted(keeper["refused"].items()))
        yield Gauge, "keeper_members", "Processes of trainers at the keeper.", keeper["members"]
        yield Total, "keeper_refusals", "Connections and messages refused.", refused, "kind"


def _of_cluster(status: Mapping[str, Any]) -> Iterator[_Row]:
    pool, plan, trainers = status["pool"], status["plan"], status["trainers"]
    if pool is None:
        return
    yield Gauge, "pool_nodes", "Nodes in holes, used by trainers or free.", pool["nodes"]
    yield Gauge, "pool_used_nodes", "Nodes on which trainers run.", pool["used"]
    yield Gauge, "pool_starting_nodes", "Nodes on which trainers start.", pool["starting"]
    if pool["planned"] is not None:
        planned = "Nodes that trainers get by the plan."
        yield Gauge, "pool_planned_nodes", planned, pool["planned"]
    if pool["gpus"] is not None:
        yield from _of_gpus(pool["gpus"])
    yield Gauge, "pool_free_nodes", "Nodes that trainers may grow onto.", len(pool["free"])
    now = {how: plan is not None and plan["status"] == how for how in _PLANS}
    yield Gauge, "plan_status", "1: how the current plan was made.", now, "status"
    if plan is not None:
        yield Gauge, "plan_objective", "What the current plan is worth.", plan["objective"]
    left = status["left_alone"]
    yield Gauge, "left_alone_nodes", "Idle nodes that trainers leave alone.", left, "why"
    mute = "Nodes whose elements never said that they were up."
    yield Gauge, "mute_nodes", mute, len(status["mute_nodes"])
    states = Counter(dict.fromkeys(STATES, 0))
    states.update(one["state"] for one in trainers)
    yield Gauge, "trainers", "Trainers, by state.", states, "state"
    stopped = status.get("stopped_pass") or {"left": 0}
    yield Gauge, "backfill_untried_jobs", "Jobs that the last pass left untried.", stopped["left"]
    others = "Jobs that are not trainers, or faulty trainers."
    yield Gauge, "jobs_left_alone", others, len(status["malformed"])
    yield from _of_users([] if status["jobs_private"] else trainers)
    yield from _of_counts(status["counts"])


def _of_gpus(gpus: Mapping[str, Any]) -> Iterator[_Row]:
    """What of nodes that jobs share no ordinary job has, where trainers have parts of them."""
    left = "Of nodes that jobs share: GPUs that no ordinary job has."
    yield Gauge, "pool_gpus", left, gpus["left"]
    yield Gauge, "pool_used_gpus", "Those on which trainers run.", gpus["used"]
    yield Gauge, "pool_starting_gpus", "Those on which trainers start.", gpus["starting"]
    yield Gauge, "pool_planned_gpus", "Those that trainers get by the plan.", gpus["planned"]


def _of_users(trainers: Iterable[Mapping[str, Any]]) -> Iterator[_Row]:
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
        yield Gauge, name, text, shown, "username"


def _of_counts(counts: Mapping[str, Any]) -> Iterator[_Row]:
    ended, plans = dict.fromkeys(_ENDS, 0), dict.fromkeys(_PLANS, 0)
    requests = dict(sorted(counts["requests"].items()))
    failed = dict.fromkeys(counts["requests"], 0) | counts["failed_requests"]
    preempted = "Elements on the nodes of ordinary jobs that preempted."
    late = "Ordinary jobs that missed a backfill pass."
    waited = "How long ordinary jobs waited for elements."
    paused = "How long trainers stood still."
    yield Total, "elements_started", "Elements that have begun to run.", counts["started"]
    yield Total, "elements_ended", "Elements that have ended.", ended | counts["ended"], "how"
    yield Total, "preempted_elements", preempted, counts["preempted_elements"]
    yield Total, "late_ordinary_jobs", late, counts["late_jobs"]
    yield Histogram, "preemption_delay_seconds", waited, counts["delays"]
    yield Histogram, "rescale_pause_seconds", paused, counts["pauses"], "direction"
    yield Total, "plans", "Plans, by how they were made.", plans | counts["plans"], "status"
    yield Summary, "plan_solve_seconds", "How long plans took.", counts["solving"]
    yield Summary, "look_seconds", "How long looks at Slurm took.", counts["looks"]
    yield Summary, "slurm_request_seconds", "How long Slurm took to answer.", requests, "request"
    yield Total, "slurm_request_failures", "Requests refused or not answered.", failed, "request"


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
