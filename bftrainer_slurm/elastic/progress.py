"""How far a training is: measures for the plan each second, and for people a line for each change.

The line in the job's own log says who came or went, why, what has to be trained again, how long
training stood still, and the speed before and after. All is read from the counts in ``memory``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from bftrainer_slurm.elastic.listeners import NodesChanged, write
from bftrainer_slurm.elastic.log import say
from bftrainer_slurm.elastic.memory import Memory, StepCounts
from bftrainer_slurm.words import counted

INTERVAL_S = 1.0
SETTLED_S = 10.0  # training goes on for so long before its speed is reported
_LONGEST_PAUSE_S = 3600.0  # the controller refuses a report with a longer one

Place = tuple[int, str]  # an element's task, and its node


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a training goes; its text is empty if that is not known."""

    steps_per_s: float | None = None
    samples_per_s: float | None = None

    def __str__(self) -> str:
        if self.samples_per_s is not None:
            return f"{self.samples_per_s:,.0f} samples/s"
        return "" if self.steps_per_s is None else f"{self.steps_per_s:,.3g} steps/s"


@dataclass(frozen=True, slots=True)
class Era:
    """A time in which the same nodes train: one generation of elements on these places."""

    generation: int
    places: frozenset[Place]
    before: StepCounts  # when it began

    def stood_still_s(self, now: StepCounts) -> float | None:
        """Return the seconds from the last step before it to its first one, trained again or not.

        None: there was no step before it, or none in it.
        """
        first_s = now.again_s or now.first_s
        return first_s - self.before.last_s if first_s > 0 and self.before.last_s > 0 else None

    def lost(self, now: StepCounts) -> tuple[int | None, float | None]:
        """Return how many steps, and samples, it has trained again; None: that is not known."""
        before, steps, samples = self.before, now.lost, now.lost_samples
        if before.last_s <= 0:
            return None, None
        return (
            None if steps is None else steps - (before.lost or 0),
            None if samples is None else samples - (before.lost_samples or 0.0),
        )

    def speed(self, now: StepCounts) -> Speed:
        """Return the speed since its first step."""
        steps, seconds = now.steps - self.before.steps, now.last_s - now.first_s
        if steps < 2 or seconds <= 0 or now.first_s <= self.before.last_s:
            return Speed()
        share = (steps - 1) / steps  # the first step only starts the clock
        samples = None
        if now.samples is not None and self.before.samples is not None:
            samples = (now.samples - self.before.samples) * share / seconds
        return Speed(steps * share / seconds, samples)


class Progress:
    """What an agent tells of its training: while its node is the first one of a generation.

    Methods may be called from several threads.

    Args:
        memory: where its processes count.
        report: gets the measures by name.
        tell: gets a line for the job's log.
    """

    def __init__(
        self,
        memory: Memory,
        report: Callable[..., None],
        tell: Callable[[str], None] = say,
    ) -> None:
        self._memory = memory
        self._report = report
        self._tell = tell
        self._lock = threading.Lock()
        self._era = Era(0, frozenset(), StepCounts(0, None, 0.0, 0.0))
        self._before: frozenset[Place] = frozenset()  # where the last step before it was made
        self._why = ""
        self._speed_before = Speed()
        self._reports = False
        self._untold = False  # the last change
        self._reported: StepCounts | None = None

    def follow(self) -> None:
        """Look once a second from now on."""

        def look() -> None:
            while True:
                time.sleep(INTERVAL_S)
                self.look()

        threading.Thread(target=look, name="bftrainer-progress", daemon=True).start()

    def began(self, generation: int, places: Iterable[Place], why: str, tells: bool) -> None:
        """A generation begins, in which no process trains yet; ``why`` ended the last one.

        ``tells``: this node is its first one; it tells the change as one with those since the last
        step.
        """
        with self._lock:
            last, now = self._era, self._memory.read()
            if self._before and now.last_s == last.before.last_s:
                was = last.before
                now = replace(now, lost=was.lost, lost_samples=was.lost_samples)
                self._why = "loss" if "loss" in (self._why, why) else why
            else:
                self._before, self._why = last.places, why
            self._era = Era(generation, frozenset(places), now)
            self._reports = self._untold = tells

    def look(self) -> None:
        """Report what is new; tell the last change once the speed since then is known."""
        with self._lock:
            now = self._memory.read()
            if self._reports and now.first_s > 0 and now != self._reported:
                self._reported = now
                self._report(**measures(self._era, now))
                self._tell_of(now, SETTLED_S)

    def ended(self) -> None:
        """The generation is over: report it for the last time, and tell what is known."""
        self.look()
        with self._lock:
            now = self._memory.read()
            self._tell_of(now)
            self._reports = False
            speed = self._era.speed(now)
            self._speed_before = speed if str(speed) else self._speed_before

    def _tell_of(self, now: StepCounts, settled_s: float = 0.0) -> None:
        if not self._untold or now.first_s <= 0 or now.last_s - now.first_s < settled_s:
            return
        self._untold = False
        era, before, why = self._era, self._before, self._why
        stood_s, (lost, samples), speed = era.stood_still_s(now), era.lost(now), era.speed(now)
        speeds = ((self._speed_before, "before"), (speed, "now"))
        parts = (
            _who(before, era.places, why),
            _lost(lost, samples),
            "" if stood_s is None else f"training stood still for {stood_s:.1f} s",
            ", ".join(f"{one} {when}" for one, when in speeds if str(one)),
        )
        self._tell("; ".join(part for part in parts if part))
        what = (_nodes(before), _nodes(era.places), why if before else "begin")
        write(self._memory, NodesChanged(*what, stood_s, lost, speed.samples_per_s))


def measures(era: Era, now: StepCounts) -> dict[str, float]:
    """Return the measures of a report; what is not known is left out."""
    found = {"steps": float(now.steps), "nodes": float(len(era.places))}
    found["generation"] = era.generation
    if now.samples is not None:
        found["samples"] = now.samples
        steps, before = now.steps - era.before.steps, era.before.samples or 0.0
        if now.noise and steps > 0:
            found["noise"] = now.noise * (now.samples - before) / steps
    if now.alone:
        found["alone"] = 1.0
    elif now.from_start is not None:
        found["from_start"] = now.from_start
        begun_s = max(now.again_s or now.first_s, now.kept_s)
        if now.from_start == 0 and now.kept_s > 0:
            found["unsaved_s"] = max(0.0, now.last_s - begun_s)
    stood_s = era.stood_still_s(now)
    if stood_s is not None and now.first_s > 0:
        pause_s = min(_LONGEST_PAUSE_S, max(0.0, now.first_s - era.before.last_s))
        found["pause_s"] = pause_s
        if now.again_s > 0:
            found["again_s"] = max(0.0, pause_s - stood_s)
    if now.other_ranks:
        found["other_ranks"] = 1.0  # the last: a report that is full goes without it
    return found


def _nodes(places: Iterable[Place]) -> tuple[str, ...]:
    return tuple(sorted(node for _, node in places))


def _who(before: Collection[Place], after: Collection[Place], why: str) -> str:
    """Say who came and who went; a failure of the script changes no node."""
    came, went = _nodes(set(after) - set(before)), _nodes(set(before) - set(after))
    size = counted(len(after), "node")
    if not before:
        return f"{', '.join(came)} begin{'s' if len(came) == 1 else ''} on {size}"
    were = "was lost" if len(went) == 1 else "were lost"
    parts = [f"{', '.join(came)} came"] if came else []
    parts += [f"{', '.join(went)} {were if why == 'loss' else 'left'}"] if went else []
    if not parts:
        parts = ["the script failed, and starts again" if why == "failure" else "the group is new"]
    return f"{', '.join(parts)}: {size}"


def _lost(steps: int | None, samples: float | None) -> str:
    """Say what was trained before and has to be trained again; empty if nothing was lost."""
    if not steps:
        return ""
    of = "" if samples is None else f" ({samples:,.0f} samples)"
    return f"1 step{of} was lost" if steps == 1 else f"{steps:,} steps{of} were lost"
