"""Tables say what was measured, what failed, and which targets are met."""

from __future__ import annotations

from scripts.elastic_bench import report
from scripts.elastic_bench.measure import Measured
from scripts.elastic_bench.setups import SETUPS

STOCK = Measured(SETUPS["c10d"], join_s=[6.0, 5.0, 7.0], leave_s=[6.5], reclaim_s=[6.5])
OWN = Measured(SETUPS["handler"], join_s=[0.1, 0.2, 0.3], kill_s=[0.5])


def line(text: str, begin: str) -> str:
    return next(one for one in text.splitlines() if one.startswith(begin))


def test_set_ups_stand_side_by_side_with_median_and_range() -> None:
    row = line(report.pauses("tiny", [STOCK, OWN]), "node joins")
    assert row.split()[-10:] == [
        *("6.000", "(5.000", "to", "7.000)", "3"),
        *("0.200", "(0.100", "to", "0.300)", "3"),
    ]


def test_what_was_not_measured_is_a_dash() -> None:
    assert line(report.pauses("tiny", [STOCK]), "node killed").split()[-1] == "-"


def test_a_leave_that_could_not_be_planned_is_marked() -> None:
    text = report.pauses("tiny", [STOCK])
    assert "*6.500" in line(text, "planned leave")
    assert "* stock c10d knows no planned leave" in text


def test_targets_are_held_against_medians() -> None:
    assert [str(one) for one in report.targets("tiny", [STOCK, OWN])] == [
        "met     handler: node joins: pause of the others: 0.200 <= 0.25",
        "MISSED  handler: node killed: pause of the others: 0.500 <= 0.3",
    ]


def test_copying_the_state_comes_on_top_of_what_a_join_may_take() -> None:
    joined = Measured(SETUPS["inprocess"], join_s=[0.9, 1.0, 1.1], copy_s=[0.8, 0.9, 0.9])
    [target] = report.targets("large", [joined])
    text = "node joins: pause of the others (0.15 s, and 0.900 s for the copy): 1.000 <= 1.05"
    assert str(target) == f"met     inprocess, large model: {text}"


def test_of_the_large_model_reading_the_scripts_own_checkpoint_is_held_against_nothing() -> None:
    assert report.targets("large", [OWN]) == []


def test_a_trainer_that_did_not_train_on_is_not_passed_over() -> None:
    failed = Measured(SETUPS["handler"], failures=["3 nodes do not train together"])
    assert "FAILED: 3 nodes do not train together" in report.pauses("tiny", [failed])
