"""How fast requests are sent: some at once, then so many a second, within Slurm's own limit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from bftrainer_slurm.model import RateLimit

BURST = 30  # RPCs at once where slurmctld sets no limit
# slurmctld counts by its own clock, in whole periods. So we stay a little inside its limit.
_SPARE_RPCS, _SHARE = 2.0, 0.95
_FOR_CHANGES = 4.0  # RPCs that looks leave, so that each change can be made, however many they are


@dataclass(slots=True)
class Pacer:
    """Lets some requests go at once, and then ``most_per_s`` RPCs a second.

    Looks never wait. They use up the same credit, but always leave some for changes.

    ``limit`` is slurmctld's own limit on our account (``rl_enable``), which holds as well, and for
    looks too: it counts all requests of a user.
    """

    most_per_s: float
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    limit: RateLimit | None = None
    # What is spent of our burst and of slurmctld's, in RPCs; it comes back with time.
    _ours: float = field(default=0.0, init=False)
    _slurmctlds: float = field(default=0.0, init=False)
    _last_s: float = field(default=math.inf, init=False)

    @property
    def _slurmctlds_limit(self) -> RateLimit:
        if self.limit is None:
            return RateLimit(BURST, self.most_per_s)  # nobody waits for it
        burst = max(1.0, self.limit.burst - _SPARE_RPCS)
        return RateLimit(min(BURST, burst), _SHARE * self.limit.per_s)

    def due_in_s(self, rpcs: int, look_rpcs: int = 0) -> float:
        """Return in how many seconds a command of so many RPCs may be sent, after such a look."""
        self._recover()
        due_s = (self._ours + rpcs - BURST) / self.most_per_s
        if self.limit is not None:
            limit, spent = self._slurmctlds_limit, self._slurmctlds + rpcs + look_rpcs
            due_s = max(due_s, (spent - limit.burst) / limit.per_s)
        return max(0.0, due_s)

    def wait(self, rpcs: int, at_most_s: float) -> bool:
        """Wait until a command of so many RPCs may be sent; False where that takes too long."""
        wait_s = self.due_in_s(rpcs)
        if wait_s > at_most_s:
            return False
        if wait_s > 0:
            self.sleep(wait_s)
        self._ours += rpcs
        self._slurmctlds += rpcs
        return True

    def draw(self, rpcs: int) -> None:
        """Count requests of a look."""
        self._recover()
        self._ours += max(0.0, min(rpcs, BURST - _FOR_CHANGES - self._ours))
        most = self._slurmctlds_limit.burst + _SPARE_RPCS  # what it refuses costs nothing
        self._slurmctlds = min(most, self._slurmctlds + rpcs)

    def _recover(self) -> None:
        now_s = self.clock()
        passed_s = max(0.0, now_s - self._last_s)
        self._ours = max(0.0, self._ours - passed_s * self.most_per_s)
        self._slurmctlds = max(0.0, self._slurmctlds - passed_s * self._slurmctlds_limit.per_s)
        self._last_s = now_s
