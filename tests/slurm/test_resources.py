"""Memory, processors and GRES as Slurm writes them, and which nodes have enough of them."""

from __future__ import annotations

import pytest

from bftrainer_slurm.slurm.resources import gres_of_job, read_resources

GRES = "gpu:a100:2(S:0-1),gpu:v100:2,bandwidth:lustre:no_consume:4G"
NODE = read_resources("8000", ("64",), GRES)


@pytest.mark.parametrize(
    ("memory", "megabytes"),
    [
        ("8000", 8000),
        ("4000M", 4000),
        ("4G", 4096),
        ("1.5T", 1572864),
        ("0", 0),
        ("", 0),
        ("?", 0),
    ],
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
    ("memory", "cpus", "gres"),
    [
        ("", "", ""),
        ("8000M", "64", "gres:gpu:4"),
        ("0", "1", "gres/gpu:a100:2,gres/gpu:v100:1"),
        ("0", "1", "gres/gpu=1,cpu=500,license/x=7"),
        ("0", "1", "gres:bandwidth:lustre:2G"),
        ("0", "1", "gres:none"),
        ("0", "1", "N/A"),
    ],
)
def test_what_fits_a_node(memory: str, cpus: str, gres: str) -> None:
    assert read_resources(memory, (cpus,), gres_of_job(gres)).fit(NODE)


@pytest.mark.parametrize(
    ("memory", "cpus", "gres"),
    [
        ("8001M", "", ""),
        ("8G", "", ""),
        ("", "65", ""),
        ("", "", "gres:gpu:5"),
        ("", "", "gres/gpu:a100=3"),
        ("", "", "gres:gpu:h100"),
        ("", "", "gres:fpga"),
    ],
)
def test_what_does_not_fit(memory: str, cpus: str, gres: str) -> None:
    assert not read_resources(memory, (cpus,), gres_of_job(gres)).fit(NODE)
