"""Slurm takes a moment to be read, and what happens meanwhile is not misread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.cluster import Spans
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.model import Node, Queue
from bftrainer_slurm.replay.slurm import HELD, RUNNING
from tests.controller.made_up_slurm import MadeUpSlurm
from tests.controller.setting import Planner
from tests.controller.worlds import NOW_S, started

NODES = ("n1", "n2")


@dataclass
class Moving(MadeUpSlurm):
    """Something happens between the first two readings of a look, in whichever order they come."""

    meanwhile: Callable[[], None] | None = None

    def nodes(self) -> tuple[Node, ...]:
        read = super().nodes()
        self._happens()
        return read

    def queue(self) -> Queue:
        read = super().queue()
        self._happens()
        return read

    def _happens(self) -> None:
        happens, self.meanwhile = self.meanwhile, None
        if happens is not None:
            happens()


class World:
    """A controller that reads nodes at each look, and a trainer of one element."""

    def __init__(self) -> None:
        self.slurm = Moving(NOW_S, [*NODES])
        self.slurm.submit_(12, 1, 1, "0000000a")
        self.history = History(":memory:")
        about = (self.slurm, Planner(), self.history, lambda: self.slurm.now_s)
        self.controller = started(*about, Settings(queue_interval_s=0.25))

    def turn(self, meanwhile: Callable[[], None] | None = None, seconds: float = 15.0) -> None:
        self.slurm.now_s += seconds
        self.slurm.meanwhile = meanwhile
        self.controller.turn()


def test_an_element_that_starts_meanwhile_ends_no_hole() -> None:
    world = World()
    world.slurm.works = False
    world.turn()
    holes = Spans(world.history, "holes").open()
    assert holes.keys() == set(NODES)

    def starts() -> None:
        world.slurm.works = True
        world.slurm.schedule()

    world.turn(starts)
    assert len(world.slurm.elements(RUNNING)) == 1
    assert Spans(world.history, "holes").open() == holes
    world.turn()
    assert Spans(world.history, "holes").open() == holes


def test_an_element_that_ends_meanwhile_leaves_its_node_in_its_hole() -> None:
    world = World()
    world.turn()
    world.turn()
    (job,) = world.slurm.elements(RUNNING)
    holes = Spans(world.history, "holes").open()
    world.turn(lambda: world.slurm.end(job, HELD))
    assert Spans(world.history, "holes").open() == holes
    world.turn()
    world.turn()
    assert world.slurm.elements(RUNNING)


def test_a_job_that_nobody_may_see_ends_the_hole_of_its_node() -> None:
    world = World()
    world.turn()
    (job,) = world.slurm.elements(RUNNING)
    (other,) = set(NODES) - {job.node}
    world.slurm.private = {other}
    world.turn()
    assert Spans(world.history, "holes").open().keys() == {job.node}
    world.slurm.private = set()
    world.turn()
    assert Spans(world.history, "holes").open().keys() == set(NODES)
