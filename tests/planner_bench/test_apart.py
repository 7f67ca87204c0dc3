"""A node-level solver that hangs or dies costs its own run, never the benchmark."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from scripts.planner_bench.apart import NodeLevel
from scripts.planner_bench.instances import made

PROBLEM = made(2, 4, 0)


@pytest.fixture
def child() -> Iterator[NodeLevel]:
    with NodeLevel(overtime_s=0.1) as child:
        yield child


def test_what_is_not_proven_within_the_limit_counts_as_the_limit(child: NodeLevel) -> None:
    run = child.solve(made(10, 64, 0), 0.001)
    assert (run.seconds, run.status) == (0.001, "limit")


def test_a_child_that_hangs_is_replaced(child: NodeLevel) -> None:
    assert child.pid is not None
    os.kill(child.pid, signal.SIGSTOP)
    assert child.solve(PROBLEM, 0.1).status == "limit"
    assert child.solve(PROBLEM, 60.0).status == "optimal"


def test_a_child_that_dies_is_replaced(child: NodeLevel) -> None:
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    assert child.solve(PROBLEM, 60.0).status == "crashed"
    assert child.solve(PROBLEM, 60.0).status == "optimal"
