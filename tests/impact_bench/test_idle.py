"""Each idle GPU-second that no trainer used has one cause, and it is the right one."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest

from scripts.impact_bench import idle
from scripts.impact_bench.controllerlog import ControllerRecord, Key, read_controller, read_offers
from scripts.impact_bench.course import Start
from scripts.impact_bench.figures import Measured, Side
from scripts.impact_bench.slurmlog import Log
from scripts.impact_bench.trainers import Work
from tests.impact_bench.starts import start

PASSES_S = (0.0, 30.0, 60.0, 90.0)
ELEMENT = {("allocated", 50): [(-9.0, "5")], ("known", 50): [(100.0, "n1")]}  # two GPUs of n1
EIGHT = [(-1.0, {"n1": 8})]
LET_GO: list[tuple[float, Key]] = [(40.0, ("6", "n1"))]


def seen(
    *jobs: Start,
    log: Log | None = None,
    released: Sequence[tuple[float, Key]] = (),
    held: Sequence[tuple[float, Key]] = (),
    looks_s: Sequence[float] = (0.0,),
    offers: Sequence[tuple[float, Mapping[str, int]]] = EIGHT,
    parts: Mapping[str, int] | None = None,
) -> idle.Account:
    """One node of eight GPUs for 100 s; of two trainers, one has two GPUs of it all the time."""
    off = Side("without", [start(runs_s=99.9, on=("n2",), gpus=8)], passes_s=PASSES_S)
    on = Side("with", jobs, passes_s=PASSES_S, log=ELEMENT if log is None else log)
    on.work = Work(parts=dict({"5": 2, "6": 4} if parts is None else parts))
    on.controller = ControllerRecord(released, held, looks_s, offers)
    return idle.account(Measured(off, on, 1, 8))


def test_all_idle_gpu_seconds_are_accounted_for() -> None:
    found = seen(start(submit_s=15, delay_s=15, runs_s=40, on=("n1",), gpus=3), released=LET_GO)
    assert (found.idle_s, found.used_s) == pytest.approx((8 * 30 + 5 * 70 + 3 * 10, 200))
    assert found.used_s + sum(found.causes.values()) == pytest.approx(found.idle_s)


def test_what_elements_have_before_a_pass_is_told_apart() -> None:
    busy = start(submit_s=-1, delay_s=1, runs_s=70, on=("n1",), gpus=8)  # until second 70
    log = {("allocated", 50): [(75.0, "5")], ("known", 50): [(100.0, "n1")]}
    found = seen(busy, log=log)
    assert (found.used_s, found.sooner_s) == pytest.approx((2 * 10, 2 * 15))


def test_ahead_of_a_pass_elements_leave_for_the_jobs_that_it_starts() -> None:
    job = start(submit_s=40, delay_s=20.5, runs_s=100, on=("n1",), gpus=4)
    log = {**ELEMENT, ("allocated", 1): [(60.2, "")]}
    found = seen(job, log=log).causes
    assert found[idle.AHEAD] == pytest.approx(4 * 4)
    assert found[idle.STARTING] == pytest.approx(4 * 0.3)


def test_where_a_job_comes_in_the_next_pass_elements_could_start_in_the_last_one() -> None:
    job = start(submit_s=40, delay_s=20, runs_s=100, on=("n1",), gpus=4)
    offers = [(-1.0, {"n1": 8}), (25.0, {"n1": 0}), (35.0, {"n1": 8})]
    found = seen(job, offers=offers).causes
    assert found[idle.BARRED] == pytest.approx(6 * 10 + 4 * 16)  # of the job: until it is near


@pytest.mark.parametrize("ends", ["starts", "is held"])
def test_a_pass_may_pass_an_element_over_that_waits(ends: str) -> None:
    log: Log = ELEMENT
    if ends == "starts":
        log = {**ELEMENT, ("allocated", 60): [(90.0, "6")], ("known", 60): [(100.0, "n1")]}
    held = [(90.0, ("6", "n1"))] if ends == "is held" else []
    found = seen(released=LET_GO, held=held, log=log).causes
    assert found[idle.PASSED_OVER] == pytest.approx(4 * 30)  # from the pass on
    assert found[idle.NOT_YET] == pytest.approx(4 * 30)  # it came too late for the one before


def test_what_the_controller_has_not_seen_it_cannot_use() -> None:
    job = start(submit_s=-1, delay_s=1, runs_s=50, on=("n1",), gpus=6)  # until second 50
    found = seen(job, looks_s=(0.0, 75.0)).causes
    assert found[idle.UNSEEN] == pytest.approx(6 * 15)  # from the pass to the look


def test_a_rest_may_be_smaller_than_the_elements_of_those_who_are_not_there() -> None:
    assert seen(parts={"5": 2, "6": 7}).causes == {idle.TOO_SMALL: pytest.approx(600)}
    assert seen(parts={"5": 2}).causes == {idle.TOO_SMALL: pytest.approx(600)}


def test_what_was_offered_is_taken_later_or_by_nobody() -> None:
    found = seen(released=LET_GO).causes
    assert found[idle.NOT_YET] == pytest.approx(4 * 30)  # from the pass before
    assert found[idle.NOT_WORTH] == pytest.approx(6 * 30 + 2 * 10)
    assert found[idle.TOO_SMALL] == pytest.approx(2 * 60)  # then both trainers are there


def test_what_the_controller_does_not_offer_it_leaves_to_jobs_or_bars() -> None:
    found = seen(offers=[(-1.0, {"n1": 5}), (50.0, {"n2": 8})], parts={"5": 2, "6": 1}).causes
    assert found[idle.LEFT] == pytest.approx(3 * 50)
    assert found[idle.BARRED] == pytest.approx(6 * 50)


def test_where_an_element_is_ending_slurm_starts_nothing() -> None:
    log = {**ELEMENT, ("ending", 50): [(90.0, "")]}
    assert seen(log=log).causes[idle.ENDING] == pytest.approx(6 * 10)


def test_the_controllers_log_says_who_was_let_go_and_held() -> None:
    lines = (
        "2026-11-27 12:00:01,250 INFO    grow 5_0 on n1",
        "2026-11-27 12:00:02,000 INFO    grow 6_1 on 4 GPUs of n2",
        "2026-11-27 12:00:03,000 INFO    hold 5_0, 6_1, 7_0: its node is taken",
        "2026-11-27 12:00:04,000 INFO    shrink 5_0: an ordinary job is expected there",
        "a line of something else",
    )
    base_s = datetime(2026, 11, 27, 12).timestamp()
    record = read_controller(lines)
    assert record.released == [(base_s + 1.25, ("5", "n1")), (base_s + 2, ("6", "n2"))]
    assert record.held == [(base_s + 3, ("5", "n1")), (base_s + 3, ("6", "n2"))]


def test_the_history_says_what_plans_could_give_out(tmp_path: Path) -> None:
    """Of n2, which ``reserve_gpus`` keeps, there are no parts."""
    document = {"node_names": ["n1", "n2", "n3"], "node_gpus": [8, None, 3]}
    with closing(sqlite3.connect(tmp_path / "history.sqlite")) as database:
        database.execute("CREATE TABLE problems (time_s REAL, document BLOB)")
        text = zlib.compress(json.dumps(document).encode())
        database.execute("INSERT INTO problems VALUES (7.5, ?)", (text,))
        database.commit()
    assert read_offers(tmp_path / "history.sqlite") == [(7.5, {"n1": 8, "n3": 3})]
