"""How failures count: in a row of one trainer, and as evidence that keeps all off a node."""

from __future__ import annotations

from bftrainer_slurm.controller.state.bad_nodes import FAILED, MUTE, Evidence, bad_for_all
from bftrainer_slurm.controller.state.failing import Failing, add_failure, after_progress
from tests.controller.worlds import NOW_S, cases


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


def test_those_on_a_node_on_which_it_does_not_train_are_kept_for_an_hour() -> None:
    failing = after("n2", "n1", "n1")
    assert after_progress(failing, frozenset({"n1"}), NOW_S + 9) is None
    kept = after_progress(failing, frozenset({"n2"}), NOW_S + 9)
    assert kept is not None
    assert (kept.count, kept.in_a_row, kept.failed_on) == (0, 2, ("n1",))
    again = after("n1", before=kept, at_s=NOW_S + 60)
    assert (again.count, again.in_a_row, again.since_s) == (1, 3, NOW_S + 60)
    assert after_progress(kept, frozenset({"n2"}), NOW_S + 3605) is None


def test_the_rest_after_a_failure_doubles_up_to_some_minutes() -> None:
    rests_s = [after(*["n1"] * count).rest_s for count in range(1, 12)]
    assert rests_s[:3] == [5, 10, 20]
    assert rests_s[-1] == max(rests_s) < 600


ALICE = Evidence("n1", "alice", 5, FAILED, NOW_S + 900)
BOB = Evidence("n1", "bob", 6, MUTE, NOW_S + 60)


@cases(
    "evidence, until_s",
    what_one_user_had_there_keeps_no_others_off=([ALICE], {}),
    nor_that_of_several_trainers_of_one_user=([ALICE, ALICE._replace(array=9, why=MUTE)], {}),
    that_of_two_users_keeps_all_off_while_both_count=([ALICE, BOB], {"n1": NOW_S + 60}),
    not_once_that_of_one_is_over=([ALICE, BOB._replace(until_s=NOW_S)], {}),
    not_on_different_nodes=([ALICE, BOB._replace(node="n2")], {}),
    that_of_slurm_itself_keeps_all_off=([ALICE._replace(user="")], {"n1": NOW_S + 900}),
)
def test_all_avoid(evidence: list[Evidence], until_s: dict[str, float]) -> None:
    assert bad_for_all(evidence, NOW_S) == until_s
