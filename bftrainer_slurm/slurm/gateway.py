"""What the controller needs from Slurm, and the errors that this can raise.

The implementations are ``commands`` (Slurm's own commands), ``look_gateway`` and
``pyslurm_gateway``; ``open`` chooses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bftrainer_slurm.model import (
    BackfillPass,
    Configuration,
    ElementId,
    Node,
    Part,
    Queue,
    Reservation,
    TimeLimit,
)


class GatewayError(Exception):
    """Slurm refused or did not answer; the message has the request and Slurm's own words."""


class SlurmUnavailableError(GatewayError):
    """slurmctld does not answer; try again later."""


class NoCommandError(GatewayError):
    """A command cannot be run: this host has no Slurm, or PATH does not name it."""


class RefusedError(GatewayError):
    """Slurm refused: no permission, or an element is not (or no longer) in the right state.

    ``elements`` are those that it refused; for the others the request was carried out. It is empty
    if Slurm names none, or too many for its message: then any of them may be refused.
    """

    def __init__(self, message: str, elements: Sequence[ElementId] = ()) -> None:
        super().__init__(message)
        self.elements = tuple(elements)


class Gateway(Protocol):
    """Slurm, seen from the controller.

    Every method raises SlurmUnavailableError when slurmctld cannot be reached and RefusedError
    when it refuses. docs/internals/rpcs.md lists the RPCs that each costs slurmctld.
    """

    name: str  # "look", "pyslurm" or "commands", for logs and status
    queue_rpcs: int  # what the queue costs
    grow_rpcs: int  # what a grow costs; every other change costs one RPC

    def nodes(self) -> tuple[Node, ...]:
        """Return every node of the cluster, in slurmctld's order; the same tuple if none changed.

        Slurm takes nodes by weight, and those of one weight in this order.
        """

    def queue(self) -> Queue:
        """Return all trainers with their elements, and what we need about the ordinary jobs.

        A trainer that has not changed since the last reading is the very same object.
        """

    def reservations(self) -> tuple[Reservation, ...]:
        """Return active and future reservations."""

    def configuration(self, partition: str) -> Configuration:
        """Return the settings of slurm.conf that concern trainers in this partition."""

    def last_pass(self) -> BackfillPass | None:
        """Return the last pass of the backfill scheduler; None if none was or it is unknown."""

    def grow(
        self,
        elements: Sequence[ElementId],
        nodes: frozenset[str],
        others: frozenset[str],
        limit: TimeLimit | None,
        *,
        excluded: frozenset[str],
        part: Part | None = None,
    ) -> None:
        """Let held or delayed elements of one trainer start now, one on each of ``nodes``.

        Slurm chooses which element gets which node.

        Args:
            elements: as many as ``nodes``.
            nodes: they may start on these, and Slurm starts them when one is idle.
            others: all other nodes of the partition: they may not start there.
            limit: the time limit to ask for: a backfill start shortens an element's limit, and a
                requeue keeps it short. None leaves it as it is.
            excluded: what the user excluded (``Demands.excluded``), so that the next reading can
                tell it from ``others``.
            part: what each takes of its node; None: what it asks for. With several elements it is
                the first one's alone: slurmctld forgets the GPUs then (22.05).
        """

    def shrink(self, elements: Sequence[ElementId]) -> None:
        """End running elements and hold them again, all of one trainer.

        Elements that have ended meanwhile stay as they are: their owner may have cancelled them.
        """

    def revive(self, elements: Sequence[ElementId]) -> None:
        """Requeue and hold elements that have ended, all of one trainer."""

    def hold(self, elements: Sequence[ElementId]) -> None:
        """Hold pending or delayed elements again, all of one trainer."""

    def end_at(self, elements: Sequence[ElementId], end_s: float) -> None:
        """Set the time limits of running elements of one trainer to end then (Unix seconds).

        Only operators may set a later end than the present one.
        """

    def cancel(self, array: int) -> None:
        """Cancel the rest of a trainer."""

    def trim(self, elements: Sequence[ElementId]) -> None:
        """Cancel these elements of a trainer; the others go on."""

    def label(self, elements: Sequence[ElementId], comment: str) -> None:
        """Set the comment of elements of one trainer."""

    def tell(self, element: ElementId, text: str) -> None:
        """Write a line into the output of an element that ran at the last look.

        Slurm puts some words of its own before it.
        """
