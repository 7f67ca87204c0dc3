"""The loop, whatever users, admins, Slurm and clocks do, in any order; hypothesis draws it."""

from __future__ import annotations

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bftrainer_slurm.controller.loop import Controller
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.keeper.protocol import Note, NoteKind, NumberedNote
from bftrainer_slurm.model import BackfillPass, ElementState, WaitingJob
from bftrainer_slurm.planner.greedy import greedy_shares
from bftrainer_slurm.planner.placement import place
from bftrainer_slurm.planner.problem import Plan, Problem, value
from bftrainer_slurm.slurm.gateway import GatewayError
from tests.controller.made_up_slurm import PARTITION, RUNNING, MadeUpSlurm, renamed
from tests.controller.worlds import NOW_S, started

NODES = tuple(f"n{number}" for number in range(1, 7))
ARRAYS = st.integers(11, 13)
TASKS = st.integers(0, 3)
NODE = st.sampled_from(NODES)
ENDS = st.sampled_from([ElementState.COMPLETED, ElementState.FAILED, ElementState.CANCELLED])


class Greedy:
    """The product's own plan without CBC: quick, and it knows classes of nodes."""

    def plan(self, problem: Problem) -> Plan:
        shares = greedy_shares(problem)
        return Plan(place(problem, shares), value(problem, shares), 0.0, "optimal")


class Whatever(RuleBasedStateMachine):
    """Everything that can happen, one thing after the other, and what must hold all the time."""

    @initialize()
    def begin(self) -> None:
        self.slurm = MadeUpSlurm(NOW_S, NODES)
        self.history = History(":memory:")
        self.submitted = 0
        self.controller = self.started()

    def started(self) -> Controller:
        settings = Settings(nodes_interval_s=1, reservations_interval_s=1)
        return started(self.slurm, Greedy(), self.history, lambda: self.slurm.now_s, settings)

    @rule(seconds=st.sampled_from([1.0, 3.0, 10.0, 70.0]))
    def turn(self, seconds: float) -> None:
        self.slurm.now_s += seconds
        self.slurm.schedule_()
        try:
            self.controller.turn()
        except GatewayError:
            assert self.slurm.away
        self.controller.status({})

    @rule(seconds=st.sampled_from([-7200.0, -4.0, 4.0, 7200.0]))
    def the_clock_is_set(self, seconds: float) -> None:
        self.slurm.now_s += seconds
        if abs(seconds) > 5:  # the daemon makes a new one
            self.controller = self.started()

    @rule()
    def the_controller_restarts(self) -> None:
        self.controller = self.started()

    @rule(away=st.booleans())
    def slurmctld_comes_and_goes(self, away: bool) -> None:
        self.slurm.away = away

    @rule()
    def slurm_refuses_something(self) -> None:
        self.slurm.refuses = True

    @rule(array=ARRAYS, least=st.integers(1, 3), most=st.integers(3, 4))
    def somebody_submits(self, array: int, least: int, most: int) -> None:
        if array not in self.slurm.jobs:
            self.submitted += 1
            self.slurm.submit_(array, least, most, f"{self.submitted:08x}")

    @rule(array=ARRAYS)
    def somebody_cancels(self, array: int) -> None:
        self.slurm.cancel_(array)

    @rule(array=ARRAYS, task=TASKS, how=ENDS)
    def an_element_ends(self, array: int, task: int, how: ElementState) -> None:
        self.slurm.end_(array, task, how)

    @rule(array=ARRAYS, task=TASKS, node=st.none() | NODE)
    def an_owner_lets_an_element_go(self, array: int, task: int, node: str | None) -> None:
        self.slurm.release_(array, task, node)

    @rule(array=ARRAYS, task=TASKS)
    def an_operator_holds_an_element(self, array: int, task: int) -> None:
        job = self.slurm.jobs.get(array, {}).get(task)
        if job is not None and job.state is ElementState.HELD:
            job.state = ElementState.WITHHELD

    @rule(array=ARRAYS, least=st.integers(1, 4))
    def an_owner_writes_another_comment(self, array: int, least: int) -> None:
        if array in self.slurm.records:
            self.slurm.records[array] = renamed(self.slurm.records[array], least)

    @rule(array=ARRAYS, task=TASKS, node=NODE)
    def two_elements_share_a_node(self, array: int, task: int, node: str) -> None:
        job = self.slurm.jobs.get(array, {}).get(task)
        if job is not None and job.state is RUNNING:  # its owner may ask for that in an update
            job.node = node

    @rule()
    def slurmctld_forgets_what_has_ended(self) -> None:
        self.slurm.purge_()

    @rule(node=NODE)
    def an_ordinary_job_takes_a_node(self, node: str) -> None:
        self.slurm.start_ordinary_(node)

    @rule(
        job=st.integers(90, 92),
        nodes=st.integers(1, 5),
        count=st.integers(1, 3),
        minutes=st.none() | st.integers(1, 100),
        planned_s=st.none() | st.sampled_from([-100.0, 2.0, 500.0]),
        planned=st.sets(NODE),
    )
    def an_ordinary_job_waits(
        self,
        job: int,
        nodes: int,
        count: int,
        minutes: int | None,
        planned_s: float | None,
        planned: set[str],
    ) -> None:
        start_s = None if planned_s is None else self.slurm.now_s + planned_s
        self.slurm.waiting[job] = WaitingJob(
            job, PARTITION, nodes, start_s, tuple(planned), minutes=minutes, count=count
        )

    @rule(job=st.integers(90, 92))
    def an_ordinary_job_waits_no_more(self, job: int) -> None:
        self.slurm.waiting.pop(job, None)

    @rule(active=st.booleans())
    def backfill_makes_a_pass(self, active: bool) -> None:
        self.slurm.passed = BackfillPass(self.slurm.now_s // 1, active)

    @rule(node=NODE)
    def an_ordinary_job_ends(self, node: str) -> None:
        self.slurm.ordinary.discard(node)

    @rule()
    def begin_times_are_over(self) -> None:
        self.slurm.begin_()

    @rule(node=NODE, state=st.sampled_from(["down", "draining", "up"]))
    def a_node_goes_or_comes(self, node: str, state: str) -> None:
        self.slurm.down.discard(node)
        self.slurm.draining.discard(node)
        if state != "up":
            getattr(self.slurm, state).add(node)

    @rule(
        kind=st.sampled_from(NoteKind),
        array=ARRAYS,
        task=TASKS,
        node=NODE,
        number=st.floats(allow_nan=True),
        ago_s=st.sampled_from([0.0, 30.0, 7200.0, -7200.0]),
    )
    def somebody_tells_something(
        self, kind: NoteKind, array: int, task: int, node: str, number: float, ago_s: float
    ) -> None:
        measures = (("samples", number), ("nodes", number), ("generation", 2.0), ("mode", 1.0))
        note = Note(kind, array, task, node, measures, "no module named toch")
        self.controller.take([NumberedNote(1, self.slurm.now_s - ago_s, note)])

    @invariant()
    def nobody_is_at_fault(self) -> None:
        if hasattr(self, "controller"):
            assert self.controller.status({})["malformed"] == {}
            assert self.controller.trouble is None

    def teardown(self) -> None:
        """Once all is quiet: no node is shared, nothing waits by itself, and holes are used."""
        if not hasattr(self, "slurm"):
            return
        self.slurm.away = False
        self.slurm.refuses = False
        self.slurm.waiting.clear()
        for _ in range(12):
            self.turn(400.0)
        running = self.slurm.running()
        assert all(len(elements) == 1 for elements in running.values()), running
        assert not any(
            job.state in (ElementState.PENDING, ElementState.DELAYED)
            for jobs in self.slurm.jobs.values()
            for job in jobs.values()
        )
        assert not running.keys() & self.slurm.ordinary
        self._holes_are_used(running)

    def _holes_are_used(self, running: dict[str, object]) -> None:
        free = set(NODES) - self.slurm.taken()
        over = {one["array"] for one in self.controller.status({})["trainers"]
                if one["state"] in ("given up", "finished", "finishing", "cancelled")}  # fmt: skip
        for array, jobs in self.slurm.jobs.items():
            held = sum(job.state is ElementState.HELD for job in jobs.values())
            mine = sum(job.state is RUNNING for job in jobs.values())
            least = self.slurm.records[array].min_nodes
            fits = mine + min(held, len(free)) >= least
            assert not (free and held and fits) or array in over, (array, free, jobs)


TestWhateverHappens = Whatever.TestCase
TestWhateverHappens.settings = hypothesis_settings(
    max_examples=200, stateful_step_count=40, deadline=None
)
