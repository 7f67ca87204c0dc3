"""Evidence that nodes are bad: elements failed there, did not start, or never said they were up.

What one user's elements did may be that user's fault, so it keeps only their trainer off the node
(``TrainerState.refused``). Evidence of two users, or Slurm's own, keeps all trainers off. Nodes
where processes do not end, or a health check fails, are Slurm's to drain.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.phases import ElementRecord, Phase
from bftrainer_slurm.controller.state.trainer_state import TrainerState, refuse
from bftrainer_slurm.model import Trainer
from bftrainer_slurm.words import some

logger = logging.getLogger(__name__)

FAILED, LATE, MUTE = "failed", "did not start", "never said that it was up"
WENT_WRONG = "elements failed there, did not start, or never said that they were up"
_SEVERAL = 2  # users


@dataclass(frozen=True, slots=True)
class Bar:
    """No element may start on these nodes."""

    why: str
    nodes: frozenset[str]
    array: int | None = None  # the bar holds for this trainer only; None: for all
    until_s: float = math.inf  # when the bar ends (Unix seconds); infinity: unknown


class Evidence(NamedTuple):
    """What an element did on a node; it counts until a time (Unix seconds)."""

    node: str
    user: str  # of the element; empty: the user has no part in it
    array: int
    why: str
    until_s: float


def bad_for_all(evidence: Iterable[Evidence], now_s: float) -> dict[str, float]:
    """Return the nodes that all trainers avoid, and until when (Unix seconds)."""
    known: dict[str, dict[str, float]] = {}
    for one in evidence:
        if one.until_s > now_s:
            users = known.setdefault(one.node, {})
            users[one.user] = max(one.until_s, users.get(one.user, 0.0))
    return {
        node: users.get("") or sorted(users.values())[-_SEVERAL]
        for node, users in known.items()
        if "" in users or len(users) >= _SEVERAL
    }


# How long to wait before silence counts. A note may still be on its way, and a prolog or a slow
# file system may delay the batch script.
_SURE_S = {Phase.MUTE: 5.0, Phase.RUNNING: 120.0}


def mute_sentence(nodes: Sequence[str]) -> str:
    """Tell the admin what is wrong with these nodes, and where to look."""
    return (
        f"{some(nodes)}: elements ran there and never said that they were up. Is BFTrainer's "
        "plugin installed, listed in the node's own plugstack.conf, and built for its Slurm? Can "
        "the node reach the keeper? slurmd's log may say more"
    )


def _nodes(records: Iterable[ElementRecord]) -> set[str]:
    return {record.node for record in records if record.node is not None}


def blame(state: TrainerState, elements: Mapping[int, ElementRecord]) -> TrainerState:
    """Mark elements as counted against their nodes, so that each counts only once."""
    blamed = {task: replace(record, blamed=True) for task, record in elements.items()}
    return replace(state, elements={**state.elements, **blamed})


class BadNodes:
    """The evidence, look by look."""

    def __init__(self, settings: Settings) -> None:
        self.evidence: tuple[Evidence, ...] = ()
        self._no_notes_s = -math.inf  # when the stream was last down; silence before means nothing
        self._settings = settings

    def look(self, notes_arrive: bool, now_s: float) -> None:
        """Take in a look."""
        self.evidence = tuple(one for one in self.evidence if one.until_s > now_s)
        self._no_notes_s = self._no_notes_s if notes_arrive else now_s

    def mute_nodes(self, now_s: float) -> list[str]:
        """Return the nodes on which elements never reported that they were up."""
        mute = (one for one in self.evidence if one.why == MUTE and one.until_s > now_s)
        return sorted({one.node for one in mute})

    def is_up(self, node: str) -> None:
        """Drop what is known about silence on a node: an element has reported from there."""
        self.evidence = tuple(one for one in self.evidence if (one.node, one.why) != (node, MUTE))

    def avoid(self, trainer: Trainer, state: TrainerState, now_s: float) -> TrainerState:
        """Return the state with the nodes on which elements never reported that they were up."""
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
        if not sure:
            return state
        nodes, until_s = _nodes(sure.values()), now_s + self._settings.bad_node_s
        for node in sorted(nodes.difference(self.mute_nodes(now_s))):
            logger.warning("%s", mute_sentence([node]))
        about = trainer.user, trainer.array, MUTE, until_s
        self.evidence += tuple(Evidence(node, *about) for node in sorted(nodes))
        return refuse(blame(state, sure), nodes, until_s)

    def _is_sure(self, mute: ElementRecord, begun_s: float, now_s: float) -> bool:
        """Whether an element's silence counts. One that runs may wait for a keeper that is down."""
        waits = mute.phase is Phase.RUNNING
        since_s = max(mute.since_s, begun_s, self._no_notes_s) if waits else mute.since_s
        return now_s - since_s >= _SURE_S[mute.phase]
