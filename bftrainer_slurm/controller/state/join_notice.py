"""Warns users of elements that run but do not seem to train with the rest of their trainer. Pure.

Each of them may train alone, into the same files. A trainer without torch gets the same notice, and
keeps running.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bftrainer_slurm.controller.observe.reports import Script
from bftrainer_slurm.controller.state.phases import Phase
from bftrainer_slurm.controller.state.view import TrainerView

# Imports and steps may take long, and so may a lost node until it comes back.
_JOIN_S = 60.0
_LAST_S = 10.0  # a group that has not reported for this long is over
_NAMED = 5  # nodes in a sentence
_SENTENCE = (
    "{nodes} run, but {together}: start the training by 'srun torchrun train.py', with all its "
    "processes in one group; 'bftrainer logs {array}' has the last lines of each node. Else each "
    "may train alone into the same files"
)


@dataclass(slots=True)
class ReportedGroup:
    """The largest group that a trainer's members report. Times are Unix seconds.

    If nodes train separately, there are other groups too.
    """

    nodes: int = 0  # nodes in the group; 0: no report yet
    fell_s: float = -math.inf  # when the group last became smaller
    progressed_s: float = -math.inf  # when the group last reported progress
    script: Script | None = None  # it runs in one element; the others wait until it trains

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


class JoinNotice(NamedTuple):
    """A warning for the user, due at ``due_s`` (Unix seconds) if nothing changes until then."""

    due_s: float
    notice: str


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
    view: TrainerView, group: ReportedGroup, joined: bool, notes_arrive: bool = False
) -> JoinNotice | None:
    """Return a warning about elements that do not train together; None if there is no reason.

    ``joined``: members have formed a group through the keeper; progress alone does not show this.
    ``notes_arrive``: whether the stream of notes is open. Then ``bad_nodes`` reports elements that
    send no notes.
    """
    nodes, most_of, script = group.nodes, view.sizes.up_to, group.script
    if view.over or nodes >= most_of(len(view.placed)) or view.trainer.record.max_nodes == 1:
        return None
    if joined and (nodes == 0 or (script is not None and not script.trains)):
        return None  # the script has stopped training, or has not started again yet
    going = set(_going(view, notes_arrive))
    running = {node: start_s for node, start_s in since_s(view).items() if node not in going}
    starts_s = sorted(start_s for start_s in running.values() if start_s is not None)
    if nodes >= most_of(len(starts_s)):
        return None
    begun_s = script.since_s if script is not None else -math.inf
    due_s = max(starts_s[nodes], group.fell_s, begun_s) + _JOIN_S
    if joined and -math.inf < group.progressed_s < due_s:
        return None  # the whole group stands still, or it is too early
    together = f"only {nodes} of them train together" if nodes > 1 else "do not train together"
    named = node_names(sorted(running))
    return JoinNotice(due_s, _SENTENCE.format(nodes=named, together=together, array=view.array))


def _going(view: TrainerView, notes_arrive: bool) -> Iterator[str]:
    """Yield the nodes of elements that are about to leave, or may never have come up."""
    for task, record in view.state.elements.items():
        asked = record.asked or record.down_s is not None or task in view.state.done
        asked |= notes_arrive and record.mute
        if record.node is not None and (asked or record.phase is Phase.LEAVING):
            yield record.node


def node_names(nodes: Sequence[str]) -> str:
    """Name the first of these nodes, and say how many more there are."""
    more = f" and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else ""
    return ", ".join(nodes[:_NAMED]) + more
