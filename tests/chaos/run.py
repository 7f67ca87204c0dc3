"""The run: faults in a seeded order, and after each one the invariants, once all has settled."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

from scripts.benchkit.command import json_text
from tests.chaos.faults import AIMED, CATALOGUE, SECONDS
from tests.chaos.faults.fault import CannotInjectError, Fault
from tests.chaos.invariants import never_so, unsettled
from tests.chaos.observe import element_processes
from tests.chaos.patience import Patience
from tests.chaos.report import Outcome
from tests.chaos.trainers import submitted
from tests.chaos.training import losses
from tests.chaos.world import World

_START_S = 240.0
_PATIENCE_S = 150.0  # all nodes are this host
_STILL_S = 3.0  # all must be well for this long
_LOOK_S = 1.0
_BEFORE_S = (1.0, 12.0)  # ordinary jobs come and go
_APART_S = (0.2, 6.0)  # a fault and one on top of it
_BUSY_S = 5.0  # and go on to come for this long after a fault is mended
_OVER = ("CANCELLED", "COMPLETED", "FAILED", "NODE_FAIL")

# What explains a violation; checkpoints come and go while they are copied.
_UNKEPT = shutil.ignore_patterns("*.pt", "checkpoints")
_ASKED = {
    "squeue": ["squeue", "-a", "-r", "-t", "all", "-o", "%i %F %K %T %r %N %R %P %V %S %e %Q"],
    "sinfo": ["sinfo", "-N", "-l"],
    "jobs": ["scontrol", "-a", "show", "job"],
    "nodes": ["scontrol", "show", "node"],
}


class NotStartedError(Exception):
    """The trainers did not begin to train; the message says what was missing."""


def order(names: Sequence[str], chance: Random) -> Iterator[str]:
    """Yield faults without end: all of them in a random order, then all in another one."""
    while True:
        yield from chance.sample(names, len(names))


def run(
    world: World,
    faults: Mapping[str, Fault],
    times: int | None,
    minutes: float,
    double: float,
    kept: Path,
) -> dict[str, Any]:
    """Inject faults, and return what became of them, as ``report`` shows it.

    They end after ``times`` faults or, where that is None, after ``minutes``. ``double`` is the
    share of faults that get a second one on top. What explains a violation goes into ``kept``.
    """
    begin_s = time.monotonic()
    outcomes, skipped, trainers_lost = list[Outcome](), list[str](), 0
    for injected, name in enumerate(order(list(faults), world.chance)):
        spent = time.monotonic() - begin_s > 60 * minutes
        if injected == times or (times is None and spent):
            break
        chosen = [(name, faults[name])]
        if world.chance.random() < double:
            second = world.chance.choice(SECONDS)
            chosen.append((second, CATALOGUE[second]))
        outcome = inject(world, chosen)
        if not outcome.details and not outcome.violations:
            skipped.append(name)
            continue
        outcomes.append(outcome)
        if outcome.violations:
            keep(world, kept / f"{len(outcomes):03d}-{name}")
            seen = world.look()
            for one in world.trainers:
                if all(element.state in _OVER for element in seen.of(one.array)):
                    trainers_lost += 1
                    one.submit(world.site)
        world.tell(str(outcome))
    minutes = (time.monotonic() - begin_s) / 60
    resubmitted = sum(one.submissions - 1 for one in world.trainers) - trainers_lost
    steps = {one.name: round(one.training.reached) for one in world.trainers}
    world.outcome = Outcome()
    left = [*world.cancel_trainers(_PATIENCE_S), *world.outcome.violations]
    if left:
        keep(world, kept / "end")
    return {
        "minutes": round(minutes, 1),
        "faults": sum(len(one.faults) for one in outcomes),
        "skipped": skipped,
        "violations": sum(len(one.violations) for one in outcomes) + len(left),
        "trainers_lost": trainers_lost,
        "submitted_again": resubmitted,  # as Slurm had lost their jobs, or some
        "drained_by_slurm": world.drained_by_slurm,  # for no fault of ours
        "steps": steps,
        "steps_lost": {name: round(sum(one.lost[name] for one in outcomes)) for name in steps},
        "ordinary_jobs": world.stream.figures() if world.stream else {},
        "outcomes": outcomes,
        "left_behind": left,  # once all trainers were cancelled
    }


def begin(world: World, each: int = 1) -> None:
    """Start ``each`` trainers of what the world asks for, and wait until all is well.

    Raises:
        NotStartedError: all is not well in time.
    """
    world.tell("starting the trainers")
    for kind, ask in world.asks.items():
        for number in range(each):
            name = f"{kind}-{number + 1}" if each > 1 else kind
            world.trainers.append(submitted(world.site, ask, name))
    if left := _settle(world, _START_S, quiet=True):
        raise NotStartedError("; ".join(left))
    world.well_since_s = time.monotonic()
    world.tell("all train")


def inject(world: World, faults: Sequence[tuple[str, Fault]]) -> Outcome:
    """Inject faults on top of each other, mend them, and wait until all is well again.

    Where the first one cannot be injected now, what is returned has no details.
    """
    since_s = time.monotonic()
    outcome = world.outcome = Outcome([faults[0][0]])
    seen = world.look()
    aimed = seen.status and all(name in AIMED for name, _ in faults)
    world.spared = {one.array: seen.failures(one.array) for one in world.trainers if aimed}
    world.wait(world.chance.uniform(*_BEFORE_S))
    try:
        _injected(world, faults)
    except TimeoutError as error:
        outcome.violations[str(error)] = None
    mended_s = world.well_since_s = time.monotonic()
    if not outcome.details and not outcome.violations:
        return outcome
    left = _settle(world, _PATIENCE_S)
    world.forgive()
    outcome.violations |= dict.fromkeys(left)
    if not left:
        outcome.settled_s = time.monotonic() - mended_s - _STILL_S
    for trainer in world.trainers:
        every = losses(trainer.training.generations, trainer.training.saves)
        new = [one for one in every if one.time_s >= since_s]
        outcome.lost[trainer.name] = sum(one.lost for one in new)
        outcome.violations |= {
            f"{trainer.name} lost {one.lost:g}, and {one.allowed:g} may be": None
            for one in new
            if one.lost > one.allowed
        }
    return outcome


def _injected(world: World, faults: Sequence[tuple[str, Fault]]) -> None:
    """Inject faults, watch until the longest is over, and mend them, the last one first."""
    end_s, outcome = 0.0, world.outcome
    world.well_since_s = float("inf")
    with ExitStack() as mended:
        for name, fault in faults:
            if outcome.details:
                world.wait(world.chance.uniform(*_APART_S))
            try:
                detail, lasts_s = mended.enter_context(contextmanager(fault)(world))
            except (CannotInjectError, subprocess.TimeoutExpired) as error:
                world.tell(f"{name}: skipped: {error}")
                if not outcome.details:
                    return
                continue
            world.tell(f"{name}: {detail}")
            if outcome.details:
                outcome.faults.append(name)
            outcome.details.append(detail)
            end_s = max(end_s, time.monotonic() + lasts_s)
        while (left_s := end_s - time.monotonic()) > 0:
            world.tick()
            outcome.violations |= dict.fromkeys(never_so(world.look()))
            time.sleep(min(_LOOK_S, left_s))


def _settle(world: World, patience_s: float, quiet: bool = False) -> list[str]:
    """Wait until all has been well for a moment, for ``patience_s`` of an idle machine at most.

    Returns what does still not hold. What must not be so at any moment becomes a violation. With
    ``quiet`` no ordinary jobs come.
    """
    patience = Patience(patience_s)
    good_since_s: float | None = None
    quiet_s = time.monotonic() + (0.0 if quiet else _BUSY_S)
    while True:
        # A node that joins imports torch first: with jobs coming and going all never settles.
        world.tick(quiet=time.monotonic() > quiet_s)
        seen = world.look()
        world.outcome.violations |= dict.fromkeys(never_so(seen))
        left, now_s = unsettled(seen), time.monotonic()
        if left:
            good_since_s, world.outcome.waited_for = None, left
            if patience.over:
                return left
        elif good_since_s is None:
            good_since_s = now_s
        elif now_s - good_since_s >= _STILL_S:
            return []
        time.sleep(_LOOK_S)


def keep(world: World, folder: Path) -> None:
    """Copy what explains a violation into a folder of its own."""
    shutil.copytree(world.folder / "log", folder / "log")
    for what, command in _ASKED.items():
        try:
            done = world.run(*command, user="root")
            (folder / what).write_text(done.stdout + done.stderr)
        except subprocess.TimeoutExpired:
            (folder / what).write_text("no answer")
    (folder / "status.json").write_text(json_text(world.status()))
    processes = element_processes(f"{world.folder}/slurm.conf")
    (folder / "processes").write_text("".join(f"{one}\n" for one in processes))
    for path in (*world.folder.glob("controller-*.log"), *world.service.state.glob("*.log")):
        shutil.copy(path, folder)
    for one in world.trainers:
        shutil.copytree(one.folder, folder / one.name, ignore=_UNKEPT)
    world.tell(f"what explains it is in {folder}")
