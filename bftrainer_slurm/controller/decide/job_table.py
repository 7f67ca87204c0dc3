"""How much of slurmctld's job table trainers may hold, and what they give up above that.

Pure. Each task of an array counts (MaxJobCount) from its submission on, whether it runs or not.
When the table is full, no user can submit a job.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from bftrainer_slurm.controller.decide.actions import Trim
from bftrainer_slurm.controller.decide.eligibility import can_ever_start
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.trainer_state import TrainerState
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import ElementId, ElementState


class _Claim(NamedTuple):
    """How many jobs a trainer, or all trainers of a user, are and cannot do without."""

    size: int
    needed: int


@dataclass(frozen=True, slots=True)
class _Holding:
    """How many jobs a trainer is. Slurm forgets ended ones within minutes (MinJobAge)."""

    view: TrainerView
    size: int
    held: tuple[ElementId, ...]
    anchors: int = 0  # 1: one more is held, which never starts

    @property
    def user(self) -> str:
        """Whose it is."""
        return self.view.trainer.user

    @property
    def is_held(self) -> bool:
        """Whether no element of it runs or is about to."""
        return self.size - self.anchors == len(self.held)

    @property
    def needed(self) -> int:
        """What it cannot do without: its least size, and what is not held."""
        least = self.view.trainer.record.min_nodes + self.anchors
        return min(self.size, max(least, self.size - len(self.held)))

    @property
    def claim(self) -> _Claim:
        """What it is and cannot do without."""
        return _Claim(self.size, self.needed)

    def without(self, count: int) -> _Holding:
        """Return it without so many of its held elements."""
        return replace(self, size=self.size - count, held=self.held[: len(self.held) - count])


def excess(
    views: Iterable[TrainerView],
    snapshot: Snapshot,
    settings: Settings,
    has_begun: Callable[[int], bool],
) -> tuple[list[Trim], dict[int, TrainerState]]:
    """Return what to give up if trainers together hold more than they may.

    These are held elements, and trainers of which no element runs: their next states (by array).
    What can never start goes first. Then each user may hold the same share of the room, and who
    holds no more than that loses nothing. The others give up held elements, down to one size for
    all users, and for all trainers of a user. No trainer goes below its least size, or loses
    elements that are not held. Trainers that have begun stay. Others are refused if their least
    size has no room, the latest ones first. ``has_begun`` says whether an array has ever had a
    node.
    """
    max_jobs, views = snapshot.configuration.max_jobs, [view for view in views if not view.over]
    if max_jobs is None:
        return [], {}
    room = int(settings.job_table_share * max_jobs)
    if sum(len(view.trainer.elements) + 1 for view in views) <= room:
        return [], {}
    holdings = sorted(map(_holding, views), key=lambda one: (one.view.submit_s, one.held))
    if sum(one.size for one in holdings) <= room:
        return [], {}
    why = f"trainers may hold {room:,} of slurmctld's {max_jobs:,} jobs (job_table_share)"
    fair = _shared(_startable(holdings, snapshot, room), has_begun, room)
    kept = Counter({one.view.array: one.size for one in fair})
    trims: list[Trim] = []
    refused: dict[int, TrainerState] = {}
    for one in holdings:
        size = kept[one.view.array]
        if 0 < size < one.size:
            trims.append(Trim(one.held[size - one.size :], why))
        elif size < one.size:
            refused[one.view.array] = replace(one.view.state, over=why)
    return trims, refused


def _holding(view: TrainerView) -> _Holding:
    elements, anchors = view.trainer.elements, int(view.trainer.anchor is not None)
    held = sorted(one.id for one in elements if one.state is ElementState.HELD)
    size = sum(not one.state.over for one in elements) + anchors
    return _Holding(view, size, tuple(held), anchors)


def _startable(holdings: list[_Holding], snapshot: Snapshot, room: int) -> list[_Holding]:
    """Return the holdings after those that can never start gave up held elements, latest first."""
    left: list[_Holding] = []
    beyond = sum(one.size for one in holdings) - room
    for one in reversed(holdings):
        useless = beyond > 0 and not can_ever_start(one.view, snapshot)
        count = len(one.held) if useless else 0
        beyond -= count
        left.append(one.without(count))
    return left[::-1]


def _shared(
    holdings: list[_Holding], has_begun: Callable[[int], bool], room: int
) -> Iterator[_Holding]:
    """Yield what users keep. Who holds no more than a fair share of the room keeps all."""
    sizes = _sizes(holdings)
    share = _level([_Claim(size, 0) for size in sizes.values()], room)
    others: list[_Holding] = []
    for one in holdings:
        if sizes[one.user] <= share:
            room -= one.size
            yield one
        else:
            others.append(one)
    yield from _levelled(_let_in(others, has_begun, room), room)


def _let_in(
    holdings: list[_Holding], has_begun: Callable[[int], bool], room: int
) -> Iterator[_Holding]:
    """Yield the trainers that are not refused: all that have begun, then the oldest ones.

    A user's next trainer needs room beside what all users have if each may have as much as this one
    has without it.
    """
    new = {one.view.array for one in holdings if one.is_held and not has_begun(one.view.array)}
    sizes, needed = _sizes(holdings), Counter[str]()
    for one in sorted(holdings, key=lambda one: one.view.array in new):
        claims = (_Claim(sizes[user], needed[user]) for user in sizes)
        if one.view.array in new and _taken(claims, needed[one.user]) + one.needed > room:
            sizes[one.user] -= one.size
        else:
            needed[one.user] += one.needed
            yield one


def _levelled(holdings: Iterable[_Holding], room: int) -> Iterator[_Holding]:
    """Yield the trainers at one size for all users, and within it for all trainers of a user."""
    of_user: dict[str, list[_Holding]] = defaultdict(list)
    for one in holdings:
        of_user[one.user].append(one)
    claims = {
        user: _Claim(sum(one.size for one in own), sum(one.needed for one in own))
        for user, own in of_user.items()
    }
    most = _level(claims.values(), room)
    for user, own in of_user.items():
        level = _level([one.claim for one in own], max(most, claims[user].needed))
        for one in own:
            yield one.without(max(0, one.size - max(level, one.needed)))


def _sizes(holdings: Iterable[_Holding]) -> Counter[str]:
    """Return how many jobs each user's trainers are."""
    sizes = Counter[str]()
    for one in holdings:
        sizes[one.user] += one.size
    return sizes


def _level(claims: Collection[_Claim], room: int) -> int:
    """Return the greatest size that all may have; those that need more may have more."""
    most = max((one.size for one in claims), default=0)
    return max(0, bisect_right(range(most + 1), room, key=lambda level: _taken(claims, level)) - 1)


def _taken(claims: Iterable[_Claim], level: int) -> int:
    """Return how many jobs there are if all may have this size."""
    return sum(min(one.size, max(level, one.needed)) for one in claims)
