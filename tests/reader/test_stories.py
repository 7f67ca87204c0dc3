"""What users are shown of the past, from a history file as the controller writes it."""

from __future__ import annotations

import json
import pwd
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer_slurm.controller.observe.reports import Work
from bftrainer_slurm.controller.state import schema
from bftrainer_slurm.controller.state.history import History, HistoryError
from bftrainer_slurm.controller.state.measurements import Job, Measurements
from bftrainer_slurm.model import ElementId
from bftrainer_slurm.reader import stories as history_module
from bftrainer_slurm.reader.site import site
from bftrainer_slurm.reader.stories import (
    ALL,
    Allocation,
    change_counts,
    mean_nodes,
    open_history,
    read_history,
)
from tests.controller.worlds import ARRAY, NOW_S, trainer
from tests.reader.asking import answer_of, facts_of

PUBLIC = {
    *("array", "name", "user", "submit_s", "min_nodes", "max_nodes", "hidden"),
    *("from_s", "until_s", "total", "course", "changes", "earlier_changes"),
}


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """The history of alice's trainer: two nodes for 600 s, of which one is reclaimed after 300 s.

    Bob's has ended.
    """
    history = History(tmp_path / "history.sqlite")
    alices = replace(trainer(), submit_s=NOW_S - 700)
    history.meet(alices, NOW_S)
    history.begin_allocation(ElementId(ARRAY, 0), "n1", NOW_S - 600)
    history.begin_allocation(ElementId(ARRAY, 1), "n2", NOW_S - 600)
    history.end_allocation(ElementId(ARRAY, 1), NOW_S - 300, "reclaimed")
    Measurements(history).add_pause(Job("alice", "digits"), ARRAY, NOW_S - 299, 1, 1.5, None)
    Measurements(history).add_progress(ARRAY, NOW_S - 400, 1000.0)
    Measurements(history).add_progress(ARRAY, NOW_S - 200, 1500.0)
    Measurements(history).keep(ARRAY, Work(NOW_S - 700, NOW_S, 580.0, 1.5, 3))
    history.meet(replace(alices, array=13, user="bob", name="resnet"), NOW_S)
    history.begin_allocation(ElementId(13, 0), "n3", NOW_S - 7200, gpus=2, node_gpus=8)
    history.end_allocation(ElementId(13, 0), NOW_S - 5400, "ended")
    history.end(13, "it failed 3 times\nImportError: bob's secret")
    yield history_closed(history, tmp_path)


def history_closed(history: History, folder: Path) -> Path:
    history.close()
    return folder / "history.sqlite"


def story(path: Path, array: int = ARRAY, reader: str | None = "alice", **more: Any) -> Any:
    private = more.pop("private", False)
    since_s = more.pop("since_s", 0.0)
    return read_history(path, str(array), since_s, NOW_S, reader, private=private)["trainer"]


def test_a_story_says_when_nodes_came_and_went(path: Path) -> None:
    assert story(path)["changes"] == [
        {"time_s": NOW_S - 600, "gained": ["n1", "n2"], "lost": [], "reclaimed": [], "nodes": 2},
        {"time_s": NOW_S - 300, "gained": [], "lost": [], "reclaimed": ["n2"], "nodes": 1},
    ]


def test_a_story_has_the_nodes_over_time(path: Path) -> None:
    found = story(path)
    nodes = found["course"]["nodes"]
    assert (found["from_s"], found["until_s"]) == (NOW_S - 600, NOW_S)
    assert (nodes[0], nodes[-1]) == (2.0, 1.0)
    assert sum(nodes) * found["course"]["part_s"] == pytest.approx(found["total"]["node_s"])
    assert found["total"]["node_s"] == pytest.approx(900.0)


def test_its_owner_sees_samples_rescales_and_where_the_time_went(path: Path) -> None:
    found = story(path)
    assert [one["samples"] for one in found["samples"]] == [1000.0, 1500.0]
    assert found["rescales"] == [{"time_s": NOW_S - 299, "nodes": 1, "seconds": 1.5}]
    assert found["goodput"]["trained_s"] == pytest.approx(580.0)
    assert found["over"] is None


def test_an_ended_trainer_is_known_by_its_end(path: Path) -> None:
    found = story(path, 13, "bob")
    assert (found["over"], found["until_s"]) == ("it failed 3 times", NOW_S - 5400)


@pytest.mark.parametrize("reader", ["bob", ""])
def test_of_others_trainers_nodes_alone_are_shown(path: Path, reader: str) -> None:
    assert story(path, reader=reader).keys() == PUBLIC


@pytest.mark.parametrize("reader", ["carol", ""])
def test_where_slurm_keeps_jobs_private_so_is_their_past(path: Path, reader: str) -> None:
    assert story(path, reader=reader, private=True) is None
    assert read_history(path, ALL, 0.0, NOW_S, reader, private=True)["trainers"] == []


def test_who_may_see_everything_does_also_there(path: Path) -> None:
    assert "samples" in story(path, reader=None, private=True)


def test_all_trainers_are_listed_newest_first_also_those_that_slurm_has_forgotten(
    path: Path,
) -> None:
    listed = read_history(path, ALL, 0.0, NOW_S, "alice", private=False)["trainers"]
    assert [(one["array"], one["node_s"]) for one in listed] == [(13, 450.0), (ARRAY, 900.0)]
    assert (listed[0]["last_s"], listed[1]["last_s"]) == (NOW_S - 5400, None)
    assert "secret" not in json.dumps(listed)


def test_of_parts_of_nodes_gpus_are_counted(path: Path) -> None:
    listed = read_history(path, ALL, 0.0, NOW_S, "alice", private=False)["trainers"]
    assert [one["gpu_s"] for one in listed] == [3600.0, 0.0]
    (bobs,) = (one for one in listed if one["array"] == 13)
    assert bobs["hidden"]
    total = read_history(path, "13", 0.0, NOW_S, None, private=False)["trainer"]["total"]
    assert (total["node_s"], total["gpu_s"]) == (450.0, 3600.0)


def test_who_had_nodes_since_the_beginning_is_listed_with_its_whole_life(path: Path) -> None:
    (only,) = read_history(path, ALL, NOW_S - 400, NOW_S, None, private=False)["trainers"]
    assert (only["array"], only["grew"], only["node_s"]) == (ARRAY, 2, pytest.approx(900.0))


def test_its_course_begins_where_it_is_asked_for_and_its_totals_with_its_life(path: Path) -> None:
    found = story(path, since_s=NOW_S - 400)
    assert found["from_s"] == NOW_S - 400
    assert sum(found["course"]["nodes"]) * found["course"]["part_s"] == pytest.approx(500.0)
    assert found["total"]["node_s"] == pytest.approx(900.0)


def test_a_trainer_that_was_never_met_is_no_error(path: Path) -> None:
    assert story(path, 99) is None


@pytest.mark.parametrize("what", ["", "-1", "everything", "9" * 40, "1_000"])
def test_what_is_no_trainer_is_refused(path: Path, what: str) -> None:
    with pytest.raises(ValueError, match="whole"):
        read_history(path, what, 0.0, NOW_S, None, private=False)


def test_a_file_that_is_not_there_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"nowhere\.sqlite"):
        read_history(tmp_path / "nowhere.sqlite", ALL, 0.0, NOW_S, None, private=False)


def test_reading_leaves_nothing_behind_that_the_controller_could_not_write(path: Path) -> None:
    before = {one.name for one in path.parent.iterdir()}
    read_history(path, ALL, 0.0, NOW_S, None, private=False)
    assert {one.name for one in path.parent.iterdir()} == before


def test_many_changes_are_told_from_the_newest_on(tmp_path: Path) -> None:
    history = History(tmp_path / "history.sqlite")
    history.meet(trainer(), NOW_S)
    for number in range(300):
        history.begin_allocation(ElementId(ARRAY, 0), "n1", NOW_S - 20 * (300 - number))
        history.end_allocation(ElementId(ARRAY, 0), NOW_S - 20 * (300 - number) + 10, "shrank")
    found = story(history_closed(history, tmp_path))
    assert (len(found["changes"]), found["earlier_changes"]) == (200, 400)
    assert len(found["course"]["nodes"]) <= 240
    assert found["total"]["grew"] == 300


def test_the_page_is_told_how_many_came_and_went_and_why(tmp_path: Path) -> None:
    written = History(tmp_path / "history.sqlite")
    for task in range(3):
        written.begin_allocation(ElementId(7, task), f"n{task}", 100.0)
    written.end_allocation(ElementId(7, 0), 200.0, "reclaimed")
    written.end_allocation(ElementId(7, 1), 200.0, "shrank")
    written.begin_allocation(ElementId(8, 0), "n9", 150.0)
    with open_history(history_closed(written, tmp_path)) as history:
        assert change_counts(history, 7) == [
            {"time_s": 100, "nodes": 3, "gained": 3},
            {"time_s": 200, "nodes": 1, "gained": 0, "reclaimed": 1, "shrank": 1},
        ]


def test_of_a_long_story_the_end_is_told_with_the_right_number_of_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_module, "_MOST_ALLOCATIONS", 5)
    written = History(tmp_path / "history.sqlite")
    written.begin_allocation(ElementId(7, 99), "n99", 0.0)  # there all the time
    for task in range(20):
        written.begin_allocation(ElementId(7, task), "n1", 100.0 * task)
        written.end_allocation(ElementId(7, task), 100.0 * task + 50, "reclaimed")
    with open_history(history_closed(written, tmp_path)) as history:
        changes = change_counts(history, 7)
    assert changes[-1]["nodes"] == 1
    assert [one["nodes"] for one in changes[-4:]] == [2, 1, 2, 1]


def test_who_asks_is_known_by_user_id_and_private_is_what_the_status_says(path: Path) -> None:
    me = pwd.getpwuid(0)
    history = History(path)
    history.meet(replace(trainer(), user=me.pw_name), NOW_S)
    history.close()

    def seen(user: int | None, **status: Any) -> Any:
        known = {"schema": 1, "time_s": 0.0, "controller": {}, **status}
        query = "since=0" + ("" if user is None else f"&user={user}")
        page = site(path, facts_of(known), "")
        return answer_of(page, f"/history/{ARRAY}", query, client=None).document["trainer"]

    assert "samples" in seen(me.pw_uid)
    assert "samples" in seen(None)
    assert seen(-1) is None
    assert "hidden" in seen(2**31 - 5, jobs_private=False)


@given(
    st.lists(st.tuples(st.floats(-50, 150), st.floats(0, 120), st.booleans()), max_size=8),
    st.integers(1, 20),
)
def test_a_course_has_all_node_seconds_within_its_time(
    lasted: list[tuple[float, float, bool]], parts: int
) -> None:
    stays = [
        Allocation("n", begin, begin + long if over else None, None) for begin, long, over in lasted
    ]
    found = mean_nodes(stays, 0.0, 100.0 / parts, parts, 100.0)
    ends = (100.0 if one.end_s is None else min(one.end_s, 100.0) for one in stays)
    wanted = sum(
        max(0.0, end - max(one.start_s, 0.0)) for one, end in zip(stays, ends, strict=True)
    )
    assert sum(found) * 100.0 / parts == pytest.approx(wanted, abs=0.1)  # rounded
    assert len(found) == parts


def test_a_question_that_takes_too_long_is_given_up(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_module, "_DEADLINE_S", -1.0)
    monkeypatch.setattr(schema, "_STEPS", 1)
    with pytest.raises(HistoryError, match="interrupted"):
        read_history(path, ALL, 0.0, NOW_S, None, private=False)
