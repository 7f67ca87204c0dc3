"""Trainers whose ids Slurm has given out before: what is known under such an id is not theirs.

A slurmctld that has lost its state begins anew with its first id. Pure.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from bftrainer_slurm.model import ElementState, Trainer

_AS_SUBMITTED = "JobHeldUser"


def newcomers(
    trainers: Iterable[Trainer], known: Container[int], looked_s: float | None
) -> list[int]:
    """Return the arrays of trainers that were submitted since the last look (Unix seconds).

    ``known`` were there then. That all its elements are newer is not enough: a requeue makes the
    submit time that of the requeue, and all may have been requeued while nobody looked. Then Slurm
    holds none of them, or not for its user.
    """
    if looked_s is None:
        return []
    return [
        trainer.array
        for trainer in trainers
        if trainer.array not in known
        and trainer.submit_s > looked_s
        and all(
            element.state is ElementState.HELD and element.reason == _AS_SUBMITTED
            for element in trainer.elements
        )
    ]
