"""End to end on a private Slurm cluster: an ordinary job takes a node of four, and gives it back.

All nodes are on this host, so one clock counts for all of them.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from scripts.demonstration.cluster import Cluster, started_cluster
from scripts.elastic_bench.figures import standstill, usual_step_s
from scripts.elastic_bench.measure import NODES, NotSettledError, Tell
from scripts.elastic_bench.setups import Setup
from scripts.elastic_bench.steplog import Step, StepLogs

_HERE = Path(__file__).resolve().parent
_REPO = _HERE.parent.parent
_PATIENCE_S = 180.0
_SETTLED_STEPS = 10
_END_S = 3.0  # until a cancelled trainer has written its last line
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
        with tempfile.TemporaryDirectory(prefix="bench-elastic-", dir="/var/tmp") as name:
            folder = Path(name)
            folder.chmod(0o755)
            tell(f"{setup.title}: starting Slurm")
            with (
                started_cluster(_REPO, folder / "lab", NODES) as cluster,
                cluster.controller(_CONTROLLER),
            ):
                result = EndToEnd(setup)
                found.append(result)
                try:
                    _measure(cluster, result, rounds, tell)
                except NotSettledError as error:
                    result.failures.append(str(error))
    return found


class _Trainer:
    """A trainer on the cluster, seen through its step logs."""

    def __init__(self, cluster: Cluster, setup: Setup) -> None:
        self.folder = cluster.folder / "training"
        # The clone itself may lie where Slurm's users cannot read.
        jobs = self.folder / "scripts" / "elastic_bench"
        jobs.mkdir(parents=True)
        for name in ("workload", "plain", "inprocess"):
            shutil.copy(_HERE / f"{name}.py", jobs)
        for name in ("logs", "starts"):
            (self.folder / name).mkdir()
        if cluster.user is not None:
            for path in (self.folder, *self.folder.rglob("*")):
                shutil.chown(path, cluster.user)
        script = _SCRIPT.format(
            folder=self.folder,
            python=cluster.stage.repo / ".venv" / "bin" / "python",
            script=setup.script,
            exports="PET_RDZV_BACKEND=c10d" if setup.backend == "c10d" else "",
        )
        self.logs = StepLogs(self.folder / "logs")
        options = ("--parsable", "--bftrainer", f"-N1-{NODES}", f"--output={self.folder}/%a.out")
        submitted = cluster.run("sbatch", *options, input=script).stdout
        self.array = int(submitted.strip().partition(";")[0])

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
        deadline_s = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline_s:
            lives = self.newest()
            if nodes <= lives.keys() and all(
                len(lives[node][1]) >= _SETTLED_STEPS
                and lives[node][1][-_SETTLED_STEPS].time_s > since_s
                and all(one.world == len(nodes) for one in lives[node][1][-_SETTLED_STEPS:])
                for node in nodes
            ):
                return lives
            time.sleep(0.1)
        words = f"{', '.join(sorted(nodes))} do not train together within {_PATIENCE_S:g} s"
        raise NotSettledError(f"{words}; those that ever did: {', '.join(sorted(self.newest()))}")


def _measure(cluster: Cluster, result: EndToEnd, rounds: int, tell: Tell) -> None:
    trainer = _Trainer(cluster, result.setup)
    everybody = {f"n{number}" for number in range(1, NODES + 1)}
    try:
        trainer.wait_for(everybody, 0.0)
        for number in range(rounds):
            taken = f"n{number % NODES + 1}"
            _take_and_give_back(cluster, trainer, result, everybody, taken)
            tell(f"{result.setup.title}: {number + 1} of {rounds}")
    finally:
        cluster.run("scancel", str(trainer.array))
        time.sleep(_END_S)


def _take_and_give_back(
    cluster: Cluster, trainer: _Trainer, result: EndToEnd, everybody: set[str], taken: str
) -> None:
    lives = trainer.newest()
    usual_s = median(usual_step_s(steps) for _, steps in lives.values())
    others = everybody - {taken}
    since_s = time.monotonic()
    ordinary = ("--parsable", "-p", "main", "-N1", "-w", taken, "--exclusive", "-o", "/dev/null")
    job = cluster.run("sbatch", *ordinary, "--wrap", f"sleep {_HOLD_S}").stdout.strip()
    lives = trainer.wait_for(others, since_s)
    steps = [lives[node][1] for node in others]
    trained_s = [
        next(step.time_s for step in one if step.time_s > since_s and step.world == NODES - 1)
        for one in steps
    ]
    result.taken_s.append(max(trained_s) - since_s)
    pauses = [standstill(one, since_s, NODES - 1, usual_s, planned=True) for one in steps]
    result.pause_s.append(max(one for one in pauses if one is not None))
    cluster.run(
        "scancel", job
    )  # not before: the others may take longer than any time one might set
    while cluster.run("squeue", "-h", "-j", job, "-t", "PD,R,CG").stdout.strip():
        time.sleep(0.1)
    idle_s = time.monotonic()
    life, steps_there = trainer.wait_for(everybody, idle_s)[taken]
    result.back_s.append(steps_there[0].time_s - idle_s)
    started_s = float((trainer.folder / "starts" / life).read_text())
    result.warm_s.append(steps_there[0].time_s - started_s)
