from collections.abc import Sequence

from bftrainer_slurm.controller.act import BURST, Pacer, carry_out
from bftrainer_slurm.controller.actions import Action, Grow, Shrink
from bftrainer_slurm.model import ElementId
from bftrainer_slurm.slurm.gateway import RefusedError

A, B, C = (ElementId(12, task) for task in range(3))


class Recorder:
    """Notes what a gateway would be asked; refuses to grow on the nodes it is told to."""

    name = "recorder"

    def __init__(self, refused: Sequence[str] = ()) -> None:
        self.asked: list[str] = []
        self._refused = refused

    def grow(self, element: ElementId, node: str, minutes: int | None = None) -> None:
        self.asked.append(f"grow {element} {node}")
        if node in self._refused:
            raise RefusedError("no")

    def shrink(self, elements: Sequence[ElementId]) -> None:
        self.asked.append(f"shrink {len(elements)}")


def do(actions: list[Action], gateway: Recorder) -> tuple[list[Action], list[int]]:
    begun: list[int] = []
    pacer = Pacer(1.0, lambda: 0.0, lambda _: None)
    refused = carry_out(actions, gateway, pacer, begun.append)  # type: ignore[arg-type]
    return refused, begun


def test_nodes_are_taken_away_before_they_are_given() -> None:
    gateway = Recorder()
    do([Grow(A, "n1", first=False), Shrink((B, C), "why")], gateway)
    assert gateway.asked == ["shrink 2", "grow 12_0 n1"]


def test_a_trainer_with_nothing_alive_begins_one_new_rendezvous() -> None:
    _, begun = do([Grow(A, "n1", first=True), Grow(B, "n2", first=True)], Recorder())
    assert begun == [12]


def test_a_refusal_is_returned_and_the_rest_is_done() -> None:
    gateway = Recorder(refused=["n1"])
    refused, _ = do([Grow(A, "n1", first=False), Grow(B, "n2", first=False)], gateway)
    assert refused == [Grow(A, "n1", first=False)]
    assert gateway.asked[-1] == "grow 12_1 n2"


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
