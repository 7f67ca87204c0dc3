"""What a trainer may be given to find out more about it, by the whole loop and the real planner."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.measurements import Job, Measurements
from bftrainer_slurm.controller.state.stopwatch import Throughput
from bftrainer_slurm.planner.problem import PlanMaker
from bftrainer_slurm.planner.solver import Planner
from tests.controller.setting import Setting, at_work
from tests.controller.worlds import ARRAY, NOW_S

OTHER = 99


@pytest.fixture(scope="module")
def planner() -> Iterator[PlanMaker]:
    with Planner(time_limit_s=20.0) as planner:
        planner.warm_up()
        yield planner


@pytest.mark.parametrize(
    ("nodes", "mine"),
    [
        pytest.param(3, 2, id="gets nodes that nobody has"),
        pytest.param(2, 1, id="takes no trainer's last node"),
    ],
)
def test_an_explorer(planner: PlanMaker, nodes: int, mine: int) -> None:
    """Two trainers have a node each, and one was measured there; then there are so many nodes."""
    setting = at_work(2, ARRAY, OTHER)
    setting.planner = planner  # type: ignore[assignment]
    setting.restart()
    setting.turn()
    setting.train(120)
    setting.has_also(*["n3"][: nodes - 2])
    assert (len(setting.on()), len(setting.on(OTHER))) == (mine, 1)


def test_where_growing_never_pays_a_trainer_stays_says_so_and_tries_again_after_a_while(
    planner: PlanMaker,
) -> None:
    """Its name is known for its curve, and for what growing has cost; plans look 30 s ahead."""
    setting = Setting(2, ARRAY, settings=Settings(queue_interval_s=0.25, forward_time_s=30.0))
    setting.planner = planner  # type: ignore[assignment]
    job, at_s, known = Job("alice", "digits"), NOW_S - 60.0, Measurements(setting.history)
    for nodes, rate in ((1, 100.0), (2, 130.0), (4, 150.0)):
        known.set_curve(job, [Throughput(7, "samples", nodes, at_s, rate, 80.0)])
    for _ in range(3):
        known.add_pause(job, 7, at_s, 2, 17.0, True)
    setting.restart()
    setting.settle()
    setting.has_also("n3", "n4")
    assert len(setting.on()) == 2
    plan: Any = setting.shown()["plan"]
    assert plan["limit"] == "cost"
    for _ in range(4):
        setting.turn(300)
    assert len(setting.on()) == 4
