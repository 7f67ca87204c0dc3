"""Who is given up, and which node is left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bftrainer_slurm.controller.decide.actions import Shrink
from bftrainer_slurm.controller.decide.verdicts import Verdict, judge
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.bad_nodes import bad_for_all
from bftrainer_slurm.controller.state.failing import Failing, add_failure
from bftrainer_slurm.controller.state.failing_sizes import NOTHING_TRIED, TriedSizes
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import ElementId
from tests.controller.worlds import (
    ARRAY,
    NOW_S,
    bad,
    cases,
    cluster,
    element,
    named,
    node,
    snapshot,
    until,
    view,
)

SETTINGS = Settings(max_failures=5, bad_node_s=900)
FIRST = ElementId(ARRAY, 0)
ON_N1, ON_N2 = element(0, "running n1"), element(1, "running n2")
BOTH, ALONE = view(ON_N1, ON_N2), view(ON_N1)
BOTH_OR_NONE = view(ON_N1, ON_N2, min_nodes=2)
GIVEN_UP = "given up"


def after(*nodes: str | None, trained: bool = False, before: Failing | None = None) -> Failing:
    """The failures after one on each of these nodes, a second apart."""
    for second, on in enumerate(nodes):
        before = add_failure(
            before, [on] if on else [], "no module named toch", trained, NOW_S + second
        )
    assert before is not None
    return before


def with_failures(mine: TrainerView, failing: Failing | None) -> TrainerView:
    return replace(mine, state=replace(mine.state, failing=failing))


def judged(
    failing: Failing | None,
    mine: TrainerView,
    *others: TrainerView,
    free: str = "",
    service: str = "n1 n2 n3",
    late_s: float = 0,
    before: Verdict | None = None,
) -> Verdict:
    seen = snapshot(tuple(node(name) for name in service.split()))
    seen = replace(seen, time_s=NOW_S + 10 + late_s)
    bad = before.bad if before else ()
    of = cluster(with_failures(mine, failing), *others, of=seen, bad=bad)
    return judge(of, named(free), SETTINGS)


def over(verdict: Verdict) -> str | None:
    """Why the trainer is given up, None: it is not."""
    return verdict.states[ARRAY].over if ARRAY in verdict.states else None


def still(verdict: Verdict) -> Failing:
    """The failures as the verdict leaves them."""
    failing = verdict.states[ARRAY].failing
    assert failing is not None
    return failing


def tried(mine: TrainerView, *on: int) -> TrainerView:
    """A trainer that failed on these numbers of nodes."""
    sizes = NOTHING_TRIED
    for size in on:
        sizes = sizes.fails(size, ["n1", "n2"][:size], "no module named toch", NOW_S)
    return replace(mine, state=replace(mine.state, tried=sizes))


N1_4, N1_5 = after(*["n1"] * 4), after(*["n1"] * 5)
EVERYWHERE = after("n1", "n2", "n1")
TRAINED_4, TRAINED_5 = after(*["n1"] * 4, trained=True), after(*["n1"] * 5, trained=True)
OUTAGE = after("n1", "n2", "n3", "n1", "n2", trained=True)
LATE = {"late_s": 900}


@cases(
    "failing, mine, more, what",
    nothing_of_who_has_not_failed=(None, BOTH, {}, ""),
    nothing_of_one_that_may_have_had_bad_luck=(after("n1"), BOTH, {}, ""),
    nothing_on_two_nodes_too=(after("n1", "n2"), BOTH, {}, ""),
    nothing_of_who_is_over=(EVERYWHERE, view(ON_N1, ON_N2, over="finished"), {}, ""),
    nothing_of_who_was_cancelled=(EVERYWHERE, view("cancelled", "cancelled"), {}, ""),
    a_script_that_fails_everywhere=(EVERYWHERE, BOTH, {}, GIVEN_UP),
    not_before_a_new_one_was_tried_on_fewer_nodes=(EVERYWHERE, tried(BOTH, 2, 2), {}, ""),
    then_it_is=(EVERYWHERE, tried(BOTH, 2, 2, 1), {}, GIVEN_UP),
    a_node_on_which_alone_it_fails=(after("n1", "n1"), BOTH, {}, "n1"),
    the_only_node_that_it_has_is_tried_five_times=(N1_4, ALONE, {}, ""),
    then_it_is_the_script=(N1_5, ALONE, {}, GIVEN_UP),
    not_if_another_is_free=(after("n1", "n1"), ALONE, {"free": "n3"}, "n1"),
    if_those_are_enough=(after("n1", "n1"), BOTH_OR_NONE, {}, ""),
    with_the_free_ones_they_are=(after("n1", "n1"), BOTH_OR_NONE, {"free": "n3"}, "n1"),
    without_them_it_is_the_script=(N1_5, BOTH_OR_NONE, {}, GIVEN_UP),
    so_it_is_on_the_only_node_of_a_cluster=(N1_5, ALONE, {"service": "n1"}, GIVEN_UP),
    not_sooner=(N1_4, ALONE, {"service": "n1"}, ""),
    who_has_trained_waits_for_another_node=(TRAINED_5, ALONE, {}, "n1"),
    not_sooner_either=(TRAINED_4, ALONE, {}, ""),
    also_for_long=(TRAINED_5, ALONE, LATE, "n1"),
    until_it_has_failed_ten_times=(after(*["n1"] * 10, trained=True), ALONE, LATE, GIVEN_UP),
    nothing_where_an_outage_may_end=(OUTAGE, BOTH, {}, ""),
    where_it_does_not=(OUTAGE, BOTH, LATE, GIVEN_UP),
    nothing_of_some_failures_that_nobody_can_place=(after(*[None] * 4), BOTH, {}, ""),
    many_of_them=(after(*[None] * 5), BOTH, {}, GIVEN_UP),
)  # fmt: skip
def test_failures_are_the_fault_of(
    failing: Failing | None, mine: TrainerView, more: dict[str, Any], what: str
) -> None:
    verdict, suspect = judged(failing, mine, **more), [what] * (what == "n1")
    assert (over(verdict) is not None) == (what == GIVEN_UP)
    until_s = NOW_S + 10 + more.get("late_s", 0) + 900
    assert until(verdict.bad) == dict.fromkeys(suspect, until_s)
    assert not suspect or verdict.states[ARRAY].refused == until(verdict.bad)
    assert list(verdict.leaving) == [Shrink((FIRST,), "n1 may be a bad node")] * len(suspect)


def test_who_is_given_up_is_so_with_its_last_words() -> None:
    why = "failed 3 times without progress on n1, n2\nno module named toch"
    assert over(judged(EVERYWHERE, BOTH)) == why
    assert over(judged(after(*[None] * 5), BOTH)) == (
        "failed 5 times without progress\nno module named toch"
    )


def test_one_that_fails_at_once_wherever_it_is_tried_is_given_up_at_the_third_try() -> None:
    failing: Failing | None = None
    for second in range(3):
        assert failing is None or not over(judged(failing, BOTH))
        failing = add_failure(failing, ["n1", "n2"], "no venv", False, NOW_S + second, at_once=True)
    assert over(judged(failing, BOTH))


def test_a_suspected_node_is_innocent_once_the_script_fails_elsewhere_too() -> None:
    suspected = judged(after("n1", "n1"), BOTH)
    elsewhere = after("n2", before=still(suspected)), view("held", ON_N2)
    verdict = judged(*elsewhere, before=suspected)
    assert over(verdict) and not verdict.bad
    blamed = replace(suspected, bad=(*bad("n1"), *suspected.bad))  # by others, meanwhile
    assert judged(*elsewhere, before=blamed).bad == bad("n1")


def test_a_node_is_suspected_once_for_the_same_failures() -> None:
    suspected = judged(after("n1", "n1"), BOTH)
    assert judged(still(suspected), BOTH, before=suspected).leaving == ()
    assert judged(after("n1", before=still(suspected)), BOTH, before=suspected).leaving != ()


def test_the_failures_of_a_trainer_count_on_one_node_at_a_time() -> None:
    mine = view(ON_N1, ON_N2, element(2, "running n3"))
    first = judged(after("n1", "n1", trained=True), mine)
    second = judged(after("n2", "n2", trained=True, before=still(first)), mine, before=first)
    assert until(second.bad).keys() == {"n2"}


def test_a_new_node_is_left_alone_by_its_trainer_only_while_the_size_may_be_the_cause() -> None:
    sizes = NOTHING_TRIED.trains(1, named("n2"))
    for _ in range(2):
        sizes = sizes.fails(2, ["n1"], "not on 2 nodes", NOW_S)

    def with_sizes(known: TriedSizes) -> Verdict:
        mine = replace(BOTH, state=replace(BOTH.state, tried=known))
        return judged(after("n1", "n1", trained=True), mine)

    assert not with_sizes(sizes).bad
    assert with_sizes(sizes).states[ARRAY].refused == {"n1": NOW_S + 10 + 900}
    assert until(with_sizes(replace(sizes, trained=(2, 1))).bad).keys() == {"n1"}


def test_a_node_on_which_other_users_fail_too_is_suspected_at_once() -> None:
    def beside(user: str) -> Verdict:
        one = with_failures(view("held", array=99), after("n1"))
        other = replace(one, trainer=replace(one.trainer, user=user))
        return judged(after("n1"), ALONE, other)

    assert not beside("alice").bad
    assert bad_for_all(beside("bob").bad, NOW_S).keys() == {"n1"}


@pytest.mark.parametrize(("trained", "avoided"), [(False, set()), (True, {"n1"})])
def test_a_suspicion_falls_with_a_trainer_that_is_cancelled_and_never_trained(
    trained: bool, avoided: set[str]
) -> None:
    suspected = judged(after("n1", "n1", trained=trained), BOTH)
    cancelled = view("cancelled", "cancelled")
    assert until(judged(still(suspected), cancelled, before=suspected).bad).keys() == avoided
