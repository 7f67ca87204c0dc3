"""Drives the controller's loop through a trace, and sums up the results.

U and U_free compare the samples with those on dedicated nodes. A timeline keeps no more moments
than a picture shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from bftrainer_slurm.replay.cluster import Moment, SimulatedCluster
from bftrainer_slurm.replay.trace import Trace

_MOST_TURNS = 10  # turns at one moment; a plan takes two: first trainers shrink, then others grow


class Loop(Protocol):
    """The controller's loop."""

    def turn(self) -> None:
        """Look, plan and act once."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a replay. ``events`` counts the times at which the trace changed.

    ``samples`` is the sum over all trainers; ``progress`` counts them less in larger batches, see
    ``planner.objectives.goodput``. Lost samples are those that the trainers would have
    reached in their pauses, on the nodes that they had then.
    """

    events: int
    hours: float
    mean_pool_nodes: float
    idle_node_hours: float
    used_node_hours: float
    samples: float
    progress: float
    lost_to_rescaling: float
    lost_to_reclaims: float
    trainers_done: int


def drive(
    loop: Loop,
    cluster: SimulatedCluster,
    look_every_s: float = 0.0,
    watch: Callable[[Moment], None] = lambda moment: None,
) -> Outcome:
    """Run to the end of the trace.

    The loop runs at once when a trainer loses a node or ends, because elements tell the daemon. If
    ``look_every_s`` is 0 it also sees new holes at once, as in the paper. Otherwise it sees them
    when it looks, at least that often, like the daemon.

    Raises:
        RuntimeError: the loop does not settle on a plan at one moment.
    """
    begin_s = cluster.now_s
    look_s = begin_s
    while True:
        if cluster.has_news or look_every_s == 0 or cluster.now_s >= look_s:
            _settle(loop, cluster)
            look_s = cluster.now_s + look_every_s
        watch(cluster.moment())
        if cluster.now_s >= cluster.end_s:
            return _outcome(cluster, begin_s)
        next_s = cluster.next_s()
        cluster.advance(min(next_s, max(look_s, cluster.now_s)) if look_every_s else next_s)


def drive_as_daemon(
    loop: Loop,
    due_s: Callable[[], float],
    gone: Callable[[float], None],
    cluster: SimulatedCluster,
    watch: Callable[[Moment], None],
) -> Outcome:
    """Run to the end of the trace, and look when the daemon would.

    ``due_s`` returns when the next look is due. ``gone`` is called with the time when elements are
    gone, or a trainer is new.
    """
    begin_s = cluster.now_s
    while True:
        if cluster.has_news or cluster.elements_gone:
            gone(cluster.now_s)
        cluster.has_news = cluster.elements_gone = False
        if cluster.now_s >= due_s():
            loop.turn()
            continue
        watch(cluster.moment())
        if cluster.now_s >= cluster.end_s:
            return _outcome(cluster, begin_s)
        cluster.advance(min(cluster.next_s(), due_s()))


def _settle(loop: Loop, cluster: SimulatedCluster) -> None:
    """Run turns of the loop until it gives up no more nodes for other trainers."""
    for _ in range(_MOST_TURNS):
        changes = cluster.changes
        cluster.has_news = False
        loop.turn()
        if cluster.changes == changes:
            return
    raise RuntimeError(f"no plan that stands at {cluster.now_s:.0f}")


def _outcome(cluster: SimulatedCluster, begin_s: float) -> Outcome:
    seconds = cluster.now_s - begin_s
    return Outcome(
        events=cluster.events,
        hours=seconds / 3600,
        mean_pool_nodes=cluster.idle_node_s / seconds,
        idle_node_hours=cluster.idle_node_s / 3600,
        used_node_hours=cluster.used_node_s / 3600,
        samples=sum(trainer.samples for trainer in cluster.simulated),
        progress=sum(trainer.progress for trainer in cluster.simulated),
        lost_to_rescaling=sum(trainer.lost_to_rescaling for trainer in cluster.simulated),
        lost_to_reclaims=sum(trainer.lost_to_reclaims for trainer in cluster.simulated),
        trainers_done=len(cluster.done),
    )


_MOST_POINTS = 4000


@dataclass(slots=True)
class Timeline:
    """Moments of a replay; if there are too many, every second moment is dropped."""

    moments: list[Moment] = field(default_factory=list)
    _every: int = 1
    _seen: int = 0

    def add(self, moment: Moment) -> None:
        """Add a moment."""
        if self._seen % self._every == 0:
            self.moments.append(moment)
        self._seen += 1
        if len(self.moments) > _MOST_POINTS:
            self.moments = self.moments[::2]
            self._every *= 2


RunFree = Callable[[Trace], Outcome]  # replays a trace with rescaling free of cost


def dedicated_samples(trace: Trace, mean_pool_nodes: float, run_free: RunFree) -> float:
    """Return the samples of these trainers on as many dedicated nodes as the pool has on average.

    The time, the planner and the objective are the same, and rescaling costs nothing. For a mean
    between two whole numbers of nodes their samples are interpolated.

    U = samples / this; U_free is the same with rescaling free of cost in the replay too.
    """
    low = math.floor(mean_pool_nodes)
    share = mean_pool_nodes - low
    return sum(
        part * run_free(_dedicated_trace(nodes, trace.start_s, trace.end_s)).samples
        for nodes, part in ((low, 1 - share), (low + 1, share))
        if nodes and part
    )


def _dedicated_trace(nodes: int, start_s: float, end_s: float) -> Trace:
    """Return a trace of nodes that are idle all the time."""
    width = len(str(nodes))
    return Trace(
        nodes=tuple(f"d{number:0{width}}" for number in range(nodes)),
        time_s=np.full(nodes, start_s),
        node=np.arange(nodes, dtype=np.int32),
        idle=np.ones(nodes, np.bool_),
        start_s=start_s,
        end_s=end_s,
    )
