"""Nodes that are left alone for what happened to elements there: slow ends, silence, failures.

What may be one user's own doing keeps only their trainer off a node (``TrainerState.refused``):
what happened to elements of several users counts more.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple

from bftrainer_slurm.controller.observe.schedule import lead_s
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.join_notice import named
from bftrainer_slurm.controller.state.phases import ElementRecord, Ended, Event, Phase
from bftrainer_slurm.controller.state.trainer_state import TrainerState, refuse
from bftrainer_slurm.model import Trainer

logger = logging.getLogger(__name__)

_SEVERAL = 2  # users
WENT_WRONG = "elements failed there, or started or ended too slowly"


@dataclass(frozen=True, slots=True)
class Bar:
    """No element starts on these nodes, or none of one trainer (``array``).

    ``until_s`` (Unix seconds) is when that ends, infinity if nobody knows. ``by``: it is there for
    the failures of this trainer, and falls with them.
    """

    why: str
    nodes: frozenset[str]
    array: int | None = None
    until_s: float = math.inf
    by: int | None = None


class Complaints:
    """For each node the users whose elements it happened to, and until when it counts (Unix s)."""

    def __init__(self) -> None:
        self._until_s: dict[str, dict[str, float]] = {}

    def add(self, node: str, user: str, until_s: float, now_s: float) -> bool:
        """Note one more; return whether it counts for several users now."""
        counts = {one: end_s for one, end_s in self._until_s.get(node, {}).items() if end_s > now_s}
        self._until_s[node] = {**counts, user: until_s}
        return len(self._until_s[node]) >= _SEVERAL

    def nodes(self, now_s: float) -> list[str]:
        """Return the nodes of which something still counts."""
        return sorted(
            node
            for node, users in self._until_s.items()
            if any(end_s > now_s for end_s in users.values())
        )

    def forget(self, node: str) -> None:
        """Nothing is wrong there any more: an element there says that it is up, say."""
        self._until_s.pop(node, None)


_COUNTED = 50
_FEW = 3
_UNUSUAL = 2.0  # times as long as the median


class _Teardown(NamedTuple):
    """An ending that was seen to be over at a time (Unix seconds), and how long it took."""

    time_s: float
    took_s: float


class TeardownTimes:
    """The last endings of elements. Only Slurm's data counts: an element's report can be forged."""

    def __init__(self) -> None:
        self._over: deque[_Teardown] = deque(maxlen=_COUNTED)
        self._beside_s: dict[float, float] = {}  # by when an ending began: how long others take

    def record(self, ended: Iterable[Ended], since_s: Sequence[float], now_s: float) -> None:
        """Count the elements that have left their nodes, and those that still end since then."""
        self._over.extend(_Teardown(now_s, one.took_s) for one in ended)
        beside_s = {one: self._others_s(one, since_s, now_s) for one in set(since_s)}
        self._beside_s = {one: median(others_s or [0.0]) for one, others_s in beside_s.items()}

    @property
    def usual_s(self) -> float:
        """How long endings take: nine in ten take no longer."""
        took_s = self._took_s
        return sorted(took_s)[int(0.9 * len(took_s))] if took_s else 0.0

    def slow(
        self, trainer: Trainer, state: TrainerState, now_s: float, allowed_s: float
    ) -> dict[int, ElementRecord]:
        """Return the elements (by task) that take too long to end.

        Too long means ``allowed_s`` longer than the grace, and twice as long as usual here, and as
        what else ends at this time: an Epilog may take long on every node, and may be new.
        """
        if len(self._over) < _FEW or not self._beside_s:
            return {}
        usual_s, grace_s = median(self._took_s), trainer.record.spec.grace_s

        def is_slow(since_s: float) -> bool:
            expected_s = max(usual_s, self._beside_s.get(since_s, 0.0))
            return now_s - since_s > grace_s + max(allowed_s, _UNUSUAL * expected_s)

        return {
            task: record
            for task, record in state.elements.items()
            if record.phase is Phase.ENDING and not record.blamed and is_slow(record.since_s)
        }

    @property
    def _took_s(self) -> list[float]:
        return [one.took_s for one in self._over]

    def _others_s(self, since_s: float, all_since_s: Sequence[float], now_s: float) -> list[float]:
        """Return how long others took, or have taken so far, that end at the same time as one.

        Of those that began much later nobody knows yet. If there are no others, these are the last
        ones: a node that is left alone ends nothing, so that a few slow ends in a row are those of
        several nodes.
        """
        so_far_s = [now_s - one for one in all_since_s]
        so_far_s.remove(now_s - since_s)  # its own
        known_s = [one for one in so_far_s if _UNUSUAL * one >= now_s - since_s]
        took_s = [one.took_s for one in self._over if one.time_s > since_s]
        return known_s + took_s or self._took_s[-_FEW:]


# A note may be on its way; a prolog, or a slow file system, may hold up the batch script.
_SURE_S = {Phase.MUTE: 5.0, Phase.RUNNING: 120.0}


def mute_sentence(nodes: Sequence[str]) -> str:
    """Say for the admin what is wrong with these nodes, and where to look."""
    return (
        f"{named(nodes)}: elements ran there and never said that they were up. Is BFTrainer's "
        "plugin there, in the node's own plugstack.conf, and built for its Slurm? Does the node "
        "reach the keeper? slurmd's log may say more"
    )


def _nodes(records: Iterable[ElementRecord]) -> set[str]:
    return {record.node for record in records if record.node is not None}


def blame(state: TrainerState, elements: Mapping[int, ElementRecord]) -> TrainerState:
    """Return the state after these count against their nodes: each does so once."""
    blamed = {task: replace(record, blamed=True) for task, record in elements.items()}
    return replace(state, elements={**state.elements, **blamed}) if blamed else state


class BadNodes:
    """Follows them from look to look. All trainers stay off those of the ``bars``."""

    def __init__(self, settings: Settings) -> None:
        self.bars: tuple[Bar, ...] = ()
        self.mute = Complaints()  # of elements that never said there that they were up
        self._no_notes_s = -math.inf  # when no notes came through last: silence says nothing before
        self._settings = settings
        self._teardown_times = TeardownTimes()
        self._slow = Complaints()

    @property
    def lead_s(self) -> float:
        """How long before a backfill pass trainers leave, by how long elements take to end."""
        return lead_s(self._teardown_times.usual_s)

    def look(
        self,
        trainers: Sequence[Trainer],
        states: dict[int, TrainerState],
        events: Iterable[Event],
        notes_arrive: bool,
        now_s: float,
    ) -> None:
        """Take in a look; trainers that stay off a node alone have that noted in ``states``."""
        self.bars = tuple(one for one in self.bars if one.until_s > now_s)
        ended = (event for event in events if isinstance(event, Ended))
        records = (record for state in states.values() for record in state.elements.values())
        since_s = [record.since_s for record in records if record.phase is Phase.ENDING]
        self._teardown_times.record(ended, since_s, now_s)
        self._no_notes_s = self._no_notes_s if notes_arrive else now_s
        known = self.mute.nodes(now_s)
        for trainer in trainers:
            if (state := states.get(trainer.array)) is not None:
                state = self._see_slow(trainer, state, now_s)
                states[trainer.array] = self._see_mute(trainer, state, now_s)
        for node in self.mute.nodes(now_s):
            if node not in known:
                logger.warning("%s", mute_sentence([node]))

    def _see_slow(self, trainer: Trainer, state: TrainerState, now_s: float) -> TrainerState:
        """Keep trainers off nodes on which their elements take unusually long to end."""
        slow = self._teardown_times.slow(trainer, state, now_s, self._settings.slow_end_s)
        for one in slow.values():
            logger.warning(
                "an element of %d took %.1f s to end on %s: its trainer stays off it for now, and "
                "so do all if this happens to two users there",
                *(trainer.array, now_s - one.since_s, one.node),
            )
        return self._complain(self._slow, trainer, state, slow, now_s)

    def _see_mute(self, trainer: Trainer, state: TrainerState, now_s: float) -> TrainerState:
        """Keep trainers off nodes on which their elements were mute."""
        mute = {
            task: record
            for task, record in state.elements.items()
            if record.phase in _SURE_S and record.mute and not record.blamed
        }
        if ended := _nodes(one for one in mute.values() if one.phase is Phase.MUTE):
            state = refuse(state, ended, now_s + _SURE_S[Phase.MUTE])
        sure = {task: one for task, one in mute.items() if self._is_sure(one, now_s)}
        return self._complain(self.mute, trainer, state, sure, now_s)

    def _is_sure(self, mute: ElementRecord, now_s: float) -> bool:
        """Whether its silence counts. What runs may wait for a keeper that is away."""
        waits = mute.phase is Phase.RUNNING
        since_s = max(mute.since_s, self._no_notes_s) if waits else mute.since_s
        return now_s - since_s >= _SURE_S[mute.phase]

    def _complain(
        self,
        complaints: Complaints,
        trainer: Trainer,
        state: TrainerState,
        elements: Mapping[int, ElementRecord],
        now_s: float,
    ) -> TrainerState:
        """Keep this trainer off the nodes of these elements; all, if it is not the first user."""
        if not elements:
            return state
        nodes, until_s = _nodes(elements.values()), now_s + self._settings.bad_node_s
        shared = {node for node in nodes if complaints.add(node, trainer.user, until_s, now_s)}
        if shared:
            self.bars += (Bar(WENT_WRONG, frozenset(shared), until_s=until_s),)
        return refuse(blame(state, elements), nodes, until_s)
