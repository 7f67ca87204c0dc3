from pathlib import Path

import pytest

from tests.chaos.made import OLD, trained
from tests.chaos.training import Generation, Training, doubled, forget_apart, losses, twins


def steps(*lines: str) -> list[Generation]:
    return trained(*lines).generations


TEN = [f"n1.1 {number} a {number}" for number in range(1, 11)]


@pytest.mark.parametrize(
    ("then", "saves", "lost", "allowed"),
    [
        pytest.param(["n1.1 11 b 11", "n2.2 11 b 11"], [], [], [], id="the next goes on"),
        pytest.param(["n1.2 12 b 9"], [4, 8], [2], [3], id="it begins at the last checkpoint"),
        pytest.param(["n1.2 12 b 5"], [4, 8], [6], [3], id="it begins at the one before"),
        pytest.param(["n1.2 12 b 7", "n1.2 13 c 8"], [6], [4], [5], id="a third one goes on"),
        pytest.param(["n1.2 12 b 1"], [], [10], [11], id="there is no checkpoint"),
        pytest.param(["n1.2 12 b 9"], [4, 20], [2], [7], id="the last checkpoint is its own"),
    ],
)
def test_a_generation_may_lose_what_came_after_the_last_checkpoint(
    then: list[str], saves: list[int], lost: list[float], allowed: list[float]
) -> None:
    found = losses(steps(*TEN, *then), [(number + 0.5, number) for number in saves])
    assert [one.lost for one in found] == lost
    assert [one.allowed for one in found] == allowed


@pytest.mark.parametrize(
    ("lines", "apart", "twin"),
    [
        ([*OLD, "n2.2 8 b 1"], (), True),
        ([*OLD[:3], "n2.2 8 b 1"], (), False),
        ([*OLD, "n2.2 10 b 1"], (), False),
        ([*OLD, "n2.2 8 b 1"], ("n1",), False),
        ([*OLD, "n2.2 8 b 1"], ("n2",), True),
        ([*OLD, "n3.3 2 a 1", "n2.2 8 b 1"], ("n1",), True),
    ],
    ids=[
        "trains on",
        "a late word",
        "soon over",
        "nobody reaches it",
        "not the old one",
        "nor all of it",
    ],
)
def test_an_old_generation_that_trains_on_beside_the_new_one_is_a_twin(
    lines: list[str], apart: tuple[str, ...], twin: bool
) -> None:
    assert bool(twins(steps(*lines), apart)) == twin


def test_what_was_forgiven_stays_so_and_what_comes_after_does_not() -> None:
    training = trained(*OLD, "n2.2 8 b 1")
    forget_apart(training.generations, {"n1"})
    assert twins(training.generations) == []
    for time_s in (21, 22, 23):
        training.add_step("n1.1", time_s, "a", 1, 9)
    assert twins(training.generations)


@pytest.mark.parametrize(
    ("lines", "most", "said"),
    [
        (["n1.1 1 a 1", "n1.2 1 a 1", "n2.3 1 a 1"], 1, ["generation a has 2 processes on n1"]),
        (["n1.1 1 a 1", "n1.2 1 a 1"], 2, []),
        (["n1.1 1 a 1", "n1.2 1 a 1", "n1.3 1 a 1"], 2, ["generation a has 3 processes on n1"]),
    ],
)
def test_a_node_has_a_process_for_each_gpu_and_no_more(
    lines: list[str], most: int, said: list[str]
) -> None:
    assert doubled(steps(*lines), most) == said


def test_a_port_that_is_used_again_is_another_generation() -> None:
    made = steps("n1.1 1 5000 1", "n1.2 60 5000 2")
    assert [one.first for one in made] == [1.0, 2.0]


def test_a_log_is_read_as_it_grows_and_half_a_line_waits(tmp_path: Path) -> None:
    training = Training(tmp_path)
    log = tmp_path / "n1.77"
    log.write_text("1.0 step a 1 1\n1.5 saved a 1 1\n2.0 st")
    training.read()
    seen = training.newest
    assert seen is not None and seen.last == 1.0
    assert training.saves == [(1.5, 1.0)]
    with log.open("a") as file:
        file.write("ep a 1 2\n")
    training.read()
    assert seen.last == 2.0
    assert seen.places == {"n1.77": "n1"}
