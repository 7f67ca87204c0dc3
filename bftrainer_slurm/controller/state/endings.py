"""How long Slurm takes to end elements, and on which nodes this takes unusually long."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from bftrainer_slurm.controller.state.phases import Ended, Phase
from bftrainer_slurm.controller.state.trainer_state import TrainerState
from bftrainer_slurm.model import Trainer

_COUNTED = 50
_FEW = 3
_UNUSUAL = 2.0  # times as long as the median


class _Over(NamedTuple):
    """An ending that was seen to be over at a time (Unix seconds), and how long it took."""

    time_s: float
    took_s: float


class Endings:
    """The last endings of elements. Only Slurm's data counts: an element's report can be forged."""

    def __init__(self) -> None:
        self._over: deque[_Over] = deque(maxlen=_COUNTED)
        self._beside_s: dict[float, float] = {}  # by when an ending began: how long others take

    def saw(self, ended: Iterable[Ended], since_s: Sequence[float], now_s: float) -> None:
        """Count the elements that have left their nodes, and those that still end since then."""
        self._over.extend(_Over(now_s, one.took_s) for one in ended)
        beside_s = {one: self._others_s(one, since_s, now_s) for one in set(since_s)}
        self._beside_s = {one: median(others_s or [0.0]) for one, others_s in beside_s.items()}

    @property
    def usual_s(self) -> float:
        """How long endings take: nine in ten take no longer."""
        took_s = self._took_s
        return sorted(took_s)[int(0.9 * len(took_s))] if took_s else 0.0

    def blame(
        self, trainer: Trainer, state: TrainerState, now_s: float, allowed_s: float
    ) -> tuple[TrainerState, dict[str, float]]:
        """Return the nodes that take too long to end an element, and for how long they have.

        Too long means ``allowed_s`` longer than the grace, and twice as long as usual here, and as
        what else ends at this time: an Epilog may take long on every node, and may be new. A node
        is blamed once for each ending.
        """
        if len(self._over) < _FEW:
            return state, {}
        usual_s, grace_s = median(self._took_s), trainer.record.spec.grace_s

        def is_slow(since_s: float) -> bool:
            expected_s = max(usual_s, self._beside_s.get(since_s, 0.0))
            return now_s - since_s > grace_s + max(allowed_s, _UNUSUAL * expected_s)

        slow = {
            task: record
            for task, record in state.elements.items()
            if record.phase is Phase.ENDING and not record.blamed and is_slow(record.since_s)
        }
        blamed = {task: replace(record, blamed=True) for task, record in slow.items()}
        nodes = {one.node: now_s - one.since_s for one in slow.values() if one.node is not None}
        return replace(state, elements={**state.elements, **blamed}) if slow else state, nodes

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
