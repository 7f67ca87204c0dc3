"""The sums of a trainer's stays: whatever happens in whatever order, they are those of the file."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.model import ElementId
from tests.controller.worlds import ARRAY

EVENTS = st.tuples(
    st.integers(0, 2),  # task
    st.integers(-3, 9),  # seconds since the last event: clocks are set, starts are told late
    st.sampled_from(["begins", "shrank", "reclaimed", "ended"]),
)


@example(events=[(0, 0, "begins"), (1, 1, "begins"), (0, -1, "shrank")], read_at=0)
@settings(max_examples=60, deadline=None)
@given(st.lists(EVENTS, max_size=12), st.integers(0, 3))
def test_they_are_those_of_the_file_in_any_order(
    events: list[tuple[int, int, str]], read_at: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history, now_s = History(Path(folder) / "history.sqlite"), 1000.0
        for number, (task, after_s, what) in enumerate(events):
            now_s += after_s
            if number == read_at:
                history.tally(ARRAY)
            if what == "begins":
                history.begin_stay(ElementId(ARRAY, task), "n1", now_s)
            else:
                history.end_stay(ElementId(ARRAY, task), now_s, what)
        told = history.tally(ARRAY)
        history.close()
        again = History(Path(folder) / "history.sqlite")
        assert again.tally(ARRAY) == told
        again.close()


def test_they_are_read_again_only_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    history, queries = History(":memory:"), list[str]()
    read = history.database.read

    def noted(query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        queries.append(query)
        return read(query, *parameters)

    monkeypatch.setattr(history.database, "read", noted)
    history.begin_stay(ElementId(ARRAY, 0), "n1", 100.0)
    assert [history.tally(ARRAY).grew for _ in range(3)] == [1, 1, 1]
    history.begin_stay(ElementId(ARRAY, 1), "n2", 120.0)
    assert (history.tally(ARRAY).grew, len(queries)) == (2, 2)
