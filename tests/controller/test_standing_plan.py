"""How long a plan stands: until what it was made for is no longer true."""

from __future__ import annotations

from bftrainer_slurm.controller.state.profiles import RescaleCosts
from bftrainer_slurm.controller.state.view import TrainerView
from tests.controller.setting import Setting
from tests.controller.worlds import ARRAY


def costing(setting: Setting) -> list[float]:
    """Make each rescale cost what the list says last (seconds)."""
    costs_s = [30.0]

    def costs(view: TrainerView, now_s: float) -> RescaleCosts:
        return RescaleCosts(costs_s[-1], costs_s[-1], 30.0)

    setting.performance.costs = costs  # type: ignore[method-assign]
    return costs_s


def test_costs_that_creep_up_make_a_new_plan_once_they_differ_from_those_it_was_made_with() -> None:
    setting = Setting(3, ARRAY)
    costs_s = costing(setting)
    setting.settle()
    asked = len(setting.planner.asked)
    for _ in range(60):
        costs_s.append(costs_s[-1] + 1.0)
        setting.turn()
    assert 1 <= len(setting.planner.asked) - asked <= 10
    used_s = setting.planner.asked[-1].trainers[0].rescale_up_s
    assert abs(used_s - costs_s[-1]) <= 1 + costs_s[-1] / 3


def test_costs_that_go_up_and_down_a_little_make_none() -> None:
    setting = Setting(3, ARRAY)
    costs_s = costing(setting)
    setting.settle()
    asked = len(setting.planner.asked)
    for turn in range(60):
        costs_s.append(30.0 + turn % 3)
        setting.turn()
    assert len(setting.planner.asked) == asked
