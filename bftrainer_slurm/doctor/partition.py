"""Checks the trainers' partition: that it exists, yields to others, and takes one-node jobs."""

from __future__ import annotations

from collections.abc import Iterator

from bftrainer_slurm.doctor.facts import Facts
from bftrainer_slurm.doctor.finding import Finding, conf, consider, must, ok, unknown
from bftrainer_slurm.slurm.configuration import partitions_behind, tier
from bftrainer_slurm.submission.directives import SubmissionError, minutes_of
from bftrainer_slurm.words import counted

_HOUR = 60  # minutes; the controller asks for an hour at each start


def check(facts: Facts) -> Iterator[Finding]:
    """Check the partition."""
    name, ours = facts.settings.partition, facts.partition
    if ours is None:
        line = conf(
            "PartitionName",
            f"{name} Nodes=ALL PriorityTier=0 PreemptMode=REQUEUE GraceTime=0 MaxTime=INFINITE"
            " MaxNodes=1 State=UP",
        )
        why = "Trainers need a partition of their own, which all others preempt."
        yield must("partition", f"there is no partition {name}", why, line)
        return
    yield ok("partition", f"{name}, {counted(facts.nodes, 'node')}")
    yield _mode(facts)
    yield _tier(facts)
    yield _grace(facts)
    yield _max_time(facts)
    yield _max_nodes(facts)
    yield _job_submit(facts)
    for key, wanted, why in _WANTED:
        if (value := ours.get(key, wanted[0])) not in wanted:
            change = facts.in_partition(key, wanted[0])
            yield must(f"partition's {key}", f"{key}={value}", why, change)


_WANTED = (
    ("State", ("UP",), "Elements start only where the partition is up."),
    (
        "Default",
        ("NO",),
        "Ordinary jobs that name no partition would run here, and be preempted and requeued.",
    ),
    ("MinNodes", ("0", "1"), "An element is a job of one node."),
    (
        "ExclusiveUser",
        ("NO",),
        "Slurm does not preempt for other users' jobs if nodes belong to one user.",
    ),
    ("ReqResv", ("NO",), "Elements ask for no reservation."),
    (
        "OverSubscribe",
        ("NO", "EXCLUSIVE"),
        "Slurm puts elements of several trainers on the same cores; with FORCE --exclusive is not "
        "heard.",
    ),
    ("RootOnly", ("NO",), "Users submit trainers themselves."),
)


def _mode(facts: Facts) -> Finding:
    title = "partition's PreemptMode"
    value = (facts.partition or {}).get("PreemptMode", "")
    if "REQUEUE" in value.split(",") or facts.by_qos:
        return ok(title, value)
    why = "A preempted element must return to the queue, neither be cancelled nor stay."
    return must(title, value or "not set", why, facts.in_partition("PreemptMode", "REQUEUE"))


def _job_submit(facts: Facts) -> Finding:
    plugins, name = facts.value("JobSubmitPlugins"), facts.settings.partition
    if not plugins:
        return ok("JobSubmitPlugins", "none")
    why = (
        f"A plugin of the site must leave jobs of {name} in this partition and exclusive, keep the "
        "record in their comment (words around it do no harm), add no licences, reservation or "
        "counted features, and let the controller's account change them (slurm_job_modify): else "
        "they stay held. 'bftrainer doctor --try' submits one."
    )
    return unknown("JobSubmitPlugins", plugins, why)


def _tier(facts: Facts) -> Finding:
    name = facts.settings.partition
    level = tier(facts.partitions[name])
    late = partitions_behind(
        facts.partitions, name, by_tier="partition_prio" in facts.value("PreemptType").lower()
    )
    if not late:
        return ok("PriorityTier", f"{name} has {level}, below all others on its nodes")
    tiers = ", ".join(f"{one} has {tier(facts.partitions[one])}" for one in late)
    changes = [facts.in_partition("PriorityTier", "0")] if level > 0 else []
    changes += [
        facts.in_partition("PriorityTier", "1", one)
        for one in late
        if tier(facts.partitions[one]) < 1 or not level
    ]
    why = "Slurm takes its queue by tier: jobs of these partitions wait behind trainers."
    return must("PriorityTier", f"{name} has {level}, {tiers}", why, *changes)


def _grace(facts: Facts) -> Finding:
    value = (facts.partition or {}).get("GraceTime", "0")
    why = (
        "An element has its own grace (grace=). If it ends within Slurm's grace, Slurm reports a "
        "failure, not a preemption (seen on 22.05.8). The controller gives a trainer up after some "
        "failures. Ordinary jobs also start 0.5 to 1 s later."
    )
    change = facts.in_partition("GraceTime", "0")
    return must("GraceTime", f"{value} s", why, change, unless=value == "0")


def _max_nodes(facts: Facts) -> Finding:
    value = (facts.partition or {}).get("MaxNodes", "UNLIMITED")
    why = (
        "An element is a job of one node. A user who starts a larger job here can hide its further "
        "nodes from the guard; ordinary jobs then wait for KillWait."
    )
    change, fine = facts.in_partition("MaxNodes", "1"), value == "1" or facts.by_qos
    return consider("MaxNodes", value, why, change, unless=fine)


def _max_time(facts: Facts) -> Finding:
    value = (facts.partition or {}).get("MaxTime", "UNLIMITED")
    try:
        minutes = minutes_of(value)
    except SubmissionError:
        minutes = None
    if minutes is None or minutes >= _HOUR:
        return ok("MaxTime", value)
    why = "The controller asks for an hour at each start; with less, elements restart more often."
    change = facts.in_partition("MaxTime", "INFINITE")
    return consider("MaxTime", counted(minutes, "minute"), why, change)
