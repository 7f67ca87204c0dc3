"""Makes the controller's queue from job records; every gateway uses it.

Names, comments and everything else that users can write are only data here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from bftrainer_slurm.arrays import parse_tasks
from bftrainer_slurm.model import (
    Demands,
    Element,
    ElementId,
    ElementState,
    Memory,
    OrdinaryRun,
    Queue,
    Resources,
    Trainer,
    WaitingJob,
)
from bftrainer_slurm.slurm.dependencies import FAILED, unmet
from bftrainer_slurm.slurm.nodelists import excluded_in, expand, expand_user_list
from bftrainer_slurm.slurm.resources import (
    gres_of_job,
    megabytes,
    memory_asked,
    read_resources,
)
from bftrainer_slurm.slurm.rows import JobRow
from bftrainer_slurm.spec import (
    SpecError,
    TrainerRecord,
    is_trainer_comment,
    own_comment,
    parse_comment,
)
from bftrainer_slurm.submission.directives import SubmissionError, minutes_of

# Slurm's job states (squeue's %T); _waiting_state divides PENDING and other waiting states.
_STATES = {
    "RUNNING": ElementState.RUNNING,
    "CONFIGURING": ElementState.RUNNING,  # its node boots or its prolog runs
    "RESIZING": ElementState.RUNNING,
    "SIGNALING": ElementState.RUNNING,
    "SUSPENDED": ElementState.SUSPENDED,
    "STOPPED": ElementState.SUSPENDED,
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
    # Slurm requeues elements when a node fails. An element that stays in this state is lost: its
    # node is no longer in slurm.conf, and Slurm refuses to requeue it (seen on 22.05).
    "NODE_FAIL": ElementState.LOST,
    "BOOT_FAIL": ElementState.FAILED,
    "OUT_OF_MEMORY": ElementState.FAILED,
    "DEADLINE": ElementState.FAILED,
    "PREEMPTED": ElementState.PREEMPTED,
}
_WHOLE = {"", "NO"}  # squeue's words for --exclusive; pyslurm tells none
_WAITING = {"PENDING", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
# Slurm shows these in place of a job's state while the job gets a signal. If its node answers late,
# the job may be in the queue again.
_SIGNALLED = {"STOPPED", "SIGNALING"}
_MOST_TASKS = 10_000  # no cluster has nodes for more
_NUMBER = re.compile(r"\d+")
_HAS_NODES = {ElementState.RUNNING, ElementState.SUSPENDED, ElementState.ENDING}

# A job that waits for another job does not wait for nodes.
_DEPENDS = {"Dependency", "DependencyNeverSatisfied"}
# Reasons of a job that waits only for nodes, or has just returned to the queue.
_FOR_NODES = {"None", "Priority", "Resources"}
_BEHIND = "Nodes required for job are DOWN"  # "... or reserved for jobs in higher priority ..."


Owned: TypeAlias = tuple[str, TrainerRecord]  # a trainer's user, and its record
Remembered: TypeAlias = tuple[str, TrainerRecord, float]  # user, record, when it was met (Unix s)


class QueueReader:
    """Makes queues from job records; unchanged parts are the same objects as before.

    With ``share`` elements that do not ask for whole nodes have parts of nodes.
    """

    def __init__(self, share: bool = False) -> None:
        self._share = share
        self._remembered: Mapping[int, Remembered] = {}
        self._known: dict[int, tuple[list[JobRow], _Array]] = {}

    def remember(self, trainers: Mapping[int, Remembered]) -> None:
        """Take what the previous controller knew of trainers, by array."""
        self._remembered = trainers

    def read(self, rows: Iterable[JobRow | str]) -> Queue:
        """Sort records into trainers, waiting ordinary jobs and the nodes of ordinary jobs.

        For a record that cannot be read, ``rows`` has a text that says why. Never raises:
        ``Queue.malformed`` names the jobs that cannot be understood, and nobody touches them.
        """
        arrays: dict[int, list[JobRow]] = {}
        malformed: dict[int, str] = {}
        for row in rows:
            if isinstance(row, JobRow):
                arrays.setdefault(row.array, []).append(row)
            else:
                malformed[-1 - len(malformed)] = row
        self._known = {
            array: (members, self._array(array, members)) for array, members in arrays.items()
        }
        found = {array: self._known[array][1] for array in sorted(arrays)}
        waiting = (job for one in found.values() for job in one.waiting)
        runs = tuple(run for one in found.values() for run in one.runs)
        trainers = tuple(trainer for one in found.values() for trainer in one.trainers)
        return Queue(
            trainers=trainers,
            waiting=tuple(sorted(waiting, key=lambda job: job.job_id)),
            ordinary_nodes=frozenset(node for run in runs for node in run.nodes),
            ordinary_runs=runs,
            ordinary_starts=frozenset(start for one in found.values() for start in one.starts),
            ordinary_ends=tuple(end for one in found.values() for end in one.ends),
            behind=self._behind(trainers, rows_of=arrays),
            malformed=malformed
            | {array: one.malformed for array, one in found.items() if one.malformed},
            bare={array: one.bare for array, one in found.items() if one.bare},
        )

    def _behind(
        self, trainers: Iterable[Trainer], rows_of: Mapping[int, list[JobRow]]
    ) -> dict[int, str]:
        """Return the unmet dependencies of trainers, by array."""
        depend = {one.array: one.demands.dependency for one in trainers if one.demands.dependency}
        if not depend:
            return {}
        by_id = {**{row.job_id: [row] for rows in rows_of.values() for row in rows}, **rows_of}

        def states_of(job: int, task: int | None) -> list[ElementState]:
            rows = by_id.get(job, ())
            return [element_state(row) for row in rows if task is None or _has_task(row, task)]

        left = {array: unmet(text, states_of) for array, text in depend.items()}
        return {array: words for array, words in left.items() if words}

    def _array(self, array: int, members: list[JobRow]) -> _Array:
        rows, known = self._known.get(array, (None, _Array()))
        if rows == members:
            return known
        try:
            made = _read_array(members, self._before(array, members, known), self._share)
        except Exception as error:  # one bad job must not hide all others
            made = replace(
                _read_ordinary(members, self._share), malformed=f"{type(error).__name__}: {error}"
            )
        # A record may change without its trainer: a priority, or a forecast.
        unchanged = {trainer.partition: trainer for trainer in known.trainers}
        kept = (unchanged.get(trainer.partition) for trainer in made.trainers)
        pairs = zip(made.trainers, kept, strict=True)
        return replace(made, trainers=tuple(old if old == new else new for new, old in pairs))

    def _before(self, array: int, members: Sequence[JobRow], known: _Array) -> Owned | None:
        """Return whose trainer the array was at the last reading, or for the last controller.

        A later job has its number if slurmctld has lost its state; none of it is as old.
        """
        if known.trainers:
            return known.trainers[0].user, known.trainers[0].record
        user, record, met_s = self._remembered.get(array, ("", None, 0.0))
        as_old = any(row.submit_s and row.submit_s <= met_s for row in members)
        return (user, record) if record is not None and as_old else None


@dataclass(frozen=True, slots=True)
class _Array:
    """What the records of one job array, or the record of one job, amount to."""

    trainers: tuple[Trainer, ...] = ()  # one for each partition that elements are in
    waiting: tuple[WaitingJob, ...] = ()
    runs: tuple[OrdinaryRun, ...] = ()
    starts: tuple[tuple[int, float], ...] = ()
    ends: tuple[tuple[str, float], ...] = ()
    malformed: str = ""  # what is wrong with it
    bare: str = ""  # its partition, if it is a trainer but for the record


def _read_array(members: list[JobRow], before: Owned | None, share: bool) -> _Array:
    """Read the records of one array: trainers, or ordinary jobs.

    An element may lose its comment: the comments of the others count for it. If all comments are
    gone, it counts that the array was this user's trainer ``before``.
    """
    claims = [row for row in members if is_trainer_comment(row.comment)]
    users = {row.user for row in members if row.tasks is not None}
    if not claims and (before is None or {before[0]} != users):
        bare = members[0].partition if _is_bare(members) else ""
        return replace(_read_ordinary(members, share), bare=bare)
    try:
        record = before[1] if before is not None and not claims else _trainer_record(claims)
    except ValueError as error:
        live = not all(element_state(row).over for row in claims)
        return replace(_read_ordinary(members, share), malformed=str(error) if live else "")
    by_partition: dict[str, list[JobRow]] = {}
    strays: list[JobRow] = []
    for row in members:
        of = by_partition.setdefault(row.partition, []) if _is_element(row, record) else strays
        of.append(row)
    live = not all(element_state(row).over for row in strays)
    return replace(
        _read_ordinary(strays, share),
        trainers=tuple(
            replace(_join_elements(record, rows, share), overwritten=not claims)
            for _, rows in sorted(by_partition.items())
        ),
        malformed="it has tasks that its comment does not name" if live else "",
    )


def _is_bare(members: list[JobRow]) -> bool:
    """Whether an array is as a trainer's submission leaves it, but for the record."""
    if not all(
        row.tasks and row.node_count == 1 and row.priority == 0 and row.reason == "JobHeldUser"
        for row in members
    ):
        return False
    try:
        tasks = {task for row in members for task in parse_tasks(row.tasks or "", _MOST_TASKS)}
    except ValueError:
        return False
    return len(tasks) > 1 and tasks == set(range(len(tasks)))


def _trainer_record(claims: list[JobRow]) -> TrainerRecord:
    """Return the record of the first task with a valid one."""
    error = SpecError("a trainer is a job array")
    for row in sorted(claims, key=_first_task):
        try:
            if row.tasks is not None:
                parse_tasks(row.tasks, below=1)
                record = parse_comment(row.comment)
                if record.nodes:
                    expand_user_list(record.nodes)
                return record
        except ValueError as problem:
            error = SpecError(str(problem))
    raise error


def _is_element(row: JobRow, record: TrainerRecord) -> bool:
    try:
        return bool(parse_tasks(row.tasks or "", below=record.anchor + 1))
    except ValueError:
        return False


def _read_ordinary(members: list[JobRow], share: bool) -> _Array:
    # The pending rest of an array is one job, however many rows it has.
    rows = [row for row in members if _waits_for_nodes(row)]
    counts = Counter[int]()
    for row in rows:
        counts[row.job_id] += _count(row.tasks)
    waiting = {row.job_id: _waiting_job(row, counts[row.job_id], share) for row in rows}
    runs = ((row, nodes) for row in members if (nodes := _nodes_of(row)))
    return _Array(
        waiting=tuple(waiting.values()),
        runs=tuple(
            OrdinaryRun(
                *(nodes, row.start_s or 0.0, row.submit_s or 0.0, row.job_id, row.array),
                asks=_waiting_job(row, 1, share) if share else None,
            )
            for row, nodes in runs
        ),
        # A job that was cancelled before it ran has a start, but no nodes.
        starts=tuple(
            (row.job_id, row.start_s)
            for row in members
            if row.start_s and row.nodes and not element_state(row).waits
        ),
        ends=tuple(
            (row.nodes, row.end_s)
            for row in members
            if row.end_s and row.nodes and element_state(row).over
        ),
    )


def _first_task(row: JobRow) -> int:
    match = _NUMBER.match(row.tasks or "")
    return int(match[0]) if match else 0


def _nodes_of(row: JobRow) -> tuple[str, ...]:
    return expand(row.nodes) if element_state(row) in _HAS_NODES else ()


def element_state(row: JobRow) -> ElementState:
    """Return the state of a job; ENDING, with which nothing is done, for an unknown state."""
    if _is_queued(row):
        return _waiting_state(row)
    return _STATES.get(row.state, ElementState.ENDING)


def _is_queued(row: JobRow) -> bool:
    return row.state in _WAITING or (row.state in _SIGNALLED and not row.nodes)


def _waiting_state(row: JobRow) -> ElementState:
    if row.priority == 0:
        # Held by an operator: its owner may not release it, so we may not either. After a requeue
        # of ours the reason is another one, also if our controller is an operator. Slurm gives
        # this reason too when it finds that the dependency of a held job has failed.
        withheld = row.reason == "JobHeldAdmin" and FAILED not in row.dependency
        return ElementState.WITHHELD if withheld else ElementState.HELD
    # A job with a begin time has this reason. A release clears the reason; until the scheduler has
    # looked at the job, it has a start time without the nodes that a forecast would name.
    undecided = row.reason == "None" and row.start_s is not None and not expand(row.scheduled_nodes)
    if row.reason == "BeginTime" or undecided:
        return ElementState.DELAYED
    return ElementState.PENDING


def _join_elements(record: TrainerRecord, rows: list[JobRow], share: bool) -> Trainer:
    """Join the elements of one partition; their common properties are those of the first."""
    first = min(rows, key=_first_task)
    elements = (element for row in rows for element in _elements(row, record.anchor + 1, share))
    by_id = {element.id: element for element in elements}
    anchor = by_id.pop(ElementId(first.array, record.anchor), None)
    return Trainer(
        array=first.array,
        name=first.name,
        user=first.user,
        partition=first.partition,
        record=record,
        # A requeue makes the submit time of an element the time of the requeue.
        submit_s=min(row.submit_s or 0.0 for row in rows),
        elements=tuple(by_id[element] for element in sorted(by_id)),
        demands=_demands(record, [row for row in rows if not element_state(row).over], share),
        anchor=None if anchor is None or anchor.state.over else anchor,
        comment=own_comment(first.comment),
    )


def _demands(record: TrainerRecord, rows: Sequence[JobRow], share: bool) -> Demands:
    """Return what an array's job records ask for; the owner can change each record.

    If they ask for different parts of nodes, the smallest counts: then the plan never counts more
    on a node than its elements have there.
    """
    gpus = min((_gpus_of_part(row) for row in rows), default=0) if share else 0
    return Demands(
        constraints=frozenset(row.constraint for row in rows if row.constraint),
        excluded=frozenset[str]().union(*(excluded_in(row.excluded_nodes) for row in rows)),
        licenses=next((row.licenses for row in rows if row.licenses), ""),
        reservation=next((row.reservation for row in rows if row.reservation), ""),
        resources=_resources(rows),
        dependency=_dependency(rows),
        begin_s=max((_begin_s(row) for row in rows), default=0.0),
        partitions=frozenset(record.partitions),
        nodes=expand_user_list(record.nodes) if record.nodes else frozenset(),
        gpus=gpus,
        default_cpus=gpus > 0 and all(row.default_cpus for row in rows),
        memory=_memory(rows) if gpus else Memory(),
        qos=next((row.qos for row in rows if row.qos), ""),
        shares=not gpus and any(row.shared not in _WHOLE for row in rows),
    )


def _dependency(rows: Iterable[JobRow]) -> str:
    """Return an array's dependency, failed if Slurm shows that for any task."""
    found = [row.dependency for row in rows if row.dependency]
    return next((one for one in found if FAILED in one), next(iter(found), ""))


def _gpus_of_part(row: JobRow) -> int:
    """Return how many GPUs a job takes of each node, 0 if it has whole nodes."""
    if row.shared != "OK":
        return 0
    times, _, nodes = row.gres_often.partition("/")
    gpus = read_resources("", (), gres_of_job(row.gres)).gpus
    return -(-gpus * int(times or 1) // int(nodes or 1))


def _cpus_of_part(row: JobRow) -> int:
    """Return how many processors a job takes of each node, 0 if it has whole nodes."""
    if row.shared != "OK":
        return 0
    in_all, each = (int(one) if one.isdecimal() else 0 for one in (row.cpus, row.node_cpus))
    return max(1, each, -(-in_all // max(1, row.node_count)))


def _resources(rows: Sequence[JobRow]) -> Resources:
    """Return the most that any of these elements asks of its node."""
    asked = {
        (row.memory, row.node_cpus, row.cpus if element_state(row).waits else "", row.gres)
        for row in rows
    }
    each = [
        read_resources(memory, tuple(cpus), gres_of_job(gres))
        for memory, *cpus, gres in sorted(asked)
    ]
    return Resources(
        max((one.memory_mb for one in each), default=0.0),
        max((one.cpus for one in each), default=0),
        frozenset().union(*(one.gres for one in each)),
        max((one.cpu_memory_mb for one in each), default=0.0),
    )


def _memory(rows: Sequence[JobRow]) -> Memory:
    """Return the most memory that these elements, which have parts of nodes, ask of theirs.

    squeue shows one amount (``row.memory``), and not for what it is.
    """
    waiting = [row for row in rows if element_state(row).waits] or rows
    each = {_memory_asked(row, row.node_memory or row.memory) for row in waiting}
    return Memory(
        max(one.node_mb for one in each),
        max(one.cpu_mb for one in each),
        max(one.gpu_mb for one in each),
        all(one.default for one in each),
    )


def _memory_asked(row: JobRow, text: str) -> Memory:
    return replace(memory_asked(text), default=bool(row.given) and "m" not in row.given)


def _begin_s(row: JobRow) -> float:
    """Return the begin time of a held element; a start time with nodes is a forecast."""
    held = element_state(row) is ElementState.HELD and not expand(row.scheduled_nodes)
    return row.start_s or 0.0 if held else 0.0


def _has_task(row: JobRow, task: int) -> bool:
    try:
        return task in parse_tasks(row.tasks or "", below=_MOST_TASKS)
    except ValueError:
        return True


def _elements(row: JobRow, below: int, share: bool) -> Iterable[Element]:
    state, gpus = element_state(row), _gpus_of_part(row) if share else 0
    nodes = expand(row.nodes) or expand(row.required_nodes)
    waits = state.waits
    for task in parse_tasks(row.tasks or "", below=below):
        yield Element(
            id=ElementId(row.array, task),
            state=state,
            node=nodes[0] if len(nodes) == 1 else None,
            start_s=None if waits else row.start_s,
            limit_end_s=row.end_s if state is ElementState.RUNNING else None,
            # A list of 10,000 names may follow: "ReqNodeNotAvail, UnavailableNodes:".
            reason=row.reason.partition(",")[0] if waits or state.over else "",
            queued_s=row.submit_s,
            end_s=row.end_s if state.over else None,
            exit_status=row.exit_status if state.over else None,
            job_id=row.job_id if state is ElementState.RUNNING else None,
            gpus=gpus,
            boots=row.state == "CONFIGURING",
            cpus=int(row.cpus) if row.cpus.isdecimal() else 0,
            memory_mb=megabytes(row.node_memory) if row.node_memory and not waits else None,
        )


def _waits_for_nodes(row: JobRow) -> bool:
    return _is_queued(row) and row.priority != 0 and row.reason not in _DEPENDS


def _waiting_job(row: JobRow, count: int, share: bool) -> WaitingJob:
    gpus = _gpus_of_part(row) if share else 0
    return WaitingJob(
        job_id=row.job_id,
        partition=row.partition,
        nodes=row.node_count,
        expected_start_s=row.start_s,
        expected_nodes=expand(row.scheduled_nodes),
        priority=row.priority,
        submit_s=row.submit_s or 0.0,
        minutes=_minutes(row.limit),
        constraint=row.constraint,
        excluded=frozenset(expand(row.excluded_nodes)),
        count=count,
        for_nodes=row.reason in _FOR_NODES or row.reason.startswith(_BEHIND),
        gpus=gpus,
        cpus=_cpus_of_part(row) if share else 0,
        cpus_per_gpu=int(row.cpus_per_gpu or 0),
        tasks_said=row.tasks_said == "yes",
        default_cpus=row.default_cpus,
        memory=_memory_asked(row, row.node_memory) if share else Memory(),
    )


def _minutes(limit: str) -> int | None:
    try:
        return minutes_of(limit)
    except SubmissionError:  # the job has no limit of its own
        return None


def _count(tasks: str | None) -> int:
    """Return how many tasks of an array a record stands for; 1 if it cannot be read."""
    try:
        return 1 if tasks is None else max(1, len(parse_tasks(tasks, below=_MOST_TASKS)))
    except ValueError:
        return 1
