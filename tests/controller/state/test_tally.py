"""The sums of a trainer's stays: whatever happens in whatever order, they are those of the file."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from bftrainer_slurm.controller.state.goodput import Stays
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


def test_in_their_order_they_are_summed_up_without_another_reading() -> None:
    stays = Stays([(0, 100.0, 110.0, "shrank")])
    done = [
        stays.begin(0, 120.0),
        stays.begin(1, 125.0),
        stays.end(0, 130.0, "reclaimed"),
        stays.end(1, 140.0, "ended"),
        stays.begin(2, 150.0),
    ]
    rows = [(0, 100.0, 110.0, "shrank"), (0, 120.0, 130.0, "reclaimed")]
    rows += [(1, 125.0, 140.0, "ended")]
    assert all(done)
    assert stays.tally == Stays([*rows, (2, 150.0, None, None)]).tally
