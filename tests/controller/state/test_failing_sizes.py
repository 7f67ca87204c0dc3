"""Which numbers of nodes a trainer does without, as its script fails there and trains on others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer_slurm.controller.state.failing_sizes import (
    NOTHING_TRIED,
    FailedSize,
    TriedSizes,
    in_words,
)
from bftrainer_slurm.controller.state.history import History, put
from bftrainer_slurm.controller.state.measurements import Measurements
from bftrainer_slurm.controller.state.trainer_state import TrainerState
from bftrainer_slurm.keeper.protocol import NoteKind
from bftrainer_slurm.sizes import ANY, Sizes
from tests.controller.state.test_member_notes import Saying
from tests.controller.worlds import ARRAY, NOW_S, cases, named, trainer, view_of

ERROR = 'Traceback\n  File "train.py", line 3\nAssertionError: not on 3 nodes\n'
KILLED = "process 0 terminated with signal SIGKILL"
ON_2 = NOTHING_TRIED.trains(1, named("n1")).trains(2, named("n1 n2"))


def fails(
    tried: TriedSizes, size: int, *nodes: str, text: str = ERROR, at_s: float = NOW_S
) -> TriedSizes:
    """What is known after a failure on this size, of which each of the nodes told in turn."""
    for node in nodes:
        tried = tried.fails(size, [node] if node else [], text, at_s)
    return tried


def left(tried: TriedSizes, most: int = 4, at_s: float = NOW_S, sizes: Sizes = ANY) -> list[int]:
    """The sizes up to this one that a trainer may have."""
    return list(tried.allowed(sizes, 1, most, at_s).between(1, most))


TWICE_ON_3 = fails(ON_2, 3, "n1", "n1")


def test_a_size_on_which_it_fails_twice_is_left_out_and_smaller_ones_come_first() -> None:
    assert left(fails(ON_2, 3, "n1")) == [1, 2, 3, 4]
    assert list(TWICE_ON_3.left_out(NOW_S)) == [3]
    assert left(TWICE_ON_3) == [1, 2]


def test_once_it_trains_again_only_that_size_is_left_out_and_for_good() -> None:
    again = TWICE_ON_3.trains(2, named("n1 n2"))
    assert again.allowed(ANY, 1, 4, NOW_S) == Sizes(without=(3,))
    assert left(again, at_s=NOW_S + 1e6) == [1, 2, 4]
    assert left(again.trains(4, named("n1 n2 n3 n4")), at_s=NOW_S + 1e6) == [1, 2, 4]
    assert left(again, 6, sizes=Sizes((2, 3, 6))) == [2, 6]
    assert left(again, 9, sizes=Sizes(step=3)) == [6, 9]


@cases(
    "tried",
    a_single_failure=fails(ON_2, 3, "n1"),
    one_every_hour=fails(fails(ON_2, 3, "n1"), 3, "n2", at_s=NOW_S + 3601),
    one_by_a_signal=fails(ON_2, 3, "n1", "n2", "n1", text=KILLED),
    those_of_which_only_a_new_node_tells=fails(ON_2, 3, "n3", "n3", "n3"),
    those_that_nobody_can_place=fails(ON_2, 3, "", "", ""),
    those_where_it_trained_last=fails(ON_2, 2, "n1", "n2", "n1"),
    those_on_an_unknown_size=fails(ON_2, 0, "n1", "n2"),
    those_that_its_last_size_shares=fails(fails(ON_2, 3, "n1", "n2"), 2, "n1"),
    those_of_a_script_that_never_trained=fails(NOTHING_TRIED, 1, "n1", "n2", "n1"),
)
def test_no_size_is_left_out_for(tried: TriedSizes) -> None:
    assert not tried.left_out(NOW_S + 3601)
    assert left(tried, at_s=NOW_S + 3601) == [1, 2, 3, 4]


def test_a_new_node_may_be_the_cause_until_another_one_tells_of_it_too() -> None:
    unclear = fails(ON_2, 3, "n3", "n3")
    assert unclear.in_question("n3")
    assert not unclear.in_question("n1")
    assert not unclear.trains(3, named("n1 n2 n4")).in_question("n3")
    clear = fails(unclear, 3, "n4")
    assert list(clear.left_out(NOW_S)) == [3]
    assert not clear.in_question("n3")


def test_two_nodes_that_tell_of_it_at_the_same_time_are_enough() -> None:
    tried = ON_2.fails(3, ["n3", "n4"], ERROR, NOW_S).fails(3, ["n3"], ERROR, NOW_S)
    assert list(tried.left_out(NOW_S)) == [3]


def test_a_size_on_which_it_has_trained_is_left_out_for_an_hour_only() -> None:
    """Its checkpoints may fit one size, as DeepSpeed ZeRO's: later ones may fit another."""
    on_4 = fails(ON_2.trains(4, named("n1 n2 n3 n4")), 2, "n1", "n2")
    assert left(on_4) == [1]
    assert left(on_4.trains(4, named("n1 n2 n3 n4"))) == [1, 3, 4]
    assert left(on_4, at_s=NOW_S + 3601) == [1, 2, 3, 4]


def test_where_all_smaller_ones_fail_too_it_waits_for_a_size_on_which_it_trained() -> None:
    tried = NOTHING_TRIED.trains(4, named("n1 n2 n3 n4"))
    for size, then in ((3, [1, 2]), (2, [1]), (1, [4])):
        tried = fails(tried, size, "n1", "n2")
        assert left(tried) == then


def test_a_script_that_never_trained_is_tried_on_half_of_its_nodes_and_again_on_half() -> None:
    tried, asked = NOTHING_TRIED, []
    size = 9
    while size:
        tried = fails(tried, size, "n1", "n2" if size == 9 else "n1")
        asked.append(size)
        size = max(tried.smaller(range(2, 10), NOW_S), default=0)
    assert asked == [9, 5, 3, 2]


def test_where_many_sizes_fail_it_has_only_those_on_which_it_has_trained() -> None:
    tried = ON_2
    for size in range(40, 20, -1):
        tried = fails(tried, size, "n1", "n2").trains(2, named("n1 n2"))
    assert left(tried, 40) == [1, 2]


def test_a_user_who_asks_for_nothing_else_gets_what_fails() -> None:
    again = TWICE_ON_3.trains(2, named("n1 n2"))
    assert left(again, sizes=Sizes((3,))) == [3]


def test_the_script_is_quoted() -> None:
    assert in_words(TWICE_ON_3.left_out(NOW_S)) == (
        "3 nodes, where its script fails: AssertionError: not on 3 nodes"
    )
    many = {size: FailedSize("x" * 200, NOW_S) for size in range(1, 2000, 2)}
    assert in_words({1: FailedSize("", 0.0)}).startswith("1 node,")
    assert "1, 3, 5" in in_words(many)[:60]


@given(st.integers(1, 12), st.sets(st.integers(1, 12)), st.data())
def test_whatever_sizes_work_it_ends_on_the_largest_or_no_smaller_one_works(
    most: int, work: set[int], data: st.DataObject
) -> None:
    tried, failures, size = NOTHING_TRIED, 0, most
    for _ in range(100):
        size = tried.allowed(ANY, 1, most, NOW_S).up_to(most)
        nodes = [f"n{number}" for number in range(size)]
        if size in work:
            tried = tried.trains(size, frozenset(nodes))
        else:
            failures += 1
            tried = fails(tried, size, data.draw(st.sampled_from([*nodes[:1], *nodes[-1:]])))
        assert not tried.left_out(NOW_S).keys() & work
        if not tried.trained and not tried.smaller(range(1, most + 1), NOW_S) and failures > 2:
            assert size not in work
            break  # it is given up
    else:
        certain = all(one.often for one in tried.failed.values())
        assert not certain or size == max(n for n in work if n <= most)


# What the members of a group say.

FOUR = trainer("running n0", "running n1", "running n2", "running n3")


def said(saying: Saying, kind: NoteKind, after_s: float, **more: float | str) -> TrainerState:
    state = saying.say(kind, after_s, **more)  # type: ignore[arg-type]
    saying.mine = replace(saying.mine, state=state)
    return state


def failed_on_3(saying: Saying) -> None:
    """It trains on two nodes, then fails on three, of which two tell."""
    said(saying, NoteKind.REFORMED, 0.0, generation=1.0, nodes=2.0)
    said(saying, NoteKind.PROGRESS, 12.0, steps=5.0, nodes=2.0)
    for after_s, task, node in ((20.0, 0, "n0"), (30.0, 1, "n1")):
        assert saying.mine.sizes_now(NOW_S + after_s) == ANY
        said(saying, NoteKind.REFORMED, after_s, generation=after_s, nodes=3.0)
        said(saying, NoteKind.FAILED, after_s + 3, task=task, node=node, nodes=3.0)


def test_it_is_seen_in_what_the_members_of_a_group_say() -> None:
    saying = Saying(view_of(FOUR, TrainerState(notified=True)))
    failed_on_3(saying)
    assert saying.mine.sizes_now(NOW_S + 40) == Sizes((1, 2))
    assert saying.mine.state.failing is None, "no node is to blame, and nothing is given up"
    assert not saying.mine.state.notified, "its output does not say this yet"


def test_a_failure_counts_for_the_size_that_failed_though_the_next_group_has_another() -> None:
    saying = Saying(view_of(FOUR))
    said(saying, NoteKind.PROGRESS, 1.0, steps=5.0, nodes=2.0)
    said(saying, NoteKind.PROGRESS, 12.0, steps=9.0, nodes=2.0)
    said(saying, NoteKind.REFORMED, 21.0, generation=3.0, nodes=4.0)
    said(saying, NoteKind.FAILED, 22.0, nodes=3.0)
    assert list(saying.mine.state.tried.failed) == [3]


@pytest.mark.parametrize("nodes", [0.0, -3.0, 5.0, 1e300])
def test_an_impossible_size_is_none(nodes: float) -> None:
    saying = Saying(view_of(FOUR))
    said(saying, NoteKind.FAILED, 1.0, nodes=nodes)
    assert not saying.mine.state.tried.failed


def tried_by(saying: Saying) -> TriedSizes:
    """What the next controller is told."""
    return saying.mine.state.tried.lasting


def test_what_is_left_out_is_known_to_the_next_controller_from_then_on() -> None:
    saying = Saying(view_of(FOUR))
    failed_on_3(saying)
    known = tried_by(saying)
    assert left(known) == [1, 2], "it has not trained since"
    assert known.left_out(NOW_S)[3].error == "no module named toch"
    said(saying, NoteKind.REFORMED, 50.0, generation=50.0, nodes=2.0)
    said(saying, NoteKind.PROGRESS, 70.0, steps=5.0, nodes=2.0)
    assert left(tried_by(saying), at_s=NOW_S + 1e6) == [1, 2, 4]
    said(saying, NoteKind.PROGRESS, 71.0, steps=6.0, nodes=3.0)
    assert not tried_by(saying).failed, "it trains there after all"


def test_a_single_failure_that_the_keeper_repeats_to_the_next_controller_counts_once() -> None:
    first = Saying(view_of(FOUR))
    said(first, NoteKind.PROGRESS, 1.0, steps=5.0, nodes=3.0)
    said(first, NoteKind.PROGRESS, 12.0, steps=9.0, nodes=3.0)
    said(first, NoteKind.FAILED, 20.0, nodes=4.0, node="n0")
    known = tried_by(first)
    second = Saying(view_of(FOUR, TrainerState(tried=known)))
    said(second, NoteKind.FAILED, 20.0, nodes=4.0, node="n0", heard_after_s=30.0)
    assert second.mine.state.tried.failed[4].count == 1


@cases(
    "document",
    of_another_version='{"trained": "none"}',
    no_json="{",
)
def test_what_makes_no_sense_is_not_known(document: str) -> None:
    history = History(":memory:")
    history.write(put("documents", ARRAY, "TriedSizes", NOW_S, document))
    assert Measurements(history).kept(ARRAY, TriedSizes) is None
