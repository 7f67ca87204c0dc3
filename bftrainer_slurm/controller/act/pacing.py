"""How fast the controller may send requests to slurmctld.

What is sent is in ``execute``; what slurmctld allows is read with its configuration.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from bftrainer_slurm.model import RateLimit

BURST = 30  # RPCs at once where slurmctld sets no limit
# slurmctld counts by its own clock, in whole periods. So we stay a little inside its limit.
_SPARE_RPCS, _SHARE = 2.0, 0.95


@dataclass(slots=True)
class Pacer:
    """Lets some requests go at once, and then ``most_per_s`` RPCs a second.

    ``limit`` is slurmctld's own limit on our account (``rl_enable``), which holds as well. It
    counts all requests of a user. So looks, which never wait, use up the same credit.
    """

    most_per_s: float
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    limit: RateLimit | None = None
    _spent: float = field(default=0.0, init=False)  # of the burst
    _last_s: float | None = field(default=None, init=False)

    @property
    def pace(self) -> RateLimit:
        """What is sent at most."""
        if self.limit is None:
            return RateLimit(BURST, self.most_per_s)
        burst = max(1.0, self.limit.burst - _SPARE_RPCS)
        return RateLimit(min(BURST, burst), min(self.most_per_s, _SHARE * self.limit.per_s))

    def due_in_s(self, rpcs: int) -> float:
        """Return in how many seconds a command of so many RPCs may be sent."""
        self._recover()
        pace = self.pace
        return max(0.0, (self._spent + rpcs - pace.burst) / pace.per_s)

    def wait(self, rpcs: int, at_most_s: float) -> bool:
        """Wait until a command of so many RPCs may be sent; False where that takes too long."""
        wait_s = self.due_in_s(rpcs)
        if wait_s > at_most_s:
            return False
        if wait_s > 0:
            self.sleep(wait_s)
        self._spent += rpcs
        return True

    def draw(self, rpcs: int) -> None:
        """Count requests that do not wait."""
        self._recover()
        self._spent += rpcs

    def _recover(self) -> None:
        now_s = self.clock()
        if self._last_s is not None:
            passed_s = max(0.0, now_s - self._last_s)
            self._spent = max(0.0, self._spent - passed_s * self.pace.per_s)
        self._last_s = now_s
