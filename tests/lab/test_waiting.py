"""How often the tests look whether what they wait for is there."""

from __future__ import annotations

import pytest

from scripts.labcluster import waiting
from scripts.labcluster.waiting import wait_until


class Course:
    """A clock that moves as somebody pauses, or looks for ``look_s``."""

    def __init__(self, look_s: float = 0.0) -> None:
        self.now_s = 0.0
        self.pauses: list[float] = []
        self._look_s = look_s

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds

    def is_after(self, due_s: float) -> bool:
        self.now_s += self._look_s
        return self.now_s >= due_s


@pytest.fixture
def course(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Course:
    made = Course(getattr(request, "param", 0.0))
    monkeypatch.setattr(waiting.time, "monotonic", lambda: made.now_s)
    return made


def test_what_costs_nothing_is_looked_at_twenty_times_a_second_at_first(course: Course) -> None:
    wait_until(lambda: course.is_after(1.0), pause=course.pause)
    assert set(course.pauses) == {0.05}


@pytest.mark.parametrize("course", [0.1], indirect=True)
def test_looks_take_a_quarter_of_the_time_at_most(course: Course) -> None:
    wait_until(lambda: course.is_after(1.0), pause=course.pause)
    assert course.pauses == pytest.approx([0.3] * 3)


def test_a_long_wait_is_looked_at_twice_a_second(course: Course) -> None:
    wait_until(lambda: course.is_after(100.0), pause=course.pause)
    assert course.pauses[-1] == 0.5 == max(course.pauses)


def test_what_does_not_come_in_time_is_named(course: Course) -> None:
    with pytest.raises(TimeoutError, match="no node within 3 s"):
        wait_until(lambda: False, 3.0, "no node", course.pause)
    assert course.now_s == pytest.approx(3.0, abs=0.1)
