"""What members of a trainer's group say, and what is believed of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bftrainer_slurm.controller.state.failing import Failing
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.measurements import Measurements
from bftrainer_slurm.controller.state.member_notes import MemberNotes
from bftrainer_slurm.controller.state.profiles import reported_before
from bftrainer_slurm.controller.state.trainer_state import TrainerState
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.keeper.protocol import NoteKind
from bftrainer_slurm.model import Element
from tests.controller.worlds import ARRAY, NOW_S, cases, element, note, view

BOTH = "running n1", "running n2"
MINE = view(*BOTH)


class Saying:
    """Members of a trainer speak, and are heard at once or later."""

    def __init__(self, mine: TrainerView = MINE, history: str | Path = ":memory:") -> None:
        self.history = History(history)
        measured = Measurements(self.history)
        self.members = MemberNotes(measured)
        self.mine = mine
        self.told = reported_before(measured, mine.trainer)

    def say(
        self,
        kind: NoteKind,
        after_s: float = 0.0,
        *,
        task: int = 0,
        node: str = "n1",
        heard_after_s: float = 0.0,
        **measures: float,
    ) -> TrainerState:
        """Say something so long after ``NOW_S``; return the trainer's state with it."""
        at_s, text = NOW_S + after_s, "no module named toch"
        said = note(kind, at_s, task, node, text=text, **measures)
        state = self.members.take(self.mine, self.told, said, at_s + heard_after_s)
        self.mine = replace(self.mine, state=state)
        return state

    @property
    def failures(self) -> int:
        """How many count."""
        return 0 if self.mine.state.failing is None else self.mine.state.failing.count


@cases(
    "told, nodes",
    of_the_element_that_tells_it=({}, ("n1",)),
    both_where_two_tell_of_it=({"also": 1.0}, ("n1", "n2")),
    not_twice=({"also": 0.0}, ("n1",)),
    not_of_a_task_that_there_is_not=({"also": 7.0}, ("n1",)),
    nor_of_nonsense=({"also": -1e300}, ("n1",)),
    none_where_the_element_is_on_another=({"node": "n2"}, ()),
    none_where_there_is_no_such_element=({"task": 7}, ()),
    none_where_it_is_not_the_trainers=({"node": "n9"}, ()),
)
def test_a_failure_counts_on_the_node(told: dict[str, Any], nodes: tuple[str, ...]) -> None:
    failing = Saying().say(NoteKind.FAILED, **told).failing
    assert failing is not None
    assert (failing.count, failing.nodes, failing.text) == (1, nodes, "no module named toch")


def test_of_a_keeper_whose_clock_is_ahead_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    saying = Saying()
    saying.say(NoteKind.PROGRESS, 59.0, heard_after_s=-59.0, samples=1.0)
    assert caplog.messages == []
    heard = list(saying.told.progress.recent)
    for second in range(75, 80):
        saying.say(NoteKind.PROGRESS, second, heard_after_s=-second, samples=9.0)
    assert list(saying.told.progress.recent) == heard
    assert caplog.messages == [
        "the keeper's clock is 75 s ahead of the controller's: trainers' reports are "
        "ignored; synchronise both hosts' clocks (NTP)"
    ]


@pytest.mark.parametrize("heard_after_s", [61.0, 7200.0, -7200.0])
def test_a_failure_that_is_told_much_later_does_not_count(heard_after_s: float) -> None:
    assert Saying().say(NoteKind.FAILED, heard_after_s=heard_after_s) == MINE.state


@pytest.mark.parametrize("from_start", [0.0, 1.0], ids=["goes on", "from step 0"])
def test_failures_are_forgotten_once_training_is_beyond_the_furthest_that_failed(
    from_start: float,
) -> None:
    """Else a script that trains for some seconds and fails, over and over, is never given up."""
    saying = Saying()
    made = 0.0
    for attempt, steps in enumerate((50.0, 2.0, 45.0, 40.0)):
        at_s = 100.0 * attempt
        saying.say(NoteKind.REFORMED, at_s, generation=attempt + 1.0, nodes=2.0)
        for second in (20, 40):
            made += steps if from_start or not attempt else 0.0  # steps are not counted twice
            saying.say(NoteKind.PROGRESS, at_s + second, steps=made, from_start=from_start)
        saying.say(NoteKind.FAILED, at_s + 50, nodes=2.0)
        assert saying.failures == attempt + 1
    saying.say(NoteKind.REFORMED, 400.0, generation=5.0, nodes=2.0)
    again = 100.0 if from_start else 0.0
    saying.say(NoteKind.PROGRESS, 420.0, steps=made + again, from_start=from_start)
    assert saying.failures == 4
    saying.say(NoteKind.PROGRESS, 421.0, steps=made + again + 1, from_start=from_start)
    assert saying.failures == 0


def failed_on(*nodes: str) -> Failing:
    return Failing(NOW_S, NOW_S, 1, nodes, nodes[0] if nodes else "", 1)


def progress(after_s: float, nodes: float = 2.0) -> tuple[NoteKind, float, dict[str, float]]:
    return NoteKind.PROGRESS, after_s, {"samples": 1.0 + after_s, "nodes": nodes}


NEW = {"generation": 2.0, "nodes": 2.0}
LATE = element(0, "running n1", start_s=NOW_S - 5), element(1, "running n2", start_s=NOW_S + 5)


@cases(
    "elements, failing, said, forgotten",
    not_after_a_moment=(BOTH, failed_on(), [progress(0), progress(9)], False),
    after_a_while=(BOTH, failed_on(), [progress(0), progress(10)], True),
    which_begins_anew_with_a_failure=(
        BOTH, failed_on(), [progress(0), (NoteKind.FAILED, 9, {}), progress(11)], False
    ),
    and_with_a_generation=(
        BOTH, failed_on(), [progress(0), (NoteKind.REFORMED, 9, NEW), progress(11)], False
    ),
    where_it_trains_on_its_node=(BOTH, failed_on("n1"), [progress(0), progress(10)], True),
    not_on_fewer_nodes=(BOTH, failed_on("n1"), [progress(0, 1.0), progress(10, 1.0)], False),
    not_elsewhere=(BOTH, failed_on("n3"), [progress(0), progress(10)], False),
    not_of_who_came_after_the_generation=(
        LATE, failed_on("n2"),
        [(NoteKind.REFORMED, 0, NEW | {"nodes": 1.0}), progress(1, 1.0), progress(11, 1.0)], False,
    ),
)  # fmt: skip
def test_failures_are_forgotten_as_it_makes_progress(
    elements: Sequence[Element | str], failing: Failing, said: list[Any], forgotten: bool
) -> None:
    saying = Saying(view(*elements, failing=failing))
    for kind, after_s, measures in said:
        state = saying.say(kind, after_s, **measures)
    assert (state.failing is None) == forgotten


def test_who_has_made_progress_for_a_while_has_trained_and_the_history_has_it() -> None:
    saying, kept = Saying(), list[float]()
    assert not saying.told.trained
    for second in (0.0, 1.0, 11.0, 60.0):
        saying.say(NoteKind.PROGRESS, second, samples=100.0 + second)
        kept += (Measurements(saying.history).samples(ARRAY) or ())[:1]
    assert saying.told.trained
    assert kept == [100.0, 100.0, 111.0, 160.0]


def test_a_report_that_cannot_be_true_is_counted_and_changes_nothing() -> None:
    saying = Saying()
    assert saying.say(NoteKind.PROGRESS, samples=-1.0) == MINE.state
    assert saying.told.progress.refused == 1
    assert Measurements(saying.history).samples(ARRAY) is None
