"""Whether a script failed or lost a peer, and how long to wait before the next try.

Pure: the time is passed in, and nothing is sent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from bftrainer_slurm.keeper.protocol import Note

AROUND_S = 2.0  # a loss within this time explains a failure
MAX_DELAY_S = 30.0


@dataclass(frozen=True, slots=True)
class _Suspected:
    """A failure of a member's workers. The script itself may be the reason."""

    failure: Note
    time_s: float
    barren: bool  # its generation had made no step


class Failures:
    """The failures of one group: which are real, and the pause after those without progress."""

    def __init__(self) -> None:
        self._suspected: list[_Suspected] = []
        self._disturbed_s = -math.inf
        self._barren = 0  # failed generations in a row that made no step
        self._failed = False  # this generation has failed already
        self._steps: float | None = None
        self._stepped = False
        self.not_before_s = -math.inf  # when the next generation may be formed

    def began(self) -> None:
        """A new generation has begun."""
        self._failed = self._stepped = False

    def stepped(self, steps: float) -> None:
        """Progress was reported: so many steps are trained so far."""
        if steps > 0 and steps != self._steps:
            self._stepped = True
            self._barren = 0
        self._steps = steps

    def disturbed(self, now_s: float) -> None:
        """A planned change was announced: it explains failures just after it."""
        self._disturbed_s = now_s

    def lost(self, now_s: float) -> None:
        """A member was lost: that explains failures just before and after it."""
        self._disturbed_s = now_s
        if self._suspected:
            self._barren = max(0, self._barren - sum(one.barren for one in self._suspected))
            self._suspected.clear()
            self.not_before_s = -math.inf

    def failed(self, failure: Note, now_s: float, explained: bool = False) -> None:
        """A member's workers have failed; only the first failure of a generation counts.

        It names another member that fails with the same words: then no single node is the cause.
        One that is ``explained`` is not the script's own.
        """
        if self._failed or now_s - self._disturbed_s <= AROUND_S:
            if self._failed and self._suspected:
                self._suspected[-1] = _with_another(self._suspected[-1], failure)
            return
        self._failed = True
        if not explained:
            self._suspected.append(_Suspected(failure, now_s, not self._stepped))
        if not self._stepped:
            self._barren = min(self._barren + 1, 10)
            self.not_before_s = now_s + min(MAX_DELAY_S, 2.0 ** (self._barren - 1))

    @property
    def in_vain(self) -> bool:
        """Whether the script has failed again, without any step in between."""
        return self._barren > 1

    def due_s(self) -> float:
        """Return when the next failure will be certain."""
        return self._suspected[0].time_s + AROUND_S if self._suspected else math.inf

    def certain(self, now_s: float) -> Note | None:
        """Return the next failure that nothing has explained in time, each once, or None."""
        return self._suspected.pop(0).failure if now_s >= self.due_s() else None


def _with_another(one: _Suspected, other: Note) -> _Suspected:
    """Return a failure that names the other's task if their last lines are the same."""
    if _last_line(one.failure.text) != _last_line(other.text):
        return one
    measures = {**dict(one.failure.measures), "also": float(other.task)}
    return replace(one, failure=replace(one.failure, measures=tuple(measures.items())))


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]
