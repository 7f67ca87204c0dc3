"""On a real cluster: the memory and cores that elements get by default are part of their size."""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import fmean

import pytest

from bftrainer_slurm.arrays import parse_tasks
from bftrainer_slurm.controller.decide.eligibility import asks_of
from bftrainer_slurm.controller.observe.shared_nodes import needs_of
from bftrainer_slurm.model import ElementState, Queue
from bftrainer_slurm.slurm.look_gateway import LookGateway
from bftrainer_slurm.slurm.nodelists import expand
from bftrainer_slurm.slurm.open import LOOK
from bftrainer_slurm.slurm.run import SlurmRunner
from scripts.labcluster import plugin
from scripts.labcluster.site import QUICK, Site, prepared_site
from scripts.labcluster.waiting import wait_until
from tests.controller.test_shared_site import IDLE

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.newest,
    pytest.mark.usefixtures("nothing_is_left"),
    pytest.mark.timeout(1500),
]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Nodes of 8 GPUs, 16 cores, 8000 MB; of three defaults for memory the partition's counts."""
    conf = ("DefMemPerGPU=700", "DefCpuPerGPU=2", "DefMemPerCPU=400")
    with prepared_site(nodes=2, gpus=8, share=True, conf=conf) as made:
        of_partition = ("PartitionName=bftrainer", "JobDefaults=DefMemPerGPU=1500")
        made.lab.run("scontrol", "update", *of_partition, user="root")
        with made.controlled(QUICK):
            yield made


REQUESTS = (
    ("--gpus-per-node=2",),
    ("--gpus-per-node=2", "--cpus-per-gpu=1"),
    ("--gpus-per-node=1", "--cpus-per-task=5"),
    ("--gpus-per-node=1", "--cpus-per-task=3", "--mem-per-cpu=600"),
    ("--gpus-per-node=2", "--mem-per-gpu=1600"),
)


def test_an_element_asks_for_what_it_will_get(site: Site) -> None:
    runner = SlurmRunner(environment=site.lab.env)
    look = LookGateway(str(plugin.built() / LOOK), runner, share=True)
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
    assert [asked[array].memory_mb for array in arrays] == [3000, 3000, 1500, 1800, 3200]


ORDINARY = (
    (("-N1", "--gpus-per-node=2", "--cpus-per-gpu=4"), (2, 8)),
    (("-N1", "--gpus-per-node=2"), (2, 4)),
    (("-N1", "--gpus=2", "--cpus-per-gpu=3"), (2, 6)),
    (("-N2", "--gpus=4", "--cpus-per-gpu=3"), (2, 6)),  # as a mean: Slurm may give 3 and 1
    (("-N1", "-n2", "--gpus-per-task=2", "-c3"), (4, 6)),
    (("-N1", "--gpus-per-node=2", "--ntasks-per-gpu=3"), (2, 6)),
)


def test_what_an_ordinary_job_needs_of_a_node_is_what_it_gets(site: Site) -> None:
    runner = SlurmRunner(environment=site.lab.env)
    look = LookGateway(str(plugin.built() / LOOK), runner, share=True)
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

    try:
        for job, gets in jobs.items():
            wait_until(lambda: site.lab.squeue(job, "%t") == ["R"])  # noqa: B023
            assert got(job) == gets
            site.run("scancel", str(job))
    finally:
        site.run("scancel", *map(str, jobs))
