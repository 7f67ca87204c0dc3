"""Training in process with a stand-in for NCCL: nodes come, go and freeze at any point of a step.

A torchrun starts a process again that ends by itself, from the others' state or a checkpoint.
``NCCL_RUNS=200 pytest tests/elastic/test_fakenccl.py`` tries many.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from scripts.labcluster.keeper import started_keeper
from scripts.labcluster.waiting import wait_until
from tests.elastic import strikes
from tests.elastic.strikes import Strike, has_struck
from tests.elastic.workers import Workers, fork_with, started_workers

pytestmark = [pytest.mark.torch, pytest.mark.timeout(0 if "NCCL_RUNS" in os.environ else 1800)]

RUNS = int(os.environ.get("NCCL_RUNS", "1"))
SIZE = 60  # samples an epoch
OF_A_STEP = ("forward", "launch", "flight", "arrival", "backward", "update")
OF_A_CHANGE = ("init", "abort")

fork_with("tests.elastic.fakenccl")


class Nodes:
    """The nodes of a training, each with a torchrun that starts its process again if that fails."""

    def __init__(self, workers: Workers) -> None:
        self.workers = workers
        self.present: list[int] = []
        self.restarts = 0
        self._fresh = 0
        self._over = threading.Event()
        self._changing = threading.Lock()
        self._watch = threading.Thread(target=self._start_again, daemon=True)
        self._watch.start()

    def join(self) -> None:
        with self._changing:
            self.workers.start(self._fresh)
            self.present.append(self._fresh)
            self._fresh += 1

    def lose(self, task: int) -> None:
        """Take a node away whose process is about to end."""
        with self._changing:
            self.present.remove(task)
            [process] = self.workers.processes[task]
        process.join(120)
        assert process.exitcode is not None
        assert process.exitcode < 0

    def settle(self) -> None:
        self.workers.wait_for_world(len(self.present), *self.present)
        self.workers.wait_for_steps(self.present[0])

    def codes(self) -> list[int | None]:
        """The exit codes. Two threads must not ask at once: one of them would be told 255."""
        with self._changing:
            return [self.workers.processes[task][0].exitcode for task in self.present]

    def close(self) -> None:
        self._over.set()
        self._watch.join()

    def _start_again(self) -> None:
        while not self._over.wait(0.2):
            with self._changing:
                for task in self.present:
                    if self.workers.processes[task][0].exitcode == 1:
                        self.restarts += 1
                        self.workers.start(task)


@contextmanager
def training(nodes: int) -> Iterator[Nodes]:
    with TemporaryDirectory() as name, started_keeper(Path(name)) as keeper:
        folder = Path(name) / "run"
        options: dict[str, Any] = {
            "nccl": True,
            "size": SIZE,
            "epochs": 100_000,
            "stop_after_epoch": str(folder / "stop"),
            "checkpoint": str(Path(name) / "checkpoints"),
        }
        with started_workers(keeper, folder, **options) as workers:
            workers.own(8)
            running = Nodes(workers)
            try:
                for _ in range(nodes):
                    running.join()
                running.settle()
                yield running
            finally:
                running.close()


def happen(nodes: Nodes, strike: Strike) -> None:
    """Strike a node, and wait until all that are left train together again."""
    folder, task = nodes.workers.folder, nodes.present[strike.victim % len(nodes.present)]
    (folder / f"struck.n{task}").unlink(missing_ok=True)
    strike.arm(folder, task)
    if strike.point in OF_A_CHANGE:
        nodes.join()
    restarts = nodes.restarts
    wait_until(lambda: has_struck(folder, task))
    if strike.kind in ("kill", "leave"):
        nodes.lose(task)
    elif strike.kind == "join":
        nodes.join()
    elif strike.kind == "freeze":
        others = [one for one in nodes.present if one != task]
        nodes.workers.wait_for_world(len(others), *others)
        nodes.workers.signal(task, signal.SIGCONT)
    else:
        wait_until(lambda: nodes.restarts > restarts)
    while len(nodes.present) < 3:
        nodes.join()
    nodes.settle()


def end(nodes: Nodes) -> None:
    """Let the training end with its epoch; check what all have."""
    workers = nodes.workers
    Path(workers.options["stop_after_epoch"]).touch()
    wait_until(lambda: not {None, 1}.intersection(nodes.codes()))
    assert nodes.codes() == [0] * len(nodes.present)
    ends = {workers.ends()[f"end.n{task}.0"] for task in nodes.present}
    assert len(ends) == 1
    for task in nodes.present:
        weights = torch.load(workers.folder / f"weights.n{task}.0")
        assert all(bool(one.isfinite().all()) for one in weights.values())


HAPPENS, VICTIMS = st.sampled_from(strikes.HAPPENS), st.integers(0, 2)
STRIKES = st.one_of(
    st.builds(Strike, HAPPENS, st.sampled_from(OF_A_STEP), st.integers(1, 3), VICTIMS),
    st.builds(Strike, HAPPENS, st.sampled_from(OF_A_CHANGE), st.just(1), VICTIMS),
    st.builds(Strike, st.sampled_from(strikes.HANGS), st.just("abort"), st.just(1), VICTIMS),
)


@settings(
    max_examples=RUNS,
    deadline=None,
    derandomize="NCCL_RUNS" not in os.environ,
    phases=(Phase.explicit, Phase.generate),
)
@given(many=st.lists(STRIKES, min_size=3, max_size=3))
@example(
    [
        Strike("kill", "flight", 2, 0),
        Strike("freeze", "init", 1, 1),
        Strike("hang", "abort", 1, 2),
    ]
)
def test_whatever_happens_all_have_the_same_weights_and_none_of_garbage(
    many: list[Strike],
) -> None:
    with training(3) as nodes:
        for strike in many:
            happen(nodes, strike)
        end(nodes)
