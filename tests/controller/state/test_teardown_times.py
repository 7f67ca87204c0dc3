"""Nodes on which elements take long to end."""

from __future__ import annotations

from bftrainer_slurm.controller.state.bad_nodes import TeardownTimes, blame
from bftrainer_slurm.controller.state.phases import Ended, Phase
from bftrainer_slurm.controller.state.trainer_state import TrainerState
from bftrainer_slurm.model import ElementId
from tests.controller.worlds import ARRAY, NOW_S, element, state_of, trainer

GRACE_S, ALLOWED_S = 0.5, 2.0  # the grace is that of a trainer that asks for none
ENDING = trainer(element(0, "ending n1"), element(1, "running n2"))


def after(*took_s: float) -> TeardownTimes:
    """What is known after times that took so long."""
    times = TeardownTimes()
    times.record(over(*took_s), (), NOW_S)
    return times


def over(*took_s: float) -> list[Ended]:
    """Elements that were seen ending for so long."""
    return [Ended(ElementId(ARRAY, 9), "n9", NOW_S, "shrank", took_s=one) for one in took_s]


def blamed(
    times: TeardownTimes,
    after_s: float,
    state: TrainerState | None = None,
    others_s: tuple[float, ...] = (),
    done_s: tuple[float, ...] = (),
) -> tuple[TrainerState, dict[str, float]]:
    """Whom it blames so long after an element has begun to end.

    Others have been ending for so long; some were over in so many seconds meanwhile.
    """
    state, now_s = state or state_of(ENDING), NOW_S + after_s
    own_s = [one.since_s for one in state.elements.values() if one.phase is Phase.ENDING]
    times.record(over(*done_s), own_s + [now_s - one for one in others_s], now_s)
    slow = times.slow(ENDING, state, now_s, ALLOWED_S)
    return blame(state, slow), {one.node or "": now_s - one.since_s for one in slow.values()}


def test_an_element_may_take_its_grace_and_what_is_allowed_beside() -> None:
    assert blamed(after(0.0, 0.0, 0.0), GRACE_S + ALLOWED_S)[1] == {}


def test_a_node_where_it_takes_longer_is_blamed_once() -> None:
    state, nodes = blamed(after(0.0, 0.0, 0.0), 3.0)
    assert nodes == {"n1": 3.0}
    assert blamed(after(0.0, 0.0, 0.0), 4.0, state)[1] == {}


def test_what_is_usual_here_is_held_against_no_node() -> None:
    epilog = after(10.0, 11.0, 10.0)
    assert blamed(epilog, 15.0)[1] == {}
    assert blamed(epilog, 30.0)[1] == {"n1": 30.0}


def beside(*others_s: float, done_s: tuple[float, ...] = ()) -> bool:
    """Whether a node is blamed after 3.2 s, where ends took no time before."""
    return bool(blamed(after(*[0.0] * 50), 3.2, others_s=others_s, done_s=done_s)[1])


def test_where_most_that_end_at_this_time_take_as_long_the_site_has_become_slow() -> None:
    assert not beside(3.2, 3.2, 3.2)
    assert not beside(3.2)
    assert not beside(3.2, 3.2, done_s=(0.2,))
    assert not beside(done_s=(3.0, 2.9))


def test_where_most_take_less_time_the_node_is_slow() -> None:
    assert beside(3.2, done_s=(0.2, 0.3))
    assert beside(done_s=(0.2,))


def test_of_those_that_began_to_end_much_later_nobody_knows_yet() -> None:
    assert beside(0.1, 0.1)
    assert not beside(2.0, 2.5)
    assert not beside(3.5, 0.1, 0.1)


def test_where_nothing_ended_meanwhile_the_last_ones_tell_that_the_site_has_become_slow() -> None:
    epilog = after(*[0.0] * 48, 10.0, 10.0)
    assert blamed(epilog, 12.0)[1] == {}
    assert blamed(epilog, 30.0)[1] == {"n1": 30.0}
    once = after(*[0.0] * 49, 10.0)
    assert blamed(once, 12.0)[1] == {"n1": 12.0}


def test_before_anything_is_usual_nobody_is_blamed() -> None:
    assert blamed(after(1.0, 1.0), 100.0)[1] == {}


def test_one_in_ten_that_takes_longer_is_not_usual() -> None:
    assert after().usual_s == 0.0
    assert after(*[2.0] * 19, 90.0).usual_s == 2.0
    assert after(1.0, 10.0, 12.0).usual_s == 12.0


def test_the_next_ending_is_timed_anew() -> None:
    state, _ = blamed(after(0.0, 0.0, 0.0), 3.0)
    runs = trainer(element(0, "running n1"))
    state = state_of(ENDING, state_of(runs, state, NOW_S + 10), NOW_S + 20)
    assert blamed(after(0.0, 0.0, 0.0), 21.0, state)[1] == {}
    assert blamed(after(0.0, 0.0, 0.0), 25.0, state)[1] == {"n1": 5.0}
