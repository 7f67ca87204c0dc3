"""What is measured of trainers, in the history file: throughput, and what rescaling costs.

It is kept by user and job name, so that a trainer that is submitted again starts with it. It is
bounded: a user can fill the disk neither with measurements nor with names. The order is that in
which it was written, because clocks are set; what lies in the future does not count until then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bftrainer_slurm.controller.observe.reports import Reform, Runtime
from bftrainer_slurm.controller.state.database import Database, newest, put
from bftrainer_slurm.controller.state.statistics import Durations

THROUGHPUTS_A_SIZE = 16
_THROUGHPUTS_AN_ARRAY = 256
_ARRAYS_A_NAME = 4
_NAMES_A_USER = 100
RESCALES_A_KIND = 9
# Trainers that newer ones of their name, or newer names of their user, make superfluous.
_TOO_MUCH = """
WITH trainers AS (
    SELECT user, name, array, max(max(rowid)) OVER (PARTITION BY user, name) AS newest,
        row_number() OVER (PARTITION BY user, name ORDER BY max(rowid) DESC) AS place
    FROM looks GROUP BY user, name, array
), ranked AS (
    SELECT *, dense_rank() OVER (PARTITION BY user ORDER BY newest DESC) AS place_of_name
    FROM trainers
)
SELECT user, name, array FROM ranked WHERE place > ? OR place_of_name > ?
"""
_AHEAD_S = 60.0  # small differences between clocks are nothing


@dataclass(frozen=True, slots=True)
class Job:
    """They are kept by user and job name, so that the next job of that name can use them."""

    user: str
    name: str


@dataclass(frozen=True, slots=True)
class Throughput:
    """What a trainer (``array``) did on a number of nodes for so many seconds up to ``time_s``.

    ``rate`` is in ``unit`` a second: ``samples``, or ``steps``: steps times nodes, which samples
    are proportional to as long as the batch of a node stays the same.
    """

    array: int
    unit: str
    nodes: int
    time_s: float
    rate: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Rescale:
    """A change of size at ``time_s``, and the measured seconds without progress."""

    runtime: Runtime
    grew: bool
    time_s: float
    seconds: float


# The prior weighs as much as so many measured rescales: a single one that hung is not believed. It
# weighs one more for each ten minutes without a rescale: then another try is worth while.
_PRIOR_WEIGHS = 2
_FADES_S = 600.0
_MOST_COST_S = 120.0  # nobody can keep nodes by reporting long pauses


@dataclass(frozen=True, slots=True)
class RescaleCosts:
    """Seconds without progress: after a trainer grew, after it shrank, at a start without nodes."""

    up_s: float
    down_s: float
    start_s: float


# Until a trainer's own are measured. With torch 2.13 on CPUs.
PRIOR_COSTS = {
    Runtime.C10D: RescaleCosts(8.0, 7.0, start_s=8.0),
    Runtime.AGENT: RescaleCosts(0.3, 0.3, start_s=8.0),
    Runtime.WORKER: RescaleCosts(0.2, 0.2, start_s=8.0),
}


def cost_s(prior_s: float, measured: Sequence[Rescale], now_s: float) -> float:
    """Return what a change costs (seconds), as a median of what was measured and of the prior."""
    if not measured:
        return prior_s
    quiet_s = max(0.0, now_s - measured[-1].time_s)
    priors = [prior_s] * (_PRIOR_WEIGHS + int(quiet_s / _FADES_S))
    return min(median([*priors, *(one.seconds for one in measured)]), _MOST_COST_S)


class Measurements:
    """The part of the history file that plans use.

    ``pauses`` gets the cost of each change of size: ``up`` or ``down``.
    """

    def __init__(
        self, database: Database, pauses: Mapping[str, Durations], clock: Callable[[], float]
    ) -> None:
        self._database = database
        self._pauses = pauses
        self._clock = clock

    def add_throughput(self, job: Job, throughput: Throughput) -> None:
        """Note a trainer's throughput on a number of nodes; older throughputs are dropped."""
        array = {"user": job.user, "name": job.name, "array": throughput.array}
        size = {**array, "unit": throughput.unit, "nodes": throughput.nodes}
        self._database.write(
            put("looks", *size.values(), throughput.time_s, throughput.rate, throughput.seconds),
            newest("looks", THROUGHPUTS_A_SIZE, **size),
            newest("looks", _THROUGHPUTS_AN_ARRAY, **array),
        )

    def throughputs(self, job: Job) -> list[Throughput]:
        """Return the throughputs of all trainers of this name, oldest first."""
        rows = self._database.read(
            "SELECT array, unit, nodes, time_s, rate, seconds FROM looks "
            "WHERE user = ? AND name = ? AND time_s <= ? ORDER BY rowid",
            *(job.user, job.name, self._clock() + _AHEAD_S),
        )
        return [Throughput(*row) for row in rows]

    def add_rescale(self, job: Job, rescale: Rescale) -> None:
        """Note what a change of size really cost; older ones are dropped."""
        self._pauses["up" if rescale.grew else "down"].add(rescale.seconds)
        runtime, grew = rescale.runtime.value, int(rescale.grew)
        kind = {"user": job.user, "name": job.name, "runtime": runtime, "grew": grew}
        self._database.write(
            put("rescales", *kind.values(), rescale.time_s, rescale.seconds),
            newest("rescales", RESCALES_A_KIND, **kind),
        )

    def rescales(self, job: Job) -> list[Rescale]:
        """Return what changes of size of trainers of this name have cost, oldest first."""
        rows = self._database.read(
            "SELECT runtime, grew, time_s, seconds FROM rescales "
            "WHERE user = ? AND name = ? AND time_s <= ? ORDER BY rowid",
            *(job.user, job.name, self._clock() + _AHEAD_S),
        )
        return [Rescale(Runtime(runtime), bool(grew), *rest) for runtime, grew, *rest in rows]

    def set_reform(self, array: int, reform: Reform) -> None:
        """Note a trainer's present generation."""
        row = (reform.time_s, reform.runtime.value, reform.generation, reform.nodes)
        self._database.write(put("reforms", array, *row))

    def reform(self, array: int) -> Reform | None:
        """Return a trainer's present generation as far as is known."""
        rows = self._database.read(
            "SELECT time_s, runtime, generation, nodes FROM reforms WHERE array = ?", array
        )
        return next((Reform(time_s, Runtime(name), *rest) for time_s, name, *rest in rows), None)

    def forget_too_much(self, active: Collection[int]) -> None:
        """Drop what is known of all but the newest trainers of a name, and names of a user.

        ``active`` trainers (array ids) keep it.
        """
        drop = "DELETE FROM looks WHERE user = ? AND name = ? AND array = ?"
        too_much = self._database.read(_TOO_MUCH, _ARRAYS_A_NAME, _NAMES_A_USER)
        self._database.write(*((drop, row) for row in too_much if row[2] not in active))
