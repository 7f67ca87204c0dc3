"""Who is given up, and which node is left alone."""

from __future__ import annotations

from dataclasses import replace

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
HELD = element(0, "held")
ON_N1 = element(0, "running n1")
ON_N2 = element(1, "running n2")
BOTH, ON_N1_ALONE = view(ON_N1, ON_N2), view(ON_N1)
OTHER = 99


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


def test_a_script_that_fails_on_different_nodes_is_given_up_with_its_last_words() -> None:
    verdict = judged(after("n1", "n2", "n1"), BOTH)
    assert over(verdict) == "failed 3 times without progress on n1, n2\nno module named toch"


@cases(
    "failing, mine",
    who_has_not_failed_is_not_judged=(None, BOTH),
    a_failure_or_two_may_be_bad_luck=(after("n1"), BOTH),
    on_two_nodes_too=(after("n1", "n2"), BOTH),
    the_only_node_that_it_has_is_tried_five_times=(after(*["n1"] * 4), ON_N1_ALONE),
    who_is_over_is_not_judged_again=(after("n1", "n2", "n1"), view(ON_N1, ON_N2, over="finished")),
)
def test_nothing_follows(failing: Failing | None, mine: TrainerView) -> None:
    assert judged(failing, mine) == Verdict({})


def test_one_that_fails_at_once_wherever_it_is_tried_is_given_up_at_the_third_try() -> None:
    failing: Failing | None = None
    for second in range(3):
        assert failing is None or not over(judged(failing, BOTH))
        failing = add_failure(failing, ["n1", "n2"], "no venv", False, NOW_S + second, at_once=True)
    assert failing is not None
    assert over(judged(failing, BOTH)) == "failed 3 times without progress on n1, n2\nno venv"


def test_on_the_only_node_of_a_cluster_five_failures_are_enough() -> None:
    four, five = after(*["n1"] * 4), after(*["n1"] * 5)
    assert not over(judged(four, view(ON_N1), service="n1"))
    assert over(judged(five, view(ON_N1), service="n1"))


def test_a_node_on_which_alone_it_fails_is_left_alone_and_its_element_ended() -> None:
    verdict = judged(after("n1", "n1"), BOTH)
    assert verdict.leaving == (Shrink((FIRST,), "n1 may be a bad node"),)
    assert until(verdict.bad) == {"n1": NOW_S + 10 + 900}
    assert not over(verdict)


def test_a_suspected_node_is_innocent_once_the_script_fails_elsewhere_too() -> None:
    suspected = judged(after("n1", "n1"), BOTH)
    verdict = judged(after("n2", before=still(suspected)), view(HELD, ON_N2), before=suspected)
    assert over(verdict)
    assert until(verdict.bad) == {}


def test_a_node_that_others_have_made_suspect_meanwhile_stays_so() -> None:
    suspected = judged(after("n1", "n1"), BOTH)
    blamed = replace(suspected, bad=(*bad("n1"), *suspected.bad))
    verdict = judged(after("n2", before=still(suspected)), view(HELD, ON_N2), before=blamed)
    assert verdict.bad == bad("n1")


def test_a_node_is_suspected_once_for_the_same_failures() -> None:
    suspected = judged(after("n1", "n1"), BOTH)
    assert judged(still(suspected), BOTH, before=suspected).leaving == ()
    assert judged(after("n1", before=still(suspected)), BOTH, before=suspected).leaving != ()


def test_the_failures_of_a_trainer_count_on_one_node_at_a_time() -> None:
    mine = view(ON_N1, ON_N2, element(2, "running n3"))
    first = judged(after("n1", "n1", trained=True), mine)
    second = judged(after("n2", "n2", trained=True, before=still(first)), mine, before=first)
    assert until(second.bad).keys() == {"n2"}


def tried(mine: TrainerView, sizes: TriedSizes) -> TrainerView:
    return replace(mine, state=replace(mine.state, tried=sizes))


def test_who_has_never_trained_is_given_up_only_after_failures_on_fewer_nodes() -> None:
    failing, sizes = after("n1", "n2", "n1"), NOTHING_TRIED
    for size in (2, 2):
        sizes = sizes.fails(size, ["n1", "n2"], "no module named toch", NOW_S)
    assert judged(failing, tried(BOTH, sizes)) == Verdict({})
    assert over(judged(failing, tried(BOTH, sizes.fails(1, ["n1"], "the same", NOW_S))))


def test_a_new_node_is_left_alone_by_its_trainer_only_while_the_size_may_be_the_cause() -> None:
    sizes = NOTHING_TRIED.trains(1, named("n2"))
    for node_ in ("n1", "n1"):
        sizes = sizes.fails(2, [node_], "not on 2 nodes", NOW_S)
    failing = after("n1", "n1", trained=True)
    verdict = judged(failing, tried(BOTH, sizes))
    assert until(verdict.bad) == {}
    assert verdict.states[ARRAY].refused == {"n1": NOW_S + 10 + 900}
    known = replace(sizes, trained=(2, 1))
    assert until(judged(failing, tried(BOTH, known)).bad).keys() == {"n1"}


def test_where_it_has_no_other_node_it_is_given_up_after_five_failures() -> None:
    verdict = judged(after(*["n1"] * 5), view(ON_N1))
    assert over(verdict)
    assert until(verdict.bad) == {}


def test_who_has_trained_then_waits_for_another_node() -> None:
    four, five = after(*["n1"] * 4, trained=True), after(*["n1"] * 5, trained=True)
    assert not judged(four, view(ON_N1)).bad
    assert until(judged(five, view(ON_N1)).bad).keys() == {"n1"}
    assert not over(judged(five, view(ON_N1), late_s=900))
    assert over(judged(after(*["n1"] * 10, trained=True), view(ON_N1), late_s=900))


def test_who_has_never_trained_leaves_a_node_alone_itself_and_is_tried_on_a_free_one() -> None:
    verdict = judged(after("n1", "n1"), view(ON_N1), free="n3")
    assert verdict.states[ARRAY].refused == {"n1": NOW_S + 10 + 900}
    assert verdict.leaving == (Shrink((FIRST,), "n1 may be a bad node"),)


def test_free_nodes_are_others_to_try_if_they_are_enough() -> None:
    two = view(ON_N1, element(1, "running n2"), min_nodes=2)
    assert judged(after("n1", "n1"), two) == Verdict({})
    assert judged(after("n1", "n1"), two, free="n3").states[ARRAY].refused.keys() == {"n1"}
    assert over(judged(after(*["n1"] * 5), two))


def test_a_node_on_which_other_users_fail_too_is_suspected_at_once() -> None:
    def other(user: str) -> TrainerView:
        one = with_failures(view(HELD), after("n1"))
        return replace(one, trainer=replace(one.trainer, array=OTHER, user=user))

    assert until(judged(after("n1"), view(ON_N1)).bad) == {}
    assert until(judged(after("n1"), view(ON_N1), other("alice")).bad) == {}
    both = judged(after("n1"), view(ON_N1), other("bob"))
    assert bad_for_all(both.bad, NOW_S).keys() == {"n1"}


@pytest.mark.parametrize(("trained", "avoided"), [(False, set()), (True, {"n1"})])
def test_a_suspicion_falls_with_a_trainer_that_is_cancelled_and_never_trained(
    trained: bool, avoided: set[str]
) -> None:
    suspected = judged(after("n1", "n1", trained=trained), BOTH)
    assert until(suspected.bad).keys() == {"n1"}
    cancelled = view("cancelled", "cancelled")
    assert until(judged(still(suspected), cancelled, before=suspected).bad).keys() == avoided


def test_who_has_trained_before_gets_time_for_an_outage_to_end() -> None:
    failing = after("n1", "n2", "n3", "n1", "n2", trained=True)
    assert not over(judged(failing, BOTH))
    assert over(judged(failing, BOTH, late_s=900))


def test_failures_that_nobody_can_place_count_too() -> None:
    assert not over(judged(after(*[None] * 4), BOTH))
    why = over(judged(after(*[None] * 5), BOTH))
    assert why is not None
    assert why.startswith("failed 5 times without progress\n")
