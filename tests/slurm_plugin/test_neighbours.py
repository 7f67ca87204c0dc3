"""Several elements on one node, and an ordinary job of their user that must not notice them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts.labcluster.lab import Lab
from scripts.labcluster.processes import Daemon, processes_with
from scripts.labcluster.waiting import wait_until
from tests.slurm_plugin.elements import RunningElement, start_element
from tests.slurm_plugin.test_attacks import ATTACKS

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.newest,
    pytest.mark.skipif(os.getuid() != 0, reason="needs users who are not Slurm's"),
]

GPUS = 8  # of the node
# An operator's update of a held element: a part of the node, for longer than the test may take.
PART = ("Gres=gpu:1", "OverSubscribe=yes", "TimeLimit=60", "TimeMin=60")
ELEMENTS = (
    "polite",
    "TERM ignored by all of them",
    "a daemon without an environment",
    "a process that forks and ends",
    "the guard killed",
    "named slurmstepd",
)
# One of each kind of process that a job can have. It ends well when it is told to.
NEIGHBOUR = """#!/bin/bash
mkfifo told
( setsid sleep 100000 & )
srun sleep 100000 &
read < told
kill $!
exit 0
"""


def processes_of(job: str | int) -> list[Daemon]:
    """Return a job's processes on all nodes, slurmstepds not among them."""
    return sorted(processes_with(f"SLURM_JOB_ID={job}"), key=lambda one: one.pid)


def name_of(process: Daemon) -> str:
    path = Path(f"/proc/{process.pid}/comm")
    return path.read_text().strip() if process.alive else ""


def job_of(element: RunningElement) -> str:
    """Return the number that Slurm has for an element beside its name."""
    shown = element.lab.run("scontrol", "-o", "show", "job", element.name).stdout
    return shown.partition("JobId=")[2].split()[0]


@pytest.fixture(params=["cgroup", "linuxproc"])
def lab(request: pytest.FixtureRequest, element_lab: Callable[[str], Lab]) -> Iterator[Lab]:
    made = element_lab(request.param)
    yield made
    # Slurm starts those that it preempted again after two minutes: they keep a processor busy.
    made.run("scancel", "--user=alice", user="root")
    made.wait_until_idle()


def test_who_is_beside_an_element_lives_whatever_ends_it(lab: Lab) -> None:
    words = ("-wn1", "--gpus-per-node=1", "-o/dev/null")
    neighbour = lab.sbatch(*words, script=NEIGHBOUR)
    wait_until(lambda: [name_of(one) for one in processes_of(neighbour)].count("sleep") == 2)
    before = processes_of(neighbour)
    scripts = [f"#!/bin/bash\n{ATTACKS[name]}\n" for name in ELEMENTS]
    elements = [start_element(lab, one, "--bftrainer=grace=0.5", part=PART) for one in scripts]
    for element in elements:
        element.wait_for("ready")

    left, *others = elements
    gone, there = job_of(left), {job_of(one): one for one in others}
    left.requeue()
    wait_until(lambda: left.state() == "PENDING" and not processes_of(gone))
    assert processes_of(neighbour) == before
    assert [ELEMENTS[1:][at] for at, one in enumerate(others) if one.state() != "RUNNING"] == []
    assert all(processes_of(job) for job in there)

    output = lab.home("bob") / "ordinary.out"
    rest = ("-wn1", f"--gpus-per-node={GPUS - 1}", f"--output={output}")
    lab.sbatch(
        *rest, user="bob", script="#!/bin/sh\nps -u alice -o stat=,args= | grep -v ^Z\necho end\n"
    )
    wait_until(lambda: output.exists() and output.read_text().endswith("end\n"))
    assert len(output.read_text().splitlines()) == len(before) + 1
    assert {one.state() for one in elements} == {"PENDING"}
    assert processes_of(neighbour) == before
    lab.run("sh", "-c", "echo > told")
    wait_until(lambda: lab.squeue(neighbour, "%T") == ["COMPLETED"])
    wait_until(lambda: lab.states()["n1"] == "idle")
