"""The planner: asks a child process for the optimum, checks its answer, has a plan in any case."""

from __future__ import annotations

import json
import logging
import math
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from bftrainer_slurm.planner.greedy import greedy_counts
from bftrainer_slurm.planner.placement import place
from bftrainer_slurm.planner.problem import Plan, Problem, feasible, value
from bftrainer_slurm.planner.wire import to_wire

logger = logging.getLogger(__name__)

CHILD = (sys.executable, "-m", "bftrainer_slurm.planner.child")
_START_LIMIT_S = 30.0  # python-mip's import, from a cold disk
_OVERTIME_S = 1.0  # CBC looks at its clock only now and then


class _NoAnswerError(Exception):
    """The child gave nothing usable; the message says why."""


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
        self._child: subprocess.Popen[str] | None = None
        self._ready = False
        self._start()

    def plan(self, problem: Problem) -> Plan:
        """Return the best plan found within the time limit, checked; never raises for the solver.

        Without a usable answer it is the greedy plan, with status ``greedy`` and the reason.
        """
        begin_s = self._clock()
        fallback = greedy_counts(problem)
        reason = ""
        try:
            counts, optimal = self._ask(problem)
            _check(problem, counts, fallback)
            status = "optimal" if optimal else "feasible"
        except _NoAnswerError as error:
            counts, status, reason = fallback, "greedy", str(error)
            logger.warning("greedy plan: %s", reason)
        return Plan(
            assignment=place(problem, counts),
            objective=value(problem, counts),
            solve_s=self._clock() - begin_s,
            status=status,
            reason=reason,
        )

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(self, problem: Problem) -> tuple[list[int], bool]:
        if not problem.contenders:
            return [], True
        request = to_wire(problem) | {"time_limit_s": self._time_limit_s}
        try:
            if self._child is None:
                self._start()
            if not self._ready:
                self._read(_START_LIMIT_S)
                self._ready = True
            self._write(json.dumps(request))
            answer = json.loads(self._read(self._time_limit_s + _OVERTIME_S))
            counts, optimal = answer["counts"], answer["optimal"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._give_up(f"the solver's answer cannot be read: {error}")
        if counts is None:
            raise _NoAnswerError("the solver found nothing within its time")
        if not isinstance(counts, list) or not all(type(count) is int for count in counts):
            self._give_up("the solver's answer is not a list of counts")
        return counts, optimal is True

    def _start(self) -> None:
        self._ready = False
        try:
            self._child = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        except OSError as error:
            self._child = None
            logger.warning("the solver cannot be started: %s", error)

    def _write(self, line: str) -> None:
        if self._child is None or self._child.stdin is None:
            raise _NoAnswerError("the solver cannot be started")
        self._child.stdin.write(line + "\n")
        self._child.stdin.flush()

    def _read(self, limit_s: float) -> str:
        if self._child is None or self._child.stdout is None:
            raise _NoAnswerError("the solver cannot be started")
        readable, _, _ = select.select([self._child.stdout], [], [], limit_s)
        if not readable:
            self._give_up(f"the solver did not answer within {limit_s:g} s")
        line = self._child.stdout.readline()
        if not line:
            self._give_up(f"the solver ended ({self._child.wait()})")
        return line

    def _give_up(self, why: str) -> None:
        """End a child that cannot be trusted any more; the next plan starts another."""
        self.close()
        raise _NoAnswerError(why)


def _check(problem: Problem, counts: list[int], fallback: list[int]) -> None:
    """Hold the answer to the problem itself: the solver is not believed."""
    if not feasible(problem, counts):
        raise _NoAnswerError("the solver's answer breaks a bound")
    reached, least = value(problem, counts), value(problem, fallback)
    if reached < least - 1e-6 * max(1.0, math.fabs(least)):
        raise _NoAnswerError("the solver's answer is worse than the greedy plan")
