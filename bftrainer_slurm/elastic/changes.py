"""What a job's own log says when its trainer's nodes change: one plain line for each change.

It says who came or went, why, what has to be trained again, how long training stood still, and the
speed before and after.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from bftrainer_slurm.elastic.listeners import NodesChanged
from bftrainer_slurm.elastic.log import say
from bftrainer_slurm.elastic.memory import StepCounts
from bftrainer_slurm.words import counted

SETTLED_S = 10.0  # training goes on for so long before its speed is reported

_TORCHRUN = "torch.distributed.elastic.agent.server.api"

Place = tuple[int, str]  # an element's task, and its node


@dataclass(frozen=True, slots=True)
class Era:
    """A time in which the same nodes train: one generation of elements on these places."""

    generation: int
    places: frozenset[Place]
    before: StepCounts  # when it began


_NONE = Era(0, frozenset(), StepCounts(0, None, 0.0, 0.0))


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a training goes; its text is empty if that is not known."""

    steps_per_s: float | None = None
    samples_per_s: float | None = None

    def __str__(self) -> str:
        if self.samples_per_s is not None:
            return f"{self.samples_per_s:,.0f} samples/s"
        return "" if self.steps_per_s is None else f"{self.steps_per_s:,.3g} steps/s"


class GivenBack(logging.Filter):
    """Says once that a node is given back, before torchrun logs that it got a signal.

    torch's own messages look like a failure. The thread that watches signals may not have run when
    torchrun logs, or be about to say it: then torchrun's message waits.
    """

    def __init__(self, node: str, tell: Callable[[str], None] = say) -> None:
        super().__init__()
        self.told = False
        self._node = node
        self._tell = tell
        self._lock = threading.Lock()
        logging.getLogger(_TORCHRUN).addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Let a record pass; first say it, if torchrun got a signal."""
        if "death signal" in str(record.msg):
            self.say()
        return True

    def say(self, planned: bool = False) -> None:
        """Say it if it has not been; ``planned``: the keeper let the node go before Slurm did."""
        unplanned = "to an ordinary job, unless somebody cancelled this one"
        to = "as the plan says" if planned else unplanned
        with self._lock:
            told, self.told = self.told, True
            if not told:
                self._tell(f"{self._node} is given back {to}; this is no failure")


class ChangeLog:
    """The changes that one process sees; only a generation's first node reports its change.

    ``era`` is that of the present generation. It passes them to the job's log (``tell``), and to
    ``hear``. Methods may be called from several threads.
    """

    def __init__(
        self,
        tell: Callable[[str], None] = say,
        hear: Callable[[NodesChanged], None] = lambda change: None,
    ) -> None:
        self._tell = tell
        self._hear = hear
        self._lock = threading.Lock()
        self.era = _NONE
        self._before: frozenset[Place] = frozenset()  # where the last step before it was made
        self._why = ""
        self._speed_before = Speed()
        self._untold = False  # the last change

    def began(self, era: Era, why: str, tells: bool) -> None:
        """A generation begins; ``why`` ended the last one.

        ``tells``: this process reports the change, as one with those since the last step.
        """
        with self._lock:
            last = self.era
            if self._before and era.before.last_s == last.before.last_s:
                lost, samples = last.before.lost, last.before.lost_samples
                era = replace(era, before=replace(era.before, lost=lost, lost_samples=samples))
                self._why = "loss" if "loss" in (self._why, why) else why
            else:
                self._before, self._why = last.places, why
            self.era, self._untold = era, tells

    def trained(self, now: StepCounts) -> None:
        """Training goes on; report the last change once the speed since then is known."""
        if now.first_s > 0 and now.last_s - now.first_s >= SETTLED_S:
            self._tell_of(now)

    def ended(self, now: StepCounts) -> None:
        """The generation is over; if its change is not reported yet, report what is known."""
        if now.first_s > 0:
            self._tell_of(now)
        with self._lock:
            speed = _speed(self.era.before, now)
            self._speed_before = speed if str(speed) else self._speed_before

    def _tell_of(self, now: StepCounts) -> None:
        with self._lock:
            untold, self._untold = self._untold, False
            era, before, why, earlier = self.era, self._before, self._why, self._speed_before
        if not untold:
            return
        base, speed = era.before, _speed(era.before, now)
        stood_s = lost = samples = None
        if base.last_s > 0:
            stood_s = (now.again_s or now.first_s) - base.last_s
            lost = None if now.lost is None else now.lost - (base.lost or 0)
            if now.lost_samples is not None:
                samples = now.lost_samples - (base.lost_samples or 0.0)
        speeds = [
            f"{one} {when}" for one, when in ((earlier, "before"), (speed, "now")) if str(one)
        ]
        stood = "" if stood_s is None else f"training stood still for {stood_s:.1f} s"
        parts = [_who(before, era.places, why), _lost(lost, samples), stood, ", ".join(speeds)]
        self._tell("; ".join(part for part in parts if part))
        self._hear(
            NodesChanged(
                _nodes(before),
                _nodes(era.places),
                why if before else "begin",
                stood_still_s=stood_s,
                steps_per_s_before=earlier.steps_per_s,
                steps_per_s=speed.steps_per_s,
                samples_per_s_before=earlier.samples_per_s,
                samples_per_s=speed.samples_per_s,
                lost_steps=lost,
                lost_samples=samples,
            )
        )


def _nodes(places: Iterable[Place]) -> tuple[str, ...]:
    return tuple(sorted(node for _, node in places))


def _who(before: Collection[Place], after: Collection[Place], why: str) -> str:
    """Say who came and who went; a failure of the script changes no node."""
    came = sorted(node for _, node in set(after) - set(before))
    went = sorted(node for _, node in set(before) - set(after))
    size = counted(len(after), "node")
    if not before:
        return f"{', '.join(came)} begin{'s' if len(came) == 1 else ''} on {size}"
    lost = (
        "was lost" if why == "loss" and len(went) == 1 else "were lost" if why == "loss" else "left"
    )
    parts = [f"{', '.join(came)} came"] if came else []
    parts += [f"{', '.join(went)} {lost}"] if went else []
    if not parts:
        parts = ["the script failed, and starts again" if why == "failure" else "the group is new"]
    return f"{', '.join(parts)}: {size}"


def _lost(steps: int | None, samples: float | None) -> str:
    """Say what was trained before and has to be trained again; empty if nothing was lost."""
    if not steps:
        return ""
    of = "" if samples is None else f" ({samples:,.0f} samples)"
    return f"1 step{of} was lost" if steps == 1 else f"{steps:,} steps{of} were lost"


def _speed(base: StepCounts, now: StepCounts) -> Speed:
    """Return the speed of the training since the generation's first step."""
    steps, seconds = now.steps - base.steps, now.last_s - now.first_s
    if steps < 2 or seconds <= 0 or now.first_s <= base.last_s:
        return Speed()
    share = (steps - 1) / steps  # the first step only starts the clock
    samples = None
    if now.samples is not None and base.samples is not None:
        samples = (now.samples - base.samples) * share / seconds
    return Speed(steps * share / seconds, samples)
