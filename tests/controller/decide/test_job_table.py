from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer_slurm.controller.decide.actions import Trim
from bftrainer_slurm.controller.decide.job_table import excess
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.trainer_state import TrainerState
from bftrainer_slurm.model import Configuration, Element, ElementId, ElementState, Trainer
from bftrainer_slurm.spec import TrainerRecord
from tests.controller.worlds import snapshot, view_of

SETTINGS = Settings(job_table_share=0.25)
HELD, RUNNING, CANCELLED = ElementState.HELD, ElementState.RUNNING, ElementState.CANCELLED


def trainer(array: int, size: int, least: int = 1, running: int = 0, cancelled: int = 0) -> Trainer:
    """A trainer, the older the lower its number; the first of its elements run."""
    states = [RUNNING] * running + [HELD] * (size - running) + [CANCELLED] * cancelled
    elements = tuple(Element(ElementId(array, task), state) for task, state in enumerate(states))
    record = TrainerRecord(least, len(states))
    return Trainer(array, "digits", "alice", "bftrainer", record, float(array), elements)


Given = tuple[list[Trim], dict[int, TrainerState]]


def given(trainers: list[Trainer], begun: int = 0, max_jobs: int | None = 400) -> Given:
    """What they give up; one of them has begun."""
    seen = replace(snapshot(), configuration=Configuration(max_jobs=max_jobs))
    return excess(map(view_of, trainers), seen, SETTINGS, lambda array: array == begun)


def left(trainers: list[Trainer], more: Given) -> list[int]:
    """How many jobs each of them is afterwards."""
    trims, refused = more
    assert all("of slurmctld's 400 jobs" in (state.over or "") for state in refused.values())
    trimmed = {id_ for trim in trims for id_ in trim.elements}
    return [
        0
        if one.array in refused
        else sum(not part.state.over and part.id not in trimmed for part in one.elements)
        for one in trainers
    ]


@pytest.mark.parametrize(
    ("trainers", "after"),
    [
        pytest.param([trainer(1, 60), trainer(2, 40)], [60, 40], id="all have room"),
        pytest.param([trainer(1, 80), trainer(2, 40)], [60, 40], id="the largest gives"),
        pytest.param([trainer(1, 80), trainer(2, 90)], [50, 50], id="down to one size for all"),
        pytest.param([trainer(1, 80, 70), trainer(2, 90)], [70, 30], id="not below the least size"),
        pytest.param(
            [trainer(1, 99, running=70), trainer(2, 90)], [70, 30], id="only what is held"
        ),
        pytest.param(
            [trainer(1, 60, 60), trainer(2, 60, 60), trainer(3, 30)],
            [60, 0, 30],
            id="the last goes",
        ),
        pytest.param(
            [trainer(1, 60, 60), trainer(2, 60, 60, running=60)],
            [0, 60],
            id="unless something of it runs",
        ),
        pytest.param(
            [trainer(1, 60, cancelled=60), trainer(2, 40)], [60, 40], id="what is over is forgotten"
        ),
        pytest.param([trainer(1, 120, running=120)], [120], id="what runs goes on"),
        pytest.param([], [], id="nobody"),
    ],
)
def test_what_trainers_keep_of_a_hundred_jobs(trainers: list[Trainer], after: list[int]) -> None:
    assert left(trainers, given(trainers)) == after


def test_who_has_begun_is_not_refused_while_all_of_it_is_held() -> None:
    trainers = [trainer(1, 60, 60), trainer(2, 60, 60)]
    assert left(trainers, given(trainers, begun=2)) == [0, 60]


def test_the_tasks_with_the_highest_numbers_go_and_their_users_are_told_why() -> None:
    (trim,), _ = given([trainer(1, 102, running=1)])
    assert trim.elements == (ElementId(1, 100), ElementId(1, 101))
    assert trim.why == "trainers may hold 100 of slurmctld's 400 jobs (job_table_share)"


def test_where_the_size_of_the_table_is_not_known_nobody_gives_anything() -> None:
    assert given([trainer(1, 1000)], max_jobs=None) == ([], {})
