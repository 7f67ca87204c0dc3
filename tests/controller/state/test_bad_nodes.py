"""Evidence that nodes are bad, and whom it keeps off them."""

from __future__ import annotations

from bftrainer_slurm.controller.state.bad_nodes import FAILED, MUTE, Evidence, bad_for_all
from tests.controller.worlds import NOW_S, cases

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
