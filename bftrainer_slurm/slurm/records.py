"""From job records, however they were read, to the queue that the controller sees.

Names, comments and everything else that users can write are data here and nothing more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bftrainer_slurm.model import (
    Demands,
    Element,
    ElementId,
    ElementState,
    Queue,
    Trainer,
    WaitingJob,
)
from bftrainer_slurm.slurm.arrays import parse_tasks
from bftrainer_slurm.slurm.nodelists import expand
from bftrainer_slurm.spec import SpecError, TrainerRecord, is_trainer_comment, parse_comment

# Slurm's job states (squeue's %T); PENDING and what else waits is told apart by _waiting_state.
_STATES = {
    "RUNNING": ElementState.RUNNING,
    "CONFIGURING": ElementState.RUNNING,  # its node boots or its prolog runs
    "RESIZING": ElementState.RUNNING,
    "SIGNALING": ElementState.RUNNING,
    "SUSPENDED": ElementState.RUNNING,  # by an operator; it has its node
    "STOPPED": ElementState.RUNNING,
    "COMPLETING": ElementState.ENDING,
    "STAGE_OUT": ElementState.ENDING,
    "REQUEUED": ElementState.ENDING,  # on its way back to the queue
    "REQUEUE_HOLD": ElementState.ENDING,
    "REQUEUE_FED": ElementState.ENDING,
    "COMPLETED": ElementState.COMPLETED,
    "CANCELLED": ElementState.CANCELLED,
    "REVOKED": ElementState.CANCELLED,
    "FAILED": ElementState.FAILED,
    "TIMEOUT": ElementState.FAILED,
    # When a node fails, elements are requeued. What stays in this state Slurm has given up, and
    # refuses to requeue: its node is no longer in slurm.conf (seen on 22.05).
    "NODE_FAIL": ElementState.LOST,
    "BOOT_FAIL": ElementState.FAILED,
    "OUT_OF_MEMORY": ElementState.FAILED,
    "DEADLINE": ElementState.FAILED,
    "PREEMPTED": ElementState.FAILED,  # where a site cancels instead of requeueing
}
_WAITING = {"PENDING", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
_WAITS = {
    ElementState.HELD,
    ElementState.WITHHELD,
    ElementState.PENDING,
    ElementState.DELAYED,
}
_NUMBER = re.compile(r"\d+")
_HAS_NODES = {ElementState.RUNNING, ElementState.ENDING}
UNREADABLE = "?"

# A job that waits for another job does not wait for nodes.
_DEPENDS = {"Dependency", "DependencyNeverSatisfied"}


@dataclass(frozen=True, slots=True)
class JobRow:
    """One record of slurmctld's job table. ``tasks`` is an array expression, of one task or more.

    ``start_s`` of a pending job is when Slurm expects it to start, if it does; ``end_s`` of a
    running one is when its time limit ends it.
    """

    job_id: int
    array: int
    tasks: str | None  # None: not a job array
    state: str
    reason: str
    priority: int  # 0: held
    submit_s: float | None
    start_s: float | None
    end_s: float | None
    nodes: str
    required_nodes: str
    scheduled_nodes: str
    node_count: int
    partition: str
    user: str
    name: str
    comment: str
    constraint: str = ""
    excluded_nodes: str = ""
    licenses: str = ""
    reservation: str = ""


def readable(text: str) -> str:
    """Return a name or comment; ``?`` for one whose bytes were no text (pyslurm says no more)."""
    return UNREADABLE if "\ufffd" in text else text


def queue_of(rows: Iterable[JobRow]) -> Queue:
    """Sort records into trainers, waiting ordinary jobs and the nodes of ordinary jobs."""
    ours: dict[int, list[tuple[JobRow, TrainerRecord]]] = {}
    waiting: dict[int, WaitingJob] = {}  # the pending rest of an array is one job
    ordinary_nodes: set[str] = set()
    malformed: set[int] = set()  # job arrays; both gateways count them alike
    for row in rows:
        state = element_state(row)
        if is_trainer_comment(row.comment):
            if row.tasks is None and state is ElementState.CANCELLED:
                continue  # what was still pending of a cancelled array (24.11 and later)
            try:
                record = _record(row)
            except ValueError:
                if not state.over:
                    malformed.add(row.array)
                # Whatever it is, its nodes are not ours.
            else:
                ours.setdefault(row.array, []).append((row, record))
                continue
        elif _waits_for_nodes(row):
            waiting[row.job_id] = _waiting_job(row)
        ordinary_nodes.update(_nodes_of(row))
    for array, members in ours.items():
        ours[array], strays = _without_strays(members)
        if any(not element_state(row).over for row in strays):
            malformed.add(array)
        if strays:
            ordinary_nodes.update(node for row in strays for node in _nodes_of(row))
    return Queue(
        trainers=tuple(_trainer(array, ours[array]) for array in sorted(ours) if ours[array]),
        waiting=tuple(waiting[job_id] for job_id in sorted(waiting)),
        ordinary_nodes=frozenset(ordinary_nodes),
        malformed=len(malformed),
    )


def _without_strays(
    members: list[tuple[JobRow, TrainerRecord]],
) -> tuple[list[tuple[JobRow, TrainerRecord]], list[JobRow]]:
    """Return the members of a trainer, and the rows that its owner has made something else of.

    Those in another partition: what an operator may do for trainers in theirs, nobody may have
    done elsewhere. And tasks beyond those that the record names.
    """
    first, _ = min(members, key=lambda member: _first_task(member[0]))

    def strays(row: JobRow, record: TrainerRecord) -> bool:
        return row.partition != first.partition or _first_task(row) >= record.max_nodes

    here = [(row, record) for row, record in members if not strays(row, record)]
    return here, [row for row, record in members if strays(row, record)]


def _first_task(row: JobRow) -> int:
    match = _NUMBER.match(row.tasks or "")
    return int(match[0]) if match else 0


def _nodes_of(row: JobRow) -> tuple[str, ...]:
    return expand(row.nodes) if element_state(row) in _HAS_NODES else ()


def element_state(row: JobRow) -> ElementState:
    """Return where a job stands. A state that this version does not know: leave it alone."""
    if row.state in _WAITING:
        return _waiting_state(row)
    return _STATES.get(row.state, ElementState.ENDING)


def _waiting_state(row: JobRow) -> ElementState:
    if row.priority == 0:
        # Held by an operator: its owner may not release it, so neither may we for them. After a
        # requeue of ours the reason is another one, also where an operator's controller did it.
        return ElementState.WITHHELD if row.reason == "JobHeldAdmin" else ElementState.HELD
    # A begin time shows as the reason, and until the scheduler has looked at the job (a release
    # clears the reason) as a start time without the nodes that a forecast would name.
    undecided = row.reason == "None" and row.start_s is not None and not expand(row.scheduled_nodes)
    if row.reason == "BeginTime" or undecided:
        return ElementState.DELAYED
    return ElementState.PENDING


def _record(row: JobRow) -> TrainerRecord:
    record = parse_comment(row.comment)
    if row.tasks is None:
        raise SpecError("a trainer is a job array")
    parse_tasks(row.tasks, below=1)
    return record


def _trainer(array: int, members: list[tuple[JobRow, TrainerRecord]]) -> Trainer:
    """Put an array's records together; what should be the same in all is the first task's."""
    elements = {
        element.id: (element, row, record)
        for row, record in members
        for element in _elements(row, record.max_nodes)
    }
    in_order = [elements[element] for element in sorted(elements)]
    _, row, record = in_order[0] if in_order else (None, *members[0])
    return Trainer(
        array=array,
        name=row.name,
        user=row.user,
        partition=row.partition,
        record=record,
        # A requeue makes the submit time of an element the time of the requeue.
        submit_s=min(row.submit_s or 0.0 for row, _ in members),
        elements=tuple(element for element, _, _ in in_order),
        demands=_demands([row for row, _ in members if not element_state(row).over]),
    )


def _demands(rows: Sequence[JobRow]) -> Demands:
    """What any of an array's records asks for: its owner can change each of them."""
    excluded = {row.excluded_nodes for row in rows}  # long lists, and mostly the same
    return Demands(
        constraints=frozenset(row.constraint for row in rows if row.constraint),
        excluded=frozenset(node for nodes in excluded for node in expand(nodes)),
        licenses=next((row.licenses for row in rows if row.licenses), ""),
        reservation=next((row.reservation for row in rows if row.reservation), ""),
    )


def _elements(row: JobRow, max_nodes: int) -> Iterable[Element]:
    state = element_state(row)
    # A pending element's node is the one that it may start on: that of its last grow.
    nodes = expand(row.nodes) or expand(row.required_nodes)
    has_run = state not in _WAITS
    for task in parse_tasks(row.tasks or "", below=max_nodes):
        yield Element(
            id=ElementId(row.array, task),
            state=state,
            node=nodes[0] if len(nodes) == 1 else None,
            start_s=row.start_s if has_run else None,
            limit_end_s=row.end_s if state is ElementState.RUNNING else None,
            reason="" if has_run else row.reason,
        )


def _waits_for_nodes(row: JobRow) -> bool:
    return row.state == "PENDING" and row.priority != 0 and row.reason not in _DEPENDS


def _waiting_job(row: JobRow) -> WaitingJob:
    return WaitingJob(
        job_id=row.job_id,
        partition=row.partition,
        nodes=row.node_count,
        expected_start_s=row.start_s,
        expected_nodes=expand(row.scheduled_nodes),
    )
