from typing import Any

import pytest

from tests.chaos.invariants import never_so, unsettled
from tests.chaos.made import (
    ARRAY,
    NOW_S,
    element,
    held,
    process,
    snapshot,
    status,
    trained,
    trainer,
    trainer_with,
)
from tests.chaos.observe import drained_by_slurm

ELSEWHERE = element(0, "n3", array=99)


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
        ({"status": status("n1")}, "runs on ['n2'], unknown to the controller"),
        ({"status": status("n1", "n2", "n3")}, "does not run on ['n3'], as it is shown to"),
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
        ({"problems": ("ordinary job 5 is FAILED",)}, "ordinary job 5 is FAILED"),
    ],
)
def test_what_is_not_well_is_said(seen: dict[str, Any], words: str) -> None:
    assert any(words in said for said in unsettled(snapshot(**seen)))


def test_a_trainer_that_is_given_up_is_lost() -> None:
    given_up = status("n1", "n2")
    given_up["trainers"][0] |= {"state": "given up", "why": "failed 5 times"}
    assert unsettled(snapshot(status=given_up)) == ["digits is given up: failed 5 times"]


def test_an_element_that_starts_as_planned_is_no_leak() -> None:
    starting = status("n1", "n2")
    starting["trainers"][0]["starting"] = ["n3"]
    elements = (element(0, "n1"), element(1, "n2"), element(2, "n3"))
    said = unsettled(snapshot(status=starting, elements=elements))
    assert said == ["digits has elements on ['n1', 'n2', 'n3'], and trains on ['n1', 'n2']"]


def test_twins_are_a_violation_at_any_moment() -> None:
    old = [f"n1.1 {time_s} a {time_s}" for time_s in (1, 2, 11, 12, 13)]
    twins = trainer_with(trained(*old, "n2.2 8 b 3"))
    assert never_so(snapshot(trainers=(twins,)))


def test_a_held_element_of_a_trainer_that_trains_is_as_it_should_be() -> None:
    assert unsettled(snapshot(elements=(element(0, "n1"), element(1, "n2"), held(2)))) == []


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
