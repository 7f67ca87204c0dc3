"""Nodes that are left alone for what happened to elements there: slow ends, silence, failures.

What may be one user's own doing keeps only their trainer off a node (``TrainerState.refused``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from bftrainer_slurm.controller.observe.schedule import lead_s
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.complaints import Complaints
from bftrainer_slurm.controller.state.endings import Endings
from bftrainer_slurm.controller.state.mute import MuteNodes, mute_sentence
from bftrainer_slurm.controller.state.phases import Ended, Event, Phase
from bftrainer_slurm.controller.state.trainer_state import TrainerState, refuse
from bftrainer_slurm.model import Trainer

logger = logging.getLogger(__name__)


class BadNodes:
    """Follows them from look to look. ``until_s`` says how long (Unix seconds) all stay off."""

    def __init__(self, settings: Settings) -> None:
        self.until_s: Mapping[str, float] = {}
        self.mute = MuteNodes()
        self._settings = settings
        self._endings = Endings()
        self._slow = Complaints()

    @property
    def lead_s(self) -> float:
        """How long before a backfill pass trainers leave, by how long elements take to end."""
        return lead_s(self._endings.usual_s)

    def look(
        self,
        trainers: Sequence[Trainer],
        states: dict[int, TrainerState],
        events: Iterable[Event],
        hears: bool,
        now_s: float,
    ) -> None:
        """Take in a look; trainers that stay off a node alone have that noted in ``states``."""
        self.until_s = {node: end_s for node, end_s in self.until_s.items() if end_s > now_s}
        known = [one for one in trainers if one.array in states]
        self._see_endings(known, states, events, now_s)
        self._see_mute(known, states, hears, now_s)

    def _see_endings(
        self,
        trainers: Iterable[Trainer],
        states: dict[int, TrainerState],
        events: Iterable[Event],
        now_s: float,
    ) -> None:
        """Keep trainers off nodes on which their elements take unusually long to end."""
        ended = (event for event in events if isinstance(event, Ended))
        records = (record for state in states.values() for record in state.elements.values())
        since_s = [record.since_s for record in records if record.phase is Phase.ENDING]
        self._endings.saw(ended, since_s, now_s)
        until_s = now_s + self._settings.bad_node_s
        for trainer in trainers if since_s else ():
            state, slow = self._endings.blame(
                trainer, states[trainer.array], now_s, self._settings.slow_end_s
            )
            for node, took_s in slow.items():
                shared = self._slow.add(node, trainer.user, until_s, now_s)
                whose = "all trainers stay" if shared else f"trainer {trainer.array} stays"
                logger.warning(
                    "an element of %d took %.1f s to end on %s: %s off it for now",
                    *(trainer.array, took_s, node, whose),
                )
                if shared:
                    self.until_s = {**self.until_s, node: until_s}
                else:
                    state = refuse(state, {node}, until_s)
            states[trainer.array] = state

    def _see_mute(
        self,
        trainers: Iterable[Trainer],
        states: dict[int, TrainerState],
        hears: bool,
        now_s: float,
    ) -> None:
        """Keep trainers off nodes on which their elements were mute."""
        until_s, known = now_s + self._settings.bad_node_s, self.mute.names(now_s)
        if not hears:
            self.mute.deaf_s = now_s
        for trainer in trainers:
            after, shared = self.mute.look(trainer, states[trainer.array], now_s, until_s)
            states[trainer.array] = after
            self.until_s = {**self.until_s, **dict.fromkeys(shared, until_s)}
        for node in self.mute.names(now_s):
            if node not in known:
                logger.warning("%s", mute_sentence([node]))
