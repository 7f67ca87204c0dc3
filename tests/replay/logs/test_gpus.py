"""GPUs that no job of a log had, by node and by how many are free together."""

from __future__ import annotations

import numpy as np
import pytest

from bftrainer_slurm.replay.logs.gpus import FreeGpus, free_gpus
from bftrainer_slurm.replay.logs.holes import HoleTable

HOUR_S = 3600.0


def table(nodes: int, *rows: tuple[int, float, float]) -> HoleTable:
    """Holes: node, start and end."""
    node, start_s, end_s = np.array(rows, float).reshape(-1, 3).T
    return HoleTable(tuple(f"n{k}" for k in range(nodes)), node.astype(np.int32), start_s, end_s)


def free(*jobs: tuple[int, float, float, float], unusable: HoleTable | None = None) -> FreeGpus:
    """Two nodes of 8 GPUs for an hour; jobs are node, start, end (hours) and GPUs; n1 is idle."""
    node, start, end, gpus = np.array(jobs, float).reshape(-1, 4).T
    stretches = node.astype(np.int32), start * HOUR_S, end * HOUR_S, gpus
    holes = table(2, (1, 0.0, HOUR_S)) if unusable is None else table(2)
    found = free_gpus(np.array([8, 8]), stretches, holes, unusable, (0.0, HOUR_S))
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
    assert free((0, 0.0, 1.0, 8.0), unusable=table(2, (1, 0.0, HOUR_S))).total == 0


def test_nodes_without_gpus_have_none() -> None:
    jobs = np.empty(0, np.int32), np.empty(0), np.empty(0), np.empty(0)
    assert free_gpus(np.array([0, 0]), jobs, table(2), None, (0.0, HOUR_S)) is None
