"""What a decision reads: Slurm's data, and what the controller remembers about the cluster.

This memory is updated by each look. What is known about trainers is in ``registry``.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bftrainer_slurm.controller.observe.schedule import LEAD_S, BackfillForecast, lead_s
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.bad_nodes import Evidence
from bftrainer_slurm.controller.state.delays import Delays
from bftrainer_slurm.controller.state.history import History, put
from bftrainer_slurm.controller.state.passes import Passes, room_without
from bftrainer_slurm.controller.state.phases import OCCUPIES, VACATES, Ended, Event
from bftrainer_slurm.controller.state.power import PowerSaving
from bftrainer_slurm.controller.state.registry import TrainerRegistry
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import ElementState, Node, WaitingJob
from bftrainer_slurm.planner.survival import Survival

_CHANGES_COUNTED = 50.0  # the mean gap is over about this many changes
_FIRST_S, _SHORTEST_S, _LONGEST_S = 120.0, 60.0, 300.0  # forward times
_COUNTED = 50
_LATELY = 100  # the last starts of ordinary jobs say what the next ones may ask for
_SELDOM = 0.05  # a size that fewer of them had does not count
_EVERY_S = 60.0  # how often to record that the controller still looks
_UNSEEN_S = 300.0  # a longer gap between looks counts as not observed


class Spans:
    """A table of the times when nodes were in some state: ``node``, ``start_s`` and ``end_s``."""

    def __init__(self, history: History, table: str) -> None:
        self._history = history
        self._table = table

    def open(self) -> dict[str, float]:
        """Return the nodes that are in the state as far as is known, and when each entered it."""
        query = f"SELECT node, start_s FROM {self._table} WHERE end_s IS NULL"
        return dict(self._history.read(query))

    def change(self, ended: Iterable[str], began: Iterable[str], time_s: float) -> None:
        """Record which nodes have left the state and which have entered it."""
        end = f"UPDATE {self._table} SET end_s = max(start_s, ?) WHERE node = ? AND end_s IS NULL"
        begin = f"INSERT INTO {self._table} (node, start_s) VALUES (?, ?)"
        ends = ((end, (time_s, node)) for node in ended)
        begins = ((begin, (node, time_s)) for node in began)
        self._history.write(*ends, *begins)


class Holes:
    """Tracks holes, writes them to the history, and predicts how long they last."""

    def __init__(self, history: History) -> None:
        self._spans = Spans(history, "holes")
        self._survival = Survival()
        self._before_s = history.looked_s()  # when the previous controller last looked
        # When the hole of each node began. Nodes are in the order in which Slurm allocates them.
        self.since_s: Mapping[str, float] = self._spans.open()
        self._last_s = math.inf  # time of the last look
        self._open_s = 0.0  # seconds since the last change in which there was any hole
        self._gaps_s = 0.0
        self._changes = 0.0

    def update(self, snapshot: Snapshot) -> None:
        """Compare the holes with a new snapshot."""
        now_s = snapshot.time_s
        if math.isinf(self._last_s) and now_s - self._before_s > _UNSEEN_S:
            self._end_unseen(snapshot)
        since_s = self.since_s
        order = sorted(snapshot.in_holes, key=snapshot.nodes.rank.__getitem__)
        gone, new = since_s.keys() - snapshot.in_holes, snapshot.in_holes - since_s.keys()
        self._spans.change(ended=gone, began=new, time_s=now_s)
        if now_s >= self._last_s:
            self._count_ends(snapshot, changed=bool(gone or new))
        # If the clock was set back, a hole would begin in the future.
        self.since_s = {node: min(since_s.get(node, now_s), now_s) for node in order}
        self._last_s = now_s

    def _end_unseen(self, snapshot: Snapshot) -> None:
        """End the holes that no controller has watched: where a job began, as far as Slurm says.

        The others end when they were last seen, but not under an element that was there all along.
        """
        before_s = self._before_s
        stay = {
            one.node
            for trainer in snapshot.queue.trainers
            for one in trainer.elements
            if one.state is ElementState.RUNNING and not one.gpus
            if one.start_s is not None and one.start_s <= before_s
        }
        began_s = dict[str, float]()
        for run in snapshot.queue.ordinary_runs:
            began_s |= {node: min(run.start_s, began_s.get(node, math.inf)) for node in run.nodes}
        for node in self.since_s.keys() - stay:
            end_s = max(before_s, began_s.get(node, before_s))
            self._spans.change(ended=(node,), began=(), time_s=end_s)
        self.since_s = {node: self.since_s[node] for node in self.since_s if node in stay}

    def life_s(self, snapshot: Snapshot) -> Mapping[str, float]:
        """Return how many more seconds the hole of each node is expected to last.

        It ends no later than Slurm's own expected job starts and reservations.
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
        """Return how far to plan ahead: the admin's setting, or the mean time between changes.

        A plan lasts until the pool changes next, so a rescale has to pay off within that time.
        """
        if settings.forward_time_s or self._changes < 1:
            return settings.forward_time_s or _FIRST_S
        return min(_LONGEST_S, max(_SHORTEST_S, self._gaps_s / self._changes))

    def _count_ends(self, snapshot: Snapshot, changed: bool) -> None:
        """Update the predictions with the holes that have ended since the last look."""
        passed_s = snapshot.time_s - self._last_s
        taken = snapshot.queue.ordinary_nodes | snapshot.unexplained
        ages_s = [max(0.0, self._last_s - since_s) for since_s in self.since_s.values()]
        self._survival.observe(ages_s, [node in taken for node in self.since_s], passed_s)
        if self.since_s:
            self._open_s += passed_s
        if changed:
            kept = math.exp(-1 / _CHANGES_COUNTED)
            self._gaps_s = kept * self._gaps_s + self._open_s
            self._changes = kept * self._changes + 1
            self._open_s = 0.0


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster at one moment. Times are Unix seconds, durations seconds."""

    snapshot: Snapshot
    views: tuple[TrainerView, ...] = ()
    bad: tuple[Evidence, ...] = ()  # of bad nodes
    unhandled_nodes: frozenset[str] = frozenset()  # nodes of trainers that cannot be handled
    since_s: Mapping[str, float] = field(default_factory=dict)  # when each node's hole began
    life_s: Mapping[str, float] = field(default_factory=dict)  # how much longer it should last
    forward_time_s: float = _FIRST_S  # how far ahead to plan
    forecast: BackfillForecast = field(default_factory=BackfillForecast)
    lead_s: float = LEAD_S  # how long before the next backfill pass trainers leave
    taken: frozenset[str] = frozenset()  # preempted for a job that has not started yet
    kept: Mapping[str, int] = field(default_factory=dict)  # units for waiting ordinary jobs
    soon_off: frozenset[str] = frozenset()  # nodes that Slurm may switch off soon
    let_off: frozenset[str] = frozenset()  # nodes that elements leave, so that Slurm can do so
    next_jobs: tuple[WaitingJob, ...] = ()  # what the next ordinary jobs may ask for, small first

    @property
    def now_s(self) -> float:
        """The time of the snapshot."""
        return self.snapshot.time_s


class Inventory:
    """Records all nodes, when each was out of service, and when a controller was watching.

    It compares each reading of the nodes with the last one, and writes only the differences.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._outages = Spans(history, "outages")
        self._known: tuple[frozenset[str], frozenset[str]] | None = None  # all, out of service
        self._read: tuple[Node, ...] = ()
        self._began_s = self._noted_s = -math.inf

    def update(self, snapshot: Snapshot) -> None:
        """Take in a snapshot."""
        now_s = snapshot.time_s
        since_s = now_s - self._noted_s
        if snapshot.nodes is self._read and 0 <= since_s < _EVERY_S:
            return
        if not 0 <= since_s < _UNSEEN_S:
            self._began_s = now_s
        if snapshot.nodes is not self._read:
            self._note_changes(snapshot)
        self._read, self._noted_s = snapshot.nodes, now_s
        self._history.write(put("watches", self._began_s, now_s))

    def _note_changes(self, snapshot: Snapshot) -> None:
        nodes, out = self._known or self._from_history(snapshot.time_s)
        names = snapshot.all_nodes
        outside = names - snapshot.in_service
        self._known = names, outside
        self._history.write(
            *(("DELETE FROM nodes WHERE node = ?", (node,)) for node in nodes - names),
            *(put("nodes", node) for node in names - nodes),
        )
        self._outages.change(out - outside, outside - out, snapshot.time_s)

    def _from_history(self, now_s: float) -> tuple[frozenset[str], frozenset[str]]:
        """Return all nodes and those out of service, as the previous controller wrote them.

        Outages that no controller has watched end when they were last seen.
        """
        nodes, out = self._history.read("SELECT node FROM nodes"), self._outages.open()
        before_s = self._history.looked_s()
        if now_s - before_s > _UNSEEN_S:
            self._outages.change(ended=out, began=(), time_s=before_s)
            out = {}
        return frozenset(node for (node,) in nodes), frozenset(out)


class ClusterState:
    """What is known about the cluster besides trainers: holes, ordinary jobs, backfill passes."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._holes = Holes(history)
        self._inventory = Inventory(history)
        self._passes = Passes()
        self._delays = Delays()
        self._power = PowerSaving()
        # By Slurm's data: an element's own report can be forged.
        self._took_s = deque[float](maxlen=_COUNTED)  # how long the last elements took to end
        self._lately = deque[WaitingJob](maxlen=_LATELY)
        # Starts of ordinary jobs, also of those that end at once; None before the first look.
        self._starts: frozenset[tuple[int, float]] | None = None

    def look(
        self,
        snapshot: Snapshot,
        views: Sequence[TrainerView],
        events: Sequence[Event],
        now_s: float,
    ) -> None:
        """Take in a snapshot, and the events of elements since the last one."""
        queue = snapshot.queue
        self._took_s.extend(one.took_s for one in events if isinstance(one, Ended))
        known, runs = self._starts or frozenset(), queue.ordinary_runs
        new = (one.asks for one in runs if (one.job_id, one.start_s) not in known)
        self._lately.extend(asks for asks in new if asks is not None)
        started = frozenset() if self._starts is None else queue.ordinary_starts - known
        self._starts = queue.ordinary_starts
        self._history.add_ordinary(len(started), now_s)
        self._history.add_delays(self._delays.look(events, snapshot, views, started, now_s))
        self._holes.update(snapshot)
        self._inventory.update(snapshot)
        if snapshot.configuration.suspend_s:
            ours = {record.node for view in views for _, record in view.within(*OCCUPIES)}
            self._power.look(snapshot, queue.ordinary_nodes | snapshot.unexplained | ours)
        # Slurm starts nothing on a node that an element is leaving.
        self._passes.look(snapshot, room_without(snapshot, views, *VACATES), now_s)

    @property
    def lead_s(self) -> float:
        """How long before a backfill pass trainers leave: the 90th percentile of their ends."""
        took_s = sorted(self._took_s)
        return lead_s(took_s[int(0.9 * len(took_s))] if took_s else 0.0)

    @property
    def next_jobs(self) -> tuple[WaitingJob, ...]:
        """What ordinary jobs lately had of one node where jobs share nodes: one of each size.

        Those without GPUs do not count: any node has processors for them.
        """
        parts = [job for job in self._lately if job.nodes == 1 and job.takes_parts and job.gpus]
        sizes = Counter(job.gpus for job in parts)
        last = {job.gpus: job for job in parts}
        return tuple(
            last[gpus] for gpus in sorted(sizes) if sizes[gpus] >= _SELDOM * len(self._lately)
        )

    def forecast(self, snapshot: Snapshot, now_s: float) -> BackfillForecast:
        """Return what is known about Slurm's next passes."""
        return self._passes.forecast(snapshot.configuration.backfill_s, now_s)

    def view(self, snapshot: Snapshot, registry: TrainerRegistry) -> ClusterView:
        """Return all that a decision needs to know about the cluster."""
        settings, now_s = snapshot.settings, snapshot.time_s
        soon_off, let_off = frozenset[str](), frozenset[str]()
        if snapshot.configuration.suspend_s and not settings.wake_nodes:
            kept_s, since_s = settings.keep_awake_s, self._holes.since_s
            soon_off, let_off = self._power.going_off(snapshot, since_s, kept_s)
        return ClusterView(
            snapshot,
            registry.views,
            registry.bad.evidence,
            registry.unhandled_nodes,
            self._holes.since_s,
            self._holes.life_s(snapshot),
            self._holes.forward_time_s(settings),
            self.forecast(snapshot, now_s),
            self.lead_s,
            self._delays.nodes,
            soon_off=soon_off,
            let_off=let_off,
            next_jobs=self.next_jobs,
        )
