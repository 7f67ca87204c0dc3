"""Which GPUs of shared nodes ordinary jobs are to find free when Slurm's next pass begins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bftrainer_slurm.controller.decide.available import wanted
from bftrainer_slurm.controller.decide.claims import Wanted
from bftrainer_slurm.controller.decide.parts import Room, offered
from bftrainer_slurm.controller.observe.schedule import BackfillForecast
from bftrainer_slurm.controller.observe.shared_nodes import SharedNode
from bftrainer_slurm.controller.state.phases import ElementRecord, Phase
from bftrainer_slurm.controller.state.picture import Picture
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import Demands, Element, ElementId, ElementState, Reservation, WaitingJob
from tests.controller.worlds import NOW_S, node, picture, snapshot, state_of, view_of
from tests.controller.worlds import trainer as a_trainer

GPUS = 8
PARTITIONS = frozenset({"main", "bftrainer"})
NAMES = ("n1", "n2", "n3")
NODES = tuple(replace(node(name), partitions=PARTITIONS) for name in NAMES)


def trainer(array: int, gpus: int, *nodes: str, **known: object) -> TrainerView:
    """A trainer that has so many GPUs of each of these nodes; 0: they are whole."""
    elements = tuple(
        Element(ElementId(array, task), ElementState.RUNNING, name, gpus=gpus)
        for task, name in enumerate(nodes)
    )
    plain = replace(a_trainer(*elements), array=array, demands=Demands(gpus=gpus))
    return view_of(plain, replace(state_of(plain), **known))  # type: ignore[arg-type]


def job(job_id: int, gpus: int, nodes: int = 1, **changes: object) -> WaitingJob:
    return replace(WaitingJob(job_id, "main", nodes, gpus=gpus), **changes)  # type: ignore[arg-type]


def seen(
    jobs: Sequence[WaitingJob],
    *views: TrainerView,
    busy: Mapping[str, int] | None = None,
    reservations: tuple[Reservation, ...] = (),
) -> Picture:
    """Nodes of which ordinary jobs have so many GPUs (``busy``)."""
    others = Counter(busy or {})
    plain = snapshot(NODES, waiting=tuple(jobs), ordinary_nodes=frozenset(+others))
    shared = {name: SharedNode(GPUS, GPUS - others[name], 99, 1e9) for name in NAMES}
    of = replace(plain, share=True, shared=shared, reservations=reservations)
    return picture(*views, of=of, forecast=BackfillForecast())


def asked(jobs: Sequence[WaitingJob], *views: TrainerView, **more: object) -> Wanted:
    return wanted(seen(jobs, *views, **more))  # type: ignore[arg-type]


def test_a_job_gets_the_gpus_that_are_free_on_the_first_node() -> None:
    found = asked([job(1, 2)], trainer(5, 4, "n1"), busy={"n1": 2})
    assert found == Wanted(gpus={"n1": 2})


def test_an_element_leaves_for_what_is_missing() -> None:
    found = asked([job(1, 2)], trainer(5, 4, "n1"), trainer(6, 1, "n1"), busy={"n1": 3})
    assert (found.gpus, found.elements) == ({"n1": 2}, {ElementId(5, 0)})


def test_the_smallest_that_alone_gives_enough_leaves_else_the_largest_first() -> None:
    mine = trainer(5, 4, "n1"), trainer(6, 2, "n1"), trainer(7, 1, "n1"), trainer(8, 1, "n1")
    left = {gpus: asked([job(1, gpus)], *mine).elements for gpus in (1, 2, 4, 5, 8)}
    assert {one.array for one in left[1]} == {7}
    assert {one.array for one in left[2]} == {6}
    assert {one.array for one in left[4]} == {5}
    assert {one.array for one in left[5]} == {5, 7}
    assert {one.array for one in left[8]} == {5, 6, 7, 8}


def test_of_equals_the_one_leaves_whose_trainer_has_most_to_spare() -> None:
    mine = trainer(5, 4, "n1"), trainer(6, 4, "n1", "n2")
    assert {one.array for one in asked([job(1, 4)], *mine).elements} == {6}


def test_trainers_do_not_scatter_ordinary_jobs() -> None:
    """Without trainers the first job would be on n1, and the second one would find n2 empty."""
    mine = trainer(5, 4, "n1"), trainer(6, 2, "n3")
    found = asked([job(1, 1), job(2, 8)], *mine, busy={"n1": 4, "n2": 0})
    assert (found.gpus, found.elements) == ({"n1": 1, "n2": 8}, {ElementId(5, 0)})
    assert found.idle == {"n2"}


def test_a_job_for_which_no_node_has_enough_gets_nothing() -> None:
    full = dict.fromkeys(NAMES, 6)
    assert asked([job(1, 4)], trainer(5, 2, *NAMES), busy=full) == Wanted()
    assert asked([job(1, 8, nodes=2)], trainer(5, 2, *NAMES), busy={"n1": 1, "n2": 1}) == Wanted()


def test_each_task_of_an_array_and_each_node_of_a_job_has_its_own() -> None:
    assert asked([job(1, 4, count=3)]).gpus == {"n1": 8, "n2": 4}
    assert asked([job(1, 4, nodes=2)]).gpus == {"n1": 4, "n2": 4}


def test_a_job_that_may_need_whole_nodes_gets_those_without_ordinary_jobs() -> None:
    found = asked([job(1, 0)], trainer(5, 2, "n2"), busy={"n1": 1})
    assert (found.gpus, found.elements) == ({"n2": 8}, {ElementId(5, 0)})
    alone = trainer(5, 0, "n2")
    assert asked([job(1, 1)], alone, busy={"n1": 8}).elements == {ElementId(5, 0)}


def test_who_leaves_already_is_not_told_twice() -> None:
    leaving = trainer(5, 8, "n1", elements={0: ElementRecord(Phase.LEAVING, NOW_S, "n1")})
    assert asked([job(1, 8)], leaving) == Wanted(frozenset({"n1"}), gpus={"n1": 8})


def test_nobody_reaches_into_a_planned_start_of_whole_nodes_or_a_reservation() -> None:
    first = job(1, 8, 3, priority=9, expected_start_s=NOW_S + 600, expected_nodes=NAMES)
    busy = {"n1": 1}
    assert asked([first, job(2, 1, minutes=5)], busy=busy).gpus == {"n1": 1}
    assert asked([first, job(2, 1, minutes=20)], busy=busy) == Wanted()
    soon = Reservation("maintenance", NOW_S + 600, NOW_S + 9000, NAMES)
    assert asked([job(2, 1, minutes=20)], reservations=(soon,)) == Wanted()


def test_what_a_start_that_is_planned_in_a_moment_needs_is_freed() -> None:
    due = job(1, 4, expected_start_s=NOW_S + 3, expected_nodes=("n3",))
    full = {"n1": 8, "n2": 8, "n3": 6}
    assert asked([due], trainer(5, 2, "n3"), busy=full).elements == {ElementId(5, 0)}


def test_trainers_do_not_grow_into_what_is_kept() -> None:
    mine = trainer(5, 2, "n1")
    before = seen([], mine, busy={"n1": 4})
    kept = replace(before, kept_gpus={"n1": 2})
    plans = [offered(one, [mine], frozenset(), ()).get("n1") for one in (before, kept)]
    assert plans == [4, 2]
    other = trainer(6, 2, "n3")
    other = replace(other, placed={}, spare=(ElementId(6, 0),))
    rooms = [set(Room(one, ()).places(other, ["n1"])) for one in (before, kept)]
    assert rooms == [{"n1"}, set()]


def started(jobs: Sequence[WaitingJob], free: Mapping[str, int]) -> dict[int, tuple[str, ...]]:
    """Start jobs on the first nodes with enough free GPUs."""
    left, on = Counter(free), dict[int, tuple[str, ...]]()
    for one in jobs:
        fit = [name for name in NAMES if left[name] >= one.gpus][: one.nodes]
        if len(fit) == one.nodes:
            on[one.job_id] = tuple(fit)
            left.subtract(dict.fromkeys(fit, one.gpus))
    return on


@given(
    asks=st.lists(st.tuples(st.integers(1, GPUS), st.integers(1, 3)), max_size=5),
    busy=st.fixed_dictionaries({name: st.integers(0, GPUS) for name in NAMES}),
    sizes=st.lists(
        st.tuples(st.sampled_from([1, 2, 4]), st.sets(st.sampled_from(NAMES))), max_size=5
    ),
)
def test_jobs_start_where_they_would_without_trainers_and_nobody_leaves_in_vain(
    asks: list[tuple[int, int]], busy: dict[str, int], sizes: list[tuple[int, set[str]]]
) -> None:
    free = {name: GPUS - count for name, count in busy.items()}
    idle, views = Counter(free), list[TrainerView]()
    for array, (gpus, names) in enumerate(sizes, 20):
        on = sorted(name for name in names if idle[name] >= gpus)
        idle.subtract(dict.fromkeys(on, gpus))
        views += [trainer(array, gpus, *on)] * bool(on)
    jobs = [job(number, *ask) for number, ask in enumerate(asks, 1)]
    found = asked(jobs, *views, busy=busy)
    gone = Counter[str]()
    for view in views:
        for id_, place in view.running().items():
            gone[place.node] += view.trainer.demands.gpus if id_ in found.elements else 0
    assert started(jobs, idle + gone) == started(jobs, free)
    assert all(gone[name] == 0 or idle[name] < found.gpus[name] for name in NAMES)
    assert all(found.gpus.get(name, 0) <= idle[name] + gone[name] for name in NAMES)
