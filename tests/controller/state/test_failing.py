"""How a trainer's failures in a row are counted.

One that fails on any number of nodes but its own is kept on that one, for a while.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer_slurm.controller.state.failing import Failing, Suspect, add_failure, after_progress
from bftrainer_slurm.controller.state.trainer_state import TrainerState
from bftrainer_slurm.keeper.protocol import NoteKind
from bftrainer_slurm.sizes import ANY, OneSize, Sizes, why_kept
from tests.controller.state.test_member_notes import Saying
from tests.controller.worlds import NOW_S, cases, trainer, view_of


def after(*nodes: str | None, before: Failing | None = None, at_s: float = NOW_S) -> Failing:
    """The failures after one on each of these nodes, a second apart."""
    for second, node in enumerate(nodes):
        where, text = [node] if node else [], f"said at {second}"
        before = add_failure(before, where, text, False, at_s + second)
    assert before is not None
    return before


def test_failures_in_a_row_are_counted_with_their_nodes_and_the_last_words() -> None:
    failing = after("n1", "n2", "n1")
    assert (failing.count, failing.nodes, failing.text) == (3, ("n1", "n2"), "said at 2")
    assert (failing.since_s, failing.last_s) == (NOW_S, NOW_S + 2)


@cases(
    "failing, count, node, on_node",
    those_on_one_node_too=(after("n1", "n2", "n2", "n2"), 4, "n2", 3),
    but_not_those_before_on_another=(after("n2", "n2", "n1"), 3, "n1", 1),
    those_that_nobody_can_place_for_no_node=(after("n1", None, None), 3, "n1", 1),
    not_those_of_hours_ago=(after("n3", before=after("n1"), at_s=NOW_S + 7200), 1, "n3", 1),
)
def test_counted_are(failing: Failing, count: int, node: str, on_node: int) -> None:
    assert (failing.count, failing.node, failing.on_node) == (count, node, on_node)


def test_failures_are_forgotten_once_a_trainer_trains_on_their_node_or_that_is_unknown() -> None:
    for before in (after("n2", "n1", "n1"), after("n1", None), after(None, None)):
        assert after_progress(before, frozenset({"n1"}), NOW_S + 9) is None


def test_those_on_a_node_on_which_it_does_not_train_are_kept_for_an_hour() -> None:
    failing = after("n2", "n1", "n1")
    kept = after_progress(failing, frozenset({"n2"}), NOW_S + 9)
    assert kept is not None
    assert (kept.count, kept.in_a_row, kept.failed_on) == (0, 2, ("n1",))
    again = after("n1", before=kept, at_s=NOW_S + 60)
    assert (again.count, again.in_a_row, again.since_s) == (1, 3, NOW_S + 60)
    assert after_progress(kept, frozenset({"n2"}), NOW_S + 3605) is None


def test_a_suspect_is_kept_with_its_failures() -> None:
    suspect = Suspect("n1", 2)
    mine = replace(after("n1", "n1"), suspect=suspect)
    kept = after_progress(mine, frozenset({"n2"}), NOW_S + 9)
    assert kept is not None
    assert kept.suspect == suspect
    other = after_progress(after("n3", before=mine), frozenset({"n2"}), NOW_S + 9)
    assert other is not None
    assert (other.failed_on, other.suspect) == (("n3",), None)  # n1 is not released for n3's sake


def test_the_rest_after_a_failure_doubles_up_to_some_minutes() -> None:
    rests_s = [after(*["n1"] * count).rest_s for count in range(1, 12)]
    assert rests_s[:3] == [5, 10, 20]
    assert rests_s[-1] == max(rests_s) < 600


FOUR = trainer("running n0", "running n1", "running n2", "running n3")
ON_4 = OneSize().formed(4).trains()
TWICE_ON_3 = ON_4.formed(3).failed(NOW_S).formed(3).failed(NOW_S + 9)


def test_who_fails_twice_on_another_size_is_kept_on_its_own_for_an_hour() -> None:
    assert ON_4.formed(3).failed(NOW_S).kept_on(NOW_S) == 0
    assert TWICE_ON_3.kept_on(NOW_S + 9) == 4
    assert TWICE_ON_3.formed(4).trains().kept_on(NOW_S + 99) == 4  # that proves nothing else
    assert TWICE_ON_3.kept_on(NOW_S + 3609) == 0
    assert TWICE_ON_3.failed(NOW_S + 3609).failures == 1


@pytest.mark.parametrize("other", [2, 3, 8])
def test_a_size_that_works_allows_all(other: int) -> None:
    assert TWICE_ON_3.formed(other).trains() == OneSize(other, other)


def test_who_fails_where_it_trained_has_another_reason() -> None:
    assert ON_4.failed(NOW_S).failed(NOW_S) == ON_4
    assert OneSize().formed(3).failed(NOW_S).failed(NOW_S).kept_on(NOW_S) == 0  # never trained


def said(saying: Saying, kind: NoteKind, after_s: float, **measures: float) -> TrainerState:
    state = saying.say(kind, after_s, **measures)
    saying.mine = replace(saying.mine, state=state)
    return state


def test_it_is_seen_in_what_the_members_of_a_group_say() -> None:
    saying = Saying(view_of(FOUR, TrainerState(notified=True)))
    said(saying, NoteKind.REFORMED, 0.0, generation=1.0, nodes=4.0)
    said(saying, NoteKind.PROGRESS, 12.0, steps=5.0, nodes=4.0)
    for after_s in (20.0, 30.0):
        assert saying.mine.sizes_now(NOW_S + after_s) == ANY
        said(saying, NoteKind.REFORMED, after_s, generation=after_s, nodes=3.0)
        said(saying, NoteKind.FAILED, after_s + 3)
    assert saying.mine.sizes_now(NOW_S + 40) == Sizes((4,))
    assert not saying.mine.state.notified, "its output does not say this yet"
    said(saying, NoteKind.REFORMED, 50.0, generation=50.0, nodes=2.0)
    said(saying, NoteKind.PROGRESS, 70.0, steps=5.0, nodes=2.0)
    assert saying.mine.sizes_now(NOW_S + 70) == ANY


def test_it_is_kept_only_on_a_size_that_its_user_allows() -> None:
    mine = view_of(FOUR, TrainerState(size=TWICE_ON_3))
    assert mine.sizes_now(NOW_S + 9) == Sizes((4,))
    odd = replace(FOUR, record=replace(FOUR.record, min_nodes=3, max_nodes=3, sizes=(3,)))
    assert view_of(odd, mine.state).sizes_now(NOW_S + 9) == Sizes((3,))


def test_why_and_what_to_do_fits_a_line() -> None:
    assert "sizes=4" in why_kept(TWICE_ON_3)
    assert "ds_to_universal" in why_kept(replace(TWICE_ON_3, trained=1000, failed_on=999))
    assert len(why_kept(replace(TWICE_ON_3, trained=1000, failed_on=999))) <= 200
