"""Parts of nodes on a real cluster: nodes of 8 GPUs, ordinary jobs beside trainers."""

from __future__ import annotations

import re
from statistics import fmean

import pytest

from bftrainer_slurm.arrays import parse_tasks
from bftrainer_slurm.controller.decide.eligibility import asks_of
from bftrainer_slurm.controller.observe.shared_nodes import needs_of
from bftrainer_slurm.model import ElementState, Memory, Queue
from bftrainer_slurm.slurm.commands import CommandGateway
from bftrainer_slurm.slurm.look_gateway import LookGateway
from bftrainer_slurm.slurm.nodelists import expand
from bftrainer_slurm.slurm.open import LOOK
from bftrainer_slurm.slurm.run import SlurmRunner
from scripts.labcluster import plugin
from scripts.labcluster.site import Site
from scripts.labcluster.waiting import wait_until
from tests.controller.sites import IDLE, ordinary, runs, start, wait_for_nodes

pytestmark = [pytest.mark.slurm, pytest.mark.newest, pytest.mark.timeout(1500)]


@pytest.fixture
def look(site: Site) -> LookGateway:
    runner = SlurmRunner(environment=site.lab.env)
    return LookGateway(str(plugin.built() / LOOK), runner, share=True)


def on_n1(gpus: int) -> tuple[str, ...]:
    """What an ordinary job of so many GPUs of n1 asks for."""
    return ("-N1", "-w", "n1", f"--gpus-per-node={gpus}")


def has(site: Site, array: int, *nodes: str) -> None:
    """A trainer's elements come to these nodes, and no other one runs."""
    wait_for_nodes(site, array, *nodes)
    there = [line.split() for line in site.lab.squeue(array, "%t %N")]
    assert sorted(node for state, *on in there for node in on if state == "R") == list(nodes)


def used(site: Site, node: str) -> str:
    shown = site.run("scontrol", "show", "node", "-d", "-o", node).stdout
    return shown.partition(" GresUsed=")[2].partition("(")[0]


def test_an_element_takes_its_part_beside_an_ordinary_job_and_leaves_for_the_next(
    site: Site,
) -> None:
    first = start(site, *on_n1(3))
    array = site.submit(IDLE, "1-2", "--gpus-per-node=2", "--exclude=n2")
    has(site, array, "n1")
    assert used(site, "n1") == "gpu:a100:5"
    second = start(site, *on_n1(4))
    wait_for_nodes(site, array)
    assert used(site, "n1") == "gpu:a100:7"
    site.run("scancel", str(second), user="bob")
    has(site, array, "n1")
    assert runs(site, first)


def test_two_trainers_have_a_node_each_its_part_and_one_element_at_most(site: Site) -> None:
    """Who wants whole nodes leaves shared ones alone."""
    first = start(site, *on_n1(1))
    arrays = [site.submit(IDLE, "1-4", f"--gres=gpu:{gpus}") for gpus in (2, 4)]
    for array in arrays:
        has(site, array, "n1", "n2")
    assert used(site, "n1") == "gpu:a100:7"
    site.run("scancel", str(arrays[1]))
    wait_until(lambda: used(site, "n2") == "gpu:a100:2")
    has(site, arrays[0], "n1", "n2")
    said = "2 of each of its nodes; other jobs may have the rest"
    wait_until(lambda: said in site.run("bftrainer", "show", str(arrays[0])).stdout)
    site.end(arrays[0])
    has(site, site.submit(IDLE, "1-2", "--gpus-per-node=2", "--exclusive"), "n2")
    assert runs(site, first)


def test_commands_tell_parts_from_whole_nodes_as_bftrainer_look_does(
    site: Site, look: LookGateway
) -> None:
    later = "--begin=now+1hour"
    ordinary(site, *on_n1(1), later)
    ordinary(site, *on_n1(1), later, "--exclusive")
    asks = "--gpus-per-node=2", later
    arrays = [site.submit(IDLE, "1-2", *asks, *whole) for whole in ((), ("--exclusive",))]
    commands = CommandGateway(SlurmRunner(environment=site.lab.env), share=True)
    seen = [commands.queue(), look.queue()]
    gpus = [{one.array: one.demands.gpus for one in queue.trainers} for queue in seen]
    assert [[one[array] for array in arrays] for one in gpus] == [[2, 0], [2, 0]]
    job = ordinary(site, *on_n1(2), later, "--mem-per-gpu=700")
    memory = {one.job_id: one.memory for one in look.queue().waiting}
    assert memory[job] == Memory(gpu_mb=700, default=True)


# What they get by default.


REQUESTS = (
    ("--gpus-per-node=2",),
    ("--gpus-per-node=2", "--cpus-per-gpu=1"),
    ("--gpus-per-node=1", "--cpus-per-task=5"),
    ("--gpus-per-node=1", "--cpus-per-task=3", "--mem-per-cpu=600"),
    ("--gpus-per-node=2", "--mem-per-gpu=1600"),
)


def test_an_element_asks_for_what_it_will_get(site: Site, look: LookGateway) -> None:
    """Of three defaults for memory the partition's counts."""
    of_partition = ("PartitionName=bftrainer", "JobDefaults=DefMemPerGPU=900")
    site.run("scontrol", "update", *of_partition, user="root")
    with site.taken(2):
        arrays = [site.submit(IDLE, "1-1", *request) for request in REQUESTS]
        configuration = look.configuration("bftrainer")
        trainers = {one.array: one for one in look.queue().trainers}
        asked = {array: asks_of(trainers[array], configuration) for array in arrays}

    def got(queue: Queue) -> dict[int, tuple[int, float | None]]:
        every = (one for of in queue.trainers for one in of.elements)
        on = (one for one in every if one.state is ElementState.RUNNING)
        return {one.id.array: (one.cpus, one.memory_mb) for one in on}

    wait_until(lambda: got(look.queue()).keys() == set(arrays))
    assert got(look.queue()) == {array: (of.cpus, of.memory_mb) for array, of in asked.items()}
    assert [asked[array].memory_mb for array in arrays] == [1800, 1800, 900, 1800, 3200]


ORDINARY = (
    (("-N1", "--gpus-per-node=2", "--cpus-per-gpu=4"), (2, 8)),
    (("-N1", "--gpus-per-node=2"), (2, 4)),
    (("-N1", "--gpus=2", "--cpus-per-gpu=3"), (2, 6)),
    (("-N2", "--gpus=4", "--cpus-per-gpu=3"), (2, 6)),  # as a mean: Slurm may give 3 and 1
    (("-N1", "-n2", "--gpus-per-task=2", "-c3"), (4, 6)),
    (("-N1", "--gpus-per-node=2", "--ntasks-per-gpu=3"), (2, 6)),
)


def test_what_an_ordinary_job_needs_of_a_node_is_what_it_gets(
    site: Site, look: LookGateway
) -> None:
    sbatch = ("sbatch", "--parsable", "-o", "/dev/null", "--mem=100")
    with site.taken(2):
        jobs = {
            int(site.run(*sbatch, *options, "--wrap=sleep 1000").stdout): gets
            for options, gets in ORDINARY
        }
        configuration = look.configuration("bftrainer")
        waiting = {one.job_id: one for one in look.queue().waiting}
        needs = {job: needs_of(waiting[job], configuration)[:2] for job in jobs}
    assert needs == jobs

    def got(job: int) -> tuple[float, float]:
        shown = site.run("scontrol", "show", "job", "--details", str(job)).stdout
        on = re.findall(r" Nodes=(\S+) CPU_IDs=(\S+) Mem=\d+ GRES=gpu:(?:\w+:)?(\d+)", shown)
        each = [
            (int(gpus), len(parse_tasks(cpus, below=1000)))
            for nodes, cpus, gpus in on
            for _ in expand(nodes)
        ]
        return fmean(gpus for gpus, _ in each), fmean(cpus for _, cpus in each)

    for job, gets in jobs.items():
        wait_until(lambda job=job: runs(site, job))
        assert got(job) == gets
        site.run("scancel", str(job))
