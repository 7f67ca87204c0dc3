"""What users are shown of the past, from a history file as the controller writes it."""

from __future__ import annotations

import json
import pwd
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer_slurm.controller.state import schema
from bftrainer_slurm.controller.state.history import History, HistoryError
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
from tests.cli.pasts import write_past
from tests.controller.worlds import ARRAY, NOW_S, trainer
from tests.reader.asking import answer_of, facts_of

PUBLIC = {
    *("array", "name", "user", "submit_s", "min_nodes", "max_nodes", "hidden"),
    *("from_s", "until_s", "total", "course", "changes", "earlier_changes"),
}


@pytest.fixture
def past(tmp_path: Path) -> Path:
    """The last hour of alice's trainer, which has n1 and had n2, and of two of bob's."""
    write_past(tmp_path, now_s=NOW_S)
    return tmp_path / "history.sqlite"


def asked(path: Path, what: int | str, reader: str | None = "alice", **more: Any) -> Any:
    since_s, private = more.get("since_s", 0.0), more.get("private", False)
    return read_history(path, str(what), since_s, NOW_S, reader, private=private)


def story(path: Path, reader: str | None = "alice", **more: Any) -> Any:
    return asked(path, ARRAY, reader, **more)["trainer"]


def changes_at(path: Path) -> list[dict[str, Any]]:
    with open_history(path) as history:
        return change_counts(history, 7)


@pytest.mark.parametrize("reader", ["bob", ""])
def test_of_others_trainers_nodes_alone_are_shown(past: Path, reader: str) -> None:
    assert story(past, reader).keys() == PUBLIC
    listed = asked(past, ALL)["trainers"]
    assert [one["array"] for one in listed if "hidden" in one] == [14, 13]
    assert "secret" not in json.dumps(listed)
    assert [one.name for one in past.parent.iterdir()] == [past.name], "a reader leaves no file"


@pytest.mark.parametrize("reader", ["carol", ""])
def test_where_slurm_keeps_jobs_private_so_is_their_past(past: Path, reader: str) -> None:
    assert story(past, reader, private=True) is None
    assert asked(past, ALL, reader, private=True)["trainers"] == []
    assert "samples" in story(past, None, private=True)


def test_its_course_begins_where_it_is_asked_for_and_its_totals_with_its_life(past: Path) -> None:
    found = story(past, since_s=NOW_S - 2400)
    assert found["from_s"] == NOW_S - 2400
    assert sum(found["course"]["nodes"]) * found["course"]["part_s"] == pytest.approx(3000.0)
    assert found["total"]["node_s"] == pytest.approx(4200.0)


@pytest.mark.parametrize("what", ["", "-1", "everything", "9" * 40, "1_000"])
def test_what_is_no_trainer_is_refused(past: Path, what: str) -> None:
    with pytest.raises(ValueError, match="whole"):
        asked(past, what)


def test_many_changes_are_told_from_the_newest_on(path: Path, written: History) -> None:
    written.meet(trainer(), NOW_S)
    for number in range(300):
        written.begin_allocation(ElementId(ARRAY, 0), "n1", NOW_S - 20 * (300 - number))
        written.end_allocation(ElementId(ARRAY, 0), NOW_S - 20 * (300 - number) + 10, "shrank")
    found = story(path)
    assert (len(found["changes"]), found["earlier_changes"]) == (200, 400)
    assert len(found["course"]["nodes"]) <= 240
    assert found["total"]["grew"] == 300


def test_the_page_is_told_how_many_came_and_went_and_why(path: Path, written: History) -> None:
    for task in range(3):
        written.begin_allocation(ElementId(7, task), f"n{task}", 100.0)
    written.end_allocation(ElementId(7, 0), 200.0, "reclaimed")
    written.end_allocation(ElementId(7, 1), 200.0, "shrank")
    written.begin_allocation(ElementId(8, 0), "n9", 150.0)
    assert changes_at(path) == [
        {"time_s": 100, "nodes": 3, "gained": 3},
        {"time_s": 200, "nodes": 1, "gained": 0, "reclaimed": 1, "shrank": 1},
    ]


def test_of_a_long_story_the_end_is_told_with_the_right_number_of_nodes(
    path: Path, written: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_module, "_MOST_ALLOCATIONS", 5)
    written.begin_allocation(ElementId(7, 99), "n99", 0.0)  # there all the time
    for task in range(20):
        written.begin_allocation(ElementId(7, task), "n1", 100.0 * task)
        written.end_allocation(ElementId(7, task), 100.0 * task + 50, "reclaimed")
    assert [one["nodes"] for one in changes_at(path)[-4:]] == [2, 1, 2, 1]


def test_who_asks_is_known_by_user_id_and_private_is_what_the_status_says(
    path: Path, written: History
) -> None:
    me = pwd.getpwuid(0)
    written.meet(replace(trainer(), user=me.pw_name), NOW_S)

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
    past: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_module, "_DEADLINE_S", -1.0)
    monkeypatch.setattr(schema, "_STEPS", 1)
    with pytest.raises(HistoryError, match="interrupted"):
        asked(past, ALL)
