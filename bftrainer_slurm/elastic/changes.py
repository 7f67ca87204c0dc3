"""What a job's own log says when its trainer's nodes change: one plain line a change.

It says who came or went, why, how long training stood still, and what it trains before and after.
The numbers come from whoever trains here; the groups are formed elsewhere.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from bftrainer_slurm.elastic.listeners import NodesChanged
from bftrainer_slurm.elastic.steps import Counts

SETTLED_S = 10.0  # as long as training goes on before its speed is told

_TORCHRUN = "torch.distributed.elastic.agent.server.api"

Place = tuple[int, str]  # an element's task, and its node

_NOTHING = Counts(0, None, 0.0, 0.0, in_process=False)


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a training goes; without a word where that is not known."""

    steps_per_s: float | None = None
    samples_per_s: float | None = None

    def __str__(self) -> str:
        if self.samples_per_s is not None:
            return f"{self.samples_per_s:,.0f} samples/s"
        return "" if self.steps_per_s is None else f"{self.steps_per_s:,.3g} steps/s"


def say(text: str) -> None:
    """Write a line to the job's log at once: this process may have no time left."""
    sys.stderr.flush()
    os.write(2, f"bftrainer: {text}\n".encode())


def given_back(node: str, planned: bool | None) -> str:
    """Say why a node's processes are about to end; what torch says of it looks like failure.

    ``planned``: the keeper has let it go before Slurm's signal came; None: it is not known here.
    """
    to = "to an ordinary job, unless somebody cancelled this one"
    if planned is not False:
        to = "as the plan says" if planned else "to an ordinary job, or as the plan says"
    return f"{node} is given back {to}; this is no failure"


class FirstWord(logging.Filter):
    """Calls ``say_it`` before torchrun logs that it was signalled, and lets all records pass.

    By then the thread that hears of signals may not have had its turn.
    """

    def __init__(self, say_it: Callable[[], None]) -> None:
        super().__init__()
        self._say_it = say_it
        logging.getLogger(_TORCHRUN).addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Look at a record."""
        if "death signal" in str(record.msg):
            self._say_it()
        return True


class ChangeLog:
    """The changes that one process lives through; of each generation its first node tells.

    It says them in the job's log (``tell``), and to ``hear``. Methods may be called from several
    threads.
    """

    def __init__(
        self,
        tell: Callable[[str], None] = say,
        hear: Callable[[NodesChanged], None] = lambda change: None,
    ) -> None:
        self._tell = tell
        self._hear = hear
        self._lock = threading.Lock()
        self._places: frozenset[Place] = frozenset()
        self._base = _NOTHING  # when the generation began
        self._speed_before = Speed()
        self._line: str | None = None  # of the last change, not told yet
        self._change: NodesChanged | None = None  # the same, as far as it is known

    def began(self, places: Iterable[Place], why: str, now: Counts, tells: bool) -> None:
        """A generation of elements on these ``places`` begins, as ``why`` has ended the last one.

        ``tells``: this process is its first.
        """
        with self._lock:
            before, self._places = self._places, frozenset(places)
            self._base = now
            self._line = _who(before, self._places, why) if tells else None
            names = [tuple(sorted(node for _, node in places)) for places in (before, self._places)]
            self._change = NodesChanged(names[0], names[1], why if before else "begin")

    def trained(self, now: Counts) -> None:
        """Training goes on; tells of the last change when its speed since is known."""
        if now.first_s > 0 and now.last_s - now.first_s >= SETTLED_S:
            self._tell_of(now)

    def ended(self, now: Counts) -> None:
        """The generation is over; tells of its beginning what is known by now."""
        if now.first_s > 0:
            self._tell_of(now)
        with self._lock:
            speed = _speed(self._base, now)
            self._speed_before = speed if str(speed) else self._speed_before

    def _tell_of(self, now: Counts) -> None:
        with self._lock:
            line, self._line = self._line, None
            if line is None or self._change is None:
                return
            before, speed = self._speed_before, _speed(self._base, now)
            stood_s = now.first_s - self._base.last_s if self._base.last_s > 0 else None
        speeds = [f"{one} {when}" for one, when in ((before, "before"), (speed, "now")) if str(one)]
        stood = [] if stood_s is None else [f"training stood still for {stood_s:.1f} s"]
        self._tell("; ".join([line, *stood, *([", ".join(speeds)] if speeds else [])]))
        self._hear(
            replace(
                self._change,
                stood_still_s=stood_s,
                steps_per_s_before=before.steps_per_s,
                steps_per_s=speed.steps_per_s,
                samples_per_s_before=before.samples_per_s,
                samples_per_s=speed.samples_per_s,
            )
        )


def _who(before: Collection[Place], after: Collection[Place], why: str) -> str:
    """Say who came and who went; a failure of the script changes nobody's place."""
    came = sorted(node for _, node in set(after) - set(before))
    went = sorted(node for _, node in set(before) - set(after))
    size = f"{len(after)} node{'s' if len(after) != 1 else ''}"
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


def _speed(base: Counts, now: Counts) -> Speed:
    """Return what was trained in a second from the generation's first step on."""
    steps, seconds = now.steps - base.steps, now.last_s - now.first_s
    if steps < 2 or seconds <= 0 or now.first_s <= base.last_s:
        return Speed()
    share = (steps - 1) / steps  # the first step only starts the clock
    samples = None
    if now.samples is not None and base.samples is not None:
        samples = (now.samples - base.samples) * share / seconds
    return Speed(steps * share / seconds, samples)
