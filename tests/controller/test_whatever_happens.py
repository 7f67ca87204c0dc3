"""The loop, whatever users, admins, Slurm and clocks do, in any order; hypothesis draws it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, ClassVar

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from hypothesis.strategies import SearchStrategy

from bftrainer_slurm.controller.act import Groups
from bftrainer_slurm.controller.loop import Controller
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.phases import Phase
from bftrainer_slurm.keeper.protocol import NoteKind
from bftrainer_slurm.model import BackfillPass, ElementId, ElementState, WaitingJob
from bftrainer_slurm.replay.slurm import (
    DELAYED,
    ENDING,
    FAILED,
    HELD,
    PARTITION,
    PENDING,
    RUNNING,
    SUSPENDED,
    Job,
)
from bftrainer_slurm.sizes import Sizes
from bftrainer_slurm.slurm.gateway import GatewayError
from tests.controller.made_up_slurm import BACKFILL_S, MadeUpSlurm
from tests.controller.setting import Greedy
from tests.controller.worlds import NOW_S, note, started

NODES = tuple(f"n{number}" for number in range(1, 7))
ARRAYS = st.integers(11, 13)
NODE = st.sampled_from(NODES)
ENDS = st.sampled_from(
    [ElementState.COMPLETED, ElementState.CANCELLED, ElementState.LOST, ElementState.PREEMPTED]
)
_REVIVED_S = 30.0  # for so long one that was brought back, and fails at once, is not seen to
CHANGES = {"grow", "shrink", "revive", "hold", "end_at", "cancel", "tell"}  # one an action


class Watch(Groups):
    """Calls ``see`` with each trainer's array after a decision, before it is carried out.

    Elements of ``slurm`` learn that they are asked to leave.
    """

    def __init__(self, see: Callable[[int], None], slurm: MadeUpSlurm) -> None:
        super().__init__()
        self._see = see
        self._slurm = slurm

    def own(self, *about: Any, **_: Any) -> None:
        self._see(about[0])

    def part(self, leaving: Mapping[int, Sequence[int]]) -> Mapping[int, Sequence[int]]:
        for array, tasks in leaving.items():
            assert self._slurm.jobs[array].keys() >= set(tasks)
            self._slurm.asked_to_leave |= {ElementId(array, task) for task in tasks}
        return {}


def to_one(*states: ElementState, **more: SearchStrategy[Any]) -> Callable[[Any], Any]:
    """The rule happens to one of the elements in these states, in worlds where there is any."""

    def decorated(happens: Callable[..., None]) -> object:
        @wraps(happens)
        def to(world: Whatever, number: int, **drawn: Any) -> None:
            jobs = world.slurm.elements(*states)
            happens(world, jobs[number % len(jobs)], **drawn)

        there_is = precondition(lambda world: world.slurm.elements(*states))
        return there_is(rule(number=st.integers(0, 11), **more)(to))

    return decorated


class Whatever(RuleBasedStateMachine):
    """Everything that can happen, one thing after the other, and what must hold all the time.

    ``phases`` and ``changes`` are those that were ever reached.
    """

    phases: ClassVar[set[Phase]] = set()
    changes: ClassVar[set[str]] = set()

    @initialize(operator=st.booleans(), slurm_works=st.booleans(), notes_arrive=st.booleans())
    def begin(self, operator: bool, slurm_works: bool, notes_arrive: bool) -> None:
        self.notes_arrive = notes_arrive
        self.slurm = MadeUpSlurm(NOW_S, [*NODES], operator, done_=self.changes)
        self.history = History(":memory:")
        self.submitted = 0
        self.controller = self.started()
        self.somebody_submits(11, 1, 4)
        self.somebody_submits(12, 1, 3)
        self.turn(1.0, slurm_works)

    def started(self) -> Controller:
        self.slurm.controller_ += 1
        settings = Settings(queue_interval_s=0.25, operator=self.slurm.operator)
        about = (self.slurm, Greedy(), self.history, lambda: self.slurm.now_s, settings)
        return started(*about, Watch(self.see, self.slurm), notes_arrive=lambda: self.notes_arrive)

    def see(self, array: int) -> None:
        """Note the phases of a trainer's elements."""
        view = self.controller.registry.view(array)
        assert view is not None
        self.phases.update(view.state.of(one.id.task).phase for one in view.trainer.elements)

    # The controller, and time.

    @rule(seconds=st.sampled_from([0.0, 1.0, 3.0, 10.0, 70.0]), slurm_works=st.booleans())
    def turn(self, seconds: float, slurm_works: bool = True) -> None:
        self.slurm.now_s += seconds
        self.slurm.works = slurm_works
        self.slurm.schedule()
        refused = self.slurm.refused_
        try:
            self.controller.turn()
        except GatewayError:
            assert self.slurm.away
        else:
            if refused == self.slurm.refused_:
                self.what_must_be_done_is()
        self.controller.status({})
        for view in self.controller.registry.views:
            self.see(view.array)
        self.the_plan_gives_only_sizes_that_are_allowed()

    def the_plan_gives_only_sizes_that_are_allowed(self) -> None:
        standing = self.controller.decision.standing
        for one in standing.problem.trainers if standing else ():
            nodes = len(standing.plan.assignment[one.key]) if standing else 0
            sizes = self.slurm.trainers[int(one.key)].record.sizes
            assert nodes == 0 or not sizes or nodes in sizes, (one.key, nodes, sizes)

    def what_must_be_done_is(self) -> None:
        """After a turn in which nothing was refused."""
        over = self.over()
        for job in self.slurm.elements():
            if job.id.array not in over:
                assert job.state is not DELAYED, f"{job.id} would start by itself"
                broken = job.state in (FAILED, ElementState.PREEMPTED)
                failed = broken and self.slurm.now_s - (job.end_s or 0.0) > _REVIVED_S
                assert not failed, f"{job.id} was not brought back"
                goes_on = job.state is RUNNING and job.then is None
                late = goes_on and (job.limit_end_s or 0.0) <= self.slurm.now_s
                assert not late, f"{job.id} is past its time limit"
                left = goes_on and job.id in self.slurm.asked_to_leave
                assert not left, f"{job.id} has left, and is not ended"
                grown = job.state is PENDING and job.id not in self.slurm.let_go_by_owner
                waits_for = job.targets if grown else None
                taken = waits_for is not None and waits_for <= self.slurm.ordinary
                assert not taken, f"{job.id} waits for a node that an ordinary job has"
        for node, elements in self.slurm.running().items():
            assert len(elements) == 1, f"{elements} are on {node}"

    def over(self) -> set[int]:
        """The trainers that are not run any more."""
        views = self.controller.registry.views
        return {view.array for view in views if view.over or view.abandoned}

    @rule(seconds=st.sampled_from([-7200.0, -4.0, 4.0, 7200.0]))
    def the_clock_is_set(self, seconds: float) -> None:
        self.slurm.now_s += seconds
        if abs(seconds) > 5:  # the daemon makes a new one
            self.controller = self.started()

    @rule()
    def the_controller_restarts(self) -> None:
        self.controller = self.started()

    # Slurm, and who runs it.

    @rule(away=st.booleans())
    def slurmctld_comes_and_goes(self, away: bool) -> None:
        self.slurm.away = away

    @rule()
    def slurm_refuses_something(self) -> None:
        self.slurm.refuses = True

    @rule()
    def slurmctld_forgets_what_has_ended(self) -> None:
        for job in self.slurm.elements():
            if job.state.over:
                self.slurm.forget(job.id.array, job.id.task)

    @rule(active=st.booleans())
    def backfill_makes_a_pass(self, active: bool) -> None:
        self.slurm.passed = BackfillPass(self.slurm.now_s // 1, active)

    @rule()
    def begin_times_are_over(self) -> None:
        for job in self.slurm.elements(DELAYED):
            self.slurm.move(job, PENDING)
        self.slurm.schedule()

    @rule(node=NODE, state=st.sampled_from(["down", "draining", "up"]))
    def a_node_goes_or_comes(self, node: str, state: str) -> None:
        self.slurm.down.discard(node)
        self.slurm.draining.discard(node)
        if state == "draining":
            self.slurm.draining.add(node)
        elif state == "down":
            self.slurm.down.add(node)
            self.slurm.reclaim({node}, RUNNING, SUSPENDED)

    @to_one(HELD)
    def an_operator_holds_an_element(self, job: Job) -> None:
        self.slurm.move(job, ElementState.WITHHELD)

    @to_one(RUNNING)
    def an_operator_suspends_an_element(self, job: Job) -> None:
        if job.then is None:
            self.slurm.move(job, SUSPENDED)

    @to_one(SUSPENDED)
    def an_operator_lets_it_go_on(self, job: Job) -> None:
        self.slurm.move(job, RUNNING)

    # Trainers.

    @rule(array=ARRAYS, least=st.integers(1, 3), most=st.integers(3, 4), step=st.integers(0, 3))
    def somebody_submits(self, array: int, least: int, most: int, step: int = 0) -> None:
        if array not in self.slurm.jobs:
            self.submitted += 1
            sizes = tuple(range(least, most + 1, step)) if step else ()
            most = sizes[-1] if sizes else most
            self.slurm.submit_(array, least, most, f"{self.submitted:08x}", sizes)

    @to_one()
    def somebody_cancels_a_trainer(self, job: Job) -> None:
        self.slurm.cancel_(job.id.array)

    @to_one(RUNNING, how=ENDS)
    def an_element_ends(self, job: Job, how: ElementState) -> None:
        self.slurm.end(job, how)

    @to_one(RUNNING, status=st.sampled_from([1, 2]))
    def an_element_fails(self, job: Job, status: int) -> None:
        self.slurm.end(job, FAILED, status)

    @to_one(RUNNING)
    def an_element_cannot_start_in_the_second_of_its_preemption(self, job: Job) -> None:
        job.queued_s = job.start_s = self.slurm.now_s
        self.slurm.end(job, FAILED, 1)

    @to_one(HELD, DELAYED, node=st.none() | NODE)
    def an_owner_lets_an_element_go(self, job: Job, node: str | None) -> None:
        job.targets = None if node is None else frozenset({node})
        self.slurm.let_go_by_owner.add(job.id)
        self.slurm.move(job, PENDING)
        self.slurm.schedule()

    @to_one(least=st.integers(1, 4))
    def an_owner_writes_another_comment(self, job: Job, least: int) -> None:
        most = self.slurm.trainers[job.id.array].record.max_nodes
        self.slurm.change_(job.id.array, min_nodes=min(least, most), sizes=())

    @to_one(RUNNING, node=NODE)
    def two_elements_share_a_node(self, job: Job, node: str) -> None:
        if node not in self.slurm.down:
            job.node = node  # its owner may ask for that in an update
            self.slurm.asked_to_leave.discard(job.id)

    # Ordinary jobs.

    @rule(node=NODE)
    def an_ordinary_job_takes_a_node(self, node: str) -> None:
        self.slurm.start_ordinary_(node)

    @to_one(RUNNING)
    def an_ordinary_job_takes_the_node_of_an_element(self, job: Job) -> None:
        self.slurm.start_ordinary_(job.node or "")

    @to_one(PENDING, down=st.booleans())
    def the_nodes_of_one_that_is_let_go_are_lost(self, job: Job, down: bool) -> None:
        for node in job.targets or ():
            if down:
                self.a_node_goes_or_comes(node, "down")
            else:
                self.slurm.start_ordinary_(node)

    @rule(
        job=st.builds(
            WaitingJob,
            st.integers(90, 92),
            st.just(PARTITION),
            st.integers(1, 5),
            expected_nodes=st.sets(NODE).map(tuple),
            minutes=st.none() | st.integers(1, 100),
            count=st.integers(1, 3),
        ),
        planned_s=st.none() | st.sampled_from([-100.0, 2.0, 500.0]),
    )
    def an_ordinary_job_waits(self, job: WaitingJob, planned_s: float | None) -> None:
        start_s = None if planned_s is None else self.slurm.now_s + planned_s
        self.slurm.waiting[job.job_id] = replace(job, expected_start_s=start_s)

    @rule(job=st.integers(90, 92))
    def an_ordinary_job_waits_no_more(self, job: int) -> None:
        self.slurm.waiting.pop(job, None)

    @rule(node=NODE)
    def an_ordinary_job_ends(self, node: str) -> None:
        self.slurm.ordinary.discard(node)

    # Notes.

    @to_one(
        kind=st.sampled_from(NoteKind),
        node=st.none() | NODE,
        measure=st.floats(allow_nan=True),
        ago_s=st.sampled_from([0.0, 30.0, 7200.0, -7200.0]),
    )
    def somebody_tells_something(
        self, job: Job, kind: NoteKind, node: str | None, measure: float, ago_s: float
    ) -> None:
        """The truth, where it is an element's own node."""
        more = {"samples": measure, "nodes": measure, "generation": 2.0}
        at, at_s = node or job.node or "n1", self.slurm.now_s - ago_s
        text = "no module named toch"
        told = note(kind, at_s, job.id.task, at, array=job.id.array, text=text, **more)
        self.controller.take([told])

    # What must hold.

    @invariant()
    def nobody_is_at_fault(self) -> None:
        if hasattr(self, "controller"):
            assert self.controller.status({})["malformed"] == {}
            assert self.controller.decision.trouble is None

    def teardown(self) -> None:
        """Once all is quiet nothing is left over, holes are used, and ordinary jobs get them."""
        if not hasattr(self, "slurm"):
            return
        self.slurm.away = self.slurm.refuses = self.notes_arrive = False
        self.slurm.waiting.clear()
        for job in self.slurm.elements(SUSPENDED):
            self.slurm.move(job, RUNNING)
        for seconds in [400.0] * 12 + [5.0] * 6:
            self.turn(seconds)
        assert not self.slurm.elements(PENDING, DELAYED, ENDING)
        assert not self.slurm.running().keys() & (self.slurm.ordinary | self.slurm.draining)
        over = self.over()
        assert all(job.state.over for job in self.slurm.elements() if job.id.array in over)
        self.holes_are_used()
        self.an_ordinary_job_finds_idle_nodes()
        self.who_has_finished_leaves_nothing()
        self.who_has_neither_failed_nor_finished_is_brought_back()

    def holes_are_used(self) -> None:
        free, over = set(NODES) - self.slurm.taken(), self.over()
        for array, jobs in self.slurm.jobs.items():
            held = sum(job.state is HELD for job in jobs.values())
            mine = sum(job.state is RUNNING for job in jobs.values())
            record = self.slurm.trainers[array].record
            most = Sizes(record.sizes).up_to(mine + min(held, len(free)))
            fits = most > mine and most >= record.min_nodes
            assert not (free and held and fits) or array in over, (array, free, jobs)
            odd = mine and array not in over and mine != Sizes(record.sizes).up_to(mine)
            assert not odd or mine + held < record.min_nodes, (array, record, jobs)

    def an_ordinary_job_finds_idle_nodes(self) -> None:
        """One that needs all nodes, at the first pass after its submission."""
        slurm = self.slurm
        nodes = len(set(NODES) - slurm.ordinary - slurm.down - slurm.draining)
        slurm.passed = BackfillPass(slurm.now_s // 1, active=False)
        slurm.now_s += 1.0
        slurm.waiting[99] = WaitingJob(99, PARTITION, nodes, submit_s=slurm.now_s)
        pass_s = slurm.passed.began_s + BACKFILL_S
        while (due_s := max(slurm.now_s, self.controller.schedule.due_s())) < pass_s:
            self.turn(due_s - slurm.now_s)
        self.slurm.schedule()
        self.slurm.schedule()
        assert not slurm.running(), f"a job of {nodes} nodes misses a pass"

    def who_has_finished_leaves_nothing(self) -> None:
        """Once it has had time to end by itself."""
        self.slurm.waiting.clear()
        for _ in range(3):
            self.turn(30.0)
        for job in self.slurm.elements(RUNNING)[:1]:
            self.slurm.end(job, ElementState.COMPLETED)
            for seconds in (5.0, 400.0, 5.0, 5.0):
                self.turn(seconds)
            assert all(one.state.over for one in self.slurm.jobs[job.id.array].values())

    def who_has_neither_failed_nor_finished_is_brought_back(self) -> None:
        """One that was preempted for good, and one that has ended and never said it was up."""
        self.notes_arrive = True
        for how in (ElementState.PREEMPTED, ElementState.COMPLETED):
            for job in [job for job in self.slurm.elements(RUNNING) if self.is_mute(job)][:1]:
                self.slurm.end(job, how)
                for seconds in (0.0, 5.0, 5.0):
                    self.turn(seconds)
                assert not job.state.over, f"{job.id} was not brought back"

    def is_mute(self, job: Job) -> bool:
        """Whether the controller has let it go, and not heard that it is up."""
        view = self.controller.registry.view(job.id.array)
        return view is not None and not view.over and view.state.of(job.id.task).mute


def what_is_rare_happens() -> None:
    """Every phase and every kind of action: some random series leave one out."""
    world = Whatever()
    world.begin(operator=True, slurm_works=True, notes_arrive=True)
    world.somebody_submits(10, 1, 3)
    for _ in range(3):
        world.turn(10.0)
    world.an_operator_suspends_an_element(0)
    world.turn(1.0)
    world.an_operator_lets_it_go_on(0)
    world.an_element_fails(0, status=1)
    world.turn(1.0)
    world.an_element_cannot_start_in_the_second_of_its_preemption(0)
    world.turn(1.0)
    world.an_operator_holds_an_element(0)
    world.an_owner_lets_an_element_go(0, node=None)
    world.turn(1.0)
    world.an_ordinary_job_takes_the_node_of_an_element(0)
    world.turn(1.0)
    world.an_owner_lets_an_element_go(0, node="n6")
    world.turn(1.0)
    world.teardown()


@pytest.mark.timeout(1200)  # 20 s of a processor, on machines that are busy
def test_whatever_happens_what_must_hold_does_and_all_that_can_happen_has() -> None:
    Whatever.phases, Whatever.changes = set(), set()
    run_state_machine_as_test(
        Whatever,
        settings=hypothesis_settings(max_examples=50, stateful_step_count=50, deadline=None),
    )
    what_is_rare_happens()
    assert Whatever.phases == set(Phase)
    assert Whatever.changes == CHANGES
