"""A log in GPUs: which are idle, whatever the nodes are, and which a job takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrainer_slurm.replay.logs.log import Log, LogOptions, read_log
from bftrainer_slurm.replay.logs.played import play_of
from tests.replay.logs.test_gpus import HEADER, HOUR, log, row


def gpus_of(found: Log) -> Log:
    assert found.in_gpus is not None
    return found.in_gpus


def test_gpus_that_no_job_has_are_idle_also_on_a_node_in_use(tmp_path: Path) -> None:
    found = log(tmp_path, row(1, 1, 11, "n1", 3), row(2, 5, 7, "n1", 1), row(3, 2, 3, "n2", 4))
    inside = gpus_of(found)
    assert (found.nodes, inside.nodes) == (2, 8)
    idle_h = inside.holes.length_s.sum() / HOUR
    assert idle_h == pytest.approx(80 - (3 * 10 + 2 + 4))


def test_a_job_takes_the_first_gpus_that_are_free_and_leaves_them(tmp_path: Path) -> None:
    inside = gpus_of(
        log(tmp_path, row(1, 1, 5, "n1", 2), row(2, 2, 9, "n1", 2), row(3, 6, 8, "n1", 1))
    )
    assert inside.jobs is not None
    assert inside.jobs.node_list.tolist() == ["n1.g0,n1.g1", "n1.g2,n1.g3", "n1.g0"]
    assert inside.jobs.nodes.tolist() == [2, 2, 1]


def test_a_job_on_several_nodes_takes_its_share_of_each(tmp_path: Path) -> None:
    inside = gpus_of(log(tmp_path, row(1, 1, 5, "n[1-2]", 4), row(2, 5, 6, "n1", 4)))
    assert inside.jobs is not None
    assert inside.jobs.node_list[0] == "n1.g0,n1.g1,n2.g0,n2.g1"


def test_jobs_without_gpus_take_none(tmp_path: Path) -> None:
    inside = gpus_of(log(tmp_path, row(1, 1, 11, "n1", 0), row(2, 1, 3, "n1", 2)))
    assert inside.holes.length_s.sum() / HOUR == pytest.approx(2 * 8)
    assert inside.jobs is not None
    assert len(inside.jobs) == 1


def test_where_most_nodes_have_no_gpus_nodes_are_counted(tmp_path: Path) -> None:
    rows = [row(1, 1, 3, "n1", 4), row(2, 1, 3, "n2", 0), row(3, 1, 3, "n3", 0)]
    assert log(tmp_path, *rows).in_gpus is None
    assert log(tmp_path, *rows[1:]).in_gpus is None


def test_gpus_of_a_node_that_is_down_are_not_idle(tmp_path: Path) -> None:
    path, down = tmp_path / "log", tmp_path / "down"
    path.write_text(f"{HEADER}\n{row(1, 1, 3, 'n1', 2)}\n")
    down.write_text(f"NodeName|TimeStart|TimeEnd|State\nn1|{5 * HOUR}|{9 * HOUR}|DOWN\n")
    options = LogOptions(down=down, from_s=HOUR, to_s=11 * HOUR)
    inside = gpus_of(read_log(path, options))
    assert inside.holes.length_s.sum() / HOUR == pytest.approx(2 * (10 - 2 - 4))


def test_jobs_are_played_back_with_the_gpus_whose_holes_they_end(tmp_path: Path) -> None:
    header = "JobID|Submit|" + HEADER.removeprefix("JobID|")
    tres = "cpu=4,gres/gpu={0}"
    lines = [
        f"{id_}|{int(begin * HOUR) - 9}|1|{int(begin * HOUR)}|{int(end * HOUR)}|{one}|{one}|n1"
        for id_, begin, end, one in ((1, 1, 9, tres.format(2)), (2, 4, 6, tres.format(1)))
    ] + [f"3|{HOUR}|1|{7 * HOUR}|{8 * HOUR}|{tres.format(4)}|{tres.format(4)}|n2"]
    path = tmp_path / "log"
    path.write_text("\n".join((header, *lines)) + "\n")
    inside = gpus_of(read_log(path, LogOptions(from_s=HOUR, to_s=11 * HOUR)))
    played = play_of(inside, inside.holes, inside.from_s, inside.to_s)
    assert played is not None
    names = inside.holes.nodes
    takes = {job.start_s / HOUR: [names[place] for place in job.takes] for job in played.jobs}
    assert takes == {1: [], 4: ["n1.g2"], 7: [f"n2.g{place}" for place in range(4)]}
