"""How long Slurm takes to end elements, and on which nodes this takes unusually long."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from statistics import median

from bftrainer_slurm.controller.state.phases import Ended, Phase
from bftrainer_slurm.controller.state.trainer_state import TrainerState
from bftrainer_slurm.model import Trainer

_COUNTED = 50
_FEW = 3
_UNUSUAL = 2.0  # times as long as the median


class Endings:
    """The last endings of elements. Only Slurm's data counts: an element's report can be forged."""

    def __init__(self) -> None:
        self._took_s: deque[float] = deque(maxlen=_COUNTED)

    def saw(self, ended: Iterable[Ended]) -> None:
        """Count the elements that have left their nodes."""
        self._took_s.extend(one.took_s for one in ended)

    @property
    def usual_s(self) -> float:
        """How long endings take: nine in ten take no longer."""
        return sorted(self._took_s)[int(0.9 * len(self._took_s))] if self._took_s else 0.0

    def blame(
        self, trainer: Trainer, state: TrainerState, now_s: float, allowed_s: float
    ) -> tuple[TrainerState, dict[str, float]]:
        """Return the nodes that take too long to end an element, and for how long they have.

        Too long means ``allowed_s`` longer than the grace, and twice as long as usual here: an
        Epilog may take long on every node. A node is blamed once for each ending.
        """
        if len(self._took_s) < _FEW:
            return state, {}
        limit_s = trainer.record.spec.grace_s + max(allowed_s, _UNUSUAL * median(self._took_s))
        slow = {
            task: record
            for task, record in state.elements.items()
            if record.phase is Phase.ENDING
            and now_s - record.since_s > limit_s
            and not record.blamed
        }
        blamed = {task: replace(record, blamed=True) for task, record in slow.items()}
        nodes = {one.node: now_s - one.since_s for one in slow.values() if one.node is not None}
        return replace(state, elements={**state.elements, **blamed}) if slow else state, nodes
