"""The stream is the same for the same seed, and has what a reclaim can be met by."""

from __future__ import annotations

import pytest

from scripts.impact_bench.stream import busy_stream, quicker


def test_the_same_seed_gives_the_same_stream() -> None:
    assert busy_stream(60, 8, 1, 0.6) == busy_stream(60, 8, 1, 0.6)
    assert busy_stream(60, 8, 1, 0.6) != busy_stream(60, 8, 2, 0.6)


@pytest.mark.parametrize("nodes", [2, 3, 5, 64])
def test_a_job_never_asks_for_more_nodes_than_there_are(nodes: int) -> None:
    jobs = busy_stream(300, nodes, 0, 0.9)
    assert {job.nodes for job in jobs} >= {1, nodes}
    assert max(job.nodes for job in jobs) == nodes


def test_at_a_lower_load_the_same_jobs_come_later() -> None:
    busy, calm = (busy_stream(30, 8, 0, load) for load in (0.8, 0.4))
    assert calm[-1].at_s > 1.5 * busy[-1].at_s


def test_a_quicker_stream_is_the_same_in_less_time() -> None:
    jobs = busy_stream(30, 8, 0, 0.6)
    quick = quicker(jobs, 30)
    assert [job.nodes for job in quick] == [job.nodes for job in jobs]
    assert quick[-1].at_s == pytest.approx(jobs[-1].at_s / 30, abs=1e-3)
    assert all(job.runs_s < 60 * job.minutes for job in quick)


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
