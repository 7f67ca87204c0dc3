from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bftrainer_slurm.model import (
    Demands,
    ElementId,
    ElementState,
    Memory,
    Queue,
    Resources,
    Trainer,
    WaitingJob,
)
from bftrainer_slurm.slurm.nodelists import barred_list
from bftrainer_slurm.slurm.records import QueueReader, element_state
from bftrainer_slurm.slurm.rows import JobRow

TRAINER = JobRow(
    job_id=10,
    array=10,
    tasks="0-3",
    state="PENDING",
    reason="JobHeldUser",
    priority=0,
    submit_s=1000.0,
    start_s=None,
    end_s=None,
    nodes="",
    required_nodes="",
    scheduled_nodes="(null)",
    node_count=1,
    partition="bftrainer",
    user="alice",
    name="train.sh",
    comment="bftrainer:min=1,max=4",
)
ORDINARY = replace(
    TRAINER,
    job_id=20,
    array=20,
    tasks=None,
    reason="Priority",
    priority=5,
    node_count=2,
    partition="main",
    comment="",
)


def queue_of(*rows: JobRow) -> Queue:
    return QueueReader().read(rows)


def trainer_row(**changes: Any) -> JobRow:
    return replace(TRAINER, **changes)


def trainer_of(*rows: JobRow, share: bool = False) -> Trainer:
    (trainer,) = QueueReader(share).read(rows).trainers
    return trainer


def ordinary(**changes: Any) -> JobRow:
    return replace(ORDINARY, **changes)


def waiting_of(*rows: JobRow, share: bool = False) -> WaitingJob:
    (waiting,) = QueueReader(share).read(rows).waiting
    return waiting


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, ElementState.HELD),
        ({"reason": "JobHeldAdmin"}, ElementState.WITHHELD),
        # By Slurm itself, not by an operator.
        ({"reason": "JobHeldAdmin", "dependency": "afterok:9(failed)"}, ElementState.HELD),
        ({"reason": "job requeued in held state"}, ElementState.HELD),
        ({"reason": "launch failed requeued held"}, ElementState.HELD),
        ({"state": "SPECIAL_EXIT", "reason": "None"}, ElementState.HELD),
        ({"priority": 7, "reason": "None"}, ElementState.PENDING),
        ({"priority": 7, "reason": "Resources"}, ElementState.PENDING),
        ({"priority": 7, "reason": "BeginTime", "start_s": 9.0}, ElementState.DELAYED),
        ({"priority": 7, "reason": "None", "start_s": 9.0}, ElementState.DELAYED),
        (
            {"priority": 7, "reason": "None", "start_s": 9.0, "scheduled_nodes": "n1"},
            ElementState.PENDING,
        ),
        ({"state": "RUNNING", "priority": 7}, ElementState.RUNNING),
        ({"state": "SIGNALING", "nodes": "n1"}, ElementState.RUNNING),
        ({"state": "SIGNALING"}, ElementState.HELD),
        ({"state": "STOPPED", "nodes": "n1"}, ElementState.SUSPENDED),
        # It was requeued before its node answered that it is stopped.
        ({"state": "STOPPED"}, ElementState.HELD),
        ({"state": "STOPPED", "priority": 7, "reason": "Resources"}, ElementState.PENDING),
        ({"state": "CONFIGURING", "priority": 7}, ElementState.RUNNING),
        ({"state": "COMPLETING", "priority": 0}, ElementState.ENDING),
        ({"state": "COMPLETED"}, ElementState.COMPLETED),
        ({"state": "FAILED"}, ElementState.FAILED),
        ({"state": "TIMEOUT"}, ElementState.FAILED),
        ({"state": "NODE_FAIL"}, ElementState.LOST),
        ({"state": "CANCELLED"}, ElementState.CANCELLED),
        ({"state": "A_STATE_OF_NEXT_YEAR"}, ElementState.ENDING),
    ],
)
def test_says_where_an_element_stands(changes: dict[str, Any], state: ElementState) -> None:
    assert element_state(trainer_row(**changes)) is state


def test_puts_the_records_of_an_array_together() -> None:
    ran = {"state": "RUNNING", "nodes": "n3", "start_s": 50.0, "end_s": 110.0}
    ran |= {"submit_s": 2000.0}  # a requeue has made it younger
    trainer = trainer_of(trainer_row(tasks="1-3"), trainer_row(job_id=11, tasks="0", **ran))
    assert [element.id.task for element in trainer.elements] == [0, 1, 2, 3]
    first, second, *_ = trainer.elements
    assert (first.node, first.start_s, first.limit_end_s) == ("n3", 50.0, 110.0)
    assert (first.job_id, second.job_id, first.boots) == (11, None, False)
    assert (second.id, second.state) == (ElementId(10, 1), ElementState.HELD)
    assert (trainer.submit_s, trainer.user, trainer.record.max_nodes) == (1000.0, "alice", 4)


def test_a_pending_element_names_the_node_it_may_start_on() -> None:
    reason = "ReqNodeNotAvail, UnavailableNodes:n[3-4]"
    row = trainer_row(tasks="0", priority=7, reason=reason, required_nodes="n2", start_s=9.0)
    (element,) = trainer_of(row).elements
    assert (element.node, element.start_s, element.reason) == ("n2", None, "ReqNodeNotAvail")


def test_a_trainer_demands_what_any_of_its_elements_does_that_is_not_over() -> None:
    excluded = barred_list(frozenset({"n1", "n2"}), frozenset({"n4"}))  # as a grow writes it
    first = trainer_row(tasks="0", constraint="red", excluded_nodes=excluded, memory="1G")
    others = {"constraint": "big", "excluded_nodes": "n3", "licenses": "matlab:1", "qos": "long"}
    others |= {"reservation": "course", "memory": "4000M", "node_cpus": "3"}
    second = trainer_row(tasks="1-3", start_s=9000.0, **others)  # --begin
    assert trainer_of(first, second).demands == Demands(
        *(frozenset({"red", "big"}), frozenset({"n1", "n2", "n3"}), "matlab:1", "course"),
        *(Resources(4000, 3), "", 9000.0),
        qos="long",
    )
    over = trainer_row(tasks="0", state="CANCELLED", licenses="matlab:1")
    assert trainer_of(over, trainer_row(tasks="1-3")).demands == Demands()


RECORD = TRAINER.comment.partition(" ")[0]


def test_what_the_record_confines_a_trainer_to_is_demanded() -> None:
    row = trainer_row(comment=f"{RECORD},partitions=gpu:long,nodes=n[1-2:4]:m7 my own")
    assert trainer_of(row).demands == Demands(
        partitions=frozenset({"gpu", "long"}), nodes=frozenset({"n1", "n2", "n4", "m7"})
    )
    assert trainer_of(row).comment == "my own"


@pytest.mark.parametrize("nodes", ["n[1-999999999]", ":", "n[1-9999][1-9999]", "a[9-1]b[1-2]"])
def test_a_list_of_nodes_that_cannot_be_is_no_trainers(nodes: str) -> None:
    queue = queue_of(trainer_row(comment=f"{RECORD},nodes={nodes}"))
    assert queue.trainers == ()
    assert "its list of nodes must name" in queue.malformed[TRAINER.array]


@pytest.mark.parametrize(
    ("shared", "share", "shares"),
    [("NO", False, False), ("YES", False, True), ("OK", False, True), ("OK", True, False)],
    ids=["--exclusive", "--oversubscribe", "neither", "a part, as the site allows"],
)
def test_a_trainer_of_whole_nodes_whose_elements_would_share_them_is_known(
    shared: str, share: bool, shares: bool
) -> None:
    row = trainer_row(shared=shared, gres="gres:gpu:2")
    assert trainer_of(row, share=share).demands.shares is shares


@pytest.mark.parametrize(
    "changes",
    [
        {"comment": "bftrainer:"},
        {"comment": "bftrainer:min=4,max=2"},
        {"comment": "bftrainer:min=1,max=4\nbftrainer:min=1,max=4"},
        {"tasks": None},
        {"tasks": "0-3..."},
    ],
)
def test_counts_what_claims_to_be_a_trainer_and_is_not(changes: dict[str, Any]) -> None:
    queue = queue_of(trainer_row(state="RUNNING", nodes="n1", **changes))
    assert (queue.trainers, queue.malformed.keys()) == ((), {10})
    assert queue.ordinary_nodes == {"n1"}


def test_a_task_beyond_the_records_most_has_its_node_as_an_ordinary_job_has() -> None:
    beyond = trainer_row(job_id=11, tasks="5", state="RUNNING", nodes="n3")
    queue = queue_of(trainer_row(tasks="0-3"), beyond)
    assert [element.id.task for element in queue.trainers[0].elements] == [0, 1, 2, 3]
    assert (queue.malformed.keys(), queue.ordinary_nodes) == ({10}, {"n3"})


@pytest.mark.parametrize(
    "changes",
    [{"comment": "bftrainer:"}, {"tasks": None}, {"tasks": "9", "partition": "main"}],
    ids=["no record", "the cancelled rest of an array", "a task beyond its most"],
)
def test_what_is_over_is_no_malformed_trainer(changes: dict[str, Any]) -> None:
    over = trainer_row(job_id=11, array=11, state="CANCELLED", **changes)
    queue = queue_of(TRAINER, replace(over, array=10) if "partition" in changes else over)
    assert ([one.array for one in queue.trainers], queue.malformed) == ([10], {})


@pytest.mark.parametrize(("tasks", "anchored"), [("0-4", True), ("0-3", False), ("0-999999", True)])
def test_the_task_beyond_its_most_keeps_the_arrays_id_and_is_no_element(
    tasks: str, anchored: bool
) -> None:
    trainer = trainer_of(trainer_row(tasks=tasks))
    assert (trainer.anchor is not None and trainer.anchor.id == ElementId(10, 4)) == anchored
    assert [one.id.task for one in trainer.elements] == [0, 1, 2, 3]
    assert trainer_of(trainer_row(tasks=tasks, state="CANCELLED")).anchor is None


def test_elements_in_several_partitions_are_a_trainer_in_each() -> None:
    moved = trainer_row(job_id=11, tasks="0", state="RUNNING", nodes="n3", partition="main")
    both = trainer_row(job_id=12, tasks="1", partition="bftrainer,main")
    queue = queue_of(moved, both, trainer_row(tasks="2-3"))
    tasks = {one.partition: [element.id.task for element in one.elements] for one in queue.trainers}
    assert tasks == {"main": [0], "bftrainer,main": [1], "bftrainer": [2, 3]}
    assert (queue.malformed, queue.ordinary_nodes) == ({}, set())


@pytest.mark.parametrize("comment", ["", "mine", "bftrainer:", "bftrainer:min=3,max=1"])
def test_an_element_whose_comment_its_owner_has_changed_is_one_all_the_same(comment: str) -> None:
    changed = trainer_row(job_id=11, tasks="0", state="RUNNING", nodes="n3", comment=comment)
    anchor = trainer_row(job_id=12, tasks="4", comment=comment)
    queue = queue_of(changed, anchor, trainer_row(tasks="1-3"))
    (trainer,) = queue.trainers
    assert [element.id.task for element in trainer.elements] == [0, 1, 2, 3]
    assert trainer.anchor is not None and trainer.anchor.id == ElementId(10, 4)
    assert (trainer.record.max_nodes, queue.ordinary_nodes, queue.malformed) == (4, set(), {})


REPLACED = replace(TRAINER, comment="project-x")


def test_a_trainer_is_one_though_its_user_has_replaced_the_comment_of_all_elements() -> None:
    reader = QueueReader()
    (before,) = reader.read([TRAINER]).trainers
    for _ in range(2):
        (trainer,) = reader.read([REPLACED]).trainers
        assert trainer == replace(before, comment="project-x", overwritten=True)
    assert reader.read([TRAINER]).trainers == (before,)


@pytest.mark.parametrize(
    ("user", "met_s", "known"),
    [("alice", 1000.0, True), ("alice", 999.0, False), ("bob", 1000.0, False)],
    ids=["its own", "a later job of the same number", "another user's"],
)
def test_so_it_is_for_a_controller_that_was_away_meanwhile(
    user: str, met_s: float, known: bool
) -> None:
    reader, record = QueueReader(), trainer_of(TRAINER).record
    reader.remember({TRAINER.array: (user, record, met_s)})
    for _ in range(2):
        found = [one.record for one in reader.read([REPLACED]).trainers if one.overwritten]
        assert found == [record] * known


def test_a_record_that_cannot_be_understood_is_left_out_and_named() -> None:
    odd: Any = 7
    queue = queue_of(trainer_row(array=11, tasks=odd), TRAINER, ordinary(node_count="many"))
    assert [trainer.array for trainer in queue.trainers] == [10]
    assert queue.malformed.keys() == {11}


def test_what_has_not_changed_is_the_very_same_object() -> None:
    reader = QueueReader()
    other = replace(TRAINER, job_id=30, array=30)
    first = reader.read([TRAINER, other])
    grown = trainer_row(job_id=11, tasks="0", state="RUNNING", nodes="n3")
    forecast = replace(other, scheduled_nodes="n7")  # it says nothing of the trainer
    second = reader.read([grown, trainer_row(tasks="1-3"), forecast])
    assert second.trainers[0] is not first.trainers[0]
    assert second.trainers[1] is first.trainers[1]


@pytest.mark.parametrize(
    ("changes", "perhaps"),
    [
        ({}, True),
        ({"exit_status": None}, True),  # squeue does not tell
        ({"exit_status": 2}, False),
        ({"end_s": 53.0}, False),
        ({"submit_s": 45.0}, False),  # slurmd has forgotten the run before
        ({"state": "COMPLETED", "exit_status": 0}, False),
    ],
)
def test_a_failure_right_after_a_requeue_may_be_a_launch_that_was_refused(
    changes: dict[str, Any], perhaps: bool
) -> None:
    refused = {"state": "FAILED", "submit_s": 50.0, "start_s": 50.0, "end_s": 50.0}
    row = trainer_row(**{"tasks": "0", "exit_status": 1} | refused | changes)
    assert trainer_of(row).elements[0].perhaps_unlaunched is perhaps


@pytest.mark.parametrize(
    ("changes", "gpus", "cpus"),
    [
        ({}, 3, 1),
        ({"shared": "NO"}, 0, 0),  # --exclusive
        ({"gres": "cpu=4"}, 0, 1),
        ({"cpus": "9", "node_count": 2}, 3, 5),
        ({"cpus": "9", "node_count": 2, "node_cpus": "8"}, 3, 8),
        ({"gres_often": "1/2", "node_count": 2}, 2, 1),  # --gpus
        ({"gres_often": "4/2", "node_count": 2}, 6, 1),  # --gpus-per-task
        ({"gres_often": "2/1", "node_count": 2}, 6, 1),  # --gpus-per-socket
    ],
)
def test_a_waiting_job_says_what_it_takes_of_a_node_where_jobs_share_nodes(
    changes: dict[str, Any], gpus: int, cpus: int
) -> None:
    row = ordinary(**{"shared": "OK", "gres": "gres:gpu:a100:3", **changes})
    jobs = [waiting_of(row, share=share) for share in (True, False)]
    assert [(job.gpus, job.cpus) for job in jobs] == [(gpus, cpus), (0, 0)]


def test_of_running_jobs_it_is_known_too_and_of_waiting_ones_how_much_memory() -> None:
    row = ordinary(shared="OK", gres="gres:gpu:a100:3", cpus="6", node_memory="700/gpu")
    assert waiting_of(row, share=True).memory == Memory(gpu_mb=700)
    assert waiting_of(row).memory == Memory()
    runs = replace(row, state="RUNNING", nodes="n1", node_count=1, start_s=50.0)
    (share,), (whole,) = (QueueReader(one).read([runs]).ordinary_runs for one in (True, False))
    assert share.asks is not None and whole.asks is None
    assert (share.asks.gpus, share.asks.cpus, share.asks.nodes) == (3, 6, 1)


@pytest.mark.parametrize(
    ("memory", "asks"),
    [
        (("500/cpu", "500/cpu"), Memory(cpu_mb=500)),
        (("500/cpu", "900"), Memory(900, 500)),
        (("", ""), Memory(400)),
    ],
    ids=["all alike", "changed for one", "as squeue shows it"],
)
def test_an_element_with_a_part_of_a_node_asks_for_the_most_memory_that_any_of_them_does(
    memory: tuple[str, str], asks: Memory
) -> None:
    part = {"state": "PENDING", "shared": "OK", "gres": "gres:gpu:1", "memory": "400M"}
    rows = [trainer_row(tasks=str(at), node_memory=mb, **part) for at, mb in enumerate(memory)]
    rows.append(trainer_row(tasks="2", **part | {"state": "RUNNING"}, node_memory="999"))
    assert trainer_of(*rows, share=True).demands.memory == asks
    assert trainer_of(*rows).demands.memory == Memory()


@pytest.mark.parametrize(
    ("given", "cpus", "defaults"),
    [
        ("--", "1", (True, True)),
        ("c-", "1", (False, True)),
        ("-m", "4", (True, False)),
        ("", "1", (True, False)),  # squeue does not tell; one processor is the default
        ("", "2", (False, False)),
    ],
)
def test_what_its_user_did_not_give_follows_from_slurms_defaults(
    given: str, cpus: str, defaults: tuple[bool, bool]
) -> None:
    part = {"shared": "OK", "gres": "gres:gpu:1", "node_memory": "500/cpu"}
    part |= {"given": given, "node_cpus": cpus}
    demands = trainer_of(trainer_row(state="PENDING", **part), share=True).demands
    for one in (demands, waiting_of(ordinary(**part), share=True)):
        assert (one.default_cpus, one.memory.default) == defaults


def test_memory_is_what_a_running_element_has_and_a_waiting_one_has_none() -> None:
    waits = trainer_row(tasks="1", state="PENDING", shared="OK", node_memory="500/cpu")
    runs = trainer_row(tasks="0", state="RUNNING", nodes="n1", shared="OK", node_memory="1.5G")
    hidden = trainer_row(tasks="2", state="RUNNING", nodes="n2", shared="OK")
    trainer = trainer_of(waits, runs, hidden, share=True)
    assert [one.memory_mb for one in trainer.elements] == [1536, None, None]


def test_an_ordinary_job_waits_with_its_forecast() -> None:
    waiting = waiting_of(ordinary(start_s=77.0, scheduled_nodes="n[1-2]"))
    assert (waiting.job_id, waiting.nodes, waiting.partition) == (20, 2, "main")
    assert (waiting.expected_start_s, waiting.expected_nodes) == (77.0, ("n1", "n2"))


def test_a_job_that_does_not_wait_for_nodes_is_left_out() -> None:
    assert queue_of(ordinary(priority=0), ordinary(reason="Dependency")).waiting == ()


def test_the_pending_rest_of_an_ordinary_array_waits_once() -> None:
    waiting = waiting_of(*(ordinary(tasks=str(task)) for task in range(5)))
    assert waiting.count == 5
    assert waiting_of(ordinary(tasks="0-4")) == waiting


FOR_NODES = ("None", "Priority", "Resources", "Nodes required for job are DOWN")


@pytest.mark.parametrize("reason", [*FOR_NODES, "BeginTime", "QOSMaxCpuPerUserLimit", "Licenses"])
def test_a_waiting_job_says_whether_it_waits_for_nodes_alone(reason: str) -> None:
    assert waiting_of(ordinary(reason=reason)).for_nodes is (reason in FOR_NODES)


def test_a_waiting_job_has_a_time_limit_or_none() -> None:
    limits = {"90": 90, "1-00:00:00": 1440, "UNLIMITED": None, "": None, "PARTITION_LIMIT": None}
    assert {limit: waiting_of(ordinary(limit=limit)).minutes for limit in limits} == limits


def test_of_ordinary_jobs_it_is_known_where_they_run_and_when_they_began_and_ended() -> None:
    states = ("RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING", "COMPLETED", "FAILED")
    at = {"start_s": 5.0, "end_s": 9.0}
    rows = [
        ordinary(job_id=number, array=number, state=state, nodes=f"n{number}", **at)
        for number, state in enumerate(states)
    ]
    never_ran = (ordinary(job_id=98, array=98, state="CANCELLED", **at), ordinary(start_s=5.0))
    ours = trainer_row(tasks="0", state="COMPLETED", nodes="n8", **at)
    queue = queue_of(ours, replace(ours, tasks="1", state="RUNNING"), *rows, *never_ran)
    assert queue.ordinary_nodes == {"n0", "n1", "n2", "n3"}
    assert queue.ordinary_starts == {(number, 5.0) for number in range(6)}
    assert queue.ordinary_ends == (("n4", 9.0), ("n5", 9.0))


@pytest.mark.parametrize(
    ("on", "states", "waits"),
    [
        ("afterany:20", ("RUNNING",), True),
        ("afterany:20", ("COMPLETED",), False),
        ("afterany:20_1", ("RUNNING", "COMPLETED"), False),
        ("afterany:20_0", ("RUNNING", "COMPLETED"), True),
    ],
)
def test_a_trainer_is_behind_what_it_depends_on_until_that_has_ended(
    on: str, states: tuple[str, ...], waits: bool
) -> None:
    jobs = (
        ordinary(job_id=20 + at, state=one, tasks=str(at) if "_" in on else None)
        for at, one in enumerate(states)
    )
    behind = queue_of(trainer_row(dependency=f"{on}(unfulfilled)"), *jobs).behind
    assert behind == ({TRAINER.array: on} if waits else {})


def test_a_dependency_that_failed_for_one_element_failed_for_all() -> None:
    others = trainer_row(tasks="1-3", dependency="afterok:9(unfulfilled)")
    failed = trainer_row(job_id=11, tasks="0", dependency="afterok:9(failed)")
    assert queue_of(others, failed).behind == {TRAINER.array: "afterok:9(failed)"}


@pytest.mark.parametrize(
    ("changes", "known"),
    [
        *(({}, True), ({"comment": "account=x"}, True)),
        *(
            ({"reason": "JobHeldAdmin"}, False),
            ({"priority": 5}, False),
            ({"node_count": 2}, False),
        ),
        *(({"tasks": "1-4"}, False), ({"tasks": "0"}, False), ({"tasks": None}, False)),
        ({"comment": TRAINER.comment}, False),
    ],
)
def test_what_is_held_as_a_trainer_without_a_record_is_known(
    changes: dict[str, Any], known: bool
) -> None:
    row = trainer_row(**{"comment": ""} | changes)
    assert queue_of(row).bare == ({10: "bftrainer"} if known else {})
    each = [replace(row, tasks=str(task), job_id=10 + task) for task in range(3)]
    assert "tasks" in changes or queue_of(*each).bare == queue_of(row).bare
