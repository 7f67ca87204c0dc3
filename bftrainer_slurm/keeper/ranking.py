"""The members of a rendezvous, and the order of their ranks. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from bftrainer_slurm.keeper.messages import Identity, Ready
from bftrainer_slurm.sizes import Sizes


@dataclass(slots=True)
class Member:
    """One connection in a rendezvous. ``rank`` is its rank in the current generation, if any."""

    key: int
    identity: Identity
    rank: int | None = None
    ready: Ready | None = None
    leaving: bool = False
    finishing: bool = False  # its processes have ended well, and it waits for the others'

    @property
    def place(self) -> tuple[int, str]:
        """The element and the node that it belongs to."""
        return self.identity.task, self.identity.node

    @property
    def holds_up(self) -> bool:
        """Whether the next generation waits for it, if a change was announced."""
        return self.rank is not None and self.ready is None and not self.leaving

    @property
    def order(self) -> tuple[int, int]:
        """Longest-serving first; newcomers come last."""
        return (1, 0) if self.rank is None else (0, self.rank)

    @property
    def version(self) -> tuple[int, int]:
        """Lineage and last step of its state, as it reports them: larger is further."""
        return (0, -1) if self.ready is None else (self.ready.lineage, self.ready.step)


def nodes_of(members: Collection[Member]) -> int:
    """Return how many nodes these members are on."""
    return len({member.place for member in members})


def fitting(members: list[Member], sizes: Sizes) -> list[Member]:
    """Return the first of these members that are on a number of nodes that is allowed.

    Those of one node must stand together.
    """
    places = list(dict.fromkeys(member.place for member in members))
    chosen = set(places[: sizes.up_to(len(places))])
    return [member for member in members if member.place in chosen]


def ranked(entrants: Iterable[Member]) -> list[Member]:
    """Order members by progress, then by length of service; those of one node stay together.

    Newcomers stay in the order in which they are given.
    """
    nodes: dict[tuple[int, str], list[Member]] = {}
    for member in entrants:
        nodes.setdefault(member.place, []).append(member)
    for mates in nodes.values():
        mates.sort(key=lambda member: member.identity.local_rank)
        mates.sort(key=lambda member: member.version, reverse=True)
    in_order = sorted(nodes.values(), key=lambda mates: min(mate.order for mate in mates))
    in_order.sort(key=lambda mates: mates[0].version, reverse=True)
    return [member for mates in in_order for member in mates]
