"""Replays in which nobody tells the planner how fast trainers are."""

from __future__ import annotations

from bftrainer_slurm.cli.simulation import ReplayOptions, run
from bftrainer_slurm.planner.solver import Planner
from bftrainer_slurm.replay.progress import SimulatedTrainer
from tests.replay.traces import holes, trainer


def trained(nodes: int, seconds: float) -> SimulatedTrainer:
    one = SimulatedTrainer(1, trainer(), 1.0)
    for task in range(nodes):
        one.join(task, f"n{task}", 0.0)
    one.advance(0.0, seconds)
    return one


def test_a_trainer_knows_what_it_did_on_how_many_nodes_without_its_pauses() -> None:
    one = trained(2, 100.0)
    one.join(2, "c", 100.0)
    one.advance(100.0, 150.0)
    assert one.measured == {2: (2000.0, 100.0), 3: (900.0, 30.0)}


def test_plans_with_learnt_curves_come_close_to_those_with_known_ones(planner: Planner) -> None:
    rows = [(f"n{node}", 300.0 * node, 20_000.0) for node in range(6)]
    trainers = [trainer(name, costs=(18.0, 12.0)) for name in "ab"]
    reached = {
        learn: run(holes(*rows), trainers, ReplayOptions(learn_curves=learn), planner)[0].samples
        for learn in (False, True)
    }
    assert reached[True] > 0.95 * reached[False]
