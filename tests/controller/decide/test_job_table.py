from __future__ import annotations

from dataclasses import replace

import hypothesis
import pytest
from hypothesis import strategies as st

from bftrainer_slurm.controller.decide.actions import Trim
from bftrainer_slurm.controller.decide.job_table import excess
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.trainer_state import TrainerState
from bftrainer_slurm.model import (
    Configuration,
    Demands,
    Element,
    ElementId,
    ElementState,
    Trainer,
)
from bftrainer_slurm.spec import TrainerRecord
from tests.controller.worlds import node, snapshot, view_of

SETTINGS = Settings(job_table_share=0.25)
HELD, RUNNING, CANCELLED = ElementState.HELD, ElementState.RUNNING, ElementState.CANCELLED


def trainer(
    array: int,
    size: int,
    least: int = 1,
    running: int = 0,
    cancelled: int = 0,
    user: str = "alice",
) -> Trainer:
    """A trainer, the older the lower its number; the first of its elements run."""
    states = [RUNNING] * running + [HELD] * (size - running) + [CANCELLED] * cancelled
    elements = tuple(Element(ElementId(array, task), state) for task, state in enumerate(states))
    record = TrainerRecord(least, len(states))
    return Trainer(array, "digits", user, "bftrainer", record, float(array), elements)


Given = tuple[list[Trim], dict[int, TrainerState]]


def given(
    trainers: list[Trainer], begun: int = 0, max_jobs: int | None = 400, nodes: int = 0
) -> Given:
    """What they give up; one of them has begun. The partition has so many nodes, 0: not known."""
    there = tuple(node(f"n{number}") for number in range(nodes))
    seen = replace(snapshot(there), configuration=Configuration(max_jobs=max_jobs))
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


BOB, CAROL = "bob", "carol"


@pytest.mark.parametrize(
    ("trainers", "after"),
    [
        pytest.param(
            [trainer(1, 40, 36), trainer(2, 40, 36), trainer(3, 40, 28), trainer(4, 30, user=BOB)],
            [40, 0, 0, 30],
            id="so much that the rest fits",
        ),
        pytest.param(
            [trainer(1, 30, user=BOB), trainer(2, 40, 36), trainer(3, 40, 30)],
            [30, 40, 0],
            id="the latest first",
        ),
        pytest.param(
            [trainer(1, 90, 36, running=4), trainer(2, 40, user=BOB)],
            [4, 40],
            id="of one that runs what is held",
        ),
        pytest.param([trainer(1, 40, 36)], [40], id="not where there is room"),
    ],
)
def test_what_can_never_start_goes_first(trainers: list[Trainer], after: list[int]) -> None:
    assert left(trainers, given(trainers, nodes=4)) == after


def test_a_trainer_that_asks_for_what_no_node_has_can_never_start() -> None:
    asking = replace(trainer(2, 30), demands=Demands(constraints=frozenset({"gpu"})))
    trainers = [asking, trainer(3, 80, user=BOB)]
    assert left(trainers, given(trainers, nodes=4)) == [0, 80]


@pytest.mark.parametrize(
    ("trainers", "after"),
    [
        pytest.param(
            [trainer(1, 90), trainer(2, 90), trainer(3, 30, user=BOB)],
            [35, 35, 30],
            id="who holds little keeps it",
        ),
        pytest.param(
            [trainer(1, 36, 36), trainer(2, 36, 36), trainer(3, 27, 27), trainer(4, 30, user=BOB)],
            [36, 0, 27, 30],
            id="whatever others cannot do without",
        ),
        pytest.param(
            [trainer(1, 36, 36, running=1), trainer(2, 60, 60), trainer(3, 30, 30, user=BOB)],
            [36, 0, 30],
            id="and is not refused",
        ),
        pytest.param(
            [trainer(1, 90), trainer(2, 90), trainer(3, 90, user=BOB)],
            [25, 25, 50],
            id="a user's share does not grow with his trainers",
        ),
        pytest.param(
            [trainer(1, 80, user=BOB), trainer(2, 80), trainer(3, 40, 36, user=CAROL)],
            [32, 32, 36],
            id="nobody is refused whose least size has room",
        ),
        pytest.param(
            [trainer(1, 40, 40), trainer(2, 40, 40), trainer(3, 16, 16), trainer(4, 52, user=BOB)],
            [40, 0, 16, 44],
            id="who has more already is refused more",
        ),
        pytest.param(
            [trainer(1, 80, 80), trainer(2, 80, 80, user=BOB)], [80, 0], id="one of two has room"
        ),
        pytest.param(
            [trainer(1, 99, running=99), trainer(2, 30, user=BOB)], [99, 30], id="what runs goes on"
        ),
    ],
)
def test_users_share_what_trainers_may_hold(trainers: list[Trainer], after: list[int]) -> None:
    assert left(trainers, given(trainers)) == after


def test_where_there_are_more_users_than_jobs_the_first_ones_keep_theirs() -> None:
    trainers = [trainer(number, 1, user=f"user{number}") for number in range(1, 121)]
    assert left(trainers, given(trainers)) == [1] * 100 + [0] * 20


TRAINERS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 90), st.integers(1, 90), st.integers(0, 9)),
    max_size=8,
)


@hypothesis.given(drawn=TRAINERS, nodes=st.sampled_from([0, 20]))
def test_whatever_others_submit_who_holds_no_more_than_a_fair_share_loses_nothing(
    drawn: list[tuple[str, int, int, int]], nodes: int
) -> None:
    trainers = [
        trainer(array, size, min(least, size), min(running, size), user=user)
        for array, (user, size, least, running) in enumerate(drawn, start=1)
    ]
    after = left(trainers, given(trainers, nodes=nodes))
    users = {user for user, *_ in drawn}
    for one, kept in zip(trainers, after, strict=True):
        can_start = nodes == 0 or one.record.min_nodes <= nodes
        theirs = sum(len(other.elements) for other in trainers if other.user == one.user)
        if can_start and theirs <= 100 // len(users):
            assert kept == len(one.elements)
        running = sum(part.state is RUNNING for part in one.elements)
        assert kept >= running
        assert kept >= one.record.min_nodes or kept == 0 or not can_start
    if not any(running for *_, running in drawn):
        assert sum(after) <= 100


def test_who_has_begun_is_not_refused_while_all_of_it_is_held() -> None:
    trainers = [trainer(1, 60, 60), trainer(2, 60, 60)]
    assert left(trainers, given(trainers, begun=2)) == [0, 60]


def test_the_tasks_with_the_highest_numbers_go_and_their_users_are_told_why() -> None:
    (trim,), _ = given([trainer(1, 102, running=1)])
    assert trim.elements == (ElementId(1, 100), ElementId(1, 101))
    assert trim.why == "trainers may hold 100 of slurmctld's 400 jobs (job_table_share)"


def test_where_the_size_of_the_table_is_not_known_nobody_gives_anything() -> None:
    assert given([trainer(1, 1000)], max_jobs=None) == ([], {})


def test_the_task_that_keeps_an_arrays_id_counts_and_stays() -> None:
    mine = replace(trainer(1, 80, 70), anchor=Element(ElementId(1, 80), HELD))
    trims, refused = given([mine], max_jobs=300)  # room for 75
    assert [id_.task for trim in trims for id_ in trim.elements] == [74, 75, 76, 77, 78, 79]
    assert not refused
    least = replace(mine, record=TrainerRecord(75, 80))
    assert given([least], max_jobs=300)[1].keys() == {1}  # 75 and that one have no room
