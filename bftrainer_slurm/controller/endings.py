"""Elements that are being ended, and the nodes on which that takes so long that a job may wait.

Slurm's word alone counts: what elements say of themselves, others could say too.
"""

from __future__ import annotations

from collections.abc import Iterable

from bftrainer_slurm.controller.view import TrainerView
from bftrainer_slurm.model import ElementId, ElementState


class Endings:
    """Remembers since when elements have been ending, from one look to the next."""

    def __init__(self) -> None:
        self._since_s: dict[ElementId, float] = {}
        self._told: set[ElementId] = set()

    def slow(
        self, views: Iterable[TrainerView], now_s: float, allowed_s: float
    ) -> dict[str, float]:
        """Return nodes that take more than ``allowed_s`` longer than the grace to end an element.

        And for how many seconds it has been seen ending. A node is told once for each ending.
        """
        slow: dict[str, float] = {}
        seen: set[ElementId] = set()
        for view in views:
            limit_s = view.trainer.record.spec.grace_s + allowed_s
            for element in view.with_state(ElementState.ENDING):
                seen.add(element.id)
                took_s = now_s - self._since_s.setdefault(element.id, now_s)
                if took_s > limit_s and element.node and element.id not in self._told:
                    self._told.add(element.id)
                    slow[element.node] = took_s
        self._since_s = {one: since_s for one, since_s in self._since_s.items() if one in seen}
        self._told &= seen
        return slow
