"""GPUs that are idle in nodes in use, and all that no job had, by how many are free together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bftrainer_slurm.replay.logs.gpus import FreeGpus, GpuUse, free_gpus
from bftrainer_slurm.replay.logs.holes import HoleTable
from bftrainer_slurm.replay.logs.jobs import LogError
from bftrainer_slurm.replay.logs.log import Log, LogOptions, read_log

HEADER = "JobID|NNodes|Start|End|ReqTRES|AllocTRES|NodeList"
HOUR = 3600


def log(tmp_path: Path, *rows: str, gpus_per_node: int | None = None, names: str = "") -> Log:
    path = tmp_path / "log"
    path.write_text("\n".join((HEADER, *rows)) + "\n")
    return read_log(path, LogOptions(gpus_per_node=gpus_per_node, node_list=names,
                                     from_s=HOUR, to_s=11 * HOUR))  # fmt: skip


def row(id_: int, begin: float, end: float | str, nodes: str, gpus: int) -> str:
    stop = end if isinstance(end, str) else int(end * HOUR)
    tres = f"cpu=4,gres/gpu:a100={gpus},gres/gpu={gpus},mem=8G" if gpus else "cpu=4,mem=8G"
    return f"{id_}|1|{int(begin * HOUR)}|{stop}|{tres}|{tres}|{nodes}"


def test_a_node_has_as_many_as_were_ever_in_use_on_it_at_once(tmp_path: Path) -> None:
    found = log(tmp_path, row(1, 1, 3, "n1", 2), row(2, 2, 4, "n1", 2), row(3, 4, 6, "n1", 1))
    assert found.gpu_use == GpuUse(1, 4, allocated_hours=10.0, idle_hours=4 * 5 - 10.0)


def test_the_user_knows_better(tmp_path: Path) -> None:
    found = log(tmp_path, row(1, 1, 3, "n1", 1), row(2, 1, 3, "n2", 0), gpus_per_node=8)
    assert found.gpu_use == GpuUse(1, 8, allocated_hours=2.0, idle_hours=14.0)


def test_the_user_does_not_know_better_than_the_jobs(tmp_path: Path) -> None:
    rows = row(1, 1, 3, "n1", 8), row(2, 1, "Unknown", "n2", 2), row(3, 3, 4, "n1", 2)
    with pytest.raises(LogError, match="--gpus-per-node 4: jobs used 8 GPUs of a node at once"):
        log(tmp_path, *rows, gpus_per_node=4)
    # A moment of it does not count: a job's GPUs need not be the same on each of its nodes.
    rare = log(tmp_path, row(1, 1, 1.1, "n1", 5), row(2, 1.1, 9, "n1", 4), gpus_per_node=4)
    assert rare.gpu_use is not None
    assert rare.gpu_use.gpus == 4


def test_gpus_of_whole_idle_nodes_are_none_of_them(tmp_path: Path) -> None:
    found = log(tmp_path, row(1, 1, 3, "n1", 4), row(2, 5, 6, "n1", 0))
    assert found.gpu_use is not None
    assert found.gpu_use.idle_hours == pytest.approx(4.0)  # beside the job without GPUs


def test_a_job_of_several_nodes_has_its_share_on_each(tmp_path: Path) -> None:
    found = log(tmp_path, row(1, 1, 3, "n[1-2]", 8), row(2, 3, 4, "n1", 1))
    assert found.gpu_use == GpuUse(2, 8, allocated_hours=17.0, idle_hours=3.0)
    named = log(tmp_path, row(1, 1, 3, "n[1-2]", 8), names="n1")
    assert named.gpu_use == GpuUse(1, 4, allocated_hours=8.0, idle_hours=0.0)


def test_what_two_logs_show_is_counted_once(tmp_path: Path) -> None:
    found = log(tmp_path, row(1, 1, "Unknown", "n1", 2), row(1, 1, 3, "n1", 2))
    assert found.gpu_use == GpuUse(1, 2, allocated_hours=4.0, idle_hours=0.0)


def test_holes_are_the_same_with_and_without_gpus(tmp_path: Path) -> None:
    some, none = log(tmp_path, row(1, 1, 3, "n1", 1)), log(tmp_path, row(1, 1, 3, "n1", 0))
    assert some.holes.length_s.sum() == none.holes.length_s.sum()
    assert (none.gpu_use, none.types, some.types) == (None, (), ("1 GPU",))


def test_slices_of_gpus_are_told_as_they_are_no_gpus_for_nccl(tmp_path: Path) -> None:
    slices = row(1, 1, 3, "n1", 2).replace("a100", "nvidia_a100_1g.10gb")
    (told,) = (one for one in log(tmp_path, slices).caveats if "MIG" in one)
    assert "gres/gpu:nvidia_a100_1g.10gb" in told
    assert not any("MIG" in one for one in log(tmp_path, row(1, 1, 3, "n1", 2)).caveats)


def table(nodes: int, *rows: tuple[int, float, float]) -> HoleTable:
    """Holes: node, start and end."""
    node, start_s, end_s = np.array(rows, float).reshape(-1, 3).T
    return HoleTable(tuple(f"n{k}" for k in range(nodes)), node.astype(np.int32), start_s, end_s)


def free(*jobs: tuple[int, float, float, float], unusable: HoleTable | None = None) -> FreeGpus:
    """Two nodes of 8 GPUs for an hour; jobs are node, start, end (hours) and GPUs; n1 is idle."""
    node, start, end, gpus = np.array(jobs, float).reshape(-1, 4).T
    stretches = node.astype(np.int32), start * HOUR, end * HOUR, gpus
    holes = table(2, (1, 0.0, HOUR)) if unusable is None else table(2)
    found = free_gpus(np.array([8, 8]), stretches, holes, unusable, (0.0, HOUR))
    assert found is not None
    return found


def test_free_gpus_are_told_apart_by_node_and_by_size() -> None:
    found = free((0, -1.0, 0.5, 5.0), (0, 0.5, 2.0, 2.0))
    assert found.idle_nodes == pytest.approx(8)
    assert found.together == pytest.approx({3: 1.5, 6: 3})
    assert found.fit == pytest.approx({1: 4.5, 2: 1 + 3, 4: 2})
    assert found.total == pytest.approx(8 + 4.5)


def test_a_job_without_gpus_keeps_its_node_from_being_whole() -> None:
    assert free().idle_nodes == pytest.approx(8)
    assert free().together == pytest.approx({7: 7})


def test_a_node_that_is_down_has_no_free_gpus() -> None:
    assert free((0, 0.0, 1.0, 8.0), unusable=table(2, (1, 0.0, HOUR))).total == 0


def test_nodes_without_gpus_have_none() -> None:
    jobs = np.empty(0, np.int32), np.empty(0), np.empty(0), np.empty(0)
    assert free_gpus(np.array([0, 0]), jobs, table(2), None, (0.0, HOUR)) is None
