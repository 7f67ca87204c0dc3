"""Parts of nodes on a real cluster: nodes of 8 GPUs, ordinary jobs beside trainers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bftrainer_slurm.model import Memory
from bftrainer_slurm.slurm.commands import CommandGateway
from bftrainer_slurm.slurm.look_gateway import LookGateway
from bftrainer_slurm.slurm.open import LOOK
from bftrainer_slurm.slurm.run import SlurmRunner
from scripts.labcluster import plugin
from scripts.labcluster.site import Site, started_site
from scripts.labcluster.waiting import wait_until

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.newest,
    pytest.mark.usefixtures("nothing_is_left"),
    pytest.mark.timeout(1500),
]
IDLE = "#!/bin/bash\nsrun sleep 1000\n"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with started_site(nodes=2, gpus=8, share=True) as running:
        yield running


def ordinary(site: Site, gpus: int, *options: str) -> int:
    """A job of bob's on n1, with so many GPUs."""
    words = ("-N1", "-w", "n1", f"--gpus-per-node={gpus}", "-o", "/dev/null", *options)
    return site.lab.sbatch(*words, script="#!/bin/sh\nsleep 1000\n", user="bob")


def running(site: Site, job: int) -> bool:
    return site.lab.squeue(job, "%t") == ["R"]


def nodes_of(site: Site, array: int) -> list[str]:
    nodes: list[str] = site.controller.trainer(array)["nodes"]
    return nodes


def has(site: Site, array: int, *nodes: str) -> bool:
    """Whether its elements run on these nodes, and no other one runs."""
    wait_until(lambda: nodes_of(site, array) == list(nodes))
    there = [line.split() for line in site.lab.squeue(array, "%t %N")]
    return sorted(node for state, *on in there for node in on if state == "R") == list(nodes)


def used(site: Site, node: str) -> str:
    shown = site.run("scontrol", "show", "node", "-d", "-o", node).stdout
    return shown.partition(" GresUsed=")[2].partition("(")[0]


def test_an_element_takes_its_part_beside_an_ordinary_job_and_leaves_for_the_next(
    site: Site,
) -> None:
    first = ordinary(site, 3)
    wait_until(lambda: running(site, first))
    array = site.submit(IDLE, "1-2", "--gpus-per-node=2", "--exclude=n2")
    assert has(site, array, "n1")
    assert used(site, "n1") == "gpu:a100:5"
    second = ordinary(site, 4)
    wait_until(lambda: running(site, second))
    assert running(site, first)
    wait_until(lambda: nodes_of(site, array) == [])
    assert used(site, "n1") == "gpu:a100:7"
    site.run("scancel", str(second), user="bob")
    assert has(site, array, "n1")
    assert running(site, first)


def test_two_trainers_have_a_node_each_its_part_and_one_element_at_most(site: Site) -> None:
    first = ordinary(site, 1)
    wait_until(lambda: running(site, first))
    arrays = [site.submit(IDLE, "1-4", f"--gres=gpu:{gpus}") for gpus in (2, 4)]
    for array in arrays:
        assert has(site, array, "n1", "n2")
    assert used(site, "n1") == "gpu:a100:7"
    site.run("scancel", str(arrays[1]))
    wait_until(lambda: used(site, "n2") == "gpu:a100:2")
    assert running(site, first)
    assert has(site, arrays[0], "n1", "n2")
    said = "2 of each of its nodes; other jobs may have the rest"
    wait_until(lambda: said in site.run("bftrainer", "show", str(arrays[0])).stdout)


def test_who_wants_whole_nodes_leaves_shared_ones_alone(site: Site) -> None:
    first = ordinary(site, 1)
    wait_until(lambda: running(site, first))
    array = site.submit(IDLE, "1-2", "--gpus-per-node=2", "--exclusive")
    assert has(site, array, "n2")


def test_commands_tell_parts_from_whole_nodes_as_bftrainer_look_does(site: Site) -> None:
    ordinary(site, 1, "--begin=now+1hour")
    ordinary(site, 1, "--begin=now+1hour", "--exclusive")
    asks = "--gpus-per-node=2", "--begin=now+1hour"
    arrays = [site.submit(IDLE, "1-2", *asks, *whole) for whole in ((), ("--exclusive",))]
    runner = SlurmRunner(environment=site.lab.env)
    seen = [
        CommandGateway(runner, share=True).queue(),
        LookGateway(str(plugin.built() / LOOK), runner, share=True).queue(),
    ]
    gpus = [{one.array: one.demands.gpus for one in queue.trainers} for queue in seen]
    assert [[one[array] for array in arrays] for one in gpus] == [[2, 0], [2, 0]]
    job = ordinary(site, 2, "--begin=now+1hour", "--mem-per-gpu=700")
    waiting = LookGateway(str(plugin.built() / LOOK), runner, share=True).queue().waiting
    assert {one.job_id: one.memory for one in waiting}[job] == Memory(gpu_mb=700, default=True)
