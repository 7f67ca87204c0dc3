"""End to end on a private Slurm cluster: an ordinary job takes a node of four, and gives it back.

All nodes are on this host, so one clock counts for all of them.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from scripts.elastic_bench.figures import standstill, usual_step_s
from scripts.elastic_bench.measure import NODES, NotSettledError
from scripts.elastic_bench.setups import Setup
from scripts.elastic_bench.steplog import Step, StepLogs
from scripts.labcluster.c10d import C10dStore
from scripts.labcluster.lab import Tell
from scripts.labcluster.site import Site, prepared_site
from scripts.labcluster.users import identity
from scripts.labcluster.waiting import wait_until

_HERE = Path(__file__).resolve().parent
_PATIENCE_S = 180.0
_SETTLED_STEPS = 10
_HOLD_S = 3600  # longer than the ordinary job is let keep its node
# Far enough ahead for a fourth node to pay where a rescale costs half a minute. The demo's 30 s are
# too near for stock c10d: 4 nodes for 22 s are less than 3 for 30 s.
_CONTROLLER = {"forward_time_s": 300, "queue_interval_s": 5}

_SCRIPT = """#!/bin/bash
export BENCH_NODE=$SLURMD_NODENAME-$$ OMP_NUM_THREADS=1 {exports}
export PYTHONPATH=${{PYTHONPATH:+$PYTHONPATH:}}{folder}
cd {folder}
{python} -c 'import time; print(time.monotonic())' > starts/$BENCH_NODE
srun torchrun {folder}/scripts/elastic_bench/{script}.py --folder {folder} --model tiny \\
  --compute 0.02 --save-every 0
"""


@dataclass(slots=True)
class EndToEnd:
    """All single times of one set-up, in seconds."""

    setup: Setup
    taken_s: list[float] = field(default_factory=list)  # ordinary job submitted, until others train
    pause_s: list[float] = field(default_factory=list)  # the others' standstill in that
    back_s: list[float] = field(default_factory=list)  # node idle, until it trains
    warm_s: list[float] = field(default_factory=list)  # element started, until it trains
    failures: list[str] = field(default_factory=list)


def measure_cluster(setups: Sequence[Setup], rounds: int, tell: Tell) -> list[EndToEnd]:
    """Measure each set-up on a cluster of its own."""
    found = []
    for setup in setups:
        with prepared_site(NODES, kill_wait=30, tell=tell) as site, site.controlled(_CONTROLLER):
            result = EndToEnd(setup)
            found.append(result)
            try:
                _measure(site, result, rounds, tell)
            except NotSettledError as error:
                result.failures.append(str(error))
    return found


class _Trainer:
    """A trainer on the cluster, seen through its step logs."""

    def __init__(self, site: Site, setup: Setup) -> None:
        self.folder = site.folder(name="training")
        # The clone itself may lie where Slurm's users cannot read.
        jobs = self.folder / "scripts" / "elastic_bench"
        jobs.mkdir(parents=True)
        for name in ("workload", "plain", "inprocess"):
            shutil.copy(_HERE / f"{name}.py", jobs)
        for name in ("logs", "starts"):
            (self.folder / name).mkdir()
        if identity("alice"):
            for path in self.folder.rglob("*"):
                shutil.chown(path, "alice")
        self._store = C10dStore() if setup.backend == "c10d" else None
        rendezvous = {} if self._store is None else self._store.environment
        script = _SCRIPT.format(
            folder=self.folder,
            python=site.stage.repo / ".venv" / "bin" / "python",
            script=setup.script,
            exports=" ".join(f"{name}={text}" for name, text in rendezvous.items()),
        )
        self.logs = StepLogs(self.folder / "logs")
        self.array = site.submit(script, f"1-{NODES}", f"--output={self.folder}/%a.out")

    def newest(self) -> dict[str, tuple[str, list[Step]]]:
        """Return each node's newest life and its steps."""
        self.logs.read()
        lives: dict[str, tuple[str, list[Step]]] = {}
        for life, steps in self.logs.all.items():
            node = life.partition("-")[0]
            if steps and (node not in lives or steps[-1].time_s > lives[node][1][-1].time_s):
                lives[node] = life, steps
        return lives

    def wait_for(self, nodes: set[str], since_s: float) -> dict[str, tuple[str, list[Step]]]:
        """Wait until just these nodes train together."""

        def together() -> bool:
            lives = self.newest()
            last = [lives[node][1][-_SETTLED_STEPS:] for node in nodes & lives.keys()]
            return len(last) == len(nodes) and all(
                len(steps) == _SETTLED_STEPS
                and steps[0].time_s > since_s
                and all(one.world == len(nodes) for one in steps)
                for steps in last
            )

        try:
            wait_until(together, _PATIENCE_S, f"{', '.join(sorted(nodes))} do not train together")
        except TimeoutError as error:
            ever = ", ".join(sorted(self.newest()))
            raise NotSettledError(f"{error}; those that ever did: {ever}") from error
        return self.newest()


def _measure(site: Site, result: EndToEnd, rounds: int, tell: Tell) -> None:
    trainer = _Trainer(site, result.setup)
    everybody = {f"n{number}" for number in range(1, NODES + 1)}
    try:
        trainer.wait_for(everybody, 0.0)
        for number in range(rounds):
            taken = f"n{number % NODES + 1}"
            _take_and_give_back(site, trainer, result, everybody, taken)
            tell(f"{result.setup.title}: {number + 1} of {rounds}")
    finally:
        site.end(trainer.array)


def _take_and_give_back(
    site: Site, trainer: _Trainer, result: EndToEnd, everybody: set[str], taken: str
) -> None:
    lives = trainer.newest()
    usual_s = median(usual_step_s(steps) for _, steps in lives.values())
    others = everybody - {taken}
    since_s = time.monotonic()
    ordinary = ("-p", "main", "-N1", "-w", taken, "--exclusive", "-o", "/dev/null")
    job = site.lab.sbatch(*ordinary, script=f"#!/bin/sh\nsleep {_HOLD_S}\n")
    lives = trainer.wait_for(others, since_s)
    steps = [lives[node][1] for node in others]
    trained_s = [
        next(step.time_s for step in one if step.time_s > since_s and step.world == NODES - 1)
        for one in steps
    ]
    result.taken_s.append(max(trained_s) - since_s)
    pauses = [standstill(one, since_s, NODES - 1, usual_s, planned=True) for one in steps]
    result.pause_s.append(max(one for one in pauses if one is not None))
    site.end(job)  # not before: the others may take longer than any time one might set
    idle_s = time.monotonic()
    life, steps_there = trainer.wait_for(everybody, idle_s)[taken]
    result.back_s.append(steps_there[0].time_s - idle_s)
    started_s = float((trainer.folder / "starts" / life).read_text())
    result.warm_s.append(steps_there[0].time_s - started_s)
