"""Nodes on which elements run and never say that they are up: our plugin is not loaded there. Pure.

Nothing guards an element there, and it trains with no other. A user can make their own elements
mute, so only their trainer stays off such a node, until elements of a second user are mute there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from bftrainer_slurm.controller.state.complaints import Complaints
from bftrainer_slurm.controller.state.phases import ElementRecord, Phase
from bftrainer_slurm.controller.state.trainer_state import TrainerState, refuse
from bftrainer_slurm.controller.state.unheard import named
from bftrainer_slurm.model import Trainer

# A note may be on its way; a prolog, or a slow file system, may hold up the batch script.
_SURE_S = {Phase.MUTE: 5.0, Phase.RUNNING: 120.0}


class MuteNodes:
    """Which they are, whose elements were mute there, and until when (Unix seconds) that counts."""

    def __init__(self) -> None:
        self._complaints = Complaints()
        self.deaf_s = -math.inf  # when no notes came through last: silence says nothing before

    def names(self, now_s: float) -> list[str]:
        """Return the nodes."""
        return self._complaints.nodes(now_s)

    def heard(self, node: str) -> None:
        """An element there says that it is up."""
        self._complaints.forget(node)

    def look(
        self, trainer: Trainer, state: TrainerState, now_s: float, until_s: float
    ) -> tuple[TrainerState, list[str]]:
        """Return a trainer's state after a look, and the nodes that all trainers shall avoid."""
        mute = {
            task: record
            for task, record in state.elements.items()
            if record.phase in _SURE_S and record.mute and not record.blamed
        }
        sure = {task: one for task, one in mute.items() if self._is_sure(one, now_s)}
        if ended := _nodes(one for one in mute.values() if one.phase is Phase.MUTE):
            state = refuse(state, ended, now_s + _SURE_S[Phase.MUTE])
        if not sure:
            return state, []
        nodes = _nodes(sure.values())
        complain = self._complaints.add
        shared = [node for node in nodes if complain(node, trainer.user, until_s, now_s)]
        blamed = {task: replace(record, blamed=True) for task, record in sure.items()}
        state = replace(state, elements={**state.elements, **blamed})
        return refuse(state, nodes, until_s), shared

    def _is_sure(self, record: ElementRecord, now_s: float) -> bool:
        """What runs may wait for a keeper that is away; what has ended has not."""
        runs = record.phase is Phase.RUNNING
        since_s = max(record.since_s, self.deaf_s) if runs else record.since_s
        return now_s - since_s >= _SURE_S[record.phase]


def mute_sentence(nodes: Sequence[str]) -> str:
    """Say for the admin what is wrong with these nodes, and where to look."""
    return (
        f"{named(nodes)}: elements ran there and never said that they were up. Is BFTrainer's "
        "plugin there, in the node's own plugstack.conf, and built for its Slurm? Does the node "
        "reach the keeper? slurmd's log may say more"
    )


def _nodes(records: Iterable[ElementRecord]) -> set[str]:
    return {record.node for record in records if record.node is not None}
