"""The members of a rendezvous, who of them is in its generation, and what they are told. Pure.

When a generation ends, and who gets into the next one, is decided in ``rendezvous``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from bftrainer_slurm.keeper.messages import (
    Dropped,
    FromKeeper,
    Generation,
    Identity,
    Peer,
    Ready,
    Released,
    Role,
)
from bftrainer_slurm.keeper.protocol import LAUNCHERS, Note, NoteKind
from bftrainer_slurm.sizes import ANY, Sizes


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


@dataclass(frozen=True, slots=True)
class Send:
    """A message to the member with this key."""

    key: int
    message: FromKeeper


@dataclass(frozen=True, slots=True)
class HangUp:
    """The member with this key is out: end its connection."""

    key: int


Output = Send | HangUp | Note  # a note is for the controller


@dataclass(slots=True)
class Group:
    """The members of one run with one role.

    ``alone``: each generation has one member (an agent of an in-process run). A generation has one
    of the allowed ``sizes``: members of other nodes wait, as newcomers do.
    """

    role: Role
    out: list[Output]
    alone: bool = False
    sizes: Sizes = ANY
    number: int = 0  # of the current generation
    highest: int = 0  # the highest number of any generation so far
    members: dict[int, Member] = field(default_factory=dict)  # by key, as they joined
    offering: Generation | None = None  # waits for rank 0's store
    launcher: str = ""  # of those of its members that have said it, the last

    def serving(self) -> list[Member]:
        """Return those that are in the generation."""
        return [member for member in self.members.values() if member.rank is not None]

    def newcomers(self) -> list[Member]:
        """Return those who may join: ready members of nodes whose members are all ready."""
        places: dict[tuple[int, str], list[Member]] = {}
        for member in self.members.values():
            if member.rank is None and member.ready is not None and not member.leaving:
                places.setdefault(member.place, []).append(member)
        whole = [mates for mates in places.values() if len(mates) == mates[0].identity.local_world]
        return [member for mates in whole for member in mates]

    def of(self, tasks: Collection[int]) -> list[Member]:
        """Return the members of these tasks."""
        return [member for member in self.members.values() if member.identity.task in tasks]

    def at(self, identity: Identity) -> Member | None:
        """Return who has the place of this one."""
        for member in self.members.values():
            who = member.identity
            if who.task == identity.task and who.local_rank == identity.local_rank:
                return member
        return None

    def form(self, entrants: list[Member]) -> bool:
        """Form a generation of as many of them as it may have; return whether there is one."""
        in_order = fitting(ranked(entrants), self.sizes)
        for member in self.serving():
            member.rank = None
        if not in_order:
            return False  # none has enough nodes: all wait for more
        self.number = self.highest = self.highest + 1
        for rank, member in enumerate(in_order):
            member.rank = rank
        who = (member.identity for member in in_order)
        told = tuple(Peer(one.task, one.node, one.local_rank) for one in who)
        generation = Generation(self.number, 0, len(in_order), self.alone, None, told)
        in_order[0].ready = None
        self.send(in_order[0], generation)
        if not self.alone:
            self.offering = generation
            self.tell_reformed()
        return True

    def stored(self, member: Member, endpoint: str, number: int) -> None:
        """Rank 0 has opened its store: tell the others."""
        offering = self.offering
        if offering is None or member.rank != 0 or number != offering.number:
            return
        self.offering = None
        for other in self.serving():
            if other.rank:
                other.ready = None
                self.send(other, replace(offering, rank=other.rank, store=endpoint))

    def tell_reformed(self) -> None:
        """Tell the controller of a new generation, unless it is of one member alone."""
        if self.alone:
            return
        serving = self.serving()
        measures = {
            "generation": float(self.number),
            "nodes": float(nodes_of(serving)),
            "mode": float(self.role is Role.WORKER),
        }
        if self.launcher:
            measures["launcher"] = float(LAUNCHERS.index(self.launcher))
        array = serving[0].identity.array
        self.out.append(Note(NoteKind.REFORMED, array, measures=tuple(measures.items())))

    def send(self, member: Member, message: FromKeeper) -> None:
        """Tell a member something."""
        self.out.append(Send(member.key, message))

    def dismiss(self, member: Member, message: FromKeeper) -> None:
        """Tell a member that it is out."""
        del self.members[member.key]
        self.send(member, message)

    def expel(self, member: Member, message: FromKeeper) -> None:
        """The same, and end its connection."""
        self.dismiss(member, message)
        self.out.append(HangUp(member.key))

    def release_leavers(self) -> None:
        """Let those go that are to leave."""
        for member in [one for one in self.members.values() if one.leaving]:
            self.dismiss(member, Released())

    def drop_all(self, why: str) -> None:
        """The run is over."""
        for member in list(self.members.values()):
            self.expel(member, Dropped(why))


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
