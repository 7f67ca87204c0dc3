"""A simulated trainer's progress: its samples, and the pauses at each change of its size."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from bftrainer_slurm.planner.objectives.goodput import batch_efficiency
from bftrainer_slurm.replay.trainers import TrainerSpec

_DONE_WITHIN_S = 1e-6  # less remaining time is a rounding error


@dataclass(slots=True)
class SimulatedTrainer:
    """One trainer at work. Times in seconds of the simulation, samples in samples.

    A node trains from ``start_s`` after it has joined. A change of size stops the whole trainer for
    its rescale cost, counted from the change. A trainer without nodes starts without that cost, as
    in the paper, where the cost is in units of its earlier speed; but this does not end a pause.
    When nodes are reclaimed, the work since the last step is lost; when the last nodes are, the
    work since the last checkpoint: on average half of the time between two.
    """

    array: int
    spec: TrainerSpec
    scale: float  # what to multiply the rescale costs by
    nodes: dict[int, str] = field(default_factory=dict)  # by the element's task
    measured: dict[int, tuple[float, float]] = field(default_factory=dict)
    samples: float = 0.0
    progress: float = 0.0  # its samples, each by what it counted, see ``batch_efficiency``
    lost_to_rescaling: float = 0.0
    lost_to_reclaims: float = 0.0
    started_s: float = -math.inf  # since when it has had nodes
    _starting_s: dict[int, float] = field(default_factory=dict)  # by task: when its node is ready
    _rescaled_until_s: float = -math.inf
    _reclaimed_until_s: float = -math.inf

    @property
    def done(self) -> bool:
        """Whether it has all its samples, apart from rounding."""
        left = self.spec.total_samples - self.samples
        return left <= _DONE_WITHIN_S * max(self.spec.curve.values)

    @property
    def rate(self) -> float:
        """Samples/s on its nodes, without pauses; 0 below its least number of nodes."""
        count = len(self.nodes) - len(self._starting_s)
        return self.spec.curve.at(count) if count >= self.spec.min_nodes else 0.0

    @property
    def _counts(self) -> float:
        """What a sample counts on its nodes."""
        return batch_efficiency(self.spec.noise, len(self.nodes) - len(self._starting_s))

    def finish_s(self, now_s: float) -> float:
        """Return when it will have all its samples if nothing changes."""
        rate = self.rate
        if rate == 0:
            return math.inf
        left = max(0.0, self.spec.total_samples - self.samples)
        return max(now_s, self._paused_until_s) + left / rate

    def ready_s(self) -> float:
        """Return when the next of its nodes begins to train."""
        return min(self._starting_s.values(), default=math.inf)

    def advance(self, now_s: float, to_s: float) -> None:
        """Train, or stand still, until ``to_s``, which is no later than ``ready_s``."""
        rate = self.rate
        reclaimed_s = _overlap(now_s, to_s, self._reclaimed_until_s)
        paused_s = _overlap(now_s, to_s, self._paused_until_s)
        trained_s = to_s - now_s - paused_s
        self.samples += rate * trained_s
        self.progress += rate * trained_s * self._counts
        if rate and trained_s:
            count = len(self.nodes) - len(self._starting_s)
            samples, seconds = self.measured.get(count, (0.0, 0.0))
            self.measured[count] = samples + rate * trained_s, seconds + trained_s
        self.lost_to_reclaims += rate * reclaimed_s
        self.lost_to_rescaling += rate * (paused_s - reclaimed_s)
        self._begin([task for task, ready_s in self._starting_s.items() if ready_s <= to_s], to_s)

    def join(self, task: int, node: str, now_s: float) -> None:
        """Get a node."""
        self.nodes[task] = node
        self._starting_s[task] = now_s + self.scale * self.spec.start_s
        if self._starting_s[task] <= now_s:
            self._begin([task], now_s)

    def _begin(self, tasks: list[int], now_s: float) -> None:
        """Begin to train with these nodes too."""
        if not tasks:
            return
        if len(self.nodes) == len(self._starting_s):
            self.started_s = now_s
        elif self.started_s < now_s:
            cost_s = self.scale * self.spec.rescale_up_s
            self._rescaled_until_s = max(self._rescaled_until_s, now_s + cost_s)
        for task in tasks:
            del self._starting_s[task]

    def leave(self, tasks: set[int], now_s: float) -> None:
        """Give up nodes by the plan."""
        self._lose(tasks)
        if not self.nodes:
            return
        cost_s = self.scale * self.spec.rescale_down_s
        self._rescaled_until_s = max(self._rescaled_until_s, now_s + cost_s)

    def reclaim(self, tasks: set[int], now_s: float) -> None:
        """Lose nodes to an ordinary job."""
        since_s = self.spec.step_s if tasks < self.nodes.keys() else self.spec.checkpoint_s
        undone = min(self.samples, self.rate * self.scale * since_s / 2)
        self.samples -= undone
        self.progress -= undone * self._counts
        self.lost_to_reclaims += undone
        self._lose(tasks)
        if not self.nodes:
            return
        cost_s = self.scale * self.spec.rescale_down_s
        self._reclaimed_until_s = max(self._reclaimed_until_s, now_s + cost_s)

    def _lose(self, tasks: set[int]) -> None:
        for task in tasks:
            del self.nodes[task]
            self._starting_s.pop(task, None)

    @property
    def _paused_until_s(self) -> float:
        return max(self._rescaled_until_s, self._reclaimed_until_s)


def _overlap(from_s: float, to_s: float, until_s: float) -> float:
    return max(0.0, min(to_s, until_s) - from_s)
