"""Of several hosts one works, whatever becomes of their clocks and of the folder."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bftrainer_slurm.keeper.lease import PATIENCE_S, ROUND_S, SETTLE_S, VALID_S, Lease


@dataclass
class Host:
    """A host with a clock of its own, which began at any time; ``lease`` is its process's."""

    folder: Path
    name: str
    now_s: float = 0.0
    lease: Lease = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Start the process, again if need be."""
        self.lease = Lease(self.folder / "lease", self.name, lambda: self.now_s)

    def live(self, seconds: float) -> None:
        """Let time pass, with a round every two seconds."""
        for _ in range(round(seconds / ROUND_S)):
            self.now_s += ROUND_S
            self.lease.round()


@pytest.fixture
def a(tmp_path: Path) -> Host:
    return Host(tmp_path, "a", now_s=1e6)


@pytest.fixture
def b(tmp_path: Path) -> Host:
    return Host(tmp_path, "b", now_s=5.0)


def live(seconds: float, *hosts: Host) -> None:
    for _ in range(round(seconds / ROUND_S)):
        for host in hosts:
            host.live(ROUND_S)


def test_the_first_host_works_and_the_others_wait(a: Host, b: Host) -> None:
    live(100, a, b)
    assert a.lease.holds()
    assert not b.lease.holds()


def test_another_host_works_once_the_first_is_silent(a: Host, b: Host) -> None:
    live(100, a, b)
    b.live(PATIENCE_S + SETTLE_S + 2 * ROUND_S)
    assert b.lease.holds()


def test_a_host_that_is_cut_off_from_the_folder_stops_before_another_begins(
    a: Host, b: Host
) -> None:
    live(100, a, b)
    while not b.lease.holds():
        a.now_s += ROUND_S
        b.live(ROUND_S)
        assert not (a.lease.holds() and b.lease.holds())
    assert not a.lease.holds()


def test_a_host_that_wakes_up_after_its_time_does_not_act_and_takes_nothing_back(
    a: Host, b: Host
) -> None:
    live(100, a, b)
    a.now_s += 1000
    b.live(1000)
    assert not a.lease.holds()
    a.lease.round()
    assert a.lease.lost
    live(100, b)
    assert b.lease.holds()


def test_a_host_whose_time_is_up_does_not_go_on_even_where_nobody_has_come(a: Host) -> None:
    a.live(100)
    a.now_s += VALID_S
    assert not a.lease.holds()
    a.live(100)
    assert not a.lease.holds()
    assert a.lease.lost


def test_a_process_that_is_started_again_goes_on_before_another_host_may(a: Host, b: Host) -> None:
    live(100, a, b)
    a.start()
    live(SETTLE_S, a, b)
    assert not a.lease.holds()
    live(2 * ROUND_S, a, b)
    assert a.lease.holds()


def test_of_two_that_claim_it_at_once_one_works(a: Host, b: Host) -> None:
    live(SETTLE_S + PATIENCE_S + 10 * ROUND_S, b, a)
    assert [a.lease.holds(), b.lease.holds()].count(True) == 1


def test_a_lease_that_makes_no_sense_is_nobodys(a: Host) -> None:
    a.lease.path.write_text('{"holder": ')
    a.live(PATIENCE_S)
    assert not a.lease.holds()
    a.live(SETTLE_S + 2 * ROUND_S)
    assert a.lease.holds()


def test_a_round_that_took_too_long_does_not_count(
    a: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    a.live(100)
    replace = Path.replace

    def slowly(self: Path, target: Path) -> Path:
        a.now_s += ROUND_S + 1
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", slowly)
        for _ in range(4):
            a.lease.round()
    assert not a.lease.holds()


@pytest.mark.parametrize("seed", range(12))
def test_two_hosts_never_work_at_once_whatever_stops_for_how_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Hosts in one true time: each stops, also within a round, and starts again, as it happens."""
    chance = random.Random(seed)
    hosts = [Host(tmp_path, name, chance.uniform(0, 1e6)) for name in ("a", "b", "c")]
    asleep_s = dict.fromkeys("abc", 0.0)
    worked: set[str] = set()
    writing: set[str] = set()
    replace = Path.replace

    def tick(seconds: float) -> None:
        for host in hosts:
            host.now_s += seconds
            asleep_s[host.name] -= seconds
        working = [host.name for host in hosts if host.lease.holds()]
        assert len(working) <= 1
        worked.update(working)

    def late(self: Path, target: Path) -> Path:
        """Now and then the others have their rounds before what is written arrives."""
        writing.add(self.suffix)
        if chance.random() < 0.05:
            arrives_s = hosts[0].now_s + chance.choice((1.0, 3.0, 11.0, 15.0, 30.0))
            while hosts[0].now_s < arrives_s:
                rounds(chance.choice((0.1, ROUND_S)))
        writing.remove(self.suffix)
        return replace(self, target)

    def rounds(seconds: float) -> None:
        tick(seconds)
        for host in hosts:
            if asleep_s[host.name] > 0 or f".{host.name}" in writing:
                continue
            if host.lease.lost or chance.random() < 0.005:
                host.start()
            if chance.random() < 0.02:
                asleep_s[host.name] = chance.choice((4.0, 11.0, 13.0, 30.0, 60.0))
            else:
                host.lease.round()

    monkeypatch.setattr(Path, "replace", late)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    for _ in range(1000):
        rounds(ROUND_S)
    assert worked
