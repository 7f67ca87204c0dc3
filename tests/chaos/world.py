"""The private cluster with plugin, controller, keeper and trainers, for faults and the run."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from scripts.labcluster.cluster import Cluster
from scripts.labcluster.lab import ADMIN, Tell
from scripts.labcluster.processes import end, send
from scripts.labcluster.site import Site, prepared_site
from tests.chaos.invariants import left_behind
from tests.chaos.observe import (
    BOOKS,
    QUEUE,
    Snapshot,
    drained_by_slurm,
    element_processes,
    read_books,
    read_queue,
)
from tests.chaos.ordinary import Stream
from tests.chaos.patience import Patience
from tests.chaos.report import Outcome
from tests.chaos.service import Service, clock_environment
from tests.chaos.trainers import WHOLE_NODES, Ask, Trainer, parts
from tests.chaos.training import forget_apart

_ANSWER_S = 30.0
_STATE_MB = 8  # of the controller's disk
_NODES = ("sinfo", "-h", "-N", "-p", "main", "-o", "%N %t %E")
_CONF = ("SlurmdTimeout=10", "SlurmctldTimeout=10", "MessageTimeout=5", "InactiveLimit=0")

# Quicker than on a real cluster, so that a fault's aftermath is short.
_SETTINGS = {
    "queue_interval_s": 2,
    "min_hole_s": 5,
    "forward_time_s": 30,
}


@dataclass
class World:
    """Everything that a fault may touch. ``service`` is the site's controller.

    A fault adds what should not have happened to the ``outcome``.
    """

    site: Site
    service: Service
    chance: random.Random
    tell: Tell
    status: Callable[[], dict[str, Any]]
    stream: Stream | None = None
    asks: Mapping[str, Ask] = field(default_factory=lambda: WHOLE_NODES)  # of trainers, by name
    trainers: list[Trainer] = field(default_factory=list)  # those that are to train
    outcome: Outcome = field(default_factory=Outcome)  # of what is under way
    drained_by_slurm: int = 0  # nodes that were resumed, as this was no fault of ours
    well_since_s: float = 0.0  # since when no fault is under way
    apart: set[str] = field(default_factory=set)  # nodes cut off since all was well
    struck: set[str] = field(default_factory=set)  # nodes that themselves failed since then
    silent: set[str] = field(default_factory=set)  # nodes whose slurmd was away since then
    spared: dict[int, int] = field(default_factory=dict)  # as in Snapshot

    @property
    def lab(self) -> Cluster:
        return self.site.lab.cluster

    @property
    def folder(self) -> Path:
        return self.lab.folder

    @property
    def memory_mb(self) -> int:
        """The memory of a node that jobs share; 0: they have whole nodes."""
        found = re.search(r" RealMemory=(\d+)", (self.folder / "slurm.conf").read_text())
        return int(found[1]) if found else 0

    @property
    def nodes(self) -> list[str]:
        """The nodes' names; one that a fault has added is none of them."""
        return self.lab.node_names

    def run(self, *command: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command as ``Lab.run`` does; it may fail. After 30 s it raises TimeoutExpired."""
        return self.site.run(*command, **{"check": False, "timeout_s": 30.0, **options})

    def tick(self, quiet: bool = False) -> None:
        """Do what goes on all the time: tend the service and, unless ``quiet``, submit jobs."""
        self.service.tend()
        if self.stream is not None and not quiet:
            self.stream.tick()

    def wait(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self.tick()
            time.sleep(0.2)

    def wait_until(self, holds: Callable[[], object], patience_s: float) -> bool:
        """Wait, for these seconds of an idle machine at most; return whether it holds then."""
        patience = Patience(patience_s)
        while not holds():
            if patience.over:
                return False
            self.wait(1.0)
        return True

    def cancel_trainers(self, patience_s: float) -> list[str]:
        """Let users cancel all trainers; return what is left of these after a while."""

        def cancelled() -> bool:
            with suppress(subprocess.TimeoutExpired):
                done = self.run("scancel", *(str(one.array) for one in self.trainers))
                return done.returncode == 0 or "Invalid job id" in done.stderr
            return False

        self.wait_until(cancelled, patience_s)
        self.trainers.clear()
        self.wait_until(lambda: not left_behind(self.look()), patience_s)
        return left_behind(self.look())

    def forgive(self) -> None:
        """Forget that some nodes trained on while they were cut off: they are reached again."""
        for trainer in self.trainers:
            forget_apart(trainer.training.generations, self.apart)
        self.apart.clear()
        self.struck.clear()
        self.silent.clear()

    def look(self) -> Snapshot:
        """Look at everything, and return what was seen."""
        for trainer in self.trainers:
            trainer.training.read()
        processes, time_s = element_processes(f"{self.folder}/slurm.conf"), time.monotonic()
        seen = Snapshot(
            *(time_s, None, {}, self.status(), processes, tuple(self.trainers)),
            apart=frozenset(self.apart),
            memory_mb=self.memory_mb,
            spared=dict(self.spared),
        )
        try:
            told = [self.run(*one, user=ADMIN, timeout_s=15) for one in (QUEUE, _NODES, BOOKS)]
        except subprocess.TimeoutExpired:
            return seen
        if any(one.returncode for one in told):
            return seen
        queue, sinfo, books = (one.stdout for one in told)
        elements, ordinary = read_queue(queue)
        nodes, late = self._nodes(sinfo), list[str]()
        if self.stream is not None:
            with_elements = {one.node for one in elements if one.state == "RUNNING"}
            failed = self.struck, self.silent
            late, wrong = self.stream.judge(ordinary, with_elements, *failed, self.well_since_s)
            self.outcome.violations |= dict.fromkeys(wrong)
        seen = replace(seen, elements=elements, nodes=nodes, parts=read_books(books))
        return replace(seen, problems=tuple(late))

    def _nodes(self, sinfo: str) -> dict[str, str]:
        """Return the states of nodes; those that Slurm itself has drained are resumed."""
        nodes = {}
        for line in sinfo.splitlines():
            node, nodes[node], reason = line.split(maxsplit=2)
            log = self.folder / "log" / f"{node}.log"
            if nodes[node].startswith("dr") and drained_by_slurm(reason, log.read_text()):
                self.drained_by_slurm += 1
                self.struck.add(node)  # Slurm also ends the job that it has started twice
                self.tell(f"Slurm itself has drained {node}: {reason}")
                self.run("scontrol", "update", f"NodeName={node}", "State=RESUME", user=ADMIN)
        return nodes

    def end_daemon(self, name: str, number: signal.Signals = signal.SIGKILL) -> Callable[[], None]:
        """End one of Slurm's daemons by a signal; return what starts it again."""
        daemon = self.lab.daemons[name]
        send(daemon, number)
        end([daemon])
        starts = {"slurmctld": self.lab.start_slurmctld, "munged": self.lab.start_munged}
        return starts.get(name, partial(self.lab.start_slurmd, name))

    def wait_for_slurmctld(self) -> None:
        self.wait_until(lambda: self.run("scontrol", "ping").returncode == 0, _ANSWER_S)


def service_on(site: Site, **environment: str) -> Service:
    plain = site.controller
    return Service(plain.lab, plain.program, plain.user, plain.arguments, environment)


@contextmanager
def started_world(nodes: int, seed: int, tell: Tell, gpus: int = 0) -> Iterator[World]:
    """Start a cluster and all that faults need; end it whatever happens. Needs root.

    Jobs share nodes of so many GPUs; 0: they have whole nodes.
    """
    options = {"networks": True, "gpus": gpus, "share": gpus > 0}
    with prepared_site(nodes, conf=_CONF, tell=tell, **options) as prepared:
        service = service_on(prepared, **clock_environment(prepared.lab.dir))
        site, chance = replace(prepared, controller=service), random.Random(seed)
        stream = Stream(site, random.Random(seed), gpus)
        asks = parts(gpus) if gpus else WHOLE_NODES
        with _small_disk(service.state), site.controlled(_SETTINGS):
            yield World(site, service, chance, tell, service.status, stream, asks)


@contextmanager
def _small_disk(state: Path) -> Iterator[None]:
    """Give the controller's state a disk of its own: others are not harmed when it is full."""
    state.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", f"size={_STATE_MB}m,mode=755,uid=slurm,gid=slurm")
    subprocess.run([*mount, "bftrainer-chaos", state], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", state], check=False)
