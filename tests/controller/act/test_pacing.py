"""Requests are paced: by the controller's own setting, and by what slurmctld allows."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from bftrainer_slurm.model import RateLimit
from bftrainer_slurm.slurm.pacer import BURST, Pacer
from tests.controller.worlds import Clock

RL_ENABLE = RateLimit(30, 2)


@dataclass
class Limit:
    """slurmctld's rl_enable: 30 RPCs, and two more at each tick of its clock."""

    tokens: int = 30
    ticked_s: int = 0

    def tokens_at(self, now_s: float) -> int:
        return min(30, self.tokens + 2 * (int(now_s) - self.ticked_s))

    def take(self, rpcs: int, now_s: float) -> None:
        self.tokens, self.ticked_s = self.tokens_at(now_s) - rpcs, int(now_s)


def test_a_clock_that_is_set_back_makes_nobody_wait() -> None:
    clock = Clock()
    clock.now_s = 1000.0
    pacer = Pacer(1.0, clock, clock.sleep)
    assert pacer.wait(1, at_most_s=0.0)
    clock.now_s = 0.0
    assert pacer.wait(1, at_most_s=0.0)
    assert clock.slept_s == []


def test_after_a_burst_commands_are_paced() -> None:
    clock = Clock()
    pacer = Pacer(2.0, clock, clock.sleep)
    for _ in range(BURST + 4):
        assert pacer.wait(1, at_most_s=1.0)
    assert clock.slept_s == [0.5] * 4


def test_changes_wait_for_what_looks_have_drawn() -> None:
    clock = Clock()
    pacer = Pacer(2.0, clock, clock.sleep)
    pacer.draw(BURST - 6)
    assert pacer.wait(7, at_most_s=2.0)
    assert clock.slept_s == [0.5]


def test_however_many_looks_there_are_they_leave_room_for_changes() -> None:
    clock = Clock()
    pacer = Pacer(0.01, clock, clock.sleep)
    pacer.draw(1000)
    assert pacer.wait(4, at_most_s=0.0)
    assert not pacer.wait(1, at_most_s=2.0)
    for _ in range(100):
        clock.now_s += 1.0
        pacer.draw(10)
    assert pacer.wait(1, at_most_s=0.0)


def test_nobody_waits_longer_than_there_is_time() -> None:
    clock = Clock()
    pacer = Pacer(1.0, clock, clock.sleep)
    pacer.wait(BURST, at_most_s=0.0)
    assert not pacer.wait(3, at_most_s=2.0)
    assert clock.slept_s == []


def test_slurmctlds_own_limit_slows_the_controller_down() -> None:
    clock = Clock()
    pacer = Pacer(1000.0, clock, clock.sleep, RL_ENABLE)
    for _ in range(60):
        assert pacer.wait(1, at_most_s=1.0)
    assert clock.now_s >= (60 - RL_ENABLE.burst) / RL_ENABLE.per_s


def test_a_limit_that_is_higher_than_the_setting_changes_nothing() -> None:
    clock = Clock()
    pacer = Pacer(1.0, clock, clock.sleep, RateLimit(1000, 1000))
    assert pacer.wait(BURST, at_most_s=0.0)
    assert pacer.due_in_s(1) == 1.0


def test_under_the_lowest_limit_there_is_a_request_at_a_time_still_goes() -> None:
    clock = Clock()
    pacer = Pacer(1000.0, clock, clock.sleep, RateLimit(1, 1))
    assert pacer.wait(1, at_most_s=0.0)
    assert pacer.wait(1, at_most_s=2.0)


@given(st.lists(st.tuples(st.floats(0, 20), st.integers(1, 8), st.booleans()), max_size=200))
def test_looks_and_changes_together_stay_within_slurmctlds_own_limit(
    asked: list[tuple[float, int, bool]],
) -> None:
    clock = Clock()
    limit, pacer = Limit(), Pacer(1000.0, clock, clock.sleep, RL_ENABLE)
    for after_s, rpcs, look in asked:
        clock.now_s += after_s
        if look and limit.tokens_at(clock.now_s) < rpcs + 2:
            continue  # nobody looks so often
        if look:
            pacer.draw(rpcs)
        elif not pacer.wait(rpcs, at_most_s=2.0):
            continue
        limit.take(rpcs, clock.now_s)
        assert limit.tokens >= 0
