"""What the controller remembers about a trainer besides Slurm's data, and how that changes.

A restart of the controller may lose all of it without harm, except what the history keeps: why a
trainer is over, and which elements were asked to leave.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bftrainer_slurm.controller.state.failing import Failing, add_failure
from bftrainer_slurm.controller.state.failing_sizes import NOTHING_TRIED, TriedSizes
from bftrainer_slurm.controller.state.phases import (
    HELD,
    Began,
    ElementRecord,
    Ended,
    Event,
    Phase,
    follow,
)
from bftrainer_slurm.keeper.messages import NOBODY, Engaged
from bftrainer_slurm.keeper.protocol import Note, NoteKind, NumberedNote
from bftrainer_slurm.model import Element, ElementId, ElementState

UNFIT = "BadConstraints"  # Slurm's reason if a node can never fit; it then holds the job
_REFUSED_S = 3600.0  # not for ever: a node may get the memory or the feature that it lacks
_WAIT_S = 300.0
_UNLAUNCHED_REST_S = 5.0
_STILL = (Phase.RUNNING, Phase.SUSPENDED, Phase.WITHHELD, Phase.DONE)
_UNRELIABLE = (Phase.MUTE, Phase.REVIVED)  # a successful end in these phases does not count
_AT_ONCE_S = 15.0  # a script that fails within this time of its start fails "at once"
BATCH_SCRIPT = (
    "the batch script or its node has failed; the script's output says more, if its folder exists"
)
# Slurm's reasons for waiting that lie with the trainer, its user or its partition: other nodes do
# not help. There are hundreds of such limits; all their names begin like these.
_OWN_REASONS = (
    *("Account", "Assoc", "BurstBuffer", "DeadLine", "Dependency", "InvalidAccount", "InvalidQOS"),
    *("JobArrayTaskLimit", "Licenses", "MaxMemPerLimit", "Partition", "QOS", "Reservation"),
)


@dataclass(frozen=True, slots=True)
class Wait:
    """Why Slurm starts no more elements of a trainer. Times are Unix seconds."""

    reason: str  # Slurm's
    until_s: float  # when the trainer is tried again
    since_s: float  # when it began to wait
    running: int  # how many elements ran; the wait ends when more run

    @property
    def displaces_s(self) -> float:
        """When other trainers may lose nodes for it: ever later, because the wait doubles."""
        return 2 * self.until_s - self.since_s


@dataclass(frozen=True, slots=True)
class TrainerState:
    """One trainer. Times are Unix seconds."""

    elements: Mapping[int, ElementRecord] = field(default_factory=dict)  # by task; not held ones
    id: str | None = None  # of its record; None until a look could handle the trainer
    begun: bool = False  # it has had a node, also by its members; or the history cannot tell
    done: frozenset[int] = frozenset()  # tasks that reported a successful end
    over: str | None = None  # why it is not run any more: finished, or the reason for giving it up
    finished_s: float = math.inf  # when a look first saw that it had finished
    cancelled_s: float = float("-inf")
    failing: Failing | None = None
    rests_until_s: float = 0.0  # it gets no nodes before this, after a failure
    refused: Mapping[str, float] = field(default_factory=dict)  # nodes to avoid, and until when
    refusal: str = ""  # Slurm's words, if it refused the last request to start elements
    refusal_until_s: float = 0.0  # a change that has worked, or no longer matters, is forgotten
    wait: Wait | None = None
    paused_until_s: float = 0.0  # it makes no progress before this, because it was rescaled
    submit_s: float = math.inf  # when it was submitted, as far as is known
    had_nodes_s: float = 0.0  # when an element last left its node
    notified: bool = False  # its output has a notice: elements do not join, or a size is left out
    tried: TriedSizes = NOTHING_TRIED
    engaged: Engaged = NOBODY  # who is in its group, and who runs its script, as members say

    @property
    def settled(self) -> bool:
        """Whether its elements stay as they are unless Slurm or the controller changes them."""
        return all(record.phase in _STILL for record in self.elements.values())

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes that its elements have or may start on."""
        records = self.elements.values()
        targets = {one.targets for one in records}  # thousands of elements may share one set
        own = {one.node for one in records if one.node is not None}
        return frozenset(own).union(*targets)

    def refusal_at(self, now_s: float) -> str:
        """Return Slurm's words if it refuses to start elements; empty if it does not."""
        return self.refusal if now_s < self.refusal_until_s else ""

    def of(self, task: int) -> ElementRecord:
        """Return the record of an element."""
        return self.elements.get(task, HELD)

    def still_engaged(self) -> Engaged:
        """Return those of ``engaged`` that Slurm still has on their nodes."""
        took = self.engaged.tasks | {self.engaged.leader}
        return self.engaged.without({task for task in took if not self.of(task).there})


def differ(id_: str, other: str) -> bool:
    """Whether the ids of two records show that they belong to different trainers."""
    return bool(id_ and other and id_ != other)


FINISHED = "finished"


def is_blocked(reason: str) -> bool:
    """Whether a released element cannot start, by Slurm's reason, even if its node is free."""
    return reason == UNFIT or reason.startswith(_OWN_REASONS)


def advance(
    state: TrainerState,
    array: int,
    elements: Sequence[Element],
    now_s: float,
    keep_s: float,
    notes_arrive: bool = False,
    there_s: float = math.inf,
) -> tuple[TrainerState, list[Event]]:
    """Return a trainer's state after a look at its elements, and their events.

    Records of elements that are held again stay for ``keep_s`` seconds. Elements that Slurm has
    forgotten have ended: now, or where nobody has looked for long, when they were last seen
    (``there_s``). ``notes_arrive``: whether the stream of notes is open.
    """
    records: dict[int, ElementRecord] = {}
    events: list[Event] = []
    seen = {element.id.task: element for element in elements}
    running = sum(element.state is ElementState.RUNNING for element in elements)
    for task in sorted(seen.keys() | state.elements.keys()):
        element, before = seen.get(task), state.of(task)
        time_s = now_s if element is not None else min(now_s, there_s)
        record, happened = follow(before, ElementId(array, task), element, time_s, notes_arrive)
        events += happened
        held = record.phase is Phase.HELD and now_s - record.since_s >= keep_s
        if element is not None and not held:
            records[task] = record
        if element is not None and before.phase is Phase.RELEASED:
            state = _note_why(state, before, element.reason, running, now_s)
    if state.wait is not None and running > state.wait.running:
        state = replace(state, wait=None)
    begun = state.begun or any(isinstance(one, Began) for one in events)
    state = replace(state, elements=records, begun=begun)
    if ends := [one for one in events if isinstance(one, Ended)]:
        # Who has a node again may take part from there already, by a note that came before.
        gone = {one.element.task for one in ends if not state.of(one.element.task).there}
        had_nodes_s = max(one.time_s for one in ends)
        state = replace(state, engaged=state.engaged.without(gone), had_nodes_s=had_nodes_s)
    return finish(state, elements, now_s), events


def finish(state: TrainerState, elements: Iterable[Element], now_s: float) -> TrainerState:
    """Return the state; it is over if an element has ended successfully by the last look."""
    completed = any(
        one.state is ElementState.COMPLETED and state.of(one.id.task).phase not in _UNRELIABLE
        for one in elements
    )
    if state.over is None and (completed or state.done - {one.id.task for one in elements}):
        return replace(state, over=FINISHED, finished_s=now_s)
    return state


def _note_why(
    state: TrainerState, record: ElementRecord, reason: str, running: int, now_s: float
) -> TrainerState:
    """Record Slurm's reason why a released element does not start."""
    if reason == UNFIT:
        return refuse(state, record.targets, now_s + _REFUSED_S)
    if is_blocked(reason):
        since_s = now_s if state.wait is None else state.wait.since_s
        return replace(state, wait=Wait(reason, now_s + _WAIT_S, since_s, running))
    return state


def note_failed(state: TrainerState, trained: bool, now_s: float) -> TrainerState:
    """Count elements that have failed since the last look, and start the trainer's backoff.

    Elements that fail together count as one failure, because peers of a failing element often fail
    too. But of elements that have just started, each counts on its node. Elements that Slurm could
    not launch have not failed.
    """
    new = [
        record
        for record in state.elements.values()
        if record.phase in (Phase.FAILED, Phase.UNLAUNCHED) and record.since_s == now_s
    ]
    if not new or state.over is not None:
        return state
    if all(record.phase is Phase.UNLAUNCHED for record in new):
        return replace(state, rests_until_s=max(state.rests_until_s, now_s + _UNLAUNCHED_REST_S))
    at_once = all(now_s - (record.start_s or -math.inf) <= _AT_ONCE_S for record in new)
    nodes = [one.node for one in new if one.node is not None] if at_once or len(new) == 1 else []
    failing = add_failure(state.failing, nodes, BATCH_SCRIPT, trained, now_s, at_once)
    return replace(state, failing=failing, rests_until_s=now_s + failing.rest_s)


def refuse(state: TrainerState, nodes: Iterable[str], until_s: float) -> TrainerState:
    """Keep one trainer off these nodes until ``until_s``; other trainers may have them."""
    return replace(state, refused={**state.refused, **dict.fromkeys(nodes, until_s)})


def change(
    state: TrainerState, elements: Iterable[ElementId], phase: Phase, now_s: float
) -> TrainerState:
    """Return the state after the controller has put elements into a phase."""
    changed = {
        id_.task: replace(
            state.of(id_.task),
            phase=phase,
            since_s=now_s,
            ours=phase in (Phase.LEAVING, Phase.DONE),
        )
        for id_ in elements
    }
    return replace(state, elements={**state.elements, **changed})


def ask(state: TrainerState, tasks: Iterable[int], asked: bool = True) -> TrainerState:
    """Return the state after these tasks were asked to leave, or not asked after all."""
    changed = {task: replace(state.of(task), asked=asked) for task in tasks}
    return replace(state, elements={**state.elements, **changed})


def release(
    state: TrainerState, elements: Iterable[ElementId], targets: frozenset[str], now_s: float
) -> TrainerState:
    """Return the state after elements were released, each for one of the targets."""
    record = ElementRecord(Phase.RELEASED, now_s, targets=targets, sent=True)
    released = {id_.task: record for id_ in elements}
    done = state.done - released.keys()
    return replace(state, elements={**state.elements, **released}, done=done)


def apply_note(state: TrainerState, numbered: NumberedNote) -> TrainerState:
    """Record when an element reports that it came up or left. Anybody can forge such a note."""
    note, task = numbered.note, numbered.note.task
    if note.kind is NoteKind.UP:
        state = replace(state, done=state.done - {task})
    record = state.elements.get(task)
    if record is None:
        return state
    if note.kind is not NoteKind.UP:
        record = replace(record, down_s=numbered.time_s)
    elif record.may_start_on(note.node):
        record = replace(record, up=(note.node, numbered.time_s), ran=True)
    elif record.sent or (note.node == record.node and record.phase is Phase.RUNNING):
        record = replace(record, ran=True)
    return replace(state, elements={**state.elements, task: record})


def note_left(state: TrainerState, note: Note) -> TrainerState:
    """Return the state after an element has reported that it left its group as planned.

    It was asked to, even if this controller does not know it. The keeper forgets what it reported
    in an earlier stay, so that no times of two clocks are compared.
    """
    record = state.of(note.task)
    there = record.there and record.node == note.node
    return ask(state, (note.task,)) if there and not record.asked else state


def note_cut(state: TrainerState, note: Note) -> TrainerState:
    """Return the state after the keeper has said that an element is cut off, or heard again."""
    record, cut = state.of(note.task), note.kind is NoteKind.CUT
    if not record.there or note.node not in ("", record.node) or record.cut == cut:
        return state
    return replace(state, elements={**state.elements, note.task: replace(record, cut=cut)})
