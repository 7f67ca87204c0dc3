"""One reading of Slurm: the queue, and the rest where it is due. When to read is not here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from bftrainer_slurm.controller.view import Observation
from bftrainer_slurm.model import ElementState, Trainer
from bftrainer_slurm.slurm.gateway import Gateway


def read(
    gateway: Gateway,
    last: Observation,
    now_s: float,
    *,
    nodes_due: bool,
    reservations_due: bool,
    mine: Callable[[Trainer], bool],
) -> Observation:
    """Read what is due; the rest is as in ``last``. Trainers of others are ordinary jobs.

    Raises:
        GatewayError: Slurm did not answer, or not as it should.
    """
    queue = gateway.queue()
    ours = tuple(trainer for trainer in queue.trainers if mine(trainer))
    arrays = {trainer.array for trainer in ours}
    others = _nodes_of(trainer for trainer in queue.trainers if trainer.array not in arrays)
    return Observation(
        now_s,
        gateway.nodes() if nodes_due else last.nodes,
        replace(queue, trainers=ours, ordinary_nodes=queue.ordinary_nodes | others),
        gateway.reservations() if reservations_due else last.reservations,
    )


def _nodes_of(trainers: Iterable[Trainer]) -> frozenset[str]:
    there = (ElementState.RUNNING, ElementState.ENDING)
    return frozenset(
        element.node
        for trainer in trainers
        for element in trainer.elements
        if element.node and element.state in there
    )
