"""What the passes of Slurm's backfill scheduler tell: which jobs fit no idle nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest

from bftrainer_slurm.controller.observe.shared_nodes import SharedNode
from bftrainer_slurm.controller.observe.snapshot import NodeTable, Snapshot
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.cluster import ClusterState
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.passes import Fit, Passes
from bftrainer_slurm.controller.state.phases import Ended
from bftrainer_slurm.model import (
    BackfillPass,
    Configuration,
    ElementId,
    Memory,
    NodeState,
    Part,
    WaitingJob,
)
from tests.controller.worlds import NOW_S, cases, node, snapshot

NODES = tuple(node(f"n{number}", partition="main") for number in range(1, 5))
TRAINERS_TOO = tuple(node(one.name, partition="main bftrainer") for one in NODES)
FEW = frozenset({"n1"})
JOB = WaitingJob(7, "main", 2, submit_s=20.0)
ALL = frozenset({"n1", "n2", "n3", "n4"})


def seen(began_s: float | None, *jobs: WaitingJob, active: bool = False) -> Snapshot:
    """A look 11 s after a pass began."""
    last = None if began_s is None else BackfillPass(began_s, active)
    plain = replace(snapshot(NODES), time_s=11.0 if began_s is None else began_s + 11)
    queue = replace(plain.queue, waiting=jobs or (JOB,))
    configuration = Configuration(backfill_s=30.0)
    return replace(plain, queue=queue, last_pass=last, configuration=configuration)


def look(passes: Passes, one: Snapshot, idle: frozenset[str], now_s: float | None = None) -> None:
    """A look at a cluster where trainers have the other nodes, that jobs may have too."""
    one = replace(one, settings=Settings(partition="main"))
    passes.look(one, {name: one.room[name] for name in idle}, now_s or one.time_s)


def watched(*looks: tuple[Snapshot, frozenset[str]]) -> Passes:
    passes = Passes()
    for one, idle in looks:
        look(passes, one, idle)
    return passes


def left(*looks: tuple[Snapshot, frozenset[str]]) -> set[int]:
    return set(watched(*looks).forecast(30.0, NOW_S).left)


BETWEEN = replace(seen(10.0), time_s=48.0)  # a look that does not ask for the last pass
SHORTER, LIMITED = replace(JOB, minutes=5), replace(JOB, for_nodes=False)


@cases(
    "looks, jobs",
    one_that_a_pass_left_waiting_beside_enough=([(seen(10.0), ALL), (seen(40.0), ALL)], {7}),
    also_where_there_are_few_later=(
        [(seen(10.0), ALL), (seen(40.0), ALL), (seen(70.0), FEW)], {7}
    ),
    for_a_new_controller_one_that_was_there_before_the_last_pass=(
        [(seen(40.0, replace(JOB, submit_s=39.0)), ALL)], {7}
    ),
    not_one_that_came_after_it=([(seen(40.0, replace(JOB, submit_s=41.0)), ALL)], set()),
    not_before_the_pass_is_over=([(seen(10.0), ALL), (seen(40.0, active=True), ALL)], set()),
    but_then=([(seen(10.0), ALL), (seen(40.0, active=True), ALL), (seen(40.0), ALL)], {7}),
    not_where_few_were_there_before_the_pass=([(seen(10.0), FEW), (seen(40.0), ALL)], set()),
    not_where_few_were_there_after_it=([(seen(10.0), ALL), (seen(40.0), FEW)], set()),
    not_beside_those_freed_after_a_pass_that_is_heard_of_late=(
        [(seen(10.0), FEW), (BETWEEN, ALL), (seen(40.0), ALL)], set()
    ),
    beside_those_that_were_there_however_late_it_is_heard_of=(
        [(seen(10.0), ALL), (BETWEEN, ALL), (seen(40.0), ALL)], {7}
    ),
    not_where_the_pass_may_have_begun_before_the_job_came=(
        [(seen(10.0, WaitingJob(8, "main", 1)), ALL), (seen(40.0), ALL)], set()
    ),
    not_one_that_has_changed_it_is_another=(
        [(seen(10.0), ALL), (seen(40.0), ALL), (seen(40.0, SHORTER), ALL)], set()
    ),
    not_one_that_waits_for_something_else=(
        [(seen(10.0, LIMITED), ALL), (seen(40.0, LIMITED), ALL)], set()
    ),
)  # fmt: skip
def test_no_idle_nodes_fit(looks: list[tuple[Snapshot, frozenset[str]]], jobs: set[int]) -> None:
    assert left(*looks) == jobs


def test_nodes_that_slurm_could_have_woken_for_a_job_count_as_idle() -> None:
    state = ClusterState(History(":memory:"))
    asleep = NodeTable(replace(one, state=NodeState.POWERED_DOWN) for one in TRAINERS_TOO)
    for began_s in (10.0, 40.0):
        now = replace(seen(began_s), nodes=asleep)
        state.look(now, (), (), now.time_s)
    assert state.forecast(now, NOW_S).left == {7}


def test_trainers_leave_so_early_that_nine_in_ten_elements_have_ended_before_the_pass() -> None:
    state = ClusterState(History(":memory:"))

    def lead_s(*took_s: float) -> float:
        ends = [Ended(ElementId(5, 0), "n9", NOW_S, "shrank", took_s=one) for one in took_s]
        state.look(seen(10.0), (), ends, 21.0)
        return state.lead_s

    assert lead_s() == 3.0
    assert lead_s(*[6.0] * 19, 90.0) == 7.0
    assert lead_s(*[9.0] * 19) == 10.0


def test_a_pass_before_which_the_clock_was_set_back_tells_nothing_about_the_next_one() -> None:
    late = replace(seen(7211.0), time_s=11.0)
    none = watched((seen(None), ALL))
    assert watched((late, ALL)).forecast(30.0, 11.0) == none.forecast(30.0, 11.0)
    assert watched((late, ALL), (seen(40.0), ALL)).forecast(30.0, 51.0).due_s == 70.0


def test_it_is_tried_again_where_more_nodes_are_in_holes_than_any_pass_had() -> None:
    judged = (seen(10.0), ALL - {"n4"}), (seen(40.0), ALL - {"n4"})
    assert left(*judged) == {7}
    assert left(*judged, (seen(40.0), ALL)) == set()
    assert left(*judged, (seen(40.0), ALL), (seen(70.0), ALL)) == {7}


def test_a_job_that_waits_for_a_limit_in_between_is_no_new_one() -> None:
    looks = (seen(10.0), ALL), (seen(40.0), ALL), (seen(40.0, LIMITED), ALL), (seen(40.0), ALL)
    assert left(*looks) == {7}


def test_it_is_tried_again_where_a_larger_one_before_it_waits_no_more() -> None:
    large = WaitingJob(5, "main", 9, priority=JOB.priority + 1)
    judged = (seen(10.0, JOB, large), ALL), (seen(40.0, JOB, large), ALL)
    assert left(*judged) == {7}
    assert left(*judged, (seen(40.0), ALL)) == set()
    behind = replace(large, priority=JOB.priority - 1)
    judged = (seen(10.0, JOB, behind), ALL), (seen(40.0, JOB, behind), ALL)
    assert left(*judged, (seen(40.0), ALL)) == {7}


def test_of_many_that_could_be_tried_again_only_the_first_one_is() -> None:
    """Most of them wait for something else, and trainers would leave all nodes for nothing."""
    jobs = [replace(JOB, job_id=number, priority=-number) for number in range(10, 20)]
    judged = (seen(10.0, *jobs), ALL - {"n4"}), (seen(40.0, *jobs), ALL - {"n4"})
    assert set(range(10, 20)) - left(*judged, (seen(40.0, *jobs), ALL)) == {10}


def test_more_are_tried_again_where_those_before_have_started() -> None:
    jobs = [replace(JOB, job_id=number, priority=-number) for number in range(10, 20)]
    pools = [frozenset({"n1", "n2"}), ALL - {"n4"}, ALL]
    looks = [(seen(10.0, *jobs), pools[0]), (seen(40.0, *jobs), pools[0])]
    looks.append((seen(40.0, *jobs), pools[1]))  # 10 is tried

    def tried_next(still: list[WaitingJob]) -> set[int]:
        after = [*looks, (seen(70.0, *still), pools[1]), (seen(70.0, *still), pools[2])]
        return {job.job_id for job in still} - left(*after)

    assert tried_next(jobs[1:]) == {11, 12}
    assert tried_next(jobs) == {10}


def test_nodes_that_may_have_been_freed_while_slurm_was_asked_are_not_counted() -> None:
    passes = watched((seen(10.0), FEW))
    look(passes, replace(seen(10.0), time_s=39.0), ALL, 41.0)  # a slow answer
    look(passes, seen(40.0), ALL, 51.0)
    assert not passes.forecast(30.0, NOW_S).left


def test_the_next_pass_is_due_an_interval_after_the_last_one_began() -> None:
    found = watched((seen(NOW_S), ALL)).forecast(30.0, NOW_S + 1)
    assert (found.due_s, found.sure_s, found.then_s) == (NOW_S + 30, NOW_S + 30, NOW_S + 60)


def test_passes_that_are_not_looked_at_are_taken_to_come_as_ever() -> None:
    found = watched((seen(NOW_S), ALL)).forecast(30.0, NOW_S + 40)
    assert (found.due_s, found.sure_s) == (NOW_S + 60, NOW_S + 30)


def test_a_pass_that_takes_long_makes_the_next_one_later() -> None:
    looks = (seen(NOW_S - 45.0), ALL), (seen(NOW_S), ALL)
    assert watched(*looks).forecast(30.0, NOW_S + 1).due_s == NOW_S + 44


@pytest.mark.parametrize(
    ("began_s", "interval_s"),
    [
        pytest.param(None, 30.0, id="none was"),
        pytest.param(NOW_S - 3600, 30.0, id="the last one is long ago"),
        pytest.param(NOW_S, None, id="Slurm has no backfill"),
        pytest.param(NOW_S, 2.0, id="they come all the time"),
    ],
)
def test_otherwise_a_pass_may_come_at_any_moment(
    began_s: float | None, interval_s: float | None
) -> None:
    assert watched((seen(began_s), ALL)).forecast(interval_s, NOW_S).due_s == -math.inf


def test_then_it_comes_within_an_interval_of_the_last_job_that_came() -> None:
    new = replace(JOB, job_id=8, submit_s=NOW_S)
    found = watched((seen(None, JOB, new), ALL)).forecast(30.0, NOW_S + 1)
    assert NOW_S + 30 < found.until_s < NOW_S + 35


@pytest.mark.parametrize("interval_s", [2.0, None])
def test_where_passes_tell_nothing_a_new_job_is_the_main_schedulers_for_one_look(
    interval_s: float | None,
) -> None:
    new = replace(JOB, job_id=8)
    first, second = seen(None), replace(seen(None, JOB, new), time_s=NOW_S)
    found = watched((first, ALL), (second, ALL)).forecast(interval_s, second.time_s)
    assert found.left == {8}
    assert second.time_s < found.until_s < second.time_s + 5  # there is another look soon
    third = replace(second, time_s=NOW_S + 4)
    after = watched((first, ALL), (second, ALL), (third, ALL)).forecast(interval_s, third.time_s)
    assert after.left == frozenset()


def test_the_next_pass_is_asked_for_while_it_may_start_a_job() -> None:
    def asks(pool: frozenset[str], *looks: Snapshot) -> bool:
        return watched(*((one, pool) for one in looks)).forecast(30.0, 60.0).asks

    assert asks(ALL, seen(10.0))
    assert not asks(FEW, seen(10.0))  # too few
    assert not asks(ALL, seen(10.0), seen(40.0))  # it was judged
    assert not asks(ALL, seen(10.0, replace(JOB, for_nodes=False)))


PARTS = {"n1": Part(2, 9), "n2": Part(1, 9)}  # free: two GPUs of n1, one of n2


def left_of_parts(gpus: int, *looks: tuple[float, Mapping[str, Part]], cpus: int = 0) -> set[int]:
    passes, job = Passes(), replace(JOB, nodes=1, gpus=gpus, cpus=cpus)
    for number, (began_s, parts) in enumerate(looks):
        shared = {name: SharedNode(8, part, part) for name, part in parts.items()}
        one = replace(seen(began_s, job), time_s=began_s + 11 + number, shared=shared)
        look(passes, one, frozenset(parts))
    return set(passes.forecast(30.0, NOW_S).left)


def test_a_job_that_a_pass_left_waiting_beside_enough_gpus_of_a_node_does_not_fit() -> None:
    assert left_of_parts(2, (10.0, PARTS), (40.0, PARTS)) == {7}
    assert left_of_parts(3, (10.0, PARTS), (40.0, PARTS)) == set()
    less = PARTS | {"n1": Part(1, 9)}  # the other one is free only since then
    assert left_of_parts(2, (10.0, less), (40.0, PARTS)) == set()


def test_a_job_that_waits_for_memory_of_ordinary_jobs_was_not_left_by_a_pass() -> None:
    """Else trainers would not leave for it once the memory is free."""
    asks = replace(JOB, nodes=1, cpus=2, memory=Memory(cpu_mb=500.0))

    def left_beside(free_mb: float, *, counts: bool = True) -> set[int]:
        passes = Passes()
        for began_s in (10.0, 40.0):
            shared = {"n1": SharedNode(0, Part(0, 2, free_mb), Part(0, 2))}
            configuration = Configuration(counts_memory=counts, backfill_s=30.0)
            one = replace(seen(began_s, asks), shared=shared, configuration=configuration)
            look(passes, one, frozenset({"n1"}))
        return set(passes.forecast(30.0, NOW_S).left)

    assert left_beside(1000.0) == {7}
    assert left_beside(999.0) == set()
    assert left_beside(999.0, counts=False) == {7}


def test_it_is_tried_again_where_more_nodes_have_as_many_gpus() -> None:
    judged = (10.0, PARTS), (40.0, PARTS)
    assert left_of_parts(2, *judged, (40.0, PARTS | {"n3": Part(1, 9)})) == {7}
    assert left_of_parts(2, *judged, (40.0, PARTS | {"n2": Part(2, 9)})) == set()


def test_a_job_of_processors_fits_where_as_many_are_free() -> None:
    free = {"n1": Part(0, 4), "n2": Part(0, 1)}
    fits = {cpus: left_of_parts(0, (10.0, free), (40.0, free), cpus=cpus) for cpus in range(1, 6)}
    assert fits == {1: {7}, 2: {7}, 3: {7}, 4: {7}, 5: set()}


def test_a_node_fits_by_partition_features_and_what_the_user_excludes() -> None:
    fast = replace(node("n1", partition="main"), features=frozenset({"fast"}))
    nodes = (fast, node("n2", partition="main"), node("n3", partition="other"))
    fit = Fit(snapshot(nodes), dict.fromkeys(("n1", "n2", "n3"), Part(1, 1)))
    assert fit.nodes_for(JOB) == ("n1", "n2")
    assert fit.nodes_for(replace(JOB, partition="main,other")) == ("n1", "n2", "n3")
    assert fit.nodes_for(replace(JOB, constraint="fast")) == ("n1",)
    assert fit.nodes_for(replace(JOB, excluded=frozenset({"n1"}))) == ("n2",)


def test_a_constraint_on_several_nodes_together_rules_no_node_out() -> None:
    fit = Fit(snapshot(NODES), dict.fromkeys(ALL, Part(1, 1)))
    assert fit.nodes_for(replace(JOB, constraint="[rack1|rack2]")) == tuple(sorted(ALL))


def test_nodes_come_as_slurm_takes_them_by_weight() -> None:
    nodes = (replace(NODES[0], weight=9), *NODES[1:])
    fit = Fit(snapshot(nodes), dict.fromkeys(ALL, Part(1, 1)))
    assert fit.nodes_for(JOB) == ("n2", "n3", "n4", "n1")
