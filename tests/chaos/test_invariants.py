from typing import Any

import pytest

from tests.chaos.invariants import left_behind, never_so, unsettled
from tests.chaos.made import (
    ARRAY,
    NOW_S,
    OLD,
    element,
    process,
    snapshot,
    status,
    trained,
    trainer,
    trainer_with,
)
from tests.chaos.observe import Part, drained_by_slurm, read_books

ELSEWHERE = element(0, "n3", array=99)
LOST = {"state": "given up", "why": "failed 5 times"}
STARTING = (element(0, "n1"), element(1, "n2"), element(2, "n3"))


def test_all_is_well() -> None:
    assert unsettled(snapshot()) == []
    assert never_so(snapshot()) == []


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ({"elements": None, "processes": ()}, "slurmctld does not answer"),
        ({"nodes": {"n1": "down*"}}, "node n1 is down*"),
        ({"nodes": {"n1": "idle*"}}, "node n1 is idle*"),
        ({"status": {}}, "no status is published"),
        ({"status": status("n1", "n2") | {"age_s": 60.0}}, "the status is 60 s old"),
        ({"status": status("n1", "n2", error="stopped")}, "the controller says: stopped"),
        ({"status": status("n1", "n2", history="history: full")}, "says: history: full"),
        ({"trainers": (trainer("n1", "n2", stepped_s=NOW_S - 60),)}, "not made a step for 60 s"),
        ({"trainers": (trainer(),)}, "has not made a step"),
        ({"trainers": (trainer("n1"),)}, "has elements on ['n1', 'n2'], and trains on ['n1']"),
        ({"elements": (element(0, "n1"), element(1, "n1"))}, "2 elements on n1"),
        ({"status": status("n1")}, "on ['n1', 'n2'], and the controller says ['n1']"),
        ({"status": status("n1", "n2", "n3")}, "and the controller says ['n1', 'n2', 'n3']"),
        (
            {"elements": (element(0, "n1"), element(1, "n2"), element(2, "", "PENDING"))},
            f"element {ARRAY}_2 waits unheld",
        ),
        (
            {"elements": (element(0, "n1"), element(1, "n2"), ELSEWHERE)},
            "element 99_0 of a trainer that is over is RUNNING",
        ),
        (
            {"processes": (process(5, 0, "n1"), process(7, 2, "n3"))},
            f"processes [7] of element {ARRAY}_2 are left on n3",
        ),
        (
            {"processes": (process(5, 0, "n1", "1"), process(7, 0, "n1", "2"))},
            f"element {ARRAY}_0 lives 2 times at once",
        ),
        (
            {"elements": tuple(element(task, f"n{task + 1}") for task in range(4))},
            "digits has 4 nodes, and wants 3 at most",
        ),
        ({"problems": ("ordinary job 5 is FAILED",)}, "ordinary job 5 is FAILED"),
        ({"status": status("n1", "n2", mine=LOST)}, "digits is given up: failed 5 times"),
    ],
)
def test_what_is_not_well_is_said(seen: dict[str, Any], words: str) -> None:
    assert any(words in said for said in unsettled(snapshot(**seen)))


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ({"elements": None}, ["slurmctld does not answer"]),
        ({"elements": (), "processes": ()}, []),
        (
            {"elements": (), "processes": (process(5, 0, "n1"),)},
            [f"processes [5] of element {ARRAY}_0 are left on n1"],
        ),
        (
            {"elements": (element(0, "n1", "COMPLETING"),), "processes": ()},
            [f"element {ARRAY}_0 of a trainer that is over is COMPLETING (None)"],
        ),
    ],
)
def test_what_is_left_of_cancelled_trainers_is_said(seen: dict[str, Any], said: list[str]) -> None:
    assert left_behind(snapshot(trainers=(), **seen)) == said


BESIDE = (element(0, "n1"), element(1, "n2"), element(0, "n1", array=99))


def test_where_jobs_share_nodes_trainers_do_too_with_one_element_each() -> None:
    assert never_so(snapshot(elements=BESIDE, memory_mb=4000)) == []
    twice = (*BESIDE, element(3, "n1", array=99))
    assert never_so(snapshot(elements=twice, memory_mb=4000)) == ["2 elements on n1"]


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (Part(8, "n1", ("core1", "gpu1"), 3000), []),
        (Part(8, "n2", ("core0", "gpu0"), 4000), []),
        (Part(8, "n1", ("core0", "gpu1"), 1000), ["jobs [7, 8] have core0 of n1"]),
        (Part(8, "n1", ("core1", "gpu0"), 1000), ["jobs [7, 8] have gpu0 of n1"]),
        (Part(8, "n1", (), 3500), ["jobs have 4500 MB of n1, which has 4000"]),
    ],
)
def test_nothing_of_a_node_is_given_twice(second: Part, said: list[str]) -> None:
    parts = (Part(7, "n1", ("core0", "gpu0"), 1000), second)
    assert never_so(snapshot(parts=parts, memory_mb=4000)) == said


def test_slurms_books_are_read_as_scontrol_shows_them() -> None:
    job = (
        "JobId={} JobName=x JobState={} Reason=None NodeList=n1 JOB_GRES=gpu:a100:3   Nodes={}  \n"
    )
    told = job.format(5, "RUNNING", "n1 CPU_IDs=0-1,4 Mem=1500 GRES=gpu:a100:3(IDX:0,2-3)")
    told += job.format(6, "RUNNING", "n[1-2] CPU_IDs=5 Mem=500 GRES=")
    told += job.format(7, "COMPLETED", "n1 CPU_IDs=0 Mem=500 GRES=gpu:a100:1(IDX:0)")
    assert read_books(told) == (
        Part(5, "n1", ("core0", "core1", "core4", "gpu0", "gpu2", "gpu3"), 1500),
        Part(6, "n1", ("core5",), 500),
        Part(6, "n2", ("core5",), 500),
    )


def test_an_element_that_starts_as_planned_is_no_leak() -> None:
    planned = status("n1", "n2", mine={"starting": ["n3"]})
    said = unsettled(snapshot(status=planned, elements=STARTING))
    assert said == ["digits has elements on ['n1', 'n2', 'n3'], and trains on ['n1', 'n2']"]


@pytest.mark.parametrize(("before", "failed"), [(0, True), (1, False)])
def test_a_trainer_fails_beside_another_one_that_a_fault_hit(before: int, failed: bool) -> None:
    seen = snapshot(status=status("n1", "n2", mine={"failures": 1}), spared={ARRAY: before})
    said = never_so(seen)
    assert said == [f"trainer {ARRAY} failed, though the fault hit another one"] * failed


def test_twins_are_a_violation_at_any_moment() -> None:
    assert never_so(snapshot(trainers=(trainer_with(trained(*OLD, "n2.2 8 b 3")),)))


UNHEARD = "[25400001.0] error: Rank 0 failed sending step completion message directly to slurmctld"
GIVEN_UP = (
    "[{}] error: *** STEP {} STEPD TERMINATED ON n1 AT 2026-11-24T03:04:57 "
    "DUE TO JOB NOT ENDING WITH SIGNALS ***"
)


@pytest.mark.parametrize(
    ("reason", "log", "forgiven"),
    [
        ("Duplicate jobid", [], True),
        ("Kill task failed", [UNHEARD, GIVEN_UP.format("25400001.0", "25400001.0")], True),
        ("Kill task failed", [GIVEN_UP.format("25400001.0", "25400001.0"), UNHEARD], False),
        ("Kill task failed", [UNHEARD, GIVEN_UP.format("25400001.1", "25400001.1")], False),
        ("Kill task failed", [UNHEARD], False),
        ("Not responding", [UNHEARD, GIVEN_UP.format("25400001.0", "25400001.0")], False),
    ],
)
def test_a_node_is_drained_by_slurm_itself_only_for_steps_that_had_ended(
    reason: str, log: list[str], forgiven: bool
) -> None:
    assert drained_by_slurm(reason, "\n".join(log)) == forgiven
