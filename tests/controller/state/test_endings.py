"""Nodes on which elements take long to end."""

from __future__ import annotations

from bftrainer_slurm.controller.state.endings import Endings
from bftrainer_slurm.controller.state.phases import Ended
from bftrainer_slurm.controller.state.trainer_state import TrainerState
from bftrainer_slurm.model import ElementId, ElementState
from tests.controller.worlds import ARRAY, NOW_S, element, state_of, trainer

GRACE_S, ALLOWED_S = 0.5, 2.0  # the grace is that of a trainer that asks for none
ENDING = trainer(element(0, ElementState.ENDING, "n1"), element(1, ElementState.RUNNING, "n2"))


def after(*took_s: float) -> Endings:
    """What is known after endings that took so long."""
    endings = Endings()
    endings.saw(Ended(ElementId(ARRAY, 9), "n9", NOW_S, "shrank", took_s=one) for one in took_s)
    return endings


def blamed(
    endings: Endings, after_s: float, state: TrainerState | None = None
) -> tuple[TrainerState, dict[str, float]]:
    """Whom it blames so long after an element has begun to end."""
    return endings.blame(ENDING, state or state_of(ENDING), NOW_S + after_s, ALLOWED_S)


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


def test_before_anything_is_usual_nobody_is_blamed() -> None:
    assert blamed(after(1.0, 1.0), 100.0)[1] == {}


def test_one_in_ten_that_takes_longer_is_not_usual() -> None:
    assert after().usual_s == 0.0
    assert after(*[2.0] * 19, 90.0).usual_s == 2.0
    assert after(1.0, 10.0, 12.0).usual_s == 12.0


def test_the_next_ending_is_timed_anew() -> None:
    state, _ = blamed(after(0.0, 0.0, 0.0), 3.0)
    runs = trainer(element(0, ElementState.RUNNING, "n1"))
    state = state_of(ENDING, state_of(runs, state, NOW_S + 10), NOW_S + 20)
    assert blamed(after(0.0, 0.0, 0.0), 21.0, state)[1] == {}
    assert blamed(after(0.0, 0.0, 0.0), 25.0, state)[1] == {"n1": 5.0}
