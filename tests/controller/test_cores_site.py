"""Parts of nodes on a real cluster without GPUs: trainers' cores beside those of ordinary jobs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bftrainer_slurm.model import ElementId, Memory
from bftrainer_slurm.slurm.commands import CommandGateway
from bftrainer_slurm.slurm.look_gateway import LookGateway
from bftrainer_slurm.slurm.open import LOOK
from bftrainer_slurm.slurm.run import SlurmRunner
from scripts.labcluster import plugin
from scripts.labcluster.site import Site, started_site
from scripts.labcluster.waiting import wait_until
from tests.controller.test_shared_site import IDLE, has, nodes_of, running

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with started_site(nodes=2, cpus=8, share=True) as made:
        yield made


def ordinary(site: Site, cores: int) -> int:
    """A job of bob's on n1, with so many cores."""
    words = ("-N1", "-w", "n1", f"--cpus-per-task={cores}", "-o", "/dev/null")
    return site.lab.sbatch(*words, script="#!/bin/sh\nsleep 1000\n", user="bob")


def used(site: Site, node: str) -> tuple[int, int]:
    """How many cores and how much memory (MB) jobs have of a node."""
    shown = site.run("scontrol", "show", "node", "-o", node).stdout
    cores, memory_mb = (
        shown.partition(f" {key}=")[2].split()[0] for key in ("CPUAlloc", "AllocMem")
    )
    return int(cores), int(memory_mb)


def test_trainers_have_cores_beside_ordinary_jobs_leave_for_the_next_and_grow_again(
    site: Site,
) -> None:
    first = ordinary(site, 3)
    wait_until(lambda: running(site, first))
    small = site.submit(IDLE, "1-2", "--cpus-per-task=1", "--mem-per-cpu=400")
    large = site.submit(IDLE, "1-2", "--cpus-per-task=2")
    assert has(site, small, "n1", "n2")
    assert has(site, large, "n1", "n2")
    assert [used(site, node) for node in ("n1", "n2")] == [(6, 2900), (3, 1400)]
    said = "2 of each of its nodes; other jobs may have the rest"
    wait_until(lambda: said in site.run("bftrainer", "show", str(large)).stdout)
    wait_until(lambda: "6 of the 13 cores" in site.run("bftrainer", "status").stdout)

    runner = SlurmRunner(environment=site.lab.env)
    look = LookGateway(str(plugin.built() / LOOK), runner, share=True)
    for gateway in (CommandGateway(runner, share=True), look):
        asks = {one.array: one.demands for one in gateway.queue().trainers}
        assert [asks[array].cores for array in (small, large)] == [1, 2]
        free = {one.name: one.used.cpus for one in gateway.nodes() if one.used is not None}
        assert free == {"n1": 6, "n2": 3}

    had = {one.id: one.memory_mb for of in look.queue().trainers for one in of.elements if one.node}
    assert had == {
        **{ElementId(small, task): 400 for task in (0, 1)},
        **{ElementId(large, task): 1000 for task in (0, 1)},
    }
    waits = [
        site.lab.sbatch("--begin=now+1hour", "-c2", *memory, script=IDLE, user="bob")
        for memory in ((), ("--mem=900",), ("--mem-per-cpu=300",), ("--mem=0",))
    ]
    asks_for = {job.job_id: job.memory for job in look.queue().waiting}
    assert [asks_for[job] for job in waits] == [
        Memory(cpu_mb=500, default=True),
        Memory(900),
        Memory(cpu_mb=300),
        Memory(),
    ]
    site.run("scancel", *map(str, waits), user="bob")

    second = ordinary(site, 4)  # the smallest element that gives enough leaves for it
    wait_until(lambda: running(site, second))
    wait_until(lambda: nodes_of(site, large) == ["n2"])
    assert used(site, "n1")[0] == 8
    assert nodes_of(site, small) == ["n1", "n2"]
    assert running(site, first)
    site.run("scancel", str(second), user="bob")
    assert has(site, large, "n1", "n2")
    assert has(site, small, "n1", "n2")
    assert running(site, first)

    site.run("scancel", "--me", user="alice")
    whole = site.submit(IDLE, "1-2", "--cpus-per-task=2", "--exclusive")
    assert has(site, whole, "n2")
    assert used(site, "n2")[0] == 8
