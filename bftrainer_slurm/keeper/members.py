"""The members of a group, and in which order they are ranked. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bftrainer_slurm.keeper.messages import Identity, Peer, Ready


@dataclass(slots=True)
class Member:
    """One connection in a group. ``rank`` is the one in the present generation, if any."""

    key: int
    identity: Identity
    serial: int
    rank: int | None = None
    ready: Ready | None = None
    leaving: bool = False
    vouched: bool = False  # entered the present generation with the same state as its rank 0
    acked: bool = False  # has heard of the planned change
    stopping: bool = False  # knows the step to stop at

    @property
    def place(self) -> tuple[int, str]:
        """The element and the node that it belongs to."""
        return self.identity.task, self.identity.node

    @property
    def order(self) -> tuple[int, int]:
        """Longest-serving first."""
        return (1, self.serial) if self.rank is None else (0, self.rank)

    @property
    def step(self) -> int:
        """The last step that its state includes, as it says; -1: it has none."""
        return -1 if self.ready is None else self.ready.step


def ranked(entrants: Iterable[Member]) -> list[Member]:
    """Order by step, then by service; those of one node stay together."""
    nodes: dict[tuple[int, str], list[Member]] = {}
    for member in entrants:
        nodes.setdefault(member.place, []).append(member)
    for mates in nodes.values():
        mates.sort(key=lambda member: (-member.step, member.identity.local_rank))
    in_order = sorted(
        nodes.values(), key=lambda mates: (-mates[0].step, min(mate.order for mate in mates))
    )
    return [member for mates in in_order for member in mates]


def peers(in_rank_order: list[Member], base_step: int) -> tuple[Peer, ...]:
    """Return what a generation says of its members.

    Steps are told only of those whose state is surely one with rank 0's: those that were in the
    last generation from its start, or all in it once it got beyond ``base_step``, its first
    state. Two states of the same step can differ where their ways parted.
    """
    stepped = any(member.rank is not None and member.step > base_step for member in in_rank_order)

    def has_way(member: Member) -> bool:
        return member.rank is not None and (member.vouched or stepped)

    first = in_rank_order[0]
    return tuple(
        Peer(
            member.identity.task,
            member.identity.node,
            member.identity.local_rank,
            member.identity.address,
            member.step if member is first or (has_way(first) and has_way(member)) else -1,
        )
        for member in in_rank_order
    )
