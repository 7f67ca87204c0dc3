"""A trainer that fails on any number of nodes but its own is kept on that one, for a while."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer_slurm.controller.state.trainer_state import TrainerState
from bftrainer_slurm.keeper.protocol import NoteKind
from bftrainer_slurm.model import ElementState
from bftrainer_slurm.sizes import ANY, OneSize, Sizes, why_kept
from tests.controller.state.test_member_notes import Saying
from tests.controller.worlds import NOW_S, element, trainer, view_of

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
    four = trainer(*(element(task, ElementState.RUNNING, f"n{task}") for task in range(4)))
    saying = Saying(view_of(four, TrainerState(notified=True)))
    said(saying, NoteKind.REFORMED, 0.0, generation=1.0, nodes=4.0, mode=0.0)
    said(saying, NoteKind.PROGRESS, 12.0, steps=5.0, nodes=4.0)
    for after_s in (20.0, 30.0):
        assert saying.mine.sizes_now(NOW_S + after_s) == ANY
        said(saying, NoteKind.REFORMED, after_s, generation=after_s, nodes=3.0, mode=0.0)
        said(saying, NoteKind.FAILED, after_s + 3)
    assert saying.mine.sizes_now(NOW_S + 40) == Sizes((4,))
    assert not saying.mine.state.notified, "its output does not say this yet"
    said(saying, NoteKind.REFORMED, 50.0, generation=50.0, nodes=2.0, mode=0.0)
    said(saying, NoteKind.PROGRESS, 70.0, steps=5.0, nodes=2.0)
    assert saying.mine.sizes_now(NOW_S + 70) == ANY


def test_it_is_kept_only_on_a_size_that_its_user_allows() -> None:
    of = trainer(*(element(task, ElementState.RUNNING, f"n{task}") for task in range(4)))
    mine = view_of(of, TrainerState(size=TWICE_ON_3))
    assert mine.sizes_now(NOW_S + 9) == Sizes((4,))
    odd = replace(of, record=replace(of.record, min_nodes=3, max_nodes=3, sizes=(3,)))
    assert view_of(odd, mine.state).sizes_now(NOW_S + 9) == Sizes((3,))


def test_why_and_what_to_do_fits_a_line() -> None:
    assert "sizes=4" in why_kept(TWICE_ON_3)
    assert "ds_to_universal" in why_kept(replace(TWICE_ON_3, trained=1000, failed_on=999))
    assert len(why_kept(replace(TWICE_ON_3, trained=1000, failed_on=999))) <= 200
