"""On a real cluster whose Slurm switches idle nodes off: trainers neither wake nor keep them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.labcluster.processes import end
from scripts.labcluster.site import QUICK, Site, prepared_site
from scripts.labcluster.waiting import wait_until
from tests.controller.sites import IDLE, nodes_of, shown

pytestmark = [pytest.mark.slurm, pytest.mark.newest, pytest.mark.timeout(1500)]

SUSPEND_S = 12
CONF = f"""
SchedulerParameters=bf_interval=2,batch_sched_delay=0,power_save_interval=1
SuspendTime={SUSPEND_S}
SuspendTimeout=3
ResumeTimeout=60
SuspendRate=0
ResumeRate=0
"""


@dataclass
class Power:
    """Switches the nodes of a site off and on, as Slurm's programs ask; a node boots at once."""

    site: Site
    asked: Path

    def lines(self) -> list[str]:
        """What Slurm has asked so far: "off n1", "on n1"."""
        return self.asked.read_text().splitlines()

    def woken(self) -> int:
        return sum(line.startswith("on ") for line in self.lines())

    def serve(self, over: threading.Event) -> None:
        done = 0
        while not over.wait(0.2):
            for line in self.lines()[done:]:
                done += 1
                what, _, node = line.partition(" ")
                self.site.lab.cluster.disturb(node, "stop")
                if what == "on":
                    self.site.lab.cluster.start_slurmd(node, booted=True)


@contextmanager
def switched(site: Site) -> Iterator[Power]:
    """Give the cluster programs that switch nodes off and on."""
    folder = site.folder("slurm")
    power = Power(site, folder / "asked")
    power.asked.touch()
    power.asked.chmod(0o666)
    programs = []
    for key, what in (("SuspendProgram", "off"), ("ResumeProgram", "on")):
        program = folder / what
        each = f'for node in $(scontrol show hostnames "$1"); do echo "{what} $node"; done'
        program.write_text(f"#!/bin/sh\n{each} >> {power.asked}\n")
        program.chmod(0o755)
        programs.append(f"{key}={program}\n")
    cluster = site.lab.cluster
    end([cluster.daemons["slurmctld"]])
    with (site.lab.dir / "slurm.conf").open("a") as slurm_conf:
        slurm_conf.write(CONF + "".join(programs))
    cluster.start_slurmctld()
    over = threading.Event()
    serves = threading.Thread(target=power.serve, args=(over,))
    serves.start()
    try:
        wait_until(lambda: site.run("scontrol", "ping", check=False).returncode == 0)
        yield power
    finally:
        over.set()
        serves.join()


@pytest.fixture
def power() -> Iterator[Power]:
    with prepared_site(nodes=3) as site, switched(site) as made, site.controlled(QUICK):
        yield made


def states(power: Power) -> set[str]:
    return set(power.site.lab.states().values())


def wake(power: Power, *nodes: str) -> None:
    """Run an ordinary job, for which Slurm wakes these nodes."""
    words = ("srun", "-p", "main", f"-N{len(nodes)}", f"--nodelist={','.join(nodes)}", "true")
    power.site.run(*words)


def test_trainers_leave_nodes_that_slurm_would_have_switched_off_and_wake_none(
    power: Power,
) -> None:
    site = power.site
    wake(power, "n1", "n2", "n3")
    array = site.submit(IDLE, "1-3")
    wait_until(lambda: len(nodes_of(site, array)) == 3)
    wait_until(lambda: states(power) == {"idle~"}, 120)
    woken = power.woken()
    assert site.controller.status()["pool"]["free"] == []
    said = "powered down by Slurm; trainers do not wake nodes (wake_nodes)"
    wait_until(lambda: site.controller.status()["left_alone"][said] == 3, 120)
    assert power.woken() == woken
    for command in (("status",), ("show", str(array)), ("explain", str(array))):
        assert said in shown(site, *command)

    wake(power, "n2")
    wait_until(lambda: nodes_of(site, array) == ["n2"], 30)
    wait_until(lambda: states(power) == {"idle~"}, 120)
    assert power.woken() == woken + 1
