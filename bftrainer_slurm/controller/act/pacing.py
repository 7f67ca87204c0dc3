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
_FOR_CHANGES = 4.0  # RPCs that looks leave, so that each change can be made, however many they are


@dataclass(slots=True)
class _Account:
    """The RPCs of a burst that are ``spent``; they come back with time."""

    spent: float = 0.0

    def recover(self, limit: RateLimit, passed_s: float) -> None:
        """Let time pass."""
        self.spent = max(0.0, self.spent - passed_s * limit.per_s)

    def due_in_s(self, limit: RateLimit, rpcs: float) -> float:
        """Return in how many seconds there is credit for so many RPCs."""
        return max(0.0, (self.spent + rpcs - limit.burst) / limit.per_s)


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
    _ours: _Account = field(default_factory=_Account, init=False)
    _slurmctlds: _Account = field(default_factory=_Account, init=False)
    _last_s: float | None = field(default=None, init=False)

    @property
    def _our_limit(self) -> RateLimit:
        return RateLimit(BURST, self.most_per_s)

    @property
    def _slurmctlds_limit(self) -> RateLimit:
        if self.limit is None:
            return self._our_limit  # nobody waits for it
        burst = max(1.0, self.limit.burst - _SPARE_RPCS)
        return RateLimit(min(BURST, burst), _SHARE * self.limit.per_s)

    def due_in_s(self, rpcs: int, look_rpcs: int = 0) -> float:
        """Return in how many seconds a command of so many RPCs may be sent, after such a look."""
        self._recover()
        due_s = self._ours.due_in_s(self._our_limit, rpcs)
        if self.limit is None:
            return due_s
        return max(due_s, self._slurmctlds.due_in_s(self._slurmctlds_limit, rpcs + look_rpcs))

    def wait(self, rpcs: int, at_most_s: float) -> bool:
        """Wait until a command of so many RPCs may be sent; False where that takes too long."""
        wait_s = self.due_in_s(rpcs)
        if wait_s > at_most_s:
            return False
        if wait_s > 0:
            self.sleep(wait_s)
        self._ours.spent += rpcs
        self._slurmctlds.spent += rpcs
        return True

    def draw(self, rpcs: int) -> None:
        """Count requests of a look."""
        self._recover()
        self._ours.spent += max(0.0, min(rpcs, BURST - _FOR_CHANGES - self._ours.spent))
        most = self._slurmctlds_limit.burst + _SPARE_RPCS  # what it refuses costs nothing
        self._slurmctlds.spent = min(most, self._slurmctlds.spent + rpcs)

    def _recover(self) -> None:
        now_s = self.clock()
        if self._last_s is not None:
            passed_s = max(0.0, now_s - self._last_s)
            self._ours.recover(self._our_limit, passed_s)
            self._slurmctlds.recover(self._slurmctlds_limit, passed_s)
        self._last_s = now_s
