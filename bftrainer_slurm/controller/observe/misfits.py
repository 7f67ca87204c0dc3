"""What in Slurm's settings does not suit trainers, in sentences for log and status. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from bftrainer_slurm.model import Configuration


def misfits(settings: Configuration, partition: str) -> Iterator[str]:
    """Yield what is wrong with the settings of the trainers' partition, and what to do."""
    if not settings.preempts:
        yield (
            f"ordinary jobs cannot preempt jobs in {partition}, so no element starts: give it "
            "PreemptMode=REQUEUE, with PreemptType=preempt/partition_prio, or use another one"
        )
    if settings.exempt_s:
        yield (
            f"ordinary jobs could not preempt an element for {settings.exempt_s:.0f} s, so none "
            f"starts: set PreemptExemptTime=0, or give {partition} a QOS that does"
        )
    if settings.cancels:
        yield (
            f"PreemptMode=CANCEL for {partition} or its QOS: set it to REQUEUE; a preempted "
            "element is lost if the controller is down for longer than MinJobAge"
        )
    if settings.behind:
        yield (
            f"jobs in {', '.join(settings.behind)} wait behind trainers: give each of these "
            f"partitions a PriorityTier above that of {partition} (0 is the lowest, and right for "
            "trainers)"
        )
    if settings.grace_s:
        yield (
            f"{partition} has GraceTime={settings.grace_s}: set it to 0; an element that ends "
            "within it counts as failed"
        )
