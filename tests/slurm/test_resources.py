"""Memory, processors and GRES as Slurm writes them, and which nodes have enough of them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from bftrainer_slurm.controller.observe.shared_nodes import SharedNode, is_divisible, shared_nodes
from bftrainer_slurm.model import (
    Configuration,
    Element,
    ElementId,
    ElementState,
    Memory,
    Node,
    NodeState,
    Part,
    Resources,
)
from bftrainer_slurm.slurm.configuration import per_gpu
from bftrainer_slurm.slurm.resources import gres_of_job, memory_asked, read_resources, read_used
from tests.controller.worlds import trainer

RECORDED = Path(__file__).parent / "data" / "gpus"
GRES = "gpu:a100:2(S:0-1),gpu:v100:2,bandwidth:lustre:no_consume:4G"
NODE = read_resources("8000", ("64",), GRES)


@pytest.mark.parametrize(
    ("memory", "megabytes"),
    [("8000", 8000), ("4000M", 4000), ("4G", 4096), ("1.5T", 1572864), ("0", 0), ("", 0), ("?", 0)],
)
def test_memory_is_in_megabytes_whatever_its_unit(memory: str, megabytes: float) -> None:
    assert read_resources(memory, (), "").memory_mb == megabytes


def test_who_has_a_node_alone_needs_memory_for_each_of_its_processors_where_slurm_counts_it() -> (
    None
):
    assert read_resources("125c", ("1",), "").fit(NODE, counts_memory=True)
    assert not read_resources("126c", ("1",), "").fit(NODE, counts_memory=True)
    assert read_resources("126c", ("1",), "").fit(NODE)


@pytest.mark.parametrize(
    ("memory", "cpus", "gres", "fits"),
    [
        ("", "", "", True),
        ("8000M", "64", "gres:gpu:4", True),
        ("0", "1", "gres/gpu:a100:2,gres/gpu:v100:1", True),
        ("0", "1", "gres/gpu=1,cpu=500,license/x=7", True),
        ("0", "1", "gres:bandwidth:lustre:2G", True),
        ("0", "1", "gres:none", True),
        ("0", "1", "N/A", True),
        ("8001M", "", "", False),
        ("8G", "", "", False),
        ("", "65", "", False),
        ("", "", "gres:gpu:5", False),
        ("", "", "gres/gpu:a100=3", False),
        ("", "", "gres:gpu:h100", False),
        ("", "", "gres:fpga", False),
    ],
)
def test_what_fits_a_node(memory: str, cpus: str, gres: str, fits: bool) -> None:
    assert read_resources(memory, (cpus,), gres_of_job(gres)).fit(NODE) is fits


@pytest.mark.parametrize("file", sorted(RECORDED.glob("nodes-*.txt")), ids=lambda file: file.stem)
def test_what_jobs_have_of_nodes_is_read_from_what_slurm_told(file: Path) -> None:
    used = read_used(file.read_text().replace("\n   ", " "))
    assert [(name, one.gpus, one.cpus, one.memory_mb) for name, one in used.items()] == [
        ("n1", 3, 6, 3000),
        ("n2", 3, 7, 4500),
        ("n3", 0, 5, 2500),
        ("n4", 0, 0, 0),
    ]


@pytest.mark.parametrize(
    "line",
    [
        *("", "NodeName=n1", "NodeName=n1 CPUAlloc=2 AllocMem=4", "Node List: not found"),
        "CPUAlloc=2 GresUsed=gpu:2 AllocMem=4",
    ],
)
def test_a_node_that_cannot_be_read_is_not_known(line: str) -> None:
    assert read_used(f"{line}\n") == {}


def test_a_node_without_gres_says_nothing_of_those_in_use() -> None:
    """As 22.05.8 prints it; of a node with GRES it must say."""
    line = "NodeName=n1 CPUAlloc=6 Gres=(null) AllocMem=3100\n"
    assert read_used(line) == {"n1": Resources(3100, 6)}


def test_a_text_of_an_operator_changes_nothing() -> None:
    line = "NodeName=n1 CPUAlloc=2 GresUsed=gpu:a100:1(IDX:0) AllocMem=4 Comment=GresUsed=gpu:9"
    assert read_used(line)["n1"].gpus == 1
    odd = read_used("NodeName=n1 CPUAlloc=\u0664 GresUsed=gpu:-1,gpu:9e9,gpu AllocMem=1e9")["n1"]
    assert odd.memory_mb == 0.0


ALIKE = ("gpu:8", "gpu:a100:8(S:0-1)", "gpu:a100:4,gpu:a100:4", "gpu:0", "fpga:2", "")
UNLIKE = (
    *("gpu:a100:4,gpu:h100:4", "gpu:1g.5gb:7", "gpu:a100_3g.20gb:2"),
    *("gpu:a100:2,mps:200", "gpu:a100:2,shard:8"),
)


@pytest.mark.parametrize("gres", [*ALIKE, *UNLIKE])
def test_gpus_are_given_out_one_by_one_where_they_are_alike_and_whole(gres: str) -> None:
    assert is_divisible(read_resources("", ("8",), gres)) is (gres in ALIKE)


HAS = read_resources("8000", ("16",), "gpu:8")


def of_n1(used: Resources | None, *elements: Element, has: Resources = HAS) -> SharedNode:
    """What of a node with this in use, where these elements run, is free and for whom."""
    node = Node("n1", NodeState.BUSY, resources=has, used=used)
    return shared_nodes([node], [trainer(*elements)] if elements else ())["n1"]


def test_what_is_not_known_to_be_free_is_not_given_out() -> None:
    used = read_resources("5000", ("6",), "gpu:(null):3(IDX:0-2)")
    assert of_n1(used) == SharedNode(8, Part(5, 10, 3000), Part(5, 10, 3000))
    for unknown in (None, Resources(9000, 99, HAS.gres)):
        assert of_n1(unknown) == SharedNode(8, Part(0, 0), Part(0, 0))


def test_the_processors_of_elements_are_free_for_ordinary_jobs() -> None:
    mine = Element(ElementId(5, 0), ElementState.RUNNING, "n1", gpus=2, cpus=4)
    used, left = read_resources("5000", ("10",), "gpu:5"), Part(3, 6, 3000)
    assert of_n1(used, mine) == SharedNode(8, Part(5, 10, math.inf), left)
    whole = replace(mine, gpus=0)  # all GPUs are its own, and Slurm says so of none
    assert of_n1(used, whole) == SharedNode(8, Part(8, 10, math.inf), left)
    waits = replace(mine, state=ElementState.PENDING)
    assert of_n1(used, waits) == SharedNode(8, left, left)


@pytest.mark.parametrize(("second", "free_mb"), [(500.0, 4500), (None, math.inf)])
def test_the_memory_of_elements_is_free_for_ordinary_jobs_if_it_is_known_of_all_of_them(
    second: float | None, free_mb: float
) -> None:
    elements = (
        Element(ElementId(5, task), ElementState.RUNNING, "n1", gpus=1, cpus=1, memory_mb=memory_mb)
        for task, memory_mb in enumerate((1000.0, second))
    )
    found = of_n1(Resources(5000, 10), *elements, has=Resources(8000, 16))
    assert found.free.memory_mb == free_mb


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("900", Memory(900)),
        ("2G", Memory(2048)),
        ("400/cpu", Memory(cpu_mb=400)),
        ("700/gpu", Memory(gpu_mb=700)),
        ("", Memory()),
    ],
)
def test_a_waiting_job_asks_for_memory_of_a_node_with_each_processor_or_with_each_gpu(
    text: str, asks: Memory
) -> None:
    assert memory_asked(text) == asks


@pytest.mark.parametrize(
    ("site", "partition", "each"),
    [
        ("DefCpuPerGPU=2,DefMemPerGPU=1000", "(null)", Part(1, 2, 1000)),
        ("DefCpuPerGPU=2,DefMemPerGPU=1000", "DefMemPerGPU=3000", Part(1, 2, 3000)),
        ("DefCpuPerGPU=2", "DefMemPerGPU=3000,DefCpuPerGPU=0", Part(1, 0, 3000)),
        ("(null)", "DefCpuPerGPU=4", Part(1, 4)),
        ("(null)", "(null)", Part(1, 0)),
    ],
)
def test_what_a_job_gets_with_each_gpu_is_set_for_the_site_and_for_a_partition(
    site: str, partition: str, each: Part
) -> None:
    found = per_gpu({"JobDefaults": site}, {"mine": {"JobDefaults": partition}, "other": {}})
    assert Configuration(counts_memory=True, per_gpu=found).default_per_gpu("mine") == each
    assert Configuration(per_gpu=found).default_per_gpu("mine") == Part(1, each.cpus)


def test_of_several_partitions_the_larger_defaults_count() -> None:
    of = Configuration(counts_memory=True, per_gpu={"a": Part(1, 4, 500.0), "b": Part(1, 2, 900.0)})
    assert of.default_per_gpu("a,b,c") == Part(1, 4, 900)
