"""Steps as processes log them, and what they say of a change of nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.benchkit.steps import Step, StepLog, standstill, trained_again, usual_step_s


def steps(*made: tuple[float, int, int]) -> list[Step]:
    return [Step(*one) for one in made]


def test_a_line_is_read_once_it_is_whole_and_only_a_step_is_one(tmp_path: Path) -> None:
    log = StepLog(tmp_path)
    (tmp_path / "n1.77").write_text('2.0 3 5 {"group": "a b"}\nat exit\n3.0 3')
    (tmp_path / "n2.8").write_text("1.5 3 5\n")
    (tmp_path / "n1.out").write_text("1.0 2 3\n")  # of no process
    first, second = Step(1.5, 3, 5, "n2", 8), Step(2.0, 3, 5, "n1", 77, {"group": "a b"})
    assert log.all() == [first, second]
    with (tmp_path / "n1.77").open("a") as file:
        file.write(" 6\n")
    assert log.all() == [first, second, Step(3.0, 3, 6, "n1", 77)]
    assert [one.number for one in log.of("n1")] == [5, 6]


BEFORE = ((0, 4, 1), (1, 4, 2), (2, 4, 3))


@pytest.mark.parametrize(
    ("after", "planned", "stood_s"),
    [
        ([(5, 3, 4), (6, 3, 5)], False, 2.0),
        ([(3, 4, 4), (4.5, 4, 5), (6, 3, 6)], True, 0.5),
        ([(3, 4, 4), (4.5, 4, 5), (6, 3, 6)], False, 1.0),  # a slow step after its loss counts
        ([(3, 4, 4)], True, None),
    ],
    ids=["lost", "planned", "lost while it trained", "never"],
)
def test_a_node_stands_still_for_longer_than_a_step(
    after: list[tuple[float, int, int]], planned: bool, stood_s: float | None
) -> None:
    log = steps(*BEFORE, *after)
    usual_s = usual_step_s(log[:3])
    assert standstill(log, 2.5, 3, usual_s, planned) == stood_s


def test_steps_that_a_node_had_made_are_counted_again() -> None:
    assert trained_again(steps(*BEFORE, (5, 3, 2), (6, 3, 3), (7, 3, 4)), 2.5) == 2
