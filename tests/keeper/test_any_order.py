"""What holds whatever is cut, dies, ends, restarts or is said, in whatever order.

``World.check`` and ``Process`` assert, at each generation, that ranks are a permutation, numbers
grow, one number is one membership, all have its store, and no other group trains that Slurm runs.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bftrainer_slurm.keeper.messages import Batch
from bftrainer_slurm.sizes import ANY, Sizes
from tests.keeper.simulated import Process, World

numbers = st.integers(0, 1_000)


class AnyOrder(RuleBasedStateMachine):
    """What happens to nodes, networks, the keeper and Slurm's elements, whatever they run."""

    most = 6  # elements at the same time

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    def begin(self, task: int) -> None:
        """An element begins on a node."""
        raise NotImplementedError

    @property
    def live(self) -> list[Process]:
        return [one for one in self.world.processes if one.alive]

    def pick(self, number: int, **states: object) -> Process | None:
        found = [
            one
            for one in self.live
            if all(getattr(one, name) == value for name, value in states.items())
        ]
        return found[number % len(found)] if found else None

    def may_begin(self) -> int | None:
        """The lowest task that Slurm may start now, again or for the first time."""
        there = {one.identity.task for one in self.world.processes if not one.ended}
        return next((task for task in range(self.most) if task not in there), None)

    @rule()
    def an_element_starts(self) -> None:
        if (task := self.may_begin()) is not None:
            self.begin(task)

    @rule(number=numbers)
    def a_node_dies(self, number: int) -> None:
        if process := self.pick(number):
            self.world.kill(process)

    @rule(number=numbers)
    def slurm_ends_one(self, number: int) -> None:
        there = [one for one in self.world.processes if not one.ended]
        if there:
            self.world.end(there[number % len(there)])

    @rule(number=numbers)
    def one_is_cut_off(self, number: int) -> None:
        if process := self.pick(number, connected=True):
            self.world.cut(process)

    @rule()
    def all_are_cut_off(self) -> None:
        self.world.cut(*(one for one in self.live if one.connected))

    @rule(number=numbers)
    def one_comes_back(self, number: int) -> None:
        if process := self.pick(number, connected=False):
            self.world.come_back(process)

    @rule()
    def the_keeper_restarts(self) -> None:
        self.world.restart_keeper()

    @rule(number=numbers, count=st.integers(1, 5))
    def one_hears(self, number: int, count: int) -> None:
        if process := self.pick(number):
            for _ in range(count):
                process.take_message()

    @rule(seconds=st.sampled_from([0.5, 3.0, 12.0, 301.0]), late=st.booleans())
    def time_passes(self, seconds: float, late: bool) -> None:
        (self.world.late if late else self.world.wait)(seconds)

    def all_come_back(self) -> None:
        """The network heals, Slurm tells of all that have ended, and all do what they are told."""
        for process in [*self.world.processes]:
            if not process.alive or process.released:
                if not process.ended:
                    self.world.end(process)
            elif not process.connected:
                self.world.come_back(process)
        self.world.settle()


class Groups(AnyOrder):
    """Agents, which train in one group."""

    @initialize(
        want=st.integers(0, 4),
        elements=st.integers(0, 3),
        rounds=st.integers(0, 20),
        sizes=st.sampled_from([ANY, ANY, Sizes((1, 2, 4)), Sizes((2, 3)), Sizes(step=2)]),
    )
    def first(self, want: int, elements: int, rounds: int, sizes: Sizes) -> None:
        self.world = World(want, sizes)
        self.world.start(*range(elements), ready=False).settle(rounds)

    def begin(self, task: int) -> None:
        self.world.start(task, ready=False)

    @rule()
    def somebody_comes_and_waits(self) -> None:
        if (task := self.may_begin()) is not None:
            self.world.start(task).late(12.0)[task].take_all()

    @rule(number=numbers)
    def one_becomes_warm(self, number: int) -> None:
        process = self.pick(number, waiting=False)
        if process and process.generation is None:
            process.say_ready("new")

    @rule(number=numbers)
    def one_is_to_leave(self, number: int) -> None:
        if process := self.pick(number):
            self.world.part(process.identity.task)

    @rule(number=numbers)
    def one_fails(self, number: int) -> None:
        if process := self.pick(number, running=True):
            process.say_ready("failed")

    @rule(number=numbers)
    def one_trains(self, number: int) -> None:
        if process := self.pick(number):
            process.train()

    @rule(rounds=st.integers(1, 6))
    def all_train(self, rounds: int) -> None:
        for _ in range(rounds):
            for process in self.live:
                process.take_message()
                process.train()

    @rule(number=numbers)
    def one_sees_its_peer_gone(self, number: int) -> None:
        if process := self.pick(number):
            process.break_off()

    def teardown(self) -> None:
        self.all_come_back()
        live = [one for one in self.live if not one.released]
        trains = [one for one in live if not one.waiting]
        assert len(trains) == self.world.run.sizes.up_to(len(live)), "who can trains, others wait"
        if trains:
            last = max(one.number for one in live)
            assert {one.number for one in trains} == {last}, "they are in one generation"
            assert len(self.world.members[last]) == len(trains)


class Scripts(AnyOrder):
    """Batch tasks, of which one runs the script."""

    most = 4

    def begin(self, task: int) -> None:
        self.world.batch(task)

    @rule(number=numbers, code=st.integers(0, 1))
    def its_script_ends(self, number: int, code: int) -> None:
        if process := self.pick(number, connected=True, doing="leads"):
            self.world.say(process, Batch("over", code=code)).kill(process)

    @invariant()
    def one_runs_the_script(self) -> None:
        assert sum(one.doing == "leads" for one in self.live) <= 1

    def teardown(self) -> None:
        self.all_come_back()
        assert not self.live or any(one.doing == "leads" for one in self.live), "somebody runs it"
        self.one_runs_the_script()


for machine in (Groups, Scripts):
    machine.TestCase.settings = settings(max_examples=80, stateful_step_count=60, deadline=None)
TestGroups, TestScripts = Groups.TestCase, Scripts.TestCase
