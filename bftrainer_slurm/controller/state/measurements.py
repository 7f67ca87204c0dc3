"""What is measured of trainers: throughput, and what rescaling costs. A history file keeps it.

It is kept by user and job name, so that a trainer that is submitted again starts with it. It is
bounded: a user can fill the disk neither with measurements nor with names. The order is that in
which it was written, because clocks are set; what lies in the future does not count until then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from bftrainer_slurm.controller.observe.reports import Reform, Report, Runtime
from bftrainer_slurm.controller.state.database import Database, newest, put
from bftrainer_slurm.controller.state.statistics import Durations

_WARM_S = 15.0  # caches, lazy imports, autotuners: the first steps of a generation are slow
_STRETCH_S = 20.0
# Stretches grow with the generation: only a few are kept, and a node that is slow for some minutes
# must not be in most of them.
_LONGEST_S = 80.0
_SHORTEST_S = 10.0  # the shortest last stretch of a generation
_MOST_PER_NODE = 1e9  # samples/s
_UNIX_S = 1e9  # under c10d the number of a generation is the Unix second in which it began
THROUGHPUTS_A_SIZE = 16
THROUGHPUTS_AN_ARRAY = 256
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

    @property
    def size(self) -> tuple[str, int]:
        """What it is a throughput of."""
        return self.unit, self.nodes


@dataclass(frozen=True, slots=True)
class Rescale:
    """A change of size at ``time_s``, and the measured seconds without progress."""

    runtime: Runtime
    grew: bool
    time_s: float
    seconds: float

    @property
    def kind(self) -> tuple[Runtime, bool]:
        """What it is compared with."""
        return self.runtime, self.grew


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
            newest("looks", THROUGHPUTS_AN_ARRAY, **array),
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


@dataclass(slots=True)
class _Generation:
    """The measured generation, since its first report."""

    number: int | None
    nodes: int
    since_s: float
    begin: Report | None = None  # of the stretch
    last: Report | None = None

    @property
    def stretch_s(self) -> float:
        """How long a stretch lasts: as long as the measurement before it, within bounds."""
        if self.begin is None:
            return _STRETCH_S
        before_s = self.begin.time_s - self.since_s - _WARM_S
        return min(max(_STRETCH_S, before_s), _LONGEST_S)


class Stopwatch:
    """The state of one trainer's measurements. ``formed`` is its present generation."""

    def __init__(self, array: int, formed: Reform | None = None) -> None:
        self.formed = formed
        self._array = array
        self._present: _Generation | None = None
        self._trained_on: int | None = None  # nodes of the last generation that made progress
        self._paid = True  # whether the present generation's pause is known

    @property
    def runtime(self) -> Runtime | None:
        """How the trainer follows its nodes; None if it has not reported anything yet."""
        present, formed = self._present, self.formed
        if present is not None and (formed is None or (present.number or 0) >= _UNIX_S):
            return Runtime.C10D
        return None if formed is None else formed.runtime

    def reformed(self, reform: Reform) -> bool:
        """Take a note on a new generation; return whether it is the trainer's.

        The agents of an in-process trainer form generations too, before its workers do.
        """
        formed = self.formed
        in_process = formed is not None and formed.runtime is Runtime.WORKER
        if in_process and reform.runtime is Runtime.AGENT and reform.generation > 1:
            return False
        if formed is not None and formed.runtime is not reform.runtime:
            self._trained_on = None
        elif formed is not None and self._trains_in(formed.generation):
            self._trained_on = formed.nodes
        self.formed, self._paid = reform, False
        return True

    def report(
        self, report: Report, nodes: int, gpus: int = 1
    ) -> tuple[list[Throughput], list[Rescale]]:
        """Take a report; return what is measured by then, and the cost that it shows.

        ``nodes`` is how many nodes the trainer has, if the report does not say. What is measured is
        by nodes times ``gpus``.
        """
        size = report.nodes or nodes
        if size < 1:
            return [], []
        cost = self._cost(report, size)
        size *= gpus
        present = self._present
        if present is None or (report.generation, size) != (present.number, present.nodes):
            throughputs = self._measured(_SHORTEST_S)
            self._present = _Generation(report.generation, size, report.time_s)
            return throughputs, cost
        if report.time_s - present.since_s < _WARM_S:
            return [], cost
        if present.last is None or _fell(present.last, report):
            present.begin = present.last = report
            return [], cost
        present.last = report
        return self._measured(present.stretch_s), cost

    def _measured(self, least_s: float) -> list[Throughput]:
        """End the present stretch if it has lasted long enough."""
        present = self._present
        if present is None or present.begin is None or present.last is None:
            return []
        begin, end = present.begin, present.last
        seconds = end.time_s - begin.time_s
        if seconds < least_s:
            return []
        present.begin = end
        unit, amount = "samples", _gained(begin.samples, end.samples)
        if amount is None:
            unit, amount = "steps", _gained(begin.steps, end.steps)
            amount = None if amount is None else amount * present.nodes
        if not amount:
            return []  # it stood still, or counts nothing
        rate = amount / seconds
        if rate > _MOST_PER_NODE * present.nodes:
            return []  # no trainer is so fast
        return [Throughput(self._array, unit, present.nodes, end.time_s, rate, seconds)]

    def _cost(self, report: Report, nodes: int) -> list[Rescale]:
        """Return the pause before this generation, once, if the size has changed."""
        formed, before = self.formed, self._trained_on
        if formed is None or self._paid or report.generation not in (None, formed.generation):
            return []
        if before is None or before == nodes:
            self._paid = True
        if self._paid or not report.pause_s:
            return []
        self._paid = True
        return [Rescale(formed.runtime, nodes > (before or 0), report.time_s, report.pause_s)]

    def _trains_in(self, generation: int) -> bool:
        return self._present is not None and self._present.number in (None, generation)


def _fell(before: Report, after: Report) -> bool:
    """Whether less is done than before, which is impossible within one generation."""
    gains = _gained(before.samples, after.samples), _gained(before.steps, after.steps)
    return any(gain is not None and gain < 0 for gain in gains)


def _gained(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before
