"""Finds nodes that trainers should avoid: elements end slowly there, send no notes, or fail.

A problem that only one user's elements had may be that user's fault, so it keeps only their trainer
off the node (``TrainerState.refused``). A problem of several users keeps all trainers off.
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
from bftrainer_slurm.controller.state.join_notice import node_names
from bftrainer_slurm.controller.state.phases import ElementRecord, Ended, Event, Phase
from bftrainer_slurm.controller.state.trainer_state import TrainerState, refuse
from bftrainer_slurm.model import Trainer

logger = logging.getLogger(__name__)

_SEVERAL = 2  # users
WENT_WRONG = "elements failed there, or started or ended too slowly"


@dataclass(frozen=True, slots=True)
class Bar:
    """No element may start on these nodes."""

    why: str
    nodes: frozenset[str]
    array: int | None = None  # the bar holds for this trainer only; None: for all
    until_s: float = math.inf  # when the bar ends (Unix seconds); infinity: unknown
    by: int | None = None  # this trainer's failures caused the bar; it is lifted with them


class Complaints:
    """For each node: the users whose elements had a problem there, and how long each one counts."""

    def __init__(self) -> None:
        self._until_s: dict[str, dict[str, float]] = {}  # Unix seconds, by node and user

    def add(self, node: str, user: str, until_s: float, now_s: float) -> bool:
        """Add a complaint; return whether several users have complaints about the node now."""
        counts = {one: end_s for one, end_s in self._until_s.get(node, {}).items() if end_s > now_s}
        self._until_s[node] = {**counts, user: until_s}
        return len(self._until_s[node]) >= _SEVERAL

    def nodes(self, now_s: float) -> list[str]:
        """Return the nodes with complaints that still count."""
        return sorted(
            node
            for node, users in self._until_s.items()
            if any(end_s > now_s for end_s in users.values())
        )

    def forget(self, node: str) -> None:
        """Drop all complaints about a node, for example when an element reports that it is up."""
        self._until_s.pop(node, None)


_COUNTED = 50
_FEW = 3
_UNUSUAL = 2.0  # times the median


class _Teardown(NamedTuple):
    """The end of one element."""

    time_s: float  # when a look first saw that the element was gone (Unix seconds)
    took_s: float


class TeardownTimes:
    """How long elements take to end, from Slurm's data: an element's own report can be forged."""

    def __init__(self) -> None:
        self._over: deque[_Teardown] = deque(maxlen=_COUNTED)
        # How long other elements take to end, by the time at which an element began to end.
        self._beside_s: dict[float, float] = {}

    def record(self, ended: Iterable[Ended], since_s: Sequence[float], now_s: float) -> None:
        """Add elements that have left their nodes, and the start times of ends in progress."""
        self._over.extend(_Teardown(now_s, one.took_s) for one in ended)
        beside_s = {one: self._others_s(one, since_s, now_s) for one in set(since_s)}
        self._beside_s = {one: median(others_s or [0.0]) for one, others_s in beside_s.items()}

    @property
    def usual_s(self) -> float:
        """The 90th percentile of the time that elements take to end."""
        took_s = self._took_s
        return sorted(took_s)[int(0.9 * len(took_s))] if took_s else 0.0

    def slow(
        self, trainer: Trainer, state: TrainerState, now_s: float, allowed_s: float
    ) -> dict[int, ElementRecord]:
        """Return the elements (by task) that take too long to end.

        Too long means: ``allowed_s`` beyond the grace time, twice the usual time on this cluster,
        and twice the time of other elements that end now. An Epilog may take long on every node,
        and an admin may have added it just now.
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
        """Return how long other elements took to end since ``since_s``, or have taken so far.

        Those that began much later do not count: their times are not known yet. If there are no
        others, return the last ends. Barred nodes have no ends, so a few slow ends in a row come
        from several nodes.
        """
        so_far_s = [now_s - one for one in all_since_s]
        so_far_s.remove(now_s - since_s)  # the element's own
        known_s = [one for one in so_far_s if _UNUSUAL * one >= now_s - since_s]
        took_s = [one.took_s for one in self._over if one.time_s > since_s]
        return known_s + took_s or self._took_s[-_FEW:]


# How long to wait before silence counts. A note may still be on its way, and a prolog or a slow
# file system may delay the batch script.
_SURE_S = {Phase.MUTE: 5.0, Phase.RUNNING: 120.0}


def mute_sentence(nodes: Sequence[str]) -> str:
    """Tell the admin what is wrong with these nodes, and where to look."""
    return (
        f"{node_names(nodes)}: elements ran there and never said that they were up. Is BFTrainer's "
        "plugin installed, listed in the node's own plugstack.conf, and built for its Slurm? Can "
        "the node reach the keeper? slurmd's log may say more"
    )


def _nodes(records: Iterable[ElementRecord]) -> set[str]:
    return {record.node for record in records if record.node is not None}


def blame(state: TrainerState, elements: Mapping[int, ElementRecord]) -> TrainerState:
    """Mark elements as counted against their nodes, so that each counts only once."""
    blamed = {task: replace(record, blamed=True) for task, record in elements.items()}
    return replace(state, elements={**state.elements, **blamed}) if blamed else state


class BadNodes:
    """Finds bad nodes look by look. ``bars`` keep all trainers off a node."""

    def __init__(self, settings: Settings) -> None:
        self.bars: tuple[Bar, ...] = ()
        self.mute = Complaints()  # about nodes whose elements never reported that they were up
        self._no_notes_s = -math.inf  # when the stream was last down; silence before means nothing
        self._settings = settings
        self._teardown_times = TeardownTimes()
        self._slow = Complaints()

    @property
    def lead_s(self) -> float:
        """How long before a backfill pass trainers leave; it grows with the elements' end times."""
        return lead_s(self._teardown_times.usual_s)

    def look(
        self,
        states: Iterable[TrainerState],
        events: Iterable[Event],
        notes_arrive: bool,
        now_s: float,
    ) -> None:
        """Take in a look."""
        self.bars = tuple(one for one in self.bars if one.until_s > now_s)
        ended = (event for event in events if isinstance(event, Ended))
        records = (record for state in states for record in state.elements.values())
        since_s = [record.since_s for record in records if record.phase is Phase.ENDING]
        self._teardown_times.record(ended, since_s, now_s)
        self._no_notes_s = self._no_notes_s if notes_arrive else now_s

    def avoid(self, trainer: Trainer, state: TrainerState, now_s: float) -> TrainerState:
        """Return the trainer's state after a look, with the nodes that only it avoids."""
        known = self.mute.nodes(now_s)
        state = self._avoid_slow(trainer, state, now_s)
        state = self._avoid_mute(trainer, state, now_s)
        for node in self.mute.nodes(now_s):
            if node not in known:
                logger.warning("%s", mute_sentence([node]))
        return state

    def _avoid_slow(self, trainer: Trainer, state: TrainerState, now_s: float) -> TrainerState:
        """Keep trainers off nodes on which their elements take unusually long to end."""
        slow = self._teardown_times.slow(trainer, state, now_s, self._settings.slow_end_s)
        for one in slow.values():
            logger.warning(
                "an element of %d took %.1f s to end on %s: its trainer avoids this node for now; "
                "all trainers do if it happens to a second user",
                *(trainer.array, now_s - one.since_s, one.node),
            )
        return self._complain(self._slow, trainer, state, slow, now_s)

    def _avoid_mute(self, trainer: Trainer, state: TrainerState, now_s: float) -> TrainerState:
        """Keep trainers off nodes on which their elements never reported that they were up."""
        mute = {
            task: record
            for task, record in state.elements.items()
            if record.phase in _SURE_S and record.mute and not record.blamed
        }
        if ended := _nodes(one for one in mute.values() if one.phase is Phase.MUTE):
            state = refuse(state, ended, now_s + _SURE_S[Phase.MUTE])
        # Slurm sets the start anew once the node has booted.
        begun_s = {
            one.id.task: math.inf if one.boots else one.start_s or 0.0
            for one in (trainer.elements if mute else ())
        }
        sure = {
            task: one
            for task, one in mute.items()
            if self._is_sure(one, begun_s.get(task, 0.0), now_s)
        }
        return self._complain(self.mute, trainer, state, sure, now_s)

    def _is_sure(self, mute: ElementRecord, begun_s: float, now_s: float) -> bool:
        """Whether an element's silence counts. One that runs may wait for a keeper that is down."""
        waits = mute.phase is Phase.RUNNING
        since_s = max(mute.since_s, begun_s, self._no_notes_s) if waits else mute.since_s
        return now_s - since_s >= _SURE_S[mute.phase]

    def _complain(
        self,
        complaints: Complaints,
        trainer: Trainer,
        state: TrainerState,
        elements: Mapping[int, ElementRecord],
        now_s: float,
    ) -> TrainerState:
        """Keep the trainer off these elements' nodes; all trainers if another user complained."""
        if not elements:
            return state
        nodes, until_s = _nodes(elements.values()), now_s + self._settings.bad_node_s
        shared = {node for node in nodes if complaints.add(node, trainer.user, until_s, now_s)}
        if shared:
            self.bars += (Bar(WENT_WRONG, frozenset(shared), until_s=until_s),)
        return refuse(blame(state, elements), nodes, until_s)
