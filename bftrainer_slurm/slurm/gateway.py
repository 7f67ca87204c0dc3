"""What the controller needs of Slurm, whichever way it is asked, and the errors it can raise.

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
    Queue,
    Reservation,
    TimeLimit,
)


class GatewayError(Exception):
    """Slurm said no, or nothing; the message names the request and Slurm's own words."""


class SlurmUnavailableError(GatewayError):
    """slurmctld does not answer; try again later."""


class RefusedError(GatewayError):
    """Slurm refused: no permission, or an element is not (or no longer) in a fitting state.

    ``elements`` are those it refused, and with the others it is done; none where it names none, or
    more than it has room for: then any of them may be refused.
    """

    def __init__(self, message: str, elements: Sequence[ElementId] = ()) -> None:
        super().__init__(message)
        self.elements = tuple(elements)


class Gateway(Protocol):
    """Slurm, seen from the controller.

    Every method raises SlurmUnavailableError when slurmctld cannot be reached and RefusedError
    when it refuses. The RPCs that each one costs slurmctld are listed in ``docs/rpcs.md``.
    """

    name: str  # "look", "pyslurm" or "commands", for logs and status
    grow_rpcs: int  # what a grow costs; every other change costs one RPC

    def nodes(self) -> tuple[Node, ...]:
        """Return every node of the cluster, in slurmctld's order; the same tuple if none changed.

        Slurm takes nodes by weight, and those of one weight in this order.
        """

    def queue(self) -> Queue:
        """Return all trainers with their elements, and what concerns us of the ordinary jobs.

        A trainer that has not changed since the last reading is the very same object.
        """

    def reservations(self) -> tuple[Reservation, ...]:
        """Return the reservations that are active or to come."""

    def configuration(self, partition: str) -> Configuration:
        """Return what slurm.conf says that concerns trainers in this partition."""

    def last_pass(self) -> BackfillPass | None:
        """Return the last pass of the backfill scheduler; None: none was, or it is not known."""

    def grow(
        self,
        elements: Sequence[ElementId],
        nodes: frozenset[str],
        others: frozenset[str],
        limit: TimeLimit | None,
        *,
        excluded: frozenset[str],
    ) -> None:
        """Let held or delayed elements of one trainer start now, one on each of ``nodes``.

        Which element gets which node is Slurm's choice.

        Args:
            elements: as many as ``nodes``.
            nodes: they may start on these, and Slurm starts them where one is idle.
            others: all other nodes of the partition: they may not start there.
            limit: the time limit to ask for: a backfill start shortens an element's limit, and a
                requeue keeps it short. None leaves it as it is.
            excluded: what the user excluded (``Demands.excluded``), so that the next reading tells
                it from ``others``.
        """

    def shrink(self, elements: Sequence[ElementId]) -> None:
        """End running elements and hold them again, all of one trainer.

        Those that have ended meanwhile stay as they are: their owner may have cancelled them.
        """

    def revive(self, elements: Sequence[ElementId]) -> None:
        """Requeue and hold elements that have ended, all of one trainer."""

    def hold(self, elements: Sequence[ElementId]) -> None:
        """Hold pending or delayed elements again, all of one trainer."""

    def end_at(self, elements: Sequence[ElementId], end_s: float) -> None:
        """Let the time limits of running elements of one trainer end then (Unix seconds).

        Only operators may set a later end than there is.
        """

    def cancel(self, array: int) -> None:
        """Cancel whatever is left of a trainer."""

    def trim(self, elements: Sequence[ElementId]) -> None:
        """Cancel these elements of a trainer; the others go on."""
