"""GPUs of a log: which are idle, also in nodes in use, how many together, and who takes which."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bftrainer_slurm.replay.logs.gpus import FreeGpus, GpuUse, free_gpus
from bftrainer_slurm.replay.logs.holes import HoleTable
from bftrainer_slurm.replay.logs.jobs import LogError
from bftrainer_slurm.replay.logs.log import Log
from bftrainer_slurm.replay.logs.played import play_of
from tests.controller.worlds import cases
from tests.replay.logs.conftest import Reads
from tests.replay.traces import hole_table

HOUR = 3600
Row = tuple[float, float | str, str, int]  # begin and end in hours, nodes, and GPUs of all of them


def log(reads: Reads, *rows: Row, kind: str = "a100", **options: Any) -> Log:
    """A log from hour 1 to 11 whose jobs were submitted as they began."""
    lines = ["JobID|NNodes|Submit|Start|End|ReqTRES|AllocTRES|NodeList"]
    for number, (begin, end, nodes, gpus) in enumerate(rows):
        stop = end if isinstance(end, str) else int(end * HOUR)
        tres = f"cpu=4,gres/gpu:{kind}={gpus},gres/gpu={gpus},mem=8G" if gpus else "cpu=4,mem=8G"
        since = int(begin * HOUR)
        lines.append(f"{number}|1|{since}|{since}|{stop}|{tres}|{tres}|{nodes}")
    return reads("\n".join(lines), from_s=HOUR, to_s=11 * HOUR, **options)


@cases(
    "rows, options, use",
    as_many_as_were_ever_in_use_at_once=(
        *([(1, 3, "n1", 2), (2, 4, "n1", 2), (4, 6, "n1", 1)], {}, GpuUse(1, 4, 10.0, 10.0)),
    ),
    as_many_as_the_user_says=(
        *([(1, 3, "n1", 1), (1, 3, "n2", 0)], {"gpus_per_node": 8}, GpuUse(1, 8, 2.0, 14.0)),
    ),
    no_more_for_a_moment_of_more=(  # a job's GPUs need not be the same on each of its nodes
        *([(1, 1.1, "n1", 5), (1.1, 9, "n1", 4)], {"gpus_per_node": 4}),
        GpuUse(1, 4, pytest.approx(5 * 0.1 + 4 * 7.9), pytest.approx(0.0)),
    ),
    none_of_those_of_whole_idle_nodes=(
        *([(1, 3, "n1", 4), (5, 6, "n1", 0)], {}, GpuUse(1, 4, 8.0, pytest.approx(4.0))),
    ),
    of_a_job_of_several_nodes_its_share_on_each=(
        *([(1, 3, "n[1-2]", 8), (3, 4, "n1", 1)], {}, GpuUse(2, 8, 17.0, 3.0)),
    ),
    also_where_only_some_nodes_are_looked_at=(
        *([(1, 3, "n[1-2]", 8)], {"node_list": "n1"}, GpuUse(1, 4, 8.0, 0.0)),
    ),
    none_where_no_job_has_any=([(1, 3, "n1", 0)], {}, None),
)
def test_a_node_has(reads: Reads, rows: list[Row], options: Any, use: GpuUse | None) -> None:
    found = log(reads, *rows, **options)
    assert found.gpu_use == use
    without = log(reads, *((begin, end, nodes, 0) for begin, end, nodes, _ in rows))
    assert options or found.holes.length_s.sum() == without.holes.length_s.sum()


def test_the_user_does_not_know_better_than_the_jobs(reads: Reads) -> None:
    rows: list[Row] = [(1, 3, "n1", 8), (1, "Unknown", "n2", 2), (3, 4, "n1", 2)]
    with pytest.raises(LogError, match="--gpus-per-node 4: jobs used 8 GPUs of a node at once"):
        log(reads, *rows, gpus_per_node=4)


def test_slices_of_gpus_are_told_as_they_are_no_gpus_for_nccl(reads: Reads) -> None:
    for kind, told in (("nvidia_a100_1g.10gb", True), ("a100", False)):
        caveats = log(reads, (1, 3, "n1", 2), kind=kind).caveats
        assert any("MIG" in one and f"gres/gpu:{kind}" in one for one in caveats) is told


def free(*jobs: tuple[int, float, float, float], unusable: HoleTable | None = None) -> FreeGpus:
    """Two nodes of 8 GPUs for an hour; jobs are node, start, end (hours) and GPUs; n1 is idle."""
    node, start, end, gpus = np.array(jobs, float).reshape(-1, 4).T
    stretches = node.astype(np.int32), start * HOUR, end * HOUR, gpus
    holes = hole_table([] if unusable else [(1, 0.0, HOUR)], "n0", "n1")
    found = free_gpus(np.array([8, 8]), stretches, holes, unusable, (0.0, HOUR))
    assert found is not None
    return found


def test_free_gpus_are_told_apart_by_node_and_by_size() -> None:
    found = free((0, -1.0, 0.5, 5.0), (0, 0.5, 2.0, 2.0))
    assert found.idle_nodes == pytest.approx(8)
    assert found.together == pytest.approx({3: 1.5, 6: 3})
    assert found.fit == pytest.approx({1: 4.5, 2: 1 + 3, 4: 2})
    assert found.total == pytest.approx(8 + 4.5)


def test_a_job_without_gpus_keeps_its_node_from_being_whole_and_one_that_is_down_has_none() -> None:
    assert free().idle_nodes == pytest.approx(8)
    assert free().together == pytest.approx({7: 7})
    down = hole_table([(1, 0.0, HOUR)], "n0", "n1")
    assert free((0, 0.0, 1.0, 8.0), unusable=down).total == 0


def test_nodes_without_gpus_have_none() -> None:
    jobs = np.empty(0, np.int32), np.empty(0), np.empty(0), np.empty(0)
    assert free_gpus(np.array([0, 0]), jobs, hole_table([], "n0"), None, (0.0, HOUR)) is None


# A log in GPUs in place of nodes.

DOWN = f"NodeName|TimeStart|TimeEnd|State\nn1|{5 * HOUR}|{9 * HOUR}|DOWN\n"


@cases(
    "rows, options, idle, jobs",
    the_first_that_are_free_until_it_ends=(
        [(1, 5, "n1", 2), (2, 9, "n1", 2), (6, 8, "n1", 1)],
        *({}, (4, 4 * 10 - 2 * 4 - 2 * 7 - 2), [(0, 1), (2, 3), (0,)]),
    ),
    its_share_on_each_of_its_nodes=(
        [(1, 5, "n[1-2]", 4), (5, 6, "n1", 4)],
        *({}, (6, 6 * 10 - 4 * 4 - 4), [(0, 1, 4, 5), (0, 1, 2, 3)]),
    ),
    none_if_it_asked_for_none=(*([(1, 11, "n1", 0), (1, 3, "n1", 2)], {}, (2, 2 * 8), [(0, 1)]),),
    none_of_a_node_that_is_down=(
        *([(1, 3, "n1", 2)], {"down": DOWN}, (2, 2 * (10 - 2 - 4)), [(0, 1)]),
    ),
)
def test_a_job_takes(
    reads: Reads, rows: list[Row], options: Any, idle: tuple[int, float], jobs: list[Any]
) -> None:
    """How many GPUs there are, for how many hours together they are idle, and whose are which."""
    inside = log(reads, *rows, **options).in_gpus
    assert (inside.nodes, inside.holes.length_s.sum() / HOUR) == pytest.approx(idle)
    named = [",".join(inside.holes.nodes[place] for place in places) for places in jobs]
    assert inside.jobs.node_list.tolist() == named
    assert inside.jobs.nodes.tolist() == list(map(len, jobs))
    assert inside.holes.nodes[0] == "n1.g0"


def test_where_most_nodes_have_no_gpus_nodes_are_counted(reads: Reads) -> None:
    rows: list[Row] = [(1, 3, "n1", 4), (1, 3, "n2", 0), (1, 3, "n3", 0)]
    assert log(reads, *rows).in_gpus is None
    assert log(reads, *rows[1:]).in_gpus is None


def test_jobs_are_played_back_with_the_gpus_whose_holes_they_end(reads: Reads) -> None:
    inside = log(reads, (1, 9, "n1", 2), (4, 6, "n1", 1), (7, 8, "n2", 4)).in_gpus
    played = play_of(inside, inside.holes, inside.from_s, inside.to_s)
    names = inside.holes.nodes
    takes = {job.start_s / HOUR: [names[place] for place in job.takes] for job in played.jobs}
    assert takes == {1: [], 4: ["n1.g2"], 7: [f"n2.g{place}" for place in range(4)]}
