"""Elements that run but, as far as is known, do not train with the others of their trainer. Pure.

Each of them may train alone, into the same files. A trainer without torch is told the same, and
runs on.
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

JOIN_S = 25.0  # importing torch takes seconds, from a busy file system more
MOST_JOIN_S = 300.0
_JOINS = 20  # of all trainers: how long nodes take here now
_LATE_S = 60.0  # a group may be slow to end a step, and a lost node to come back
_LAST_S = 10.0  # a group that has not been heard of for so long is over
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
    """How many ``nodes`` train together: the largest group that a trainer's members tell of.

    There are others beside it if nodes train apart from each other. It became smaller at
    ``fell_s``. It last reported progress at ``heard_s``. 0 nodes: nothing was told yet.
    """

    nodes: int = 0
    fell_s: float = -math.inf
    heard_s: float = -math.inf
    script: Script | None = None  # it runs in one element, and the others wait until it trains
    alone: bool = False  # they have met, but each of them says that it trains by itself

    def formed(self, nodes: int, time_s: float) -> None:
        """Take a note that the keeper has formed a group of so many nodes."""
        if nodes < self.nodes:
            self.fell_s = time_s
        self.nodes = nodes

    def hear(self, nodes: int, time_s: float) -> None:
        """Take a report of a group of so many nodes, which may be one of several."""
        if nodes >= self.nodes or time_s - self.heard_s >= _LAST_S:
            self.formed(nodes, time_s)
            self.heard_s = time_s


class JoinTimes:
    """How long nodes have taken to join their groups here: of a busy site, longer."""

    def __init__(self) -> None:
        self._took_s: deque[float] = deque(maxlen=_JOINS)

    def formed(self, view: TrainerView, before: ReportedGroup, nodes: int, time_s: float) -> None:
        """A group of so many nodes was formed, if more: its last node has joined."""
        starts_s = sorted(start_s for start_s in view.starts_s().values() if start_s <= time_s)
        if nodes > before.nodes and len(starts_s) == nodes:
            script = before.script  # until it trains, the others wait for it
            begun_s = max(starts_s[-1], script.since_s) if script is not None else starts_s[-1]
            self._took_s.append(max(0.0, min(time_s - begun_s, MOST_JOIN_S)))

    @property
    def patience_s(self) -> float:
        """How long to wait for one before anything is said."""
        usual_s = median(self._took_s) if self._took_s else 0.0
        return min(max(JOIN_S, 2 * usual_s), MOST_JOIN_S)


@dataclass(frozen=True, slots=True)
class JoinNotice:
    """What to say from ``due_s`` on, if nothing changes until then."""

    due_s: float
    notice: str
    otherwise: str = ""  # what may happen if nobody does what the notice says

    @property
    def in_output(self) -> str:
        """What to say in the trainer's own output."""
        return f"bftrainer: {self.notice}{self.otherwise}"


def since_s(view: TrainerView) -> dict[str, float | None]:
    """Since when an element runs on each node; until the next look at Slurm, by its own report."""
    running: dict[str, float | None] = {}
    for id_, place in view.placed.items():
        record = view.state.of(id_.task)
        if record.phase is Phase.RUNNING:
            running[place.node] = record.start_s
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
    """Return what to say of elements that do not train together; None: they do, or few run.

    ``joined``: a group was formed as it should be. Progress alone does not show that.
    ``notes_arrive``: whether notes come through; if so, ``bad_nodes`` reports the mute elements.
    ``patience_s``: how long nodes may take to join.
    """
    if view.trainer.record.max_nodes == 1:  # there is nobody to meet
        return None
    nodes, most_of, script = group.nodes, view.sizes.up_to, group.script
    if view.over or nodes >= most_of(len(view.placed)) or (joined and not nodes):
        return None
    if script is not None and not script.trains and joined:
        return None  # it trains no more, or not yet again
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
    if -math.inf < group.heard_s < due_s:
        return None  # the others wait too, or it is too early
    train = "trains" if nodes == 1 else "train together"
    see = f"see the last lines of each in 'bftrainer logs {view.array}'"
    return JoinNotice(
        due_s, f"{named(sorted(running))} run, but only {nodes} of them {train}: {see}"
    )


def _unjoined(
    due_s: float, running: Sequence[str], together: int, waiting: Sequence[str]
) -> JoinNotice:
    """Say that no group was formed as it should be, and which nodes wait for those that run."""
    said = _apart(running, together)
    if not waiting:
        return JoinNotice(due_s, f"{said}: {_WRITE}", _ELSE)
    wait = f"{named(waiting)} wait{'s' if len(waiting) == 1 else ''} for it"
    return JoinNotice(due_s, f"{said}, and {wait}: {_WRITE}")


def _waiting(view: TrainerView, script: Script | None) -> set[str]:
    """Return the nodes that wait until a script, which runs on another one, trains."""
    if script is None or script.trains:
        return set()
    return {place.node for id_, place in view.placed.items() if id_.task != script.task}


def _going(view: TrainerView, notes_arrive: bool) -> Iterator[str]:
    """Yield the nodes of elements that are about to leave them, or may not be up there."""
    for task, record in view.state.elements.items():
        asked = record.asked or record.down_s is not None or task in view.state.done
        asked |= notes_arrive and record.mute
        if record.node is not None and (asked or record.phase is Phase.LEAVING):
            yield record.node


def _apart(nodes: Sequence[str], together: int) -> str:
    match together:
        case 0 if len(nodes) == 1:
            said = "runs, but has not joined"
        case 0:
            said = "run, but none has joined"
        case 1:
            said = "run, but each seems to train alone"
        case _:
            said = f"run, but no more than {together} seem to train together"
    return f"{named(nodes)} {said}"


def named(nodes: Sequence[str]) -> str:
    """Name the first of these nodes, and say how many more there are."""
    more = f" and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else ""
    return ", ".join(nodes[:_NAMED]) + more
