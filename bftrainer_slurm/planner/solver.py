"""The planner: asks a child process for the optimum, checks its answer, has a plan in any case."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from bftrainer_slurm.planner.greedy import greedy_counts
from bftrainer_slurm.planner.greedy_by_class import greedy_shares
from bftrainer_slurm.planner.placement import place
from bftrainer_slurm.planner.problem import Count, Plan, Problem, Share, feasible, value
from bftrainer_slurm.planner.wire import to_wire
from bftrainer_slurm.planner.worker import SlowWorkerError, Worker, WorkerError

logger = logging.getLogger(__name__)

# -P: what lies in the folder that we were started in is not to be imported.
CHILD = (sys.executable, "-P", "-m", "bftrainer_slurm.planner.child")
_START_LIMIT_S = 30.0  # python-mip's import, from a cold disk
_OVERTIME_S = 1.0  # CBC looks at its clock only now and then
_TOLERANCE = 1e-6  # of objectives, relative to what is at stake


class _NoAnswerError(Exception):
    """The child gave nothing usable; the message says why."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """The child's counts, which are integers but not checked, and whether proven the best."""

    counts: list[Count]
    optimal: bool


class Planner:
    """Plans. Owns the child process, which is started ahead and again after a crash or a hang."""

    def __init__(
        self,
        time_limit_s: float = 5.0,
        command: Sequence[str] = CHILD,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._time_limit_s = time_limit_s
        self._command = command
        self._clock = clock
        self._worker: Worker | None = None
        self._started_s = 0.0
        self._ready = False
        self._why_not_started = ""
        self._start()

    def plan(self, problem: Problem) -> Plan:
        """Return the best plan found within the time limit, checked; never raises for the solver.

        Without a usable answer it is the greedy plan, with status ``greedy`` and the reason.
        """
        begin_s = self._clock()
        if not problem.contenders:
            return Plan({}, 0.0, 0.0, "optimal")
        deadline_s = begin_s + self._time_limit_s
        try:
            worker = self._ask(problem, deadline_s)
            fallback = _greedy(problem)  # while the child solves
            answer = self._hear(worker, deadline_s)
            counts = _checked(problem, answer, fallback)
            status, reason = "optimal" if answer.optimal else "feasible", ""
        except _NoAnswerError as error:
            counts, status, reason = _greedy(problem), "greedy", str(error)
            logger.warning("greedy plan: %s", reason)
        return Plan(
            assignment=place(problem, counts),
            objective=value(problem, counts),
            solve_s=self._clock() - begin_s,
            status=status,
            reason=reason,
        )

    def warm_up(self, limit_s: float = _START_LIMIT_S) -> None:
        """Wait until the child can solve, so that the next plan has its time for itself.

        Not needed for a plan: a child that takes longer than the time limit costs that plan only.
        """
        try:
            self._get_ready(limit_s)
        except (_NoAnswerError, WorkerError) as error:
            logger.warning("no solver: %s", error)

    def close(self) -> None:
        """End the child."""
        if self._worker is not None:
            self._worker.end()
            self._worker = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(self, problem: Problem, deadline_s: float) -> Worker:
        """Give the problem to the child; return the child."""
        try:
            worker = self._get_ready(self._left(deadline_s))
            request = to_wire(problem) | {"time_limit_s": self._left(deadline_s)}
            worker.send(json.dumps(request), self._left(deadline_s) + _OVERTIME_S)
        except WorkerError as error:
            self._restart()
            raise _NoAnswerError(f"the solver {error}") from error
        return worker

    def _hear(self, worker: Worker, deadline_s: float) -> _Answer:
        """Wait for what the child says to the problem."""
        try:
            answer = _read(worker.receive(self._left(deadline_s) + _OVERTIME_S))
        except WorkerError as error:
            self._restart()
            raise _NoAnswerError(f"the solver {error}") from error
        if "error" in answer:
            raise _NoAnswerError(f"the solver failed: {answer['error']}")
        counts = answer.get("counts")
        if counts is None and "counts" in answer:
            raise _NoAnswerError("the solver found nothing within its time")
        try:
            return _Answer(_counts(counts), answer.get("optimal") is True)
        except ValueError:
            self._restart()
            raise _NoAnswerError("the solver's answer is not a list of counts") from None

    def _left(self, deadline_s: float) -> float:
        return max(0.0, deadline_s - self._clock())

    def _get_ready(self, limit_s: float) -> Worker:
        if self._worker is None or (self._ready and self._worker.has_ended()):
            self._restart()
        if self._worker is None:
            raise _NoAnswerError(f"the solver {self._why_not_started}")
        if not self._ready:
            try:
                greeting = _read(self._worker.receive(limit_s))
            except SlowWorkerError:
                if self._clock() - self._started_s > _START_LIMIT_S:
                    raise
                raise _NoAnswerError("the solver has not started yet") from None
            if "ready" not in greeting:
                raise WorkerError(f"cannot start: {greeting.get('error', 'it gives no reason')}")
            self._ready = True
        return self._worker

    def _restart(self) -> None:
        """End a child that cannot be trusted any more and start another one."""
        self.close()
        self._start()

    def _start(self) -> None:
        self._ready = False
        self._started_s = self._clock()
        try:
            self._worker = Worker(self._command)
        except WorkerError as error:
            self._why_not_started = str(error)


def _read(line: str) -> dict[str, Any]:
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise WorkerError("talks nonsense") from error
    if not isinstance(answer, dict):
        raise WorkerError("talks nonsense")
    return answer


def _counts(answer: object) -> list[Count]:
    """Read integers, or lists of them: how many nodes of each class."""
    if not isinstance(answer, list):
        raise ValueError
    return [count if type(count) is int else _share(count) for count in answer]


def _share(answer: object) -> Share:
    if not isinstance(answer, list) or not all(type(count) is int for count in answer):
        raise ValueError
    return tuple(answer)


def _greedy(problem: Problem) -> list[Count]:
    return list(greedy_shares(problem) if problem.classes else greedy_counts(problem))


def _checked(problem: Problem, answer: _Answer, fallback: list[Count]) -> list[Count]:
    """Hold the answer to the problem itself: the solver is not believed.

    Returns the fallback where it is as good, since it changes less, or better, for lack of time.
    """
    if not feasible(problem, answer.counts):
        raise _NoAnswerError("the solver's answer breaks a bound")
    reached, least = value(problem, answer.counts), value(problem, fallback)
    if answer.optimal and least - reached > _TOLERANCE * _stake(problem):
        raise _NoAnswerError("the solver's answer is worse than the greedy plan")
    return answer.counts if reached > least else fallback


def _stake(problem: Problem) -> float:
    """The most that trainers can bring: gains and costs may cancel to next to nothing."""
    return problem.forward_time_s * sum(max(one.curve.values) for one in problem.contenders)
