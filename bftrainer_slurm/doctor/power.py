"""Checks power saving: which nodes Slurm switches off, and what trainers do about it."""

from __future__ import annotations

from collections.abc import Iterator

from bftrainer_slurm.doctor.facts import Facts
from bftrainer_slurm.doctor.finding import Finding, consider, ok, ours
from bftrainer_slurm.slurm.configuration import saves_power, suspend_times_s
from bftrainer_slurm.words import counted

_TITLE = "power saving"
_WOKEN = (
    "Slurm starts a job on nodes that it has to wake before it preempts trainers: the job then "
    "waits for the boot (ResumeTimeout)."
)


def check(facts: Facts) -> Iterator[Finding]:
    """Check SuspendTime, SuspendProgram, ResumeProgram, and nodes with State=CLOUD."""
    partition = facts.settings.partition
    if facts.partition is None:
        return
    cloud = sum("+CLOUD" in shown for shown in facts.nodes_shown.values())
    clouds = f"; {counted(cloud, 'node')} with State=CLOUD" if cloud else ""
    times_s = suspend_times_s(facts.values, facts.partitions, partition, facts.nodes_shown)
    if not times_s:
        what = "SuspendTime" if saves_power(facts.values) else "SuspendProgram or ResumeProgram"
        yield ok(_TITLE, f"Slurm switches no node of {partition} off (no {what}){clouds}")
        return
    least_s, most_s = min(times_s.values()), max(times_s.values())
    after = f"{least_s:g} s" if least_s == most_s else f"{least_s:g} to {most_s:g} s"
    found = f"Slurm switches {counted(len(times_s), 'node')} off after {after}{clouds}"
    settings = facts.settings
    if settings.wake_nodes:
        yield ok(_TITLE, f"{found}; trainers wake them (wake_nodes)")
        return
    keep_s = settings.keep_awake_s
    why = (
        f"Trainers use such a node for {least_s:g} s after each ordinary job (SuspendTime), and "
        f"never wake it. {_WOKEN} reserve keeps nodes free for jobs."
    )
    kept = f"{found}; trainers leave them {keep_s:g} s later (keep_awake_s)"
    yield consider(_TITLE, kept, why, ours("keep_awake_s", "3600"), unless=keep_s > 0)
