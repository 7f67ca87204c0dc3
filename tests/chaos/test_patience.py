import pytest

from tests.chaos.patience import Patience


class Machine:
    """A clock, and a processor that gives us a share of each second."""

    def __init__(self, share: float) -> None:
        self.now_s = 100.0
        self._share = share

    def clock(self) -> float:
        return self.now_s

    def used(self) -> float:
        self.now_s += 0.001
        return self.now_s * self._share


@pytest.mark.parametrize(("share", "seconds"), [(1.0, 60), (0.5, 120), (0.01, 360)])
def test_waits_longer_where_the_processors_are_others(share: float, seconds: float) -> None:
    machine = Machine(share)
    waiting = Patience(60, machine.clock, machine.used)
    while not waiting.over:
        machine.now_s += 5
    assert machine.now_s - 100 == pytest.approx(seconds, rel=0.2)
