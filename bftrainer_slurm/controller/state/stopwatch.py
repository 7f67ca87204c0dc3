"""Measures one trainer's throughput from its reports. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from bftrainer_slurm.controller.observe.reports import Report

_WARM_S = 15.0  # the first steps of a generation are slow: caches, lazy imports, autotuners
# One measurement takes a stretch of this length. Stretches grow with the generation: only a few are
# kept, and a node that is slow for some minutes must not be in most of them.
_STRETCH_S = 20.0
_LONGEST_S = 80.0
_SHORTEST_S = 10.0  # the shortest last stretch of a generation
_MOST_PER_NODE = 1e9  # samples/s


@dataclass(frozen=True, slots=True)
class Throughput:
    """The throughput of a trainer (``array``) on a number of nodes.

    With the unit "steps", ``rate`` is steps times nodes per second: samples are proportional to
    that as long as each node's batch stays the same.
    """

    array: int
    unit: str  # "samples" or "steps"
    nodes: int
    time_s: float  # when the measurement ended (Unix seconds)
    rate: float  # in ``unit`` per second
    seconds: float  # how long the measurement took
    batch: float | None = None  # samples of all nodes in a step; None: not known
    noise: float | None = None  # the gradient noise scale in samples; None: not measured

    @property
    def kind(self) -> tuple[str, int]:
        """The key by which throughputs are compared."""
        return self.unit, self.nodes


@dataclass(frozen=True, slots=True)
class Rescale:
    """A change of size at ``time_s``, and the measured seconds without progress."""

    grew: bool
    time_s: float
    seconds: float

    @property
    def kind(self) -> bool:
        """The key by which rescales are compared."""
        return self.grew


@dataclass(slots=True)
class _Generation:
    """The generation that is being measured."""

    number: int | None
    nodes: int
    since_s: float  # time of its first report
    begin: Report | None = None  # the first report of the present stretch
    last: Report | None = None

    @property
    def stretch_s(self) -> float:
        """How long the present stretch lasts: as long as all stretches before it, within bounds."""
        if self.begin is None:
            return _STRETCH_S
        before_s = self.begin.time_s - self.since_s - _WARM_S
        return min(max(_STRETCH_S, before_s), _LONGEST_S)


class Stopwatch:
    """The state of one trainer's measurements."""

    def __init__(self, array: int) -> None:
        self._array = array
        self._present: _Generation | None = None

    def report(self, report: Report) -> Throughput | None:
        """Add a report; return the throughput if it completes one."""
        if not report.nodes:
            return None
        present = self._present
        if present is None or (report.generation, report.nodes) != (present.number, present.nodes):
            throughput = self._measured(_SHORTEST_S)
            self._present = _Generation(report.generation, report.nodes, report.time_s)
            return throughput
        if report.time_s - present.since_s < _WARM_S:
            return None
        if present.last is None or _fell(present.last, report):
            present.begin = present.last = report
            return None
        present.last = report
        return self._measured(present.stretch_s)

    def _measured(self, least_s: float) -> Throughput | None:
        """End the present stretch if it has lasted long enough."""
        present = self._present
        if present is None or present.begin is None or present.last is None:
            return None
        begin, end = present.begin, present.last
        seconds = end.time_s - begin.time_s
        if seconds < least_s:
            return None
        present.begin = end
        unit, steps = "samples", _gained(begin.steps, end.steps)
        amount = samples = _gained(begin.samples, end.samples)
        if amount is None:
            unit, amount = "steps", None if steps is None else steps * present.nodes
        if not amount:
            return None  # the trainer stood still, or counts nothing
        rate = amount / seconds
        if rate > _MOST_PER_NODE * present.nodes:
            return None  # no trainer is so fast
        about = self._array, unit, present.nodes, end.time_s, rate, seconds
        return Throughput(*about, samples / steps if samples and steps else None, end.noise)


def _fell(before: Report, after: Report) -> bool:
    """Whether a count has fallen, which is impossible within one generation."""
    gains = _gained(before.samples, after.samples), _gained(before.steps, after.steps)
    return any(gain is not None and gain < 0 for gain in gains)


def _gained(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before
