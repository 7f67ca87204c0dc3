"""Which numbers of nodes a trainer does without, as its script fails there and trains on others."""

from __future__ import annotations

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
AGAIN = TWICE_ON_3.trains(2, named("n1 n2"))
FOUR_NODES = named("n1 n2 n3 n4")
NOT_ON_2 = fails(ON_2.trains(4, FOUR_NODES), 2, "n1", "n2")
ON_4 = NOTHING_TRIED.trains(4, FOUR_NODES)
ON_4_NOT_3 = fails(ON_4, 3, "n1", "n2")
ON_4_NOT_2 = fails(ON_4_NOT_3, 2, "n1", "n2")
MANY = ON_2
for _size in range(40, 20, -1):
    MANY = fails(MANY, _size, "n1", "n2").trains(2, named("n1 n2"))


@cases(
    "tried, most, after_s, sizes",
    all_after_a_single_failure=(fails(ON_2, 3, "n1"), 4, 0, [1, 2, 3, 4]),
    not_one_on_which_it_fails_twice_and_smaller_ones_come_first=(TWICE_ON_3, 4, 0, [1, 2]),
    all_but_that_one_once_it_trains_again=(AGAIN, 4, 0, [1, 2, 4]),
    and_for_good=(AGAIN.trains(4, FOUR_NODES), 4, 1e6, [1, 2, 4]),
    not_one_as_two_nodes_tell_of_it_at_the_same_time=(
        ON_2.fails(3, ["n3", "n4"], ERROR, NOW_S).fails(3, ["n3"], ERROR, NOW_S), 4, 0, [1, 2]
    ),
    # Its checkpoints may fit one size, as DeepSpeed ZeRO's: later ones may fit another.
    one_on_which_it_has_trained_not_for_an_hour=(NOT_ON_2.trains(4, FOUR_NODES), 4, 0, [1, 3, 4]),
    and_then_again=(NOT_ON_2.trains(4, FOUR_NODES), 4, 3601, [1, 2, 3, 4]),
    smaller_ones_first_also_then=(NOT_ON_2, 4, 0, [1]),
    smaller_ones_than_one_on_which_it_trained=(ON_4_NOT_3, 4, 0, [1, 2]),
    or_of_these_the_smaller_ones=(ON_4_NOT_2, 4, 0, [1]),
    where_all_smaller_fail_one_on_which_it_trained=(fails(ON_4_NOT_2, 1, "n1", "n2"), 4, 0, [4]),
    where_many_fail_those_alone_on_which_it_has_trained=(MANY, 40, 0, [1, 2]),
)  # fmt: skip
def test_a_trainer_may_have(tried: TriedSizes, most: int, after_s: float, sizes: list[int]) -> None:
    assert left(tried, most, NOW_S + after_s) == sizes


@pytest.mark.parametrize(
    ("asked", "sizes"),
    [(Sizes((2, 3, 6)), [2, 6]), (Sizes(step=3), [6, 9]), (Sizes((3,)), [3])],
)
def test_of_what_its_user_asks_for_nothing_else_is_left_out(asked: Sizes, sizes: list[int]) -> None:
    assert left(AGAIN, 9, sizes=asked) == sizes


@cases(
    "tried",
    one_every_hour=fails(fails(ON_2, 3, "n1"), 3, "n2", at_s=NOW_S + 3601),
    one_by_a_signal=fails(ON_2, 3, "n1", "n2", "n1", text=KILLED),
    those_of_which_only_a_new_node_tells=fails(ON_2, 3, "n3", "n3", "n3"),
    those_that_nobody_can_place=fails(ON_2, 3, "", "", ""),
    those_where_it_trained_last=fails(ON_2, 2, "n1", "n2", "n1"),
    those_on_an_unknown_size=fails(ON_2, 0, "n1", "n2"),
    those_that_its_last_size_shares=fails(fails(ON_2, 3, "n1", "n2"), 2, "n1"),
    those_of_a_script_that_never_trained=fails(NOTHING_TRIED, 1, "n1", "n2", "n1"),
    a_single_one_of_a_script_that_never_trained=fails(NOTHING_TRIED, 3, "n1"),
)
def test_no_size_is_left_out_for(tried: TriedSizes) -> None:
    assert not tried.left_out(NOW_S + 3601)
    assert left(tried, at_s=NOW_S + 3601) == [1, 2, 3, 4]


def test_a_new_node_may_be_the_cause_until_another_one_tells_of_it_too() -> None:
    unclear = fails(ON_2, 3, "n3", "n3")
    assert (unclear.in_question("n3"), unclear.in_question("n1")) == (True, False)
    assert not unclear.trains(3, named("n1 n2 n4")).in_question("n3")
    clear = fails(unclear, 3, "n4")
    assert list(clear.left_out(NOW_S)) == [3]
    assert not clear.in_question("n3")


def test_a_script_that_never_trained_is_tried_on_half_of_its_nodes_and_again_on_half() -> None:
    tried, asked = NOTHING_TRIED, []
    size = 9
    while size:
        tried = fails(tried, size, "n1", "n2" if size == 9 else "n1")
        asked.append(size)
        size = max(tried.smaller(range(2, 10), NOW_S), default=0)
    assert asked == [9, 5, 3, 2]


def test_the_script_is_quoted() -> None:
    assert in_words(TWICE_ON_3.left_out(NOW_S)) == (
        "3 nodes, where its script fails: AssertionError: not on 3 nodes"
    )
    assert in_words({4: FailedSize("new", NOW_S), 3: FailedSize("old", NOW_S - 9)}).endswith("new")
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


def test_a_failure_counts_for_the_size_that_failed_though_the_next_group_has_another() -> None:
    saying = Saying(view_of(FOUR))
    saying.say(NoteKind.PROGRESS, 1.0, steps=5.0, nodes=2.0)
    saying.say(NoteKind.PROGRESS, 12.0, steps=9.0, nodes=2.0)
    saying.say(NoteKind.REFORMED, 21.0, generation=3.0, nodes=4.0)
    saying.say(NoteKind.FAILED, 22.0, nodes=3.0)
    assert list(saying.mine.state.tried.failed) == [3]


@pytest.mark.parametrize("nodes", [0.0, -3.0, 5.0, 1e300])
def test_an_impossible_size_is_none(nodes: float) -> None:
    saying = Saying(view_of(FOUR))
    saying.say(NoteKind.FAILED, 1.0, nodes=nodes)
    assert not saying.mine.state.tried.failed


def test_a_single_failure_that_the_keeper_repeats_to_the_next_controller_counts_once() -> None:
    first = Saying(view_of(FOUR))
    first.say(NoteKind.PROGRESS, 1.0, steps=5.0, nodes=3.0)
    first.say(NoteKind.PROGRESS, 12.0, steps=9.0, nodes=3.0)
    first.say(NoteKind.FAILED, 20.0, nodes=4.0, node="n0")
    known = first.mine.state.tried.lasting
    second = Saying(view_of(FOUR, TrainerState(tried=known)))
    second.say(NoteKind.FAILED, 20.0, nodes=4.0, node="n0", heard_after_s=30.0)
    assert second.mine.state.tried.failed[4].count == 1


@pytest.mark.parametrize("document", ['{"trained": "none"}', "{"])
def test_what_makes_no_sense_is_not_known(document: str) -> None:
    history = History(":memory:")
    history.write(put("documents", ARRAY, "TriedSizes", NOW_S, document))
    assert Measurements(history).kept(ARRAY, TriedSizes) is None
