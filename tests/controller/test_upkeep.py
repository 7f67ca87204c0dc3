from bftrainer_slurm.controller.actions import Cancel, Hold, Lengthen, Shrink
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.upkeep import (
    clear_finished,
    leave_draining,
    near_limit,
    overdue,
    remember_starts,
    spare_reclaimed,
)
from bftrainer_slurm.controller.view import Failing, Memory, Release, view_trainer
from bftrainer_slurm.model import ElementId, ElementState, NodeState
from tests.controller.worlds import ARRAY, NOW_S, element, node, observation, trainer, view

SETTINGS = Settings(start_timeout_s=90, limit_margin_s=30)
FIRST = ElementId(ARRAY, 0)
NOBODY: frozenset[str] = frozenset()


def test_a_pending_element_nobody_remembers_gets_the_full_time_to_start() -> None:
    mine = view(element(0, ElementState.PENDING))
    memory = remember_starts((mine,), Memory(), NOW_S)
    assert overdue((mine,), NOBODY, memory, NOW_S + 80, SETTINGS)[0] == []


def test_such_an_element_counts_where_slurm_may_start_it() -> None:
    mine = view(element(0, ElementState.PENDING, "n1"))
    memory = remember_starts((mine,), Memory(), NOW_S)
    assert view_trainer(mine.trainer, memory).placed == {"n1": FIRST}


def test_a_release_is_forgotten_once_the_element_runs() -> None:
    memory = Memory(releases={FIRST: Release("n1", NOW_S)})
    mine = view(element(0, ElementState.RUNNING, "n1"))
    assert remember_starts((mine,), memory, NOW_S).releases == {}


def test_an_element_that_does_not_start_is_held_again_and_its_node_avoided() -> None:
    mine = view(element(0, ElementState.PENDING))
    memory = Memory(releases={FIRST: Release("n1", NOW_S - 100)})
    actions, after = overdue((mine,), NOBODY, memory, NOW_S, SETTINGS)
    assert actions == [Hold((FIRST,))]
    assert after.avoid["n1"] > NOW_S
    assert after.releases == {}


def test_an_element_whose_node_went_to_an_ordinary_job_is_held_again_at_once() -> None:
    mine = view(element(0, ElementState.PENDING))
    memory = Memory(releases={FIRST: Release("n1", NOW_S)})
    actions, after = overdue((mine,), frozenset({"n1"}), memory, NOW_S, SETTINGS)
    assert actions == [Hold((FIRST,))]
    assert "n1" not in after.avoid


def test_a_node_that_an_admin_waits_for_is_left_and_others_are_not() -> None:
    mine = view(
        element(0, ElementState.RUNNING, "n1"),
        element(1, ElementState.RUNNING, "n2"),
        element(2, ElementState.ENDING, "n1"),
        element(3, ElementState.RUNNING, "n3"),
    )
    states = {"n1": NodeState.DRAINING, "n2": NodeState.BUSY, "n3": NodeState.UNAVAILABLE}
    seen = observation(tuple(node(name, state) for name, state in states.items()))
    assert leave_draining((mine,), seen) == [Shrink((FIRST,), "its node is to be empty")]


def test_a_node_just_reclaimed_is_left_to_the_job_that_needs_it() -> None:
    before = view(element(0, ElementState.RUNNING, "n1"))
    after = view(element(0, ElementState.DELAYED))
    memory = spare_reclaimed((before,), (after,), Memory(), NOW_S)
    assert memory.avoid["n1"] > NOW_S
    assert spare_reclaimed((after,), (after,), Memory(), NOW_S).avoid == {}


def test_an_operator_lengthens_an_element_near_its_limit() -> None:
    mine = view(element(0, ElementState.RUNNING, "n1", start_s=NOW_S - 40, limit_end_s=NOW_S + 20))
    assert near_limit(mine, NOW_S, SETTINGS) == [Lengthen((FIRST,), 61)]


def test_an_element_far_from_its_limit_is_left_alone() -> None:
    mine = view(element(0, ElementState.RUNNING, "n1", start_s=NOW_S, limit_end_s=NOW_S + 3600))
    assert near_limit(mine, NOW_S, SETTINGS) == []


def test_an_ordinary_user_requeues_an_element_near_its_limit() -> None:
    mine = view(element(0, ElementState.RUNNING, "n1", start_s=NOW_S - 40, limit_end_s=NOW_S + 20))
    (action,) = near_limit(mine, NOW_S, Settings(operator=False))
    assert isinstance(action, Shrink)


def test_the_users_own_limit_is_never_passed() -> None:
    running = element(0, ElementState.RUNNING, "n1", start_s=NOW_S - 40, limit_end_s=NOW_S + 20)
    short = view_trainer(trainer(running, minutes=1), Memory())
    longer = view_trainer(trainer(running, minutes=5), Memory())
    (requeued,) = near_limit(short, NOW_S, SETTINGS)
    assert isinstance(requeued, Shrink)
    assert near_limit(longer, NOW_S, SETTINGS) == [Lengthen((FIRST,), 5)]


def test_a_finished_trainer_is_cancelled_when_its_last_element_has_ended() -> None:
    mine = view(element(0, ElementState.COMPLETED), element(1, ElementState.HELD))
    assert clear_finished(mine, Memory(), NOW_S)[0] == [Cancel(ARRAY, "finished")]


def test_the_others_have_time_to_end_before() -> None:
    mine = view(
        element(0, ElementState.COMPLETED),
        element(1, ElementState.RUNNING, "n1"),
        element(2, ElementState.HELD),
    )
    actions, memory = clear_finished(mine, Memory(), NOW_S)
    assert actions == []
    assert clear_finished(mine, memory, NOW_S + 400)[0] == [Cancel(ARRAY, "finished")]


def test_a_finished_trainer_with_nothing_left_is_left_alone() -> None:
    assert clear_finished(view(element(0, ElementState.COMPLETED)), Memory(), NOW_S)[0] == []


def test_a_finished_trainer_whose_elements_hang_is_cancelled_though_all_of_them_run() -> None:
    mine = view(element(0, ElementState.COMPLETED), element(1, ElementState.RUNNING, "n1"))
    _, memory = clear_finished(mine, Memory(), NOW_S)
    assert clear_finished(mine, memory, NOW_S + 400)[0] == [Cancel(ARRAY, "finished")]


def test_trainers_that_are_gone_are_forgotten() -> None:
    memory = Memory(
        failing={ARRAY: Failing(NOW_S)},
        patient_until={ARRAY: NOW_S},
        given_up={ARRAY: "why"},
        finishing_since={ARRAY: NOW_S},
        cancelled_s={ARRAY: NOW_S},
    )
    assert remember_starts((), memory, NOW_S) == Memory()
