"""Warns users of elements that run but do not seem to train with the rest of their trainer. Pure.

Each of them may train alone, into the same files. A trainer without torch gets the same notice, and
keeps running.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from bftrainer_slurm.controller.observe.reports import Script
from bftrainer_slurm.controller.state.phases import Phase
from bftrainer_slurm.controller.state.view import TrainerView

JOIN_S = 25.0  # importing torch takes seconds, and longer from a busy file system
MOST_JOIN_S = 300.0
_JOINS = 20  # the last joins of all trainers, to estimate how long a join takes now
_LATE_S = 60.0  # a group may take long to end a step, and a lost node to come back
_LAST_S = 10.0  # a group that has not reported for this long is over
_NAMED = 5  # nodes in a sentence
_WRITE = (
    "start the training by 'srun torchrun train.py', if they are not just slow; their output may "
    "name what starts it now"
)
_GROUP = (
    "let the script form a group of all its processes (torch.distributed.init_process_group), or "
    "ask for one node"
)
_ELSE = ", else each node may train alone into the same files"


@dataclass(slots=True)
class ReportedGroup:
    """The largest group that a trainer's members report. Times are Unix seconds.

    If nodes train separately, there are other groups too.
    """

    nodes: int = 0  # nodes in the group; 0: no report yet
    fell_s: float = -math.inf  # when the group last became smaller
    progressed_s: float = -math.inf  # when the group last reported progress
    script: Script | None = None  # it runs in one element; the others wait until it trains
    alone: bool = False  # members have joined, but each reports that it trains by itself

    def formed(self, nodes: int, time_s: float) -> None:
        """Record that the keeper has formed a group of this number of nodes."""
        if nodes < self.nodes:
            self.fell_s = time_s
        self.nodes = nodes

    def progressed(self, nodes: int, time_s: float) -> None:
        """Record a report from a group of this number of nodes; there may be several groups."""
        if nodes >= self.nodes or time_s - self.progressed_s >= _LAST_S:
            self.formed(nodes, time_s)
            self.progressed_s = time_s


class JoinTimes:
    """How long nodes took to join their groups on this cluster."""

    def __init__(self) -> None:
        self._took_s: deque[float] = deque(maxlen=_JOINS)

    def formed(self, view: TrainerView, before: ReportedGroup, nodes: int, time_s: float) -> None:
        """Record that a group was formed. If it is larger than before, its last node has joined."""
        starts_s = sorted(start_s for start_s in view.starts_s().values() if start_s <= time_s)
        if nodes > before.nodes and len(starts_s) == nodes:
            script = before.script  # until it trains, the others wait for it
            begun_s = max(starts_s[-1], script.since_s) if script is not None else starts_s[-1]
            self._took_s.append(max(0.0, min(time_s - begun_s, MOST_JOIN_S)))

    @property
    def patience_s(self) -> float:
        """How long to wait for a join before the user is warned."""
        usual_s = median(self._took_s) if self._took_s else 0.0
        return min(max(JOIN_S, 2 * usual_s), MOST_JOIN_S)


@dataclass(frozen=True, slots=True)
class JoinNotice:
    """A warning for the user, due at ``due_s`` (Unix seconds) if nothing changes until then."""

    due_s: float
    notice: str
    otherwise: str = ""  # what may happen if nobody follows the advice

    @property
    def in_output(self) -> str:
        """The warning for the trainer's own output."""
        return f"bftrainer: {self.notice}{self.otherwise}"


def since_s(view: TrainerView) -> dict[str, float | None]:
    """Return when an element started on each node; before the next look, by its own report."""
    running: dict[str, float | None] = {}
    for id_, node in view.placed.items():
        record = view.state.of(id_.task)
        if record.phase is Phase.RUNNING:
            running[node] = record.start_s
        elif record.up is not None:
            running[record.up[0]] = record.up[1]
    for _, record in view.within(Phase.LEAVING):
        if record.node is not None:
            running[record.node] = record.start_s
    return running


def join_notice(
    view: TrainerView,
    group: ReportedGroup,
    joined: bool,
    notes_arrive: bool = False,
    patience_s: float = JOIN_S,
) -> JoinNotice | None:
    """Return a warning about elements that do not train together; None if there is no reason.

    ``joined``: members have formed a group through the keeper; progress alone does not show this.
    ``notes_arrive``: whether the stream of notes is open. Then ``bad_nodes`` reports elements that
    send no notes. ``patience_s``: how long nodes may take to join.
    """
    if view.trainer.record.max_nodes == 1:  # a single node has nobody to join
        return None
    nodes, most_of, script = group.nodes, view.sizes.up_to, group.script
    if view.over or nodes >= most_of(len(view.placed)) or (joined and not nodes):
        return None
    if script is not None and not script.trains and joined:
        return None  # the script has stopped training, or has not started again yet
    going = set(_going(view, notes_arrive))
    running = {node: start_s for node, start_s in since_s(view).items() if node not in going}
    waiting = _waiting(view, script) & running.keys()
    running = {node: start_s for node, start_s in running.items() if node not in waiting}
    starts_s = sorted(start_s for start_s in running.values() if start_s is not None)
    if nodes >= most_of(len(starts_s)):
        return None
    begun_s = script.since_s if script is not None else -math.inf
    since_both_s = max(starts_s[nodes], group.fell_s, begun_s)
    if not joined:
        return _unjoined(since_both_s + patience_s, sorted(running), nodes, sorted(waiting))
    if group.alone:
        return JoinNotice(
            since_both_s + patience_s, f"{_apart(sorted(running), 1)}: {_GROUP}", _ELSE
        )
    due_s = since_both_s + _LATE_S
    if -math.inf < group.progressed_s < due_s:
        return None  # the whole group stands still, or it is too early
    train = "trains" if nodes == 1 else "train together"
    see = f"see the last lines of each in 'bftrainer logs {view.array}'"
    return JoinNotice(
        due_s, f"{node_names(sorted(running))} run, but only {nodes} of them {train}: {see}"
    )


def _unjoined(
    due_s: float, running: Sequence[str], together: int, waiting: Sequence[str]
) -> JoinNotice:
    """Warn that no group was formed through the keeper; name the nodes that wait for others."""
    summary = _apart(running, together)
    if not waiting:
        return JoinNotice(due_s, f"{summary}: {_WRITE}", _ELSE)
    wait = f"{node_names(waiting)} wait{'s' if len(waiting) == 1 else ''} for it"
    return JoinNotice(due_s, f"{summary}, and {wait}: {_WRITE}")


def _waiting(view: TrainerView, script: Script | None) -> set[str]:
    """Return the nodes that wait for a script on another node to start the training."""
    if script is None or script.trains:
        return set()
    return {node for id_, node in view.placed.items() if id_.task != script.task}


def _going(view: TrainerView, notes_arrive: bool) -> Iterator[str]:
    """Yield the nodes of elements that are about to leave, or may never have come up."""
    for task, record in view.state.elements.items():
        asked = record.asked or record.down_s is not None or task in view.state.done
        asked |= notes_arrive and record.mute
        if record.node is not None and (asked or record.phase is Phase.LEAVING):
            yield record.node


def _apart(nodes: Sequence[str], together: int) -> str:
    match together:
        case 0 if len(nodes) == 1:
            summary = "runs, but has not joined"
        case 0:
            summary = "run, but none has joined"
        case 1:
            summary = "run, but each seems to train alone"
        case _:
            summary = f"run, but no more than {together} seem to train together"
    return f"{node_names(nodes)} {summary}"


def node_names(nodes: Sequence[str]) -> str:
    """Name the first of these nodes, and say how many more there are."""
    more = f" and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else ""
    return ", ".join(nodes[:_NAMED]) + more
