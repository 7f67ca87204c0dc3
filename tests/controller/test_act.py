from collections.abc import Mapping, Sequence

import pytest

from bftrainer_slurm.controller.act import BURST, Deeds, Pacer, carry_out
from bftrainer_slurm.controller.actions import Action, Grow, Hold, Shrink
from bftrainer_slurm.controller.groups import NoGroups
from bftrainer_slurm.model import ElementId
from bftrainer_slurm.slurm.gateway import RefusedError, SlurmUnavailableError

A, B, C = (ElementId(12, task) for task in range(3))


class Recorder:
    """Notes what a gateway would be asked; refuses to grow on the nodes it is told to."""

    name = "recorder"
    grow_rpcs = 1

    def __init__(self, refused: Sequence[str] = ()) -> None:
        self.asked: list[str] = []
        self._refused = refused

    def grow(self, element: ElementId, node: str, minutes: int | None = None) -> None:
        self.asked.append(f"grow {element} {node}")
        if node in self._refused:
            raise RefusedError("no")

    def shrink(self, elements: Sequence[ElementId]) -> None:
        self.asked.append(f"shrink {len(elements)}")

    def hold(self, elements: Sequence[ElementId]) -> None:
        raise SlurmUnavailableError("no answer")


class Told(NoGroups):
    """Notes what the keeper would be told, in the order in which the gateway is asked."""

    def __init__(self, gateway: Recorder) -> None:
        self.ended: list[int] = []
        self._gateway = gateway

    def part(self, leaving: Mapping[int, Sequence[int]]) -> None:
        self._gateway.asked += [f"part {array} {list(leaving[array])}" for array in leaving]

    def end(self, array: int) -> None:
        self.ended.append(array)


def do(actions: list[Action], gateway: Recorder) -> tuple[Deeds, list[int]]:
    deeds, groups = Deeds(), Told(gateway)
    pacer = Pacer(1.0, lambda: 0.0, lambda _: None)
    carry_out(actions, gateway, pacer, groups, deeds)  # type: ignore[arg-type]
    return deeds, groups.ended


def test_nodes_are_taken_away_before_they_are_given() -> None:
    gateway = Recorder()
    do([Grow(A, "n1", first=False), Shrink((B, C), "why")], gateway)
    assert gateway.asked[1:] == ["shrink 2", "grow 12_0 n1"]


def test_who_is_to_leave_is_asked_before_anything_is_ended() -> None:
    gateway = Recorder()
    do([Shrink((B,), "why"), Shrink((C,), "why")], gateway)
    assert gateway.asked == ["part 12 [1, 2]", "shrink 1", "shrink 1"]


def test_a_trainer_with_nothing_alive_begins_one_new_rendezvous() -> None:
    _, begun = do([Grow(A, "n1", first=True), Grow(B, "n2", first=True)], Recorder())
    assert begun == [12]


def test_a_refusal_is_returned_and_the_rest_is_done() -> None:
    gateway = Recorder(refused=["n1"])
    deeds, _ = do([Grow(A, "n1", first=False), Grow(B, "n2", first=False)], gateway)
    assert deeds.refused == [Grow(A, "n1", first=False)]
    assert deeds.done == [Grow(B, "n2", first=False)]
    assert gateway.asked[-1] == "grow 12_1 n2"


def test_what_was_done_is_known_though_slurm_stops_answering() -> None:
    gateway, deeds = Recorder(), Deeds()
    pacer = Pacer(1.0, lambda: 0.0, lambda _: None)
    actions = [Shrink((B,), "why"), Hold((C,)), Grow(A, "n1", first=False)]
    with pytest.raises(SlurmUnavailableError):
        carry_out(actions, gateway, pacer, NoGroups(), deeds)  # type: ignore[arg-type]
    assert deeds == Deeds(done=[actions[0]])


def test_a_clock_that_is_set_back_makes_nobody_wait() -> None:
    times = iter([1000.0, 0.0])
    waits: list[float] = []
    pacer = Pacer(1.0, lambda: next(times), waits.append)
    pacer.wait()
    pacer.wait()
    assert waits == []


def test_after_a_burst_commands_are_paced() -> None:
    now_s = 0.0
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        nonlocal now_s
        waits.append(seconds)
        now_s += seconds

    pacer = Pacer(2.0, lambda: now_s, sleep)
    for _ in range(BURST + 4):
        pacer.wait()
    assert waits == [0.5] * 4


def test_commands_of_several_rpcs_are_paced_by_these() -> None:
    waits: list[float] = []
    pacer = Pacer(2.0, lambda: 0.0, waits.append)
    gateway = Recorder()
    gateway.grow_rpcs = 4
    grows: list[Action] = [Grow(A, "n1", first=False)] * (BURST // 4 + 1)
    carry_out(grows, gateway, pacer, NoGroups(), Deeds())  # type: ignore[arg-type]
    assert waits == [2.0]
