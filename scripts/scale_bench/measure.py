"""Runs the daemon's ``run`` in this process, and a simulated cluster beside it in threads.

The daemon has the main thread, as always. The controller's turns are timed.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bftrainer_slurm.controller import daemon
from bftrainer_slurm.controller.loop import Controller
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.measurements import Measurements
from bftrainer_slurm.keeper.client import KeeperError
from bftrainer_slurm.slurm.look_gateway import LookGateway
from bftrainer_slurm.slurm.run import SlurmRunner
from scripts.benchkit.machine import children_cpu_s, memory_mb
from scripts.labcluster.keeper import Keeper
from scripts.scale_bench.course import Course, Look, Phase, Size
from scripts.scale_bench.requests import GROW, LOOK, Requests, SimulatedRunner
from scripts.scale_bench.slurmctld import PARTITION, Slurmctld

_TICK_S = 0.1
_PROGRAMS = 50  # times that one is run, to see what that costs


@dataclass(frozen=True, slots=True)
class Program:
    """The mean cost of running a program through SlurmRunner, with the program's own work."""

    cpu_s: float
    wall_s: float


@dataclass(frozen=True, slots=True)
class Found:
    """All that was measured. ``base_mb`` is the simulation's memory, before the daemon starts."""

    size: Size
    phases: list[Phase]
    base_mb: float
    full_look_bytes: int
    empty_program: Program  # /bin/true
    full_program: Program  # cat of a full look
    failed_turns: int
    trouble: str | None
    status_bytes: int


def measure(size: Size, settings: Settings) -> Found:
    """Let the daemon run on a cluster of this size, until the course has ended.

    Raises:
        StoppedError: the daemon ended before.
        NeverSettledError: it did not come to rest.
    """
    with tempfile.TemporaryDirectory(prefix="bench-scale-") as folder, _as_it_was():
        state = Path(folder)
        key = state / "site.key"
        key.touch(mode=0o600)
        key.write_text(os.urandom(32).hex())
        settings = replace(settings, partition=PARTITION, key_file=str(key))
        slurmctld = Slurmctld(size.nodes, time.time, random.Random(size.seed), size.bf_interval_s)
        requests = Requests(time.time)
        course = Course(size, slurmctld, requests)
        history = History(state / "history.sqlite")
        course.populate(Measurements(history))
        history.close()
        slurmctld.jobs_text(0)
        base_mb = memory_mb(os.getpid())
        runner = SimulatedRunner(slurmctld=slurmctld, requests=requests, rl_enable=size.rl_enable)
        gateway = LookGateway(LOOK, runner, GROW)
        beside = _Beside(course, slurmctld, requests, state)
        controller = _timed(course, requests)
        with _logged_to(state / "log"), patch.object(daemon, "Controller", controller):
            try:
                beside.start()
                daemon.run(state, daemon.Scope(user=None), settings, gateway)
            finally:
                Keeper(state).end()  # it outlives the daemon
                beside.end()
        status = beside.status
        full = state / "look"
        full.write_text(requests.largest)
        return Found(
            size,
            course.phases,
            base_mb,
            len(requests.largest),
            _cost_of("/bin/true"),
            _cost_of("/bin/cat", str(full)),
            int(status["controller"]["failed_turns"]),
            status["controller"]["error"],
            len(json.dumps(status)),
        )


def _timed(course: Course, requests: Requests) -> type[Controller]:
    """Return a controller whose turns and statuses are timed."""

    class Timed(Controller):
        def turn(self) -> None:
            begin_s, cpu_s, own_s = time.time(), time.thread_time(), requests.cpu_s
            read, moves = requests.read_bytes, len(requests.moves_s)
            try:
                super().turn()
            finally:
                took_s = time.thread_time() - cpu_s - (requests.cpu_s - own_s)
                moved = len(requests.moves_s) > moves
                wall_s, read = time.time() - begin_s, requests.read_bytes - read
                course.looked(Look(begin_s, took_s, wall_s, read, moved))

        def status(self, controller: dict[str, Any]) -> dict[str, Any]:
            cpu_s = time.thread_time()
            try:
                return super().status(controller)
            finally:
                course.showed(time.thread_time() - cpu_s)

    return Timed


class _Beside:
    """The threads beside the daemon: slurmctld, the elements' notes, and the course."""

    def __init__(
        self, course: Course, slurmctld: Slurmctld, requests: Requests, state: Path
    ) -> None:
        self.status: dict[str, Any] = {}
        self._course = course
        self._slurmctld = slurmctld
        self._requests = requests
        self._keeper = Keeper(state)
        self._error: Exception | None = None
        self._over = threading.Event()
        runs: tuple[Callable[[], None], ...] = (self._advance, self._speak, self._go)
        self._threads = [threading.Thread(target=run, daemon=True) for run in runs]

    def start(self) -> None:
        """Begin; the course waits for the keeper."""
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Stop all threads; raise an error of the course."""
        self._over.set()
        self._course.stop.set()
        for thread in self._threads:
            thread.join()
        if self._error is not None:
            raise self._error

    def _advance(self) -> None:
        while not self._over.wait(_TICK_S):
            self._slurmctld.advance()

    def _speak(self) -> None:
        while not self._over.wait(_TICK_S):
            client = self._keeper.client if self._keeper.address else None
            while client is not None and not self._slurmctld.said.empty():
                with suppress(KeeperError):  # an element goes on, too
                    client.tell(self._slurmctld.said.get())

    def _go(self) -> None:
        try:
            while not self._keeper.address and not self._over.wait(_TICK_S):
                pass
            self._course.run(self._processor)
            self.status = self._keeper.client.status()[1] or {}
        except Exception as error:
            self._error = error
        self._over.set()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    def _processor(self) -> tuple[float, float]:
        idents = [one.ident for one in self._threads if one.is_alive()]
        clocks = [time.pthread_getcpuclockid(one) for one in idents if one is not None]
        beside_s = sum(map(time.clock_gettime, clocks)) + self._requests.cpu_s
        return time.process_time() - beside_s, children_cpu_s(os.getpid())


def _cost_of(*command: str) -> Program:
    runner = SlurmRunner()
    begin_s, before = time.perf_counter(), os.times()
    for _ in range(_PROGRAMS):
        runner.read(*command)
    after, took_s = os.times(), time.perf_counter() - begin_s
    return Program(sum(after[:4]) / _PROGRAMS - sum(before[:4]) / _PROGRAMS, took_s / _PROGRAMS)


@contextmanager
def _as_it_was() -> Iterator[None]:
    """Restore the signal handlers and the umask, which the daemon changes."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    handlers = [signal.getsignal(number) for number in numbers]
    umask = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(umask)
        for number, handler in zip(numbers, handlers, strict=True):
            signal.signal(number, handler)


@contextmanager
def _logged_to(path: Path) -> Iterator[None]:
    """Log as much as the daemon does, as that costs time, but to a file."""
    handler, log = logging.FileHandler(path), logging.getLogger("bftrainer_slurm")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        handler.close()
