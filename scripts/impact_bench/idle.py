"""Why trainers did not use idle GPUs: one cause for each GPU-second. Pure.

What jobs leave idle counts from the first pass of backfill that sees it, as in ``figures``, but on
the side with trainers. Where all have whole nodes, a node counts as one GPU.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from scripts.impact_bench.controllerlog import ControllerRecord, Key
from scripts.impact_bench.figures import Measured, Side
from scripts.impact_bench.slurmlog import Span

# The causes, in the order in which they are looked for.
STARTING = "Slurm had given it to a job, whose first line had not run yet"
ENDING = "an element there was ending: Slurm starts nothing on that node meanwhile"
AHEAD = "elements had left it ahead of the next pass, which gave it to a job"
PASSED_OVER = "an element waited there, and a pass did not start it: a job was planned there soon"
UNSEEN = "the controller had not looked since it was left there"
TOO_SMALL = "smaller than the elements of the trainers that had none there"
NOT_YET = "offered to the plan: an element was released there later"
NOT_WORTH = "offered to the plan: it gave the place to nobody"
LEFT = "not offered to the plan: left to jobs beside elements"
BARRED = "not offered to the plan: no GPU of that node was"
CAUSES = (
    STARTING,
    ENDING,
    AHEAD,
    PASSED_OVER,
    UNSEEN,
    TOO_SMALL,
    NOT_YET,
    NOT_WORTH,
    LEFT,
    BARRED,
)

_STARTING_S = 3.0  # from a pass to the first line of the job that it starts
_LEAD_S = 4.0  # from when elements leave until a pass has given their GPUs to a job


@dataclass(frozen=True)
class Account:
    """GPU-seconds that were idle after a pass: all, those that elements used, others by cause.

    ``sooner_s`` are GPU-seconds that elements used before any pass had seen them idle.
    """

    idle_s: float = 0.0
    used_s: float = 0.0
    sooner_s: float = 0.0
    causes: Mapping[str, float] = field(default_factory=dict)


def account(measured: Measured) -> Account:
    """Return where idle GPUs went while the stream ran, on the side with trainers."""
    side, causes = measured.on, dict.fromkeys(CAUSES, 0.0)
    idle_s = used_s = sooner_s = 0.0
    spans = list(side.elements)
    for node in (f"n{number}" for number in range(1, measured.nodes + 1)):
        there = _Node(node, side, spans, measured.gpus, side.begin_s + measured.off.makespan_s)
        for length_s, idle, used, unused in there.stretches():
            idle_s += idle * length_s
            used_s += min(idle, used) * length_s
            sooner_s += max(0, used - idle) * length_s
            for cause, count in unused:
                causes[cause] += count * length_s
    found = {cause: amount_s for cause, amount_s in causes.items() if amount_s}
    return Account(idle_s, used_s, sooner_s, found)


@dataclass(frozen=True, slots=True)
class _Job:
    """An ordinary job on a node: Slurm gave it these GPUs, and later its first line ran."""

    submit_s: float
    given_s: float
    start_s: float
    end_s: float
    gpus: int

    def comes(self, at_s: float, until_s: float) -> bool:
        """Whether it waits then, and starts by ``until_s``."""
        return self.submit_s <= at_s < self.given_s and self.start_s <= until_s


class _Node:
    """One node: what was idle there at each time, and why nobody used it."""

    def __init__(
        self, name: str, side: Side, elements: Sequence[Span], gpus: int, end_s: float
    ) -> None:
        record = side.controller
        self._name, self._gpus = name, gpus
        self._parts = {} if side.work is None else side.work.parts
        self._passes_s, self._looks_s = side.passes_s, record.looks_s
        self._begin_s, self._end_s = side.begin_s, end_s
        given = {job: when[0][0] for (kind, job), when in side.log.items() if kind == "allocated"}
        self._jobs = [
            _Job(
                one.submit_s,
                min(one.start_s, given.get(one.number, one.start_s)),
                *(one.start_s, one.end_s or end_s, one.job.gpus or gpus),
            )
            for one in side.starts
            if one.start_s is not None and name in one.account.nodes
        ]
        self._here = [one for one in elements if one.node == name]
        over_s = (*(one.end_s for one in self._jobs), *(one.until_s for one in self._here))
        self._left_s = sorted(over_s)  # when somebody left something
        self._offers = [(at_s, nodes.get(name, 0)) for at_s, nodes in record.offers]
        self._offered_s = [at_s for at_s, _ in self._offers]
        self._waits = list(self._waiting(record))

    def _waiting(self, record: ControllerRecord) -> Iterator[Span]:
        """Yield how long elements waited here until they started, or were held again."""
        held: dict[Key, list[float]] = defaultdict(list)
        for at_s, key in record.held:
            held[key].append(at_s)
        for at_s, (array, node) in record.released:
            if node == self._name:
                began = [one.from_s for one in self._here if one.array == array]
                ends = (one for one in (*began, *held[array, node]) if one >= at_s)
                until_s = min(ends, default=self._end_s)
                yield Span(array, node, at_s, until_s, until_s)

    def stretches(self) -> Iterator[tuple[float, int, int, list[tuple[str, int]]]]:
        """Yield how long so many GPUs were idle after a pass, elements had so many, and why not."""
        begin_s, end_s = self._begin_s, self._end_s
        times = {begin_s, end_s, *self._passes_s, *self._looks_s, *self._offered_s}
        for job in self._jobs:
            times.update((job.submit_s, job.given_s, job.start_s, job.end_s, job.given_s - _LEAD_S))
        for one in (*self._here, *self._waits):
            times.update((one.from_s, one.ending_s, one.until_s))
        ordered = sorted(at_s for at_s in times if begin_s <= at_s <= end_s)
        seen, passes = 0, set(self._passes_s)
        for at_s, until_s in pairwise(ordered):
            jobs = sum(one.gpus for one in self._jobs if one.start_s <= at_s < one.end_s)
            idle = max(0, self._gpus - jobs)
            seen = idle if at_s in passes else min(seen, idle)
            here = [one for one in self._here if one.from_s <= at_s < one.until_s]
            used = sum(self._size(one) for one in here)
            yield until_s - at_s, seen, used, list(self._unused(at_s, max(0, seen - used), here))

    def _size(self, one: Span) -> int:
        return self._parts.get(one.array, self._gpus)

    def _unused(self, at_s: float, count: int, here: Sequence[Span]) -> Iterator[tuple[str, int]]:
        """Yield the causes, and how many of these GPUs each has.

        Where a job comes in the next pass, or an element waits for it, elements could only start
        in the last one: then the causes are those of that time.
        """
        starting = sum(one.gpus for one in self._jobs if one.given_s <= at_s < one.start_s)
        coming = [one for one in self._jobs if one.comes(at_s, self._next_s(at_s) + _STARTING_S)]
        near = sum(one.gpus for one in coming if one.given_s - _LEAD_S <= at_s)
        ending = any(one.ending_s <= at_s for one in here)
        for cause, most in (
            (STARTING, starting),
            (ENDING, self._gpus if ending else 0),
            (AHEAD, near),
        ):
            yield cause, min(count, most)
            count -= min(count, most)
        passed_s = _last(self._passes_s, at_s)
        waits = (one for one in self._waits if passed_s < one.from_s <= at_s < one.until_s)
        come = min(count, sum(one.gpus for one in coming) - near + sum(map(self._size, waits)))
        for number, then_s in ((come, passed_s), (count - come, at_s)):
            for cause, most in self._causes(then_s):
                taken = max(0, min(number, most))
                yield cause, taken
                number -= taken

    def _causes(self, at_s: float) -> Iterator[tuple[str, int]]:
        """Yield what kept elements from starting here by then, and on how many GPUs at most."""
        here = [one for one in self._here if one.from_s <= at_s < one.until_s]
        waits = [one for one in self._waits if one.from_s <= at_s < one.until_s]
        passed_s = _last(self._passes_s, at_s)
        yield PASSED_OVER, sum(self._size(one) for one in waits if one.from_s < passed_s)
        if _last(self._looks_s, at_s) < _last(self._left_s, at_s):
            yield UNSEEN, self._gpus
        place = bisect_right(self._offered_s, at_s) - 1
        offered = self._offers[place][1] if place >= 0 else self._gpus
        left = offered - sum(map(self._size, (*here, *waits)))
        others = self._parts.keys() - {one.array for one in (*here, *waits)}
        if min((self._parts[one] for one in others), default=self._gpus + 1) > left:
            yield TOO_SMALL, left
        soon_s = self._next_s(at_s) + _STARTING_S
        later = (one for one in self._waits if at_s < one.from_s <= soon_s)
        yield NOT_YET, min(left, sum(map(self._size, later)))
        yield NOT_WORTH, left
        yield (LEFT if offered else BARRED), self._gpus

    def _next_s(self, at_s: float) -> float:
        """When the next pass is."""
        place = bisect_right(self._passes_s, at_s)
        return self._passes_s[place] if place < len(self._passes_s) else self._end_s


def _last(times_s: Sequence[float], at_s: float) -> float:
    """Return the last of these times up to then; they are in order."""
    place = bisect_right(times_s, at_s)
    return times_s[place - 1] if place else -math.inf
