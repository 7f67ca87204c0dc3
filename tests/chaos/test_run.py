from pathlib import Path
from random import Random

from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.model import ElementId
from tests.chaos.faults import CATALOGUE
from tests.chaos.faults.state import make_first_version
from tests.chaos.report import document, table
from tests.chaos.run import Outcome, Result, order


def test_each_kind_of_fault_comes_once_before_any_comes_again() -> None:
    coming = order(list(CATALOGUE), Random(1))
    rounds = [[next(coming) for _ in CATALOGUE] for _ in range(2)]
    assert [sorted(names) for names in rounds] == [sorted(CATALOGUE)] * 2
    assert rounds[0] != rounds[1]


def test_the_order_is_the_seeds() -> None:
    def names(seed: int) -> list[str]:
        coming = order(list(CATALOGUE), Random(seed))
        return [next(coming) for _ in CATALOGUE]

    assert names(3) == names(3) != names(4)


def test_a_history_made_old_is_one_that_the_first_version_could_have_written(
    tmp_path: Path,
) -> None:
    path = tmp_path / "history.sqlite"
    history = History(path)
    history.begin_stay(ElementId(12, 0), "n1", 100.0)
    history.close()
    make_first_version(path)
    assert History(path).open_stays() == {ElementId(12, 0): "n1"}


def result(*violations: str) -> Result:
    outcome = Outcome("keeper-killed", "SIGKILL", 3.0, list(violations), {"digits": 2.0})
    calm = Outcome("keeper-killed", "SIGKILL", 5.0, [], {"digits": 1.0})
    return Result(7, 60.0, [outcome, calm], steps={"digits": 1000.0})


def test_a_run_without_violations_is_good() -> None:
    assert result().good
    assert document(result())["steps_lost"] == {"digits": 3.0}


def test_a_violation_makes_it_bad_and_is_in_the_table() -> None:
    assert not result("2 elements on n1").good
    shown = table(result("2 elements on n1"))
    assert "invariant violations   1" in shown
    assert "VIOLATION keeper-killed (SIGKILL): 2 elements on n1" in shown
