"""The planner: asks a child process for the optimum, checks its answer, and always has a plan."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

import msgspec

from bftrainer_slurm.own_python import own_python
from bftrainer_slurm.planner.greedy import greedy_shares
from bftrainer_slurm.planner.instance import Answer, Request, anonymous
from bftrainer_slurm.planner.packing import Found, Nodes, is_packed, on_nodes, packed
from bftrainer_slurm.planner.placement import place
from bftrainer_slurm.planner.problem import (
    Plan,
    Problem,
    feasible,
    value,
)
from bftrainer_slurm.planner.worker import SlowWorkerError, Worker, WorkerError

logger = logging.getLogger(__name__)

CHILD = own_python("-m", "bftrainer_slurm.planner.child")
_START_LIMIT_S = 30.0  # python-mip's import, from a cold disk
_ITS_SHARE = 0.8  # the child's share of the time: CBC looks at its clock only now and then
_TOLERANCE = 1e-4  # the solver's gap, relative to what is at stake


class _NoAnswerError(Exception):
    """The child gave nothing usable; the message says why."""


class Planner:
    """Makes plans. It starts the child process in advance, and again after a crash or a hang."""

    def __init__(self, time_limit_s: float = 5.0, command: Sequence[str] = CHILD) -> None:
        self._time_limit_s = time_limit_s
        self._command = command
        self._worker: Worker | None = None
        self._started_s = 0.0
        self._ready = False
        self._why_not_started = ""
        self._start()

    def plan(self, problem: Problem) -> Plan:
        """Return the best plan found within the time limit, checked; never raises for the solver.

        Without a usable answer this is the greedy plan, with status ``greedy`` and the reason.
        """
        begin_s = time.monotonic()
        if not problem.trainers:
            return Plan({}, 0.0, 0.0, "optimal")
        deadline_s = begin_s + self._time_limit_s
        try:
            worker = self._ask(problem, deadline_s)
            fallback = _greedy(problem)  # while the child solves
            answer = self._hear(worker, problem, deadline_s)
            status, reason = "optimal" if answer.optimal else "feasible", answer.reason
            best = _no_worse(problem, answer, fallback)
        except _NoAnswerError as error:
            best, status, reason = _greedy(problem), "greedy", str(error)
        except BaseException:
            self.close()  # the next problem must not get the answer to this one
            raise
        if reason:
            logger.warning("%s plan: %s", status, reason)
        return Plan(
            assignment=_assignment(problem, best),
            objective=value(problem, best.shares),
            solve_s=time.monotonic() - begin_s,
            status=status,
            reason=reason,
            bound=best.bound,
        )

    def warm_up(self, limit_s: float = _START_LIMIT_S) -> None:
        """Wait until the child can solve, so that the next plan has its whole time.

        This is not necessary: if a child starts too slowly, only that plan is affected.
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
            request = Request(anonymous(problem), _ITS_SHARE * self._left(deadline_s))
            worker.send(msgspec.json.encode(request), self._left(deadline_s))
        except WorkerError as error:
            self._restart()
            raise _NoAnswerError(f"the solver {error}") from error
        return worker

    def _hear(self, worker: Worker, problem: Problem, deadline_s: float) -> Found:
        """Take each better plan that the child sends until it says whether the last one is best.

        If it never says so, the last plan is the answer.
        """
        best: Found | None = None
        try:
            while best is None or self._left(deadline_s) > 0:
                line = _read(worker.receive(self._left(deadline_s)))
                if line.error is not None:
                    raise WorkerError(f"failed: {line.error}")
                if best is not None and line.optimal is not None:
                    return replace(best, optimal=line.optimal, bound=line.bound)
                found = _checked(problem, line)
                if best is None or value(problem, found.shares) > value(problem, best.shares):
                    best = found
            raise SlowWorkerError("did not finish in time")
        except WorkerError as error:
            self._restart()
            if best is None:
                raise _NoAnswerError(f"the solver {error}") from error
            return replace(best, reason=f"the solver {error}")

    def _left(self, deadline_s: float) -> float:
        return max(0.0, deadline_s - time.monotonic())

    def _get_ready(self, limit_s: float) -> Worker:
        if self._worker is None or (self._ready and self._worker.has_ended()):
            self._restart()
        if self._worker is None:
            raise _NoAnswerError(f"the solver {self._why_not_started}")
        if not self._ready:
            try:
                greeting = _read(self._worker.receive(limit_s))
            except SlowWorkerError:
                if time.monotonic() - self._started_s > _START_LIMIT_S:
                    raise
                raise _NoAnswerError("the solver has not started yet") from None
            if not greeting.ready:
                raise WorkerError(f"cannot start: {greeting.error or 'it gives no reason'}")
            self._ready = True
        return self._worker

    def _restart(self) -> None:
        """End a child that cannot be trusted any more and start another one."""
        self.close()
        self._start()

    def _start(self) -> None:
        self._ready = False
        self._started_s = time.monotonic()
        try:
            self._worker = Worker(self._command)
        except WorkerError as error:
            self._why_not_started = str(error)


def _read(line: bytes) -> Answer:
    try:
        return msgspec.json.decode(line, type=Answer)
    except (ValueError, RecursionError) as error:
        raise WorkerError("talks nonsense") from error


def _greedy(problem: Problem) -> Found:
    """Return the plan without a solver."""
    shares = greedy_shares(problem)
    return packed(problem, shares) if problem.in_parts else Found(shares)


def _assignment(problem: Problem, best: Found) -> dict[str, Nodes]:
    """Return the nodes of each trainer, by its key."""
    if best.nodes is None:
        return place(problem, best.shares)
    return dict(zip((one.key for one in problem.trainers), best.nodes, strict=True))


def _checked(problem: Problem, line: Answer) -> Found:
    """Return the child's plan. Raises WorkerError if it sends none, or one that breaks a bound."""
    if not problem.in_parts:
        if line.shares is None:
            raise WorkerError("sends something that is not a plan")
        if not feasible(problem, line.shares):
            raise WorkerError("sends a plan that breaks a bound")
        return Found(line.shares)
    # Of each trainer the places of its nodes, in the order in which the child got them.
    names, places = sorted(problem.pool), line.nodes
    if places is None or len(places) != len(problem.trainers):
        raise WorkerError("sends something that is not a plan")
    if any(each and not 0 <= min(each) <= max(each) < len(names) for each in places):
        raise WorkerError("sends a plan that breaks a bound")
    nodes = [frozenset(names[at] for at in each) for each in places]
    if not is_packed(problem, nodes):
        raise WorkerError("sends a plan that breaks a bound")
    return on_nodes(problem, nodes)


def _no_worse(problem: Problem, answer: Found, fallback: Found) -> Found:
    """Return the answer or, if that is as good, the fallback."""
    reached, least = value(problem, answer.shares), value(problem, fallback.shares)
    if answer.optimal and least - reached > _TOLERANCE * _stake(problem):
        raise _NoAnswerError("the solver's answer is worse than the greedy plan")
    return answer if reached > least else replace(fallback, bound=answer.bound)


def _stake(problem: Problem) -> float:
    """The most that trainers can be worth: gains and costs may cancel to almost nothing."""
    return problem.forward_time_s * sum(max(one.curve.values) for one in problem.trainers)
