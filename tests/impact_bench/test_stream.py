"""The stream is the same for the same seed, and has what a reclaim can be met by."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from scripts.impact_bench.stream import made_stream


def test_the_same_seed_gives_the_same_stream() -> None:
    assert made_stream(60, 8, 1, 30, 0.6) == made_stream(60, 8, 1, 30, 0.6)
    assert made_stream(60, 8, 1, 30, 0.6) != made_stream(60, 8, 2, 30, 0.6)


@pytest.mark.parametrize(("jobs", "sizes"), [(300, [30] * 10), (35, [30, 5]), (7, [7])])
def test_jobs_are_cut_into_chunks(jobs: int, sizes: list[int]) -> None:
    assert [len(chunk) for chunk in made_stream(jobs, 8, 0, 30, 0.6)] == sizes


@pytest.mark.parametrize("seed", range(5))
def test_each_chunk_begins_within_a_second_and_goes_on_in_order_of_time(seed: int) -> None:
    for chunk in made_stream(300, 8, seed, 30, 0.6):
        times_s = [job.at_s for job in chunk]
        assert 0 <= times_s[0] <= 1
        assert times_s == sorted(times_s)


@pytest.mark.parametrize("seed", range(5))
def test_jobs_have_one_node_to_all_and_seconds_to_a_minute(seed: int) -> None:
    jobs = [job for chunk in made_stream(300, 8, seed, 30, 0.6) for job in chunk]
    assert {job.nodes for job in jobs} == set(range(1, 9))
    assert all(2 <= job.runs_s <= 60 for job in jobs)
    assert max(job.runs_s for job in jobs) > 30
    assert all(job.runs_s + 5 <= 60 * job.minutes for job in jobs)


@pytest.mark.parametrize("nodes", [2, 3, 5, 64])
def test_a_job_never_asks_for_more_nodes_than_there_are(nodes: int) -> None:
    jobs = [job for chunk in made_stream(300, nodes, 0, 30, 0.6) for job in chunk]
    assert {job.nodes for job in jobs} >= {1, nodes}
    assert max(job.nodes for job in jobs) == nodes


def test_each_chunk_has_a_job_of_all_nodes() -> None:
    assert all(any(job.nodes == 8 for job in chunk) for chunk in made_stream(300, 8, 0, 30, 0.6))


def test_there_are_bursts() -> None:
    times_s = [job.at_s for job in made_stream(300, 8, 0, 300, 0.6)[0]]
    together = sum(later - earlier < 0.5 for earlier, later in pairwise(times_s))
    assert together > 30


def test_jobs_are_submitted_at_all_moments_of_a_second() -> None:
    moments = [job.at_s % 1 for job in made_stream(300, 8, 0, 300, 0.6)[0]]
    counts = Counter(int(10 * moment) for moment in moments)
    assert len(counts) == 10
    assert max(counts.values()) < 60


def test_at_a_lower_load_the_same_jobs_come_later() -> None:
    busy, calm = (made_stream(30, 8, 0, 30, load)[0] for load in (0.6, 0.2))
    assert [job.runs_s for job in busy] == [job.runs_s for job in calm]
    assert calm[-1].at_s > 1.5 * busy[-1].at_s
