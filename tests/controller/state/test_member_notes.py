"""What members of a trainer's group say, and what is believed of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bftrainer_slurm.controller.state.failing import Failing
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.measurements import Measurements
from bftrainer_slurm.controller.state.member_notes import MemberNotes
from bftrainer_slurm.controller.state.profiles import reported_before
from bftrainer_slurm.controller.state.trainer_state import TrainerState
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.keeper.protocol import NoteKind
from bftrainer_slurm.reader.stories import read_history
from tests.controller.worlds import ARRAY, NOW_S, element, note, view

MINE = view("running n1", "running n2")


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
        return self.members.take(self.mine, self.told, said, at_s + heard_after_s)

    def hear(self, kind: NoteKind, after_s: float, **measures: float) -> None:
        """Say something; what it changes stays."""
        self.mine = replace(self.mine, state=self.say(kind, after_s, **measures))

    @property
    def failures(self) -> int:
        """How many count."""
        return 0 if self.mine.state.failing is None else self.mine.state.failing.count


def test_a_failure_counts_on_the_node_of_the_element_that_tells_it() -> None:
    failing = Saying().say(NoteKind.FAILED).failing
    assert failing is not None
    assert (failing.count, failing.nodes, failing.text) == (1, ("n1",), "no module named toch")


@pytest.mark.parametrize(
    ("also", "nodes"), [(1.0, ("n1", "n2")), (0.0, ("n1",)), (7.0, ("n1",)), (-1e300, ("n1",))]
)
def test_a_failure_of_which_two_tell_counts_on_both_nodes(
    also: float, nodes: tuple[str, ...]
) -> None:
    failing = Saying().say(NoteKind.FAILED, also=also).failing
    assert failing is not None
    assert (failing.count, failing.nodes) == (1, nodes)


@pytest.mark.parametrize(("task", "node"), [(0, "n2"), (7, "n1"), (0, "n9")])
def test_of_nodes_that_it_is_not_on_an_element_has_nothing_to_say(task: int, node: str) -> None:
    failing = Saying().say(NoteKind.FAILED, task=task, node=node).failing
    assert failing is not None
    assert (failing.count, failing.nodes) == (1, ())


def test_progress_of_the_future_is_no_progress() -> None:
    saying = Saying()
    saying.say(NoteKind.PROGRESS, 7200.0, heard_after_s=-7200.0, samples=9.0)
    assert not saying.told.progress.recent
    saying.say(NoteKind.PROGRESS, samples=3.0)
    assert saying.told.progress.recent


def test_of_a_keeper_whose_clock_is_ahead_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    saying = Saying()
    saying.say(NoteKind.PROGRESS, 59.0, heard_after_s=-59.0, samples=1.0)
    assert caplog.messages == []
    for second in range(75, 80):
        saying.say(NoteKind.PROGRESS, second, heard_after_s=-second, samples=9.0)
    assert caplog.messages == [
        "the keeper's clock is 75 s ahead of the controller's: trainers' reports are "
        "ignored; synchronise both hosts' clocks (NTP)"
    ]


@pytest.mark.parametrize("heard_after_s", [61.0, 7200.0, -7200.0])
def test_a_failure_that_is_told_much_later_does_not_count(heard_after_s: float) -> None:
    assert Saying().say(NoteKind.FAILED, heard_after_s=heard_after_s) == MINE.state


def test_progress_for_a_while_makes_failures_forgotten() -> None:
    saying = Saying(view(*MINE.trainer.elements, failing=Failing(NOW_S, count=2)))
    assert saying.say(NoteKind.PROGRESS, 0.0, samples=1.0).failing is not None
    assert saying.say(NoteKind.PROGRESS, 9.0, samples=9.0).failing is not None
    assert saying.say(NoteKind.PROGRESS, 10.0, samples=10.0).failing is None


@pytest.mark.parametrize("from_start", [0.0, 1.0], ids=["goes on", "from step 0"])
def test_failures_are_forgotten_once_training_is_beyond_where_it_failed(from_start: float) -> None:
    """Else a script that trains for some seconds and fails, over and over, is never given up."""
    saying = Saying()
    made = 0.0
    for attempt in range(4):
        at_s = 100.0 * attempt
        saying.hear(NoteKind.REFORMED, at_s, generation=attempt + 1.0, nodes=2.0)
        for second in (20, 40):
            made += 50.0 if from_start or not attempt else 0.0  # steps are not counted twice
            saying.hear(NoteKind.PROGRESS, at_s + second, steps=made, from_start=from_start)
        saying.hear(NoteKind.FAILED, at_s + 50, nodes=2.0)
        assert saying.failures == attempt + 1
    saying.hear(NoteKind.REFORMED, 400.0, generation=5.0, nodes=2.0)
    again = 100.0 if from_start else 0.0
    saying.hear(NoteKind.PROGRESS, 420.0, steps=made + again, from_start=from_start)
    assert saying.failures == 4
    saying.hear(NoteKind.PROGRESS, 421.0, steps=made + again + 1, from_start=from_start)
    assert saying.failures == 0


def test_of_attempts_that_failed_the_furthest_counts() -> None:
    saying = Saying()
    made = 0.0
    for attempt, steps in enumerate((100, 5, 90)):
        saying.hear(NoteKind.REFORMED, 100.0 * attempt, generation=attempt + 1.0, nodes=2.0)
        made += steps
        for second in (10, 30):
            at_s = 100.0 * attempt + second
            saying.hear(NoteKind.PROGRESS, at_s, steps=made, from_start=float(attempt > 0))
        saying.hear(NoteKind.FAILED, 100.0 * attempt + 40, nodes=2.0)
    assert saying.failures == 3


@pytest.mark.parametrize("again", [NoteKind.FAILED, NoteKind.REFORMED])
def test_that_while_begins_anew_with_each_failure_and_each_generation(again: NoteKind) -> None:
    saying = Saying(view(*MINE.trainer.elements, failing=Failing(NOW_S, count=2)))
    saying.say(NoteKind.PROGRESS, 0.0, samples=1.0)
    saying.say(again, 9.0, generation=2.0, nodes=2.0)
    assert saying.say(NoteKind.PROGRESS, 11.0, samples=10.0).failing is not None


@pytest.mark.parametrize(
    ("node", "nodes", "forgotten"), [("n1", 2.0, True), ("n1", 1.0, False), ("n3", 2.0, False)]
)
def test_only_where_it_trains_failures_are_forgotten(
    node: str, nodes: float, forgotten: bool
) -> None:
    failing = Failing(NOW_S, NOW_S, 1, (node,), node, 1)
    saying = Saying(view(*MINE.trainer.elements, failing=failing))
    saying.say(NoteKind.PROGRESS, 0.0, samples=1.0, nodes=nodes)
    after = saying.say(NoteKind.PROGRESS, 10.0, samples=10.0, nodes=nodes)
    assert (after.failing is None) == forgotten


def test_who_came_after_a_generation_does_not_train_in_it() -> None:
    late = element(1, "running n2", start_s=NOW_S + 5)
    first = element(0, "running n1", start_s=NOW_S - 5)
    saying = Saying(view(first, late, failing=Failing(NOW_S, NOW_S, 1, ("n2",), "n2", 1)))
    saying.say(NoteKind.REFORMED, 0.0, generation=2.0, nodes=1.0)
    saying.say(NoteKind.PROGRESS, 1.0, samples=1.0, nodes=1.0)
    assert saying.say(NoteKind.PROGRESS, 11.0, samples=10.0, nodes=1.0).failing is not None


def test_who_has_made_progress_for_a_while_has_trained() -> None:
    saying = Saying()
    assert not saying.told.trained
    for second in range(11):
        saying.say(NoteKind.PROGRESS, second, samples=float(second))
    assert saying.told.trained


def test_a_report_that_cannot_be_true_is_counted_and_changes_nothing() -> None:
    saying = Saying()
    assert saying.say(NoteKind.PROGRESS, samples=-1.0) == MINE.state
    assert saying.told.progress.refused == 1
    assert Measurements(saying.history).samples(ARRAY) is None


def test_progress_goes_into_the_history_now_and_then() -> None:
    saying = Saying()
    for second in range(4):
        saying.say(NoteKind.PROGRESS, second, samples=100.0 + second)
    assert (Measurements(saying.history).samples(ARRAY) or [None])[0] == 100.0
    saying.say(NoteKind.PROGRESS, 60.0, samples=200.0)
    assert (Measurements(saying.history).samples(ARRAY) or [None])[0] == 200.0


def test_an_element_that_has_finished_says_so() -> None:
    assert Saying().say(NoteKind.FINISHED, task=1).done == {1}


def test_each_pause_of_a_change_is_kept_once_with_the_nodes_after_it(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    saying = Saying(history=path)
    saying.history.meet(saying.mine.trainer, NOW_S)
    saying.say(NoteKind.PROGRESS, 0.0, steps=1.0, generation=1.0, nodes=1.0)
    for _ in range(2):  # a keeper tells its notes again to a controller that was away
        saying.say(NoteKind.PROGRESS, 9.0, steps=2.0, generation=2.0, nodes=2.0, pause_s=1.5)
        saying.say(NoteKind.PROGRESS, 10.0, steps=3.0, generation=2.0, nodes=2.0, pause_s=1.5)
    found = read_history(path, str(ARRAY), 0.0, NOW_S, None, private=False)["trainer"]
    assert found["rescales"] == [{"time_s": NOW_S + 9.0, "nodes": 2, "seconds": 1.5}]
