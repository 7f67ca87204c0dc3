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
        # Since when each node in a hole has been in it, in the order in which Slurm takes them.
        self.since_s: Mapping[str, float] = history.holes.open()
        self._last_s = math.inf  # when the last look was
        self._open_s = 0.0  # seconds with any hole since the last change
        self._gaps_s = 0.0
        self._changes = 0.0

    def update(self, snapshot: Snapshot) -> None:
        """Compare with a fresh snapshot."""
        now_s, since_s = snapshot.time_s, self.since_s
        order = [node.name for node in snapshot.by_weight if node.name in snapshot.in_holes]
        gone, new = since_s.keys() - snapshot.in_holes, snapshot.in_holes - since_s.keys()
        self._history.holes.change(ended=gone, began=new, time_s=now_s)
        if now_s >= self._last_s:
            self._learn(snapshot, changed=bool(gone or new))
        # If the clock was set back since, a hole would begin in the future.
        self.since_s = {node: min(since_s.get(node, now_s), now_s) for node in order}
        self._last_s = now_s

    def life_s(self, snapshot: Snapshot) -> Mapping[str, float]:
        """Return how long (seconds) each node in a hole is expected to stay in it.

        Slurm's own expected starts and reservations count if they are sooner.
        """
        now_s = snapshot.time_s
        ages_s = [max(0.0, now_s - since_s) for since_s in self.since_s.values()]
        life_s = dict(zip(self.since_s, self._survival.life_s(ages_s).tolist(), strict=True))
        starts_s = [*snapshot.wanted_s.items()]
        starts_s += [(node, one.start_s) for node, one in snapshot.reserved.items()]
        for node, start_s in starts_s:
            if node in life_s:
                life_s[node] = min(life_s[node], max(0.0, start_s - now_s))
        return life_s

    def forward_time_s(self, settings: Settings) -> float:
        """Return how far to plan ahead: the admin's setting, or the mean gap of recent changes.

        A plan stands until the pool changes next, so a rescale has to pay off in that time.
        """
        if not settings.adapt_forward_time or self._changes < 1:
            return settings.forward_time_s
        return min(_LONGEST_S, max(_SHORTEST_S, self._gaps_s / self._changes))

    def _learn(self, snapshot: Snapshot, changed: bool) -> None:
        """Learn from what has become of the holes of the last look."""
        passed_s = snapshot.time_s - self._last_s
        taken = snapshot.queue.ordinary_nodes | snapshot.unexplained
        ages_s = [max(0.0, self._last_s - since_s) for since_s in self.since_s.values()]
        self._survival.saw(ages_s, [node in taken for node in self.since_s], passed_s)
        if self.since_s:
            self._open_s += passed_s
        if changed:
            kept = math.exp(-1 / _CHANGES_COUNTED)
            self._gaps_s = kept * self._gaps_s + self._open_s
            self._changes = kept * self._changes + 1
            self._open_s = 0.0
