"""The run: faults in a seeded order, and after each one the invariants, once all has settled."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from scripts.chaos_suite.evidence import keep
from scripts.chaos_suite.faults.catalogue import CATALOGUE, SECONDS
from scripts.chaos_suite.faults.fault import CannotInjectError, Fault
from scripts.chaos_suite.invariants import never_so, unsettled
from scripts.chaos_suite.patience import Patience
from scripts.chaos_suite.trainers import KINDS, submitted
from scripts.chaos_suite.training import in_order, losses
from scripts.chaos_suite.world import World

_START_S = 240.0
_PATIENCE_S = 150.0  # all nodes are this host
_STILL_S = 3.0  # all must be well for so long
_LOOK_S = 1.0
_BEFORE_S = (1.0, 12.0)  # ordinary jobs come and go
_APART_S = (0.2, 6.0)  # a fault and one on top of it
_BUSY_S = 5.0  # and for so long after a fault is mended
_LONG_S = 15.0  # to say what took so long
_OVER = ("CANCELLED", "COMPLETED", "FAILED", "NODE_FAIL")


@dataclass(slots=True)
class Outcome:
    """What became of one injected fault. ``settled_s`` is None where it never settled."""

    fault: str
    detail: str
    settled_s: float | None
    violations: list[str] = field(default_factory=list)
    lost: dict[str, float] = field(default_factory=dict)  # by trainer: steps made in vain
    lost_by_survivors: float = 0.0  # of them, those that a process had made that trains on
    waited_for: list[str] = field(default_factory=list)  # what held last of all
    second: str | None = None  # the fault that came on top
    figures: dict[str, float] = field(default_factory=dict)  # what the fault itself measured
    evidence: str | None = None

    def __str__(self) -> str:
        words = f"{self.fault}{f' and {self.second}' if self.second else ''}: "
        if self.settled_s is None:
            words += "never settled"
        else:
            words += f"well in {self.settled_s:.0f} s"
            if self.settled_s > _LONG_S:
                words += f" (last of all: {'; '.join(self.waited_for)})"
        return "\n          VIOLATION: ".join([words, *self.violations])


@dataclass(slots=True)
class Result:
    """What became of a run."""

    seed: int
    seconds: float = 0.0
    outcomes: list[Outcome] = field(default_factory=list)
    trainers_lost: int = 0
    resubmitted: int = 0
    ordinary_submitted: int = 0
    ordinary_failed: int = 0
    drained_by_slurm: int = 0
    steps: dict[str, float] = field(default_factory=dict)  # by trainer: how far it has come
    skipped: list[str] = field(default_factory=list)

    @property
    def faults(self) -> int:
        """How many were injected."""
        return len(self.outcomes) + sum(one.second is not None for one in self.outcomes)

    @property
    def violations(self) -> int:
        """How many there were."""
        return sum(len(one.violations) for one in self.outcomes)

    @property
    def steps_lost(self) -> dict[str, float]:
        """What was trained in vain, by trainer."""
        return {
            name: round(sum(one.lost.get(name, 0.0) for one in self.outcomes), 2)
            for name in self.steps
        }

    @property
    def good(self) -> bool:
        """Whether all held, and nobody was lost."""
        return not self.violations and not self.trainers_lost


class NotStartedError(Exception):
    """The trainers did not begin to train; the message says what was missing."""


def order(names: Sequence[str], chance: Random) -> Iterator[str]:
    """Yield faults for ever: all of them in a random order, then all in another one."""
    while True:
        yield from chance.sample(names, len(names))


def run(
    world: World,
    faults: Mapping[str, Fault],
    result: Result,
    times: int | None,
    minutes: float,
    double: float,
    kept: Path,
) -> None:
    """Inject so many faults (None: until the time is over); fill in ``result``.

    ``double`` is the share of faults during which another one comes.
    """
    begin_s = time.monotonic()
    for injected, name in enumerate(order(list(faults), world.chance)):
        spent = time.monotonic() - begin_s > 60 * minutes
        if injected == times or (times is None and spent):
            break
        chosen = [(name, faults[name])]
        if world.chance.random() < double:
            second = world.chance.choice(SECONDS)
            chosen.append((second, CATALOGUE[second]))
        outcome = inject(world, chosen)
        if outcome is None:
            result.skipped.append(name)
            continue
        result.outcomes.append(outcome)
        if outcome.violations:
            outcome.evidence = str(keep(world, kept, len(result.outcomes), outcome.fault))
            result.trainers_lost += _replace_lost(world)
        world.tell(str(outcome))
    result.seconds = time.monotonic() - begin_s
    _count(world, result)


def _count(world: World, result: Result) -> None:
    if world.stream is not None:
        result.ordinary_submitted = world.stream.submitted
        result.ordinary_failed = len(world.stream.failed)
    result.drained_by_slurm = world.drained_by_slurm
    result.resubmitted = -result.trainers_lost
    for job in world.trainers.values():
        result.resubmitted += job.submissions - 1
        made = job.training.generations.values()
        result.steps[job.name] = max((one.last for one in made), default=0.0)


def begin(world: World, each: int = 1) -> None:
    """Start so many trainers of each kind, and wait until all is well.

    Raises:
        NotStartedError: it does not become so.
    """
    world.tell("starting the trainers")
    for kind in KINDS:
        for number in range(each):
            name = f"{kind}-{number + 1}" if each > 1 else kind
            world.trainers[name] = submitted(world.site, kind, name)
    left, _ = _settle(world, _START_S, quiet=True)
    if left:
        raise NotStartedError("; ".join(left))
    world.well_since_s = time.monotonic()
    world.violations.clear()
    world.tell("all train")


def inject(world: World, faults: Sequence[tuple[str, Fault]]) -> Outcome | None:
    """Inject a fault, mend it, and wait until all holds again; None: it cannot be done now.

    What comes after the first one comes while that is under way.
    """
    since_s = time.monotonic()
    world.violations.clear()
    world.figures = {}
    details: list[str] = []
    world.wait(world.chance.uniform(*_BEFORE_S))
    try:
        _injected(world, faults, details)
    except TimeoutError as error:
        world.violations[str(error)] = None
    mended_s = world.well_since_s = time.monotonic()
    if not details and not world.violations:
        return None
    left, waited_for = _settle(world, _PATIENCE_S)
    world.forgive()
    settled_s = None if left else time.monotonic() - mended_s - _STILL_S
    violations = [*world.violations, *left]
    (first, _), *others = faults
    outcome = Outcome(first, " and then ".join(details), settled_s, violations)
    outcome.waited_for, outcome.figures = waited_for, world.figures
    if len(details) > 1:
        outcome.second = others[0][0]
    _count_losses(world, outcome, since_s)
    return outcome


def _injected(world: World, faults: Sequence[tuple[str, Fault]], details: list[str]) -> None:
    """Inject faults, watch until the longest is over, and mend them, the last one first."""
    end_s = 0.0
    world.well_since_s = float("inf")
    with ExitStack() as mended:
        for name, fault in faults:
            if details:
                world.wait(world.chance.uniform(*_APART_S))
            try:
                detail, lasts_s = mended.enter_context(contextmanager(fault)(world))
            except (CannotInjectError, subprocess.TimeoutExpired) as error:
                world.tell(f"{name}: skipped: {error}")
                if not details:
                    return
                continue
            world.tell(f"{name}: {detail}")
            details.append(detail)
            end_s = max(end_s, time.monotonic() + lasts_s)
        while (left_s := end_s - time.monotonic()) > 0:
            world.tick()
            world.violations |= dict.fromkeys(never_so(world.look()))
            time.sleep(min(_LOOK_S, left_s))


def _settle(world: World, patience_s: float, quiet: bool = False) -> tuple[list[str], list[str]]:
    """Wait until all holds for a moment; return what does not after ``patience_s`` of work.

    Beside it what held last. What must not be at any moment becomes a violation. With ``quiet``
    no ordinary jobs come.
    """
    patience, waited_for = Patience(patience_s), list[str]()
    good_since_s: float | None = None
    quiet_s = time.monotonic() + (0.0 if quiet else _BUSY_S)
    while True:
        # A node that joins imports torch first: with jobs coming and going all never settles.
        world.tick(quiet=time.monotonic() > quiet_s)
        seen = world.look()
        world.violations |= dict.fromkeys(never_so(seen))
        left, now_s = unsettled(seen), time.monotonic()
        if left:
            good_since_s, waited_for = None, left
            if patience.over:
                return left, waited_for
        elif good_since_s is None:
            good_since_s = now_s
        elif now_s - good_since_s >= _STILL_S:
            return [], waited_for
        time.sleep(_LOOK_S)


def _count_losses(world: World, outcome: Outcome, since_s: float) -> None:
    for job in world.trainers.values():
        every = losses(in_order(job.training.generations), job.training.saves)
        lost = [one for one in every if one.time_s >= since_s]
        outcome.lost[job.name] = sum(one.lost for one in lost)
        outcome.lost_by_survivors += sum(one.lost for one in lost if one.survived)
        outcome.violations += [
            f"{job.name} lost {one.lost:g}, and {one.allowed:g} may be"
            for one in lost
            if one.lost > one.allowed
        ]


def _replace_lost(world: World) -> int:
    """Submit trainers again that do not train any more; return how many."""
    seen, lost = world.look(), 0
    for job in world.trainers.values():
        if all(one.state in _OVER for one in seen.of(job.array)):
            world.submit_again(job)
            lost += 1
    return lost
