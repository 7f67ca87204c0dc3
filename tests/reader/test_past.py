"""Looking back: delays and harvest by day, and one trainer's changes."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from bftrainer_slurm.controller.state.cluster import Spans
from bftrainer_slurm.controller.state.history import History, put
from bftrainer_slurm.controller.state.schema import reading
from bftrainer_slurm.controller.state.statistics import Delay
from bftrainer_slurm.model import ElementId
from bftrainer_slurm.reader import past
from tests.controller.worlds import trainer
from tests.reader.conftest import NOW_S

DAY_S = 86_400.0


@pytest.fixture(params=["UTC", "Europe/Berlin", "America/St_Johns"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("zone")
def test_days_follow_each_other_from_midnight_to_midnight_in_summer_and_winter() -> None:
    found = list(past.days(NOW_S - 365 * DAY_S, NOW_S))
    assert [end for _, _, end in found[:-1]] == [begin for _, begin, _ in found[1:]]
    assert len({date for date, _, _ in found}) == len(found) == 366
    assert all(time.localtime(begin).tm_hour == 0 for _, begin, _ in found)


def test_delays_are_told_by_day_that_was_watched_and_the_longest_one_by_one(
    path: Path, written: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past, "_SHOWN_DELAYS", 2)
    first, last = Delay(NOW_S - DAY_S, 2, 0.5), Delay(NOW_S - 10, 4, 12.0)
    written.add_delays([first, Delay(NOW_S - 20, 1, 0.1), last])
    written.write(put("watches", NOW_S - DAY_S, NOW_S))
    written.add_ordinary(4, NOW_S - DAY_S)
    written.add_ordinary(3, NOW_S - DAY_S)
    with reading(path, 3.0) as history:
        document = past.delays(history, NOW_S - 3 * DAY_S, NOW_S + 3 * DAY_S)
    assert document["jobs"] == [[NOW_S - DAY_S, 2, 0.5], [NOW_S - 10, 4, 12.0]]
    assert document["left_out"] == 1
    days = [(day["started"], day["jobs"], day["late_jobs"]) for day in document["days"]]
    assert days == [(7, 1, 0), (0, 2, 1)]


def test_a_stay_over_midnight_is_harvest_of_both_days_and_a_part_counts_as_its_share(
    path: Path, written: History
) -> None:
    (_, begin_s, end_s), *_ = past.days(NOW_S, NOW_S + 1)
    written.meet(replace(trainer(), array=7, user="alice"), begin_s)
    written.begin_allocation(ElementId(7, 0), "n1", begin_s - 3600)
    written.end_allocation(ElementId(7, 0), begin_s + 2 * 3600, "reclaimed")
    written.begin_allocation(ElementId(7, 1), "n2", end_s - 3600, gpus=2, node_gpus=8)
    Spans(written, "holes").change((), ["n1"], begin_s - 7200)
    with reading(path, 3.0) as history:
        users, holes, gpus = past.day_of_harvest(history, begin_s, end_s, end_s - 1800)
        before, *_ = past.day_of_harvest(history, begin_s - DAY_S, begin_s, end_s - 1800)
    assert (users, before) == ({"alice": pytest.approx(2.125)}, {"alice": pytest.approx(1.0)})
    assert (holes, gpus) == (pytest.approx((end_s - 1800 - begin_s) / 3600), pytest.approx(1.0))


def test_users_beyond_the_most_or_that_may_not_be_named_are_in_the_sum_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(past, "_MOST_USERS", 2)
    found = {"2026-11-23": ({"a": 1.0, "b": 5.0, "c": 3.0, "": 2.0, "d": 9.0}, 30.0, 0.0)}
    document = past.harvest(found, lambda user: user != "d")
    assert document["users"] == ["b", "c"]
    assert document["days"] == [
        {"date": "2026-11-23", "holes_h": 30.0, "used_h": 20.0, "gpus_h": 0.0}
        | {"users_h": [5.0, 3.0]}
    ]


def test_looking_back_changes_nothing_and_does_not_keep_the_controller_from_writing(
    path: Path, written: History
) -> None:
    with reading(path, 3.0) as history:
        history.execute("BEGIN").execute("SELECT * FROM holes").fetchall()
        Spans(written, "holes").change((), ["n1"], 1.0)
        assert written.trouble is None
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            history.execute("DELETE FROM holes")
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT count(*) FROM holes").fetchone() == (1,)
