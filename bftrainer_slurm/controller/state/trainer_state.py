"""What the controller knows of a trainer besides Slurm's data: one record, and how it changes.

All of it may be lost with the controller without harm, except what the history keeps: why a trainer
is over, and which elements were asked to leave.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from bftrainer_slurm.controller.state.failing import Failing, failed
from bftrainer_slurm.controller.state.phases import HELD, Began, ElementRecord, Event, Phase, follow
from bftrainer_slurm.keeper.protocol import NoteKind, NumberedNote
from bftrainer_slurm.model import Element, ElementId, ElementState, Place, nodes_of
from bftrainer_slurm.sizes import UNKNOWN, OneSize

UNFIT = "BadConstraints"  # Slurm's reason if a node can never fit; it then holds the job
_REFUSED_S = 3600.0  # a node may later get the memory or the feature that it lacks
_WAIT_S = 300.0
_UNLAUNCHED_REST_S = 5.0
_STILL = (Phase.RUNNING, Phase.SUSPENDED, Phase.WITHHELD, Phase.DONE)
_SILENT = (Phase.MUTE, Phase.REVIVED)  # whose good end says nothing
_AT_ONCE_S = 15.0  # from an element's start until its failure is seen
BATCH_SCRIPT = (
    "the batch script, or its node, has failed; its output says more, if its folder is there"
)
# Reasons for waiting that lie with the trainer or its user, so that no other node helps either.
# There are hundreds of such limits; all their names begin like these.
_OWN_REASONS = (
    *("Account", "Assoc", "BurstBuffer", "DeadLine", "Dependency", "InvalidAccount", "InvalidQOS"),
    *("JobArrayTaskLimit", "Licenses", "MaxMemPerLimit", "PartitionConfig", "PartitionNodeLimit"),
    *("PartitionTimeLimit", "QOS", "Reservation"),
)


@dataclass(frozen=True, slots=True)
class Wait:
    """Why Slurm has started no more of a trainer than ``had`` elements, first at ``since_s``.

    It is tried again at ``until_s``, and on nodes of others only after as long again as it has
    waited by then: so those lose them ever less often.
    """

    reason: str
    until_s: float
    since_s: float
    had: int

    @property
    def displaces_s(self) -> float:
        """From when on others lose nodes for it."""
        return 2 * self.until_s - self.since_s


@dataclass(frozen=True, slots=True)
class TrainerState:
    """One trainer. ``elements`` (by task) leaves out elements that are just held.

    ``id`` is its record's, None until it was met. ``begun``: it has had a node, or the history does
    not tell.
    ``done`` are tasks that have reported their end; if Slurm has forgotten them since, they ended
    well. ``over`` says why it is not run any more: given up, or finished, which was first seen at
    ``finished_s``. ``refused`` are nodes that Slurm says it cannot have, and until when to believe
    that. ``rests_until_s`` keeps it without nodes after a failure. Until ``paused_until_s`` it
    stands still because its size has changed. ``submit_s`` is when it was submitted, as far as is
    known, ``had_nodes_s`` when it last had a node. ``notified``: its output says that its elements
    do not train together, or why it is kept at one ``size``.
    """

    elements: Mapping[int, ElementRecord] = field(default_factory=dict)
    id: str | None = None
    begun: bool = False
    done: frozenset[int] = frozenset()
    over: str | None = None
    finished_s: float = math.inf
    cancelled_s: float = float("-inf")
    failing: Failing | None = None
    rests_until_s: float = 0.0
    refused: Mapping[str, float] = field(default_factory=dict)
    wait: Wait | None = None
    paused_until_s: float = 0.0
    submit_s: float = math.inf
    had_nodes_s: float = 0.0
    notified: bool = False
    size: OneSize = UNKNOWN

    @property
    def settled(self) -> bool:
        """Whether time alone changes nothing about its elements."""
        return all(record.phase in _STILL for record in self.elements.values())

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes that its elements have, or may start on."""
        records = self.elements.values()
        targets = {one.targets for one in records}  # thousands may have the same
        own = {one.node for one in records if one.node is not None}
        return frozenset(own).union(*map(nodes_of, targets))

    def of(self, task: int) -> ElementRecord:
        """Return the record of an element."""
        return self.elements.get(task, HELD)


def differ(id_: str, other: str) -> bool:
    """Whether the ids of two records show that they are two trainers."""
    return bool(id_ and other and id_ != other)


FINISHED = "finished"


def waits_in_vain(reason: str) -> bool:
    """Whether a released element waits for something other than its node."""
    return reason == UNFIT or reason.startswith(_OWN_REASONS)


def advance(
    state: TrainerState,
    array: int,
    elements: Sequence[Element],
    now_s: float,
    keep_s: float,
    notes_arrive: bool = False,
) -> tuple[TrainerState, list[Event]]:
    """Return a trainer's state after a look at its elements, and what has happened to them.

    Elements that are held again are remembered for ``keep_s`` seconds. Those that Slurm has
    forgotten have ended. ``notes_arrive``: whether elements' notes come through.
    """
    records: dict[int, ElementRecord] = {}
    events: list[Event] = []
    seen = {element.id.task: element for element in elements}
    running = sum(element.state is ElementState.RUNNING for element in elements)
    for task in sorted(seen.keys() | state.elements.keys()):
        element, before = seen.get(task), state.of(task)
        record, happened = follow(before, ElementId(array, task), element, now_s, notes_arrive)
        events += happened
        held = record.phase is Phase.HELD and now_s - record.since_s >= keep_s
        if element is not None and not held:
            records[task] = record
        if element is not None and before.phase is Phase.RELEASED:
            state = _note_why(state, before, element.reason, running, now_s)
    if state.wait is not None and running > state.wait.had:
        state = replace(state, wait=None)
    begun = state.begun or any(isinstance(one, Began) for one in events)
    return finish(replace(state, elements=records, begun=begun), elements, now_s), events


def finish(state: TrainerState, elements: Iterable[Element], now_s: float) -> TrainerState:
    """Return the state, over if one of its elements, as of the last look, has ended well."""
    completed = any(
        one.state is ElementState.COMPLETED and state.of(one.id.task).phase not in _SILENT
        for one in elements
    )
    if state.over is None and (completed or state.done - {one.id.task for one in elements}):
        return replace(state, over=FINISHED, finished_s=now_s)
    return state


def _note_why(
    state: TrainerState, record: ElementRecord, reason: str, running: int, now_s: float
) -> TrainerState:
    """Remember Slurm's reason for a released element that does not start beside the others."""
    if reason == UNFIT:
        return refuse(state, nodes_of(record.targets), now_s + _REFUSED_S)
    if waits_in_vain(reason):
        since_s = now_s if state.wait is None else state.wait.since_s
        return replace(state, wait=Wait(reason, now_s + _WAIT_S, since_s, running))
    return state


def note_failed(state: TrainerState, trained: bool, now_s: float) -> TrainerState:
    """Count the elements that have failed since the last look, and let the trainer rest a while.

    Those that fail together count once, because peers of a failing element often fail too. But
    elements that have just started each count as a failure on their node. Elements that Slurm could
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
    failing = failed(state.failing, nodes, BATCH_SCRIPT, trained, now_s, at_once)
    return replace(state, failing=failing, rests_until_s=now_s + failing.rest_s)


def refuse(state: TrainerState, nodes: Iterable[str], until_s: float) -> TrainerState:
    """Give a trainer no element on these nodes until then; others may have them."""
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
    """Return the state after these tasks were asked to leave their nodes, or were not."""
    changed = {task: replace(state.of(task), asked=asked) for task in tasks}
    return replace(state, elements={**state.elements, **changed})


def release(
    state: TrainerState, elements: Iterable[ElementId], targets: frozenset[Place], now_s: float
) -> TrainerState:
    """Return the state after elements were released, each into one of the targets."""
    record = ElementRecord(Phase.RELEASED, now_s, targets=targets, sent=True)
    released = {id_.task: record for id_ in elements}
    done = state.done - released.keys()
    return replace(state, elements={**state.elements, **released}, done=done)


def hear(state: TrainerState, numbered: NumberedNote) -> TrainerState:
    """Remember when an element reports that it came up or left; anybody can forge such a note."""
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


def note_rescale(
    state: TrainerState,
    had: Set[Place],
    has: Mapping[Place, float | None],
    up_s: float,
    down_s: float,
    now_s: float,
) -> TrainerState:
    """Return the state with the pause of a trainer whose places were ``had`` at the last look.

    Of the places that it ``has`` is said when elements started there, as far as known. One may be
    seen late. One that came as soon as the first ones, for example from another trainer, belongs to
    the start. A pause is ``up_s`` seconds long after others have joined, else ``down_s``.
    """
    if not had or has.keys() == had:
        return state
    if not has:
        return replace(state, had_nodes_s=now_s)
    until_s = now_s + down_s
    if joined := has.keys() - had:
        known = (start_s for place in joined if (start_s := has[place]) is not None)
        joined_s = min(now_s, max(known, default=now_s))
        together = all((has[place] or -math.inf) >= joined_s for place in has.keys() & had)
        until_s = now_s if together else joined_s + up_s
    return replace(state, paused_until_s=max(state.paused_until_s, until_s))
