"""Slurm takes a moment to be read, and what happens meanwhile is not misread."""

from __future__ import annotations

from collections.abc import Callable

from bftrainer_slurm.controller.state.cluster import Spans
from bftrainer_slurm.replay.slurm import HELD, RUNNING, Job
from tests.controller.setting import Setting
from tests.controller.worlds import ARRAY


class Moving(Setting):
    """A trainer of one element on two nodes, which are read at each look."""

    def __init__(self) -> None:
        super().__init__(2, ARRAY, most=1)

    def look(self, *meanwhile: Callable[[], object]) -> None:
        """``meanwhile`` happens between the first two readings, in whichever order they come."""
        self.slurm.meanwhile = [lambda: None, *meanwhile]
        self.turn(15)

    @property
    def job(self) -> Job:
        (running,) = self.slurm.elements(RUNNING)
        return running

    @property
    def holes(self) -> dict[str, float]:
        """Since when each node is in a hole."""
        return dict(Spans(self.history, "holes").open())


def test_an_element_that_starts_or_ends_meanwhile_leaves_its_node_in_its_hole() -> None:
    setting = Moving()
    setting.slurm.works = False
    setting.look()
    holes = setting.holes
    assert holes.keys() == {"n1", "n2"}
    setting.slurm.works = True
    setting.look(setting.slurm.schedule)
    assert (setting.job.id.array, setting.holes) == (ARRAY, holes)
    setting.look()
    assert setting.holes == holes
    setting.look(lambda: setting.slurm.end(setting.job, HELD))
    assert setting.holes == holes
    setting.look()
    setting.look()
    assert setting.job


def test_a_job_that_nobody_may_see_ends_the_hole_of_its_node() -> None:
    setting = Moving()
    setting.look()
    (other,) = {"n1", "n2"} - {setting.job.node}
    setting.slurm.private = {other}
    setting.look()
    assert setting.holes.keys() == {setting.job.node}
    setting.slurm.private = set()
    setting.look()
    assert setting.holes.keys() == {"n1", "n2"}
