"""The picture for a decision: what Slurm says, and what the controller knows besides.

Knowledge of the cluster is kept here from look to look; knowledge of trainers is in ``roster``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bftrainer_slurm.controller.observe.schedule import LEAD_S
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.holes import Holes
from bftrainer_slurm.controller.state.passes import Judgement, Passes, in_holes_without
from bftrainer_slurm.controller.state.phases import GOES, Event
from bftrainer_slurm.controller.state.preemptions import Preemptions
from bftrainer_slurm.controller.state.roster import Roster
from bftrainer_slurm.controller.state.view import TrainerView


@dataclass(frozen=True, slots=True)
class Picture:
    """One moment. Times are Unix seconds, durations seconds.

    ``avoid`` says until when nodes are left alone; ``out_of_reach`` are nodes of trainers that
    cannot be handled; ``taken`` those that Slurm took from elements for a job that has not started
    yet; ``kept`` those that ordinary jobs shall find idle. For holes it tells since when each is
    there, how long it will last, and how far ahead to plan. ``reserve`` is how many nodes to keep
    idle for future ordinary jobs; ``judgement`` is what Slurm's backfill scheduler has decided
    about jobs; ``lead_s`` is how long before its next pass trainers leave.
    """

    snapshot: Snapshot
    views: tuple[TrainerView, ...] = ()
    avoid: Mapping[str, float] = field(default_factory=dict)
    out_of_reach: frozenset[str] = frozenset()
    since_s: Mapping[str, float] = field(default_factory=dict)
    life_s: Mapping[str, float] = field(default_factory=dict)
    forward_time_s: float = 120.0
    reserve: int = 0
    judgement: Judgement = field(default_factory=Judgement)
    lead_s: float = LEAD_S
    taken: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()

    @property
    def now_s(self) -> float:
        """When it was taken."""
        return self.snapshot.time_s


class Surroundings:
    """What is known of the cluster besides its trainers: holes, ordinary jobs, Slurm's passes."""

    def __init__(self, history: History, settings: Settings) -> None:
        self._history = history
        self._settings = settings
        self._holes = Holes(history)
        self._passes = Passes()
        self._preemptions = Preemptions()

    def look(
        self,
        snapshot: Snapshot,
        views: Sequence[TrainerView],
        events: Sequence[Event],
        now_s: float,
    ) -> None:
        """Take in a snapshot, and what has happened to elements before it."""
        queue, backfill_s = snapshot.queue, snapshot.configuration.backfill_s
        preempted = self._preemptions.look(events, queue, backfill_s, now_s)
        self._history.add_preemptions(preempted)
        self._holes.update(snapshot)
        self._history.inventory.update(snapshot)
        self._passes.look(snapshot, in_holes_without(snapshot, views, *GOES), now_s)

    def judgement(self, snapshot: Snapshot, now_s: float) -> Judgement:
        """Return what is now known of Slurm's passes."""
        return self._passes.judgement(snapshot.configuration.backfill_s, now_s)

    def picture(self, snapshot: Snapshot, roster: Roster) -> Picture:
        """Return all that is known."""
        settings, now_s = self._settings, snapshot.time_s
        return Picture(
            snapshot,
            roster.views,
            roster.bad.until_s,
            roster.out_of_reach,
            self._holes.since_s,
            self._holes.life_s(snapshot),
            self._holes.forward_time_s(settings),
            settings.reserve_nodes,
            self.judgement(snapshot, now_s),
            roster.bad.lead_s,
            self._preemptions.nodes,
        )
