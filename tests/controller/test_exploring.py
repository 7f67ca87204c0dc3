"""What a trainer may be given to find out more about it, by the whole loop and the real planner."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bftrainer_slurm.planner.problem import PlanMaker
from bftrainer_slurm.planner.solver import Planner
from tests.controller.test_loop import Setting
from tests.controller.worlds import ARRAY

OTHER = 99


@pytest.fixture(scope="module")
def planner() -> Iterator[PlanMaker]:
    with Planner(time_limit_s=20.0) as planner:
        planner.warm_up()
        yield planner


def explored(planner: PlanMaker, nodes: int) -> Setting:
    """Two trainers with a node each, one of them measured there; then the pool has so many."""
    setting = Setting(2, ARRAY, OTHER)
    setting.settle()
    setting.planner = planner  # type: ignore[assignment]
    setting.controller = setting.started()
    setting.turn()
    setting.train(120)
    setting.slurm.in_service[2:] = [f"n{number}" for number in range(3, nodes + 1)]
    setting.settle()
    return setting


def test_an_explorer_gets_nodes_that_nobody_has(planner: PlanMaker) -> None:
    setting = explored(planner, nodes=3)
    assert (len(setting.slurm.on()), len(setting.slurm.on(OTHER))) == (2, 1)


def test_an_explorer_takes_no_trainers_last_node(planner: PlanMaker) -> None:
    setting = explored(planner, nodes=2)
    assert (len(setting.slurm.on()), len(setting.slurm.on(OTHER))) == (1, 1)
