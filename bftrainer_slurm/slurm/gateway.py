"""The interface through which the controller uses Slurm, and the errors of its methods.

The implementations are ``commands`` (Slurm's own commands), ``look_gateway`` and
``pyslurm_gateway``; ``open`` chooses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from bftrainer_slurm.spec import TrainerRecord

CHOICES = ("auto", "look", "pyslurm", "commands")


# A job_submit plugin in Lua refuses a change by slurm.ERROR, or as Slurm refuses strangers.
_BY_JOB_SUBMIT = ("Unspecified error", "Access/permission denied")
JOB_SUBMIT = (
    "if this site has a job_submit plugin, its slurm_job_modify has to let the controller's "
    "account change jobs"
)


def may_be_job_submit(words: str) -> bool:
    """Whether a job_submit plugin can be behind a refusal, by Slurm's words."""
    return any(sign in words for sign in _BY_JOB_SUBMIT)


class GatewayError(Exception):
    """Slurm refused or did not answer; the message quotes the request and Slurm's answer."""


class SlurmUnavailableError(GatewayError):
    """slurmctld does not answer; try again later."""


class NoCommandError(GatewayError):
    """A command cannot be run: this host has no Slurm, or PATH does not name it."""


class RefusedError(GatewayError):
    """Slurm refused: no permission, or an element is not (or no longer) in the right state.

    ``elements`` are the refused ones; for the others the request was carried out. It is empty if
    Slurm's message names no element, or cuts the list off: then any element may be refused.
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

    def nodes(self) -> tuple[Node, ...]:
        """Return every node of the cluster, in slurmctld's order; the same tuple if none changed.

        Slurm allocates nodes by weight, and nodes of one weight in this order.
        """

    def queue(self) -> Queue:
        """Return all trainers with their elements, and what we need about the ordinary jobs.

        A trainer that has not changed since the last reading is the same object.
        """

    def remember(self, trainers: Mapping[int, tuple[str, TrainerRecord, float]]) -> None:
        """Take user, record and time (Unix seconds) of trainers that a controller has met before.

        Their users may have replaced all comments since.
        """

    def reservations(self) -> tuple[Reservation, ...]:
        """Return active and future reservations."""

    def configuration(self, partition: str) -> Configuration:
        """Return the settings of slurm.conf that concern trainers in this partition."""

    def last_pass(self) -> BackfillPass | None:
        """Return the last pass of the backfill scheduler; None if none is known."""

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

        Slurm chooses which element gets which node.

        Args:
            elements: as many as ``nodes``.
            nodes: the elements may start on these; Slurm starts one on each that is idle.
            others: all other nodes of the partition; the elements may not start there.
            limit: the time limit to set, because a backfill start shortens an element's limit and
                a requeue keeps it short. None leaves the limit unchanged.
            excluded: what the user excluded (``Demands.excluded``), so that the next reading can
                separate it from ``others``.
        """

    def shrink(self, elements: Sequence[ElementId]) -> None:
        """End running elements and hold them again, all of one trainer.

        Elements that have ended meanwhile stay ended: their owner may have cancelled them.
        """

    def revive(self, elements: Sequence[ElementId]) -> None:
        """Requeue and hold elements that have ended, all of one trainer."""

    def hold(self, elements: Sequence[ElementId]) -> None:
        """Hold pending or delayed elements again, all of one trainer."""

    def end_at(self, elements: Sequence[ElementId], end_s: float) -> None:
        """Set the time limits of one trainer's running elements to end at ``end_s`` (Unix).

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

        Slurm writes its own prefix before the text.
        """
