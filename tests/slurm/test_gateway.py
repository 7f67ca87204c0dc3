"""What the gateways promise, on a real cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pytest

from bftrainer_slurm.model import (
    Configuration,
    Element,
    ElementId,
    ElementState,
    Node,
    NodeState,
    Queue,
    Resources,
    TimeLimit,
    Trainer,
)
from bftrainer_slurm.slurm.commands import CommandGateway
from bftrainer_slurm.slurm.gateway import GatewayError, RefusedError
from bftrainer_slurm.slurm.run import SlurmRunner
from bftrainer_slurm.spec import format_comment
from scripts.labcluster.waiting import wait_until
from tests.slurm.conftest import Bench, ordinary

pytestmark = pytest.mark.slurm
# The gateways differ in how they read nodes, queue and reservations; all else is one and the same.
acts = pytest.mark.parametrize("gateway", ["look"], indirect=True)
needs_users = pytest.mark.skipif(os.getuid() != 0, reason="needs root, for several users")


def test_nodes_come_in_slurmctlds_order_with_what_they_have(bench: Bench) -> None:
    bench.lab.run("scontrol", "update", "NodeName=n3", "Weight=7", user="root")
    try:
        nodes = bench.gateway.nodes()
    finally:
        bench.lab.run("scontrol", "update", "NodeName=n3", "Weight=1", user="root")
    weights = [(node.name, node.weight) for node in nodes]
    assert weights == [(f"n{number}", 7 if number == 3 else 1) for number in range(1, 9)]
    assert {node.state for node in nodes} == {NodeState.IDLE}
    assert {node.partitions for node in nodes} == {frozenset({"main", "bftrainer"})}
    resources = None if bench.gateway.name == "pyslurm" else Resources(1, 2)
    assert {node.resources for node in nodes} == {resources}


def test_what_has_not_changed_is_the_very_same_object(bench: Bench) -> None:
    array, other = bench.submit(), bench.submit()
    before = bench.trainer(array)
    nodes = bench.gateway.nodes()
    bench.lab.run("scontrol", "update", f"JobId={other}_1", "TimeLimit=5", user="root")
    assert bench.trainer(array) is before
    wait_until(lambda: bench.gateway.nodes() is bench.gateway.nodes())
    assert bench.gateway.nodes() == nodes


def test_a_trainer_comes_with_what_it_asks_of_a_node(bench: Bench) -> None:
    if bench.gateway.name == "pyslurm":
        pytest.skip("it tells no resources")
    large = bench.submit(mem="4000", cpus_per_task="3")
    assert bench.trainer(large).demands.resources == Resources(4000, 3)
    small = bench.submit(mem_per_cpu="1")
    bench.run_on(small, 0, "n1")
    asks = bench.trainer(small).demands.resources
    assert (asks.memory_mb, asks.cpus) == (1, 1)
    if bench.gateway.name == "look":  # squeue does not say that it is for each processor
        assert asks.cpu_memory_mb == 1


def test_a_reservation_is_read_and_its_idle_nodes_are_unavailable(bench: Bench) -> None:
    start = time.time() + 3600
    make = ("scontrol", "create", "reservation", "Users=root", "Duration=10")
    later = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(start))
    bench.lab.run(*make, "Reservation=later", f"Start={later}", "Nodes=n[2-3]", user="root")
    bench.lab.run(*make, "Reservation=now", "Start=now", "Nodes=n8", user="root")
    try:
        found = {item.name: item for item in bench.gateway.reservations()}
        assert found["later"].nodes == ("n2", "n3")
        assert found["later"].start_s == int(start)
        assert found["later"].end_s == int(start) + 600
        assert found["now"].nodes == ("n8",)
        wait_until(lambda: bench.node("n8").state is NodeState.UNAVAILABLE)
        assert bench.node("n2").state is NodeState.IDLE
    finally:
        for name in ("later", "now"):
            bench.lab.run("scontrol", "delete", f"Reservation={name}", user="root")
    assert bench.gateway.reservations() == ()


def test_all_elements_of_a_long_list_are_seen(bench: Bench) -> None:
    array = bench.submit(64)
    some = ",".join(str(task) for task in range(64) if task % 5 in (0, 3))
    bench.lab.run("scontrol", "update", f"JobId={array}_[{some}]", "TimeLimit=5")
    assert [element.id.task for element in bench.trainer(array).elements] == list(range(64))


def test_a_submitted_trainer_has_its_record_and_held_elements(bench: Bench) -> None:
    record = "bftrainer:min=2,max=4,weight=3,grace=5,minutes=60"
    trainer = bench.trainer(bench.submit(4, comment=record, begin="now+1hour"))
    assert {element.state for element in trainer.elements} == {ElementState.HELD}
    assert [element.id.task for element in trainer.elements] == [0, 1, 2, 3]
    assert format_comment(trainer.record) == record
    assert (trainer.name, trainer.partition) == ("sbatch", "bftrainer")
    assert trainer.user == bench.lab.run("id", "-un").stdout.strip()
    assert abs(trainer.submit_s - time.time()) < 600
    assert abs(trainer.demands.begin_s - time.time() - 3600) < 600


@acts
def test_grow_can_ask_for_a_time_limit(bench: Bench) -> None:
    # The node is taken: a start by backfill, which shortens limits, would come before our look.
    ordinary(bench, "--nodelist=n1")
    wait_until(lambda: bench.gateway.queue().ordinary_nodes == {"n1"})
    array = bench.submit(time="5")
    bench.grow(array, (0, "n1"), limit=TimeLimit(minutes=90, least=20))
    limits = bench.lab.squeue(array, "%K %l")
    assert "0 1:30:00" in limits
    assert "1 5:00" in limits
    shown = bench.lab.run("scontrol", "show", "job", f"{array}_0").stdout
    assert "TimeMin=00:20:00" in shown


@acts
def test_shrink_holds_elements_that_can_grow_elsewhere_but_not_what_its_owner_has_just_cancelled(
    bench: Bench,
) -> None:
    array = bench.submit()
    for task, node in ((0, "n1"), (1, "n2"), (2, "n3")):
        bench.run_on(array, task, node)
    bench.lab.run("scancel", f"{array}_0", user="root")
    bench.gateway.shrink([ElementId(array, 0), ElementId(array, 2)])
    bench.wait_for(array, ElementState.HELD, 2)
    bench.wait_for(array, ElementState.CANCELLED, 0)
    assert bench.state(array, 1) is ElementState.RUNNING
    bench.run_on(array, 2, "n7")


@acts
def test_revive_brings_back_elements_that_have_ended(bench: Bench) -> None:
    array = bench.submit(script="exit $SLURM_ARRAY_TASK_ID")
    bench.grow(array, (0, "n1"), (3, "n2"))
    bench.wait_for(array, ElementState.COMPLETED, 0)
    bench.wait_for(array, ElementState.FAILED, 3)
    bench.gateway.revive([ElementId(array, 0), ElementId(array, 3)])
    bench.wait_for(array, ElementState.HELD, 0, 3)


@acts
@needs_users
def test_an_owner_can_release_what_the_controller_has_held(bench: Bench) -> None:
    array = bench.submit(user="alice")
    bench.run_on(array, 0, "n1")
    bench.shrink(array, 0)
    ordinary(bench, "--nodelist=n2")
    wait_until(lambda: bench.gateway.queue().ordinary_nodes == {"n2"})
    bench.grow(array, (1, "n2"))
    bench.gateway.hold([ElementId(array, 1)])
    assert bench.state(array, 1) is ElementState.HELD
    for task in (0, 1):
        bench.lab.run("scontrol", "release", f"{array}_{task}", user="alice")
        assert bench.state(array, task) is not ElementState.HELD


@acts
def test_what_an_element_is_told_is_in_its_output(bench: Bench) -> None:
    output = bench.lab.home("alice") / "told.out"
    array = bench.submit(output=str(output), script="echo begun; sleep 600")
    bench.run_on(array, 1, "n2")
    # Before that Slurm has nobody to tell it to.
    wait_until(lambda: output.exists() and "begun\n" in output.read_text())
    bench.gateway.tell(ElementId(array, 1), "bftrainer: it's a word; $HOME")
    wait_until(lambda: "bftrainer: it's a word; $HOME\n" in output.read_text())
    bench.gateway.cancel(array)
    bench.wait_for(array, ElementState.CANCELLED, 1)
    with pytest.raises(RefusedError):
        bench.gateway.tell(ElementId(array, 1), "too late")


@acts
def test_a_comment_that_its_user_has_replaced_can_be_written_again(bench: Bench) -> None:
    array = bench.submit()
    bench.run_on(array, 1, "n2")
    before = bench.trainer(array)
    bench.lab.run("scontrol", "update", f"JobId={array}", "Comment=project-x", user="alice")
    changed = bench.trainer(array)
    assert (changed.record, changed.overwritten) == (before.record, True)
    assert len(changed.elements) == len(before.elements)
    live = [one.id for one in changed.elements if not one.state.over]
    bench.gateway.label(live, format_comment(changed.record))
    assert bench.trainer(array) == before


@acts
def test_slurm_says_how_it_is_configured_and_what_does_not_come_before_trainers(
    bench: Bench,
) -> None:
    def update(partition: str, change: str) -> Configuration:
        words = (f"PartitionName={partition}", change)
        bench.lab.run("scontrol", "update", *words, user="root")
        return bench.gateway.configuration("bftrainer")

    backfill_s = 2.0  # scripts.labcluster.lab
    assert update("bftrainer", "MaxTime=1-2") == Configuration(26 * 60, backfill_s)
    assert update("bftrainer", "MaxTime=UNLIMITED") == Configuration(None, backfill_s)
    assert update("main", "PriorityTier=0").behind == ("main",)
    assert update("main", "PriorityTier=10").behind == ()
    with pytest.raises(GatewayError):
        bench.gateway.configuration("nowhere")


def test_a_waiting_job_comes_with_slurms_forecast(bench: Bench) -> None:
    ordinary(bench, "--nodelist=n1")
    waiting = ordinary(bench, "--nodelist=n[1-2]", "--nodes=2")
    bench.lab.sbatch("--hold", "--partition=main", script="#!/bin/sh\ntrue\n")  # no, it is held

    wait_until(lambda: any(one.expected_start_s for one in bench.gateway.queue().waiting))
    (job,) = bench.gateway.queue().waiting
    assert (job.job_id, job.partition, job.nodes) == (waiting, "main", 2)
    assert sorted(job.expected_nodes) == ["n1", "n2"]
    assert (job.minutes, job.count, job.for_nodes) == (5, 1, True)
    assert job.expected_start_s is not None
    assert 0 < job.expected_start_s - time.time() < 3600


@acts
def test_a_pass_over_the_queue_is_seen(bench: Bench) -> None:
    ordinary(bench, "--nodelist=n1")
    began_s = time.time()
    ordinary(bench, "--nodelist=n1")

    def has_passed() -> bool:
        last = bench.gateway.last_pass()
        return last is not None and last.began_s > began_s and not last.active

    wait_until(has_passed)


HOSTILE = [
    "two\nlines",
    "x\nJobId=1 ArrayJobId=1 ArrayTaskId=0 JobName=forged",
    "bar|tab\tnull(null) N/A %i %k %all",
    "\x1b[31mred \x07 \u202e \u00fc",
    "'; scancel -u $USER; '",
]


@pytest.mark.newest
@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_user_writes_forges_nothing(bench: Bench, text: str) -> None:
    array = bench.submit(job_name=text)
    ordinary(bench, "--hold", f"--comment={text}", f"--job-name={text}")
    bad = bench.submit(comment=f"bftrainer:min=1,max=4,{text}", job_name=text)
    queue = bench.gateway.queue()
    held = [item for item in queue.trainers if item.elements[0].state is ElementState.HELD]
    assert [(trainer.array, trainer.name) for trainer in held] == [(array, text)]
    assert bad not in [trainer.array for trainer in queue.trainers]
    assert bad in queue.malformed


def test_bytes_that_are_no_text_forge_nothing(bench: Bench) -> None:
    array = bench.submit(job_name=os.fsdecode(b"\xff\xfe\n"))
    assert len(bench.trainer(array).elements) == 4


@acts
@needs_users
def test_another_users_elements_are_refused(bench: Bench, as_bob: SlurmRunner) -> None:
    array = bench.submit(user="alice")
    theirs = CommandGateway(as_bob)
    element = ElementId(array, 0)
    for request in (
        lambda: bench.grow(array, (0, "n1"), through=theirs),
        lambda: theirs.shrink([element]),
        lambda: theirs.revive([element]),
        lambda: theirs.hold([element]),
        lambda: theirs.end_at([element], time.time() + 300),
        lambda: theirs.trim([element]),
        lambda: theirs.cancel(array),
    ):
        with pytest.raises(RefusedError, match=r"Invalid user id|[Pp]ermission denied"):
            request()
    assert bench.state(array, 0) is ElementState.HELD


@acts
def test_what_is_not_there_is_named_in_a_refusal_and_the_rest_is_done(bench: Bench) -> None:
    array = bench.submit()
    with pytest.raises(RefusedError):
        bench.grow(array, (99, "n1"))
    one = [ElementId(array, 0)]
    nowhere = frozenset({"nowhere"})
    with pytest.raises(RefusedError, match="Invalid node name"):
        bench.gateway.grow(one, frozenset({"n1"}), nowhere, None, excluded=frozenset())
    with pytest.raises(RefusedError, match="pending"):
        bench.gateway.revive(one)
    bench.run_on(array, 0, "n1")
    with pytest.raises(RefusedError, match=r"_\[?9\]?: Invalid job id"):
        bench.gateway.shrink([*one, ElementId(array, 9)])
    bench.wait_for(array, ElementState.HELD, 0)


@acts
@pytest.mark.parametrize("reclaimed", [False, True], ids=["held", "reclaimed"])
def test_a_second_after_an_element_was_seen_to_have_left_a_node_it_starts_there_again(
    bench: Bench, reclaimed: bool
) -> None:
    """This is of Slurm.

    slurmd refuses a launch whose credential is not younger than the end of the last one, by the
    second (22.05, 24.11; from 26.05 on each run has a credential of its own). slurmctld then books
    a failure of the script: FAILED, NonZeroExitCode, exit status 1, begun and ended in the second
    of its requeue.
    """
    array = bench.submit(script="exec sleep 600")
    for _ in range(3):
        bench.run_on(array, 0, "n1")
        wait_until(lambda: time.time() % 1 < 0.1)  # a new second
        if not reclaimed:
            bench.shrink(array, 0)
            time.sleep(1)
            continue
        job = ordinary(bench, "--nodelist=n1")
        bench.wait_for(array, ElementState.DELAYED, 0)
        time.sleep(1)
        bench.lab.run("scancel", str(job), user="root")
        wait_until(lambda: not bench.gateway.queue().ordinary_nodes)
    bench.run_on(array, 0, "n1")


def known_to(gateway: CommandGateway, queue: Queue) -> Queue:
    """squeue tells no exit statuses, pyslurm neither resources nor dependencies."""
    less = gateway.name == "pyslurm"

    def element(one: Element) -> Element:
        return replace(one, exit_status=None, cpus=0 if less else one.cpus)

    def trainer(one: Trainer) -> Trainer:
        elements, anchor = tuple(map(element, one.elements)), one.anchor and element(one.anchor)
        demands = replace(one.demands, resources=Resources(), dependency="")
        demands = demands if less else one.demands
        return replace(one, elements=elements, anchor=anchor, demands=demands)

    behind = {} if less else queue.behind
    return replace(queue, trainers=tuple(map(trainer, queue.trainers)), behind=behind)


def test_all_gateways_say_the_same(bench: Bench) -> None:
    other = CommandGateway(SlurmRunner(environment=bench.lab.env))
    script = "case $SLURM_ARRAY_TASK_ID in 3) exit 3;; 4) exit 0;; *) sleep 600;; esac"
    array = bench.submit(6, script=script)
    for task, node in ((0, "n1"), (1, "n2"), (5, "n4")):
        bench.run_on(array, task, node)
    bench.grow(array, (3, "n3"), (4, "n5"))
    bench.lab.run("scontrol", "suspend", f"{array}_5", user="root")
    ordinary(bench, "--nodelist=n1")
    ordinary(bench, "--nodelist=n1")
    bench.wait_for(array, ElementState.DELAYED, 0)
    bench.wait_for(array, ElementState.FAILED, 3)
    bench.wait_for(array, ElementState.COMPLETED, 4)
    suspended = bench.element(array, 5)
    assert (suspended.state, suspended.node) == (ElementState.SUSPENDED, "n4")
    bench.grow(array, (2, "n1"))
    assert bench.state(array, 2) is ElementState.PENDING

    def told(gateway: CommandGateway) -> Queue:
        return known_to(bench.gateway, gateway.queue())

    with suppress(TimeoutError):
        wait_until(lambda: told(bench.gateway) == told(other), 60)
    assert told(bench.gateway) == told(other)
    untold = {"resources": None} if bench.gateway.name == "pyslurm" else {}

    def nodes() -> Sequence[Node]:
        return tuple(replace(node, **untold) for node in other.nodes())

    wait_until(lambda: bench.gateway.nodes() == nodes())
    assert bench.gateway.reservations() == other.reservations()
