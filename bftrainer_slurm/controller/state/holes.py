"""The holes of the cluster as the loop sees them: since when, for how long, and how they change.

It needs only one snapshot after the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.planner.survival import Survival

_CHANGES_COUNTED = 50.0  # the mean gap is over about so many changes
_SHORTEST_S, _LONGEST_S = 60.0, 300.0  # forward times


class Holes:
    """Remembers holes, writes the ended ones to the history, and predicts their ends."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._survival = Survival()
        self._since_s: dict[str, float] = history.holes.open()
        self._order: list[str] = []  # the nodes in holes at the last look
        self._last_s: float | None = None
        self._open_s = 0.0  # seconds with any hole since the last change
        self._gaps_s = 0.0
        self._changes = 0.0

    def update(self, snapshot: Snapshot) -> None:
        """Compare with a fresh snapshot. Holes are ordered as Slurm takes their nodes."""
        now_s = snapshot.time_s
        taken = snapshot.queue.ordinary_nodes | snapshot.unexplained
        order = [node.name for node in snapshot.by_weight if node.name in snapshot.in_holes]
        if self._last_s is None or now_s < self._last_s:
            self._first_look(order, now_s)
        elif order != self._order or now_s > self._last_s:
            self._learn(order, taken, now_s)
        self._order, self._last_s = order, now_s

    def life_s(self, snapshot: Snapshot) -> Mapping[str, float]:
        """Return how long (seconds) each node in a hole is expected to stay in it.

        Slurm's own expected starts and reservations count if they are sooner.
        """
        now_s = snapshot.time_s
        ages_s = [max(0.0, now_s - self._since_s[node]) for node in self._order]
        life_s = dict(zip(self._order, self._survival.life_s(ages_s).tolist(), strict=True))
        starts_s = [*snapshot.wanted_s.items()]
        starts_s += [(node, one.start_s) for node, one in snapshot.reserved.items()]
        for node, start_s in starts_s:
            if node in life_s:
                life_s[node] = min(life_s[node], max(0.0, start_s - now_s))
        return life_s

    @property
    def since_s(self) -> Mapping[str, float]:
        """Since when each node in a hole has been in it."""
        return self._since_s

    def forward_time_s(self, settings: Settings) -> float:
        """Return how far to plan ahead: the admin's setting, or the mean gap of recent changes.

        A plan stands until the pool changes next, so a rescale has to pay off in that time.
        """
        if not settings.adapt_forward_time or self._changes < 1:
            return settings.forward_time_s
        return min(_LONGEST_S, max(_SHORTEST_S, self._gaps_s / self._changes))

    def _first_look(self, order: list[str], now_s: float) -> None:
        gone = self._since_s.keys() - set(order)
        self._history.holes.change(
            ended=gone, began=set(order) - self._since_s.keys(), time_s=now_s
        )
        # If the clock was set back since, a hole would begin in the future.
        self._since_s = {node: min(self._since_s.get(node, now_s), now_s) for node in order}

    def _learn(self, order: list[str], taken: frozenset[str], now_s: float) -> None:
        assert self._last_s is not None
        before_s = self._last_s
        passed_s = max(0.0, now_s - before_s)  # a clock may be set back
        ages_s = [max(0.0, before_s - self._since_s[node]) for node in self._order]
        ended = [node in taken for node in self._order]
        self._survival.saw(ages_s, ended, passed_s)
        if self._order:
            self._open_s += passed_s
        gone, new = set(self._order).difference(order), set(order).difference(self._order)
        if not gone and not new:
            return
        for node in gone:
            del self._since_s[node]
        self._since_s.update(dict.fromkeys(new, now_s))
        self._history.holes.change(ended=gone, began=new, time_s=now_s)
        kept = math.exp(-1 / _CHANGES_COUNTED)
        self._gaps_s = kept * self._gaps_s + self._open_s
        self._changes = kept * self._changes + 1
        self._open_s = 0.0
