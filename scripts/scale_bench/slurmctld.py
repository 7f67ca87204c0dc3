"""A simulated slurmctld: its job table, its nodes and its scheduler, as a controller sees them.

One machine cannot run a real one of this size. ``requests`` reads the controller's requests. To a
controller it looks like Slurm 22.05 to 26.05, and it is as fast as possible.
"""

from __future__ import annotations

import heapq
import itertools
import queue
import random
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

from bftrainer_slurm.keeper.protocol import Note, NoteKind
from bftrainer_slurm.model import ElementId
from bftrainer_slurm.slurm.arrays import format_tasks
from bftrainer_slurm.slurm.nodelists import expand, fold
from bftrainer_slurm.spec import TrainerRecord, format_comment
from scripts.scale_bench.changes import Changes

PARTITION = "bftrainer"
_ENDS_S = 1.0  # from SIGTERM to an idle node: the grace, and the epilog
_PASS_S = 1.0  # from one pass of the scheduler to the next
_REQUEUE_S = 121  # after this, slurmctld lets a requeued job start again
_KEPT_S = 300  # MinJobAge
_LIMIT_MINUTES = 60


@dataclass(slots=True)
class Job:
    """A record of the job table; ``tasks`` has more than one if it is the rest of an array.

    ``granted``: the controller has released it, and nobody has held or reclaimed it since.
    """

    job_id: int
    array: int
    user: str
    partition: str
    submit_s: float
    tasks: set[int] = field(default_factory=set)
    comment: str = ""
    name: str = "simulate"
    state: str = "PENDING"
    reason: str = "None"
    priority: int = 1000
    start_s: float = 0.0
    end_s: float = 0.0
    nodes: tuple[int, ...] = ()
    scheduled: tuple[int, ...] = ()
    count: int = 1
    excluded: str = ""
    minutes: int = _LIMIT_MINUTES
    granted: bool = False
    line: str = ""  # as bftrainer-look writes it; empty: it has changed since

    @property
    def id(self) -> ElementId:
        """Which element it is, if it is one."""
        return ElementId(self.array, min(self.tasks, default=0))


class Slurmctld:
    """The whole simulation; safe for threads. Nodes are numbers, from 1.

    ``said`` has the elements' notes to the keeper; ``started_alone`` counts elements that started
    again after a reclaim without the controller.
    """

    def __init__(
        self, nodes: int, clock: Callable[[], float], dice: random.Random, bf_interval_s: int = 30
    ) -> None:
        self.lock = threading.RLock()
        self.bf_interval_s = bf_interval_s
        self.changes = Changes()
        self.said: queue.SimpleQueue[Note] = queue.SimpleQueue()
        self.started_alone = 0
        self._clock = clock
        self._dice = dice
        self._idle = set(range(1, nodes + 1))
        self._on: dict[int, Job] = {}  # by node
        self._jobs: dict[int, Job] = {}
        self._records: dict[int, dict[int, Job]] = {}  # by array and task
        self._eligible: dict[int, Job] = {}  # elements that may start
        self._promised: set[int] = set()  # nodes that elements leave for an ordinary job
        self._scheduled_s = 0.0
        self._ids = itertools.count(1000)
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = itertools.count()
        self._jobs_changed_s = self._nodes_changed_s = clock()
        self._node_count = nodes

    # What happens on the cluster.

    def advance(self) -> None:
        """Do what is due now, and start what can start."""
        with self.lock:
            while self._due and self._due[0][0] <= self._clock():
                heapq.heappop(self._due)[2]()
            if self._clock() - self._scheduled_s >= _PASS_S:
                self._scheduled_s = self._clock()
                self._schedule()

    def submit_trainer(self, user: str, name: str, record: TrainerRecord) -> int:
        """Queue a trainer, an array of held elements in one record; return its number."""
        job_id = next(self._ids)
        tasks = set(range(record.max_nodes))
        rest = Job(job_id, job_id, user, PARTITION, self._clock(), tasks, format_comment(record))
        rest.name, rest.priority, rest.reason = name, 0, "JobHeldUser"
        self._records[job_id] = dict.fromkeys(tasks, rest)
        self._add(rest)
        return job_id

    def submit_ordinary(self, count: int) -> Job:
        """Queue an ordinary job that waits for hours, with a forecast of where it starts."""
        job_id = next(self._ids)
        user = f"user{self._dice.randrange(500)}"
        job = Job(job_id, job_id, user, "batch", self._clock(), count=count, reason="Priority")
        job.start_s = self._clock() + self._dice.randrange(3600, 36000)
        job.scheduled = tuple(self._dice.sample(range(1, self._node_count + 1), count))
        self._add(job)
        return job

    def start_ordinary(self, job: Job, nodes: Iterable[int]) -> None:
        """Give an ordinary job these nodes; elements on them are ended and requeued first."""
        with self.lock:
            now_s, wanted = self._clock(), tuple(nodes)
            there = [self._on[node] for node in wanted if node in self._on]
            running = [element for element in there if element.state == "RUNNING"]
            job.scheduled, job.start_s, job.reason = wanted, now_s, "Resources"
            self._idle.difference_update(wanted)
            self._promised.update(wanted)
            self.changes.overtaken(wanted)
            self.changes.begin([element.id for element in running], now_s)
            for element in running:
                self._end(element, partial(self._requeue, element))
            self._touch(job)
            self._later(2 * _ENDS_S if there else 0.0, partial(self._run, job, wanted))

    def end_ordinary(self, jobs: Iterable[Job]) -> None:
        """End ordinary jobs, all at once; their nodes are idle a moment later."""
        with self.lock:
            ended = tuple(jobs)
            for job in ended:
                self._end(job, partial(self._complete, job))
            self._later(_ENDS_S, partial(self._freed, ended))

    def rearrange_queue(self) -> None:
        """Change all ordinary jobs a little: priorities and forecasts, limits of those that run."""
        with self.lock:
            for job in self.ordinary("PENDING"):
                job.priority += 1
                job.start_s += 60
                self._touch(job)
            for job in self.ordinary("RUNNING"):
                job.end_s += 60
                self._touch(job)

    def spread_limits(self) -> None:
        """Spread the ends of the elements' time limits, as if trainers had begun at any time."""
        with self.lock:
            arrays = list(self._records)
            for number, array in enumerate(arrays):
                end_s = self._clock() + 1800 + 1800 * number / len(arrays)
                for job in self._records[array].values():
                    if job.state == "RUNNING":
                        job.end_s = end_s
                        self._touch(job)

    def ordinary(self, state: str) -> list[Job]:
        """Return the ordinary jobs in this state."""
        return [job for job in self._jobs.values() if not job.tasks and job.state == state]

    def elements(self, *states: str) -> list[Job]:
        """Return the elements in these states that have a record of their own."""
        found = (job for records in self._records.values() for job in records.values())
        return [job for job in found if len(job.tasks) == 1 and job.state in states]

    @property
    def idle(self) -> set[int]:
        """The nodes that nobody uses, and that no job will get in a moment."""
        return set(self._idle)

    @property
    def last_backfill_s(self) -> int:
        """When the last pass of backfill began, in Unix seconds. No pass starts anything here."""
        return int(self._clock()) // self.bf_interval_s * self.bf_interval_s

    @property
    def unsettled(self) -> bool:
        """Whether an element is ending or may start, or an ordinary job is about to start."""
        return bool(self._eligible or self._promised or self.elements("COMPLETING"))

    # What a controller reads.

    def jobs_text(self, since_s: int) -> str:
        """Return what ``bftrainer-look jobs SINCE`` prints."""
        with self.lock:
            if since_s - 1 >= int(self._jobs_changed_s):
                return ""
            for job in self._jobs.values():
                if not job.line:
                    job.line = _line(job)
            return f"{int(self._clock())}\n" + "".join(job.line for job in self._jobs.values())

    def nodes_text(self, since_s: int) -> str:
        """Return what ``bftrainer-look nodes SINCE`` prints."""
        with self.lock:
            if since_s - 1 >= int(self._nodes_changed_s):
                return ""
            lines = (
                f"n{node:05}\t{'IDLE' if node in self._idle else 'ALLOCATED'}\tgpu,a100\t"
                f"batch,{PARTITION}\t1\t512000\t64\t\t\n"
                for node in range(1, self._node_count + 1)
            )
            return f"{int(self._clock())}\n" + "".join(lines)

    # What a controller asks for. Each method returns the tasks for which it cannot be done.

    def let_go(
        self, array: int, tasks: Iterable[int], excluded: str, minutes: int | None
    ) -> list[int]:
        """Let held or delayed elements start, on any nodes except ``excluded``."""
        self.changes.acted(self._idle - _numbers(excluded), self._clock())

        def let_go(job: Job) -> None:
            job.priority, job.reason, job.start_s = 1000, "None", 0.0
            job.excluded, job.minutes = excluded, minutes or job.minutes
            job.granted = True
            self._eligible[job.job_id] = job

        return self._each(array, tasks, "PENDING", let_go)

    def hold(self, array: int, tasks: Iterable[int]) -> list[int]:
        """Hold elements that wait."""
        return self._each(array, tasks, "PENDING", self._hold)

    def requeue_hold(self, array: int, tasks: Iterable[int]) -> list[int]:
        """End elements that run, and hold them."""

        def end(job: Job) -> None:
            self._end(job, partial(self._requeue, job, held=True))

        return self._each(array, tasks, "RUNNING", end)

    def limit(self, array: int, tasks: Iterable[int], end_s: int) -> list[int]:
        """Set when running elements reach their time limit."""
        return self._each(array, tasks, "RUNNING", lambda job: setattr(job, "end_s", end_s))

    # How it works.

    def _each(
        self, array: int, tasks: Iterable[int], state: str, change: Callable[[Job], None]
    ) -> list[int]:
        """Change the elements that are in this state; return the tasks of the others."""
        refused, done = [], []
        for task in tasks:
            job = self._own(array, task)
            if job.state != state:
                refused.append(task)
                continue
            change(job)
            self._touch(job)
            done.append(job.id)
        self.changes.acted(done, self._clock())
        return refused

    def _own(self, array: int, task: int) -> Job:
        """Return an element's record, taken out of the rest of its array for good."""
        rest = self._records[array][task]
        if len(rest.tasks) == 1:
            return rest
        # The last task keeps the record, and the id, of the array.
        own = replace(rest, job_id=next(self._ids), tasks={task}, line="")
        rest.tasks.discard(task)
        self._touch(rest)
        self._records[array][task] = own
        self._add(own)
        return own

    def _schedule(self) -> None:
        """Start the elements that may start where a node is idle, in slurmctld's order."""
        fitting: dict[str, list[int]] = {}
        for job in list(self._eligible.values()):
            if job.excluded not in fitting:
                left = self._idle - _numbers(job.excluded)
                fitting[job.excluded] = sorted(left, reverse=True)
            nodes = fitting[job.excluded]
            while nodes and nodes[-1] not in self._idle:
                nodes.pop()
            if nodes:
                self.started_alone += not job.granted
                self._run(job, (nodes.pop(),))

    def _run(self, job: Job, nodes: tuple[int, ...]) -> None:
        now_s = self._clock()
        self._eligible.pop(job.job_id, None)
        self._idle.difference_update(nodes)
        if not job.tasks:
            self._promised.difference_update(nodes)
        self._on.update(dict.fromkeys(nodes, job))
        job.state, job.reason, job.nodes, job.scheduled = "RUNNING", "None", nodes, ()
        job.start_s, job.end_s = now_s, now_s + 60 * job.minutes
        self._touch(job, nodes=True)
        if job.tasks:
            self._tell(NoteKind.UP, job)

    def _end(self, job: Job, then: Callable[[], None]) -> None:
        job.state = "COMPLETING"
        self._touch(job)
        if job.tasks:
            self._tell(NoteKind.LEAVING, job)
        self._later(_ENDS_S, then)

    def _requeue(self, job: Job, held: bool = False) -> None:
        """Put an element back into the queue: held, or to start again in two minutes."""
        now_s = self._clock()
        self._tell(NoteKind.GONE, job)
        self._leave_nodes(job)
        job.state, job.submit_s, job.end_s, job.granted = "PENDING", now_s, 0.0, False
        if held:
            self._hold(job)
        else:
            job.priority, job.reason, job.start_s = 1000, "BeginTime", now_s + _REQUEUE_S
            self._later(_REQUEUE_S, partial(self._begin, job))
        self._touch(job, nodes=True)

    def _begin(self, job: Job) -> None:
        """Let an element start at its begin time, if nobody has held it since."""
        if job.reason == "BeginTime" and job.start_s <= self._clock():
            job.reason = "Resources"
            self._eligible[job.job_id] = job
            self._touch(job)

    def _hold(self, job: Job) -> None:
        job.priority, job.reason, job.start_s, job.granted = 0, "JobHeldUser", 0.0, False
        self._eligible.pop(job.job_id, None)

    def _complete(self, job: Job) -> None:
        self._leave_nodes(job)
        job.state, job.end_s = "COMPLETED", self._clock()
        self._touch(job, nodes=True)
        self._later(_KEPT_S, partial(self._forget, job))

    def _freed(self, jobs: Iterable[Job]) -> None:
        freed = {node for job in jobs for node in job.nodes} & self._idle
        self.changes.begin(freed, self._clock())

    def _leave_nodes(self, job: Job) -> None:
        for node in job.nodes:
            del self._on[node]
        self._idle.update(set(job.nodes) - self._promised)
        if job.tasks:
            job.nodes = ()

    def _forget(self, job: Job) -> None:
        del self._jobs[job.job_id]
        self._jobs_changed_s = self._clock()

    def _add(self, job: Job) -> None:
        self._jobs[job.job_id] = job
        self._touch(job)

    def _touch(self, job: Job, nodes: bool = False) -> None:
        job.line = ""
        self._jobs_changed_s = self._clock()
        if nodes:
            self._nodes_changed_s = self._jobs_changed_s

    def _tell(self, kind: NoteKind, job: Job) -> None:
        array, task = job.id.array, job.id.task
        self.said.put(Note(kind, array, task, f"n{job.nodes[0]:05}"))

    def _later(self, delay_s: float, then: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self._clock() + delay_s, next(self._serial), then))


def _names(nodes: Iterable[int]) -> str:
    return fold(f"n{node:05}" for node in nodes)


@lru_cache(256)  # the same list comes for each element that was released with others
def _numbers(names: str) -> frozenset[int]:
    """Return the nodes in a list as the controller writes it."""
    return frozenset(int(name.removeprefix("n")) for name in expand(names))


def _line(job: Job) -> str:
    """Return a record as bftrainer-look writes it; fields that jobs here never have are empty."""
    waits = job.state == "PENDING"
    has = (job.job_id, job.array, format_tasks(job.tasks), job.state, job.reason, job.priority)
    times = (int(job.submit_s), int(job.start_s) or "", int(job.end_s) or "")
    nodes = (_names(job.nodes) if job.nodes else "", "")
    forecast = (_names(job.scheduled) if waits and job.scheduled else "", job.count)
    whose = (job.partition, job.user, job.name, job.comment, "")
    limits = (job.excluded, "", "", "", 0)  # no time limit
    asked = ("", 0, 1, 1, "")  # no dependency, memory or GRES
    return "\t".join(map(str, (*has, *times, *nodes, *forecast, *whose, *limits, *asked))) + "\t\n"
