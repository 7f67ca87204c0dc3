"""The streams are the same for the same seed, and have what a reclaim can be met by."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from scripts.impact_bench.stream import busy_stream, quick_stream


def test_the_same_seed_gives_the_same_stream() -> None:
    assert quick_stream(60, 8, 1, 0.6) == quick_stream(60, 8, 1, 0.6)
    assert quick_stream(60, 8, 1, 0.6) != quick_stream(60, 8, 2, 0.6)


@pytest.mark.parametrize(("jobs", "sizes"), [(300, [30] * 10), (35, [30, 5]), (7, [7])])
def test_jobs_are_cut_into_chunks(jobs: int, sizes: list[int]) -> None:
    assert [len(chunk) for chunk in quick_stream(jobs, 8, 0, 0.6)] == sizes


@pytest.mark.parametrize("seed", range(5))
def test_each_chunk_begins_in_its_second_second_and_goes_on_in_order_of_time(seed: int) -> None:
    for chunk in quick_stream(300, 8, seed, 0.6):
        times_s = [job.at_s for job in chunk]
        assert 1 <= times_s[0] <= 2
        assert times_s == sorted(times_s)


@pytest.mark.parametrize("seed", range(5))
def test_jobs_have_one_node_to_all_and_seconds_to_a_minute(seed: int) -> None:
    jobs = [job for chunk in quick_stream(300, 8, seed, 0.6) for job in chunk]
    assert {job.nodes for job in jobs} == set(range(1, 9))
    assert all(2 <= job.runs_s <= 60 for job in jobs)
    assert max(job.runs_s for job in jobs) > 30
    assert all(job.runs_s + 5 <= 60 * job.minutes for job in jobs)


@pytest.mark.parametrize("nodes", [2, 3, 5, 64])
def test_a_job_never_asks_for_more_nodes_than_there_are(nodes: int) -> None:
    jobs = [job for chunk in quick_stream(300, nodes, 0, 0.6) for job in chunk]
    assert {job.nodes for job in jobs} >= {1, nodes}
    assert max(job.nodes for job in jobs) == nodes


def test_each_chunk_has_a_job_of_all_nodes() -> None:
    assert all(any(job.nodes == 8 for job in chunk) for chunk in quick_stream(300, 8, 0, 0.6))


def test_there_are_bursts() -> None:
    pairs = [pair for chunk in quick_stream(300, 8, 0, 0.6) for pair in pairwise(chunk)]
    assert sum(later.at_s - earlier.at_s < 0.5 for earlier, later in pairs) > 30


def test_jobs_are_submitted_at_all_moments_of_a_second() -> None:
    moments = [job.at_s % 1 for chunk in quick_stream(300, 8, 0, 0.6) for job in chunk]
    counts = Counter(int(10 * moment) for moment in moments)
    assert len(counts) == 10
    assert max(counts.values()) < 60


def test_at_a_lower_load_the_same_jobs_come_later() -> None:
    busy, calm = (quick_stream(30, 8, 0, load)[0] for load in (0.6, 0.2))
    assert [job.runs_s for job in busy] == [job.runs_s for job in calm]
    assert calm[-1].at_s > 1.5 * busy[-1].at_s


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("jobs", [2, 25, 100])
def test_a_busy_stream_has_as_many_jobs_as_asked_in_order_of_time(jobs: int, seed: int) -> None:
    stream = busy_stream(jobs, 8, seed, 0.6)
    times_s = [job.at_s for job in stream]
    assert len(stream) == jobs
    assert times_s == sorted(times_s)
    assert stream == busy_stream(jobs, 8, seed, 0.6)
    assert all(job.runs_s < 60 * job.minutes for job in stream)


@pytest.mark.parametrize("seed", range(5))
def test_behind_a_long_job_one_of_all_nodes_waits_at_the_head(seed: int) -> None:
    stream = busy_stream(100, 8, seed, 0.6)
    assert [job.nodes for job in stream[:2]] == [1, 8]
    large = [job for job in stream if job.nodes == 8]
    long = [job for job in stream if job.runs_s > 200]
    assert [job.nodes for job in long] == [1] * len(large)
    for ahead, waits, following in zip(long, large, long[1:], strict=False):
        assert ahead.at_s < waits.at_s < following.at_s
        assert following.at_s + 60 * following.minutes > ahead.at_s + 60 * ahead.minutes
    assert stream[-1].nodes < 8


@pytest.mark.parametrize("seed", range(5))
def test_no_job_of_a_busy_stream_comes_at_a_pass_nor_ends_at_one(seed: int) -> None:
    for job in busy_stream(100, 8, seed, 0.6):
        assert 2 <= job.at_s % 30 <= 28.3
        assert job.runs_s > 200 or job.nodes == 8 or 2 <= job.runs_s % 30 <= 28.6
        assert 0.29 < job.runs_s % 1 < 0.61


@pytest.mark.parametrize("load", [0.6, 0.9])
def test_a_busy_stream_asks_for_its_load(load: float) -> None:
    stream = busy_stream(1000, 8, 0, load)
    asked_s = sum(job.nodes * job.runs_s for job in stream)
    assert asked_s / (8 * stream[-1].at_s) == pytest.approx(load, rel=0.05)


def test_a_load_that_the_long_jobs_exceed_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a load of 0\.1"):
        busy_stream(100, 8, 0, 0.1)
