"""What the controller of one host leaves to that of another, and what it does without the lease."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from bftrainer_slurm.controller.leadership import LeadersGateway, SharedHistory
from bftrainer_slurm.keeper.lease import ROUND_S, SETTLE_S, VALID_S, Lease
from bftrainer_slurm.model import ElementId
from bftrainer_slurm.slurm.detour import Detour
from bftrainer_slurm.slurm.gateway import Gateway, SlurmUnavailableError


class Asked:
    """Stands in for Slurm: notes what it is asked."""

    def __init__(self) -> None:
        self.requests: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *words: self.requests.append(" ".join(map(str, (name, *words))))


@pytest.fixture
def hosts(tmp_path: Path) -> tuple[Path, Path, Path]:
    """The states of two hosts, and what they share."""
    folders = tmp_path / "a", tmp_path / "b", tmp_path / "shared"
    for folder in folders:
        folder.mkdir()
    return folders


def test_a_trainer_that_is_over_on_one_host_is_over_on_the_other(
    hosts: tuple[Path, Path, Path],
) -> None:
    a, b, shared = hosts
    first = SharedHistory(a, shared)
    first.meet(7, "id", 1.0)
    first.meet(8, "id", 1.0)
    first.end(7, "given up")
    second = SharedHistory(b, shared)
    assert second.meet(7, "id", 2.0) == "given up"
    assert second.meet(8, "id", 2.0) is None


def test_another_trainer_of_the_same_number_is_not(hosts: tuple[Path, Path, Path]) -> None:
    a, b, shared = hosts
    first = SharedHistory(a, shared)
    first.meet(7, "id", 1.0)
    first.end(7, "given up")
    assert SharedHistory(b, shared).meet(7, "another", 2.0) is None


def test_a_host_that_works_again_has_what_it_knew_and_what_came_since(
    hosts: tuple[Path, Path, Path],
) -> None:
    a, b, shared = hosts
    for state, array in ((a, 7), (b, 8), (a, 9)):
        history = SharedHistory(state, shared)
        history.meet(array, "id", 1.0)
        history.end(array, "finished")
        history.close()
    assert [array for array, *_ in SharedHistory(a, shared).over()] == [7, 8, 9]


def test_after_others_nothing_is_taken_to_run_that_ran_when_this_host_worked(
    hosts: tuple[Path, Path, Path],
) -> None:
    a, b, shared = hosts
    first = SharedHistory(a, shared)
    first.begin_stay(ElementId(7, 0), "n1", 1.0)
    first.close()
    SharedHistory(b, shared).close()
    assert SharedHistory(a, shared).open_stays() == {}


def test_a_controller_that_was_started_again_knows_what_ran(
    hosts: tuple[Path, Path, Path],
) -> None:
    a, _, shared = hosts
    first = SharedHistory(a, shared)
    first.begin_stay(ElementId(7, 0), "n1", 1.0)
    first.close()
    assert SharedHistory(a, shared).open_stays() == {ElementId(7, 0): "n1"}


def test_word_that_makes_no_sense_is_passed_over(hosts: tuple[Path, Path, Path]) -> None:
    a, b, shared = hosts
    SharedHistory(a, shared).close()
    (shared / "controller.json").write_text('{"host": "a", "over": [[1]]}')
    assert SharedHistory(b, shared).over() == []


def test_without_the_lease_slurm_is_asked_but_nothing_is_changed(tmp_path: Path) -> None:
    now_s = 0.0
    lease = Lease(tmp_path / "lease", "a", lambda: now_s)
    lease.round()
    slurm = Asked()
    gateway = LeadersGateway(cast(Gateway, slurm), lease, Detour(tmp_path / "detour"))
    with pytest.raises(SlurmUnavailableError):
        gateway.cancel(7)
    while now_s < SETTLE_S + ROUND_S:
        now_s += ROUND_S
        lease.round()
    gateway.cancel(7)
    now_s += VALID_S
    asks = gateway.nodes, gateway.queue, gateway.reservations, gateway.last_pass
    for ask in asks:
        ask()
    gateway.configuration("bftrainer")
    with pytest.raises(SlurmUnavailableError):
        gateway.cancel(8)
    looks = ["nodes", "queue", "reservations", "last_pass", "configuration bftrainer"]
    assert slurm.requests == ["cancel 7", *looks]
