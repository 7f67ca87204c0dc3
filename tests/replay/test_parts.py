"""Free GPUs of a log, and trainers on parts of its nodes."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from bftrainer_slurm.planner.solver import Planner
from bftrainer_slurm.replay.assessment.parts import compare
from bftrainer_slurm.replay.logs.gpus import FreeGpus, free_gpus
from bftrainer_slurm.replay.logs.holes import HoleTable
from bftrainer_slurm.replay.parts import PartsResult, over_gpus, replay_parts
from bftrainer_slurm.replay.synthetic.gpus import TRACES, simulate_gpus
from bftrainer_slurm.replay.synthetic.workload import Workload, WorkloadError
from bftrainer_slurm.replay.trainers import typical_trainers

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
    has = np.array([8, 8])
    found = free_gpus(holes.nodes, has, stretches, holes, (unusable,) if unusable else (),
                      (0.0, HOUR_S))  # fmt: skip
    assert found is not None
    return found


def test_free_gpus_are_told_apart_by_node_and_by_size() -> None:
    found = free((0, -1.0, 0.5, 5.0), (0, 0.5, 2.0, 2.0))
    assert found.hours() == pytest.approx(8 + 1.5 + 3)
    assert found.hours(in_use=True) == pytest.approx(4.5)
    assert found.hours(in_use=False) == pytest.approx(8)
    assert found.hours(2, in_use=True) == pytest.approx(1 + 3)
    assert found.hours(4, in_use=True) == pytest.approx(2)


def test_a_job_without_gpus_keeps_its_node_from_being_whole() -> None:
    assert free().hours(8) == pytest.approx(8)
    assert free().hours() == pytest.approx(7 + 8)


def test_a_node_that_is_down_has_no_free_gpus() -> None:
    assert free((0, 0.0, 1.0, 8.0), unusable=table(2, (1, 0.0, HOUR_S))).hours() == 0


def test_a_part_of_the_time_begins_with_what_is_free_then() -> None:
    found = free((0, 0.0, 0.25, 8.0)).between(0.5 * HOUR_S, HOUR_S)
    assert found.hours() == pytest.approx(3.5 + 4)


@pytest.fixture(scope="module")
def planner() -> Planner:
    return Planner(time_limit_s=60.0)


def test_parts_use_what_whole_nodes_cannot(planner: Planner) -> None:
    found = free((0, 0.0, 0.5, 5.0), (0, 0.5, 1.0, 7.0))
    trainers = [over_gpus(one, 8) for one in typical_trainers(4)]
    whole = replay_parts(found, typical_trainers(4), ((),) * 4, planner, 60.0)
    parts = replay_parts(found, trainers, ((1,),) * 4, planner, 60.0)
    assert whole.free_hours == parts.free_hours == pytest.approx(8 + 2)
    assert whole.used_hours == pytest.approx(8, rel=0.02)
    assert parts.used_hours == pytest.approx(4 + 1.5 + 0.5, rel=0.02)
    assert (whole.reclaimed, parts.reclaimed) == (0, 2)


def test_a_log_of_which_no_part_can_be_replayed_is_compared_as_nothing(planner: Planner) -> None:
    found = compare(free(), (), typical_trainers(2), ((1,),), planner, 60.0)
    assert (found.whole, found.parts) == (PartsResult(0.0, 0.0, 0.0, 0, 0),) * 2
    assert found.times_training is None


def test_the_plan_chooses_how_many_gpus_an_element_has(planner: Planner) -> None:
    """Half of n0 is free, and then all of both nodes but one GPU: one trainer can have all."""
    found = free((0, 0.0, 0.5, 4.0), (1, 0.0, 0.5, 8.0), (0, 0.5, 1.0, 1.0), (1, 0.5, 1.0, 1.0))
    (trainer,) = (over_gpus(one, 8) for one in typical_trainers(1))
    results = {
        sizes: replay_parts(found, [trainer], (sizes,), planner, 60.0)
        for sizes in ((1,), (4,), (7,), (1, 4, 7))
    }
    used = [one.used_hours for one in results.values()]
    assert used == pytest.approx([0.5 + 1, 2 + 4, 7, 2 + 4], rel=0.05), "it keeps its number"
    assert results[4,].samples == results[1, 4, 7].samples


def test_so_many_gpus_train_alike_on_whole_nodes_and_on_parts(planner: Planner) -> None:
    found, (trainer,) = free((0, 0.0, 0.5, 8.0), (0, 0.5, 1.0, 8.0)), typical_trainers(1)
    whole = replay_parts(found, [trainer], ((),), planner, 60.0)
    parts = replay_parts(found, [over_gpus(trainer, 8)], ((8,),), planner, 60.0)
    assert whole == parts
    planner.close()


@pytest.mark.parametrize("trace", TRACES)
def test_a_made_up_gpu_cluster_gives_no_gpu_to_two_jobs(trace: str) -> None:
    made = simulate_gpus(Workload(12, 0.9, days=2.0), 8, trace)
    again = simulate_gpus(Workload(12, 0.9, days=2.0), 8, trace)
    assert made.free_gpus is not None and again.free_gpus is not None
    assert (made.free_gpus.free == again.free_gpus.free).all()
    assert made.hardware.gpus.tolist() == [8] * 12
    started = made.jobs.rows(made.jobs.started)
    asked_s = (started.gpus * np.clip(np.minimum(started.end_s, made.to_s)
               - np.maximum(started.start_s, made.from_s), 0.0, None)).sum()  # fmt: skip
    held = 12 * 8 * 48.0 - asked_s / HOUR_S
    assert made.free_gpus.hours() == pytest.approx(held, abs=0.01 * held + 1)


def test_a_cluster_that_is_too_small_is_refused() -> None:
    with pytest.raises(WorkloadError, match="its largest jobs have 32 GPUs"):
        simulate_gpus(Workload(2, 0.9), 8, "helios")


_ON_PARTS = """
from bftrainer_slurm.planner.solver import Planner
from bftrainer_slurm.replay.trainers import typical_trainers
from bftrainer_slurm.replay.parts import over_gpus, replay_parts
from bftrainer_slurm.replay.synthetic.gpus import simulate_gpus
from bftrainer_slurm.replay.synthetic.workload import Workload

gpus = simulate_gpus(Workload(10, 0.7, days=1 / 12), 8, "helios").free_gpus
sizes = ((1,), (1, 2, 4)) * 3
trainers = [over_gpus(one, 8) for one in typical_trainers(6)]
with Planner(time_limit_s=300.0) as planner:
    planner.warm_up()
    print(replay_parts(gpus, trainers, sizes, planner, 60.0))
"""


def test_the_same_log_gives_the_same_figures_whatever_the_hash_seed() -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", _ON_PARTS],
            env=os.environ | {"PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "3")
    ]
    printed = [process.communicate()[0] for process in started]
    assert printed[0].startswith("PartsResult(free_hours=71.25")
    assert printed[0] == printed[1]
