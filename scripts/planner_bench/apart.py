"""Runs the node-level model in a child process, which may hang or crash and is then replaced."""

from __future__ import annotations

import multiprocessing
import os
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Self

from bftrainer_slurm.planner.problem import Problem
from scripts.planner_bench import nodelevel

_START_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Run:
    """One run: its seconds from problem to answer, the limit's where ``status`` is ``limit``.

    ``status`` is ``optimal`` (proven), ``limit`` or ``crashed``; ``nodes`` is what was found.
    """

    seconds: float
    status: str
    nodes: tuple[frozenset[str], ...] | None


class NodeLevel:
    """The child; it is started ahead, so that importing python-mip is in nobody's time.

    ``overtime_s``: how long after the limit it is ended. CBC looks at its clock only now and then.
    """

    def __init__(self, overtime_s: float = 5.0) -> None:
        self._overtime_s = overtime_s
        self._start()

    @property
    def pid(self) -> int | None:
        """The child's process id."""
        return self._process.pid

    def solve(self, problem: Problem, limit_s: float) -> Run:
        """Solve one problem; a child that takes longer than the limit is ended."""
        begin_s = time.monotonic()
        try:
            self._pipe.send((problem, limit_s))
            if not self._pipe.poll(limit_s + self._overtime_s):
                self._restart()
                return Run(limit_s, "limit", None)
            answer: nodelevel.Answer = self._pipe.recv()
        except (EOFError, OSError):
            self._restart()
            return Run(time.monotonic() - begin_s, "crashed", None)
        seconds = time.monotonic() - begin_s
        if answer.optimal and seconds <= limit_s:
            return Run(seconds, "optimal", answer.nodes)
        return Run(limit_s, "limit", answer.nodes)

    def close(self) -> None:
        """End the child."""
        self._pipe.close()
        self._process.kill()
        self._process.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _restart(self) -> None:
        self.close()
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, end = context.Pipe()
        self._process = context.Process(target=_answer, args=(end,), daemon=True)
        self._process.start()
        end.close()  # the child's: if it stayed open here, its death would not be seen
        if not self._pipe.poll(_START_LIMIT_S):
            raise TimeoutError(f"the node-level child has not started within {_START_LIMIT_S:g} s")
        self._pipe.recv()


def _answer(pipe: Connection) -> None:
    """Be the child: a problem in, an answer out, until the parent has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # CBC writes there whatever it is told
    pipe.send("ready")
    while True:
        try:
            problem, limit_s = pipe.recv()
        except EOFError:
            return
        pipe.send(nodelevel.solve(problem, limit_s))
