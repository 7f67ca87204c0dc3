"""Changes of size: to find out more, by the real planner, and of those that lose much by them."""

from __future__ import annotations

import pytest

from bftrainer_slurm.keeper.protocol import NoteKind
from bftrainer_slurm.planner.solver import Planner
from tests.controller.setting import Greedy, Setting, at_work
from tests.controller.worlds import ARRAY

OTHER = 99


@pytest.mark.parametrize(
    ("nodes", "mine"),
    [
        pytest.param(3, 2, id="gets nodes that nobody has"),
        pytest.param(2, 1, id="takes no trainer's last node"),
    ],
)
def test_an_explorer(nodes: int, mine: int) -> None:
    """Two trainers have a node each, and one was measured there; then there are so many nodes."""
    setting = at_work(2, ARRAY, OTHER)
    with Planner(time_limit_s=20.0) as planner:
        planner.warm_up()
        setting.planner = planner  # type: ignore[assignment]
        setting.restart()
        setting.turn()
        setting.train(120)
        setting.has_also(*["n3"][: nodes - 2])
    assert (len(setting.on()), len(setting.on(OTHER))) == (mine, 1)


# A trainer that begins at step 0 again after each change is left at its size, until it resumes.


def train(setting: Setting, seconds: int, generation: int, from_start: int) -> None:
    """Let it report every second how often it has begun at step 0 again."""
    for second in range(seconds):
        setting.now_s += 1
        told = {"steps": 3.0 * second, "generation": generation, "from_start": from_start}
        setting.say(NoteKind.PROGRESS, nodes=len(setting.on()), pause_s=0.5, **told)
    setting.turn(0)


def test_who_loses_all_at_a_change_is_left_at_its_size_until_it_goes_on() -> None:
    setting = Setting(2, ARRAY)
    setting.planner = Greedy()  # weighs what a change loses
    setting.restart()
    setting.settle()
    train(setting, 60, generation=3, from_start=2)
    setting.slurm.node_names.append("n3")
    train(setting, 600, generation=3, from_start=2)
    setting.settle()
    assert len(setting.on()) == 2
    shown = setting.shown()
    assert str(shown["notice"]).startswith("begins at step 0 again after each change of nodes: ")
    assert shown["loss"] == {"from_start": True, "seconds": 659.0, "other_ranks": False}

    train(setting, 5, generation=4, from_start=0)  # its user has mended it
    setting.settle()
    assert len(setting.on()) == 3
    shown = setting.shown()
    unchanged = {"from_start": False, "seconds": 0.0, "other_ranks": False}
    assert (shown["notice"], shown["loss"]) == (None, unchanged)
    spent = setting.shown_goodput()
    assert spent["again_s"] == 0.0


def test_who_goes_on_with_other_ranks_is_known_for_good() -> None:
    setting = at_work(2)
    for generation, told in ((1, {}), (2, {"other_ranks": 1.0}), (3, {})):
        setting.now_s += 60
        setting.say(
            NoteKind.PROGRESS, nodes=2, steps=9.0 * generation, generation=generation, **told
        )
        setting.turn()
    setting.restart()  # another one, from what was saved
    setting.train(1, generation=3)
    setting.settle()
    assert setting.shown()["loss"] == {"from_start": False, "seconds": 0.0, "other_ranks": True}
