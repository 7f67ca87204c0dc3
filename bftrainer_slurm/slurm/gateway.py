"""What the controller needs of Slurm, whichever way it is asked, and the errors it can raise.

The two implementations are ``commands`` (Slurm's own commands) and ``pyslurm_gateway``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bftrainer_slurm.model import ElementId, Node, Queue, Reservation


class GatewayError(Exception):
    """Slurm said no, or nothing; the message names the request and Slurm's own words."""


class SlurmUnavailableError(GatewayError):
    """slurmctld does not answer; try again later."""


class RefusedError(GatewayError):
    """Slurm refused: no permission, or the element is not (or no longer) in a fitting state."""


class Gateway(Protocol):
    """Slurm, seen from the controller.

    Every method raises SlurmUnavailableError when slurmctld cannot be reached and RefusedError
    when it refuses. The RPCs that each one costs slurmctld are listed in the README.
    """

    name: str  # "commands" or "pyslurm", for logs and status
    grow_rpcs: int  # what a grow costs; every other change costs one RPC

    def nodes(self) -> tuple[Node, ...]:
        """Return every node of the cluster."""

    def queue(self) -> Queue:
        """Return all trainers with their elements, and what concerns us of the ordinary jobs."""

    def reservations(self) -> tuple[Reservation, ...]:
        """Return the reservations that are active or to come."""

    def grow(self, element: ElementId, node: str, minutes: int | None = None) -> None:
        """Let a held or delayed element start on ``node`` now, and only there.

        ``minutes`` is the time limit to ask for: a backfill start shortens an element's limit,
        and a requeue keeps it short.
        """

    def shrink(self, elements: Sequence[ElementId]) -> None:
        """End running elements and hold them again, all of one trainer.

        Those that have ended meanwhile stay as they are: their owner may have cancelled them.
        """

    def revive(self, elements: Sequence[ElementId]) -> None:
        """Requeue and hold elements that have ended, all of one trainer."""

    def hold(self, elements: Sequence[ElementId]) -> None:
        """Hold pending or delayed elements again, all of one trainer."""

    def lengthen(self, elements: Sequence[ElementId], minutes: int) -> None:
        """Set the time limit of running elements of one trainer; operators only."""

    def cancel(self, array: int) -> None:
        """Cancel whatever is left of a trainer."""
