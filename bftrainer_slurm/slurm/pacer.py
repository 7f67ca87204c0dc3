"""Limits the rate of requests: a burst, then so many a second, within slurmctld's own limit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from bftrainer_slurm.model import RateLimit

BURST = 30  # RPCs at once if slurmctld sets no limit
# slurmctld counts by its own clock, in whole periods. So we stay a little below its limit.
_SPARE_RPCS, _SHARE = 2.0, 0.95
_FOR_CHANGES = 4.0  # RPCs of the burst that looks never take, so that changes are always possible


@dataclass(slots=True)
class Pacer:
    """Allows a burst of requests, then ``most_per_s`` RPCs a second.

    Looks never wait. They use the same credit, but always leave some for changes.

    ``limit`` is slurmctld's own limit on our account (``rl_enable``). It also counts looks, as all
    requests of a user.
    """

    most_per_s: float
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    limit: RateLimit | None = None
    # RPCs spent of our burst, and counted by slurmctld; both decrease with time.
    _spent: float = field(default=0.0, init=False)
    _counted: float = field(default=0.0, init=False)
    _last_s: float = field(default=math.inf, init=False)

    @property
    def _effective_limit(self) -> RateLimit:
        if self.limit is None:
            return RateLimit(BURST, self.most_per_s)  # never waited for
        burst = max(1.0, self.limit.burst - _SPARE_RPCS)
        return RateLimit(min(BURST, burst), _SHARE * self.limit.per_s)

    def due_in_s(self, rpcs: int, look_rpcs: int = 0) -> float:
        """Return in how many seconds a command of ``rpcs`` may be sent, after a look before it."""
        self._recover()
        due_s = (self._spent + rpcs - BURST) / self.most_per_s
        if self.limit is not None:
            limit, spent = self._effective_limit, self._counted + rpcs + look_rpcs
            due_s = max(due_s, (spent - limit.burst) / limit.per_s)
        return max(0.0, due_s)

    def wait(self, rpcs: int, at_most_s: float) -> bool:
        """Wait until a command of ``rpcs`` may be sent; return False if that takes too long."""
        wait_s = self.due_in_s(rpcs)
        if wait_s > at_most_s:
            return False
        if wait_s > 0:
            self.sleep(wait_s)
        self._spent += rpcs
        self._counted += rpcs
        return True

    def draw(self, rpcs: int) -> None:
        """Count the RPCs of a look."""
        self._recover()
        self._spent += max(0.0, min(rpcs, BURST - _FOR_CHANGES - self._spent))
        most = self._effective_limit.burst + _SPARE_RPCS  # refused requests cost nothing
        self._counted = min(most, self._counted + rpcs)

    def _recover(self) -> None:
        now_s = self.clock()
        passed_s = max(0.0, now_s - self._last_s)
        self._spent = max(0.0, self._spent - passed_s * self.most_per_s)
        self._counted = max(0.0, self._counted - passed_s * self._effective_limit.per_s)
        self._last_s = now_s
