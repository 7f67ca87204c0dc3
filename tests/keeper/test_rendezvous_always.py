"""What holds whatever the order of joins, losses, leaves and words on the way."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from bftrainer_slurm.sizes import ANY, Sizes
from tests.keeper.simulated import Process, World

MOST = 6
numbers = st.integers(0, 1_000)


class AnyOrder(RuleBasedStateMachine):
    """``World.check`` and ``Process`` assert, at each generation, that ranks are a permutation,
    numbers grow, one number is one membership, and no other group trains that Slurm runs.
    """

    @initialize(
        want=st.integers(0, 4),
        elements=st.integers(0, 3),
        rounds=st.integers(0, 20),
        sizes=st.sampled_from([ANY, ANY, Sizes((1, 2, 4)), Sizes((2, 3)), Sizes(step=2)]),
    )
    def begin(self, want: int, elements: int, rounds: int, sizes: Sizes) -> None:
        self.world = World(want, sizes)
        self.tasks = elements
        for task in range(1, elements + 1):
            self.world.start(task)
        self.world.settle(rounds)

    def pick(self, number: int) -> Process | None:
        live = [process for process in self.world.processes if process.alive]
        return live[number % len(live)] if live else None

    @rule()
    def an_element_starts(self) -> None:
        if sum(process.alive for process in self.world.processes) < MOST:
            self.tasks += 1
            self.world.start(self.tasks)

    @rule()
    def somebody_comes_and_waits(self) -> None:
        if sum(process.alive for process in self.world.processes) < MOST:
            self.tasks += 1
            newcomer = self.world.start(self.tasks)
            newcomer.say_ready("new")
            self.world.wait_until(self.world.now_s + 12.0)
            while newcomer.inbox:
                newcomer.take_message()

    @rule(number=numbers)
    def one_becomes_warm(self, number: int) -> None:
        process = self.pick(number)
        if process and process.generation is None and not process.waiting:
            process.say_ready("new")

    @rule(number=numbers)
    def one_is_killed(self, number: int) -> None:
        if process := self.pick(number):
            self.world.kill(process)

    @rule(number=numbers)
    def one_is_cut_off(self, number: int) -> None:
        if process := self.pick(number):
            self.world.cut(process)

    @rule()
    def all_are_cut_off(self) -> None:
        for process in self.world.processes:
            if process.alive:
                self.world.cut(process)

    @rule(number=numbers)
    def one_that_was_cut_off_comes_back(self, number: int) -> None:
        process = self.pick(number)
        if process and not process.connected:
            self.world.come_back(process)

    @rule(number=numbers)
    def slurm_ends_one(self, number: int) -> None:
        if self.world.processes:
            self.world.end(self.world.processes[number % len(self.world.processes)])

    @rule()
    def the_keeper_restarts(self) -> None:
        self.world.restart_keeper()

    @rule(number=numbers)
    def one_is_to_leave(self, number: int) -> None:
        if process := self.pick(number):
            self.world.part({process.identity.task})

    @rule(number=numbers)
    def one_fails(self, number: int) -> None:
        process = self.pick(number)
        if process and process.running:
            process.say_ready("failed")

    @rule(number=numbers, count=st.integers(1, 5))
    def one_hears(self, number: int, count: int) -> None:
        if process := self.pick(number):
            for _ in range(count):
                process.take_message()

    @rule(number=numbers)
    def one_trains(self, number: int) -> None:
        if process := self.pick(number):
            process.train()

    @rule(rounds=st.integers(1, 6))
    def all_train(self, rounds: int) -> None:
        for _ in range(rounds):
            for process in self.world.processes:
                if process.alive:
                    process.take_message()
                    process.train()

    @rule(number=numbers)
    def one_sees_its_peer_gone(self, number: int) -> None:
        if process := self.pick(number):
            process.break_off()

    @rule(seconds=st.sampled_from([0.5, 3.0, 12.0, 301.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.wait_until(self.world.now_s + seconds)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        for process in self.world.processes:
            if not process.alive or process.released:
                self.world.end(process)
            elif not process.connected:
                self.world.come_back(process)
        self.world.settle()
        live = [one for one in self.world.processes if one.alive and not one.released]
        most = self.world.run.sizes.up_to(len(live))
        trains = [one for one in live if not one.waiting]
        assert len(trains) == most, "who can trains, others wait"
        if trains:
            last = max(one.number for one in live)
            assert {one.number for one in trains} == {last}, "they are in one generation"
            assert len(self.world.members[last]) == len(trains)


AnyOrder.TestCase.settings = settings(max_examples=80, stateful_step_count=60, deadline=None)
TestWhateverTheOrder = AnyOrder.TestCase
