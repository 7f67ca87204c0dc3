"""The run: faults in a seeded order, and after each one the invariants, once all has settled."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from scripts.chaos_suite.evidence import keep
from scripts.chaos_suite.faults.catalogue import CATALOGUE, SECONDS
from scripts.chaos_suite.faults.fault import CannotInjectError, Fault, Injected
from scripts.chaos_suite.invariants import never_so, unsettled
from scripts.chaos_suite.ordinary import Stream
from scripts.chaos_suite.patience import Patience
from scripts.chaos_suite.trainers import SCRIPTS, submitted
from scripts.chaos_suite.training import Loss, in_order, losses
from scripts.chaos_suite.world import World

_START_S = 240.0
_PATIENCE_S = 150.0  # all nodes are this host
_STILL_S = 3.0  # all must be well for so long
_LOOK_S = 1.0
_BEFORE_S = (1.0, 12.0)  # ordinary jobs come and go
_APART_S = (0.2, 6.0)  # a fault and one on top of it
_BUSY_S = 5.0  # and for so long after a fault is mended
_LONG_S = 15.0  # to say what took so long
_GAP_S = 12.0  # between ordinary jobs, on average
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
    evidence: str | None = None


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
    def violations(self) -> int:
        """How many there were."""
        return sum(len(one.violations) for one in self.outcomes)

    @property
    def good(self) -> bool:
        """Whether all held, and nobody was lost."""
        return not self.violations and not self.trainers_lost


class NotStartedError(Exception):
    """The trainers did not begin to train; the message says what was missing."""


def order(faults: Sequence[Fault], chance: Random) -> Iterator[Fault]:
    """Yield faults for ever: all of them in a random order, then all in another one."""
    while True:
        yield from chance.sample(faults, len(faults))


def run(
    world: World,
    faults: Sequence[Fault],
    result: Result,
    minutes: float,
    double: float,
    kept: Path,
    tell: Callable[[str], None],
) -> None:
    """Inject faults until the time is over (0: each kind once); fill in ``result``.

    ``double`` is the share of faults during which another one comes.

    Raises:
        NotStartedError: nothing was injected.
    """
    begin_s = time.monotonic()
    _begin(world, tell)
    injected = 0
    for fault in order(faults, world.chance):
        spent = time.monotonic() - begin_s > 60 * minutes
        if spent and (minutes or injected >= len(faults)):
            break
        injected += 1
        second = None
        if world.chance.random() < double:
            second = CATALOGUE[world.chance.choice(SECONDS)]
        outcome = _one(world, fault, second, tell)
        if outcome is None:
            result.skipped.append(fault.name)
            continue
        result.outcomes.append(outcome)
        if outcome.violations:
            outcome.evidence = str(keep(world, kept, len(result.outcomes), outcome.fault))
            result.trainers_lost += _replace_lost(world)
        tell(_line(outcome))
    assert world.stream is not None
    result.seconds = time.monotonic() - begin_s
    result.ordinary_submitted = world.stream.submitted
    result.ordinary_failed = len(world.stream.failed)
    result.drained_by_slurm = world.drained_by_slurm
    submissions = sum(job.submissions - 1 for job in world.trainers.values())
    result.resubmitted = submissions - result.trainers_lost
    for job in world.trainers.values():
        result.steps[job.name] = max(
            (one.last for one in job.training.generations.values()), default=0.0
        )


def _begin(world: World, tell: Callable[[str], None]) -> None:
    tell("starting the trainers")
    world.trainers |= {kind: submitted(world.site, kind, kind) for kind in SCRIPTS}
    left = _settle(world, _START_S)
    if left:
        raise NotStartedError("; ".join(left))
    world.stream = Stream(
        world.site.folder("bob", "ordinary"),
        partial(world.site.run, user="bob", timeout_s=10.0),
        Random(world.chance.random()),
        _GAP_S,
        most_nodes=2,
    )
    world.well_since_s = time.monotonic()
    tell("all train")


def _one(
    world: World, fault: Fault, second: Fault | None, tell: Callable[[str], None]
) -> Outcome | None:
    """Inject a fault, mend it, and wait until all holds again; None: it cannot be done now.

    The ``second`` one comes while the first is under way.
    """
    since_s = time.monotonic()
    world.wait(world.chance.uniform(*_BEFORE_S))
    under_way = [_inject(world, fault, tell)]
    if under_way == [None]:
        world.well_since_s = time.monotonic()
        return None
    if second is not None:
        world.wait(world.chance.uniform(*_APART_S))
        under_way.append(_inject(world, second, tell))
    injected = [one for one in under_way if one is not None]
    violations = _let_last(world, injected)
    mended_s = world.well_since_s = time.monotonic()
    waited_for: list[str] = []
    left = _settle(world, _PATIENCE_S, violations, waited_for)
    world.forgive()
    settled_s = None if left else time.monotonic() - mended_s - _STILL_S
    detail = " and then ".join(one.detail for one in injected)
    outcome = Outcome(fault.name, detail, settled_s, [*violations, *left])
    outcome.waited_for = waited_for
    outcome.second = second.name if second is not None and len(injected) > 1 else None
    _count_losses(world, outcome, since_s)
    return outcome


def _inject(world: World, fault: Fault, tell: Callable[[str], None]) -> Injected | None:
    world.well_since_s = float("inf")
    try:
        injected = fault.inject(world)
    except (CannotInjectError, subprocess.TimeoutExpired) as error:
        tell(f"{fault.name}: skipped: {error}")
        return None
    tell(f"{fault.name}: {injected.detail}")
    return injected


def _let_last(world: World, injected: Sequence[Injected]) -> dict[str, None]:
    """Watch until the longest is over, and mend them; return the violations seen, in order."""
    end_s = time.monotonic() + max(one.lasts_s for one in injected)
    violations = dict.fromkeys(words for one in injected for words in one.violations)
    try:
        while time.monotonic() < end_s:
            world.tick()
            violations |= dict.fromkeys(never_so(world.look()))
            time.sleep(min(_LOOK_S, max(0.0, end_s - time.monotonic())))
    finally:
        for one in reversed(injected):
            one.undo()
    return violations


def _count_losses(world: World, outcome: Outcome, since_s: float) -> None:
    for job in world.trainers.values():
        lost = [one for one in _losses(world, job.name) if one.time_s >= since_s]
        outcome.lost[job.name] = sum(one.lost for one in lost)
        outcome.lost_by_survivors += sum(one.lost for one in lost if one.survived)
        outcome.violations += [
            f"{job.name} lost {one.lost:g}, and {one.allowed:g} may be"
            for one in lost
            if one.lost > one.allowed
        ]


def _settle(
    world: World,
    patience_s: float,
    never: dict[str, None] | None = None,
    waited_for: list[str] | None = None,
) -> list[str]:
    """Wait until all holds for a moment; return what does not after ``patience_s`` of work.

    Fills ``never`` with what must not be at any moment, and ``waited_for`` with what held last.
    """
    patience = Patience(patience_s)
    good_since_s: float | None = None
    quiet_s = time.monotonic() + _BUSY_S
    while True:
        # A node that joins imports torch first: with jobs coming and going all never settles.
        world.tick(quiet=time.monotonic() > quiet_s)
        seen = world.look()
        if never is not None:
            never |= dict.fromkeys(never_so(seen))
        left = unsettled(seen)
        now_s = time.monotonic()
        if left:
            good_since_s = None
            if waited_for is not None:
                waited_for[:] = left
            if patience.over:
                return left
        elif good_since_s is None:
            good_since_s = now_s
        elif now_s - good_since_s >= _STILL_S:
            return []
        time.sleep(_LOOK_S)


def _losses(world: World, name: str) -> list[Loss]:
    training = world.trainers[name].training
    return losses(in_order(training.generations), training.saves)


def _replace_lost(world: World) -> int:
    """Submit trainers again that do not train any more; return how many."""
    lost = 0
    for job in world.trainers.values():
        known = [one for one in world.elements() if one.array == job.array]
        if not known or all(one.state in _OVER for one in known):
            world.over.add(job.array)
            job.submit(world.site)
            lost += 1
    return lost


def _line(outcome: Outcome) -> str:
    words = f"{outcome.fault}{f' and {outcome.second}' if outcome.second else ''}: "
    words += "never settled" if outcome.settled_s is None else f"well in {outcome.settled_s:.0f} s"
    if outcome.settled_s is not None and outcome.settled_s > _LONG_S:
        words += f" (last of all: {'; '.join(outcome.waited_for)})"
    for violation in outcome.violations:
        words += f"\n          VIOLATION: {violation}"
    return words
