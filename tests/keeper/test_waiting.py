"""Who has to go where too many wait."""

from __future__ import annotations

from bftrainer_slurm.keeper.waiting import Waiting, address_of


def test_the_oldest_of_the_greediest_address_goes() -> None:
    gone: list[int] = []
    waiting = Waiting(4, gone.append)
    for key, address in enumerate(["honest", "greedy", "greedy", "greedy", "honest", "other"]):
        waiting.add(key, address)
    assert gone == [1, 0]
    assert len(waiting) == 4


def test_who_has_left_takes_no_place() -> None:
    gone: list[int] = []
    waiting = Waiting(1, gone.append)
    for key in range(3):
        waiting.add(key, "one")
        waiting.discard(key)
        waiting.discard(key)
    assert gone == []
    assert len(waiting) == 0


def test_an_address_is_read_off_a_peers_name() -> None:
    assert address_of(("10.0.0.1", 4321)) == "10.0.0.1"
    assert address_of(("::1", 4321, 0, 0)) == "::1"
    assert address_of("") == address_of(None) == "?"
